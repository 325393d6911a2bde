//! The waiting ladder: how a thread that has nothing to do waits. On a core of its own it polls for about the cost of a
//! wake-up and then sleeps. Where others run too it hands the core over while that is of use and then sleeps. Decides only;
//! `process` acts. Whether a core is shared is known from what all ranks of the node publish on the board, and, for processes
//! that publish nothing, from how long a `sched_yield` took: one that took long let somebody else run.

use pulc_base::clock::{self, Nanos};
use pulc_hal::board::Board;
use pulc_hal::os::cpu;

/// Polls between two looks at the clock.
const POLLS_PER_LOOK: u32 = 64;
/// Polls until the core is given away where another rank of this node runs too: very likely it is the one waited for.
const POLLS_SHARED: u32 = 1;
/// And where strangers run.
const POLLS_FOREIGN: u32 = 200;
/// A yield that took longer let somebody else run; an empty one takes a third of this.
const YIELD_WAS_USEFUL: Nanos = Nanos(900);
/// Time of polling after which a yield asks whether somebody else runs here.
const PROBE_AFTER: Nanos = Nanos::from_us(6);
/// How long it is believed that somebody else runs here.
const FOREIGN_FOR: Nanos = Nanos::from_ms(20);
/// After so many yields in a row that let nobody run, the stranger is gone: a process that has its core back polls again
/// instead of sleeping early, which would cost the next message a wake-up.
const FOREIGN_GONE_AFTER: u32 = 1;
/// Waits that look nowhere, one after another at most: reading a clock after every change of process costs more than its instructions,
/// because its pages are not in the TLB any more.
const WAITS_PER_LOOK: u32 = 64;
/// How old the look at the board may be.
const BOARD_LOOK_EVERY: Nanos = Nanos::from_us(500);
/// Yields in one wait at most.
const YIELDS_MAX: u32 = 256;

/// What this process knows about who shares its core.
pub(crate) struct Crowd {
    pub(crate) patience: Patience,
    spin: Nanos,
    /// Other ranks of this node that last said they run here.
    co_residents: u32,
    looked_at: Nanos,
    foreign_until: Nanos,
    /// Waits since the last look that read no clock.
    waits_unseen: u32,
}

impl Crowd {
    pub fn new(spin_us: u64) -> Crowd {
        let spin = Nanos::from_us(spin_us);
        Crowd {
            patience: Patience::new(),
            spin,
            co_residents: 0,
            looked_at: Nanos(0),
            foreign_until: Nanos(0),
            waits_unseen: 0,
        }
    }

    /// For waits that are too short, or too many, to read the clock in each: who shares the core may have changed all the same, and
    /// whoever yields at every message to somebody who has moved away would never find out.
    #[inline(always)]
    pub(crate) fn look_now_and_then(&mut self, board: &Board, my_slot: u32) {
        self.waits_unseen += 1;
        if self.waits_unseen >= WAITS_PER_LOOK {
            self.look(board, my_slot, clock::now());
        }
    }

    /// Publishes where this process runs and looks who else does.
    fn look(&mut self, board: &Board, my_slot: u32, now: Nanos) {
        self.waits_unseen = 0;
        let core = cpu::current_core();
        board.slot(my_slot).publish_core(core);
        if now.since(self.looked_at) < BOARD_LOOK_EVERY && self.looked_at != Nanos(0) {
            return;
        }
        self.looked_at = now;
        let others = (0..board.slots()).filter(|slot| *slot != my_slot);
        self.co_residents = others.filter(|slot| board.slot(*slot).core() == Some(core)).count() as u32;
    }

    /// Whether ranks of this job run on this core, as far as they have said.
    #[inline(always)]
    pub(crate) fn has_job_mates(&self) -> bool {
        self.co_residents > 0
    }

    /// Other ranks of this node on this core.
    #[inline(always)]
    pub(crate) fn job_mates(&self) -> u32 {
        self.co_residents
    }

    #[inline(always)]
    pub(crate) fn is_shared(&self) -> bool {
        self.co_residents > 0 || self.foreign_until != Nanos(0)
    }
}

