//! Signals as something to read: a signalfd. Used by the keeper (SIGCHLD) and by `pulc run` (Ctrl-C and its like). The signals
//! are blocked in the calling thread and in threads started later, so call this before starting any.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

pub const SIGCHLD: i32 = libc::SIGCHLD;
pub const SIGHUP: i32 = libc::SIGHUP;
pub const SIGINT: i32 = libc::SIGINT;
pub const SIGKILL: i32 = libc::SIGKILL;
pub const SIGQUIT: i32 = libc::SIGQUIT;
pub const SIGTERM: i32 = libc::SIGTERM;

pub struct SignalFd(OwnedFd);

impl SignalFd {
    /// Blocks `signals` for this thread and makes them readable.
    pub fn new(signals: &[i32], nonblocking: bool) -> io::Result<SignalFd> {
        // SAFETY: a local set is filled with valid signal numbers (sigaddset refuses others), then only read; a
        // descriptor returned by signalfd is owned by nobody else.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for signal in signals {
                if libc::sigaddset(&mut set, *signal) < 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            let flags = libc::SFD_CLOEXEC | if nonblocking { libc::SFD_NONBLOCK } else { 0 };
            let fd = libc::signalfd(-1, &set, flags);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(SignalFd(OwnedFd::from_raw_fd(fd)))
        }
    }

    /// The number of the next signal; `WouldBlock` when there is none and the descriptor does not block.
    pub fn read(&self) -> io::Result<i32> {
        let mut info = [0u8; size_of::<libc::signalfd_siginfo>()];
        loop {
            match rustix::io::read(&self.0, &mut info) {
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
                // The number is the first field.
                Ok(_) => return Ok(u32::from_ne_bytes([info[0], info[1], info[2], info[3]]) as i32),
            }
        }
    }
}

impl AsFd for SignalFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Name of a signal for people, as strsignal(3) would say it but the same on every machine.
pub fn describe(signal: i32) -> &'static str {
    match signal {
        libc::SIGHUP => "SIGHUP, hang-up",
        libc::SIGINT => "SIGINT, interrupt",
        libc::SIGQUIT => "SIGQUIT, quit",
        libc::SIGILL => "SIGILL, illegal instruction",
        libc::SIGTRAP => "SIGTRAP, trace trap",
        libc::SIGABRT => "SIGABRT, aborted",
        libc::SIGBUS => "SIGBUS, bus error",
        libc::SIGFPE => "SIGFPE, arithmetic error",
        libc::SIGKILL => "SIGKILL, killed",
        libc::SIGUSR1 => "SIGUSR1",
        libc::SIGSEGV => "SIGSEGV, invalid memory access",
        libc::SIGUSR2 => "SIGUSR2",
        libc::SIGPIPE => "SIGPIPE, broken pipe",
        libc::SIGALRM => "SIGALRM, alarm clock",
        libc::SIGTERM => "SIGTERM, terminated",
        libc::SIGXCPU => "SIGXCPU, processor time limit exceeded",
        libc::SIGXFSZ => "SIGXFSZ, file size limit exceeded",
        libc::SIGSYS => "SIGSYS, forbidden system call",
        _ => "signal",
    }
}
