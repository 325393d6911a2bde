//! Copies between private memory and memory that another process may be changing. Called by the maps of `os::memfd` and, for shared bytes, by devices.
//!
//! An ordinary `memcpy` of bytes that change under it is undefined behaviour, and volatile or atomic loops are not
//! vectorised by the compiler: so the loop is assembly, of which the compiler knows nothing but that it reads and writes
//! memory. What arrives may be any mixture of old and new bytes; it is never trusted.

use crate::os::copy_kernel::Kernel;
use crate::os::memfd::{SharedBytes, WriteMap};

/// Copies out of shared memory.
///
/// # Safety
/// `to` is valid for writes and private, `from` is mapped readable, both for `len` bytes.
#[inline(always)]
pub(crate) unsafe fn from_shared(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: as the caller promises.
    unsafe { copy(to, from, len) }
}

/// Asks for a cache line that will be written; a hint, whatever lies there.
#[inline(always)]
pub(crate) fn claim_line(line: *mut u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the instruction reads and writes nothing and never faults, not even at an address that is not mapped.
    unsafe {
        std::arch::asm!("prefetchw byte ptr [{}]", in(reg) line, options(nostack, preserves_flags));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = line;
}

impl SharedBytes<'_> {
    /// As [`SharedBytes::copy_to`] with a choice of how `to` is written.
    ///
    /// # Panics
    /// When the range lies outside.
    #[inline(always)]
    pub(crate) fn copy_to_with(&self, offset: usize, to: &mut [u8], stores: Stores) {
        assert!(offset <= self.len() && to.len() <= self.len() - offset, "copy outside of {} shared bytes", self.len());
        // SAFETY: inside of the checked range, which is mapped as long as the value lives; `to` is exclusive private memory.
        unsafe { copy_with(to.as_mut_ptr(), self.as_ptr().add(offset), to.len(), stores) }
    }
}

/// Asks for a cache line that will be read; a hint, whatever lies there.
#[inline(always)]
fn expect_line(line: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the instruction reads nothing into a register and never faults, not even at an address that is not mapped.
    unsafe {
        std::arch::asm!("prefetcht0 byte ptr [{}]", in(reg) line, options(nostack, preserves_flags));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = line;
}

impl WriteMap {
    /// Asks for the cache line at `offset`, a multiple of 8, which will be read soon: it is on its way by then. Changes nothing.
    #[inline(always)]
    pub fn expect_line(&self, offset: usize) {
        expect_line(self.u64_at(offset).as_ptr().cast());
    }
}

/// How the destination is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stores {
    Ordinary,
    /// Past the caches, where the processor can.
    Streaming,
}

/// Copies into shared memory. Streaming stores are complete, for a later release store, on return.
///
/// # Safety
/// `to` is mapped writable, `from` is valid for reads and private, both for `len` bytes.
#[inline(always)]
pub(crate) unsafe fn to_shared(to: *mut u8, from: *const u8, len: usize, stores: Stores) {
    // SAFETY: as the caller promises.
    unsafe { copy_with(to, from, len, stores) }
}

/// # Safety
/// `to` is valid for writes, `from` for reads, both for `len` bytes, and the compiler knows of nobody who uses `to` meanwhile.
#[inline(always)]
unsafe fn copy_with(to: *mut u8, from: *const u8, len: usize, stores: Stores) {
    #[cfg(target_arch = "x86_64")]
    if stores == Stores::Streaming && len >= VECTOR_MIN && Kernel::chosen() != Kernel::StringMove {
        // The front up to the next line and what is no whole block at the end are copied as usual.
        let front = to.align_offset(64).min(len);
        let blocks = (len - front) & !127;
        let back = front + blocks;
        // SAFETY: three pieces of the two ranges that the caller vouches for; the middle one begins aligned.
        return unsafe {
            copy(to, from, front);
            copy(to.add(back), from.add(back), len - back);
            copy_streaming(to.add(front), from.add(front), blocks);
        };
    }
    let _ = stores;
    // SAFETY: as the caller promises.
    unsafe { copy(to, from, len) }
}

/// From here on a loop is worth its start.
#[cfg(target_arch = "x86_64")]
const VECTOR_MIN: usize = 256;

