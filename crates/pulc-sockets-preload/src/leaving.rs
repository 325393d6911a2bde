//! The calls after which a connection is used by code that does not come through here: another image, another process, the C
//! library's own streams. What they concern is left on the kernel from then on.

use crate::promoted::leave;
use crate::table::{self, quietly};
use crate::{next, promoted};
use libc::{c_char, c_int, c_uint, c_void, iovec, pid_t, size_t, ssize_t};
use pulc_sockets::message::Reason;

/// Another image is about to take over what is not closed on exec.
fn before_spawn() {
    quietly(promoted::before_exec);
}

/// The same, instead of this one.
pub fn before_exec() {
    before_spawn();
    quietly(promoted::before_end_of_image);
}

macro_rules! executes {
    ($before:ident; $(fn $name:ident($($argument:ident: $kind:ty),*) -> $result:ty;)*) => { $(
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($($argument: $kind),*) -> $result {
            $before();
            // SAFETY: the caller's promise.
            unsafe { next::$name($($argument),*) }
        }
    )* };
}

executes! {
    before_exec;
    fn execve(path: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int;
    fn execv(path: *const c_char, argv: *const *const c_char) -> c_int;
    fn execvp(path: *const c_char, argv: *const *const c_char) -> c_int;
    fn execvpe(path: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int;
    fn fexecve(fd: c_int, argv: *const *const c_char, envp: *const *const c_char) -> c_int;
}

executes! {
    before_spawn;
    fn posix_spawn(pid: *mut pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void, argv: *const *mut c_char, envp: *const *mut c_char) -> c_int;
    fn posix_spawnp(pid: *mut pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void, argv: *const *mut c_char, envp: *const *mut c_char) -> c_int;
    fn system(command: *const c_char) -> c_int;
    fn popen(command: *const c_char, mode: *const c_char) -> *mut c_void;
}

macro_rules! hands_over {
    ($(fn $name:ident($fd:ident: c_int $(, $argument:ident: $kind:ty)*) -> $result:ty;)*) => { $(
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($fd: c_int $(, $argument: $kind)*) -> $result {
            if table::is_followed($fd) {
                quietly(|| leave($fd, Reason::HandedOver));
            }
            // SAFETY: the caller's promise.
            unsafe { next::$name($fd $(, $argument)*) }
        }
    )* };
}

hands_over! {
    fn fdopen(fd: c_int, mode: *const c_char) -> *mut c_void;
    fn vdprintf(fd: c_int, form: *const c_char, arguments: *mut c_void) -> c_int;
    fn vmsplice(fd: c_int, parts: *const iovec, count: size_t, flags: c_uint) -> ssize_t;
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn posix_spawn_file_actions_adddup2(actions: *mut c_void, fd: c_int, to: c_int) -> c_int {
    if table::is_followed(fd) {
        quietly(|| leave(fd, Reason::HandedOver));
    }
    // SAFETY: the caller's promise.
    unsafe { next::posix_spawn_file_actions_adddup2(actions, fd, to) }
}
