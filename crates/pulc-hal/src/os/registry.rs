//! One page by which the libraries of one process find each other, whichever way they were loaded: two shared libraries opened
//! `RTLD_LOCAL` see none of each other's symbols, yet must share one engine. Called by doors when they attach.
//!
//! The page is a shared mapping with a name. Whoever looks for it reads /proc/self/maps, so it survives a program that
//! closes all descriptors; it is not inherited by `fork` (`MADV_DONTFORK`) and ends with `exec`: it can never name another
//! process's addresses. Two threads that look and make it at the same time are kept apart by the dynamic loader's own lock,
//! which `dl_iterate_phdr` holds while it calls back: the one lock that all libraries of a process share.
//!
//! ```text
//!  0   u64 magic     8  u32 layout    12 u32 pid    16  32 entries: { u32 kind, u32 version, u64 address }
//! ```
//! An entry's address is written last, and the page's magic after everything else of its head. An address is that of a table that the
//! caller knows how to read; this file only carries numbers.

use crate::error::HalError;
use crate::sync::Words;
use rustix::fs::MemfdFlags;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::ffi::c_void;
use std::os::raw::c_int;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

const NAME: &str = "pulc-registry";
const MAGIC: u64 = u64::from_le_bytes(*b"PULCREG\x01");
const LAYOUT: u32 = 1;
const BYTES: usize = 4096;
const ENTRIES: usize = 32;
/// In words of 64 bits: the head, then the entries.
const HEAD_WORDS: usize = 2;
const ENTRY_WORDS: usize = 2;

const _: () = assert!((HEAD_WORDS + ENTRIES * ENTRY_WORDS) * 8 <= BYTES);

/// The registry of this process, held under the loader's lock.
pub struct Registry {
    page: NonNull<u8>,
}

/// What one library has announced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Announced {
    pub kind: u32,
    pub version: u32,
    pub address: usize,
}

/// Calls `visit` with this process's registry, made now if there is none. No other thread of the process is in here
/// meanwhile, not even through another copy of this code. `visit` must not load or unload libraries.
///
/// # Errors
/// When /proc cannot be read or the page cannot be made.
pub fn with<R>(visit: impl FnOnce(&Registry) -> R) -> Result<R, HalError> {
    struct Call<F, R> {
        visit: Option<F>,
        result: Option<Result<R, HalError>>,
    }
    extern "C" fn under_lock<F: FnOnce(&Registry) -> R, R>(
        _info: *mut libc::dl_phdr_info,
        _size: usize,
        data: *mut c_void,
    ) -> c_int {
        // SAFETY: `data` is the `Call` on the stack of `with`, which waits for us and touches it only afterwards.
        let call = unsafe { &mut *data.cast::<Call<F, R>>() };
        if let Some(visit) = call.visit.take() {
            // A panic must not pass through the loader; it goes on as an error.
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let registry = Registry::find_or_make()?;
                Ok(visit(&registry))
            }));
            call.result = result.ok();
        }
        // One object is enough.
        1
    }
    fn start<F: FnOnce(&Registry) -> R, R>(call: &mut Call<F, R>) {
        // SAFETY: the callback has the signature the loader expects, does not unwind, and gets back its own argument.
        unsafe { libc::dl_iterate_phdr(Some(under_lock::<F, R>), std::ptr::from_mut(call).cast()) };
    }
    let mut call = Call { visit: Some(visit), result: None };
    start(&mut call);
    call.result.unwrap_or_else(|| {
        let source = std::io::Error::other("the registry of this process failed");
        Err(HalError::System { doing: "find the engine of this process", source })
    })
}

impl Registry {
    /// The first that was announced of this kind.
    pub fn first(&self, kind: u32) -> Option<Announced> {
        (0..ENTRIES).filter_map(|at| entry(self, at)).find(|announced| announced.kind == kind)
    }

    /// Announces a table that stays where it is until the process ends. False when the page is full.
    pub fn announce(&self, announced: Announced) -> bool {
        let Some(free) = (0..ENTRIES).find(|at| entry(self, *at).is_none()) else { return false };
        fill(self, free, announced);
        true
    }

    fn find_or_make() -> Result<Registry, HalError> {
        let maps = std::fs::read_to_string("/proc/self/maps").map_err(HalError::system("read /proc/self/maps"))?;
        let named = maps.lines().filter(|line| line.contains(NAME)).filter_map(page_of_line);
        for page in named {
            let registry = Registry { page };
            if is_of(&registry, std::process::id()) {
                return Ok(registry);
            }
        }
        Registry::make()
    }

