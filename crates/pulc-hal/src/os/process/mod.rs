//! Starting a program: one `clone` with the parent's memory (like vfork, so the cost does not grow with the parent), a pidfd
//! for the child, and everything set between clone and exec. Called by the keeper for ranks and by psid for keepers.
//!
//! Between clone and exec the child shares the parent's memory: it allocates nothing, takes no lock, calls only
//! async-signal-safe functions, and reports its failure by writing one struct on the parent's stack.
//! Source: clone(2), posix_spawn(3).

mod child;
mod fork;

#[cfg(any(test, feature = "conformance"))]
pub use fork::fork_beside_threads;
pub use fork::{Forked, fork_alone};

use child::{Plan, child_main};
use rustix::process::Pid;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// What to start and how. Borrowed parts are shared by all ranks of a keeper.
pub struct Start<'a> {
    /// Path of the program, already looked up.
    pub program: &'a CStr,
    pub argv: &'a [CString],
    /// Environment, `NAME=value`, as several pieces put one after the other.
    pub env: &'a [&'a [CString]],
    pub cwd: Option<&'a CStr>,
    pub umask: Option<u32>,
    pub limits: &'a [ResourceLimit],
    /// Cores that the process may use; empty = inherited.
    pub cores: &'a [u32],
    /// Gets only what nobody else wants (SCHED_IDLE), and gives way at once.
    pub lowly: bool,
    pub group: Group,
    /// Signal that the child gets when the *thread* that started it ends.
    pub parent_death_signal: Option<i32>,
    /// Standard input, output and error; `None` = inherited.
    pub stdio: [Option<BorrowedFd<'a>>; 3],
    /// Descriptors that the program finds at 3, 4, …; every other one is closed at exec.
    pub extra_fds: &'a [BorrowedFd<'a>],
    /// Directory of the cgroup (version 2) in which the child is born.
    pub cgroup: Option<BorrowedFd<'a>>,
    /// Whom it becomes; only root can say so. Neither it nor what it starts gains rights by executing something.
    pub user: Option<&'a User>,
}

/// Another user's identity for a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
    /// All its supplementary groups.
    pub groups: Vec<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Group {
    Inherited,
    /// Leader of a new process group.
    NewGroup,
    /// Leader of a new session, without a terminal.
    NewSession,
}

/// `RLIMIT_*` number with soft and hard limit (`u64::MAX` = infinity).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResourceLimit {
    pub resource: u32,
    pub soft: u64,
    pub hard: u64,
}

/// A child that has become the program. Dropping it neither kills nor reaps.
#[derive(Debug)]
pub struct Child {
    pub pid: Pid,
    pub pidfd: OwnedFd,
}

/// What could not be done on the way to the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum Step {
    Clone,
    ParentDied,
    Group,
    Descriptors,
    Limits,
    Affinity,
    Directory,
    Exec,
    Cgroup,
    User,
    Policy,
}

#[derive(Debug, thiserror::Error)]
#[error("{what}: {source}", what = self.step.what())]
pub struct StartError {
    pub step: Step,
    pub source: io::Error,
}

impl Step {
    /// In words.
    pub fn what(self) -> &'static str {
        match self {
            Step::Clone => "cannot create a process",
            Step::ParentDied => "the parent ended meanwhile",
            Step::Group => "cannot make a process group",
            Step::Descriptors => "cannot set up descriptors",
            Step::Limits => "cannot set resource limits",
            Step::Affinity => "cannot pin to the given cores",
            Step::Directory => "cannot enter the working directory",
            Step::Exec => "cannot execute the program",
            Step::Cgroup => "cannot enter its cgroup",
            Step::User => "cannot become the user",
            Step::Policy => "cannot be given the lowest weight",
        }
    }

    fn from_raw(raw: i32) -> Step {
        [
            Step::Clone,
            Step::ParentDied,
            Step::Group,
            Step::Descriptors,
            Step::Limits,
            Step::Affinity,
            Step::Directory,
            Step::Exec,
            Step::Cgroup,
            Step::User,
            Step::Policy,
        ]
        .into_iter()
        .find(|step| *step as i32 == raw)
        .unwrap_or(Step::Exec)
    }
}

