//! The lock-free parts under loom, which tries every order the memory model allows. Run with `cargo xtask loom`, or
//! `RUSTFLAGS="--cfg loom" cargo test --release -p pulc-hal --lib --target-dir target/loom models`. Small on purpose: a
//! ring of four cells, two threads.

mod turns;
mod words;

use crate::device::shm::model::{CellsIn, CellsOut, Consumer, Credit, Kind, Producer, header};
use crate::tried::Place;
use crate::{bias, doorbell};
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

const CELLS: u32 = 4;

/// Cells with a header and one word that stands for the payload: more words add orders but no cases.
struct Cells {
    headers: Vec<AtomicU64>,
    payload: Vec<AtomicU64>,
    /// What the consumer has given back.
    credit: AtomicU32,
}

impl Cells {
    fn new() -> Cells {
        let words = || (0..CELLS).map(|_| AtomicU64::new(0)).collect();
        Cells { headers: words(), payload: words(), credit: AtomicU32::new(0) }
    }
}

impl CellsOut for Cells {
    fn count(&self) -> u32 {
        CELLS
    }

    fn fill(&self, cell: u32, _: usize, bytes: &[u8]) {
        self.payload[cell as usize].store(bytes[0].into(), Ordering::Relaxed);
    }

    fn write(&self, cell: u32, words: &[u64; 7], header: u64) {
        self.payload[cell as usize].store(words[0] & 0xff, Ordering::Relaxed);
        self.publish(cell, header);
    }

    fn publish(&self, cell: u32, header: u64) {
        self.headers[cell as usize].store(header, Ordering::Release);
    }

    fn claim(&self, _: u32) {}
}

impl CellsIn for Cells {
    fn count(&self) -> u32 {
        CELLS
    }

    fn header(&self, cell: u32) -> u64 {
        self.headers[cell as usize].load(Ordering::Acquire)
    }

    fn read(&self, cell: u32, wanted: impl FnOnce(u64) -> bool) -> Option<(u64, [u64; 7])> {
        let header = self.header(cell);
        wanted(header).then(|| (header, [self.payload[cell as usize].load(Ordering::Relaxed); 7]))
    }

    fn drain(&self, cell: u32, to: &mut [u8]) {
        to.fill(self.payload[cell as usize].load(Ordering::Relaxed) as u8);
    }
}

#[test]
fn frames_cross_the_ring_whole_and_in_order_even_when_it_wraps() {
    loom::model(|| {
        let cells = Arc::new(Cells::new());
        let out = cells.clone();
        // Frames of 1, 2 and 2 cells: the last one needs credit and wraps around.
        let lengths = [8usize, 64, 64];
        let producer = thread::spawn(move || {
            let mut producer = Producer::default();
            for (i, len) in lengths.into_iter().enumerate() {
                let frame = vec![i as u8 + 1; len];
                let header = header(Kind::Short, len);
                while producer.free(CELLS) < header.cells.into() {
                    let consumed = out.credit.load(Ordering::Acquire);
                    producer.credit(consumed).expect("an honest consumer");
                    thread::yield_now();
                }
                producer.push(&*out, header, [&frame]);
            }
        });
        let mut consumer = Consumer::default();
        let mut buffer = [0; 128];
        let mut taken = 0;
        while taken < lengths.len() {
            if let Some((bytes, words)) = consumer.pop_cell(&*cells) {
                assert_eq!((bytes, words[0]), (lengths[taken], taken as u64 + 1));
                cells.credit.store(consumer.consumed(), Ordering::Release);
                taken += 1;
                continue;
            }
            match consumer.pop(&*cells, &mut buffer).expect("an honest producer") {
                None => thread::yield_now(),
                Some(header) => {
                    let expected = taken as u8 + 1;
                    assert_eq!(header.bytes as usize, lengths[taken]);
                    assert_eq!(buffer[..8], [expected; 8]);
                    assert!(header.cells == 1 || buffer[56] == expected);
                    cells.credit.store(consumer.consumed(), Ordering::Release);
                    taken += 1;
                }
            }
        }
        producer.join().expect("the producer ends");
    });
}

#[test]
fn a_sleeper_sees_the_message_or_its_sender_sees_the_sleeper() {
    loom::model(|| {
        let message = Arc::new(AtomicU64::new(0));
        let word = Arc::new(AtomicU32::new(doorbell::AWAKE));
        let (message_out, word_out) = (message.clone(), word.clone());
        let sender = thread::spawn(move || {
            message_out.store(1, Ordering::Release);
            doorbell::sleeps(&*word_out)
        });
        doorbell::announce_sleep(&*word, 1);
        let seen = message.load(Ordering::Acquire) == 1;
        let rung = sender.join().expect("the sender ends");
        assert!(seen || rung, "asleep with a message waiting and nobody ringing");
    });
}

#[test]
fn the_owner_of_a_biased_lock_and_the_thread_that_revokes_it_are_never_inside_together() {
    loom::model(|| {
        let inside = Arc::new(AtomicU32::new(0));
        let revoked = Arc::new(AtomicU32::new(0));
        // Loom complains if the two touch it without order.
        let value = Arc::new(Place::new(0));
        let (inside_owner, revoked_owner, value_owner) = (inside.clone(), revoked.clone(), value.clone());
        let owner = thread::spawn(move || {
            let mut times = 0;
            for _ in 0..2 {
                if !bias::enter(&*inside_owner, &*revoked_owner) {
                    break;
                }
                value_owner.set(value_owner.get() + 1);
                bias::leave(&*inside_owner);
                times += 1;
            }
            times
        });
        bias::revoke(&*revoked);
        while bias::is_inside(&*inside) {
            thread::yield_now();
        }
        let seen = value.get();
        let times = owner.join().expect("the owner ends");
        assert_eq!(seen, times, "the owner was inside after its right was revoked");
    });
}

