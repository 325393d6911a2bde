//! The loops that copy between a program's memory and a packed stream. Called through `datatype::walk` only. One of the files of
//! this crate that touch user memory: the maker of an [`Addr`] has promised that the memory which a call describes is there.
//! Never makes references to that memory, and never assumes that anything is aligned.

use crate::datatype::program::Program;
use crate::datatype::walk::Visit;
use crate::memory::Addr;

/// Copies bytes `from..from + out.len()` of the packed stream of `count` elements at `base`.
#[inline]
pub(crate) fn pack(program: &Program, base: Addr, count: u64, from: u64, out: &mut [u8]) {
    let to = from + out.len() as u64;
    program.visit(count, from, to, &mut Packer { base: base.as_ptr(), out: out.as_mut_ptr() });
}

/// Puts `input` at bytes `from..from + input.len()` of the packed stream of `count` elements at `base`.
#[inline]
pub(crate) fn unpack(program: &Program, base: Addr, count: u64, from: u64, input: &[u8]) {
    let to = from + input.len() as u64;
    program.visit(count, from, to, &mut Unpacker { base: base.as_ptr(), input: input.as_ptr() });
}

/// Compiles what is to be done once for each way to copy a block, so that the length is a constant in the loops over the usual
/// ones: single numbers, pairs and triples of them.
macro_rules! by_length {
    ($len:expr, $copy:ident => $loop:expr) => {
        by_length!($len, $copy => $loop, 1 2 4 8 12 16 24 32 48 64)
    };
    ($len:expr, $copy:ident => $loop:expr, $($fixed:literal)*) => {
        match $len {
            $($fixed => {
                let $copy = Fixed::<$fixed>;
                $loop
            })*
            len if len <= SHORT_MAX => {
                let $copy = Short(len);
                $loop
            }
            len => {
                let $copy = Long(len);
                $loop
            }
        }
    };
}

/// `out` is inside the slice of [`pack`] as long as bytes of its stream are left: `visit` tells of exactly `out.len()` bytes.
struct Packer {
    base: *mut u8,
    out: *mut u8,
}

impl Visit for Packer {
    #[inline(always)]
    fn run(&mut self, at: i64, len: u64) {
        // SAFETY: the maker of the address vouches for the bytes at `at`, `visit` for the room in `out`; a program's buffer and
        // a packed one are not the same memory.
        unsafe {
            copy_run(self.base.wrapping_offset(at as isize), self.out, len as usize);
            self.out = self.out.add(len as usize);
        }
    }

    #[inline]
    fn strided(&mut self, at: i64, count: u64, len: u64, stride: i64) {
        // SAFETY: as in `run`, for each of `count` runs.
        unsafe {
            gather(self.base.wrapping_offset(at as isize), stride as isize, self.out, len as usize, count as usize);
            self.out = self.out.add((len * count) as usize);
        }
    }

    #[inline]
    fn listed(&mut self, at: i64, places: &[i64], len: u64) {
        let base = self.base.wrapping_offset(at as isize);
        let out = self.out;
        let len = len as usize;
        by_length!(len, copy => {
            for (index, &place) in places.iter().enumerate() {
                // SAFETY: as in `run`, for each place; `index * len` stays in `out`.
                unsafe { copy.one(base.wrapping_offset(place as isize), out.add(index * len)) }
            }
        });
        // SAFETY: so many bytes were written.
        self.out = unsafe { out.add(len * places.len()) };
    }
}

struct Unpacker {
    base: *mut u8,
    input: *const u8,
}

impl Visit for Unpacker {
    #[inline(always)]
    fn run(&mut self, at: i64, len: u64) {
        // SAFETY: as in `Packer::run`, the other way round.
        unsafe {
            copy_run(self.input, self.base.wrapping_offset(at as isize), len as usize);
            self.input = self.input.add(len as usize);
        }
    }

    #[inline]
    fn strided(&mut self, at: i64, count: u64, len: u64, stride: i64) {
        // SAFETY: as in `Packer::strided`, the other way round.
        unsafe {
            scatter(self.input, self.base.wrapping_offset(at as isize), stride as isize, len as usize, count as usize);
            self.input = self.input.add((len * count) as usize);
        }
    }

    #[inline]
    fn listed(&mut self, at: i64, places: &[i64], len: u64) {
        let base = self.base.wrapping_offset(at as isize);
        let input = self.input;
        let len = len as usize;
        by_length!(len, copy => {
            for (index, &place) in places.iter().enumerate() {
                // SAFETY: as in `Packer::listed`, the other way round.
                unsafe { copy.one(input.add(index * len), base.wrapping_offset(place as isize)) }
            }
        });
        // SAFETY: so many bytes were read.
        self.input = unsafe { input.add(len * places.len()) };
    }
}

/// Up to here a run is copied by a few fixed moves instead of a call of `memcpy`.
const SHORT_MAX: usize = 64;

