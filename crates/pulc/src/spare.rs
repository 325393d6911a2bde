//! Memory of kept messages, used again: a fresh 64 KiB costs sixteen page faults, which is ten times the copy. Used by the
//! port table for messages that come before anyone receives them. Holds at most [`SPARE_MAX_BYTES`].

/// Largest sum of memory that waits to be used again.
pub(crate) const SPARE_MAX_BYTES: usize = 4 << 20;
/// The allocator is quick enough below this.
const WORTH_KEEPING_BYTES: usize = 4096;

#[derive(Default)]
pub(crate) struct Spare {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

impl Spare {
    /// An empty buffer with room for `len` bytes; `None` when there is no memory.
    pub fn take(&mut self, len: usize) -> Option<Vec<u8>> {
        if len >= WORTH_KEEPING_BYTES
            && let Some(at) = self.buffers.iter().rposition(|buffer| buffer.capacity() >= len)
        {
            let buffer = self.buffers.swap_remove(at);
            self.bytes -= buffer.capacity();
            return Some(buffer);
        }
        let mut buffer = Vec::new();
        buffer.try_reserve_exact(len).ok()?;
        Some(buffer)
    }

    /// Keeps nothing any more.
    pub fn clear(&mut self) {
        *self = Spare::default();
    }

    /// Takes back a buffer that is no longer needed.
    pub fn give(&mut self, mut buffer: Vec<u8>) {
        let capacity = buffer.capacity();
        if capacity >= WORTH_KEEPING_BYTES && self.bytes + capacity <= SPARE_MAX_BYTES {
            buffer.clear();
            self.bytes += capacity;
            self.buffers.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_empty_and_the_sum_is_bounded() {
        let mut spare = Spare::default();
        let mut buffer = spare.take(10_000).unwrap();
        buffer.resize(10_000, 7);
        let address = buffer.as_ptr();
        spare.give(buffer);
        let again = spare.take(9_000).unwrap();
        assert!(again.is_empty() && again.as_ptr() == address);
        for _ in 0..100 {
            spare.give(Vec::with_capacity(1 << 20));
        }
        assert!(spare.bytes <= SPARE_MAX_BYTES);
        spare.clear();
        assert_eq!((spare.buffers.capacity(), spare.bytes), (0, 0));
        assert!(spare.take(usize::MAX).is_none());
    }
}
