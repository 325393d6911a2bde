//! Which processes are there: our children, and those that carry a job's tag in their environment. Used for clean-up by the
//! keeper and psid. A process found by scanning is only ever signalled through a pidfd that was opened *before* it was
//! checked, so a reused pid is never hit.

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::io;
use std::os::fd::OwnedFd;

/// Direct children of the calling process (all its threads), zombies included. They stay ours until we reap them, so
/// their pids can't be reused under us as long as only the caller reaps.
pub fn own_children() -> io::Result<Vec<Pid>> {
    let mut pids = Vec::new();
    for thread in std::fs::read_dir("/proc/self/task")? {
        let text = match std::fs::read_to_string(thread?.path().join("children")) {
            Ok(text) => text,
            // Either the thread has just ended, or this kernel lacks the file: then ask everybody who its parent is.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return children_by_scan(),
            Err(error) => return Err(error),
        };
        pids.extend(text.split_ascii_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)));
    }
    Ok(pids)
}

fn children_by_scan() -> io::Result<Vec<Pid>> {
    let me = std::process::id() as i32;
    Ok(all()?.into_iter().filter(|pid| parent_of(*pid) == Some(me)).collect())
}

/// Field 4 of /proc/PID/stat, behind the command's closing parenthesis.
fn parent_of(pid: Pid) -> Option<i32> {
    let stat = std::fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    std::str::from_utf8(stat.get(end + 2..)?).ok()?.split(' ').nth(1)?.parse().ok()
}

/// A process as a person would want it described: number, name, state, and where in the kernel it waits, as far as that is told.
/// None: it has ended.
pub fn described(pid: Pid) -> Option<String> {
    let number = pid.as_raw_nonzero();
    let stat = String::from_utf8_lossy(&std::fs::read(format!("/proc/{number}/stat")).ok()?).into_owned();
    let (front, behind) = stat.rsplit_once(')')?;
    let (_, name) = front.split_once('(')?;
    let state = behind.trim_start().chars().next().filter(|state| *state != 'Z')?;
    let place = std::fs::read_to_string(format!("/proc/{number}/wchan")).unwrap_or_default();
    let place = Some(place.trim()).filter(|place| !matches!(*place, "" | "0"));
    let place = place.map(|place| format!(" in {place}")).unwrap_or_default();
    Some(format!("{number} ({name}, state {state}{place})"))
}

fn all() -> io::Result<Vec<Pid>> {
    Ok(std::fs::read_dir("/proc")?
        .filter_map(|entry| Pid::from_raw(entry.ok()?.file_name().to_str()?.parse().ok()?))
        .collect())
}

/// A process found by its tag, held by its descriptor.
pub struct Tagged {
    pub pid: Pid,
    pidfd: OwnedFd,
}

impl Tagged {
    /// Sends SIGKILL; a process that has ended already is fine.
    pub fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Sends a signal; a process that has ended already is fine.
    pub fn signal(&self, signal: Signal) {
        let _ = pidfd_send_signal(&self.pidfd, signal);
    }
}

/// All processes below the calling one: children, their children, and so on.
pub fn descendants() -> io::Result<Vec<Tagged>> {
    let me = std::process::id() as i32;
    let parents: std::collections::HashMap<i32, i32> =
        all()?.into_iter().filter_map(|pid| Some((pid.as_raw_nonzero().get(), parent_of(pid)?))).collect();
    let is_below = |pid: i32| {
        let chain = std::iter::successors(Some(pid), |at| parents.get(at).copied());
        // A parent that ends while we look may leave a ring of reused numbers.
        chain.skip(1).take(parents.len()).any(|above| above == me)
    };
    let mut found = Vec::new();
    for pid in parents.keys().copied().filter(|pid| is_below(*pid)).filter_map(Pid::from_raw) {
        let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
        // Looked at again now that it can't become another process: orphans have come to us, or to a subreaper between.
        let parent = parent_of(pid);
        if parent == parents.get(&pid.as_raw_nonzero().get()).copied() || parent == Some(me) {
            found.push(Tagged { pid, pidfd });
        }
    }
    Ok(found)
}

/// Every other living process whose environment at exec held all of `tags` (`NAME=value`). Processes that may not be looked
/// at (another user's) are not ours and are left out.
pub fn tagged(tags: &[&str]) -> io::Result<Vec<Tagged>> {
    let me = std::process::id() as i32;
    let has = |pid: Pid| {
        std::fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).is_ok_and(|environ| {
            tags.iter().all(|tag| environ.split(|byte| *byte == 0).any(|entry| entry == tag.as_bytes()))
        })
    };
    let mut found = Vec::new();
    for pid in all()? {
        if pid.as_raw_nonzero().get() == me || !has(pid) {
            continue;
        }
        let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
        // Looked at again now that it can't become another process.
        if has(pid) {
            found.push(Tagged { pid, pidfd });
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn grandchildren_are_found_and_can_be_stopped() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 1000 & echo; wait"]).stdout(std::process::Stdio::piped());
        let mut child = shell.spawn().unwrap();
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        let mine = |found: &[Tagged]| {
            let shell = child.id() as i32;
            found
                .iter()
                .filter(|process| {
                    let pid = process.pid.as_raw_nonzero().get();
                    pid == shell || parent_of(process.pid) == Some(shell)
                })
                .count()
        };
        let found = descendants().unwrap();
        assert_eq!(mine(&found), 2);
        for process in found.iter().filter(|process| parent_of(process.pid) == Some(child.id() as i32)) {
            process.signal(Signal::STOP);
            process.kill();
        }
        child.wait().unwrap();
    }

    #[test]
    fn a_tagged_child_is_found_killed_and_gone() {
        let tag = format!("PULC_TEST_TAG=proctree-{}", std::process::id());
        let (name, value) = tag.split_once('=').unwrap();
        let mut child = Command::new("sleep").arg("1000").env(name, value).spawn().unwrap();
        let found = tagged(&[&tag]).unwrap();
        assert_eq!(found.len(), 1);
        assert!(own_children().unwrap().iter().any(|pid| pid.as_raw_nonzero().get() == child.id() as i32));
        found[0].kill();
        child.wait().unwrap();
        assert!(tagged(&[&tag]).unwrap().is_empty());
    }
}
