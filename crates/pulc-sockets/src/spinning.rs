//! Looking at rings for a while before a sleep, only as long as it pays. A bell, the sleep that it ends and the way back cost as much as
//! many looks, most of all where cores are virtual. Where the other end was last on another core, this one spins; where it was on this
//! one, it is let go first: each look gives the core away once. Whoever was away from the core for long meanwhile shares it with somebody
//! else, and does not look again for some time.

use crate::channel::End;
use crate::kernel::Kernel;
use crate::layout::{end, is_ring, rx, tx};
use crate::memory::{AtomicU32, spin_loop, yield_now};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Connections that are looked at together.
pub const TOGETHER: usize = 4;
/// One look: as long as it takes another core of a virtual machine to wake and to answer.
const LOOK: Duration = Duration::from_micros(150);
/// Who did not run for so long has been sent away: somebody else wants the core.
const AWAY: Duration = Duration::from_micros(40);

/// Looks at another core's rings before the first at the clock: an answer that is on its way comes within them.
const UNTIMED: u32 = 32;
/// Finds at a time that tell of many who send.
const MUCH: usize = 2;
/// Times that a core is given to another one that may send.
const YIELDS: u32 = 6;
/// Who gave the core away and gets it back so late has given it to somebody else.
const LENT: Duration = Duration::from_micros(200);

/// Where the other end is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Other {
    /// On this core: it cannot send while somebody else runs here.
    Here,
    Elsewhere,
}

impl Other {
    /// From the numbers of cores, and one more, of the other end (zero: not known) and of this one.
    pub fn on(theirs: u32, mine: u32) -> Option<Other> {
        match theirs {
            0 => None,
            _ if theirs == mine => Some(Other::Here),
            _ => Some(Other::Elsewhere),
        }
    }

    fn away(self) -> Duration {
        match self {
            Other::Here => LENT,
            Other::Elsewhere => AWAY,
        }
    }
}

/// What came of a look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Look {
    Found,
    Nothing,
    /// The core was taken away.
    Away,
}

/// How well looking has done lately, in a word that any thread may write: it decides what is fast, never what is right.
/// Bits 0 to 7: luck; 8 to 15: logarithm of the waits between two tries without luck; 16 to 31: waits until the next try.
pub struct Luck<'a>(pub &'a AtomicU32);

const LUCK_MAX: u32 = 16;
/// Logarithms of waits between tries.
const RARE_MIN: u32 = 2;
const RARE_MAX: u32 = 12;

impl Luck<'_> {
    fn may_pay(&self) -> bool {
        let word = self.0.load(Ordering::Relaxed);
        word & 0xff != 0 || word >> 16 == 0
    }

    fn learn(&self, outcome: Option<Look>) {
        self.0.store(learned(self.0.load(Ordering::Relaxed), outcome), Ordering::Relaxed);
    }

    /// Looks until `found` finds something, if looks have paid; how much then. It is asked at least once.
    pub fn look(&self, other: Other, mut found: impl FnMut() -> usize) -> usize {
        let has = found();
        if has > 0 {
            return has;
        }
        if !self.may_pay() {
            self.learn(None);
            return 0;
        }
        for _ in 0..if other == Other::Here { 0 } else { UNTIMED } {
            spin_loop();
            let has = found();
            if has > 0 {
                self.learn(Some(Look::Found));
                return has;
            }
        }
        let began = Instant::now();
        let (mut last, mut yields) = (began, 0);
        loop {
            if other == Other::Here {
                yield_now();
                yields += 1;
            } else {
                spin_loop();
            }
            let (has, now) = (found(), Instant::now());
            // Whoever had the core and leaves much has not stood in the way.
            let was_away = now.duration_since(last) > other.away() && has < MUCH;
            last = now;
            let is_over = yields == YIELDS || now.duration_since(began) > LOOK;
            if has > 0 || was_away || is_over {
                self.learn(Some(match (was_away, has > 0) {
                    (true, _) => Look::Away,
                    (false, true) => Look::Found,
                    (false, false) => Look::Nothing,
                }));
                return has;
            }
        }
    }
}

/// The word after a look, or after a wait without one.
fn learned(word: u32, outcome: Option<Look>) -> u32 {
    let (luck, rare, left) = ((word & 0xff).min(LUCK_MAX), word >> 8 & 0xff, word >> 16);
    let made = |luck: u32, rare: u32, left: u32| luck | rare << 8 | left << 16;
    let without = || {
        let rare = (rare + 1).clamp(RARE_MIN, RARE_MAX);
        made(0, rare, 1 << rare)
    };
    match outcome {
        Some(Look::Found) => made((luck + 1).min(LUCK_MAX), 0, 0),
        Some(Look::Nothing) if luck > 1 => made(luck - 1, 0, 0),
        Some(Look::Nothing | Look::Away) => without(),
        None => made(luck, rare, left.saturating_sub(1)),
    }
}

