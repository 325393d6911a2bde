//! Memory that programs of collectives work in. A long piece that is given back is kept for the next program: the C library returns what is
//! long to the system, and fresh pages cost several times what a collective does with them. Used by `program`.

use crate::memory::{Addr, Room};
use std::sync::{Mutex, PoisonError};

/// Shorter pieces stay with the C library, which keeps them.
const LONG_BYTES: usize = 64 << 10;
/// As much is kept for the whole process; a collective of 4 MiB needs so much at most.
const KEPT_BYTES: usize = 8 << 20;

static KEPT: Mutex<Kept> = Mutex::new(Kept { rooms: Vec::new(), bytes: 0 });

/// What nobody uses at the moment, oldest first.
struct Kept {
    rooms: Vec<Room>,
    bytes: usize,
}

impl Kept {
    /// The room that is long enough and wastes least; one of more than twice the length waits for a longer wish.
    fn take(&mut self, len: usize) -> Option<Room> {
        let fits = |room: &Room| (len..=2 * len).contains(&room.len());
        let found = self.rooms.iter().enumerate().filter(|(_, room)| fits(room)).min_by_key(|(_, room)| room.len());
        let room = found.map(|(at, _)| at).map(|at| self.rooms.remove(at))?;
        self.bytes -= room.len();
        Some(room)
    }

    /// Keeps a room, and lets go of the oldest ones where that becomes too much.
    fn give(&mut self, room: Room) {
        if !(LONG_BYTES..=KEPT_BYTES).contains(&room.len()) {
            return;
        }
        self.bytes += room.len();
        self.rooms.push(room);
        while self.bytes > KEPT_BYTES {
            self.bytes -= self.rooms.remove(0).len();
        }
    }
}

/// What one program works in; given back when it is dropped.
#[derive(Default)]
pub(super) struct Rooms {
    rooms: Vec<Room>,
}

impl Rooms {
    /// Memory for `len` bytes, which lives as long as this. What it holds is left from others.
    pub fn take(&mut self, len: usize) -> Addr {
        let kept = if len < LONG_BYTES { None } else { kept(|kept| kept.take(len)) };
        let mut room = kept.unwrap_or_else(|| Room::new(len));
        let addr = room.addr();
        self.rooms.push(room);
        addr
    }

    pub fn append(&mut self, mut other: Rooms) {
        self.rooms.append(&mut other.rooms);
    }
}

impl Drop for Rooms {
    fn drop(&mut self) {
        if self.rooms.iter().any(|room| room.len() >= LONG_BYTES) {
            kept(|kept| self.rooms.drain(..).for_each(|room| kept.give(room)));
        }
    }
}

fn kept<T>(with: impl FnOnce(&mut Kept) -> T) -> T {
    with(&mut KEPT.lock().unwrap_or_else(PoisonError::into_inner))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none() -> Kept {
        Kept { rooms: Vec::new(), bytes: 0 }
    }

    #[test]
    fn a_room_that_was_given_back_is_taken_again_where_it_fits() {
        let mut kept = none();
        let mut rooms = [LONG_BYTES, 4 * LONG_BYTES, 3 * LONG_BYTES].map(Room::new);
        let third = rooms[2].addr();
        rooms.into_iter().for_each(|room| kept.give(room));
        assert!(kept.take(8 * LONG_BYTES).is_none(), "all are too short");
        assert!(kept.take(LONG_BYTES / 4).is_none(), "all are too long");
        assert_eq!(kept.take(2 * LONG_BYTES).unwrap().addr(), third, "the shorter one of two that fit");
        assert_eq!(kept.take(2 * LONG_BYTES).unwrap().len(), 4 * LONG_BYTES);
        assert_eq!((kept.rooms.len(), kept.bytes), (1, LONG_BYTES));
    }

    #[test]
    fn so_much_is_kept_and_no_more() {
        let mut kept = none();
        kept.give(Room::new(LONG_BYTES - 16));
        kept.give(Room::new(KEPT_BYTES + 16));
        assert_eq!((kept.rooms.len(), kept.bytes), (0, 0));
        for _ in 0..5 {
            kept.give(Room::new(KEPT_BYTES / 4));
        }
        assert_eq!((kept.rooms.len(), kept.bytes), (4, KEPT_BYTES));
        kept.give(Room::new(KEPT_BYTES));
        assert_eq!((kept.rooms.len(), kept.bytes), (1, KEPT_BYTES));
    }
}
