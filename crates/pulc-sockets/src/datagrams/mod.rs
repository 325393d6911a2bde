//! UDP between processes of one machine: every socket that is read has an *inbox*, a ring beside the kernel's queue, and whoever sends to it
//! an *outbox* for it, which is a mapping of the same memory. Used by the library in front of the C library and by the broker. Must never
//! do what UDP may not: a datagram is whole, comes once, with its sender's address, and those of one sender in their order.
//!
//! - The kernel's socket stays what it was. What the ring has no room for, what is odd, and what strangers send goes by the kernel.
//! - *Order.* A sender that has used the kernel comes to the ring when that is empty, and marks its datagram as a first one: before it is
//!   taken, the kernel's queue is read until that is empty. A sender that goes to the kernel while a first one is not taken yet sends a
//!   *fence* before: behind it the kernel's queue has what is newer. Otherwise the ring is read first, but for turns of the kernel's queue in
//!   which nobody's order is at stake.
//! - *Bells.* Who sleeps does so in the kernel. A bell, like a fence, is a datagram with a content that only those who have the inbox know; it
//!   is known by that alone, so it does no harm if it comes late, twice or never.
//! - *A bell may be lost*, as any datagram. Whether one is still in the queue is believed only as long as nobody has taken anything from there
//!   since it was rung.
//!
//! ```text
//!  line 0      magic, and the secret of signals
//!  line 1      the receiver: where it sleeps and what it is ready for
//!  line 2      written by senders for the receiver
//!  line 3      the senders' own
//!  line 4      written by the receiver for senders
//!  line 5      the receiver's own
//!  line 6      bells
//!  4096 …      ring of records: 32 bytes of header, then the bytes, filled up to eight
//! ```

mod inbox;
mod outbox;
mod waiting;

pub use inbox::{Datagram, Inbox, Taken};
pub use outbox::{Outbox, Sent};

use crate::error::Error;
use crate::kernel::Kernel;
use crate::layout::{LINE, end};
use crate::memory::Memory;
use crate::message::Place;
use crate::ring::{self, Region};
use pulc_hal::HalError;
use pulc_hal::os::memfd;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

const HEAD_BYTES: usize = 4096;
/// Holds the longest datagram, and as many short ones as the kernel's queue as a rule does. A power of two.
const BYTES: usize = 256 << 10;
const RING: Region = Region { at: HEAD_BYTES, bytes: BYTES };
/// Of the memory of an inbox. Pages that were never reached cost nothing.
pub const INBOX_BYTES: usize = HEAD_BYTES + BYTES;
const _: () = assert!(BYTES.is_power_of_two());
/// The longest that UDP knows.
pub const DATAGRAM_BYTES: usize = 65_535;

const MAGIC: u64 = u64::from_le_bytes(*b"PULCdgm1");
const AT_MAGIC: usize = 0;
const AT_SECRET: usize = 8;
/// Of what makes a signal one.
pub const SECRET_BYTES: usize = 16;
type Secret = [u8; SECRET_BYTES];
/// Of a signal: the secret, a word to who finds one where none should be, and a number: zero is a bell, others are fences.
pub const SIGNAL_BYTES: usize = 32;
const SIGNAL_TEXT: &[u8; 12] = b"PULC signal ";

