//! What the machine has and where this thread runs: cores, caches, pinning. Called by the waiting ladder, the launcher's
//! placement and the shm device; never decides anything.

use crate::error::HalError;
use rustix::thread::CpuSet;

/// Sizes in bytes, of the caches of core 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caches {
    pub l2_bytes: u64,
    pub l3_bytes: u64,
}

/// Used where sysfs tells nothing (containers may hide it).
const DEFAULT_CACHES: Caches = Caches { l2_bytes: 1 << 20, l3_bytes: 16 << 20 };

/// The cores this thread may run on, ascending.
pub fn allowed_cores() -> Result<Vec<u32>, HalError> {
    let set = rustix::thread::sched_getaffinity(None).map_err(HalError::system("sched_getaffinity"))?;
    Ok((0..CpuSet::MAX_CPU as u32).filter(|&core| set.is_set(core as usize)).collect())
}

/// Lets this thread run on these cores only.
pub fn pin_to(cores: &[u32]) -> Result<(), HalError> {
    rustix::thread::sched_setaffinity(None, &core_set(cores)?).map_err(HalError::system("sched_setaffinity"))
}

/// Lets another process (its main thread) run on these cores only.
pub fn pin_process_to(pid: i32, cores: &[u32]) -> Result<(), HalError> {
    rustix::thread::sched_setaffinity(rustix::process::Pid::from_raw(pid), &core_set(cores)?)
        .map_err(HalError::system("sched_setaffinity"))
}

/// The core this thread runs on at this moment (no system call). From the C library, which asks the kernel where there is no
/// vdso: under valgrind, for instance.
pub fn current_core() -> u32 {
    // SAFETY: takes nothing and touches no memory of ours.
    let core = unsafe { libc::sched_getcpu() };
    u32::try_from(core).unwrap_or(0)
}

/// Gives the core away to whoever else is ready on it.
pub fn yield_now() {
    rustix::thread::sched_yield();
}

/// Tells the core that this is a spinning loop.
#[inline(always)]
pub fn pause() {
    std::hint::spin_loop();
}

/// A number that no other living thread of this process has, and never 0.
#[inline(always)]
pub fn this_thread() -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        let pointer: usize;
        // SAFETY: reads the thread control block's pointer to itself, which the ABI puts at offset 0 of the segment; a plain
        // load of this thread's own memory.
        unsafe {
            std::arch::asm!("mov {}, fs:0", out(reg) pointer, options(pure, readonly, nostack, preserves_flags));
        }
        pointer
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        thread_local!(static HERE: u8 = const { 0 });
        HERE.with(|here| std::ptr::from_ref(here) as usize)
    }
}

/// A counter that runs steadily, in whatever unit: for comparing short times with each other. Costs about 10 ns.
#[inline(always)]
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reading the time-stamp counter touches no memory; every x86-64 processor has it.
    return unsafe { std::arch::x86_64::_rdtsc() };
    #[cfg(not(target_arch = "x86_64"))]
    pulc_base::clock::now().0
}

/// What the processor calls itself.
pub fn model() -> String {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::__cpuid;
        const NAME: [u32; 3] = [0x8000_0002, 0x8000_0003, 0x8000_0004];
        let highest = __cpuid(0x8000_0000).eax;
        if highest >= NAME[2] {
            let words = NAME.iter().flat_map(|leaf| {
                let found = __cpuid(*leaf);
                [found.eax, found.ebx, found.ecx, found.edx]
            });
            let bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).take_while(|byte| *byte != 0).collect();
            return String::from_utf8_lossy(&bytes).trim().to_owned();
        }
    }
    std::env::consts::ARCH.to_owned()
}

/// Cache sizes from sysfs, or a safe guess.
pub fn caches() -> Caches {
    let level = |wanted: &str| {
        (0..8).find_map(|index| {
            let folder = format!("/sys/devices/system/cpu/cpu0/cache/index{index}");
            let read = |name: &str| std::fs::read_to_string(format!("{folder}/{name}")).ok();
            if read("level")?.trim() != wanted || read("type")?.trim() == "Instruction" {
                return None;
            }
            parse_size(read("size")?.trim())
        })
    };
    Caches {
        l2_bytes: level("2").unwrap_or(DEFAULT_CACHES.l2_bytes),
        l3_bytes: level("3").unwrap_or(DEFAULT_CACHES.l3_bytes),
    }
}

fn core_set(cores: &[u32]) -> Result<CpuSet, HalError> {
    let mut set = CpuSet::new();
    for &core in cores {
        if core as usize >= CpuSet::MAX_CPU {
            return Err(HalError::Limit { what: "core", value: core.into(), max: CpuSet::MAX_CPU as u64 - 1 });
        }
        set.set(core as usize);
    }
    Ok(set)
}

/// "512K", "32M" or plain bytes, as sysfs prints them.
fn parse_size(text: &str) -> Option<u64> {
    let (digits, shift) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 10),
        b'M' => (&text[..text.len() - 1], 20),
        b'G' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_as_sysfs_prints_them_are_understood() {
        assert_eq!(parse_size("512K"), Some(512 << 10));
        assert_eq!(parse_size("32M"), Some(32 << 20));
        assert_eq!(parse_size("64"), Some(64));
        assert_eq!(parse_size("K"), None);
        assert_eq!(parse_size(""), None);
    }

    #[test]
    fn a_pinned_thread_runs_where_it_was_put() {
        std::thread::spawn(|| {
            let cores = allowed_cores().unwrap();
            let last = *cores.last().unwrap();
            pin_to(&[last]).unwrap();
            assert_eq!(allowed_cores().unwrap(), [last]);
            assert_eq!(current_core(), last);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_core_number_beyond_the_set_is_an_error() {
        assert!(matches!(pin_to(&[1 << 20]), Err(HalError::Limit { .. })));
    }
}
