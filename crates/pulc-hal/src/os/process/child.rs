//! What the child does between clone and exec, with the parent's memory under its feet: it allocates nothing, takes no lock,
//! calls only async-signal-safe functions, and writes nothing but the two fields that tell its failure. Called by nobody
//! but the clone in `process`.

use super::{Group, Start, Step, User};
use std::ffi::{c_char, c_int, c_void};

/// Everything the child reads and the one thing it writes.
pub(super) struct Plan<'a> {
    pub(super) start: &'a Start<'a>,
    pub(super) argv: *const *const c_char,
    pub(super) envp: *const *const c_char,
    pub(super) stdio: [c_int; 3],
    pub(super) extra: &'a [c_int],
    pub(super) affinity: Option<libc::cpu_set_t>,
    pub(super) parent: libc::pid_t,
    /// Cgroup directory that the child has to enter by itself, or -1.
    pub(super) enter_cgroup: c_int,
    pub(super) failed_step: i32,
    pub(super) failed_errno: i32,
}

/// Where the child begins. Never returns.
pub(super) extern "C" fn child_main(argument: *mut c_void) -> c_int {
    // SAFETY: `clone_and_wait` passes its own plan, which lives until we exec or end, and is suspended meanwhile.
    let plan = unsafe { &mut *argument.cast::<Plan<'_>>() };
    let step = prepare_child(plan).err().unwrap_or_else(|| {
        // SAFETY: program, argv and envp are NUL-terminated strings and NULL-terminated arrays owned by the parent.
        unsafe { libc::execve(plan.start.program.as_ptr(), plan.argv, plan.envp) };
        Step::Exec
    });
    // SAFETY: reads this thread's errno.
    plan.failed_errno = unsafe { *libc::__errno_location() }.max(1);
    plan.failed_step = step as i32;
    // SAFETY: ends the child without running anything of the parent's.
    unsafe { libc::_exit(127) }
}

/// Turns the fresh child into what the program shall find. Leaves errno of the failed step.
fn prepare_child(plan: &Plan<'_>) -> Result<(), Step> {
    let start = plan.start;
    let check = |result: c_int, step: Step| if result < 0 { Err(step) } else { Ok(()) };
    // SAFETY (all blocks below): plain system calls on values and strings that the suspended parent owns; each is
    // async-signal-safe; descriptors, directory, umask, limits and signal actions are the child's own (no CLONE_FILES,
    // CLONE_FS, CLONE_SIGHAND, CLONE_THREAD).
    if start.user.is_none() {
        tie_to_parent(plan)?;
    }
    if plan.enter_cgroup >= 0 {
        // SAFETY: see above.
        let written = unsafe {
            let file = libc::openat(plan.enter_cgroup, c"cgroup.procs".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
            libc::write(file, c"0".as_ptr().cast(), 1)
        };
        check(written as c_int, Step::Cgroup)?;
    }
    // SAFETY: see above.
    unsafe {
        match start.group {
            Group::Inherited => {}
            Group::NewGroup => check(libc::setpgid(0, 0), Step::Group)?,
            Group::NewSession => check(libc::setsid(), Step::Group)?,
        }
    }
    for (target, fd) in (0..).zip(plan.stdio.iter().chain(plan.extra)) {
        if *fd >= 0 {
            // SAFETY: see above; the source lies above every target.
            check(unsafe { libc::dup2(*fd, target) }, Step::Descriptors)?;
        }
    }
    let first_closed = 3 + plan.extra.len() as libc::c_uint;
    let cloexec = libc::CLOSE_RANGE_CLOEXEC as libc::c_uint;
    // SAFETY: see above.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, first_closed, libc::c_uint::MAX, cloexec) };
    check(closed as c_int, Step::Descriptors)?;
    for limit in start.limits {
        let value = libc::rlimit { rlim_cur: limit.soft, rlim_max: limit.hard };
        // SAFETY: see above.
        check(unsafe { libc::setrlimit(limit.resource as _, &value) }, Step::Limits)?;
    }
    if let Some(mask) = start.umask {
        // SAFETY: see above; umask cannot fail.
        unsafe { libc::umask(mask as libc::mode_t) };
    }
    if start.lowly {
        check(crate::os::policy::lower(), Step::Policy)?;
    }
    if let Some(set) = &plan.affinity {
        // SAFETY: see above.
        check(unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), set) }, Step::Affinity)?;
    }
    if let Some(user) = start.user {
        become_user(user)?;
        // The kernel forgets the tie when a process becomes somebody else.
        tie_to_parent(plan)?;
    }
    if let Some(cwd) = start.cwd {
        // SAFETY: see above.
        check(unsafe { libc::chdir(cwd.as_ptr()) }, Step::Directory)?;
    }
    reset_signals();
    Ok(())
}

/// The signal that tells of the parent's end, which must not have come before.
fn tie_to_parent(plan: &Plan<'_>) -> Result<(), Step> {
    let Some(signal) = plan.start.parent_death_signal else { return Ok(()) };
    // SAFETY: as in `prepare_child`.
    unsafe {
        if libc::prctl(libc::PR_SET_PDEATHSIG, signal, 0, 0, 0) < 0 {
            return Err(Step::ParentDied);
        }
        if libc::getppid() != plan.parent {
            *libc::__errno_location() = libc::ESRCH;
            return Err(Step::ParentDied);
        }
    }
    Ok(())
}

/// Groups first, since they can't be changed any more by who is not root, and the user last. By the bare system calls: the C library's
/// functions would change all threads of the parent, whose memory this is.
fn become_user(user: &User) -> Result<(), Step> {
    let (uid, gid) = (user.uid as libc::c_long, user.gid as libc::c_long);
    // SAFETY: as in `prepare_child`; the list of groups is the parent's and lives as long as the plan.
    unsafe {
        let done = libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::syscall(libc::SYS_setgroups, user.groups.len(), user.groups.as_ptr()) == 0
            && libc::syscall(libc::SYS_setresgid, gid, gid, gid) == 0
            && libc::syscall(libc::SYS_setresuid, uid, uid, uid) == 0;
        if done { Ok(()) } else { Err(Step::User) }
    }
}

/// Default action for what Rust's start-up code ignores, and nothing blocked.
fn reset_signals() {
    // SAFETY: changes only the child's own actions and mask; the set is a valid local.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
    }
}
