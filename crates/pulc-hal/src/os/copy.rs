//! Copies between private memory and memory that another process may be changing. Called by the maps of `os::memfd` only.
//!
//! An ordinary `memcpy` of bytes that change under it is undefined behaviour, and volatile or atomic loops are not
//! vectorised by the compiler: so the loop is assembly, of which the compiler knows nothing but that it reads and writes
//! memory. What arrives may be any mixture of old and new bytes; it is never trusted.

/// Copies out of shared memory.
///
/// # Safety
/// `to` is valid for writes and private, `from` is mapped readable, both for `len` bytes.
#[inline(always)]
pub(crate) unsafe fn from_shared(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: as the caller promises.
    unsafe { copy(to, from, len) }
}

/// Copies into shared memory.
///
/// # Safety
/// `to` is mapped writable, `from` is valid for reads and private, both for `len` bytes.
#[inline(always)]
pub(crate) unsafe fn to_shared(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: as the caller promises.
    unsafe { copy(to, from, len) }
}

/// # Safety
/// `to` is mapped writable, `from` readable, for `len` bytes, not overlapping.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn copy(to: *mut u8, from: *const u8, len: usize) {
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
