//! Receives that threads wait in, by ticket, and what has happened to them. Used by `table` (which fills them) and `receive`
//! (whose threads own them); always with the engine locked.

use pulc_base::{Proto, Rank};
use pulc_handler::{Body, End};

/// What a hand wants that waits at a port. Other interfaces number their queues from zero, too: its upper half says whose it is,
/// and a message of theirs never lands in the buffer of a port, nor the other way round.
#[inline]
pub(crate) fn lane_of(port: u32) -> u64 {
    u64::from(Proto::PORT.0) << 32 | u64::from(port)
}

/// Names one receive, never again another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ticket(pub u64);

/// What has happened to a receive.
pub(crate) enum Receive {
    Waiting,
    /// Arrived while another thread polled.
    Whole {
        src: Rank,
        tag: u64,
        bytes: Vec<u8>,
    },
    Coming {
        src: Rank,
        tag: u64,
        total: usize,
        place: Place,
        done: bool,
    },
    TooSmall {
        needed: usize,
    },
    NoMemory {
        needed: usize,
    },
    /// Its message was withdrawn half-way: wait anew.
    Again,
    Hopeless {
        rank: Rank,
        end: End,
    },
}

/// Where the parts of a message have gone: the first `landed` bytes are in the owner's buffer, what came while another
/// thread polled is stored until the owner fetches it.
pub(crate) struct Place {
    landed: usize,
    stored: Vec<u8>,
    /// The receive has no buffer: everything is stored, and that is the result.
    store_all: bool,
}

impl Place {
    pub fn new(store_all: bool) -> Place {
        Place { landed: 0, stored: Vec::new(), store_all }
    }

    /// With the bytes of a kept message that has begun to arrive.
    pub fn with(stored: Vec<u8>, store_all: bool) -> Place {
        Place { landed: 0, stored, store_all }
    }

    /// Room for the whole message where all of it is stored.
    pub fn reserve(&mut self, total: usize) -> bool {
        !self.store_all || self.stored.try_reserve_exact(total - self.stored.len()).is_ok()
    }

    pub fn take(&mut self, body: Body<'_>, buffer: Option<&mut [u8]>) {
        match buffer {
            Some(buffer) if !self.store_all => {
                self.fetch(buffer);
                self.landed += body.copy_to(&mut buffer[self.landed..]);
            }
            _ => body.append_to(&mut self.stored),
        }
    }

    /// Moves what was stored to the owner's buffer.
    pub fn fetch(&mut self, buffer: &mut [u8]) {
        if !self.stored.is_empty() {
            buffer[self.landed..self.landed + self.stored.len()].copy_from_slice(&self.stored);
            self.landed += self.stored.len();
            self.stored = Vec::new();
        }
    }

    /// Where the rest of `total` bytes goes in the owner's buffer.
    pub fn rest<'a>(&mut self, total: usize, buffer: &'a mut [u8]) -> Option<&'a mut [u8]> {
        if self.store_all {
            return None;
        }
        self.fetch(buffer);
        buffer.get_mut(self.landed..total)
    }

    /// So many bytes are there.
    pub fn landed(&mut self, bytes: usize) {
        self.landed += bytes;
    }

    pub fn into_stored(self) -> Vec<u8> {
        self.stored
    }
}

#[derive(Default)]
pub(crate) struct Receives {
    /// With the upper half of the present ticket.
    places: Vec<(u32, Option<Receive>)>,
    free: Vec<u32>,
}

impl Receives {
    #[inline]
    pub fn add(&mut self, receive: Receive) -> Ticket {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push((0, None));
            self.places.len() as u32 - 1
        });
        let (uses, slot) = &mut self.places[place as usize];
        *uses = uses.wrapping_add(1) & 0x7fff_ffff;
        *slot = Some(receive);
        Ticket(u64::from(*uses) << 32 | u64::from(place))
    }

    #[inline]
    pub fn of(&mut self, ticket: Ticket) -> Option<&mut Receive> {
        let (uses, slot) = self.places.get_mut(ticket.0 as u32 as usize)?;
        if u64::from(*uses) == ticket.0 >> 32 { slot.as_mut() } else { None }
    }

    pub fn set(&mut self, ticket: Ticket, receive: Receive) {
        if let Some(place) = self.of(ticket) {
            *place = receive;
        }
    }

    #[inline]
    pub fn remove(&mut self, ticket: Ticket) -> Option<Receive> {
        self.of(ticket)?;
        let place = ticket.0 as u32;
        self.free.push(place);
        self.places[place as usize].1.take()
    }
}
