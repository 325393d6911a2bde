//! A cgroup (version 2) for the processes of one job on one node, where this process may make one: then a job that forks
//! faster than it can be swept dies in one stroke. Used by the keeper, and by psid when a keeper has been killed. Without
//! one everything works, only the sweeping takes several rounds.

use rustix::fs::{Mode, OFlags, open};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

/// Milliseconds that a group may take to stand still: a process in an uninterruptible call holds it up.
const FREEZE_ROUNDS: u32 = 200;

pub struct Cgroup {
    path: PathBuf,
    directory: OwnedFd,
}

impl Cgroup {
    /// Makes the group `name` beside this process in the hierarchy; none where that is not allowed.
    pub fn make(name: &str) -> Option<Cgroup> {
        let path = own_directory()?.join(name);
        std::fs::create_dir(&path).ok()?;
        let made = open(&path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        match made {
            Ok(directory) => Some(Cgroup { path, directory }),
            Err(_) => {
                let _ = std::fs::remove_dir(&path);
                None
            }
        }
    }

    /// Kills whatever is in it, at once and together.
    pub fn kill(&self) {
        let _ = std::fs::write(self.path.join("cgroup.kill"), "1");
    }

    /// Makes everything in it stand still, or go on; returns whether it does.
    pub fn freeze(&self, still: bool) -> bool {
        if std::fs::write(self.path.join("cgroup.freeze"), if still { "1" } else { "0" }).is_err() {
            return false;
        }
        let state = if still { "frozen 1" } else { "frozen 0" };
        for _ in 0..FREEZE_ROUNDS {
            let events = std::fs::read_to_string(self.path.join("cgroup.events")).unwrap_or_default();
            if events.lines().any(|line| line == state) {
                return true;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        false
    }

    /// Gives it only the processor time that nobody beside it wants; returns whether the kernel shares processors out by this group.
    pub fn lower(&self) -> bool {
        std::fs::write(self.path.join("cpu.idle"), "1").is_ok()
    }

    /// The most memory it has had, where the kernel counts it.
    pub fn memory_peak_kib(&self) -> Option<u64> {
        let text = std::fs::read_to_string(self.path.join("memory.peak")).ok()?;
        text.trim().parse::<u64>().ok().map(|bytes| bytes >> 10)
    }

    /// Removes it once it is empty; processes that have been killed need a moment to leave it.
    pub fn remove(&self) -> bool {
        match std::fs::remove_dir(&self.path) {
            Ok(()) => true,
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        }
    }
}

/// A group that never got a process (a launch that was stopped) goes with its owner; a used one is gone by then.
impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.path);
    }
}

impl AsFd for Cgroup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

/// Kills and removes the group `name` that a dead keeper left. Returns whether it is gone.
pub fn clear(name: &str) -> bool {
    let Some(path) = own_directory().map(|own| own.join(name)).filter(|path| path.exists()) else { return true };
    let _ = std::fs::write(path.join("cgroup.kill"), "1");
    std::fs::remove_dir(&path).is_ok() || !path.exists()
}

/// Where this process lives: the mount of cgroup version 2 and the path in it. `PULC_NO_CGROUP` in the environment acts as
/// if there were none, so that the other way can be tested and used where groups are watched by somebody else.
fn own_directory() -> Option<PathBuf> {
    if std::env::var_os("PULC_NO_CGROUP").is_some() {
        return None;
    }
    let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let mount = mounts.lines().find(|line| line.contains(" - cgroup2 "))?;
    let point = mount.split(' ').nth(4)?;
    Some(PathBuf::from(point).join(own))
}
