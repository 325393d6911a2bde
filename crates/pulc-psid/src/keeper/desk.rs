//! Jobs come last on a node at which somebody works. The ranks' own weight is set when they are started; this sees to their sessions.
//!
//! Where processors are not shared out by cgroups, Linux shares them out by session first ("autogroup"): the lowest thread of one session gets
//! as much as the highest of another. So the session of the job, and each one that its processes open later, is given the lowest weight as well.
//! Called by the keeper's loop. Never waits, and nothing here keeps a job from running.
//! Source: sched(7).

use pulc_base::clock::{Nanos, now};
use pulc_base::log;
use pulc_hal::os::proctree;
use rustix::process::{Pid, getpid, getsid};
use std::collections::HashSet;

/// The kernel lets users without privileges change a session's weight ten times a second, all users together.
const REFUSED: Nanos = Nanos::from_ms(110);
/// The first look for sessions that the job's processes have opened, and the longest pause between two looks, which grow.
const FIRST_PAUSE: Nanos = Nanos::from_ms(100);
const LONGEST_PAUSE: Nanos = Nanos::from_ms(10_000);
const LOWEST: &str = "19";

#[derive(Default)]
pub struct Desk {
    /// When to look again; never where jobs don't come last.
    due: Option<Nanos>,
    pause: Nanos,
    lowered: HashSet<Pid>,
}

impl Desk {
    pub fn new(lowly: bool) -> Desk {
        Desk { due: lowly.then(now), pause: FIRST_PAUSE, lowered: HashSet::new() }
    }

    /// Looks if that is due; returns when to come again.
    pub fn tick(&mut self) -> Option<Nanos> {
        let due = self.due?;
        if now() >= due {
            self.due = self.look().map(|pause| now() + pause);
        }
        self.due
    }

    /// None: the kernel does not go by sessions here.
    fn look(&mut self) -> Option<Nanos> {
        let below = proctree::descendants().unwrap_or_else(|error| {
            log!(Warn, "keeper", "sessions of the job cannot be looked for: {error}");
            Vec::new()
        });
        let mut there = HashSet::new();
        for pid in std::iter::once(getpid()).chain(below.iter().map(|process| process.pid)) {
            // One that ended meanwhile has no session any more.
            let Ok(session) = getsid(Some(pid)) else { continue };
            if !there.insert(session) || self.lowered.contains(&session) {
                continue;
            }
            match std::fs::write(format!("/proc/{}/autogroup", pid.as_raw_nonzero()), LOWEST) {
                Ok(()) => _ = self.lowered.insert(session),
                Err(error) if error.raw_os_error() == Some(rustix::io::Errno::AGAIN.raw_os_error()) => {
                    return Some(REFUSED);
                }
                // Not in this kernel, or not for this process, which has ended or is another user's by now.
                Err(_) if pid == getpid() => return None,
                Err(_) => {}
            }
        }
        self.lowered.retain(|session| there.contains(session));
        let pause = self.pause;
        self.pause = (pause + pause).min(LONGEST_PAUSE);
        Some(pause)
    }
}
