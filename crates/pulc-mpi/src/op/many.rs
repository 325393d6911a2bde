//! Several sources combined in one pass, from the first to the last, each read where it lies: no source is copied into a room first, and as many
//! streams come out of the caches at once. Called by `op::apply` only.
//!
//! Sources may be memory that another process writes meanwhile. So they are read by assembly, of which the compiler knows nothing but that it
//! reads: every byte once, into registers. Must never make a reference to them.

use crate::op::apply::{Combine, Element, Source};

/// Bytes that are combined at a time: what is no whole block is left to the caller.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const BLOCK_BYTES: usize = 128;

/// The loop for elements `E` and operation `C`; returns how many elements, from the first on, are done: none without vectors.
///
/// # Safety
/// `count` elements can be read at every source, and written at `into`, which nobody else uses; it may be a source itself.
pub(super) unsafe fn fold_many<E: Element, C: Combine<E>>(
    sources: &[Source<'_>],
    into: *mut u8,
    count: usize,
) -> usize {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if const { BLOCK_BYTES.is_multiple_of(size_of::<E>()) && VECTOR_BYTES.is_multiple_of(size_of::<E>()) }
        && !sources.is_empty()
        && std::arch::is_x86_feature_detected!("avx2")
    {
        let blocks = count * size_of::<E>() / BLOCK_BYTES;
        // SAFETY: whole blocks within what the caller vouches for; the processor has the feature; there is a source.
        unsafe { fold_avx2::<E, C>(sources, into, blocks) };
        return blocks * (BLOCK_BYTES / size_of::<E>());
    }
    let _ = (sources, into, count);
    0
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
use wide::fold_avx2;

#[cfg(all(target_arch = "x86_64", not(miri)))]
const VECTOR_BYTES: usize = 32;

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod wide {
    use super::*;
    use std::arch::asm;
    use std::arch::x86_64::__m256i;

    /// A block in registers.
    type Block = [__m256i; BLOCK_BYTES / VECTOR_BYTES];

    /// # Safety
    /// As [`fold_many`], for so many blocks; there is at least one source, and the processor has AVX2.
    #[target_feature(enable = "avx2")]
    #[inline(never)]
    pub unsafe fn fold_avx2<E: Element, C: Combine<E>>(sources: &[Source<'_>], into: *mut u8, blocks: usize) {
        let (first, others) = (sources[0], &sources[1..]);
        for at in (0..blocks * BLOCK_BYTES).step_by(BLOCK_BYTES) {
            // SAFETY: `at` begins one of the blocks that the caller vouches for.
            unsafe {
                let mut all = load(first.as_ptr().add(at));
                for source in others {
                    let next = load(source.as_ptr().add(at));
                    for (left, right) in all.iter_mut().zip(next) {
                        *left = combine::<E, C>(*left, right);
                    }
                }
                store(into.add(at), all);
            }
        }
    }

    /// # Safety
    /// A block is mapped readable at `from`, and the processor has AVX2.
    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn load(from: *const u8) -> Block {
        let (a, b, c, d);
        // SAFETY: the four moves read the block that the caller vouches for.
        unsafe {
            asm!(
                "vmovdqu {a}, [{from}]",
                "vmovdqu {b}, [{from} + 32]",
                "vmovdqu {c}, [{from} + 64]",
                "vmovdqu {d}, [{from} + 96]",
                a = out(ymm_reg) a, b = out(ymm_reg) b, c = out(ymm_reg) c, d = out(ymm_reg) d,
                from = in(reg) from,
                options(nostack, readonly, preserves_flags)
            );
        }
        [a, b, c, d]
    }

    /// # Safety
    /// A block is mapped writable at `to`, and the processor has AVX2.
    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn store(to: *mut u8, block: Block) {
        let [a, b, c, d] = block;
        // SAFETY: the four moves write the block that the caller vouches for.
        unsafe {
            asm!(
                "vmovdqu [{to}], {a}",
                "vmovdqu [{to} + 32], {b}",
                "vmovdqu [{to} + 64], {c}",
                "vmovdqu [{to} + 96], {d}",
                a = in(ymm_reg) a, b = in(ymm_reg) b, c = in(ymm_reg) c, d = in(ymm_reg) d,
                to = in(reg) to,
                options(nostack, preserves_flags)
            );
        }
    }

    /// The elements of one vector, in registers as far as the compiler makes vectors of them.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn combine<E: Element, C: Combine<E>>(left: __m256i, right: __m256i) -> __m256i {
        let mut both = right;
        for index in 0..VECTOR_BYTES / size_of::<E>() {
            // SAFETY: elements within the two vectors; any bits are an element, and any bits are a vector.
            unsafe {
                let left = (&raw const left).cast::<E>().add(index).read_unaligned();
                let right = (&raw const right).cast::<E>().add(index).read_unaligned();
                (&raw mut both).cast::<E>().add(index).write_unaligned(C::combine(left, right));
            }
        }
        both
    }
}
