#![doc = include_str!("../README.md")]
#![cfg(target_os = "linux")]

mod forks;
mod long;
mod next;

use std::ffi::{c_int, c_void};

/// Runs when the library is loaded, before the program and after the C library.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = {
    extern "C" fn start() {
        forks::watch();
        long::start();
    }
    start
};

const PAGE: usize = 4096;

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc(bytes: usize) -> *mut c_void {
    if long::is_long(bytes)
        && let Some((block, _)) = long::take(bytes, 1)
    {
        return block;
    }
    next::malloc(bytes)
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn calloc(count: usize, bytes: usize) -> *mut c_void {
    let Some(all) = count.checked_mul(bytes) else { return next::no_memory() };
    if long::is_long(all)
        && let Some((block, is_zero)) = long::take(all, 1)
    {
        if !is_zero {
            // SAFETY: the block has so many bytes and is this call's alone.
            unsafe { std::ptr::write_bytes(block.cast::<u8>(), 0, all) };
        }
        return block;
    }
    next::calloc(count, bytes)
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(block: *mut c_void) {
    if long::has(block) {
        long::give_back(block);
        return;
    }
    // SAFETY: not ours, so the next allocator's.
    unsafe { next::free(block) }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(block: *mut c_void, bytes: usize) -> *mut c_void {
    if block.is_null() {
        // SAFETY: the caller's promise.
        return unsafe { malloc(bytes) };
    }
    if long::has(block) {
        // SAFETY: one of our blocks.
        return unsafe { move_long(block, bytes) };
    }
    if long::is_long(bytes) {
        // SAFETY: not ours, so the next allocator's.
        let room = unsafe { next::usable_size(block) };
        // What is long enough already stays; what grows comes here.
        if room < bytes
            && let Some((new, _)) = long::take(bytes, 1)
        {
            // SAFETY: two blocks of at least `room` bytes; the old one is given back afterwards and nobody uses it any more.
            unsafe {
                std::ptr::copy_nonoverlapping(block.cast::<u8>(), new.cast(), room);
                next::free(block);
            }
            return new;
        }
    }
    // SAFETY: not ours, so the next allocator's.
    unsafe { next::realloc(block, bytes) }
}

/// Changes the length of one of our blocks.
///
/// # Safety
/// `block` is one of ours, and nobody uses it any more but for the result.
unsafe fn move_long(block: *mut c_void, bytes: usize) -> *mut c_void {
    let room = long::room_of(block);
    if bytes <= room && bytes >= room / 2 {
        return block;
    }
    if bytes == 0 {
        long::give_back(block);
        return std::ptr::null_mut();
    }
    // SAFETY: the caller's promise; `malloc` gives a block of that length or none.
    unsafe {
        let new = malloc(bytes);
        if new.is_null() {
            return if bytes <= room { block } else { new };
        }
        std::ptr::copy_nonoverlapping(block.cast::<u8>(), new.cast(), room.min(bytes));
        long::give_back(block);
        new
    }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reallocarray(block: *mut c_void, count: usize, bytes: usize) -> *mut c_void {
    match count.checked_mul(bytes) {
        // SAFETY: the caller's promise.
        Some(all) => unsafe { realloc(block, all) },
        None => next::no_memory(),
    }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memalign(align: usize, bytes: usize) -> *mut c_void {
    if long::is_long(bytes)
        && align.is_power_of_two()
        && let Some((block, _)) = long::take(bytes, align)
    {
        return block;
    }
    next::memalign(align, bytes)
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aligned_alloc(align: usize, bytes: usize) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { memalign(align, bytes) }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(to: *mut *mut c_void, align: usize, bytes: usize) -> c_int {
    if !align.is_power_of_two() || !align.is_multiple_of(size_of::<*mut c_void>()) {
        return libc::EINVAL;
    }
    // SAFETY: the caller's promise; its variable and this thread's error number are written, the latter as it was.
    unsafe {
        let before = *libc::__errno_location();
        let block = memalign(align, bytes);
        *libc::__errno_location() = before;
        if block.is_null() {
            return libc::ENOMEM;
        }
        to.write(block);
    }
    next::OK
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn valloc(bytes: usize) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { memalign(PAGE, bytes) }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvalloc(bytes: usize) -> *mut c_void {
    match bytes.checked_next_multiple_of(PAGE) {
        // SAFETY: the caller's promise.
        Some(bytes) => unsafe { memalign(PAGE, bytes) },
        None => next::no_memory(),
    }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(block: *mut c_void) -> usize {
    if block.is_null() {
        return 0;
    }
    if long::has(block) {
        return long::room_of(block);
    }
    // SAFETY: not ours, so the next allocator's.
    unsafe { next::usable_size(block) }
}