    fn make() -> Result<Registry, HalError> {
        let fd = rustix::fs::memfd_create(NAME, MemfdFlags::CLOEXEC).map_err(HalError::system("make the registry"))?;
        rustix::fs::ftruncate(&fd, BYTES as u64).map_err(HalError::system("size the registry"))?;
        // SAFETY: a new mapping at an address the kernel chooses; nothing else knows it yet.
        let page = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), BYTES, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &fd, 0)
        };
        let page = page.map_err(HalError::system("map the registry"))?;
        // SAFETY: advises on exactly the mapping made above.
        let advised = unsafe { rustix::mm::madvise(page, BYTES, Advice::LinuxDontFork) };
        advised.map_err(HalError::system("keep the registry from forks"))?;
        let page = NonNull::new(page.cast()).expect("a successful mmap returns an address");
        let registry = Registry { page };
        make_of(&registry, std::process::id());
        Ok(registry)
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at < BYTES / 8, "word {at} lies outside the registry");
        // SAFETY: inside the page (checked above), aligned, mapped read-write until the process ends, and only ever accessed
        // through atomics.
        unsafe { &*self.page.as_ptr().cast::<AtomicU64>().add(at) }
    }
}

impl Words for Registry {
    fn load(&self, at: usize, order: Ordering) -> u64 {
        self.word(at).load(order)
    }

    fn store(&self, at: usize, word: u64, order: Ordering) {
        self.word(at).store(word, order);
    }
}

/// Two halves of a word, the one at the lower address first.
const fn both(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

/// Makes a fresh page the registry of a process.
pub(crate) fn make_of(page: &impl Words, pid: u32) {
    page.store(1, both(LAYOUT, pid), Ordering::Relaxed);
    // Release: pairs with the acquire of `is_of`; whoever sees the magic sees the rest.
    page.store(0, MAGIC, Ordering::Release);
}

pub(crate) fn is_of(page: &impl Words, pid: u32) -> bool {
    page.load(0, Ordering::Acquire) == MAGIC && page.load(1, Ordering::Relaxed) == both(LAYOUT, pid)
}

/// Fills a free entry.
pub(crate) fn fill(page: &impl Words, at: usize, announced: Announced) {
    let at = HEAD_WORDS + at * ENTRY_WORDS;
    page.store(at, both(announced.kind, announced.version), Ordering::Relaxed);
    // Release: pairs with the acquire of `entry`.
    page.store(at + 1, announced.address as u64, Ordering::Release);
}

/// What stands in an entry, if somebody has filled it.
pub(crate) fn entry(page: &impl Words, at: usize) -> Option<Announced> {
    let at = HEAD_WORDS + at * ENTRY_WORDS;
    // Acquire: pairs with the release of `fill`.
    let address = page.load(at + 1, Ordering::Acquire) as usize;
    let which = page.load(at, Ordering::Relaxed);
    (address != 0).then_some(Announced { kind: which as u32, version: (which >> 32) as u32, address })
}

/// The address in a line of /proc/self/maps, if it maps a whole readable and writable page of that memfd.
fn page_of_line(line: &str) -> Option<NonNull<u8>> {
    let mut words = line.split_ascii_whitespace();
    let (begin, end) = words.next()?.split_once('-')?;
    let begin = usize::from_str_radix(begin, 16).ok()?;
    let end = usize::from_str_radix(end, 16).ok()?;
    let right = words.next()?.starts_with("rw-s") && end - begin == BYTES;
    let name = words.nth(3)?;
    (right && name.strip_prefix("/memfd:")? == NAME).then(|| NonNull::new(begin as *mut u8)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_announces_another_finds_and_only_lines_of_the_registry_count() {
        let first = Announced { kind: 0x7e57, version: 3, address: 0x1000 };
        assert_eq!(with(|registry| registry.first(0x7e57)).unwrap(), None);
        assert!(with(|registry| registry.announce(first)).unwrap());
        assert!(with(|registry| registry.announce(Announced { version: 4, ..first })).unwrap());
        assert_eq!(with(|registry| registry.first(0x7e57)).unwrap(), Some(first));
        let page = |line| page_of_line(line).map(|page| page.as_ptr() as usize);
        assert_eq!(page("7f1000-7f2000 rw-s 00000000 00:01 5 /memfd:pulc-registry (deleted)"), Some(0x7f_1000));
        assert_eq!(page("7f1000-7f3000 rw-s 00000000 00:01 5 /memfd:pulc-registry (deleted)"), None);
        assert_eq!(page("7f1000-7f2000 r--s 00000000 00:01 5 /memfd:pulc-registry (deleted)"), None);
        assert_eq!(page("7f1000-7f2000 rw-s 00000000 00:01 5 /tmp/pulc-registry"), None);
    }

    #[test]
    fn threads_that_look_at_the_same_time_make_one_registry() {
        let pages: Vec<usize> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..8).map(|_| scope.spawn(|| with(|registry| registry.page.as_ptr() as usize).unwrap())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(pages.iter().all(|page| *page == pages[0]), "{pages:x?}");
    }

    #[test]
    fn a_panic_inside_is_an_error_outside() {
        let result: Result<(), HalError> = with(|_| panic!("on purpose"));
        assert!(result.is_err());
        assert!(with(|_| ()).is_ok());
    }
}
