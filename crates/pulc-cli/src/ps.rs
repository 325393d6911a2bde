//! `pulc ps`: the jobs of the cluster with their processes on all nodes, as the local psid finds them out, and those that this
//! user's `pulc run`s on this machine have without a daemon.

use crate::daemon;
use pulc_base::boot::Gone;
use pulc_control::{JobInfo, Reply, Request};
use std::process::ExitCode;
use std::time::Duration;

#[derive(clap::Args)]
pub struct Args {}

pub fn run(_: &Args) -> ExitCode {
    let answer = daemon::connect().and_then(|client| client.map(|mut client| client.call(&Request::Ps)).transpose());
    let mut jobs = match answer {
        Ok(Some(Reply::Jobs(jobs))) => jobs,
        Ok(Some(Reply::Refused { why })) => return fail(&why),
        Ok(Some(_)) => return fail("the daemon gave an answer to another question; use the same pulc for both"),
        Ok(None) => Vec::new(),
        Err(error) => return fail(&error.to_string()),
    };
    for mut client in daemon::connect_embedded() {
        // One that does not answer is ending.
        if let Ok(Reply::Jobs(more)) = client.ask(&Request::Ps, EMBEDDED_ANSWERS_WITHIN) {
            jobs.extend(more);
        }
    }
    print!("{}", table(&jobs));
    ExitCode::SUCCESS
}

/// Generous: the process may be short of processor time.
const EMBEDDED_ANSWERS_WITHIN: Duration = Duration::from_secs(5);

fn fail(why: &str) -> ExitCode {
    eprintln!("pulc: {why}");
    ExitCode::FAILURE
}

fn table(jobs: &[JobInfo]) -> String {
    if jobs.is_empty() {
        return "no jobs\n".to_owned();
    }
    let mut text = String::new();
    for job in jobs {
        let seconds = job.age_ms as f64 / 1000.0;
        text += &format!("job {}  user {}  {} ranks  {seconds:.1} s  {}\n", job.job, job.user, job.ranks, job.command);
        for process in &job.processes {
            let state = match process.ended {
                None if process.pid == 0 => "starting".to_owned(),
                None => format!("pid {}", process.pid),
                Some(Gone::Exited(code)) => format!("exited with status {code}"),
                Some(Gone::Killed(signal)) => format!("killed by signal {signal}"),
                Some(Gone::Lost) => "lost".to_owned(),
            };
            text += &format!("  rank {:<5} node {:<16} {state}\n", process.rank, process.node);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use pulc_base::{JobId, Rank};
    use pulc_control::ProcessInfo;

    #[test]
    fn every_process_stands_on_its_line_with_node_and_state() {
        let process = |rank, ended| ProcessInfo { rank: Rank(rank), node: "alpha".to_owned(), pid: 77, ended };
        let job = JobInfo {
            job: JobId(0xabc),
            user: 5,
            command: "./prog x".to_owned(),
            ranks: 2,
            nodes: vec!["alpha".to_owned()],
            age_ms: 1500,
            processes: vec![process(0, None), process(1, Some(Gone::Killed(9)))],
        };
        let text = table(&[job]);
        assert!(text.contains("job 0000000000000abc  user 5  2 ranks  1.5 s  ./prog x\n"), "{text}");
        assert!(text.contains("rank 0     node alpha            pid 77\n"), "{text}");
        assert!(text.contains("killed by signal 9"), "{text}");
        assert_eq!(table(&[]), "no jobs\n");
    }
}