/// Starts programs; keeps the small stack on which the child runs until exec.
pub struct Starter {
    stack: Box<[u128]>,
}

/// Enough for the handful of frames below [`child_main`].
const STACK_BYTES: usize = 32 << 10;

impl Default for Starter {
    fn default() -> Starter {
        Starter { stack: vec![0u128; STACK_BYTES / size_of::<u128>()].into_boxed_slice() }
    }
}

impl Starter {
    /// Starts a program. When this returns `Ok` the child has passed exec.
    ///
    /// # Errors
    /// The step that failed; nothing is left behind.
    ///
    /// # Blocking
    /// The calling thread until the child has executed the program (a fraction of a millisecond).
    pub fn start(&mut self, start: &Start<'_>) -> Result<Child, StartError> {
        let argv: Vec<*const c_char> = pointers(start.argv.iter());
        let envp: Vec<*const c_char> = pointers(start.env.iter().copied().flatten());
        // The child moves descriptors to 0.. in order, so no source may lie where an earlier one goes.
        let lowest = 3 + start.extra_fds.len() as c_int;
        let mut copies = Vec::new();
        let mut above = |fd: BorrowedFd<'_>| -> Result<c_int, StartError> {
            if fd.as_raw_fd() >= lowest {
                return Ok(fd.as_raw_fd());
            }
            let copy = rustix::io::fcntl_dupfd_cloexec(fd, lowest)
                .map_err(|error| StartError { step: Step::Descriptors, source: error.into() })?;
            copies.push(copy);
            Ok(copies[copies.len() - 1].as_raw_fd())
        };
        let mut stdio = [-1; 3];
        for (target, fd) in stdio.iter_mut().zip(&start.stdio) {
            if let Some(fd) = fd {
                *target = above(*fd)?;
            }
        }
        let extra = start.extra_fds.iter().map(|fd| above(*fd)).collect::<Result<Vec<_>, _>>()?;
        let mut plan = Plan {
            start,
            argv: argv.as_ptr(),
            envp: envp.as_ptr(),
            stdio,
            extra: &extra,
            affinity: (!start.cores.is_empty()).then(|| cpu_set(start.cores)),
            parent: std::process::id() as libc::pid_t,
            enter_cgroup: -1,
            failed_step: 0,
            failed_errno: 0,
        };
        let mask = SignalsBlocked::all();
        let result = self.clone_and_wait(&mut plan);
        drop(mask);
        result
    }

    fn clone_and_wait(&mut self, plan: &mut Plan<'_>) -> Result<Child, StartError> {
        let (pid, pidfd) = match plan.start.cgroup {
            None => self.clone_plain(plan),
            Some(cgroup) => match self.clone_into(plan, cgroup) {
                // No clone3 here (an old kernel, or a container's filter): the child goes into the group by itself.
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
                    plan.enter_cgroup = cgroup.as_raw_fd();
                    self.clone_plain(plan)
                }
                other => other,
            },
        }
        .map_err(|source| StartError { step: Step::Clone, source })?;
        // The child wrote these through shared memory before it ended; the kernel's vfork wake-up orders that.
        if plan.failed_errno != 0 {
            let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
            let source = io::Error::from_raw_os_error(plan.failed_errno);
            return Err(StartError { step: Step::from_raw(plan.failed_step), source });
        }
        Ok(Child { pid, pidfd })
    }

    fn clone_plain(&mut self, plan: &mut Plan<'_>) -> io::Result<(Pid, OwnedFd)> {
        let mut pidfd: c_int = -1;
        // SAFETY: one past the end of our own boxed stack, 16-byte aligned because its elements are u128.
        let stack_top = unsafe { self.stack.as_mut_ptr().add(self.stack.len()) };
        // SAFETY: CLONE_VFORK suspends this thread until the child has exec'd or ended, so the stack, the plan and all it
        // points to outlive the child's use of them and nobody else touches them meanwhile; the child runs only
        // `child_main`, which obeys the rules in this file's head; all signals are blocked, so no handler of ours runs in it.
        let pid = unsafe {
            libc::clone(
                child_main,
                stack_top.cast::<c_void>(),
                CLONE_FLAGS | libc::SIGCHLD,
                std::ptr::from_mut(plan).cast::<c_void>(),
                &raw mut pidfd,
            )
        };
        if pid < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(born(pid, pidfd))
    }

    /// Like `clone_plain`, with the child born inside a cgroup: moving it there later costs a grace period of the kernel.
    #[cfg(target_arch = "x86_64")]
    fn clone_into(&mut self, plan: &mut Plan<'_>, cgroup: BorrowedFd<'_>) -> io::Result<(Pid, OwnedFd)> {
        let mut pidfd: c_int = -1;
        let arguments = libc::clone_args {
            flags: (CLONE_FLAGS as u64) | CLONE_INTO_CGROUP,
            pidfd: (&raw mut pidfd) as u64,
            child_tid: 0,
            parent_tid: 0,
            exit_signal: libc::SIGCHLD as u64,
            stack: self.stack.as_mut_ptr() as u64,
            stack_size: size_of_val(&*self.stack) as u64,
            tls: 0,
            set_tid: 0,
            set_tid_size: 0,
            cgroup: cgroup.as_raw_fd() as u64,
        };
        let result: i64;
        // SAFETY: as in `clone_plain`. The child starts behind the system call on its own stack (16-byte aligned: a
        // multiple of 16 from an aligned start) with the same registers, calls `child_main` and never returns from it; the
        // parent continues at the label with only rax, rcx and r11 changed by the kernel.
        unsafe {
            std::arch::asm!(
                "syscall",
                "test rax, rax",
                "jnz 2f",
                "xor ebp, ebp",
                "mov rdi, r13",
                "call r12",
                "ud2",
                "2:",
                inlateout("rax") libc::SYS_clone3 => result,
                in("rdi") &raw const arguments,
                in("rsi") size_of::<libc::clone_args>(),
                in("r12") child_main as extern "C" fn(*mut c_void) -> c_int,
                in("r13") std::ptr::from_mut(plan),
                lateout("rcx") _,
                lateout("r11") _,
            );
        }
        if result < 0 {
            return Err(io::Error::from_raw_os_error(-result as i32));
        }
        Ok(born(result as i32, pidfd))
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn clone_into(&mut self, _: &mut Plan<'_>, _: BorrowedFd<'_>) -> io::Result<(Pid, OwnedFd)> {
        Err(io::Error::from_raw_os_error(libc::ENOSYS))
    }
}