/// Whether it pays to yield to job-mates before sleeping, learned from what came of it. Two that talk with each other meet after one yield, and so do
/// all that take part in one collective operation. In a ring of many, the one waited for is far away: every yield then only takes the
/// core from those who have something to do.
pub(crate) struct Patience {
    /// Waits in a row that yielded in vain.
    failures: u32,
    /// Waits until yielding is tried again, and how many there are between two trials.
    until_trial: u32,
    between_trials: u32,
}

const FAILURES_MAX: u32 = 4;
const TRIAL_EVERY_MIN: u32 = 16;
const TRIAL_EVERY_MAX: u32 = 1024;
/// Longer than so many times the cost of a wake-up nobody yields: in a ring of eight on one core the turn of the token takes less, and
/// yielding is cheaper than to be woken; in a ring of sixteen it takes more.
const PATIENT_FOR_SPINS: u64 = 8;
/// So many yields are no waste, however long they take: everybody on the core has had his turn.
const YIELDS_AT_LEAST: u32 = 4;

impl Patience {
    fn new() -> Patience {
        Patience { failures: 0, until_trial: TRIAL_EVERY_MIN, between_trials: TRIAL_EVERY_MIN }
    }

    /// Whether a short wait yields.
    #[inline(always)]
    pub(crate) fn is_there(&self) -> bool {
        self.failures < FAILURES_MAX
    }

    /// Whether a wait yields; asked once in each.
    fn begin(&mut self) -> bool {
        if self.is_there() {
            return true;
        }
        self.until_trial = self.until_trial.saturating_sub(1);
        self.until_trial == 0
    }

    /// Yields brought what was waited for, soon enough. Who had no patience has it for one wait more: once may be chance, when somebody
    /// else had the core for so long that all others had their turn meanwhile.
    #[inline(always)]
    pub(crate) fn worked(&mut self) {
        if self.is_there() {
            *self = Patience::new();
        } else {
            self.failures = FAILURES_MAX - 1;
            self.until_trial = self.between_trials;
        }
    }

    /// They did not.
    fn failed(&mut self) {
        self.failures = (self.failures + 1).min(FAILURES_MAX);
        if self.until_trial == 0 {
            self.between_trials = (2 * self.between_trials).min(TRIAL_EVERY_MAX);
            self.until_trial = self.between_trials;
        }
    }
}

/// What to do after a poll that found nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Poll after a PAUSE. Without one the processor has several loads of the awaited line under way when it comes, and must
    /// do all but the first again: that costs half the way between two cores.
    Pause,
    /// The clock has been read: check the deadline, then poll.
    Look(Nanos),
    /// Give the core away. The time before, if the clock has been read.
    Yield(Option<Nanos>),
    Sleep,
}

/// One wait's way down the ladder.
pub(crate) struct Ladder {
    polls: u32,
    began: Nanos,
    probed: bool,
    yields: u32,
    useless: u32,
    /// When the last yield began; zero: not known.
    yielded_at: Nanos,
}

impl Ladder {
    pub fn new() -> Ladder {
        Ladder { polls: 0, began: Nanos(0), probed: false, yields: 0, useless: 0, yielded_at: Nanos(0) }
    }

    /// Something arrived, though not what is waited for: more may follow soon.
    pub fn restart(&mut self) {
        *self = Ladder::new();
    }

    /// Something arrived: whether the yields before it were worth it.
    #[inline(always)]
    pub fn arrived(&mut self, crowd: &mut Crowd) {
        if self.yields > 0 && crowd.co_residents > 0 {
            if self.is_patient(crowd.spin) {
                crowd.patience.worked();
            } else {
                crowd.patience.failed();
            }
            self.yields = 0;
        }
    }

    /// Whether it is too early to say that yielding is in vain.
    #[inline]
    fn is_patient(&self, spin: Nanos) -> bool {
        let limit = Nanos(PATIENT_FOR_SPINS * spin.0);
        self.yields <= YIELDS_AT_LEAST || self.began == Nanos(0) || clock::now().since(self.began) < limit
    }

