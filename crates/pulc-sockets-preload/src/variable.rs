//! Functions with variable arguments that use a connection behind our back: `execl` and its kin, `dprintf`. Nothing has to be known
//! of their arguments beyond the first: what they concern is left on the kernel, then the C library's function goes on with the very
//! same registers and stack. On other processors than x86-64 they are not followed.

use crate::promoted::leave;
use crate::table::{self, quietly};
use crate::{leaving, next};
use libc::{c_int, c_void, size_t};
use pulc_sockets::message::Reason;
use std::ffi::CStr;
use std::sync::atomic::AtomicPtr;

/// What takes the place of a function that this C library lacks.
extern "C" fn missing() -> c_int {
    next::set_errno(libc::ENOSYS);
    -1
}

fn original(at: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let found = next::find(at, name);
    if found.is_null() { missing as extern "C" fn() -> c_int as *mut c_void } else { found }
}

fn exec(_path: size_t) {
    leaving::before_exec();
}

fn print(fd: size_t) {
    let fd = fd as c_int;
    if table::is_followed(fd) {
        quietly(|| leave(fd, Reason::HandedOver));
    }
}

macro_rules! passes_on {
    ($($name:ident, $before:ident;)*) => { $(
        /// # Safety
        /// As the C library's.
        #[cfg(target_arch = "x86_64")]
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            extern "C" fn before(first: size_t) -> *mut c_void {
                static AT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
                const NAME: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => panic!("a name with a zero in it"),
                };
                $before(first);
                original(&AT, NAME)
            }
            // All registers that can hold arguments are kept over the call (System V ABI, 3.2.3 and 3.5.7).
            core::arch::naked_asm!(
                "push rbp",
                "mov rbp, rsp",
                "sub rsp, 192",
                "mov [rsp], rdi",
                "mov [rsp + 8], rsi",
                "mov [rsp + 16], rdx",
                "mov [rsp + 24], rcx",
                "mov [rsp + 32], r8",
                "mov [rsp + 40], r9",
                "mov [rsp + 48], rax",
                "movups [rsp + 64], xmm0",
                "movups [rsp + 80], xmm1",
                "movups [rsp + 96], xmm2",
                "movups [rsp + 112], xmm3",
                "movups [rsp + 128], xmm4",
                "movups [rsp + 144], xmm5",
                "movups [rsp + 160], xmm6",
                "movups [rsp + 176], xmm7",
                "call {before}",
                "mov r11, rax",
                "mov rdi, [rsp]",
                "mov rsi, [rsp + 8]",
                "mov rdx, [rsp + 16]",
                "mov rcx, [rsp + 24]",
                "mov r8, [rsp + 32]",
                "mov r9, [rsp + 40]",
                "mov rax, [rsp + 48]",
                "movups xmm0, [rsp + 64]",
                "movups xmm1, [rsp + 80]",
                "movups xmm2, [rsp + 96]",
                "movups xmm3, [rsp + 112]",
                "movups xmm4, [rsp + 128]",
                "movups xmm5, [rsp + 144]",
                "movups xmm6, [rsp + 160]",
                "movups xmm7, [rsp + 176]",
                "mov rsp, rbp",
                "pop rbp",
                "jmp r11",
                before = sym before,
            )
        }
    )* };
}

passes_on! {
    execl, exec;
    execlp, exec;
    execle, exec;
    dprintf, print;
    __dprintf_chk, print;
    __vdprintf_chk, print;
}
