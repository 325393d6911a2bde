//! The ranks as processes, and how they end. A rank is signalled through its process group only while it is unreaped (so
//! its number cannot have been given to anybody else). What they leave behind becomes a child of the keeper, who is a
//! subreaper: "no children" therefore means that nothing of the job is left here.

use super::cgroup::Cgroup;
use super::desk::Desk;
use super::pinning::Pinning;
use pulc_base::boot::Gone;
use pulc_base::clock::{Nanos, now};
use pulc_base::{Rank, log};
use pulc_control::StopKind;
use pulc_hal::os::process::Child;
use pulc_hal::os::proctree;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, kill_process_group, wait};
use std::collections::HashMap;

/// Repeats SIGKILL to what did not die at once (it may have forked meanwhile).
const KILL_AGAIN: Nanos = Nanos::from_ms(20);
/// The same, and looks whether it has died, when that is no longer likely to help: what waits in the kernel for a disk or a server.
const KILL_SELDOM: Nanos = Nanos::from_ms(500);
const STUBBORN: Nanos = Nanos::from_ms(2_000);
/// Time after SIGKILL in which whatever can end has ended, also on a busy machine. Below the `end_timeout_ms` of psid.
const STUCK: Nanos = Nanos::from_ms(10_000);
/// Of processes that are stuck so many are told by name.
const STUCK_NAMED: usize = 3;

/// Looks for processes that were forked while the others were being stopped.
const FREEZE_ROUNDS: u32 = 20;

#[derive(Default)]
pub struct Processes {
    ranks: Vec<Process>,
    by_pid: HashMap<Pid, usize>,
    living: usize,
    kill_at: Option<Nanos>,
    killing: bool,
    killed_first: Option<Nanos>,
    stuck_told: bool,
    cgroup: Option<Cgroup>,
    pinning: Option<Pinning>,
    desk: Desk,
    pub kill_delay: Nanos,
    /// The ranks were made to stand still.
    still: bool,
}

struct Process {
    rank: Rank,
    child: Child,
    reaped: bool,
}

impl Processes {
    pub fn add(&mut self, rank: Rank, child: Child) {
        self.by_pid.insert(child.pid, self.ranks.len());
        self.ranks.push(Process { rank, child, reaped: false });
        self.living += 1;
    }

    /// What has to live as long as the ranks.
    pub fn keep(&mut self, cgroup: Option<Cgroup>, pinning: Option<Pinning>) {
        self.cgroup = cgroup;
        self.pinning = pinning;
    }

    /// Those started afterwards get what nobody else on this node wants, if they are `lowly`; so does the keeper's session, before this returns.
    pub fn come_last(&mut self, lowly: bool) {
        self.desk = Desk::new(lowly);
        self.desk.tick();
    }

    /// In the order of the ranks.
    pub fn pids(&self) -> Vec<u32> {
        let mut pids: Vec<(Rank, u32)> =
            self.ranks.iter().map(|process| (process.rank, process.child.pid.as_raw_nonzero().get() as u32)).collect();
        pids.sort_unstable();
        pids.into_iter().map(|(_, pid)| pid).collect()
    }

    pub fn all_ended(&self) -> bool {
        self.living == 0
    }

