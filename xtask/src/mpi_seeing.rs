//! What users see of an MPI job: `pulc why` names a deadlock and says of every process where it stands, `--trace` writes a timeline, and `--stats`
//! tells each rank's messages. Called by `mpi_door`. Looks again until it sees what must come; judges no times.

use crate::steps::{self, Outcome};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Guard against hanging.
const PATIENCE: Duration = Duration::from_secs(180);

/// `program` is examples/mpi/deadlock.c, compiled; `pulc` the command.
pub fn deadlock(pulc: &Path, program: &Path) -> Outcome {
    for nodes in ["1", "2"] {
        let mut run = Command::new(pulc);
        run.args(["run", "--alone", "--kill-delay", "1", "-n", "4", "--nodes", nodes]).arg(program);
        run.env("PULC_ENDS_WITH", std::process::id().to_string()).stdin(Stdio::null()).stdout(Stdio::piped());
        let child = run.spawn().map_err(|error| format!("cannot start {}: {error}", pulc.display()))?;
        let mut job = Job { child };
        let number = job.first_line()?;
        told(pulc, &number)?;
        let mut kill = Command::new(pulc);
        steps::run(kill.args(["kill", "-9", &number]), PATIENCE)?;
    }
    println!("`pulc why` names a deadlock, on one node and on two");
    Ok(())
}

/// Asks until everything is there that must be.
fn told(pulc: &Path, job: &str) -> Outcome {
    let wanted = [
        "rank 0     node ",
        "in MPI_Recv on MPI_COMM_WORLD for ",
        "waits for rank 1 (tag 5)",
        "in MPI_Barrier on MPI_COMM_WORLD for ",
        "deadlock: rank 0 waits in MPI_Recv for rank 1, rank 1 waits in MPI_Recv for rank 0",
        "held up by it: ranks 2 and 3",
    ];
    let begin = Instant::now();
    loop {
        let text = steps::output(Command::new(pulc).args(["why", job]))?;
        let missing: Vec<&str> = wanted.into_iter().filter(|word| !text.contains(word)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        if begin.elapsed() > PATIENCE {
            return Err(format!("`pulc why {job}` does not say {missing:?}: {text}"));
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// A job that ends with this value.
struct Job {
    child: Child,
}

impl Job {
    fn first_line(&mut self) -> Result<String, String> {
        let out = self.child.stdout.take().ok_or("its output is no pipe")?;
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line).map_err(|error| format!("the job says nothing: {error}"))?;
        Ok(line.trim().to_owned())
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `program` is examples/mpi/ring.c, compiled.
pub fn timeline(pulc: &Path, program: &Path, folder: &Path) -> Outcome {
    for nodes in ["1", "2"] {
        let file = folder.join(format!("timeline-{nodes}.json"));
        let mut run = Command::new(pulc);
        run.args(["run", "--alone", "-n", "3", "--nodes", nodes, "--trace"]).arg(&file).arg(program);
        steps::run(&mut run, PATIENCE)?;
        let text = std::fs::read_to_string(&file).map_err(|error| format!("no timeline: {error}"))?;
        check(&text).map_err(|why| format!("the timeline of {nodes} nodes {why}"))?;
    }
    println!("a timeline of three processes, on one node and on two");
    Ok(())
}

/// `program` is examples/mpi/ring.c, compiled. Each rank's line tells messages that it sent and received, by the device that carried them.
pub fn statistics(pulc: &Path, program: &Path) -> Outcome {
    for (nodes, devices) in [("1", &["shm"][..]), ("3", &["net"]), ("2", &["shm", "net"])] {
        let mut run = Command::new(pulc);
        run.args(["run", "--alone", "-n", "3", "--nodes", nodes, "--stats"]).arg(program);
        let mut text = String::new();
        steps::run_lines(&mut run, PATIENCE, |line| text = format!("{text}{line}\n"))?;
        counted(&text, devices).map_err(|why| format!("--stats on {nodes} nodes {why}: {text}"))?;
    }
    println!("statistics of three processes, on one, two and three nodes");
    Ok(())
}

fn counted(text: &str, devices: &[&str]) -> Outcome {
    let mut lines = text.lines().skip_while(|line| !line.trim_start().starts_with("rank node"));
    let head = lines.next().ok_or("has no head")?;
    if let Some(device) = devices.iter().find(|device| !head.contains(&format!("{device} sent"))) {
        return Err(format!("has no column for {device}"));
    }
    for rank in 0..3 {
        let line = lines.next().ok_or(format!("has no line for rank {rank}"))?;
        let words: Vec<&str> = line.split_whitespace().collect();
        // Rank, node, time, its unit, turns; then messages and bytes each way for each device.
        let numbers: Vec<u64> = words.iter().skip(5).filter_map(|word| word.parse().ok()).collect();
        let is_whole = words.first() == Some(&rank.to_string().as_str()) && numbers.len() == 4 * devices.len();
        let total = |first: usize| numbers.iter().skip(first).step_by(4).sum::<u64>();
        if !is_whole || total(0) == 0 || total(2) == 0 {
            return Err(format!("does not tell what rank {rank} sent and received"));
        }
    }
    Ok(())
}

fn check(text: &str) -> Outcome {
    let whole = text.starts_with("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[") && text.ends_with("]}\n");
    let balance = |open: char, close: char| text.matches(open).count() == text.matches(close).count();
    if !whole || !balance('{', '}') || !balance('[', ']') {
        return Err("is no whole object".to_owned());
    }
    for rank in 0..3 {
        for wanted in
            [format!("\"name\":\"rank {rank} on "), format!("\"name\":\"MPI_Allreduce\",\"pid\":{rank},\"tid\":1,")]
        {
            if !text.contains(&wanted) {
                return Err(format!("lacks {wanted}"));
            }
        }
    }
    if text.contains("\"comm\":\"MPI_COMM_WORLD\",\"peer\":") { Ok(()) } else { Err("names no message".to_owned()) }
}
