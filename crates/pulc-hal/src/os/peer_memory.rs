//! Reads the memory of another process of the same user by its address, where the system allows it (`process_vm_readv`). Called by the shm
//! device for peers that have proved that a number is theirs. Never writes to another process.

use crate::error::HalError;
use std::io;

/// Copies `to.len()` bytes from `address` of process `pid`, all of them or none that count.
///
/// # Errors
/// The process is gone, is another user's, may not be looked at, or has no such memory.
pub fn read(pid: i32, address: u64, to: &mut [u8]) -> Result<(), HalError> {
    let failed = HalError::system("read another process's memory");
    let mut done = 0;
    while done < to.len() {
        let part = &mut to[done..];
        let local = libc::iovec { iov_base: part.as_mut_ptr().cast(), iov_len: part.len() };
        let there = libc::iovec { iov_base: (address as usize).wrapping_add(done) as *mut _, iov_len: part.len() };
        // SAFETY: the kernel writes at most `part.len()` bytes to `part`, which is exclusive; the other address is the other
        // process's and is checked by the kernel.
        let read = unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const there, 1, 0) };
        match read {
            0 => return Err(failed(io::Error::from(io::ErrorKind::UnexpectedEof))),
            // The end of a mapping, or of the process, in the midst of it: the next turn tells.
            more if more > 0 => done += more as usize,
            _ => return Err(failed(io::Error::last_os_error())),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_a_process_is_read_and_what_is_not_there_is_an_error() {
        let bytes: Vec<u8> = (0..100_000_u32).map(|i| i as u8).collect();
        let mut copy = vec![0; bytes.len()];
        let own = std::process::id() as i32;
        if let Err(error) = read(own, bytes.as_ptr() as u64, &mut copy) {
            return eprintln!("SKIPPED memory_of_a_process_is_read: {error}");
        }
        assert!(copy == bytes);
        assert!(read(own, 8, &mut copy).is_err());
        assert!(read(own, u64::MAX - 5, &mut copy).is_err());
        assert!(read(i32::MAX, bytes.as_ptr() as u64, &mut copy).is_err());
    }
}