/// A datagram that is none: a bell, or a fence.
fn signal(secret: &Secret, number: u32) -> [u8; SIGNAL_BYTES] {
    let mut bytes = [0; SIGNAL_BYTES];
    bytes[..SECRET_BYTES].copy_from_slice(secret);
    bytes[SECRET_BYTES..28].copy_from_slice(SIGNAL_TEXT);
    bytes[28..].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// The number of a signal, if these bytes are one.
fn signal_number(secret: &Secret, bytes: &[u8; SIGNAL_BYTES]) -> Option<u32> {
    let number = u32::from_le_bytes([bytes[28], bytes[29], bytes[30], bytes[31]]);
    (*bytes == signal(secret, number)).then_some(number)
}

/// The receiver, in words of [`end`].
const AT_END: usize = LINE;
/// Processes that have the socket: forks.
const AT_HOLDERS: usize = AT_END + end::FD;

/// Written by senders for the receiver.
mod tx {
    use super::LINE;
    pub const PUT: usize = 2 * LINE;
    /// The put position that lies at the ring's first byte.
    pub const BASE: usize = 2 * LINE + 8;
    /// What was put when a sender last went to the kernel with something of its own unread.
    pub const LEFT_AT: usize = 2 * LINE + 16;
    /// The core that who sent last was on, and one more.
    pub const CPU: usize = 2 * LINE + 24;
    /// The position, and one more, of the last first record, and the fences that there were before it.
    pub const FIRST_AT: usize = 2 * LINE + 32;
    pub const FIRST_FENCES: usize = 2 * LINE + 40;
    pub const LOCK: usize = 3 * LINE;
    /// Puts since a sender asked what was taken.
    pub const UNASKED: usize = 3 * LINE + 4;
    /// What the receiver had taken when a sender looked last, and looks that found no more.
    pub const HEARD: usize = 3 * LINE + 8;
    pub const STALE: usize = 3 * LINE + 16;
    pub const FENCES: usize = 3 * LINE + 20;
}

/// Written by the receiver.
mod rx {
    use super::LINE;
    pub const GOT: usize = 4 * LINE;
    pub const LOCK: usize = 5 * LINE;
    /// How much looking around before sleeping has paid lately.
    pub const LUCK: usize = 5 * LINE + 4;
    /// The position, and one more, of a first record before which the kernel's queue was empty.
    pub const CLEARED: usize = 5 * LINE + 8;
    /// What was taken from the kernel while a first record waits.
    pub const DRAINED: usize = 5 * LINE + 16;
    /// Takes, and takes until the kernel is believed to be quiet.
    pub const TURNS: usize = 5 * LINE + 20;
    pub const BUSY: usize = 5 * LINE + 24;
    /// An error number that the kernel has told and the program has not been told yet.
    pub const ERROR: usize = 5 * LINE + 28;
    /// What was looked at and not taken.
    pub const PEEKED: usize = 5 * LINE + 32;
}

mod bell {
    use super::LINE;
    pub const RUNG: usize = 6 * LINE;
    /// Times that something was taken from the kernel's queue, or that it was empty.
    pub const MOVED: usize = 6 * LINE + 4;
    /// One more than `MOVED` was when a bell was rung.
    pub const MARK: usize = 6 * LINE + 8;
}

/// What stands before each datagram.
///
/// ```text
///  0..4 bytes   4..6 flags   6..8 port   8..24 address   24..28 process   28..32 descriptor
/// ```
#[derive(Clone, Copy)]
struct Record {
    bytes: u32,
    is_first: bool,
    source: Place,
    /// The sender's socket, for whoever wants a copy of it.
    pid: u32,
    fd: u32,
}

const RECORD_BYTES: usize = 32;
const IS_FIRST: u16 = 1;

impl Record {
    fn encode(&self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        bytes[..4].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[4..6].copy_from_slice(&(if self.is_first { IS_FIRST } else { 0 }).to_le_bytes());
        bytes[6..8].copy_from_slice(&self.source.port.to_le_bytes());
        bytes[8..24].copy_from_slice(&self.source.address);
        bytes[24..28].copy_from_slice(&self.pid.to_le_bytes());
        bytes[28..].copy_from_slice(&self.fd.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; RECORD_BYTES]) -> Record {
        let mut address = [0; 16];
        address.copy_from_slice(&bytes[8..24]);
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Record {
            bytes: word(0),
            pid: word(24),
            fd: word(28),
            is_first: u16::from_le_bytes([bytes[4], bytes[5]]) & IS_FIRST != 0,
            source: Place { address, port: u16::from_le_bytes([bytes[6], bytes[7]]) },
        }
    }

    /// Of the whole record in the ring.
    fn room(bytes: usize) -> u64 {
        (RECORD_BYTES + bytes.next_multiple_of(8)) as u64
    }
}

/// The kernel's socket beside an inbox. Nothing here may sleep.
pub trait Post: Kernel {
    /// Looks at the first datagram of the kernel's queue: copies what fits, and says how long it is.
    ///
    /// # Errors
    /// Of the kernel; `EAGAIN` where there is none.
    fn look(&self, to: &mut [u8]) -> Result<usize, i32>;
    /// Takes it and drops it.
    fn drop_first(&self);
}

/// Memory for an inbox that nobody has yet. Made by the broker.
///
/// # Errors
/// When the system has no memory.
pub fn create(secret: Secret) -> Result<(Memory, OwnedFd), Error> {
    let (map, fd) = memfd::create_common("pulc-sockets-inbox", INBOX_BYTES)?;
    map.copy_in(AT_SECRET, &secret);
    map.u64_at(AT_MAGIC).store(MAGIC, Ordering::Release);
    Ok((map, fd))
}

/// Maps an inbox, and reads its secret: once, so that who writes there later changes nothing.
fn join(fd: BorrowedFd<'_>) -> Result<(Memory, Secret), Error> {
    let map = memfd::map_common(fd, INBOX_BYTES)?;
    if map.u64_at(AT_MAGIC).load(Ordering::Acquire) != MAGIC {
        return Err(Error::Memory(HalError::NotSharedMemory));
    }
    let mut secret = [0; SECRET_BYTES];
    crate::memory::copy_out(&map, AT_SECRET, &mut secret);
    Ok((map, secret))
}

/// What the broker tells about an inbox.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// Whether its socket's process has mapped it, and whether it takes datagrams.
    pub has_joined: bool,
    pub is_open: bool,
    /// That went through the ring, headers included.
    pub ring_bytes: u64,
    pub bells: u32,
    pub reason: u32,
}

/// Reads what can be read beside the ends.
pub fn summary(map: &Memory) -> Summary {
    let word = |at: usize| map.u32_at(at).load(Ordering::Relaxed);
    let is = |at| word(AT_END + at) != 0;
    Summary {
        has_joined: is(end::JOINED),
        is_open: is(end::READY) && !is(end::BARRED) && !is(end::CLOSED),
        ring_bytes: map.u64_at(tx::PUT).load(Ordering::Relaxed),
        bells: word(bell::RUNG),
        reason: word(AT_END + end::REASON),
    }
}

/// Sends everybody who sends to it back to the kernel, for good.
pub fn bar(map: &Memory) {
    map.u32_at(AT_END + end::BARRED).store(1, Ordering::SeqCst);
}

/// Reads the record at `position`, behind which `there` bytes stand; `None` if that cannot be one.
fn record(map: &Memory, position: u64, base: u64, there: u64) -> Option<Record> {
    let mut header = [0; RECORD_BYTES];
    if !(RECORD_BYTES as u64..=BYTES as u64).contains(&there) {
        return None;
    }
    ring::get(map, RING, position, base, &mut header);
    let record = Record::decode(&header);
    (record.bytes as usize <= DATAGRAM_BYTES && Record::room(record.bytes as usize) <= there).then_some(record)
}
