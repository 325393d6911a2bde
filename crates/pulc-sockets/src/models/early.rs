//! Those who sleep while the process gets its slot on the broker's board, under loom: the crate's own `Sleepers` with one word.

use super::{BELL, Queue, Wire, board, check};
use crate::board::Board;
use crate::early::Sleepers;
use crate::memory::AtomicU32;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use std::sync::atomic::Ordering;

const SLOT: u32 = 0;
/// Of those who sleep in anything but a set of descriptors.
const WORD: u32 = 0;

/// A process, its board, and somebody who sends to it.
struct Process {
    sleepers: Sleepers<1>,
    board: Board,
    has_board: AtomicU32,
    message: AtomicU32,
    wire: Wire,
}

impl Process {
    fn new() -> Arc<Process> {
        let wire = Wire { queue: Mutex::new(Queue::default()), readable: Condvar::new() };
        let [has_board, message] = std::array::from_fn(|_| AtomicU32::new(0));
        Arc::new(Process { sleepers: Sleepers::default(), board: board(1), has_board, message, wire })
    }

    fn board(&self) -> Option<&Board> {
        (self.has_board.load(Ordering::Acquire) == 1).then_some(&self.board)
    }

    /// As the door does: the board is there before the slot is.
    fn settle(&self) {
        self.has_board.store(1, Ordering::Release);
        self.sleepers.settle(&self.board, SLOT);
    }

    fn sleep_once(&self, sleep: impl FnOnce()) {
        let on_board = self.sleepers.enter(WORD, || self.board());
        sleep();
        self.sleepers.exit(WORD, on_board, || self.board());
    }

    fn counted(&self) -> u32 {
        self.board.word(SLOT, WORD).load(Ordering::SeqCst)
    }
}

#[test]
fn who_sleeps_before_the_slot_is_there_is_rung_for_once_it_is() {
    check(3, || {
        let process = Process::new();
        let other = process.clone();
        // The first one that knows of the slot sends: another process hears of it when it is settled.
        let sender = thread::spawn(move || {
            other.settle();
            other.message.store(1, Ordering::SeqCst);
            if other.board.may_sleep(SLOT, WORD) {
                other.wire.send(&[BELL]);
            }
        });
        process.sleep_once(|| {
            if process.message.load(Ordering::SeqCst) == 0 {
                process.wire.sleep_until_readable();
            }
        });
        sender.join().expect("it ends");
        assert_eq!(process.counted(), 0, "somebody counts as asleep who is awake");
    });
}

#[test]
fn of_those_who_sleep_while_the_slot_comes_none_stays_counted() {
    check(3, || {
        let process = Process::new();
        let sleepers = [process.clone(), process.clone()].map(|it| thread::spawn(move || it.sleep_once(|| ())));
        process.settle();
        sleepers.into_iter().for_each(|sleeper| sleeper.join().expect("it ends"));
        assert_eq!(process.counted(), 0, "somebody counts as asleep who is awake");
    });
}
