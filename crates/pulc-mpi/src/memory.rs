//! The program's memory, by address. One of the few rooms with `unsafe`: a door promises once, when it makes an [`Addr`], that
//! MPI's rules hold for what a call describes; everybody else uses it like a value. Must never make a reference to memory that
//! another thread may write, except where MPI gives the library the buffer for itself.
//! Source: MPI-5.0, 3.7.2: a buffer belongs to the library until its operation is complete.

use std::ptr;

/// An address in the program, perhaps zero (`MPI_BOTTOM`: datatypes may hold absolute addresses).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Addr(*mut u8);

// SAFETY: an address is a number; the maker's promise covers every thread of the library.
unsafe impl Send for Addr {}
// SAFETY: as above.
unsafe impl Sync for Addr {}

impl Addr {
    /// Where a call says that its result is also its input.
    pub const IN_PLACE: Addr = Addr(ptr::without_provenance_mut(usize::MAX));
    /// A buffer for buffered sends of whatever size it takes.
    pub const AUTOMATIC: Addr = Addr(ptr::without_provenance_mut(usize::MAX - 1));
    pub const NULL: Addr = Addr(ptr::null_mut());

    /// # Safety
    /// The memory that the call describes by this address, its count and its datatype is readable, for results also writable,
    /// and left to the library until the operation is complete, as MPI asks of programs.
    #[inline(always)]
    pub const unsafe fn new(start: *mut u8) -> Addr {
        Addr(start)
    }

    #[inline(always)]
    pub fn as_ptr(self) -> *mut u8 {
        self.0
    }

    #[inline(always)]
    pub fn as_usize(self) -> usize {
        self.0.addr()
    }

    #[inline(always)]
    pub fn is_in_place(self) -> bool {
        self == Addr::IN_PLACE
    }

    #[inline(always)]
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The address `by` bytes further.
    #[inline(always)]
    pub fn offset(self, by: i64) -> Addr {
        Addr(self.0.wrapping_offset(by as isize))
    }

    /// Copies bytes out of the program's memory.
    #[inline]
    pub fn read(self, at: i64, out: &mut [u8]) {
        if out.is_empty() {
            return;
        }
        // SAFETY: the maker of the address promises that the operation's memory is readable; `out` is ours.
        unsafe { ptr::copy_nonoverlapping(self.offset(at).0.cast_const(), out.as_mut_ptr(), out.len()) }
    }

    /// Copies bytes into the program's memory.
    #[inline]
    pub fn write(self, at: i64, input: &[u8]) {
        if input.is_empty() {
            return;
        }
        // SAFETY: the maker promises that the operation's memory is writable and nobody else uses it; `input` may be a part
        // of it, so the copy allows overlap.
        unsafe { ptr::copy(input.as_ptr(), self.offset(at).0, input.len()) }
    }

    /// Copies the first `len` bytes of some words into the program's memory. Eight of them are one store.
    ///
    /// # Panics
    /// When there are fewer.
    #[inline(always)]
    pub fn write_words(self, len: usize, words: &[u64]) {
        if len == 8 {
            return self.write(0, &words[0].to_ne_bytes());
        }
        assert!(len <= size_of_val(words), "{len} bytes of {} words", words.len());
        for (at, word) in words.iter().enumerate().take(len.div_ceil(8)) {
            self.write(8 * at as i64, &word.to_ne_bytes()[..(len - 8 * at).min(8)]);
        }
    }

    /// Copies `len` bytes from one place of the program to another; they may overlap.
    #[inline]
    pub fn copy_to(self, to: Addr, len: usize) {
        if len > 0 {
            // SAFETY: both makers' promises.
            unsafe { ptr::copy(self.0.cast_const(), to.0, len) }
        }
    }

    /// A buffer to send from.
    #[inline(always)]
    pub fn bytes<'a>(self, len: usize) -> &'a [u8] {
        if len == 0 {
            return &[];
        }
        // SAFETY: the program may read but not write the buffer of a send until that is complete, and the slice lives no
        // longer than the operation that its caller works on.
        unsafe { std::slice::from_raw_parts(self.0, len) }
    }

    /// A buffer to receive into.
    #[inline(always)]
    pub fn bytes_mut<'a>(self, len: usize) -> &'a mut [u8] {
        if len == 0 {
            return &mut [];
        }
        // SAFETY: the buffer of a receive belongs to the library until that is complete; callers hold one slice of it at a time.
        unsafe { std::slice::from_raw_parts_mut(self.0, len) }
    }
}

/// Memory of the library that operations use like the program's: intermediate results of collectives. Aligned for every type.
pub struct Room {
    words: Vec<u128>,
}

impl Room {
    /// Room for `len` bytes, all zero.
    pub fn new(len: usize) -> Room {
        Room { words: vec![0; len.div_ceil(size_of::<u128>())] }
    }

    /// Its length, in bytes.
    pub fn len(&self) -> usize {
        size_of_val(&*self.words)
    }

    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Its beginning. Valid as long as the room is.
    pub fn addr(&mut self) -> Addr {
        Addr(self.words.as_mut_ptr().cast())
    }
}

/// Counts or displacements of a call, in either width.
#[derive(Clone, Copy, Debug)]
pub enum Ints<'a> {
    Small(&'a [i32]),
    Large(&'a [i64]),
}

impl Ints<'_> {
    pub const NONE: Ints<'static> = Ints::Small(&[]);

    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Ints::Small(all) => all.len(),
            Ints::Large(all) => all.len(),
        }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// # Panics
    /// When `at` lies behind the end.
    #[inline]
    pub fn get(&self, at: usize) -> i64 {
        match self {
            Ints::Small(all) => i64::from(all[at]),
            Ints::Large(all) => all[at],
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = i64> + '_ {
        (0..self.len()).map(|at| self.get(at))
    }

    pub fn to_vec(&self) -> Vec<i64> {
        self.iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_and_written_at_offsets_also_negative_ones() {
        let mut room = Room::new(32);
        let middle = room.addr().offset(16);
        middle.write(-8, &[1, 2, 3]);
        let mut out = [0; 4];
        middle.read(-8, &mut out);
        assert_eq!(out, [1, 2, 3, 0]);
        assert_eq!(room.addr().as_usize() % 16, 0);
    }

    #[test]
    fn words_are_written_as_far_as_their_bytes_mean_something() {
        let words: Vec<u64> = (0..5).map(|word: u8| u64::from_ne_bytes([word * 8 + 1; 8])).collect();
        for len in 0..=40 {
            let mut room = Room::new(48);
            room.addr().write_words(len, &words);
            let mut out = [0; 48];
            room.addr().read(0, &mut out);
            let expected: Vec<u8> = (0..48).map(|at| if at < len { at as u8 / 8 * 8 + 1 } else { 0 }).collect();
            assert_eq!(out[..], expected[..], "{len} bytes");
        }
    }
}
