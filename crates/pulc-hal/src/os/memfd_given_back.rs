//! Memory that several processes have mapped, given back to the system in part. Source: madvise(2) on `MADV_REMOVE`.

use super::memfd::WriteMap;
use crate::HalError;

impl WriteMap {
    /// Gives the system back what lies in this range, whose pages are zeroes from then on, for all who have it mapped. Whole pages.
    ///
    /// # Errors
    /// When the system refuses, and nothing has changed then.
    pub fn give_back(&self, offset: usize, len: usize) -> Result<(), HalError> {
        let from = self.pointer(offset, len);
        // SAFETY: inside the mapping (checked); what is shared there is reached only through atomics and the copy routines, which may
        // find zeroes as they may find anything that another process writes.
        unsafe { rustix::mm::madvise(from.cast(), len, rustix::mm::Advice::LinuxRemove) }
            .map_err(HalError::system("give shared memory back"))
    }
}

#[cfg(test)]
mod tests {
    use crate::os::memfd::{create_common, map_common};
    use std::os::fd::AsFd as _;
    use std::sync::atomic::Ordering;

    #[test]
    fn memory_that_is_given_back_costs_nothing_and_is_zero_for_all() {
        let (a, fd) = create_common("test", 64 << 10).unwrap();
        let b = map_common(fd.as_fd(), 64 << 10).unwrap();
        a.copy_in(0, &[7; 64 << 10]);
        let blocks = || rustix::fs::fstat(&fd).unwrap().st_blocks * 512;
        assert_eq!(blocks(), 64 << 10);
        b.give_back(4096, 60 << 10).unwrap();
        assert_eq!(blocks(), 4096);
        assert_eq!([a.u32_at(4092), a.u32_at(4096)].map(|word| word.load(Ordering::Relaxed)), [0x0707_0707, 0]);
        a.u32_at(8192).store(5, Ordering::Relaxed);
        assert_eq!(b.u32_at(8192).load(Ordering::Relaxed), 5);
        assert!(b.give_back(1, 1).is_err(), "not a page");
    }
}
