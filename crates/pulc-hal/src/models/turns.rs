//! Turns of a hall under loom: lines of two turns, two or three members.

use crate::doorbell;
use crate::tried::Place;
use crate::turns::{Marks, Turns};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use loom::thread;

const DEPTH: u64 = 2;

/// Marks, and beside each what it announces.
struct Lines {
    marks: Vec<AtomicU64>,
    /// Has one writer.
    slots: Vec<Place>,
    /// May be written by two, who write the same.
    words: Vec<AtomicU64>,
}

impl Lines {
    fn new(members: usize) -> Arc<Lines> {
        let lines = Turns::lines(members, DEPTH);
        let words = || (0..lines).map(|_| AtomicU64::new(0)).collect();
        let slots = (0..lines).map(|_| Place::new(0)).collect();
        Arc::new(Lines { marks: words(), slots, words: words() })
    }
}

impl Marks for Lines {
    fn mark(&self, line: usize) -> u64 {
        self.marks[line].load(Ordering::Acquire)
    }

    fn set_mark(&self, line: usize, mark: u64) {
        self.marks[line].store(mark, Ordering::Release);
    }
}

fn wait_until(mut so: impl FnMut() -> bool) {
    while !so() {
        thread::yield_now();
    }
}

/// A member of two: the first one shows something in each turn and waits for nobody but for its line, the other one reads it.
fn show_or_read(lines: &Lines, me: usize, last: u64) {
    let mut turns = Turns::new(2, me, DEPTH, 0);
    for _ in 0..last {
        let (turn, needed) = turns.begin();
        wait_until(|| turns.all_in(lines, needed));
        // Loom complains if somebody reads it meanwhile.
        lines.slots[turns.line(turn, me)].set(turn);
        turns.enter(lines, turn, 1);
        if me == 0 {
            continue;
        }
        wait_until(|| turns.all_in(lines, turn));
        let seen = lines.slots[turns.line(turn, 1 - me)].get();
        assert_eq!(seen, turn, "a line of another turn");
    }
}

#[test]
fn a_line_is_read_whole_and_written_again_only_after_everybody_has_read_it() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let lines = Lines::new(2);
        let others = lines.clone();
        let other = thread::spawn(move || show_or_read(&others, 1, 3));
        show_or_read(&lines, 0, 3);
        other.join().expect("the other one ends");
    });
}

#[test]
fn of_members_that_enter_together_one_sees_all_and_tells_the_others_what_they_made() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(|| {
        let lines = Lines::new(3);
        let enter = |lines: &Lines, me: usize| {
            let mut turns = Turns::new(3, me, DEPTH, 0);
            let (turn, _) = turns.begin();
            lines.words[turns.line(turn, me)].store(1 << me, Ordering::Relaxed);
            let is_last = turns.enter(lines, turn, 1);
            if is_last {
                let sum = (0..3).map(|place| lines.words[turns.line(turn, place)].load(Ordering::Relaxed)).sum();
                assert_eq!(sum, 0b111, "a line that was announced is not there");
                lines.words[turns.last_line(turn)].store(sum, Ordering::Relaxed);
                turns.tell(lines, turn, 1);
            } else if turns.is_told(lines, turn) {
                assert_eq!(
                    lines.words[turns.last_line(turn)].load(Ordering::Relaxed),
                    0b111,
                    "a result that is not there"
                );
            }
            is_last
        };
        let others = [1, 2].map(|me| {
            let lines = lines.clone();
            thread::spawn(move || enter(&lines, me))
        });
        let first = enter(&lines, 0);
        let last = others.into_iter().map(|other| other.join().expect("it ends")).fold(first, |any, last| any | last);
        assert!(last, "all have entered, and nobody knows");
    });
}

#[test]
fn who_goes_to_sleep_in_a_turn_sees_the_last_mark_or_is_seen_by_whoever_sets_it() {
    loom::model(|| {
        let lines = Lines::new(2);
        let bell = Arc::new(AtomicU32::new(doorbell::AWAKE));
        let (other_lines, other_bell) = (lines.clone(), bell.clone());
        let last = thread::spawn(move || {
            let mut turns = Turns::new(2, 1, DEPTH, 0);
            let (turn, _) = turns.begin();
            turns.enter(&*other_lines, turn, 1) && doorbell::sleeps(&*other_bell)
        });
        let mut turns = Turns::new(2, 0, DEPTH, 0);
        let (turn, _) = turns.begin();
        let is_last = turns.enter(&*lines, turn, 1);
        let sees = is_last || {
            doorbell::announce_sleep(&*bell, 1);
            turns.all_in(&*lines, turn)
        };
        let is_rung = last.join().expect("the other one ends");
        assert!(sees || is_rung, "asleep in a turn that all have entered");
    });
}
