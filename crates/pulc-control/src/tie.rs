//! A daemon or a `pulc run` that shall not outlive the process that started it for a purpose: a test, a benchmark, the demo. It
//! is named by its pid in the environment and watched by pidfd, so that even its violent end is noticed. Never kills anybody.

use pulc_base::boot::ENV_ENDS_WITH;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::os::fd::OwnedFd;

/// A process with which the calling one ends.
pub struct Tie {
    pidfd: OwnedFd,
}

impl Tie {
    /// The tie that this environment asks for.
    ///
    /// # Errors
    /// One line, when the process it names is none, or is gone already.
    pub fn of_environment() -> Result<Option<Tie>, String> {
        let Some(text) = std::env::var_os(ENV_ENDS_WITH) else { return Ok(None) };
        let pid = text.to_str().and_then(|text| text.parse().ok()).and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| format!("{ENV_ENDS_WITH}={} is no process number", text.display()))?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty())
            .map_err(|error| format!("{ENV_ENDS_WITH}={}: the process is gone ({error})", text.display()))?;
        Ok(Some(Tie { pidfd }))
    }

    /// # Blocking
    /// Until the process has ended.
    pub fn wait(&self) {
        while let Err(rustix::io::Errno::INTR) = poll(&mut [PollFd::new(&self.pidfd, PollFlags::IN)], None) {}
    }
}
