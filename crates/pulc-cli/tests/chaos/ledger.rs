//! The work that a chaos run does and what is promised about it. Each attempt of a job writes a line into one ledger when it begins and one
//! when it ends, and numbered lines to its output; so what really ran is known without asking the queue.

use crate::Chance;
use pulc_testkit::{Cluster, finish_within, leftovers, start};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Guard against hanging.
const HANG: Duration = Duration::from_secs(150);
const LINES: usize = 20;

/// A client that has not been answered.
pub struct Submission {
    client: std::process::Child,
    requeue: bool,
}

pub struct Workload<'a> {
    pub cluster: &'a Cluster,
    /// Number of each accepted job, and whether it may be started again.
    pub accepted: BTreeMap<u64, bool>,
    /// Processes of jobs were killed.
    pub kills_processes: bool,
    mark: String,
}

impl Workload<'_> {
    pub fn new(cluster: &Cluster, seed: u64) -> Workload<'_> {
        let mark = format!("chaos-{}-{seed}", std::process::id());
        Workload { cluster, accepted: BTreeMap::new(), kills_processes: false, mark }
    }

    /// Submits so many jobs from hosts by chance. One that is refused, or whose daemon is away, was never accepted.
    pub fn submit(&mut self, chance: &mut Chance, jobs: u32) {
        for _ in 0..jobs {
            let submission = self.begin_to_submit(chance);
            self.end_to_submit(submission);
        }
    }

    /// Starts a client that submits a job from a host by chance; its answer may be long in coming.
    pub fn begin_to_submit(&self, chance: &mut Chance) -> Submission {
        let host = self.cluster.host(chance.below(self.cluster.hosts().len() as u64) as usize);
        let directory = self.cluster.directory().to_string_lossy().into_owned();
        let (ranks, requeue) = ((1 + chance.below(3)).to_string(), chance.below(3) > 0);
        let pause = ["0", "0.02", "0.1"][chance.below(3) as usize];
        let deaf = ["", "trap '' TERM; "][chance.below(2) as usize];
        let script = format!(
            "echo begin $PULC_QUEUE_JOB $PULC_ATTEMPT $PULC_RANK >> ledger; {deaf}i=0; \
             while [ $i -lt {LINES} ]; do echo $PULC_RANK line $i; i=$((i+1)); sleep {pause}; done; \
             (setsid sleep 1000 &); echo end $PULC_QUEUE_JOB $PULC_ATTEMPT $PULC_RANK >> ledger"
        );
        let mark = format!("PULC_TEST_MARK={}", self.mark);
        let mut command = host.command();
        command.args(["submit", "--parsable", "--overbook", "-D", &directory, "-o", "job-%j.out", "--env", &mark]);
        command.args(["--kill-delay", "1", "-n", &ranks, if requeue { "--requeue" } else { "--no-requeue" }]);
        Submission {
            client: start({
                command.args(["sh", "-c", &script]);
                command
            }),
            requeue,
        }
    }

    pub fn end_to_submit(&mut self, submission: Submission) {
        let said = finish_within(submission.client, HANG);
        if said.code() == Some(0)
            && let Ok(number) = said.stdout.trim().parse()
        {
            self.accepted.insert(number, submission.requeue);
        }
    }

    /// Brings every daemon back and waits until nothing is under way.
    pub fn finish(&mut self) {
        let begin = Instant::now();
        for number in 0..self.cluster.hosts().len() {
            let _ = self.cluster.heal(number);
        }
        loop {
            for host in self.cluster.hosts() {
                // 10: it is up already.
                host.pulc(&["up"]);
            }
            let jobs = self.jobs();
            let over = self.accepted.keys().all(|number| jobs.get(number).is_some_and(|job| is_over(&job["state"])));
            if over || begin.elapsed() > HANG {
                return;
            }
            std::thread::sleep(Duration::from_millis(300));
        }
    }

    fn jobs(&self) -> BTreeMap<u64, Value> {
        let host = self.cluster.host(0);
        let mut all = BTreeMap::new();
        for words in [&["queue", "--json"][..], &["history", "-n", "5000", "--json"]] {
            if let Ok(Value::Array(jobs)) = serde_json::from_str(&host.pulc(words).stdout) {
                all.extend(jobs.into_iter().filter_map(|job| Some((job["number"].as_u64()?, job))));
            }
        }
        all
    }

    /// What is not as promised.
    pub fn check(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let jobs = self.jobs();
        let ledger = std::fs::read_to_string(self.cluster.directory().join("ledger")).unwrap_or_default();
        for (number, requeue) in &self.accepted {
            let Some(job) = jobs.get(number) else {
                wrong.push(format!("job {number} was accepted and is lost"));
                continue;
            };
            let state = job["state"].as_str().unwrap_or_default();
            if !is_over(&job["state"]) {
                wrong.push(format!("job {number} never ended: {state}, {}", job["text"]));
                continue;
            }
            let ranks = job["ranks"].as_u64().unwrap_or(0);
            let lines = |word: &str, rank: u64| {
                ledger
                    .lines()
                    .filter(|line| {
                        let words: Vec<&str> = line.split(' ').collect();
                        words.first() == Some(&word)
                            && words.get(1) == Some(&number.to_string().as_str())
                            && words.get(3) == Some(&rank.to_string().as_str())
                    })
                    .count()
            };
            let attempts = job["attempt"].as_u64().unwrap_or(0) as usize + 1;
            for rank in 0..ranks {
                let begun = lines("begin", rank);
                if begun > attempts || (!requeue && begun > 1) {
                    wrong.push(format!("rank {rank} of job {number} began {begun} times in {attempts} attempts"));
                }
                if state == "COMPLETED" && lines("end", rank) == 0 {
                    wrong.push(format!("job {number} is COMPLETED but rank {rank} never came to its end"));
                }
            }
            if state == "COMPLETED" {
                wrong.extend(self.incomplete(*number, ranks, attempts));
            }
            let text = job["text"].as_str().unwrap_or_default();
            let by_us = text.contains("keeper") || (self.kills_processes && text.contains("SIGKILL"));
            if state == "FAILED" && !by_us {
                wrong.push(format!("job {number} failed for no reason of its own: {}", job["text"]));
            }
        }
        let left = || leftovers::processes("PULC_TEST_MARK", &self.mark);
        let begin = Instant::now();
        while !left().is_empty() && begin.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(50));
        }
        wrong.extend(left().into_iter().map(|process| format!("left: {process}")));
        let nodes = self.cluster.host(0).pulc(&["nodes", "--queue", "--json"]).stdout;
        if let Ok(Value::Array(nodes)) = serde_json::from_str(&nodes) {
            let held = nodes.iter().filter(|node| node["used"].as_u64() != Some(0));
            wrong.extend(held.map(|node| format!("slots are still held: {node}")));
        }
        wrong
    }

    /// Lines missing, or written twice, in the output of a job that has ended well.
    fn incomplete(&self, number: u64, ranks: u64, attempts: usize) -> Vec<String> {
        let file = self.cluster.directory().join(format!("job-{number}.out"));
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let mut wrong = Vec::new();
        for rank in 0..ranks {
            for line in 0..LINES {
                let count = text.lines().filter(|found| *found == format!("{rank} line {line}")).count();
                if count == 0 || count > attempts {
                    wrong.push(format!("job {number}: \"{rank} line {line}\" is {count} times in its output"));
                }
            }
        }
        wrong.truncate(3);
        wrong
    }

    /// What the controller remembers.
    pub fn story(&self) -> String {
        let host = self.cluster.host(0);
        let logs: String = self
            .cluster
            .hosts()
            .iter()
            .map(|host| {
                let text = std::fs::read_to_string(host.state_dir.join("daemon.log")).unwrap_or_default();
                let lines: Vec<&str> = text.lines().rev().take(40).collect();
                let lines: Vec<&str> = lines.into_iter().rev().collect();
                format!("-- daemon.log of host {}\n{}\n", host.number, lines.join("\n"))
            })
            .collect();
        format!("{}\n{}\n{logs}", host.pulc(&["events", "-n", "300"]).stdout, host.pulc(&["queue"]).stdout)
    }
}

fn is_over(state: &Value) -> bool {
    let over = ["COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "DEADLINE"];
    state.as_str().is_some_and(|state| over.contains(&state))
}
