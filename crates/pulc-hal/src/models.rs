//! The lock-free parts under loom, which tries every order the memory model allows. Run with
//! `RUSTFLAGS="--cfg loom" cargo test --release -p pulc-hal --lib --target-dir target/loom models`. Small on purpose: a
//! ring of four cells, two threads.

use crate::device::shm::model::{CellsIn, CellsOut, Consumer, Kind, Producer, header};
use crate::{bias, doorbell};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
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
        let value = Arc::new(loom::cell::UnsafeCell::new(0));
        let (inside_owner, revoked_owner, value_owner) = (inside.clone(), revoked.clone(), value.clone());
        let owner = thread::spawn(move || {
            let mut times = 0;
            for _ in 0..2 {
                if !bias::enter(&*inside_owner, &*revoked_owner) {
                    break;
                }
                // SAFETY: a model's cell; loom itself checks that nobody else is there.
                value_owner.with_mut(|value| unsafe { *value += 1 });
                bias::leave(&*inside_owner);
                times += 1;
            }
            times
        });
        bias::revoke(&*revoked);
        while bias::is_inside(&*inside) {
            thread::yield_now();
        }
        // SAFETY: as above.
        let seen = value.with_mut(|value| unsafe { *value });
        let times = owner.join().expect("the owner ends");
        assert_eq!(seen, times, "the owner was inside after its right was revoked");
    });
}
