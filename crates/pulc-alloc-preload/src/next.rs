//! The allocator behind this one: the C library's, or another one that was preloaded. Looked up at the first call; what the look-up itself
//! allocates comes from a few pages of our own that are never given back. Called by the exported functions only.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

type Malloc = unsafe extern "C" fn(usize) -> *mut c_void;
type Free = unsafe extern "C" fn(*mut c_void);
type Calloc = unsafe extern "C" fn(usize, usize) -> *mut c_void;
type Realloc = unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void;
type Memalign = unsafe extern "C" fn(usize, usize) -> *mut c_void;
type UsableSize = unsafe extern "C" fn(*mut c_void) -> usize;

static MALLOC: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static FREE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static CALLOC: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static REALLOC: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static MEMALIGN: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static USABLE_SIZE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// 0: not looked up, 1: somebody is at it, 2: all are there.
static STATE: AtomicU32 = AtomicU32::new(0);

/// Whether the next allocator is known; looks it up at the first call.
#[inline]
fn is_ready() -> bool {
    // Acquire: pairs with the release of `look_up`.
    STATE.load(Ordering::Acquire) == 2 || look_up()
}

/// False for whoever asks while it is going on: the look-up itself, or another thread.
#[cold]
fn look_up() -> bool {
    if STATE.compare_exchange(0, 1, Ordering::Acquire, Ordering::Acquire).is_err() {
        return STATE.load(Ordering::Acquire) == 2;
    }
    let names: [(&CStr, &AtomicPtr<c_void>); 6] = [
        (c"malloc", &MALLOC),
        (c"free", &FREE),
        (c"calloc", &CALLOC),
        (c"realloc", &REALLOC),
        (c"memalign", &MEMALIGN),
        (c"malloc_usable_size", &USABLE_SIZE),
    ];
    for (name, place) in names {
        // SAFETY: a name that ends with zero; the pseudo-handle needs no opening.
        let function = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        if function.is_null() {
            // A process without an allocator behind this one cannot go on.
            std::process::abort();
        }
        place.store(function, Ordering::Relaxed);
    }
    // Release: pairs with the acquire of `is_ready`.
    STATE.store(2, Ordering::Release);
    true
}

/// The function in `place` as one of its type.
///
/// # Safety
/// `F` is the type of the function whose name `place` stands for, and `is_ready` has been true.
unsafe fn function<F: Copy>(place: &AtomicPtr<c_void>) -> F {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    let pointer = place.load(Ordering::Relaxed);
    // SAFETY: a function pointer is as long as a pointer (checked), and the caller names its type.
    unsafe { std::mem::transmute_copy(&pointer) }
}

pub fn malloc(bytes: usize) -> *mut c_void {
    if !is_ready() {
        return FIRST.take(bytes, FIRST_ALIGN);
    }
    // SAFETY: the C library's function of this name and type, which takes any number.
    unsafe { function::<Malloc>(&MALLOC)(bytes) }
}

pub fn calloc(count: usize, bytes: usize) -> *mut c_void {
    if !is_ready() {
        // Never used before, so zero.
        return count.checked_mul(bytes).map_or(std::ptr::null_mut(), |bytes| FIRST.take(bytes, FIRST_ALIGN));
    }
    // SAFETY: as in `malloc`.
    unsafe { function::<Calloc>(&CALLOC)(count, bytes) }
}

pub fn memalign(align: usize, bytes: usize) -> *mut c_void {
    if !is_ready() {
        return FIRST.take(bytes, align.max(FIRST_ALIGN));
    }
    // SAFETY: as in `malloc`.
    unsafe { function::<Memalign>(&MEMALIGN)(align, bytes) }
}

/// # Safety
/// `block` is null or was given out by one of the functions above and not given back yet.
pub unsafe fn free(block: *mut c_void) {
    if FIRST.has(block) || !is_ready() {
        return;
    }
    // SAFETY: as in `malloc`, and the caller's promise.
    unsafe { function::<Free>(&FREE)(block) }
}

/// # Safety
/// As for [`free`].
pub unsafe fn realloc(block: *mut c_void, bytes: usize) -> *mut c_void {
    if block.is_null() {
        return malloc(bytes);
    }
    if FIRST.has(block) || !is_ready() {
        let new = malloc(bytes);
        if !new.is_null() {
            // SAFETY: both are blocks of at least so many bytes, and no block overlaps another one.
            unsafe { std::ptr::copy_nonoverlapping(block.cast::<u8>(), new.cast(), bytes.min(FIRST.room_of(block))) };
        }
        return new;
    }
    // SAFETY: as in `malloc`, and the caller's promise.
    unsafe { function::<Realloc>(&REALLOC)(block, bytes) }
}

/// # Safety
/// As for [`free`].
pub unsafe fn usable_size(block: *mut c_void) -> usize {
    if FIRST.has(block) || !is_ready() {
        return FIRST.room_of(block);
    }
    // SAFETY: as in `malloc`, and the caller's promise.
    unsafe { function::<UsableSize>(&USABLE_SIZE)(block) }
}

const FIRST_BYTES: usize = 64 << 10;
const FIRST_ALIGN: usize = 16;

/// Memory for those who ask while the next allocator is looked up. Before each block stands its length.
struct First {
    bytes: UnsafeCell<[u8; FIRST_BYTES]>,
    used: AtomicUsize,
}

// SAFETY: every byte is given out at most once, by an atomic counter; lengths are written before a block is given out.
unsafe impl Sync for First {}

static FIRST: First = First { bytes: UnsafeCell::new([0; FIRST_BYTES]), used: AtomicUsize::new(0) };

impl First {
    fn base(&self) -> usize {
        self.bytes.get() as usize
    }

    fn has(&self, block: *mut c_void) -> bool {
        (block as usize).wrapping_sub(self.base()) < FIRST_BYTES
    }

    fn take(&self, bytes: usize, align: usize) -> *mut c_void {
        let Some(whole) = bytes.checked_add(2 * align.max(FIRST_ALIGN)).filter(|whole| *whole <= FIRST_BYTES) else {
            return std::ptr::null_mut();
        };
        let at = self.used.fetch_add(whole.next_multiple_of(FIRST_ALIGN), Ordering::Relaxed);
        if at + whole > FIRST_BYTES {
            return std::ptr::null_mut();
        }
        let block = (self.base() + at + size_of::<usize>()).next_multiple_of(align.max(FIRST_ALIGN));
        // SAFETY: the word before the block lies in what was taken just now and is aligned like a word.
        unsafe { ((block - size_of::<usize>()) as *mut usize).write(bytes) };
        block as *mut c_void
    }

    fn room_of(&self, block: *mut c_void) -> usize {
        if !self.has(block) {
            return 0;
        }
        // SAFETY: the block was given out by `take`, which wrote the word before it.
        unsafe { ((block as usize - size_of::<usize>()) as *const usize).read() }
    }
}

/// What the C functions report when they have nothing to give.
pub fn no_memory() -> *mut c_void {
    // SAFETY: this thread's own variable.
    unsafe { *libc::__errno_location() = libc::ENOMEM };
    std::ptr::null_mut()
}

pub const OK: c_int = 0;
