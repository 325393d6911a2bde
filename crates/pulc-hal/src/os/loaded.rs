//! Libraries that this process has loaded, by the name that the loader knows them as. Called by doors that must know of each other.
//! Never loads anything, and runs no code of a library.

use std::ffi::CStr;
use std::ptr::NonNull;

/// Where a name lies that a loaded library exports; `None` where the library is not there or does not have it. Found whichever way the
/// library was loaded, also `RTLD_LOCAL`.
pub fn symbol(library: &CStr, name: &CStr) -> Option<usize> {
    // SAFETY: both texts end with a zero byte and outlive the calls; with RTLD_NOLOAD nothing is loaded and no constructor runs.
    let handle = NonNull::new(unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) })?;
    // SAFETY: the handle was given out just now.
    let found = unsafe { libc::dlsym(handle.as_ptr(), name.as_ptr()) };
    // SAFETY: as above; it was loaded before, so this only gives back our count of it.
    unsafe { libc::dlclose(handle.as_ptr()) };
    NonNull::new(found).map(|found| found.addr().get())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_loaded_libraries_only() {
        assert!(symbol(c"libc.so.6", c"getpid").is_some());
        assert_eq!(symbol(c"libc.so.6", c"no_such_function_anywhere"), None);
        assert_eq!(symbol(c"libpulc-that-is-not-there.so.9", c"getpid"), None);
    }
}
