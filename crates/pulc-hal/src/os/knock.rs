//! Descriptors by which threads of one process wake each other while they wait in poll: an eventfd that is told once, and a
//! timer. Used by the handler for threads that wait for the one on the doorbell, and for loops of the user's. Never passed to
//! another process: whoever holds an eventfd can make its writers block.

use crate::error::HalError;
use rustix::event::{EventfdFlags, eventfd};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Knocked at by others, emptied by its owner. However often it is told, it costs one system call until it is emptied.
#[derive(Debug)]
pub struct Knock {
    fd: OwnedFd,
    told: AtomicBool,
}

impl Knock {
    pub fn new() -> Result<Knock, HalError> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let fd = eventfd(0, flags).map_err(HalError::system("make an eventfd"))?;
        Ok(Knock { fd, told: AtomicBool::new(false) })
    }

    /// Makes the descriptor readable.
    pub fn tell(&self) {
        if !self.told.swap(true, Ordering::AcqRel) {
            // It can only fail when it is full, and then it is readable.
            let _ = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
        }
    }

    /// Makes it unreadable. What is told from now on makes it readable again.
    pub fn empty(&self) {
        let _ = rustix::io::read(&self.fd, &mut [0; 8]);
        // After the read: one that tells in between finds `told` set and its word lost, so the owner must look at everything
        // after this.
        self.told.store(false, Ordering::SeqCst);
    }
}

impl AsFd for Knock {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A descriptor that becomes readable when a time is over.
#[derive(Debug)]
pub struct Timer(OwnedFd);

impl Timer {
    pub fn new() -> Result<Timer, HalError> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let fd =
            rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags).map_err(HalError::system("make a timer"))?;
        Ok(Timer(fd))
    }

    /// Readable `after` so long, whatever it was set to before.
    pub fn set(&self, after: Duration) -> Result<(), HalError> {
        // Zero would stop it.
        let after = after.max(Duration::from_nanos(1));
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let value = Timespec { tv_sec: after.as_secs() as i64, tv_nsec: after.subsec_nanos().into() };
        let spec = Itimerspec { it_interval: zero, it_value: value };
        rustix::time::timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &spec)
            .map_err(HalError::system("set a timer"))?;
        Ok(())
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::watched::Watched;

    fn is_readable(fd: BorrowedFd<'_>) -> bool {
        let mut watched = Watched::default();
        watched.add(fd, true, false);
        watched.look().unwrap() == 1
    }

    #[test]
    fn a_knock_stays_until_it_is_emptied_and_can_be_told_again() {
        let knock = Knock::new().unwrap();
        assert!(!is_readable(knock.as_fd()));
        for _ in 0..2 {
            knock.tell();
            knock.tell();
            assert!(is_readable(knock.as_fd()));
            knock.empty();
            assert!(!is_readable(knock.as_fd()));
        }
    }

    #[test]
    fn a_timer_becomes_readable_when_its_time_is_over_and_not_before() {
        let timer = Timer::new().unwrap();
        assert!(!is_readable(timer.as_fd()));
        timer.set(Duration::from_secs(3600)).unwrap();
        assert!(!is_readable(timer.as_fd()));
        timer.set(Duration::ZERO).unwrap();
        while !is_readable(timer.as_fd()) {
            std::thread::yield_now();
        }
    }
}
