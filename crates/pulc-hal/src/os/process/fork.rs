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
