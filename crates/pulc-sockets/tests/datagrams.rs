//! Inboxes over a kernel that is a queue in memory: each sender's datagrams come in their order and none is lost, whoever goes by the ring and
//! whoever by the kernel; and a hostile sender that scribbles over the memory harms nobody but its own datagrams.

use pulc_sockets::datagrams::{INBOX_BYTES, Inbox, Outbox, Post, SECRET_BYTES, SIGNAL_BYTES, Sent, Taken, create};
use pulc_sockets::message::Place;
use pulc_sockets::{Board, Kernel};
use std::cell::Cell;
use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

const AGAIN: i32 = rustix::io::Errno::AGAIN.raw_os_error();

/// Senders' ports and bytes.
type Queue = Mutex<VecDeque<(u16, Vec<u8>)>>;

/// A thread at the kernel's queue.
struct Thread<'a> {
    queue: &'a Queue,
    number: u32,
}

impl Kernel for Thread<'_> {
    fn sent(&self) -> Result<u64, i32> {
        unreachable!("of streams")
    }

    fn taken(&self) -> Result<u64, i32> {
        unreachable!("of streams")
    }

    fn recv(&self, _: &mut [IoSliceMut<'_>], _: bool) -> Result<usize, i32> {
        unreachable!("of streams")
    }

    fn ring(&self) -> Result<(), i32> {
        unreachable!("of streams")
    }

    fn acknowledge(&self) {}

    fn has_room(&self, _: usize) -> bool {
        unreachable!("of streams")
    }

    fn me(&self) -> u32 {
        self.number
    }

    fn cpu(&self) -> u32 {
        self.number
    }

    fn is_alive(&self, _: u32) -> bool {
        true
    }
}

impl Post for Thread<'_> {
    fn look(&self, to: &mut [u8]) -> Result<usize, i32> {
        let queue = self.queue.lock().unwrap();
        let (_, first) = queue.front().ok_or(AGAIN)?;
        let copied = first.len().min(to.len());
        to[..copied].copy_from_slice(&first[..copied]);
        Ok(first.len())
    }

    fn drop_first(&self) {
        self.queue.lock().unwrap().pop_front();
    }
}

/// A small generator of numbers.
struct Random(Cell<u64>);

impl Random {
    fn below(&self, limit: u64) -> u64 {
        let next = self.0.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0.set(next);
        (next >> 33) % limit
    }
}

fn inbox() -> (OwnedFd, Inbox) {
    let (_map, fd) = create([7; SECRET_BYTES]).unwrap();
    let inbox = Inbox::join(fd.as_fd(), 3, 1).unwrap();
    inbox.make_ready();
    (fd, inbox)
}

fn outbox(fd: &OwnedFd, port: u16) -> Outbox {
    Outbox::join(fd.as_fd(), Place::v4([127, 0, 0, 1], port), (1, u32::from(port))).unwrap()
}

/// Takes one in a random way: the sender's port and the bytes.
fn take(inbox: &Inbox, thread: &Thread<'_>, random: &Random, peek: bool) -> Option<(u16, Vec<u8>)> {
    // Sometimes without room: then a signal is looked for before.
    let room = if random.below(5) == 0 { 9 } else { 70_000 };
    let mut bytes = vec![0; room];
    let by_kernel = || {
        let mut queue = thread.queue.lock().unwrap();
        let (port, first) = if peek { queue.front().cloned() } else { queue.pop_front() }.ok_or(AGAIN)?;
        let shown = <[u8; SIGNAL_BYTES]>::try_from(first.as_slice()).ok().filter(|_| room >= SIGNAL_BYTES);
        Ok(((port, first[..first.len().min(room)].to_vec()), shown))
    };
    match inbox.take(thread, &mut [IoSliceMut::new(&mut bytes)], peek, by_kernel) {
        Taken::Ring(datagram) => {
            assert_eq!(datagram.copied, datagram.bytes.min(room));
            bytes.truncate(datagram.copied);
            Some((datagram.source.port, bytes))
        }
        Taken::Kernel(taken) => Some(taken),
        Taken::Empty => None,
        Taken::Failed(number) => {
            assert!((1..4096).contains(&number), "failed with {number}");
            None
        }
    }
}

const SENDERS: u16 = 3;
const EACH: u32 = 20_000;

/// A sender: by the ring, but sometimes by the kernel for a while.
fn send_all(fd: &OwnedFd, board: &Board, queue: &Queue, port: u16, seed: u64, waiting: &AtomicU32) -> (u32, u32) {
    let (outbox, random) = (outbox(fd, port), Random(Cell::new(seed)));
    let thread = Thread { queue, number: u32::from(port) };
    let push = |bytes: &[u8]| queue.lock().unwrap().push_back((port, bytes.to_vec()));
    // A bell may be lost; a fence is not while the queue has room.
    let call = |bytes: &[u8]| {
        if bytes[28..] != [0; 4] || random.below(4) != 0 {
            push(bytes);
        }
        Ok(())
    };
    let (mut by_ring, mut by_kernel) = (0, 0);
    for number in 0..EACH {
        while waiting.load(Ordering::SeqCst) > 200 {
            std::thread::yield_now();
        }
        waiting.fetch_add(1, Ordering::SeqCst);
        let mut bytes = number.to_le_bytes().to_vec();
        bytes.resize(4 + random.below(300) as usize, port as u8);
        let (one, other) = bytes.split_at(random.below(4) as usize);
        let sent = if random.below(50) == 0 {
            outbox.leave(&thread, call);
            Sent::Kernel
        } else {
            outbox.send(board, &thread, &[IoSlice::new(one), IoSlice::new(other)], bytes.len(), call)
        };
        match sent {
            Sent::Ring => by_ring += 1,
            Sent::Kernel => {
                by_kernel += 1;
                push(&bytes);
            }
            Sent::Gone => panic!("nobody has closed it"),
        }
    }
    (by_ring, by_kernel)
}

