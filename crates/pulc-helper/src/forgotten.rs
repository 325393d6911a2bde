//! What an earlier life has left: processes of jobs whose helper, guardian and keeper were killed together, so that nobody had them any more.
//! Looked for when a helper begins, by what the environment of every process of a job says, and killed where no keeper is above them.

use pulc_base::{boot, log};
use pulc_hal::os::proctree;
use rustix::process::Pid;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

/// What a process of a job has in its environment where a daemon serves several users: the directory of that daemon's sockets.
const ENV_RUN_DIR: &str = "PULC_RUN_DIR";
/// How long to go on killing.
const PATIENCE: Duration = Duration::from_secs(20);
const ROUND: Duration = Duration::from_millis(5);
/// Nobody has more ancestors.
const DEPTH_MAX: usize = 10_000;

/// Kills what was forgotten, until nothing of it is there. `account` is the daemon's, which has no jobs.
pub(crate) fn clear(run_dir: &Path, account: u32) {
    let begin = Instant::now();
    loop {
        let found = match forgotten(run_dir, account) {
            Ok(found) => found,
            Err(error) => return log!(Error, "helper", "processes of earlier jobs cannot be looked for: {error}"),
        };
        if found.is_empty() {
            return;
        }
        if begin.elapsed() > PATIENCE {
            let pids: Vec<i32> = found.iter().map(|found| found.pid.as_raw_nonzero().get()).collect();
            return log!(Error, "helper", "processes {pids:?} of earlier jobs do not end even by SIGKILL");
        }
        log!(Warn, "helper", "{} processes of earlier jobs have nobody above them: they are killed", found.len());
        found.iter().for_each(proctree::Tagged::kill);
        std::thread::sleep(ROUND);
    }
}

fn forgotten(run_dir: &Path, account: u32) -> std::io::Result<Vec<proctree::Tagged>> {
    let Some(run_dir) = run_dir.to_str() else { return Ok(Vec::new()) };
    let mut found = proctree::tagged(&[&format!("{ENV_RUN_DIR}={run_dir}")])?;
    found.retain(|process| is_users_job(process.pid, account) && !has_keeper(process.pid));
    Ok(found)
}

fn is_users_job(pid: Pid, account: u32) -> bool {
    let directory = format!("/proc/{}", pid.as_raw_nonzero());
    let owner = std::fs::metadata(&directory).map_or(0, |data| data.uid());
    let has_job = std::fs::read(format!("{directory}/environ")).is_ok_and(|environ| {
        environ
            .split(|byte| *byte == 0)
            .any(|entry| entry.strip_prefix(boot::ENV_JOBID.as_bytes()).is_some_and(|rest| rest.first() == Some(&b'=')))
    });
    owner != 0 && owner != account && has_job
}

/// Whether it is a keeper or a guardian, or one is above it: everything of a living job is below its keeper.
fn has_keeper(pid: Pid) -> bool {
    std::iter::successors(Some(pid), |at| parent_of(*at)).take(DEPTH_MAX).any(|at| {
        let name = std::fs::read(format!("/proc/{}/comm", at.as_raw_nonzero())).unwrap_or_default();
        matches!(OsStr::from_bytes(name.trim_ascii()).to_str(), Some("pulc-keeper" | "pulc-guardian"))
    })
}

/// Field 4 of /proc/PID/stat, behind the command's closing parenthesis.
fn parent_of(pid: Pid) -> Option<Pid> {
    let stat = std::fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    Pid::from_raw(std::str::from_utf8(stat.get(end + 2..)?).ok()?.split(' ').nth(1)?.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt as _;
    use std::process::Command;

    #[test]
    fn what_has_no_keeper_above_it_is_killed_and_what_is_of_no_job_or_another_daemons_is_not() {
        if !rustix::process::geteuid().is_root() {
            return pulc_testkit::skipped(
                "what_has_no_keeper_above_it",
                "needs root, to look at other users' processes",
            );
        }
        let run_dir = format!("/run/pulc-test-{}", std::process::id());
        let start = |run_dir: &str, job: Option<&str>| {
            let mut command = Command::new("sleep");
            command.arg("1000").env(ENV_RUN_DIR, run_dir).uid(61_099);
            job.map(|job| command.env(boot::ENV_JOBID, job));
            command.spawn().unwrap()
        };
        let mut of_job = start(&run_dir, Some("00000000000000aa"));
        let mut others = [start(&run_dir, None), start("/run/other", Some("00000000000000aa"))];
        // Our children are reaped by nobody else.
        std::thread::scope(|scope| {
            let clearing = scope.spawn(|| clear(Path::new(&run_dir), 61_000));
            assert!(!of_job.wait().unwrap().success());
            clearing.join().unwrap();
        });
        for other in &mut others {
            assert!(other.try_wait().unwrap().is_none());
            other.kill().unwrap();
            other.wait().unwrap();
        }
    }
}