/// # Safety
/// `to` is mapped writable, `from` readable, for `len` bytes, not overlapping.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn copy(to: *mut u8, from: *const u8, len: usize) {
    if len < VECTOR_MIN {
        // SAFETY: as the caller promises.
        return unsafe { copy_small(to, from, len) };
    }
    match Kernel::chosen() {
        // SAFETY: as the caller promises; a kernel is only chosen where it exists, and `len` is long enough.
        Kernel::Avx512 => return unsafe { copy_wide(to, from, len) },
        // SAFETY: as above.
        Kernel::Avx2 => return unsafe { copy_vector(to, from, len) },
        Kernel::StringMove => {}
    }
    // SAFETY: the string move touches exactly the two ranges the caller vouches for; the direction flag is clear by the
    // ABI.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") len => _,
            inout("rdi") to => _,
            inout("rsi") from => _,
            options(nostack, preserves_flags)
        );
    }
}

/// Moves of one register at a time: 16 bytes each with the last one overlapping, or one or two smaller ones that overlap.
///
/// # Safety
/// As for `copy`.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn copy_small(to: *mut u8, from: *const u8, len: usize) {
    use std::arch::asm;
    // SAFETY: every move below lies inside the first `len` bytes of both ranges.
    unsafe {
        if len >= 16 {
            let mut at = 0;
            loop {
                asm!("movdqu {x}, [{f}]", "movdqu [{t}], {x}", x = out(xmm_reg) _, f = in(reg) from.add(at),
                    t = in(reg) to.add(at), options(nostack, preserves_flags));
                at += 16;
                if at + 16 > len {
                    break;
                }
            }
            if at < len {
                asm!("movdqu {x}, [{f}]", "movdqu [{t}], {x}", x = out(xmm_reg) _, f = in(reg) from.add(len - 16),
                    t = in(reg) to.add(len - 16), options(nostack, preserves_flags));
            }
        } else if len >= 8 {
            asm!("mov {a}, [{f}]", "mov {b}, [{f} + {n} - 8]", "mov [{t}], {a}", "mov [{t} + {n} - 8], {b}",
                a = out(reg) _, b = out(reg) _, f = in(reg) from, t = in(reg) to, n = in(reg) len,
                options(nostack, preserves_flags));
        } else if len >= 4 {
            asm!("mov {a:e}, [{f}]", "mov {b:e}, [{f} + {n} - 4]", "mov [{t}], {a:e}", "mov [{t} + {n} - 4], {b:e}",
                a = out(reg) _, b = out(reg) _, f = in(reg) from, t = in(reg) to, n = in(reg) len,
                options(nostack, preserves_flags));
        } else {
            for i in 0..len {
                to.add(i).write_volatile(from.add(i).read_volatile());
            }
        }
    }
}

/// The last 128 bytes first, at whatever alignment, then whole blocks of 128 bytes up to there.
///
/// # Safety
/// As for `copy`; AVX2 exists and `len` is at least 128.
#[cfg(target_arch = "x86_64")]
unsafe fn copy_vector(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: the tail reads and writes the last 128 bytes of both ranges, the loop `(len - 1) / 128` blocks from their
    // beginning: both stay inside what the caller vouches for.
    unsafe {
        std::arch::asm!(
            "vmovdqu ymm0, [rsi + {len} - 128]",
            "vmovdqu ymm1, [rsi + {len} - 96]",
            "vmovdqu ymm2, [rsi + {len} - 64]",
            "vmovdqu ymm3, [rsi + {len} - 32]",
            "vmovdqu [rdi + {len} - 128], ymm0",
            "vmovdqu [rdi + {len} - 96], ymm1",
            "vmovdqu [rdi + {len} - 64], ymm2",
            "vmovdqu [rdi + {len} - 32], ymm3",
            "dec {len}",
            "shr {len}, 7",
            "jz 3f",
            "2:",
            "vmovdqu ymm0, [rsi]",
            "vmovdqu ymm1, [rsi + 32]",
            "vmovdqu ymm2, [rsi + 64]",
            "vmovdqu ymm3, [rsi + 96]",
            "vmovdqu [rdi], ymm0",
            "vmovdqu [rdi + 32], ymm1",
            "vmovdqu [rdi + 64], ymm2",
            "vmovdqu [rdi + 96], ymm3",
            "add rsi, 128",
            "add rdi, 128",
            "dec {len}",
            "jnz 2b",
            "3:",
            "vzeroupper",
            len = inout(reg) len => _,
            inout("rdi") to => _,
            inout("rsi") from => _,
            out("ymm0") _, out("ymm1") _, out("ymm2") _, out("ymm3") _,
            options(nostack)
        );
    }
}

