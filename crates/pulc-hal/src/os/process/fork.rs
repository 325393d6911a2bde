//! A copy of this process: `fork`, for processes that have one thread only. Called by the keeper's program when it splits
//! into guardian and keeper. Never to be used where another thread may hold a lock: it refuses.
//! Source: fork(2).

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io;

use super::Child;

/// Who the caller is after [`fork_alone`].
#[derive(Debug)]
pub enum Forked {
    /// Parent of this child.
    Parent(Child),
    /// The child.
    Child,
}

/// Splits this process in two. Both go on behind the call with the same memory contents and the same descriptors.
///
/// # Errors
/// When this process has more than one thread, or the system gives no process or descriptor.
pub fn fork_alone() -> io::Result<Forked> {
    let threads = std::fs::read_dir("/proc/self/task")?.count();
    if threads != 1 {
        return Err(io::Error::other(format!("a process with {threads} threads cannot be split; it may have one")));
    }
    // SAFETY: this is the process's only thread (checked above; nobody else could start one), so no lock is held by another
    // one and the child's copy of the memory is as whole as ours.
    let pid = unsafe { libc::fork() };
    match pid {
        0 => Ok(Forked::Child),
        pid if pid < 0 => Err(io::Error::last_os_error()),
        pid => {
            let pid = Pid::from_raw(pid).expect("fork returns a positive pid to the parent");
            // Our unreaped child: the number is its own.
            match pidfd_open(pid, PidfdFlags::empty()) {
                Ok(pidfd) => Ok(Forked::Parent(Child { pid, pidfd })),
                Err(error) => {
                    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                    let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
                    Err(error.into())
                }
            }
        }
    }
}

/// Splits this process although it has threads, as programs do; the child runs `child`, then everything that runs at `exit`,
/// with that status. For tests of what survives a fork. How the child ended: its status, or minus the signal that killed it (it
/// kills itself when it takes longer than half a minute).
///
/// # Errors
/// When the system gives no process.
#[cfg(any(test, feature = "conformance"))]
pub fn fork_beside_threads(child: fn() -> i32) -> io::Result<i32> {
    const PATIENCE_S: u32 = 30;
    // SAFETY: the child calls one function of the test's, which bears that locks of other threads may be held: that is what
    // is tested. The C library makes its own memory allocator usable in the child.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: sets a timer of the child's own.
        unsafe { libc::alarm(PATIENCE_S) };
        std::process::exit(child());
    }
    let pid = Pid::from_raw(pid).ok_or_else(io::Error::last_os_error)?;
    let status = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty())?;
    let status = status.map(|(_, status)| (status.exit_status(), status.terminating_signal()));
    Ok(match status {
        Some((Some(code), _)) => code,
        Some((None, Some(signal))) => -signal,
        _ => i32::MIN,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_several_threads_is_not_split() {
        // The test harness itself has several.
        let error = std::thread::spawn(|| fork_alone().unwrap_err()).join().unwrap();
        assert!(error.to_string().contains("threads cannot be split"), "{error}");
    }
}