    #[inline]
    pub fn step(&mut self, crowd: &mut Crowd, board: &Board, my_slot: u32) -> Step {
        self.polls += 1;
        if crowd.is_shared() {
            let polls = if crowd.co_residents > 0 { POLLS_SHARED } else { POLLS_FOREIGN };
            return if self.polls < polls { Step::Pause } else { self.shared(crowd, board, my_slot) };
        }
        if !self.polls.is_multiple_of(POLLS_PER_LOOK) {
            return Step::Pause;
        }
        self.alone(crowd, board, my_slot)
    }

    #[inline(never)]
    fn alone(&mut self, crowd: &mut Crowd, board: &Board, my_slot: u32) -> Step {
        let now = clock::now();
        if self.began == Nanos(0) {
            self.began = now;
            crowd.look(board, my_slot, now);
            return Step::Look(now);
        }
        self.judge(crowd, now);
        let waited = now.since(self.began);
        if waited >= crowd.spin {
            return Step::Sleep;
        }
        if !self.probed && waited >= PROBE_AFTER {
            self.probed = true;
            self.yielded_at = now;
            return Step::Yield(Some(now));
        }
        Step::Look(now)
    }

    /// The first yield of a wait is not timed beside a job-mate: mostly the message is there after it, and no clock was read
    /// for it. Beside a stranger the board is looked at first: he may be a job-mate that had not said yet where it runs.
    #[inline(never)]
    fn shared(&mut self, crowd: &mut Crowd, board: &Board, my_slot: u32) -> Step {
        if crowd.co_residents > 0 && self.yields == 0 && !crowd.patience.begin() {
            crowd.look_now_and_then(board, my_slot);
            return Step::Sleep;
        }
        self.yields += 1;
        if self.yields == 1 {
            if crowd.co_residents == 0 {
                crowd.look(board, my_slot, clock::now());
            }
            return Step::Yield(None);
        }
        let now = clock::now();
        if self.began == Nanos(0) {
            self.began = now;
        }
        self.judge(crowd, now);
        crowd.look(board, my_slot, now);
        let is_useless = self.yields >= YIELDS_MAX || self.useless > 2 * crowd.co_residents + 2;
        // A trial among many costs all of them: it is as short as what two need that talk with each other.
        let is_over = !crowd.patience.is_there() && self.yields > YIELDS_AT_LEAST;
        let is_in_vain = crowd.co_residents > 0 && (is_over || !self.is_patient(crowd.spin));
        if is_useless || is_in_vain {
            if crowd.co_residents > 0 {
                crowd.patience.failed();
            }
            return Step::Sleep;
        }
        self.yielded_at = now;
        Step::Yield(Some(now))
    }