#[test]
fn each_senders_datagrams_come_in_their_order_by_whatever_way() {
    for seed in 1..=4 {
        let ((fd, inbox), queue) = (inbox(), Queue::default());
        let (board, _fd) = Board::create().unwrap();
        // Somebody may be asleep half of the time.
        if seed % 2 == 0 {
            board.enter(3, 0);
        }
        let waiting = AtomicU32::new(0);
        std::thread::scope(|scope| {
            let senders: Vec<_> = (1..=SENDERS)
                .map(|port| {
                    let (fd, board, queue, waiting) = (&fd, &board, &queue, &waiting);
                    scope.spawn(move || send_all(fd, board, queue, port, seed * 100 + u64::from(port), waiting))
                })
                .collect();
            let (thread, random) = (Thread { queue: &queue, number: 99 }, Random(Cell::new(seed)));
            let mut next = [0u32; SENDERS as usize + 1];
            let mut total = 0;
            while total < u32::from(SENDERS) * EACH {
                let ahead = if random.below(3) == 0 { take(&inbox, &thread, &random, true) } else { None };
                let Some((port, bytes)) = take(&inbox, &thread, &random, false) else {
                    assert_eq!(ahead, None, "what was looked at is gone");
                    std::thread::yield_now();
                    continue;
                };
                if let Some((seen, looked)) = ahead {
                    let both = looked.len().min(bytes.len());
                    assert_eq!((seen, &looked[..both]), (port, &bytes[..both]), "another one than was looked at");
                }
                let number = u32::from_le_bytes(bytes[..4].try_into().unwrap());
                assert_eq!(number, next[usize::from(port)], "seed {seed}, sender {port}");
                assert!(bytes[4..].iter().all(|byte| *byte == port as u8));
                next[usize::from(port)] += 1;
                total += 1;
                waiting.fetch_sub(1, Ordering::SeqCst);
            }
            for sender in senders {
                let (by_ring, by_kernel) = sender.join().unwrap();
                assert!(by_ring > 100 && by_kernel > 100, "{by_ring} by the ring, {by_kernel} by the kernel");
            }
            assert_eq!(take(&inbox, &thread, &random, false), None);
        });
    }
}

#[test]
fn a_bell_is_never_taken_for_input_and_a_closed_inbox_takes_nothing() {
    let ((fd, inbox), queue) = (inbox(), Queue::default());
    let (board, _fd) = Board::create().unwrap();
    let thread = Thread { queue: &queue, number: 5 };
    let random = Random(Cell::new(1));
    let outbox = outbox(&fd, 9);
    let call = |bytes: &[u8]| {
        queue.lock().unwrap().push_back((9, bytes.to_vec()));
        Ok(())
    };
    let send = || outbox.send(&board, &thread, &[IoSlice::new(b"word")], 4, call);
    // The first one is preceded by what the kernel has.
    assert_eq!((send(), take(&inbox, &thread, &random, false).is_some()), (Sent::Ring, true));
    board.enter(3, 0);
    assert_eq!((send(), send()), (Sent::Ring, Sent::Ring));
    assert_eq!(queue.lock().unwrap().len(), 1, "one bell is enough");
    for _ in 0..2 {
        assert_eq!(take(&inbox, &thread, &random, false).unwrap().1, b"word");
    }
    assert!(inbox.were_only_bells(&thread));
    assert!(!inbox.were_only_bells(&thread), "there was none");
    assert_eq!((send(), queue.lock().unwrap().len()), (Sent::Ring, 1), "somebody has looked since");
    inbox.close(0);
    assert_eq!(send(), Sent::Gone);
    assert_eq!(take(&inbox, &thread, &random, false).unwrap().1, b"word", "what is there can be taken");
    assert_eq!(take(&inbox, &thread, &random, false), None);
}

#[test]
fn what_a_hostile_sender_writes_harms_nobody() {
    let random = Random(Cell::new(11));
    for _ in 0..300 {
        let ((fd, inbox), queue) = (inbox(), Queue::default());
        let (board, _fd) = Board::create().unwrap();
        let raw = pulc_hal::os::memfd::map_common(fd.as_fd(), INBOX_BYTES).unwrap();
        let outbox = outbox(&fd, 9);
        let thread = Thread { queue: &queue, number: 5 };
        for _ in 0..40 {
            let _ = outbox.send(&board, &thread, &[IoSlice::new(&[1; 100])], 100, |_| Ok(()));
            for _ in 0..random.below(3) {
                let word = match random.below(3) {
                    0 => random.below(16),
                    1 => random.below(1 << 20),
                    _ => u64::MAX - random.below(1 << 20),
                };
                // Not the locks, at the beginnings of lines 3 and 5: who holds them for ever is dead, or meant to harm the user himself.
                let at = 8 + random.below(600) as usize * 8;
                if at != 3 * 64 && at != 5 * 64 {
                    raw.u64_at(at).store(word, Ordering::SeqCst);
                }
            }
            for _ in 0..3 {
                let _ = take(&inbox, &thread, &random, random.below(2) == 0);
            }
            let _ = (inbox.may_wait(), inbox.truth(&thread), inbox.next_sender(), inbox.unread());
        }
    }
}
