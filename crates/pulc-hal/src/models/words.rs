//! Models of words beside the rings: what a rank says that it waits for, what a reader says about its peer's memory, the registry of a
//! process's libraries, and what is counted until it has ended. The rules are the crate's own; the words are loom's, fewer of them.

use crate::board::notice::{read_whole, replace};
use crate::device::shm::model::{Credit, Reads, memory_word, says_unread};
use crate::os::registry::{Announced, entry, fill, is_of, make_of};
use crate::sync::Words;
use crate::tally;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use loom::thread;

/// A few words, all zero at first.
struct Few<const N: usize>([AtomicU64; N]);

impl<const N: usize> Few<N> {
    fn new() -> Arc<Few<N>> {
        Arc::new(Few(std::array::from_fn(|_| AtomicU64::new(0))))
    }
}

impl<const N: usize> Words for Few<N> {
    fn load(&self, at: usize, order: Ordering) -> u64 {
        self.0[at].load(order)
    }

    fn store(&self, at: usize, word: u64, order: Ordering) {
        self.0[at].store(word, order);
    }
}

#[test]
fn what_a_rank_waits_for_is_read_whole_or_not_at_all() {
    loom::model(|| {
        let words = Few::<3>::new();
        let told = words.clone();
        let teller = thread::spawn(move || {
            replace(&*told, &[0, 1, 1]);
        });
        if let Some([_, first, second]) = read_whole(&*words, 1) {
            assert_eq!(first, second, "words of two notices");
        }
        teller.join().expect("the teller ends");
        assert_eq!(read_whole(&*words, 1).map(|[_, first, second]: [u64; 3]| (first, second)), Some((1, 1)));
    });
}

#[test]
fn who_gets_a_reference_back_knows_whether_it_was_read() {
    loom::model(|| {
        let (word, credit) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        word.store(memory_word(Reads::Yes, 0), Ordering::Relaxed);
        let (told, given) = (word.clone(), credit.clone());
        let reader = thread::spawn(move || {
            let back = |references| given.store(Credit { cells: references, references }.word(), Ordering::Release);
            // The first one is read, the second one is not, nor is any after it.
            back(1);
            told.store(memory_word(Reads::Never, 1), Ordering::Release);
            back(2);
        });
        let mut seen = 0;
        while seen < 2 {
            let references = Credit::of_word(credit.load(Ordering::Acquire)).references;
            for number in seen..references {
                let unread = says_unread(word.load(Ordering::Acquire), number);
                assert_eq!(unread, number == 1, "reference {number} is taken for the other kind");
            }
            seen = references;
            thread::yield_now();
        }
        reader.join().expect("the reader ends");
    });
}

/// In truth those who look hold the dynamic loader's lock; not even that is needed for what they see to be whole.
#[test]
fn who_finds_a_registry_or_an_entry_of_it_finds_all_of_it() {
    loom::model(|| {
        const PID: u32 = 7;
        let (first, second) =
            (Announced { kind: 1, version: 2, address: 3 }, Announced { kind: 4, version: 5, address: 6 });
        let page = Few::<6>::new();
        let made = page.clone();
        let maker = thread::spawn(move || {
            make_of(&*made, PID);
            fill(&*made, 0, first);
            fill(&*made, 1, second);
        });
        for (at, announced) in [(1, second), (0, first)] {
            let found = entry(&*page, at);
            assert!(found.is_none_or(|found| found == announced), "a part of an entry: {found:?}");
            assert!(found.is_none() || is_of(&*page, PID), "an entry in a page that is nobody's");
        }
        maker.join().expect("the maker ends");
        assert_eq!((entry(&*page, 0), entry(&*page, 1)), (Some(first), Some(second)));
    });
}

#[test]
fn an_outcome_is_settled_once_and_who_knows_it_sees_what_was_done_before() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let (state, open, failed) =
            (Arc::new(AtomicU32::new(tally::PENDING)), Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        tally::begin(&*open);
        let effect = Arc::new(AtomicU32::new(0));
        // It arrives, and its peer ends, in the same moment.
        let settlers = [true, false].map(|went_well| {
            let (state, open, failed, effect) = (state.clone(), open.clone(), failed.clone(), effect.clone());
            thread::spawn(move || {
                effect.fetch_add(1 + u32::from(went_well), Ordering::Relaxed);
                if tally::settle(&*state, went_well) {
                    tally::end(&*open, &*failed, went_well);
                }
            })
        });
        if let Some(went_well) = tally::outcome(&*state) {
            let seen = effect.load(Ordering::Relaxed);
            assert!(seen == 3 || seen == 1 + u32::from(went_well), "the outcome is known, what led to it is not");
        }
        settlers.into_iter().for_each(|settler| settler.join().expect("it ends"));
        let went_well = tally::outcome(&*state).expect("two have settled it");
        assert_eq!(tally::left(&*open), 0, "one message counts once");
        assert_eq!(failed.load(Ordering::Relaxed), u32::from(!went_well));
    });
}

#[test]
fn who_sees_nothing_open_sees_every_failure_and_every_effect() {
    loom::model(|| {
        let (open, failed) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let effects = Arc::new([0, 0].map(AtomicU32::new));
        tally::begin(&*open);
        tally::begin(&*open);
        let parts = [0, 1].map(|which| {
            let (open, failed, effects) = (open.clone(), failed.clone(), effects.clone());
            thread::spawn(move || {
                effects[which].store(1, Ordering::Relaxed);
                tally::end(&*open, &*failed, which == 0);
            })
        });
        if tally::left(&*open) == 0 {
            assert!(effects.iter().all(|effect| effect.load(Ordering::Relaxed) == 1), "an effect is not seen");
            assert_eq!(failed.load(Ordering::Relaxed), 1, "a failure is not seen");
        }
        parts.into_iter().for_each(|part| part.join().expect("it ends"));
        assert_eq!((tally::left(&*open), failed.load(Ordering::Relaxed)), (0, 1));
    });
}
