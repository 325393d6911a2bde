//! A connection under loom, which tries every order that the memory model allows: the crate's own sending, receiving, lock and board, over a
//! ring of two bytes and a kernel of the model's. Run with `cargo xtask loom`. Small on purpose: one direction, a few bytes.
//!
//! The board's words are tried beside the ends as well as with them, since an end has many more places at which the order could matter.

mod early;
pub mod memory;
mod place;

use crate::board::Board;
use crate::kernel::{Kernel, Wait, errno};
use crate::layout::{RING_BYTES, Side, at_bells, at_end, at_ring, at_rx, at_tx, end, rx, tx};
use crate::lock::lock;
use crate::memory::{AtomicU32, Memory};
use crate::{End, Incoming, Outgoing};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use pulc_hal::tried::Place;
use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::Ordering;

/// What the kernel carries for a bell; no byte of a test is this one.
const BELL: u8 = 0xff;
/// The set of descriptors that the receiver sleeps in.
const SET: u32 = 1;

fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// The kernel's queue of one direction.
#[derive(Default)]
struct Queue {
    bytes: VecDeque<u8>,
    sent: u64,
    taken: u64,
}

/// The kernel's connection, as far as one direction goes, and those who sleep until something comes by it.
struct Wire {
    queue: Mutex<Queue>,
    readable: Condvar,
}

impl Wire {
    fn send(&self, bytes: &[u8]) {
        let mut queue = self.queue.lock().expect("no model panics inside");
        queue.bytes.extend(bytes);
        queue.sent += bytes.len() as u64;
        self.readable.notify_one();
    }

    fn sleep_until_readable(&self) {
        let mut queue = self.queue.lock().expect("no model panics inside");
        while queue.bytes.is_empty() {
            queue = self.readable.wait(queue).expect("no model panics inside");
        }
    }
}

/// The kernel as one thread sees it.
struct Seen<'a> {
    wire: &'a Wire,
    me: u32,
}

impl Kernel for Seen<'_> {
    fn sent(&self) -> Result<u64, i32> {
        Ok(self.wire.queue.lock().expect("no model panics inside").sent)
    }

    fn taken(&self) -> Result<u64, i32> {
        Ok(self.wire.queue.lock().expect("no model panics inside").taken)
    }

    fn recv(&self, to: &mut [IoSliceMut<'_>], peek: bool) -> Result<usize, i32> {
        let mut queue = self.wire.queue.lock().expect("no model panics inside");
        let room: usize = to.iter().map(|part| part.len()).sum();
        let count = room.min(queue.bytes.len());
        if count == 0 {
            return Err(errno::AGAIN);
        }
        let places = to.iter_mut().flat_map(|part| part.iter_mut());
        places.zip(&queue.bytes).for_each(|(place, byte)| *place = *byte);
        if !peek {
            queue.bytes.drain(..count);
            queue.taken += count as u64;
        }
        Ok(count)
    }

    fn ring(&self) -> Result<(), i32> {
        self.wire.send(&[BELL]);
        Ok(())
    }

    fn acknowledge(&self) {}

    fn has_room(&self, _: usize) -> bool {
        true
    }

    fn me(&self) -> u32 {
        self.me
    }

    fn cpu(&self) -> u32 {
        0
    }

    fn is_alive(&self, thread: u32) -> bool {
        thread != DEAD
    }
}

const SENDER: u32 = 1;
const RECEIVER: u32 = 2;
/// Of a thread that has died with the lock.
const DEAD: u32 = 9;

/// Both ends, the kernel and the board. The first end sends, the second one receives.
struct Connection {
    ends: [End; 2],
    board: Board,
    wire: Wire,
}

impl Connection {
    /// Both ends are ready, nothing was sent yet.
    fn new() -> Arc<Connection> {
        let memory = channel();
        let ends = [Side::Active, Side::Passive].map(|me| End { map: memory.clone(), me });
        let wire = Wire { queue: Mutex::default(), readable: Condvar::new() };
        Arc::new(Connection { ends, board: board(2), wire })
    }

    fn sender(&self) -> (&End, Seen<'_>) {
        (&self.ends[0], Seen { wire: &self.wire, me: SENDER })
    }

