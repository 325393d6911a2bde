//! Runs one program after another, each with a time limit, and prints what happened at the end. Called by every other
//! command. Never leaves a program running: when a limit is over, the program and all its descendants are killed.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

/// How long lines may still come after a command has ended.
const AFTERMATH: Duration = Duration::from_secs(5);

pub type Outcome = Result<(), String>;

/// Results of the steps taken so far.
pub struct Report {
    started: Instant,
    lines: Vec<Line>,
}

struct Line {
    name: String,
    took: Duration,
    outcome: Outcome,
}

impl Report {
    pub fn new() -> Report {
        Report { started: Instant::now(), lines: Vec::new() }
    }

    /// Takes one step; its failure is kept and the next steps still run.
    pub fn step(&mut self, name: &str, body: impl FnOnce() -> Outcome) {
        println!("\n== {name}");
        let started = Instant::now();
        let outcome = body();
        if let Err(why) = &outcome {
            println!("FAILED: {why}");
        }
        self.lines.push(Line { name: name.to_string(), took: started.elapsed(), outcome });
    }

    /// The table of steps, one line each, without times where `with_times` is false.
    pub fn table(&self) -> String {
        let mut text = String::new();
        for line in &self.lines {
            let word = if line.outcome.is_ok() { "ok" } else { "FAILED" };
            text += &format!("{word:7} {:7.1} s  {}\n", line.took.as_secs_f64(), line.name);
        }
        text
    }

    /// Prints the table; fails if any step did.
    pub fn finish(self) -> Outcome {
        println!("\n{}", self.table());
        let failed: Vec<_> = self.lines.iter().filter(|line| line.outcome.is_err()).map(|l| l.name.as_str()).collect();
        println!("{} steps in {:.1} min", self.lines.len(), self.started.elapsed().as_secs_f64() / 60.0);
        if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", "))) }
    }
}

/// The cargo that runs us, in `root`, so that the same toolchain is used all the way. What it has told us about ourselves is left out: build
/// scripts that look at it would make half of the house be built again whenever cargo is used with and without us in turn.
pub fn cargo(root: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root).args(arguments);
    let about_us = |name: &str| ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|prefix| name.starts_with(prefix));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(about_us)) {
        command.env_remove(name);
    }
    command
}

/// Runs `command` with the terminal as it is; fails if it does or when `limit` is over.
pub fn run(command: &mut Command, limit: Duration) -> Outcome {
    let shown = show(command);
    let child = command.spawn().map_err(|error| format!("cannot start {shown}: {error}"))?;
    judge(&shown, wait(child, limit))
}

/// Runs `command` and hands each line that it writes (both streams, in order) to `line`.
pub fn run_lines(command: &mut Command, limit: Duration, mut line: impl FnMut(&str)) -> Outcome {
    let shown = show(command);
    let (reader, writer) = std::io::pipe().map_err(|error| format!("cannot make a pipe: {error}"))?;
    let second = writer.try_clone().map_err(|error| format!("cannot copy a pipe: {error}"))?;
    command.stdin(Stdio::null()).stdout(writer).stderr(second);
    let child = command.spawn().map_err(|error| format!("cannot start {shown}: {error}"))?;
    // The command keeps copies of the pipe's writing end; drop them so that the reader sees the end.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let (lines, arriving) = std::sync::mpsc::channel();
    // Not waited for: something that outlives the command may keep its end of the pipe open.
    std::thread::spawn(move || {
        for text in BufReader::new(reader).split(b'\n').map_while(Result::ok) {
            if lines.send(String::from_utf8_lossy(&text).into_owned()).is_err() {
                return;
            }
        }
    });
    let waiter = std::thread::spawn(move || wait(child, limit));
    loop {
        match arriving.recv_timeout(AFTERMATH) {
            Ok(text) => line(&text),
            Err(RecvTimeoutError::Timeout) if !waiter.is_finished() => {}
            Err(RecvTimeoutError::Timeout) => {
                line("(something that the command started still runs and holds its output)");
                break;
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    judge(&shown, waiter.join().map_err(|_| "the waiting thread panicked".to_string())?)
}

/// Runs `command` and returns what it wrote to stdout.
pub fn output(command: &mut Command) -> Result<String, String> {
    let shown = show(command);
    let output = command.output().map_err(|error| format!("cannot start {shown}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{shown} failed: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn judge(shown: &str, ended: Result<ExitStatus, String>) -> Outcome {
    match ended {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{shown} ended with {status}")),
        Err(why) => Err(format!("{shown} {why}")),
    }
}

fn wait(mut child: Child, limit: Duration) -> Result<ExitStatus, String> {
    let over = Arc::new(AtomicBool::new(false));
    let ended = Arc::new(AtomicBool::new(false));
    let pid = child.id();
    let guard = std::thread::spawn({
        let (over, ended) = (over.clone(), ended.clone());
        move || {
            let deadline = Instant::now() + limit;
            while !ended.load(Ordering::Acquire) {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    over.store(true, Ordering::Release);
                    kill_tree(pid);
                    return;
                }
                std::thread::park_timeout(left);
            }
        }
    });
    let status = child.wait().map_err(|error| format!("cannot be waited for: {error}"));
    ended.store(true, Ordering::Release);
    guard.thread().unpark();
    guard.join().map_err(|_| "lost its time limit".to_string())?;
    if over.load(Ordering::Acquire) {
        return Err(format!("took longer than its limit of {} s and was killed", limit.as_secs()));
    }
    status
}

/// Kills a process and everything that descends from it. The root is stopped first so that it starts nothing meanwhile.
fn kill_tree(pid: u32) {
    use rustix::process::{Pid, Signal, kill_process};
    let signal = |pid: u32, signal| {
        if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, signal);
        }
    };
    signal(pid, Signal::STOP);
    for child in children(pid) {
        kill_tree(child);
    }
    signal(pid, Signal::KILL);
}

fn children(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks
        .filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|text| text.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<u32>>())
        .collect()
}

fn show(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

/// A directory under the system's temporary one that is removed when dropped.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Result<Scratch, String> {
        let path = std::env::temp_dir().join(format!("pulc-xtask-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).map_err(|error| format!("cannot make {}: {error}", path.display()))?;
        Ok(Scratch(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_over_its_limit_is_killed_with_its_children() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 600 & echo $!; wait"]);
        let mut pids = Vec::new();
        let outcome = run_lines(&mut command, Duration::from_millis(400), |line| pids.push(line.to_string()));
        assert!(outcome.unwrap_err().contains("longer than its limit"));
        // Killed is not yet buried: wait until it is gone or a zombie.
        let lives = || {
            let state = std::fs::read_to_string(format!("/proc/{}/stat", pids[0])).unwrap_or_default();
            !state.is_empty() && !state.contains(") Z ")
        };
        let deadline = Instant::now() + Duration::from_secs(20);
        while lives() {
            assert!(Instant::now() < deadline, "the grandchild still lives");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_failing_step_fails_the_report_and_the_next_one_still_runs() {
        let mut report = Report::new();
        let mut ran = false;
        report.step("bad", || Err("planted".into()));
        report.step("good", || {
            ran = true;
            Ok(())
        });
        assert!(ran);
        assert_eq!(report.finish(), Err("failed: bad".into()));
    }
}