impl End {
    /// Looks at this ring alone; true when something came.
    pub fn look_around(&self, kernel: &impl Kernel) -> bool {
        look_around(&[self], kernel)
    }

    /// Says which core this end is on.
    #[inline]
    pub(crate) fn say_core(&self, core: u32) {
        let said = self.mine(end::CPU);
        if said.load(Ordering::Relaxed) != core {
            said.store(core, Ordering::Relaxed);
        }
    }

    /// The core that the other end was on when it sent last, and one more; zero: nobody knows.
    #[inline]
    pub fn peer_core(&self) -> u32 {
        self.theirs(end::CPU).load(Ordering::Relaxed)
    }
}

/// A ring that somebody may look at before a sleep.
pub trait Looked {
    /// Whether what comes next comes by the ring, as far as is known.
    fn comes_by_ring(&self) -> bool;
    /// Whether there is something.
    fn has_something(&self) -> bool;
    /// Asks for the line in which what is taken next begins.
    fn expect(&self);
    /// The core that who sent last was on, and one more; zero: nobody knows.
    fn core_of_sender(&self) -> u32;
    /// How much looking has paid lately.
    fn luck(&self) -> Luck<'_>;
}

impl Looked for End {
    fn comes_by_ring(&self) -> bool {
        is_ring(self.in_tx(tx::EPOCH).load(Ordering::Relaxed))
    }

    fn has_something(&self) -> bool {
        self.unread() != 0
    }

    fn expect(&self) {
        self.expect_next();
    }

    fn core_of_sender(&self) -> u32 {
        self.peer_core()
    }

    fn luck(&self) -> Luck<'_> {
        Luck(self.in_rx(rx::LUCK))
    }
}

/// Looks at these rings before a sleep for all of them; true when something came. Those whose sender is on the kernel just now are left
/// out: a look at their rings finds nothing. One luck speaks for all.
pub fn look_around(all: &[&dyn Looked], kernel: &impl Kernel) -> bool {
    let core = kernel.cpu() + 1;
    let rings = || all.iter().filter(|ring| ring.comes_by_ring());
    let found = || rings().filter(|ring| ring.has_something()).inspect(|ring| ring.expect()).count();
    let Some(first) = rings().next() else { return false };
    let others = || rings().map(|ring| Other::on(ring.core_of_sender(), core));
    let other = if others().any(|other| other.is_none()) {
        return found() > 0;
    } else if others().any(|other| other == Some(Other::Here)) {
        Other::Here
    } else {
        Other::Elsewhere
    };
    first.luck().look(other, found) > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(word: &AtomicU32, count: u32, outcome: Look) -> u32 {
        let luck = Luck(word);
        let mut looks = 0;
        for _ in 0..count {
            let may = luck.may_pay();
            looks += u32::from(may);
            luck.learn(may.then_some(outcome));
        }
        looks
    }

    #[test]
    fn looks_that_do_not_pay_become_rare_and_come_back_when_they_pay() {
        let word = AtomicU32::new(0);
        assert!(Luck(&word).may_pay(), "the first wait tries");
        let looks = waits(&word, 10_000, Look::Nothing);
        assert!((3..=12).contains(&looks), "{looks} of 10000 waits looked");
        // The next try that pays brings them back, and then some may fail.
        let before = waits(&word, 1 << RARE_MAX, Look::Nothing);
        assert!(before <= 2, "{before}");
        word.store(0, Ordering::Relaxed);
        assert_eq!(waits(&word, 100, Look::Found), 100);
        assert_eq!(waits(&word, LUCK_MAX, Look::Nothing), LUCK_MAX);
        assert!(!Luck(&word).may_pay(), "no luck is left");
    }

    #[test]
    fn who_is_sent_away_does_not_look_again_for_long() {
        let word = AtomicU32::new(0);
        assert_eq!(waits(&word, 100, Look::Found), 100);
        assert_eq!(waits(&word, 1 + (1 << RARE_MIN), Look::Away), 1);
    }

    #[test]
    fn a_look_finds_what_comes_while_it_looks() {
        let word = AtomicU32::new(0);
        let mut looks = 0;
        let found = Luck(&word).look(Other::Here, || {
            looks += 1;
            usize::from(looks == 2)
        });
        // However long the core was away meanwhile.
        assert_eq!((found, looks), (1, 2));
        assert_eq!(Luck(&AtomicU32::new(1 << 16)).look(Other::Elsewhere, || 0), 0, "it is not the time for a try");
    }
}