const CLONE_FLAGS: c_int = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD;
#[cfg(target_arch = "x86_64")]
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

fn born(pid: libc::pid_t, pidfd: c_int) -> (Pid, OwnedFd) {
    // SAFETY: the kernel stored a descriptor that nobody else owns, because CLONE_PIDFD succeeded.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    (Pid::from_raw(pid).expect("clone returns a positive pid to the parent"), pidfd)
}

/// Takes over descriptor `number`, which whoever started this process has left open for it (see [`Start::extra_fds`]).
/// Call once, before anything else opens descriptors; it is closed at exec from now on.
///
/// # Errors
/// When it is not open.
pub fn inherited_fd(number: i32) -> io::Result<OwnedFd> {
    // SAFETY: fcntl only looks; a number that is not open is refused.
    if unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is open, and by this function's contract nobody else in this process knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

fn pointers<'a>(strings: impl Iterator<Item = &'a CString>) -> Vec<*const c_char> {
    strings.map(|string| string.as_ptr()).chain([std::ptr::null()]).collect()
}

/// A set with the given cores; those beyond what the type can hold are left out.
fn cpu_set(cores: &[u32]) -> libc::cpu_set_t {
    // SAFETY: cpu_set_t is an array of integers, for which zero bytes are valid.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for core in cores.iter().filter(|core| (**core as usize) < libc::CPU_SETSIZE as usize) {
        // SAFETY: `set` is a valid set of our own and the index is below CPU_SETSIZE.
        unsafe { libc::CPU_SET(*core as usize, &mut set) };
    }
    set
}

/// All signals blocked for the calling thread until dropped.
struct SignalsBlocked(libc::sigset_t);

impl SignalsBlocked {
    fn all() -> SignalsBlocked {
        // SAFETY: both sets are valid storage of our own; sigfillset and pthread_sigmask only write to them.
        unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
            SignalsBlocked(before)
        }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: restores the mask saved by `all`, a valid set.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests;
