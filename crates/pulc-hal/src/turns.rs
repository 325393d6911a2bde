//! Numbered turns of processes that write one memory together: who may write which line, and when everybody has. The rules alone, apart
//! from the memory, so that loom can try every order. Used by the halls of MPI's collectives over a [`Segment`].
//!
//! In a turn each member writes its line (and pieces of memory that belong to it), then sets the line's mark, which says the
//! turn; whoever finds all marks there has seen all of it. There are lines of `depth` turns. Before one of an earlier turn is written again, everybody
//! must have entered a turn after it, which nobody does before he has read the earlier one: with `ahead`, a process may show so many turns
//! ahead of the one that it reads, and that many more must lie between.
//!
//! Must never believe a mark: it is compared with what is expected, and nothing else is made of it.

use crate::segment::Segment;
use crate::sync::full_barrier;

/// What a turn is for, in the low bits of its mark.
const WHAT_BITS: u32 = 16;

/// Marks by line: [`Segment`], or a model's.
pub trait Marks {
    /// What the mark's writer wrote before is visible with it (acquire).
    fn mark(&self, line: usize) -> u64;
    /// After everything that it announces has been written (release).
    fn set_mark(&self, line: usize, mark: u64);
    /// A line that is written soon; a hint.
    fn claim(&self, _line: usize) {}
}

impl Marks for Segment {
    #[inline(always)]
    fn mark(&self, line: usize) -> u64 {
        self.mark(line * crate::segment::LINE_BYTES)
    }

    #[inline(always)]
    fn set_mark(&self, line: usize, mark: u64) {
        self.set_mark(line * crate::segment::LINE_BYTES, mark);
    }

    #[inline(always)]
    fn claim(&self, line: usize) {
        self.claim(line * crate::segment::LINE_BYTES);
    }
}

/// One member's view.
pub struct Turns {
    members: usize,
    me: usize,
    /// A power of two.
    depth: u64,
    ahead: u64,
    /// The turn that this process has entered last.
    turn: u64,
    /// A turn that all are known to have entered.
    seen: u64,
    /// How many members, from the first on, are known to have entered the turn that is looked for.
    looked: (u64, usize),
}

impl Turns {
    /// # Panics
    /// When the depth leaves no turn between two uses of a line.
    pub fn new(members: usize, me: usize, depth: u64, ahead: u64) -> Turns {
        assert!(depth.is_power_of_two() && depth > ahead + 1, "lines of {depth} turns, {ahead} shown ahead");
        Turns { members, me, depth, ahead, turn: 0, seen: 0, looked: (0, 0) }
    }

    /// Begins the next turn. Before this process's line of it is written, everybody must have entered the second one.
    #[inline]
    pub fn begin(&mut self) -> (u64, u64) {
        self.turn += 1;
        (self.turn, self.needed(self.turn, self.depth))
    }

    /// The turn that everybody must have entered before memory is written in `turn` of which there is as much as for `depth` turns.
    #[inline]
    pub fn needed(&self, turn: u64, depth: u64) -> u64 {
        debug_assert!(depth.is_power_of_two() && depth > self.ahead + 1);
        (turn + 1 + self.ahead).saturating_sub(depth)
    }

    /// Lines in all.
    pub fn lines(members: usize, depth: u64) -> usize {
        depth as usize * (members + 1)
    }

    /// The line of a member.
    #[inline(always)]
    pub fn line(&self, turn: u64, member: usize) -> usize {
        (turn & (self.depth - 1)) as usize * (self.members + 1) + member
    }

    /// The line of whoever enters last.
    #[inline(always)]
    pub fn last_line(&self, turn: u64) -> usize {
        self.line(turn, self.members)
    }

    /// The place of a member's piece among those of `depth` turns, of which there may be fewer than lines.
    #[inline(always)]
    pub fn piece(&self, turn: u64, member: usize, depth: u64) -> usize {
        (turn & (depth - 1)) as usize * self.members + member
    }

    /// Whether everybody is known to have entered a turn, without a look.
    #[inline(always)]
    pub fn has_seen(&self, turn: u64) -> bool {
        self.seen >= turn
    }

    /// Sets the mark of this process's own line, and asks for that of the next turn: the cores that have read it an age ago still keep
    /// it, and to take it from them then would be a second way between two cores.
    #[inline(always)]
    pub fn show(&self, marks: &impl Marks, turn: u64, what: u16) {
        marks.set_mark(self.line(turn, self.me), mark(turn, what));
        marks.claim(self.line(turn + 1, self.me));
    }

    /// The same, and whether everybody has entered. Of two that enter at the same time at least one is told so.
    #[inline]
    pub fn enter(&mut self, marks: &impl Marks, turn: u64, what: u16) -> bool {
        self.show(marks, turn, what);
        // Of two that enter at the same time, one sees the other; and who sleeps is seen, or sees the mark.
        full_barrier();
        self.all_in(marks, turn)
    }

    /// Whether everybody has entered a turn.
    #[inline]
    pub fn all_in(&mut self, marks: &impl Marks, turn: u64) -> bool {
        if self.seen >= turn {
            return true;
        }
        let mut member = if self.looked.0 == turn { self.looked.1 } else { 0 };
        while member < self.members && self.is_in(marks, turn, member) {
            member += 1;
        }
        self.looked = (turn, member);
        if member < self.members {
            return false;
        }
        self.seen = turn;
        true
    }

    /// Whether one has.
    #[inline]
    pub fn is_in(&self, marks: &impl Marks, turn: u64, member: usize) -> bool {
        // A later turn with the same line counts: its owner has gone on.
        marks.mark(self.line(turn, member)) >> WHAT_BITS >= turn
    }

    /// The word of whoever enters last, after its line was written. Two that enter together say the same.
    #[inline]
    pub fn tell(&self, marks: &impl Marks, turn: u64, what: u16) {
        marks.set_mark(self.last_line(turn), mark(turn, what));
    }

    /// Whether somebody has said that all have entered a turn.
    #[inline]
    pub fn is_told(&mut self, marks: &impl Marks, turn: u64) -> bool {
        if self.seen < turn && marks.mark(self.last_line(turn)) >> WHAT_BITS >= turn {
            self.seen = turn;
        }
        self.seen >= turn
    }
}

/// The mark of a turn.
#[inline(always)]
pub fn mark(turn: u64, what: u16) -> u64 {
    turn << WHAT_BITS | u64::from(what)
}
