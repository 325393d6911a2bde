//! Where everything lies in a channel: the memory that the two ends of one connection share. Every word has one side that writes it
//! (but locks and bells), nothing read there is believed before it is checked, and positions are counts of bytes since the connection
//! began, so that they are compared and never wrap.
//!
//! ```text
//!  line 0      magic and version
//!  line 1, 2   side 0 (it called connect), side 1: what the end is ready for, and where it sleeps
//!  line 3, 5   written by the sender of direction 0 (side 0 to side 1), of direction 1, for its receiver
//!  line 4, 6   the sender's own
//!  line 7, 8   written by the receiver of direction 0, 1
//!  line 9, 10  bells of direction 0, 1 that the receiver has not silenced
//!  4096 …      ring of direction 0, ring of direction 1
//! ```
//!
//! A line costs as much as a message when the other core has just used it. So a small message moves two: the bytes, and the line that
//! says they are there. What only one end needs to know of is on a line of its own.
//!
//! A direction is a sequence of *segments*: kernel, ring, kernel, ring … The sender's epoch counts the segments that it has begun (even:
//! kernel), the receiver's `SEEN` those that it has reached. A ring segment begins where the kernel has carried `RING_FROM` bytes; the
//! kernel segment after it begins at kernel byte `KERNEL_FROM`: what the kernel carries between the two are bells and nothing else.

/// Of one direction. A power of two. Only what is touched costs memory, see [`tx::TOUCHED`].
pub const RING_BYTES: usize = if cfg!(loom) { 2 } else { 256 << 10 };
/// What a ring keeps of it while little is sent: a page.
#[cfg(not(loom))]
pub const KEPT_BYTES: usize = 4096;
/// What is longer moves in pieces of so many bytes: the other end takes one while the next is put.
pub const PIECE_BYTES: usize = if cfg!(loom) { 2 } else { 8 << 10 };
/// The sender does not ask what was taken before it has put so many bytes since the ring's beginning: more than small messages few of
/// which are on their way, less than a page.
pub const UNASKED_BYTES: u64 = if cfg!(loom) { 1 } else { 2 << 10 };
const HEAD_BYTES: usize = 4096;
/// Of the memory that the two ends of a connection share.
pub const CHANNEL_BYTES: usize = HEAD_BYTES + 2 * RING_BYTES;
const _: () = assert!(RING_BYTES.is_power_of_two());

#[cfg(not(loom))]
pub const MAGIC: u64 = u64::from_le_bytes(*b"PULCsok3");
#[cfg(not(loom))]
pub const AT_MAGIC: usize = 0;

pub const LINE: usize = 64;

/// One of the two ends of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// Called `connect`.
    Active = 0,
    /// Came out of `accept`.
    Passive = 1,
}

impl Side {
    #[inline]
    pub fn other(self) -> Side {
        match self {
            Side::Active => Side::Passive,
            Side::Passive => Side::Active,
        }
    }

    pub fn of(number: u32) -> Option<Side> {
        match number {
            0 => Some(Side::Active),
            1 => Some(Side::Passive),
            _ => None,
        }
    }
}

/// Words of an end.
pub mod end {
    /// The end has mapped the channel.
    pub const JOINED: usize = 0;
    /// Whoever reads there expects the ring.
    pub const READY: usize = 4;
    /// The end wants both directions on the kernel, for good.
    pub const BARRED: usize = 8;
    /// Slot on the board, and the word of it that counts those asleep in the set of descriptors that the end is in.
    pub const SLOT: usize = 12;
    pub const WORD: usize = 16;
    /// Nobody looks at the ring of their own accord: a bell for everything that comes to an empty ring.
    pub const PARKED: usize = 20;
    /// Somebody waits for edges: a bell even if one is there already.
    pub const EDGE: usize = 24;
    /// SO_LINGER with no time: closing is meant to be a reset.
    pub const ABORT: usize = 28;
    /// The last descriptor of the process is closed.
    pub const CLOSED: usize = 32;
    /// Nothing may be sent any more.
    pub const SHUT: usize = 36;
    /// TCP_CORK is set.
    pub const CORKED: usize = 40;
    pub const PID: usize = 44;
    pub const REASON: usize = 48;
    /// The core that the end was on when it last moved bytes, and one more.
    pub const CPU: usize = 52;
    /// The descriptor, for who wants a copy of it.
    pub const FD: usize = 56;
    /// Forks of the process sleep for it too, in sets that it does not know.
    pub const SHARED: usize = 60;
}

/// Words of a direction that its sender writes.
pub mod tx {
    use super::LINE;
    pub const EPOCH: usize = 4;
    /// Bytes put into rings so far.
    pub const PUT: usize = 8;
    /// The put position that lies at the ring's first byte.
    pub const BASE: usize = 16;
    pub const RING_FROM: usize = 24;
    pub const KERNEL_FROM: usize = 32;
    /// Bells that the kernel has accepted, ever, and before the last ring segment began.
    pub const RUNG: usize = 44;
    pub const RUNG_BEFORE: usize = 48;
    /// The first of the sender's own words.
    pub const LOCK: usize = LINE;
    /// Calls that are sending by the kernel just now.
    pub const SENDING: usize = LINE + 4;
    /// What the receiver had taken when the sender looked last.
    pub const HEARD: usize = LINE + 8;
    /// How much waiting for room has paid lately.
    pub const LUCK: usize = LINE + 16;
    /// The second of the system's clock, and one more, in which more than the first page of the ring was used last; zero: it was not since that was
    /// given back.
    #[cfg(not(loom))]
    pub const TOUCHED: usize = LINE + 20;
}

/// Words of a direction that its receiver writes.
pub mod rx {
    pub const LOCK: usize = 0;
    pub const SEEN: usize = 4;
    /// Bytes taken out of rings so far.
    pub const GOT: usize = 8;
    /// An error number that the kernel has told and the program has not been told yet.
    pub const ERROR: usize = 16;
    /// Bells that were taken from the kernel, ever.
    pub const SILENCED: usize = 20;
    /// Bytes that were taken from the kernel, ever. Asked of it once, then counted: after the stream's end it does not tell any more.
    pub const TAKEN: usize = 24;
    /// How much looking around before sleeping has paid lately.
    pub const LUCK: usize = 32;
}

#[inline]
pub const fn at_end(side: Side) -> usize {
    LINE * (1 + side as usize)
}

/// Directions are named by their sender.
#[inline]
pub const fn at_tx(sender: Side) -> usize {
    LINE * (3 + 2 * sender as usize)
}

#[inline]
pub const fn at_rx(sender: Side) -> usize {
    LINE * (7 + sender as usize)
}

#[inline]
pub const fn at_bells(sender: Side) -> usize {
    LINE * (9 + sender as usize)
}

#[inline]
pub const fn at_ring(sender: Side) -> usize {
    HEAD_BYTES + RING_BYTES * sender as usize
}

/// Whether an epoch is one of the ring.
#[inline]
pub const fn is_ring(epoch: u32) -> bool {
    epoch % 2 == 1
}
