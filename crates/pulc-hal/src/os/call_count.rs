//! Counts the system calls of one thread, so that a benchmark or a test can show that a way of messages has none. The thread gets a
//! seccomp filter that lets another thread of the process look at every call before it goes on; nothing is forbidden and no
//! rights are needed. Called by `pulc-bench`; must never be used by anything that is not about to end, since a filter stays for
//! the thread's life and each call becomes some ten times slower.

use crate::error::HalError;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

/// Numbers of system calls that are told apart; the last place takes all beyond.
const NUMBERS: usize = 512;

/// `include/uapi/linux/seccomp.h`: this filter's thread is looked at through a descriptor.
const FLAG_NEW_LISTENER: libc::c_ulong = 8;
/// Do what was asked.
const RESPONSE_CONTINUE: u32 = 1;
/// The filter, all of it: ask the one who looks.
const ASK: libc::sock_filter = libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 0x7fc0_0000 };
/// `SECCOMP_IOCTL_NOTIF_RECV` and `SECCOMP_IOCTL_NOTIF_SEND`, whose numbers hold the sizes of what they take.
const RECEIVE: libc::Ioctl = ioctl_number(0, size_of::<Notice>());
const RESPOND: libc::Ioctl = ioctl_number(1, size_of::<Response>());

const fn ioctl_number(number: u64, bytes: usize) -> libc::Ioctl {
    (3 << 30 | (bytes as u64) << 16 | (b'!' as u64) << 8 | number) as libc::Ioctl
}

/// `struct seccomp_notif`: a call that waits for an answer.
#[repr(C)]
#[derive(Clone, Copy)]
struct Notice {
    id: u64,
    pid: u32,
    flags: u32,
    number: i32,
    arch: u32,
    instruction_pointer: u64,
    arguments: [u64; 6],
}

/// `struct seccomp_notif_resp`.
#[repr(C)]
struct Response {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

const _: () = assert!(size_of::<Notice>() == 80 && size_of::<Response>() == 24);

/// The calls of one thread so far.
pub struct CallCount {
    counts: Arc<[AtomicU64; NUMBERS]>,
}

impl CallCount {
    /// Counts the calling thread's system calls from now until it ends, and those of threads and processes that it makes from now on.
    ///
    /// # Errors
    /// Where the system does not allow filters, or its kernel is older than 5.5.
    pub fn of_this_thread() -> Result<CallCount, HalError> {
        let counts: Arc<[AtomicU64; NUMBERS]> = Arc::new(std::array::from_fn(|_| AtomicU64::new(0)));
        // Told without a system call, which would wait for somebody who does not look yet.
        let descriptor = Arc::new(AtomicI32::new(WAITING));
        let (seen, given) = (Arc::clone(&counts), Arc::clone(&descriptor));
        let looking = std::thread::Builder::new().name("call-count".into()).spawn(move || look(&given, &seen));
        looking.map_err(HalError::system("start a thread that counts system calls"))?;
        let result = install();
        let fd = result.as_ref().map_or(GIVEN_UP, |fd| *fd);
        // Release: pairs with the acquire of `look`.
        descriptor.store(fd, Ordering::Release);
        result.map_err(HalError::system("look at system calls"))?;
        Ok(CallCount { counts })
    }

    /// All calls so far.
    pub fn total(&self) -> u64 {
        self.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// The calls that were made, by number, and how often.
    pub fn by_number(&self) -> Vec<(usize, u64)> {
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed)).enumerate();
        counts.filter(|(_, count)| *count > 0).collect()
    }
}

impl std::fmt::Debug for CallCount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CallCount of {} calls", self.total())
    }
}

const WAITING: i32 = -1;
const GIVEN_UP: i32 = -2;

/// Gives the calling thread its filter; the descriptor through which it is looked at.
fn install() -> io::Result<i32> {
    let mut filter = [ASK];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: takes numbers only; from now on this thread cannot gain rights by exec, which no benchmark needs.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `program` and the one instruction that it points to outlive the call, which copies them.
    let fd = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, FLAG_NEW_LISTENER, &raw const program)
    };
    if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(fd as i32) }
}

/// The thread that looks: lets every call go on and counts it. Ends with the threads that are looked at.
fn look(descriptor: &AtomicI32, counts: &[AtomicU64; NUMBERS]) {
    let fd = loop {
        // Acquire: pairs with the release of `of_this_thread`.
        match descriptor.load(Ordering::Acquire) {
            WAITING => std::thread::sleep(Duration::from_micros(50)),
            GIVEN_UP => return,
            // SAFETY: a descriptor that the kernel has just given to this process and that nobody else closes.
            fd => break unsafe { OwnedFd::from_raw_fd(fd) },
        }
    };
    loop {
        let mut notice = MaybeUninit::<Notice>::zeroed();
        // SAFETY: the kernel writes exactly this structure, whose size is part of the number; all zeros is what it demands.
        let received = unsafe { libc::ioctl(fd.as_raw_fd(), RECEIVE, notice.as_mut_ptr()) };
        if received != 0 {
            match io::Error::last_os_error().raw_os_error() {
                // Whoever called was killed meanwhile, or a signal came to this thread.
                Some(libc::ENOENT | libc::EINTR) if has_threads(&fd) => continue,
                _ => return,
            }
        }
        // SAFETY: plain numbers, all of them written.
        let notice = unsafe { notice.assume_init() };
        let number = usize::try_from(notice.number).unwrap_or(NUMBERS).min(NUMBERS - 1);
        counts[number].fetch_add(1, Ordering::Relaxed);
        let response = Response { id: notice.id, value: 0, error: 0, flags: RESPONSE_CONTINUE };
        // SAFETY: the kernel reads exactly this structure. A caller that is gone is no error that matters.
        unsafe { libc::ioctl(fd.as_raw_fd(), RESPOND, &raw const response) };
    }
}

/// Whether anybody is left to look at.
fn has_threads(fd: &OwnedFd) -> bool {
    let mut fds = [rustix::event::PollFd::new(fd, rustix::event::PollFlags::IN)];
    let polled = rustix::event::poll(&mut fds, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 }));
    polled.is_ok() && !fds[0].revents().contains(rustix::event::PollFlags::HUP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_the_watched_thread_are_counted_by_number_and_no_other_ones() {
        let watched = std::thread::spawn(|| {
            let count = match CallCount::of_this_thread() {
                Ok(count) => count,
                Err(error) => return eprintln!("SKIPPED calls_are_counted: {error}"),
            };
            let before = count.total();
            let mut sum = 0_u64;
            for word in 0..100_000_u64 {
                sum = std::hint::black_box(sum.wrapping_add(word));
            }
            assert_eq!(count.total(), before, "adding numbers made system calls");
            for _ in 0..5 {
                // SAFETY: asks for a number.
                unsafe { libc::syscall(libc::SYS_getppid) };
            }
            let of = |count: &CallCount| count.by_number().into_iter().find(|(n, _)| *n == libc::SYS_getppid as usize);
            assert_eq!(of(&count), Some((libc::SYS_getppid as usize, 5)));
            assert!(count.total() >= before + 5);
        });
        // SAFETY: asks for a number; this thread is not watched.
        unsafe { libc::syscall(libc::SYS_getppid) };
        watched.join().unwrap();
    }
}
