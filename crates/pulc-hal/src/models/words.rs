//! Models of words beside the rings: what a rank says that it waits for, and what a reader says about its peer's memory. The rules are the
//! crate's own; the words are loom's, fewer of them.

use crate::board::notice::{Versioned, read_whole, replace};
use crate::device::shm::model::{Credit, Reads, memory_word, says_unread};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

/// A version and two words.
struct Words([AtomicU64; 3]);

impl Versioned for Words {
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
        let words = Arc::new(Words([0, 0, 0].map(AtomicU64::new)));
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
