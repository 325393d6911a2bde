//! The queue's clock: milliseconds since 1970 as the wall clock showed them when it was set, going on by the machine's uptime. A wall clock that
//! jumps, while the daemon runs or while it is away, is not believed as long as jobs run: no time limit ends early or late for it. Opened with
//! the controller's log, beside which it keeps one line.

use crate::error::Error;
use pulc_base::log;
use pulc_control::queue::Millis;
use rustix::time::{ClockId, clock_gettime};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

const NAME: &str = "queue.clock";
/// A wall clock that differs by more has been set. Daemons that are kept in step differ by less.
const STEP_MS: u64 = 60_000;

/// What the queue calls now.
#[derive(Debug)]
pub struct Clock {
    /// The queue's time when the machine was switched on, as if it had been there already.
    zero: Millis,
}

/// What is there to go by.
#[derive(Clone, Debug)]
struct Sources {
    boot: String,
    uptime: Millis,
    wall: Millis,
}

impl Sources {
    fn read() -> Sources {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let wall = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_millis() as u64);
        Sources { boot: boot.trim().to_owned(), uptime: uptime(), wall }
    }
}

/// With the time that the machine was suspended.
fn uptime() -> Millis {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
}

impl Clock {
    /// `last` is the time of the last record; the clock is never before it. `runs`: jobs have begun that have not ended.
    ///
    /// # Errors
    /// When the line cannot be written.
    pub fn open(directory: &Path, last: Millis, runs: bool) -> Result<Clock, Error> {
        let path = directory.join(NAME);
        let now = Sources::read();
        let known = std::fs::read_to_string(&path).unwrap_or_default();
        let clock = set(&known, &now, last, runs);
        let line = format!("{} {}\n", now.boot, clock.zero);
        if line != known {
            write(&path, &line).map_err(Error::io(format!("cannot write {}", path.display())))?;
        }
        Ok(clock)
    }

    pub fn now(&self) -> Millis {
        self.zero + uptime()
    }
}

/// Whole or not at all; a clock that is lost is set by the wall clock again, so it needs no sync.
fn write(path: &Path, line: &str) -> std::io::Result<()> {
    let new: PathBuf = path.with_extension("clock-new");
    std::fs::write(&new, line)?;
    std::fs::rename(&new, path)
}

fn set(known: &str, now: &Sources, last: Millis, runs: bool) -> Clock {
    let mut words = known.split_whitespace();
    let boot = words.next().filter(|boot| !boot.is_empty() && *boot == now.boot);
    let kept = boot.and_then(|_| words.next()?.parse::<Millis>().ok()).and_then(|zero| zero.checked_add(now.uptime));
    let by_wall = now.wall.max(last);
    let time = match kept.map(|kept| kept.max(last)) {
        Some(kept) if kept.abs_diff(now.wall) <= STEP_MS => kept,
        Some(kept) if runs => {
            let step = (now.wall as i64).wrapping_sub(kept as i64) / 1000;
            log!(
                Warn,
                "queue",
                "the wall clock was set by {step} s; the queue goes on by its own as long as jobs run, also for --begin and reservations"
            );
            kept
        }
        _ => by_wall,
    };
    Clock { zero: time.saturating_sub(now.uptime) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000;
    const WALL: u64 = 500 * 24 * HOUR;

    fn sources(boot: &str, uptime: u64, wall: u64) -> Sources {
        Sources { boot: boot.to_owned(), uptime, wall }
    }

    fn shown(known: &str, now: &Sources, last: u64, runs: bool) -> u64 {
        set(known, now, last, runs).zero + now.uptime
    }

    #[test]
    fn it_goes_on_by_uptime_while_jobs_run() {
        let known = format!("one {}", WALL - HOUR);
        // Ten minutes of uptime later.
        let at = |wall| sources("one", HOUR + 600_000, wall);
        let right = WALL + 600_000;
        for wall in [right, right + HOUR, right - HOUR, 0] {
            assert_eq!(shown(&known, &at(wall), WALL, true), right, "{wall}");
        }
        // Nobody is hurt when it follows.
        assert_eq!(shown(&known, &at(right + HOUR), WALL, false), right + HOUR);
        assert_eq!(shown(&known, &at(right - HOUR), WALL, false), WALL, "never before the last record");
        assert_eq!(
            shown(&known, &at(right + 1000), WALL, false),
            right,
            "small steps are the wall clock's own business"
        );
    }

    #[test]
    fn after_the_machine_was_off_only_the_wall_clock_knows() {
        let known = format!("one {}", WALL - HOUR);
        let now = sources("two", 1000, WALL + HOUR);
        assert_eq!(shown(&known, &now, WALL, true), WALL + HOUR);
        for known in ["", "one", "one x", "two y", " \n"] {
            assert_eq!(shown(known, &sources("two", 1000, WALL - 5), WALL, true), WALL, "{known:?}");
        }
        let unknown = sources("", 1000, WALL);
        assert_eq!(shown(" 77", &unknown, 0, true), WALL, "no boot is like no other");
    }

    #[test]
    fn a_clock_that_is_opened_again_is_the_same_one() {
        let directory = std::env::temp_dir().join(format!("pulc-clock-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let first = Clock::open(&directory, 0, false).unwrap();
        let second = Clock::open(&directory, first.now(), true).unwrap();
        assert_eq!(first.zero, second.zero);
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
