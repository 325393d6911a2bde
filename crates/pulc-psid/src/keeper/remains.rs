//! What a dead keeper has left of its job on one node, and how it is cleared away: by ancestry (orphans come to the nearest
//! living subreaper, the caller), by cgroup, and by the job's tag in the environment. Used by the guardian and by psid. Kills
//! nothing that was not proved to be of the job, and never waits.

use super::cgroup;
use super::launch::{cgroup_name, hex};
use pulc_base::{JobId, NodeId, boot, log};
use pulc_control::stage::from_hex;
use pulc_hal::os::proctree;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

/// How to find what one keeper has started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remains {
    cgroup: Option<String>,
    /// Of all ranks of this node, `NAME=value`; empty before any rank was started.
    tags: Vec<String>,
    /// The directory that was made for the job on this node.
    room: Option<PathBuf>,
}

/// What the word begins with that says where the job's directory is, in hexadecimal digits: it may have any bytes.
const ROOM: &str = "room:";

impl Remains {
    /// `index` is the position of the node in the job; none as long as no rank can have been started.
    pub fn of(job: JobId, node: NodeId, index: Option<u32>) -> Remains {
        let tags = index.map(|index| vec![format!("{}={job}", boot::ENV_JOBID), format!("{}={index}", boot::ENV_NODE)]);
        Remains { cgroup: Some(cgroup_name(job, node)), tags: tags.unwrap_or_default(), room: None }
    }

    pub fn with_room(self, room: Option<&Path>) -> Remains {
        Remains { room: room.map(Path::to_owned), ..self }
    }

    pub fn room(&self) -> Option<&Path> {
        self.room.as_deref()
    }

    /// As [`Remains::parse`] reads it. Each later text replaces an earlier one.
    pub fn to_line(&self) -> String {
        let room = self.room.iter().map(|room| format!(" {ROOM}{}", hex(room.as_os_str().as_bytes())));
        format!("{} {}{}\n", self.cgroup.as_deref().unwrap_or_default(), self.tags.join(" "), room.collect::<String>())
    }

    /// The last whole line counts; what is cut off was never acted upon.
    pub fn parse(text: &str) -> Remains {
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let mut words = whole.lines().last().unwrap_or_default().split(' ').filter(|word| !word.is_empty());
        let cgroup = words.next().map(str::to_owned);
        let (room, tags): (Vec<&str>, _) = words.partition(|word| word.starts_with(ROOM));
        let room = room
            .first()
            .and_then(|word| from_hex(&word.as_bytes()[ROOM.len()..]))
            .map(|path| OsString::from_vec(path).into());
        Remains { cgroup, tags: tags.into_iter().map(str::to_owned).collect(), room }
    }

    /// Kills what is there now, and reaps it. Children for which `spare` holds are not touched. Returns who is still there;
    /// nothing is left when that is none.
    pub fn kill(&self, spare: impl Fn(Pid) -> bool) -> Option<String> {
        let orphans = kill_orphans(spare);
        let tags: Vec<&str> = self.tags.iter().map(String::as_str).collect();
        let tagged = if tags.is_empty() { Ok(Vec::new()) } else { proctree::tagged(&tags) };
        let tagged = tagged.unwrap_or_else(|error| {
            log!(Error, "keeper", "processes of the job cannot be looked for: {error}");
            Vec::new()
        });
        tagged.iter().for_each(proctree::Tagged::kill);
        let group = self.cgroup.as_ref().filter(|name| !cgroup::clear(name));
        if orphans.is_empty() && tagged.is_empty() && group.is_none() {
            return None;
        }
        let pids: Vec<i32> =
            orphans.iter().chain(tagged.iter().map(|found| &found.pid)).map(|pid| pid.as_raw_nonzero().get()).collect();
        Some(format!("processes {pids:?} or cgroup {:?}", group.map_or("-", String::as_str)))
    }
}

/// Children of the calling process that are not spared: killed and, as far as they are dead, reaped.
fn kill_orphans(spare: impl Fn(Pid) -> bool) -> Vec<Pid> {
    let children = proctree::own_children().unwrap_or_else(|error| {
        log!(Error, "keeper", "own children cannot be listed: {error}");
        Vec::new()
    });
    let orphans: Vec<Pid> = children.into_iter().filter(|pid| !spare(*pid)).collect();
    for pid in &orphans {
        // Unreaped children of ours: nobody else can have got their numbers.
        let _ = kill_process(*pid, Signal::KILL);
        let _ = waitpid(Some(*pid), WaitOptions::NOHANG);
    }
    orphans
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_whole_line_tells_what_to_look_for() {
        let before = Remains::of(JobId(7), NodeId([1; 16]), None);
        let after = Remains::of(JobId(7), NodeId([1; 16]), Some(3));
        let room = Path::new("/tmp/with spaces\n and/\u{e4}");
        let after = after.with_room(Some(room));
        assert_eq!(after.room(), Some(room));
        assert_eq!(Remains::parse(&before.clone().with_room(Some(room)).to_line()).room(), Some(room));
        assert_eq!(Remains::parse(&before.to_line()), before);
        assert_eq!(Remains::parse(&(before.to_line() + &after.to_line())), after);
        let cut = after.to_line();
        assert_eq!(Remains::parse(&(before.to_line() + &cut[..cut.len() - 1])), before);
        assert_eq!(Remains::parse(""), Remains::default());
        assert!(after.tags.iter().any(|tag| tag == "PULC_NODE=3"), "{after:?}");
    }
}
