//! Memory of long messages that nobody waited for, kept for the next ones once they were received: the C library gives what is long back to the
//! system, and the fresh pages of the next one cost ten times what copying it does.

/// What is shorter stays with the C library, which keeps it.
const LONG_BYTES: usize = 16 << 10;
/// As much is kept.
const KEPT_BYTES: usize = 4 << 20;

/// Empty, each with room for a long message.
#[derive(Default)]
pub(crate) struct Spare {
    rooms: Vec<Vec<u8>>,
    bytes: usize,
}

impl Spare {
    /// Empty memory for a message of `total` bytes, which grows if that is not enough.
    pub fn take(&mut self, total: usize) -> Vec<u8> {
        // The one that was given back last is still in the caches.
        let found =
            if total < LONG_BYTES { None } else { self.rooms.iter().rposition(|room| room.capacity() >= total) };
        let Some(at) = found else { return Vec::new() };
        let room = self.rooms.swap_remove(at);
        self.bytes -= room.capacity();
        room
    }

    /// Keeps the memory of a message that was received, unless there is enough of it.
    pub fn give(&mut self, mut room: Vec<u8>) {
        if room.capacity() < LONG_BYTES || self.bytes + room.capacity() > KEPT_BYTES {
            return;
        }
        room.clear();
        self.bytes += room.capacity();
        self.rooms.push(room);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_long_messages_is_used_again_and_not_kept_without_end() {
        let mut spare = Spare::default();
        assert_eq!(spare.take(1 << 20).capacity(), 0);
        spare.give(vec![1; LONG_BYTES - 1]);
        assert!(spare.rooms.is_empty(), "short ones are not kept");
        spare.give(vec![1; 2 * LONG_BYTES]);
        assert_eq!(spare.take(LONG_BYTES - 1).capacity(), 0);
        assert_eq!(spare.take(2 * LONG_BYTES + 1).capacity(), 0, "too long for it");
        let room = spare.take(LONG_BYTES);
        assert_eq!((room.len(), room.capacity(), spare.bytes), (0, 2 * LONG_BYTES, 0));
        (0..2 * KEPT_BYTES / LONG_BYTES).for_each(|_| spare.give(vec![1; LONG_BYTES]));
        assert_eq!((spare.bytes, spare.rooms.len()), (KEPT_BYTES, KEPT_BYTES / LONG_BYTES));
    }
}
