//! Which cores of this machine are taken by ranks, whoever started them: read locks on bytes of `/proc/cpuinfo`, a file that
//! exists everywhere, may be opened by everyone and is never on a network disk. The kernel drops the locks when the last
//! descriptor closes, so nothing is left behind by any kind of death, and no user needs a right for it. Used by the keeper.
//!
//! ```text
//! byte = core * 64 + place      places 0..48: ranks that live on this core; 48..64: ranks that may also use it
//! ```
//! Claims are made under an exclusive flock of the same file, so that two keepers never pick the same free core. These are
//! hints for placement: whoever ignores or blocks them only gets worse placement.
//! Source: fcntl(2), open file description locks.

use super::topology::Core;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

const FILE: &str = "/proc/cpuinfo";
const PLACES: i64 = 64;
const HOME_PLACES: i64 = 48;
/// How long to wait for other keepers that are just claiming.
const PATIENCE: Duration = Duration::from_millis(100);

/// Claims of one keeper; dropped with it.
pub struct CoreClaims {
    file: OwnedFd,
}

impl CoreClaims {
    pub fn open() -> io::Result<CoreClaims> {
        Ok(CoreClaims { file: open(FILE, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())? })
    }

    /// Picks a home for each of `ranks` ranks among `cores`: the least taken cores first, among those the least taken
    /// physical cores, and among equals in the order given. Returns how many ranks each core gets; the claims are held from
    /// now on.
    pub fn claim_homes(&self, cores: &[Core], ranks: u32) -> io::Result<Vec<u32>> {
        let _guard = self.exclusive();
        let mut levels = Vec::with_capacity(cores.len());
        for core in cores {
            levels.push(self.taken(core.number, 0, HOME_PLACES)?);
        }
        let dealt = deal(cores, &levels, ranks);
        for (core, count) in cores.iter().zip(&dealt) {
            self.claim(core.number, 0, HOME_PLACES, *count)?;
        }
        Ok(dealt)
    }

    /// Cores among `cores` on which nobody else has any claim; they are claimed as additional room.
    pub fn claim_free(&self, cores: &[u32]) -> io::Result<Vec<u32>> {
        let _guard = self.exclusive();
        let mut free = Vec::new();
        for core in cores {
            if self.taken(*core, 0, PLACES)? == 0 && self.claim(*core, HOME_PLACES, PLACES, 1).is_ok() {
                free.push(*core);
            }
        }
        Ok(free)
    }

    /// Other keepers' places in use in a part of a core's bytes. Our own locks don't conflict with us and are not seen.
    fn taken(&self, core: u32, from: i64, to: i64) -> io::Result<u32> {
        let base = i64::from(core) * PLACES;
        if !self.conflicts(base + from, to - from)? {
            return Ok(0);
        }
        let mut taken = 0;
        for place in from..to {
            taken += u32::from(self.conflicts(base + place, 1)?);
        }
        Ok(taken)
    }

    fn claim(&self, core: u32, from: i64, to: i64, count: u32) -> io::Result<()> {
        let base = i64::from(core) * PLACES;
        let mut left = count;
        for place in from..to {
            if left == 0 {
                break;
            }
            if !self.conflicts(base + place, 1)? {
                self.lock(libc::F_OFD_SETLK, libc::F_RDLCK, base + place, 1)?;
                left -= 1;
            }
        }
        Ok(())
    }

    fn conflicts(&self, start: i64, len: i64) -> io::Result<bool> {
        Ok(self.lock(libc::F_OFD_GETLK, libc::F_WRLCK, start, len)?.l_type != libc::F_UNLCK as i16)
    }

    fn lock(&self, command: i32, kind: i32, start: i64, len: i64) -> io::Result<libc::flock> {
        // SAFETY: flock is a struct of integers, for which zero bytes are valid.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = kind as i16;
        lock.l_whence = libc::SEEK_SET as i16;
        lock.l_start = start;
        lock.l_len = len;
        // SAFETY: the descriptor is ours and open; the kernel reads and writes only `lock`, which lives here.
        if unsafe { libc::fcntl(self.file.as_raw_fd(), command, &raw mut lock) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(lock)
    }

    /// Waits a moment for other keepers; goes on without them when somebody holds the lock for long (it is only a hint).
    fn exclusive(&self) -> Unlock<'_> {
        let start = Instant::now();
        while flock(&self.file, FlockOperation::NonBlockingLockExclusive).is_err() && start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_micros(200));
        }
        Unlock(&self.file)
    }
}

struct Unlock<'a>(&'a OwnedFd);

impl Drop for Unlock<'_> {
    fn drop(&mut self) {
        let _ = flock(self.0, FlockOperation::Unlock);
    }
}