    /// Whether the last timed yield let somebody else run.
    fn judge(&mut self, crowd: &mut Crowd, now: Nanos) {
        if self.yielded_at == Nanos(0) {
            return;
        }
        let was_useful = now.since(self.yielded_at) > YIELD_WAS_USEFUL;
        self.yielded_at = Nanos(0);
        self.useless = if was_useful { 0 } else { self.useless + 1 };
        if was_useful && crowd.co_residents == 0 {
            crowd.foreign_until = now + FOREIGN_FOR;
        } else if self.useless > FOREIGN_GONE_AFTER || now >= crowd.foreign_until {
            crowd.foreign_until = Nanos(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn board_with_neighbour(core: Option<u32>) -> Board {
        let (board, _) = Board::create(2).unwrap();
        if let Some(core) = core {
            board.slot(1).publish_core(core);
        }
        board
    }

    fn steps_until_sleep(crowd: &mut Crowd, board: &Board) -> (u32, u32) {
        let mut ladder = Ladder::new();
        let (mut polls, mut yields) = (0, 0);
        loop {
            match ladder.step(crowd, board, 0) {
                Step::Sleep => return (polls, yields),
                Step::Yield(_) => {
                    yields += 1;
                    cpu::yield_now();
                }
                _ => polls += 1,
            }
        }
    }

    #[test]
    fn a_process_alone_on_its_core_polls_for_the_cost_of_a_wake_up_and_then_sleeps() {
        let board = board_with_neighbour(None);
        let mut crowd = Crowd::new(20_000);
        let began = clock::now();
        let (polls, yields) = steps_until_sleep(&mut crowd, &board);
        // One yield is the probe; more are made only where it found that somebody else runs here.
        assert!(clock::now().since(began) >= Nanos::from_ms(19) || yields > 1, "{yields} yields");
        assert!(polls > POLLS_PER_LOOK);
    }

    #[test]
    fn a_process_that_shares_its_core_yields_soon_and_sleeps_when_that_is_of_no_use() {
        std::thread::spawn(|| {
            let core = cpu::allowed_cores().unwrap()[0];
            cpu::pin_to(&[core]).unwrap();
            let board = board_with_neighbour(Some(core));
            let mut crowd = Crowd::new(1_000_000);
            crowd.look(&board, 0, clock::now());
            assert!(crowd.is_shared());
            let (polls, yields) = steps_until_sleep(&mut crowd, &board);
            assert!(polls < POLLS_SHARED, "{polls} polls before the first yield");
            assert!((1..=YIELDS_MAX).contains(&yields), "{yields} yields");
        })
        .join()
        .unwrap();
    }

    #[test]
    fn yields_are_spared_where_they_never_bring_anything_and_tried_again_now_and_then() {
        let mut patience = Patience::new();
        let tried: Vec<bool> = (0..10_000)
            .map(|_| {
                let yields = patience.begin();
                if yields {
                    patience.failed();
                }
                yields
            })
            .collect();
        assert_eq!(tried[..5], [true, true, true, true, false]);
        let trials = tried[4..].iter().filter(|tried| **tried).count();
        assert!((5..30).contains(&trials), "{trials} trials");
        assert!(!patience.is_there());
        // What is waited for comes after a yield again: the next trial finds out.
        let waits = (0..).take_while(|_| !patience.begin()).count();
        patience.worked();
        assert!(waits < TRIAL_EVERY_MAX as usize && patience.is_there());
        // That was chance: one wait in vain, and the next trial is as far away as before.
        assert!(patience.begin());
        patience.failed();
        let again = (0..).take_while(|_| !patience.begin()).count();
        assert!(again + 1 == TRIAL_EVERY_MAX as usize && !patience.is_there());
        // Twice in a row is not.
        patience.worked();
        patience.worked();
        assert!((1..FAILURES_MAX).all(|_| {
            patience.failed();
            patience.is_there()
        }));
    }

    #[test]
    fn a_stranger_who_turns_out_to_be_a_job_mate_is_given_the_core_at_once() {
        std::thread::spawn(|| {
            let core = cpu::allowed_cores().unwrap()[0];
            cpu::pin_to(&[core]).unwrap();
            let board = board_with_neighbour(Some(core));
            let mut crowd = Crowd::new(30);
            crowd.foreign_until = clock::now() + FOREIGN_FOR;
            let mut ladder = Ladder::new();
            while !matches!(ladder.step(&mut crowd, &board, 0), Step::Yield(None)) {}
            assert_eq!(crowd.co_residents, 1);
            let mut ladder = Ladder::new();
            assert_eq!(ladder.step(&mut crowd, &board, 0), Step::Yield(None));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn who_yields_at_every_message_finds_out_that_its_neighbour_has_moved_away() {
        std::thread::spawn(|| {
            let core = cpu::allowed_cores().unwrap()[0];
            cpu::pin_to(&[core]).unwrap();
            let board = board_with_neighbour(Some(core));
            let mut crowd = Crowd::new(30);
            crowd.look(&board, 0, clock::now());
            assert!(crowd.has_job_mates());
            board.slot(1).publish_core(core + 1);
            std::thread::sleep(BOARD_LOOK_EVERY.as_duration());
            let waits = (1..).find(|_| {
                crowd.look_now_and_then(&board, 0);
                !crowd.has_job_mates()
            });
            assert_eq!(waits, Some(WAITS_PER_LOOK));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_neighbour_on_another_core_is_no_reason_to_yield() {
        let board = board_with_neighbour(Some(4000));
        let mut crowd = Crowd::new(30);
        crowd.look(&board, 0, clock::now());
        assert!(!crowd.is_shared());
    }
}