/// As [`copy_vector`] with blocks of 256 bytes.
///
/// # Safety
/// As for `copy`; AVX-512 exists and `len` is at least 256.
#[cfg(target_arch = "x86_64")]
unsafe fn copy_wide(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: the tail reads and writes the last 256 bytes of both ranges, the loop `(len - 1) / 256` blocks from their
    // beginning: both stay inside what the caller vouches for.
    unsafe {
        std::arch::asm!(
            "vmovdqu64 zmm16, [rsi + {len} - 256]",
            "vmovdqu64 zmm17, [rsi + {len} - 192]",
            "vmovdqu64 zmm18, [rsi + {len} - 128]",
            "vmovdqu64 zmm19, [rsi + {len} - 64]",
            "vmovdqu64 [rdi + {len} - 256], zmm16",
            "vmovdqu64 [rdi + {len} - 192], zmm17",
            "vmovdqu64 [rdi + {len} - 128], zmm18",
            "vmovdqu64 [rdi + {len} - 64], zmm19",
            "dec {len}",
            "shr {len}, 8",
            "jz 3f",
            "2:",
            "vmovdqu64 zmm16, [rsi]",
            "vmovdqu64 zmm17, [rsi + 64]",
            "vmovdqu64 zmm18, [rsi + 128]",
            "vmovdqu64 zmm19, [rsi + 192]",
            "vmovdqu64 [rdi], zmm16",
            "vmovdqu64 [rdi + 64], zmm17",
            "vmovdqu64 [rdi + 128], zmm18",
            "vmovdqu64 [rdi + 192], zmm19",
            "add rsi, 256",
            "add rdi, 256",
            "dec {len}",
            "jnz 2b",
            "3:",
            len = inout(reg) len => _,
            inout("rdi") to => _,
            inout("rsi") from => _,
            out("zmm16") _, out("zmm17") _, out("zmm18") _, out("zmm19") _,
            options(nostack)
        );
    }
}

/// # Safety
/// `to` is mapped writable, `from` readable, for `len` bytes, not overlapping.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
unsafe fn copy(to: *mut u8, from: *const u8, len: usize) {
    for i in 0..len {
        // SAFETY: inside the two ranges the caller vouches for; volatile because the other side may be changing them.
        unsafe { to.add(i).write_volatile(from.add(i).read_volatile()) }
    }
}

/// # Safety
/// As for `copy`; AVX2 exists, `to` is aligned to 64 bytes, `len` is a multiple of 128.
#[cfg(target_arch = "x86_64")]
unsafe fn copy_streaming(to: *mut u8, from: *const u8, len: usize) {
    if len == 0 {
        return;
    }
    // SAFETY: the loop touches `len / 128` blocks of both ranges; the fence orders the streaming stores before whatever is
    // stored next.
    unsafe {
        std::arch::asm!(
            "2:",
            "vmovdqu ymm0, [rsi]",
            "vmovdqu ymm1, [rsi + 32]",
            "vmovdqu ymm2, [rsi + 64]",
            "vmovdqu ymm3, [rsi + 96]",
            "vmovntdq [rdi], ymm0",
            "vmovntdq [rdi + 32], ymm1",
            "vmovntdq [rdi + 64], ymm2",
            "vmovntdq [rdi + 96], ymm3",
            "add rsi, 128",
            "add rdi, 128",
            "sub {len}, 128",
            "jnz 2b",
            "sfence",
            "vzeroupper",
            len = inout(reg) len => _,
            inout("rdi") to => _,
            inout("rsi") from => _,
            out("ymm0") _, out("ymm1") _, out("ymm2") _, out("ymm3") _,
            options(nostack)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_and_alignment_arrives_with_every_kernel_and_nothing_beside_it_changes() {
        let before = Kernel::chosen();
        for kernel in Kernel::ALL.into_iter().filter(|kernel| kernel.is_here()) {
            kernel.choose();
            every_length_arrives();
        }
        before.choose();
    }

    fn every_length_arrives() {
        let from: Vec<u8> = (0..5000usize).map(|i| (i * 31 + (i >> 8)) as u8).collect();
        let lengths = (0..700).chain([1023, 1024, 1025, 4095, 4096, 4097]);
        for len in lengths {
            for (a, b) in [(0, 0), (1, 0), (0, 7), (33, 64)] {
                let mut to = vec![0xEE; len + 200];
                for stores in [Stores::Ordinary, Stores::Streaming] {
                    to.fill(0xEE);
                    // SAFETY: both ranges lie inside their vectors.
                    unsafe { to_shared(to.as_mut_ptr().add(b), from.as_ptr().add(a), len, stores) };
                    assert!(to[b..b + len] == from[a..a + len], "{len} bytes from {a} to {b}, {stores:?}");
                    assert!(to[..b].iter().chain(&to[b + len..]).all(|byte| *byte == 0xEE), "{len} bytes overran");
                }
            }
        }
    }
}
