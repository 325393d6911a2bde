//! What is done with bytes from elsewhere, for fuzz targets (`fuzz/`) and for the replay of their corpora: datagrams between ends, broker and
//! `pulc sockets`, and a hostile end of a connection that has its raw mapping. Not for programs.

use crate::kernel::errno;
use crate::layout::CHANNEL_BYTES;
use crate::message::{Answer, Request};
use crate::{Board, End, Flag, Incoming, Kernel, Outgoing, RING_BYTES, Side, create, summary};
use std::cell::Cell;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

/// Datagrams: refused, or what they are written as.
pub fn messages(bytes: &[u8]) {
    if let Ok(request) = Request::decode(bytes) {
        assert_eq!(Request::decode(&request.encode()).expect("it was just written"), request);
    }
    if let Ok(answer) = Answer::decode(bytes) {
        assert_eq!(Answer::decode(&answer.encode()).expect("it was just written"), answer);
    }
}

/// The kernel's side of a connection: so many bytes wait there, and it counts.
struct Counting {
    waiting: Cell<u64>,
    taken: Cell<u64>,
    sent: Cell<u64>,
}

const ME: u32 = 7;

impl Kernel for Counting {
    fn sent(&self) -> Result<u64, i32> {
        Ok(self.sent.get())
    }

    fn taken(&self) -> Result<u64, i32> {
        Ok(self.taken.get())
    }

    fn recv(&self, to: &mut [IoSliceMut<'_>], peek: bool) -> Result<usize, i32> {
        let room: usize = to.iter().map(|part| part.len()).sum();
        let count = self.waiting.get().min(room as u64);
        if count == 0 {
            return Err(errno::AGAIN);
        }
        if !peek {
            self.waiting.set(self.waiting.get() - count);
            self.taken.set(self.taken.get() + count);
        }
        Ok(count as usize)
    }

    fn ring(&self) -> Result<(), i32> {
        self.sent.set(self.sent.get() + 1);
        Ok(())
    }

    fn acknowledge(&self) {}

    fn has_room(&self, _: usize) -> bool {
        true
    }

    fn me(&self) -> u32 {
        ME
    }

    fn cpu(&self) -> u32 {
        0
    }

    /// Whoever holds a lock has died: a hostile end may hold it for ever.
    fn is_alive(&self, _: u32) -> bool {
        false
    }
}

/// Steps of nine bytes: a number, and what is done with it. Most numbers go where the other end and this one have their words.
pub fn channel(bytes: &[u8]) {
    const HEAD_WORDS: usize = 11 * 64 / 8;
    let (raw, fd) = create().expect("there is memory");
    let end = End::join(fd.as_fd(), Side::Active, 0, 1).expect("it is a channel");
    let (board, _) = Board::create().expect("there is memory");
    let kernel = Counting { waiting: Cell::new(0), taken: Cell::new(0), sent: Cell::new(0) };
    end.make_ready(&kernel).expect("this kernel counts");
    let mut room = vec![0; RING_BYTES];
    for step in bytes.chunks_exact(9) {
        let number = u64::from_le_bytes(step[1..].try_into().expect("eight bytes"));
        let what = step[0];
        if what & 0x80 == 0 {
            // The first word says what the memory is, which was looked at when it was mapped.
            raw.u64_at((1 + usize::from(what) % (HEAD_WORDS - 1)) * 8).store(number, Ordering::SeqCst);
            continue;
        }
        kernel.waiting.set(kernel.waiting.get() + (number & 0xff));
        let size = number as usize % RING_BYTES;
        match what % 8 {
            0 => check_sent(
                end.send(&board, &kernel, &[IoSlice::new(&room[..size / 3]), IoSlice::new(&room[size / 3..size])]),
                &end,
                size,
            ),
            1 | 2 => {
                let (one, two) = room[..size + 1].split_at_mut(size / 2);
                let parts = &mut [IoSliceMut::new(one), IoSliceMut::new(two)];
                if let Incoming::Got(count) = end.receive(&kernel, parts, what % 8 == 2) {
                    assert!((1..=size + 1).contains(&count), "{count} bytes came where {} have room", size + 1);
                }
            }
            3 => {
                let _ = end.may_wait(&kernel);
            }
            4 => {
                assert!(end.unread() <= RING_BYTES && end.unheard_bytes() <= RING_BYTES);
                let _ = (end.readable_bytes(size), end.is_over(), end.is_met(), summary(&raw), end.peer_descriptor());
            }
            5 => {
                if end.send_by_kernel(&kernel).is_ok() {
                    end.kernel_done();
                }
            }
            6 => end.set(Flag::Corked, number & 1 == 1),
            _ => {
                let _ = end.part(&kernel, 0, |_| number & 1 == 1);
            }
        }
    }
    assert_eq!(raw.u64_at(CHANNEL_BYTES - 8).load(Ordering::Relaxed), 0, "nothing is written at the other ring's end");
}

fn check_sent(outgoing: Outgoing, end: &End, size: usize) {
    match outgoing {
        Outgoing::Ring(count) => assert!(count <= size, "{count} of {size} bytes were sent"),
        Outgoing::Kernel(count) => {
            assert!(count <= size, "{count} of {size} bytes were sent");
            end.kernel_done();
        }
        Outgoing::Failed(_) => {}
    }
}
