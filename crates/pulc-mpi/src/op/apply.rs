//! The loops of reductions over a program's memory: `inout[i] = input[i] op inout[i]`, and in `many` of several sources in one pass. Called by `op::kernel` only. One of the files
//! of this crate that touch user memory: the maker of an [`Addr`] has promised that the elements which a call describes are there.
//! Never makes references to that memory, and assumes no alignment: intermediate results may lie anywhere in a message.
//!
//! The loops are plain; the compiler makes vectors of them, once for the oldest x86-64 and once for AVX2, which is chosen at
//! run time. Every element is computed alone and in one way, so results are the same from run to run.

use crate::memory::Addr;
use crate::op::many;
use crate::op::numbers::{Computed, Soft};
use pulc_hal::os::memfd::SharedBytes;
use std::marker::PhantomData;

/// What one element is in memory. Plain bits of any kind: no value is invalid, none owns anything.
///
/// # Safety
/// Every initialised piece of memory of this size is a value of the type, gaps aside.
pub(crate) unsafe trait Element: Copy {}

/// How two elements become one. `left` comes from the process with the lower rank.
pub(crate) trait Combine<E> {
    fn combine(left: E, right: E) -> E;
}

/// What a loop reads.
#[derive(Clone, Copy)]
pub(crate) enum Operands<'a> {
    /// `into[i] = input[i] op into[i]`.
    Input(Addr),
    /// `into[i] = sources[0][i] op sources[1][i] op ...`, from the left to the right.
    Sources(&'a [Source<'a>]),
}

/// Elements that are read where they lie, also while another process writes there: what comes of it is then any mixture of old and new.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    at: *const u8,
    memory: PhantomData<&'a [u8]>,
}

impl<'a> Source<'a> {
    #[inline(always)]
    pub(super) fn as_ptr(self) -> *const u8 {
        self.at
    }

    /// The program's memory, or the library's.
    #[inline(always)]
    pub fn of(at: Addr) -> Source<'a> {
        Source { at: at.as_ptr(), memory: PhantomData }
    }

    /// Memory that processes share; the loop must not read further than these bytes.
    #[inline(always)]
    pub fn shared(bytes: SharedBytes<'a>) -> Source<'a> {
        Source { at: bytes.as_ptr(), memory: PhantomData }
    }
}

/// A loop for one operation on one kind of elements: what it reads, where the result goes, number of elements. Returns how many it has done: all of two
/// operands; of sources as many as make whole blocks, and none where it has no loop for them.
pub(crate) type Kernel = fn(Operands<'_>, Addr, usize) -> usize;

/// The loop for elements `E` and operation `C`.
pub(crate) fn fold<E: Element, C: Combine<E>>(operands: Operands<'_>, into: Addr, count: usize) -> usize {
    let input = match operands {
        Operands::Input(input) => input,
        // SAFETY: the makers of all addresses vouch for `count` elements.
        Operands::Sources(sources) => return unsafe { many::fold_many::<E, C>(sources, into.as_ptr(), count) },
    };
    #[cfg(target_arch = "x86_64")]
    if count * size_of::<E>() >= WIDE_BYTES && std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has the feature; the rest as below.
        unsafe { fold_avx2::<E, C>(input.as_ptr(), into.as_ptr(), count) };
        return count;
    }
    // SAFETY: the makers of both addresses vouch for `count` elements, and for nobody else writing to the result.
    unsafe { fold_plain::<E, C>(input.as_ptr(), into.as_ptr(), count) }
    count
}

/// Shorter vectors are not worth asking for the feature.
#[cfg(target_arch = "x86_64")]
const WIDE_BYTES: usize = 256;

/// # Safety
/// `count` elements can be read at `input`, and read and written at `inout`.
#[inline(always)]
unsafe fn fold_body<E: Element, C: Combine<E>>(input: *const u8, inout: *mut u8, count: usize) {
    let (input, inout) = (input.cast::<E>(), inout.cast::<E>());
    for index in 0..count {
        // SAFETY: as the caller promises; any bits are an element.
        unsafe {
            let left = input.add(index).read_unaligned();
            let right = inout.add(index).read_unaligned();
            inout.add(index).write_unaligned(C::combine(left, right));
        }
    }
}

/// # Safety
/// As [`fold_body`].
#[inline(never)]
unsafe fn fold_plain<E: Element, C: Combine<E>>(input: *const u8, inout: *mut u8, count: usize) {
    // SAFETY: as the caller promises.
    unsafe { fold_body::<E, C>(input, inout, count) }
}

/// # Safety
/// As [`fold_body`], and the processor has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[inline(never)]
unsafe fn fold_avx2<E: Element, C: Combine<E>>(input: *const u8, inout: *mut u8, count: usize) {
    // SAFETY: as the caller promises.
    unsafe { fold_body::<E, C>(input, inout, count) }
}

/// Elements whose arithmetic is not worth two loops: those computed in software.
pub(crate) fn fold_once<E: Element, C: Combine<E>>(operands: Operands<'_>, into: Addr, count: usize) -> usize {
    let Operands::Input(input) = operands else { return 0 };
    // SAFETY: as in `fold`.
    unsafe { fold_plain::<E, C>(input.as_ptr(), into.as_ptr(), count) }
    count
}

macro_rules! plain_bits {
    ($($element:ty)*) => {$(
        // SAFETY: a number: all bits are valid.
        unsafe impl Element for $element {}
    )*};
}

plain_bits!(u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 f32 f64);

/// 16 bytes, aligned like C's `long double`.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub(crate) struct Sixteen {
    first: u64,
    second: u64,
}

impl Sixteen {
    pub fn bits(self) -> u128 {
        let (first, second) = (u128::from(self.first), u128::from(self.second));
        if cfg!(target_endian = "little") { second << 64 | first } else { first << 64 | second }
    }

    pub fn of_bits(bits: u128) -> Sixteen {
        let (low, high) = (bits as u64, (bits >> 64) as u64);
        let (first, second) = if cfg!(target_endian = "little") { (low, high) } else { (high, low) };
        Sixteen { first, second }
    }
}

// SAFETY: bits of an integer, in a transparent wrapper.
unsafe impl<S: Soft> Element for Computed<S> {}

/// Real and imaginary part.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Complex<N> {
    pub re: N,
    pub im: N,
}

// SAFETY: two elements.
unsafe impl<N: Element> Element for Complex<N> {}

/// A value and its place, laid out like a C struct. Its gaps are not data: they may change.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Pair<V, P> {
    pub value: V,
    pub place: P,
}

// SAFETY: two elements; the gaps between and behind them are never looked at.
unsafe impl<V: Element, P: Element> Element for Pair<V, P> {}