    fn receiver(&self) -> (&End, Seen<'_>) {
        (&self.ends[1], Seen { wire: &self.wire, me: RECEIVER })
    }

    /// As the door sends: by the ring what goes, the rest by the kernel.
    fn send(&self, bytes: &[u8]) {
        let (end, kernel) = self.sender();
        match end.send(&self.board, &kernel, &[IoSlice::new(bytes)]) {
            Outgoing::Ring(count) => assert_eq!(count, bytes.len()),
            Outgoing::Kernel(count) => {
                self.wire.send(&bytes[count..]);
                end.kernel_done();
            }
            Outgoing::Failed(number) => panic!("sending failed with {number}"),
        }
    }

    /// As the door sends what may not go by a ring.
    fn send_by_kernel(&self, bytes: &[u8]) {
        let (end, kernel) = self.sender();
        end.send_by_kernel(&kernel).expect("the lock is free");
        self.wire.send(bytes);
        end.kernel_done();
    }

    /// Takes what is there, at most so many bytes at a time; `idle` waits for more.
    fn receive(&self, expected: &[u8], room: usize, idle: impl Fn(&End, &Seen<'_>)) {
        let (end, kernel) = self.receiver();
        let (mut came, mut buffer) = (Vec::new(), vec![0; room]);
        while came.len() < expected.len() {
            match end.receive(&kernel, &mut [IoSliceMut::new(&mut buffer)], false) {
                Incoming::Got(count) => came.extend_from_slice(&buffer[..count]),
                Incoming::Empty => idle(end, &kernel),
                other => panic!("receiving ended with {other:?}"),
            }
        }
        assert_eq!(came, expected);
    }

    /// Waits as the door does in `epoll_wait`: says that it sleeps, looks, sleeps until the kernel says that there is something.
    fn sleep(&self, end: &End, kernel: &Seen<'_>) {
        self.board.enter(0, SET);
        if end.may_wait(kernel) == Wait::Yes {
            self.wire.sleep_until_readable();
        }
        self.board.exit(0, SET);
    }
}

/// The words of a channel of which one direction is used: those that both ends look at while one of them changes them are live.
fn channel() -> Memory {
    let mut memory = Memory::default();
    for side in [Side::Active, Side::Passive] {
        for at in (0..64).step_by(4) {
            let value = match at {
                end::JOINED | end::READY => 1,
                end::WORD => SET,
                _ => 0,
            };
            memory.word(at_end(side) + at, value, false);
        }
    }
    let (sender, receiver) = (at_tx(Side::Active), at_rx(Side::Active));
    for (at, is_live) in [
        (sender + tx::LOCK, false),
        (sender + tx::EPOCH, true),
        (sender + tx::SENDING, false),
        (sender + tx::RUNG, true),
        (sender + tx::RUNG_BEFORE, true),
        (receiver + rx::LOCK, true),
        (receiver + rx::SEEN, true),
        (receiver + rx::ERROR, false),
        (receiver + rx::SILENCED, false),
        (at_bells(Side::Active), true),
    ] {
        memory.word(at, 0, is_live);
    }
    for (at, is_live) in [
        (sender + tx::PUT, true),
        (sender + tx::HEARD, false),
        (sender + tx::BASE, true),
        (sender + tx::RING_FROM, true),
        (sender + tx::KERNEL_FROM, true),
        (receiver + rx::GOT, true),
        (receiver + rx::TAKEN, false),
        // Of the other direction: where its next message would begin.
        (at_tx(Side::Passive) + tx::PUT, false),
        (at_tx(Side::Passive) + tx::BASE, false),
    ] {
        memory.long(at, is_live);
    }
    (0..RING_BYTES).for_each(|at| memory.byte(at_ring(Side::Active) + at));
    memory
}

/// A board with one slot of so many words.
fn board(words: usize) -> Board {
    let mut memory = Memory::default();
    (0..words).for_each(|word| memory.word(word * 4, 0, true));
    Board { map: memory }
}

#[test]
fn bytes_before_and_in_a_ring_come_in_order_to_who_looks_all_the_time() {
    check(2, || {
        let both = Connection::new();
        let other = both.clone();
        let sender = thread::spawn(move || {
            other.send_by_kernel(&[1]);
            other.send(&[2]);
        });
        both.receive(&[1, 2], 4, |_, _| thread::yield_now());
        sender.join().expect("it ends");
    });
}

#[test]
fn a_bell_that_the_kernel_has_while_it_is_read_is_taken_for_no_byte() {
    check(2, || {
        let both = Connection::new();
        // Another thread of the receiver's process sleeps all the time, so that everything is rung for.
        both.board.enter(0, 0);
        let other = both.clone();
        let sender = thread::spawn(move || {
            other.send_by_kernel(&[1]);
            other.send(&[2]);
        });
        both.receive(&[1, 2], 4, |_, _| thread::yield_now());
        sender.join().expect("it ends");
    });
}

#[test]
fn what_does_not_fit_into_the_ring_comes_behind_it_by_the_kernel() {
    check(2, || {
        let both = Connection::new();
        let other = both.clone();
        let sender = thread::spawn(move || other.send(&[1, 2, 3]));
        both.receive(&[1, 2, 3], 4, |_, _| thread::yield_now());
        sender.join().expect("it ends");
    });
}

#[test]
fn who_sleeps_between_bytes_of_the_ring_is_rung_for_and_takes_no_bell_for_a_byte() {
    check(2, || {
        let both = Connection::new();
        let other = both.clone();
        let sender = thread::spawn(move || {
            other.send(&[1]);
            other.send(&[2]);
        });
        both.receive(&[1, 2], 4, |end, kernel| both.sleep(end, kernel));
        sender.join().expect("it ends");
    });
}

#[test]
fn who_sleeps_while_a_direction_goes_to_the_ring_and_back_misses_nothing() {
    check(2, || {
        let both = Connection::new();
        let other = both.clone();
        let sender = thread::spawn(move || {
            other.send(&[1]);
            other.send_by_kernel(&[2]);
        });
        both.receive(&[1, 2], 1, |end, kernel| both.sleep(end, kernel));
        sender.join().expect("it ends");
    });
}

#[test]
fn of_senders_to_one_sleeper_somebody_rings() {
    check(3, || {
        let (board, wire) = (Arc::new(board(2)), Arc::new(Wire { queue: Mutex::default(), readable: Condvar::new() }));
        let rings = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
        let senders = [0, 1].map(|which| {
            let (board, wire, rings) = (board.clone(), wire.clone(), rings.clone());
            thread::spawn(move || {
                rings[which].store(1, Ordering::SeqCst);
                if board.may_sleep(0, SET) && !board.is_rung(0, SET) {
                    wire.send(&[BELL]);
                }
            })
        });
        let all_there = || rings.iter().all(|ring| ring.load(Ordering::SeqCst) == 1);
        while !all_there() {
            board.enter(0, SET);
            if !all_there() {
                wire.sleep_until_readable();
            }
            board.exit(0, SET);
            wire.queue.lock().expect("no model panics inside").bytes.clear();
        }
        senders.into_iter().for_each(|sender| sender.join().expect("it ends"));
    });
}

/// What a lock guards: loom complains if two are there together.
struct Guarded {
    word: AtomicU32,
    wire: Wire,
    value: Place,
}

impl Guarded {
    fn take(&self, me: u32) {
        let held = lock(&self.word, &Seen { wire: &self.wire, me }).expect("this thread has it not");
        self.value.set(self.value.get() + 1);
        drop(held);
    }
}

fn two_take_a_lock_that(first_holder: u32) {
    check(3, move || {
        let wire = Wire { queue: Mutex::default(), readable: Condvar::new() };
        let (word, value) = (AtomicU32::new(first_holder), Place::new(0));
        let guarded = Arc::new(Guarded { word, wire, value });
        let other = guarded.clone();
        let second = thread::spawn(move || other.take(SENDER));
        guarded.take(RECEIVER);
        second.join().expect("it ends");
        assert_eq!(guarded.value.get(), 2, "two were inside together");
    });
}

#[test]
fn of_two_that_take_a_lock_one_is_inside_at_a_time() {
    two_take_a_lock_that(0);
}

#[test]
fn a_holder_that_has_died_is_succeeded_by_one_and_then_by_the_other() {
    two_take_a_lock_that(DEAD);
}