/// The kernel's futex: the word is looked at and the thread put to sleep in one step, as seen by those who wake.
struct Futex {
    queue: Mutex<()>,
    woken: Condvar,
}

impl Futex {
    fn wait(&self, word: &AtomicU32, expected: u32) {
        let queue = self.queue.lock().expect("no model panics inside");
        if word.load(Ordering::SeqCst) == expected {
            drop(self.woken.wait(queue).expect("no model panics inside"));
        }
    }

    fn wake(&self) {
        let _queue = self.queue.lock().expect("no model panics inside");
        self.woken.notify_one();
    }
}

/// Everything one sleeper and its senders share.
struct Bedroom {
    word: AtomicU32,
    futex: Futex,
    messages: [AtomicU64; 2],
}

impl Bedroom {
    fn new() -> Arc<Bedroom> {
        let futex = Futex { queue: Mutex::new(()), woken: Condvar::new() };
        Arc::new(Bedroom {
            word: AtomicU32::new(doorbell::AWAKE),
            futex,
            messages: [AtomicU64::new(0), AtomicU64::new(0)],
        })
    }

    /// As a sender does: the message, then the bell.
    fn send(&self, which: usize) {
        self.messages[which].store(1, Ordering::Release);
        if doorbell::sleeps(&self.word) && doorbell::claim(&self.word) != doorbell::AWAKE {
            self.futex.wake();
        }
    }

    fn all_there(&self, count: usize) -> bool {
        self.messages[..count].iter().all(|message| message.load(Ordering::Acquire) == 1)
    }

    /// As an owner does: says that it sleeps, looks once more, sleeps, is awake. A lost wake-up is a deadlock, which loom finds.
    fn sleep_until(&self, count: usize) {
        while !self.all_there(count) {
            doorbell::announce_sleep(&self.word, 1);
            if !self.all_there(count) {
                self.futex.wait(&self.word, 1);
            }
            self.word.store(doorbell::AWAKE, Ordering::Relaxed);
        }
    }
}

#[test]
fn a_sleeper_on_a_futex_is_woken_by_its_sender_in_every_order() {
    loom::model(|| {
        let bedroom = Bedroom::new();
        let out = bedroom.clone();
        let sender = thread::spawn(move || out.send(0));
        bedroom.sleep_until(1);
        sender.join().expect("the sender ends");
    });
}

#[test]
fn of_two_senders_one_claims_the_sleeper_and_no_message_is_slept_over() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let bedroom = Bedroom::new();
        let senders = [0, 1].map(|which| {
            let out = bedroom.clone();
            thread::spawn(move || out.send(which))
        });
        bedroom.sleep_until(2);
        senders.into_iter().for_each(|sender| sender.join().expect("the sender ends"));
    });
}

#[test]
fn no_message_of_the_keeper_is_taken_for_read_before_it_is() {
    loom::model(|| {
        let word = Arc::new(AtomicU32::new(0));
        let socket = Arc::new(Mutex::new(0_u32));
        let (keeper_word, keeper_socket) = (word.clone(), socket.clone());
        let keeper = thread::spawn(move || {
            for _ in 0..2 {
                *keeper_socket.lock().expect("no model panics inside") += 1;
                doorbell::count(&*keeper_word);
            }
        });
        let (mut read, mut taken) = (0, 0);
        let mut look = || {
            let written = doorbell::counted(&*word);
            if written != read {
                taken += std::mem::take(&mut *socket.lock().expect("no model panics inside"));
                read = written;
            }
            taken
        };
        look();
        look();
        keeper.join().expect("the keeper ends");
        assert_eq!(look(), 2, "a message stays in the socket and nobody knows");
    });
}

#[test]
fn a_slot_is_written_again_only_after_its_reader_has_given_it_back() {
    loom::model(|| {
        let (cells, slot) = (Arc::new(Cells::new()), Arc::new(Place::new(0)));
        let credit = Arc::new(AtomicU64::new(0));
        let (out, out_slot, out_credit) = (cells.clone(), slot.clone(), credit.clone());
        let producer = thread::spawn(move || {
            let (mut producer, mut credited) = (Producer::default(), 0);
            for turn in 1..=2_u32 {
                // One slot: it must be back before it is lent again.
                while turn - 1 > credited {
                    let back = Credit::of_word(out_credit.load(Ordering::Acquire));
                    producer.credit(back.cells).expect("an honest consumer");
                    credited = back.references;
                    thread::yield_now();
                }
                // A slot of the pool, or memory of an arena: loom complains if its reader reads there meanwhile.
                out_slot.set(turn.into());
                producer.push(&*out, header(Kind::Pool, 16), [&[turn as u8; 16][..]]);
            }
        });
        let (mut consumer, mut taken) = (Consumer::default(), 0);
        let mut buffer = [0; 64];
        while taken < 2 {
            match consumer.pop(&*cells, &mut buffer).expect("an honest producer") {
                None => thread::yield_now(),
                Some(_) => {
                    taken += 1;
                    assert_eq!((slot.get(), u32::from(buffer[0])), (u64::from(taken), taken));
                    let back = Credit { cells: consumer.consumed(), references: taken };
                    credit.store(back.word(), Ordering::Release);
                }
            }
        }
        producer.join().expect("the producer ends");
    });
}
