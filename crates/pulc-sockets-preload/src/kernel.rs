//! The kernel's connection beside a ring, by system calls. None of them sleeps, is a place where a thread may be cancelled, or goes
//! through a function that this library stands in front of.

use crate::table;
use libc::{c_int, c_long, c_void};
use pulc_hal::os::tcp_counts;
use pulc_sockets::Kernel;
use pulc_sockets::datagrams::Post;
use std::cell::Cell;
use std::io::IoSliceMut;
use std::os::fd::BorrowedFd;

/// A descriptor of a connection and what this end did to make it.
#[derive(Clone, Copy)]
pub struct Socket {
    pub fd: c_int,
    pub is_active: bool,
}

/// The result of a system call, or its error number.
pub fn result(returned: c_long) -> Result<usize, i32> {
    usize::try_from(returned).map_err(|_| crate::next::errno())
}

/// A descriptor for the length of a call that uses it.
pub fn borrowed<'a>(fd: c_int) -> BorrowedFd<'a> {
    // SAFETY: only followed descriptors come here, which are not negative; one that the program closes meanwhile makes a system call
    // fail, nothing else.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

impl Kernel for Socket {
    fn sent(&self) -> Result<u64, i32> {
        tcp_counts::sent(borrowed(self.fd), self.is_active)
    }

    fn taken(&self) -> Result<u64, i32> {
        tcp_counts::taken(borrowed(self.fd))
    }

    fn recv(&self, to: &mut [IoSliceMut<'_>], peek: bool) -> Result<usize, i32> {
        let flags = libc::MSG_DONTWAIT | if peek { libc::MSG_PEEK } else { 0 };
        // SAFETY: all zeroes is a valid header; `IoSliceMut` has the layout of `iovec`, and the kernel writes only where they point.
        unsafe {
            let mut header: libc::msghdr = std::mem::zeroed();
            header.msg_iov = to.as_mut_ptr().cast();
            header.msg_iovlen = to.len() as _;
            result(libc::syscall(libc::SYS_recvmsg, self.fd, &raw mut header, flags))
        }
    }

    fn ring(&self) -> Result<(), i32> {
        let bell = [1u8];
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: one readable byte, no address.
        let sent = unsafe {
            libc::syscall(libc::SYS_sendto, self.fd, bell.as_ptr(), 1usize, flags, std::ptr::null::<c_void>(), 0usize)
        };
        result(sent).map(drop)
    }

    fn acknowledge(&self) {
        set_option(self.fd, libc::IPPROTO_TCP, libc::TCP_QUICKACK, 1);
    }

    fn has_room(&self, bytes: usize) -> bool {
        // Twice, for what the kernel keeps beside the bytes; and what waits already is not much.
        let room = option(self.fd, libc::SOL_SOCKET, libc::SO_SNDBUF).unwrap_or(0) as usize;
        let waiting = tcp_counts::queued(borrowed(self.fd)).unwrap_or(u64::MAX) as usize;
        room / 4 > bytes && waiting <= bytes
    }

    fn me(&self) -> u32 {
        me()
    }

    fn cpu(&self) -> u32 {
        core()
    }

    fn is_alive(&self, thread: u32) -> bool {
        // SAFETY: signal 0 only asks.
        let asked = unsafe { libc::syscall(libc::SYS_tkill, thread, 0) };
        asked == 0 || crate::next::errno() != libc::ESRCH
    }
}

impl Post for Socket {
    fn look(&self, to: &mut [u8]) -> Result<usize, i32> {
        let flags = libc::MSG_DONTWAIT | libc::MSG_PEEK | libc::MSG_TRUNC;
        receive(self.fd, to, flags)
    }

    fn drop_first(&self) {
        // It was there a moment ago, and who takes has the lock.
        let _ = receive(self.fd, &mut [], libc::MSG_DONTWAIT);
    }
}

/// Without sleeping, from whomever.
fn receive(fd: c_int, to: &mut [u8], flags: c_int) -> Result<usize, i32> {
    let nobody = std::ptr::null_mut::<c_void>();
    // SAFETY: room for as many bytes as are said, and for no address.
    result(unsafe { libc::syscall(libc::SYS_recvfrom, fd, to.as_mut_ptr(), to.len(), flags, nobody, nobody) })
}

/// The core that this thread is on.
pub fn core() -> u32 {
    // SAFETY: takes nothing; where the system does not know, all are on one.
    u32::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0)
}

thread_local! {
    /// Of which process this was asked, and the thread's number there.
    static ME: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
}

/// The number of this thread.
pub fn me() -> u32 {
    let (owner, thread) = ME.get();
    if owner == table::owner() && owner != 0 {
        return thread;
    }
    // SAFETY: takes nothing and cannot fail.
    let thread = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
    ME.set((table::owner(), thread));
    thread
}

/// An option of a socket that is one number.
pub fn option(fd: c_int, level: c_int, name: c_int) -> Option<u64> {
    let mut value = [0u8; 8];
    let mut len = value.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `value`.
    let got = unsafe { libc::syscall(libc::SYS_getsockopt, fd, level, name, value.as_mut_ptr(), &raw mut len) };
    (got == 0).then(|| u64::from_ne_bytes(value))
}

/// Sets an option that is an int.
pub fn set_option(fd: c_int, level: c_int, name: c_int, value: c_int) {
    // SAFETY: the kernel reads one int.
    unsafe { libc::syscall(libc::SYS_setsockopt, fd, level, name, &raw const value, size_of::<c_int>()) };
}

/// What a set's kernel is told of a descriptor.
pub enum Change {
    To(libc::epoll_event),
    End,
}

/// Tells a set's kernel; false when it does not have the descriptor.
pub fn change(set: c_int, fd: c_int, change: Change) -> bool {
    let (what, mut event) = match change {
        Change::To(event) => (libc::EPOLL_CTL_MOD, event),
        Change::End => (libc::EPOLL_CTL_DEL, libc::epoll_event { events: 0, u64: 0 }),
    };
    // SAFETY: the kernel reads one event.
    unsafe { libc::syscall(libc::SYS_epoll_ctl, set, what, fd, &raw mut event) == 0 }
}

/// The descriptor's flags (`O_NONBLOCK`), or those of the descriptor itself (`FD_CLOEXEC`).
pub fn flags(fd: c_int, command: c_int) -> c_int {
    // SAFETY: asks only.
    unsafe { libc::syscall(libc::SYS_fcntl, fd, command, 0) as c_int }
}