    /// Collects who has ended, ranks and what they left behind.
    pub fn reap(&mut self) -> Vec<(Rank, Gone)> {
        let mut ended = Vec::new();
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if let Some(process) = self.by_pid.remove(&pid).and_then(|index| self.ranks.get_mut(index)) {
                process.reaped = true;
                self.living -= 1;
                ended.push((process.rank, how(status)));
            }
        }
        ended
    }

    /// Makes everything of the job here stand still, or go on.
    pub fn freeze(&mut self, still: bool) {
        self.still = still;
        if self.cgroup.as_ref().is_some_and(|cgroup| cgroup.freeze(still)) {
            return;
        }
        let signal = if still { Signal::STOP } else { Signal::CONT };
        // What is not yet stopped may fork meanwhile.
        let mut before = 0;
        for _ in 0..FREEZE_ROUNDS {
            let all = proctree::descendants().unwrap_or_else(|error| {
                log!(Error, "keeper", "the job's processes cannot be looked for: {error}");
                Vec::new()
            });
            all.iter().for_each(|process| process.signal(signal));
            if all.len() == before {
                return;
            }
            before = all.len();
        }
    }

    pub fn memory_peak_kib(&self) -> u64 {
        self.cgroup.as_ref().and_then(Cgroup::memory_peak_kib).unwrap_or(0)
    }

    pub fn stop(&mut self, kind: StopKind) {
        if self.still && kind == StopKind::Gently {
            self.freeze(false);
        }
        match kind {
            StopKind::Gently if self.killing => {}
            StopKind::Gently => {
                let at = now() + self.kill_delay;
                self.kill_at = Some(self.kill_at.map_or(at, |earlier| earlier.min(at)));
                self.signal(Signal::TERM);
                // A stopped rank would not even see it.
                self.signal(Signal::CONT);
            }
            StopKind::AtOnce => {
                self.kill_at = Some(now());
                self.due();
            }
        }
    }

    /// Sends SIGKILL when it is time for it; returns when to ask again.
    pub fn due(&mut self) -> Option<Nanos> {
        if self.living == 0 {
            return None;
        }
        let time = now();
        if self.kill_at.is_some_and(|at| at <= time) {
            self.killing = true;
            self.kill_at = Some(time + self.pause(KILL_AGAIN));
            self.signal(Signal::KILL);
            self.kill_children();
            if let Some(cgroup) = &self.cgroup {
                cgroup.kill();
            }
        }
        self.kill_at.into_iter().chain(self.desk.tick()).min()
    }

    fn signal(&self, signal: Signal) {
        for process in self.ranks.iter().filter(|process| !process.reaped) {
            // Its group exists since before it was exec'd; it may have left it, so it is hit by itself as well.
            let _ = kill_process_group(process.child.pid, signal);
            let _ = rustix::process::pidfd_send_signal(&process.child.pidfd, signal);
        }
    }

    /// Our direct children stay ours until we reap them, so their pids are theirs.
    fn kill_children(&self) {
        match proctree::own_children() {
            Ok(children) => children.into_iter().for_each(|pid| {
                let _ = kill_process(pid, Signal::KILL);
            }),
            Err(error) => log!(Error, "keeper", "cannot list the job's processes: {error}"),
        }
    }

    /// Ends what the ranks left behind. Returns whether nothing is left.
    pub fn sweep(&mut self) -> bool {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
                Ok(None) => break,
                Err(_) => return true,
            }
        }
        self.killed_first.get_or_insert_with(now);
        if let Some(cgroup) = &self.cgroup {
            cgroup.kill();
        }
        self.kill_children();
        false
    }

    /// How long to wait before killing again, or looking again what is left.
    pub fn pause(&mut self, usual: Nanos) -> Nanos {
        let first = *self.killed_first.get_or_insert_with(now);
        if now().since(first) > STUBBORN { KILL_SELDOM } else { usual }
    }

    /// Which processes SIGKILL does not end, once when that is certain.
    pub fn stuck(&mut self) -> Option<String> {
        let first = self.killed_first.filter(|first| !self.stuck_told && now().since(*first) > STUCK)?;
        let left: Vec<String> = proctree::own_children().ok()?.into_iter().filter_map(proctree::described).collect();
        if left.is_empty() {
            return None;
        }
        self.stuck_told = true;
        let more = left.len().saturating_sub(STUCK_NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let named = left[..left.len() - left.len().saturating_sub(STUCK_NAMED)].join(", ");
        let seconds = now().since(first).as_duration().as_secs();
        Some(format!("SIGKILL has not ended process {named}{more} for {seconds} s"))
    }

    pub fn remove_cgroup(&mut self) {
        let Some(cgroup) = self.cgroup.take() else { return };
        // A process that was born there outside of our tree keeps it alive: nothing is left after the kill.
        for _ in 0..200 {
            if cgroup.remove() {
                return;
            }
            cgroup.kill();
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        log!(Warn, "keeper", "the job's cgroup could not be removed");
    }
}

fn how(status: WaitStatus) -> Gone {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Gone::Exited(code as u8),
        (None, Some(signal)) => Gone::Killed(signal as u8),
        (None, None) => Gone::Lost,
    }
}