/// # Safety
/// `len` bytes can be read at `from` and written at `to`, and do not overlap.
#[inline(always)]
unsafe fn copy_run(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: as the caller promises.
    unsafe { if len <= SHORT_MAX { copy_short(from, to, len) } else { std::ptr::copy_nonoverlapping(from, to, len) } }
}

/// Two moves that overlap in the middle copy every length between their size and twice their size.
///
/// # Safety
/// As [`copy_run`], and `len` is at most [`SHORT_MAX`].
#[inline(always)]
unsafe fn copy_short(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: each pair of moves covers `len` bytes and nothing beyond them.
    unsafe {
        match len {
            33.. => {
                moves::<32>(from, to);
                moves::<32>(from.add(len - 32), to.add(len - 32));
            }
            16.. => {
                moves::<16>(from, to);
                moves::<16>(from.add(len - 16), to.add(len - 16));
            }
            8.. => {
                moves::<8>(from, to);
                moves::<8>(from.add(len - 8), to.add(len - 8));
            }
            4.. => {
                moves::<4>(from, to);
                moves::<4>(from.add(len - 4), to.add(len - 4));
            }
            2.. => {
                moves::<2>(from, to);
                moves::<2>(from.add(len - 2), to.add(len - 2));
            }
            1 => moves::<1>(from, to),
            0 => {}
        }
    }
}

/// # Safety
/// `N` bytes can be read at `from` and written at `to`.
#[inline(always)]
unsafe fn moves<const N: usize>(from: *const u8, to: *mut u8) {
    // SAFETY: as the caller promises; an array of bytes is aligned everywhere.
    unsafe { to.cast::<[u8; N]>().write(from.cast::<[u8; N]>().read()) }
}

/// Blocks that are copied in one turn of the loops below.
const TURN: usize = 8;

/// Blocks of `len` bytes, `stride` apart, one after the other to `to`.
///
/// # Safety
/// As [`copy_run`] for each of `count` blocks.
#[inline]
unsafe fn gather(from: *const u8, stride: isize, to: *mut u8, len: usize, count: usize) {
    let (mut from, mut to) = (from, to);
    by_length!(len, copy => {
        for _ in 0..count / TURN {
            for index in 0..TURN {
                // SAFETY: as the caller promises.
                unsafe { copy.one(from.wrapping_offset(index as isize * stride), to.add(index * copy.len())) }
            }
            from = from.wrapping_offset(TURN as isize * stride);
            // SAFETY: so many bytes were written.
            to = unsafe { to.add(TURN * copy.len()) };
        }
        for index in 0..count % TURN {
            // SAFETY: as the caller promises.
            unsafe { copy.one(from.wrapping_offset(index as isize * stride), to.add(index * copy.len())) }
        }
    });
}

/// The other way round: from one block after the other to places `stride` apart.
///
/// # Safety
/// As [`copy_run`] for each of `count` blocks.
#[inline]
unsafe fn scatter(from: *const u8, to: *mut u8, stride: isize, len: usize, count: usize) {
    let (mut from, mut to) = (from, to);
    by_length!(len, copy => {
        for _ in 0..count / TURN {
            for index in 0..TURN {
                // SAFETY: as the caller promises.
                unsafe { copy.one(from.add(index * copy.len()), to.wrapping_offset(index as isize * stride)) }
            }
            // SAFETY: so many bytes were read.
            from = unsafe { from.add(TURN * copy.len()) };
            to = to.wrapping_offset(TURN as isize * stride);
        }
        for index in 0..count % TURN {
            // SAFETY: as the caller promises.
            unsafe { copy.one(from.add(index * copy.len()), to.wrapping_offset(index as isize * stride)) }
        }
    });
}

/// A way to copy one block.
trait CopyOne: Copy {
    fn len(self) -> usize;

    /// # Safety
    /// As [`copy_run`] for the length that this way is for.
    unsafe fn one(self, from: *const u8, to: *mut u8);
}

#[derive(Clone, Copy)]
struct Fixed<const N: usize>;

impl<const N: usize> CopyOne for Fixed<N> {
    #[inline(always)]
    fn len(self) -> usize {
        N
    }

    #[inline(always)]
    unsafe fn one(self, from: *const u8, to: *mut u8) {
        // SAFETY: as the caller promises.
        unsafe { moves::<N>(from, to) }
    }
}

#[derive(Clone, Copy)]
struct Short(usize);

impl CopyOne for Short {
    #[inline(always)]
    fn len(self) -> usize {
        self.0
    }

    #[inline(always)]
    unsafe fn one(self, from: *const u8, to: *mut u8) {
        // SAFETY: as the caller promises; made for lengths up to the limit only.
        unsafe { copy_short(from, to, self.0) }
    }
}

#[derive(Clone, Copy)]
struct Long(usize);

impl CopyOne for Long {
    #[inline(always)]
    fn len(self) -> usize {
        self.0
    }

    #[inline(always)]
    unsafe fn one(self, from: *const u8, to: *mut u8) {
        // SAFETY: as the caller promises.
        unsafe { std::ptr::copy_nonoverlapping(from, to, self.0) }
    }
}