/// Deals `ranks` one by one: to the core with the lowest level, of those to one whose physical core does least, of those to
/// one near the memory where all fit, of those to the first.
fn deal(cores: &[Core], levels: &[u32], ranks: u32) -> Vec<u32> {
    let mut dealt = vec![0; levels.len()];
    let roomy = roomy_node(cores, levels, ranks);
    let mut physical = HashMap::<u32, u32>::new();
    for (core, level) in cores.iter().zip(levels) {
        *physical.entry(core.physical).or_default() += level;
    }
    for _ in 0..ranks {
        let price = |index: &usize| {
            let core = &cores[*index];
            (levels[*index] + dealt[*index], physical[&core.physical], roomy.is_some_and(|node| node != core.node))
        };
        let Some(best) = (0..cores.len()).min_by_key(price) else { break };
        dealt[best] += 1;
        *physical.entry(cores[best].physical).or_default() += 1;
    }
    dealt
}

/// The node of memory with the fewest free physical cores that are enough.
fn roomy_node(cores: &[Core], levels: &[u32], ranks: u32) -> Option<u32> {
    let taken = |physical: u32| (0..cores.len()).any(|index| cores[index].physical == physical && levels[index] > 0);
    let mut free: Vec<(u32, u32)> =
        cores.iter().filter(|core| !taken(core.physical)).map(|core| (core.node, core.physical)).collect();
    free.sort_unstable();
    free.dedup();
    let count = |node: u32| free.iter().filter(|(of, _)| *of == node).count();
    let nodes = free.iter().map(|(node, _)| *node);
    nodes.filter(|node| count(*node) >= ranks as usize).min_by_key(|node| (count(*node), *node))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Core numbers that no machine has, one range per test, so that running jobs don't disturb.
    const BASE: u32 = 1 << 20;

    /// Without threads or memory of their own.
    fn plain(numbers: &[u32]) -> Vec<Core> {
        numbers.iter().map(|&number| Core { number, physical: number, cache: 0, node: 0 }).collect()
    }

    /// So many physical cores of two threads in each of so many nodes, threads side by side.
    fn machine(nodes: u32, each: u32) -> Vec<Core> {
        let physical = (0..nodes * each).flat_map(|core| [core, core]);
        (0..)
            .zip(physical)
            .map(|(number, physical)| Core { number, physical, cache: 0, node: physical / each })
            .collect()
    }

    #[test]
    fn physical_cores_come_first_and_their_second_threads_later() {
        let cores = machine(1, 3);
        let free = [0; 6];
        assert_eq!(deal(&cores, &free, 2), [1, 0, 1, 0, 0, 0]);
        assert_eq!(deal(&cores, &free, 4), [1, 1, 1, 0, 1, 0]);
        assert_eq!(deal(&cores, &free, 8), [2, 1, 2, 1, 1, 1]);
        assert_eq!(deal(&cores, &[0, 1, 0, 0, 0, 0], 2), [0, 0, 1, 0, 1, 0], "somebody else is on the first one");
    }

    #[test]
    fn a_job_that_fits_stays_at_one_memory_and_takes_the_smallest_place() {
        let cores = machine(2, 2);
        assert_eq!(deal(&cores, &[0, 1, 0, 0, 0, 0, 0, 0], 2), [0, 0, 0, 0, 1, 0, 1, 0]);
        assert_eq!(
            deal(&cores, &[0, 0, 0, 0, 0, 1, 0, 0], 1),
            [0, 0, 0, 0, 0, 0, 1, 0],
            "the larger room is left whole"
        );
        assert_eq!(deal(&cores, &[0, 1, 0, 0, 0, 0, 0, 0], 3), [0, 0, 1, 0, 1, 0, 1, 0], "it does not fit anywhere");
    }

    #[test]
    fn two_keepers_share_a_core_only_when_none_is_free() {
        let cores = plain(&[BASE, BASE + 1, BASE + 2]);
        let first = CoreClaims::open().unwrap();
        assert_eq!(first.claim_homes(&cores, 1).unwrap(), [1, 0, 0]);
        let second = CoreClaims::open().unwrap();
        assert_eq!(second.claim_homes(&cores, 2).unwrap(), [0, 1, 1]);
        let third = CoreClaims::open().unwrap();
        assert_eq!(third.claim_homes(&cores, 4).unwrap(), [2, 1, 1]);
        drop(second);
        assert_eq!(third.taken(BASE + 1, 0, PLACES).unwrap(), 0, "claims end with their keeper");
        assert_eq!(third.taken(BASE, 0, PLACES).unwrap(), 1);
    }

    #[test]
    fn additional_room_is_only_taken_where_nobody_lives() {
        let cores = [BASE + 10, BASE + 11, BASE + 12];
        let first = CoreClaims::open().unwrap();
        first.claim_homes(&plain(&cores[..1]), 1).unwrap();
        let second = CoreClaims::open().unwrap();
        assert_eq!(second.claim_free(&cores).unwrap(), cores[1..]);
        assert_eq!(first.claim_free(&cores[1..]).unwrap(), []);
        let third = CoreClaims::open().unwrap();
        assert_eq!(
            third.claim_homes(&plain(&cores), 1).unwrap(),
            [0, 1, 0],
            "room that others also use is nobody's home"
        );
    }
}
