//! The work that a chaos run does and what is promised about it. Each attempt of a job writes a line into one ledger when it begins and one
//! when it ends, and numbered lines to its output; so what really ran is known without asking the queue.

use crate::Chance;
use pulc_testkit::{Cluster, finish_within, leftovers, start};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Guard against hanging.
const HANG: Duration = Duration::from_secs(150);
const LINES: usize = 20;
/// What is in the file that some jobs bring along.
const BROUGHT: &str = "all of it\n";

/// A client that has not been answered.
pub struct Submission {
    client: std::process::Child,
    requeue: bool,
    stages: bool,
}

pub struct Workload<'a> {
    pub cluster: &'a Cluster,
    /// Number of each accepted job, and whether it may be started again.
    pub accepted: BTreeMap<u64, bool>,
    /// Those that give a file back.
    pub gives_back: BTreeSet<u64>,
    /// Words in the texts of jobs that failed because of what was done to them.
    pub excuses: Vec<&'static str>,
    /// Jobs that stood still, whose slots others may have had.
    pub stood_still: BTreeSet<u64>,
    /// Why a fault could not be made here.
    pub not_made: Option<String>,
    mark: String,
}

impl Workload<'_> {
    pub fn new(cluster: &Cluster, seed: u64) -> Workload<'_> {
        let mark = format!("chaos-{}-{seed}", std::process::id());
        std::fs::write(cluster.directory().join("brought"), BROUGHT).expect("a file of the test can be written");
        Workload {
            cluster,
            accepted: BTreeMap::new(),
            gives_back: BTreeSet::new(),
            excuses: Vec::new(),
            stood_still: BTreeSet::new(),
            not_made: None,
            mark,
        }
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
        // Some bring a file along and give one back.
        let stages = chance.below(3) == 0;
        let leaves = if stages { "cat brought > left; " } else { "" };
        let deaf = ["", "trap '' TERM; "][chance.below(2) as usize];
        let script = format!(
            "tell() {{ read up rest < /proc/uptime; \
             echo $1 $PULC_QUEUE_JOB $PULC_ATTEMPT $PULC_RANK $PULC_NODE $PULC_NODE_LIST $up >> {directory}/ledger; }}; \
             tell begin; {deaf}i=0; \
             while [ $i -lt {LINES} ]; do echo $PULC_RANK line $i; i=$((i+1)); sleep {pause}; done; \
             (setsid sleep 1000 &); {leaves}tell end"
        );
        let mark = format!("PULC_TEST_MARK={}", self.mark);
        let mut command = host.command();
        command.args(["submit", "--parsable", "-D", &directory, "-o", "job-%j.out", "--env", &mark]);
        // Far longer than it takes, and shorter than clocks jump.
        command.args(["-t", "30"]);
        command.args(["--kill-delay", "1", "-n", &ranks, if requeue { "--requeue" } else { "--no-requeue" }]);
        if stages {
            command.args([
                "--stage-in",
                &format!("{directory}/brought"),
                "--stage-out",
                &format!("left:{directory}/back-%j"),
            ]);
        }
        Submission {
            client: start({
                command.args(["sh", "-c", &script]);
                command
            }),
            requeue,
            stages,
        }
    }

    pub fn end_to_submit(&mut self, submission: Submission) {
        let said = finish_within(submission.client, HANG);
        if said.code() == Some(0)
            && let Ok(number) = said.stdout.trim().parse()
        {
            self.accepted.insert(number, submission.requeue);
            if submission.stages {
                self.gives_back.insert(number);
            }
        }
    }

    /// Brings every daemon back and waits until all are connected and nothing is under way.
    pub fn finish(&mut self) {
        let begin = Instant::now();
        for number in 0..self.cluster.hosts().len() {
            let _ = self.cluster.heal(number);
            let _ = self.cluster.heal_second(number);
        }
        loop {
            for host in self.cluster.hosts() {
                // 10: it is up already.
                host.pulc(&["up"]);
            }
            let (jobs, _) = self.jobs();
            // Also those whose clients never learned of it.
            let over = self.accepted.keys().all(|number| jobs.contains_key(number))
                && jobs.values().all(|job| is_over(&job["state"]));
            if (over && self.all_up()) || begin.elapsed() > HANG {
                return;
            }
            std::thread::sleep(Duration::from_millis(300));
        }
    }

    /// Whether the controller sees every node: only then what it has given up is ended where it went on.
    fn all_up(&self) -> bool {
        let nodes = array(&self.cluster.host(0).pulc(&["nodes", "--queue", "--json"]).stdout);
        nodes.iter().filter(|node| node["state"] == "up").count() == self.cluster.hosts().len()
    }

    /// What the controller says of all jobs, and what it says twice.
    fn jobs(&self) -> (BTreeMap<u64, Value>, Vec<String>) {
        let host = self.cluster.host(0);
        let (mut all, mut twice) = (BTreeMap::new(), Vec::new());
        for words in [&["queue", "--json"][..], &["history", "-n", "5000", "--json"]] {
            let mut listed = BTreeSet::new();
            for job in array(&host.pulc(words).stdout) {
                let Some(number) = job["number"].as_u64() else { continue };
                if !listed.insert(number) {
                    twice.push(format!("job {number} is in `pulc {}` twice", words[0]));
                }
                // One that has ended between the two questions is in both.
                all.insert(number, job);
            }
        }
        (all, twice)
    }

    /// What is not as promised.
    pub fn check(&self) -> Vec<String> {
        let (jobs, mut wrong) = self.jobs();
        let text = std::fs::read_to_string(self.cluster.directory().join("ledger")).unwrap_or_default();
        let ledger: Vec<Entry> = text.lines().filter_map(Entry::parse).collect();
        for (number, requeue) in &self.accepted {
            match jobs.get(number) {
                Some(job) => wrong.extend(self.check_job(*number, *requeue, job, &ledger)),
                None => wrong.push(format!("job {number} was accepted and is lost")),
            }
        }
        wrong.extend(self.booked_twice(&ledger));
        let left = || leftovers::processes("PULC_TEST_MARK", &self.mark);
        let begin = Instant::now();
        while !left().is_empty() && begin.elapsed() < HANG {
            std::thread::sleep(Duration::from_millis(50));
        }
        wrong.extend(left().into_iter().map(|process| format!("left: {process}")));
        let nodes = array(&self.cluster.host(0).pulc(&["nodes", "--queue", "--json"]).stdout);
        if nodes.is_empty() {
            wrong.push("the controller says nothing of its nodes".to_owned());
        }
        let held = nodes.iter().filter(|node| node["used"].as_u64() != Some(0));
        wrong.extend(held.map(|node| format!("slots are still held: {node}")));
        wrong
    }

    fn check_job(&self, number: u64, requeue: bool, job: &Value, ledger: &[Entry]) -> Vec<String> {
        let state = job["state"].as_str().unwrap_or_default();
        if !is_over(&job["state"]) {
            return vec![format!("job {number} never ended: {state}, {}", job["text"])];
        }
        let mut wrong = Vec::new();
        let ranks = job["ranks"].as_u64().unwrap_or(0);
        let attempts = job["attempt"].as_u64().unwrap_or(0) as usize + 1;
        for rank in 0..ranks {
            let lines = |word: &'static str| {
                let mine = move |line: &&Entry| line.word == word && line.job == number && line.rank == rank;
                ledger.iter().filter(mine).count()
            };
            let begun = lines("begin");
            if begun > attempts || (!requeue && begun > 1) {
                wrong.push(format!("rank {rank} of job {number} began {begun} times in {attempts} attempts"));
            }
            if state == "COMPLETED" && lines("end") == 0 {
                wrong.push(format!("job {number} is COMPLETED but rank {rank} never came to its end"));
            }
        }
        if state == "COMPLETED" {
            wrong.extend(self.incomplete(number, ranks, attempts));
            let back = || std::fs::read_to_string(self.cluster.directory().join(format!("back-{number}")));
            if self.gives_back.contains(&number) && back().ok().as_deref() != Some(BROUGHT) {
                wrong.push(format!("job {number} is COMPLETED, and what it has left came back as {:?}", back()));
            }
        }
        let text = job["text"].as_str().unwrap_or_default();
        if state == "FAILED" && !self.excuses.iter().any(|excuse| text.contains(excuse)) {
            wrong.push(format!("job {number} failed for no reason of its own: {}", job["text"]));
        }
        wrong
    }

    /// More processes on a node at once than it has slots. Only those count that came to their ends: how long others lived nobody knows.
    fn booked_twice(&self, ledger: &[Entry]) -> Vec<String> {
        let mut moments = BTreeMap::<&str, Vec<(u64, i32)>>::new();
        for begin in ledger.iter().filter(|line| line.word == "begin" && !self.stood_still.contains(&line.job)) {
            let same = |line: &&Entry| {
                line.word == "end" && (line.job, line.attempt, line.rank) == (begin.job, begin.attempt, begin.rank)
            };
            if let Some(end) = ledger.iter().find(same).filter(|end| end.at > begin.at) {
                moments.entry(&begin.node).or_default().extend([(begin.at, 1), (end.at, -1)]);
            }
        }
        let mut wrong = Vec::new();
        for (node, mut moments) in moments {
            // At the same moment, ends first.
            moments.sort_unstable();
            let (mut now, mut most) = (0, 0);
            for (_, change) in moments {
                now += change;
                most = most.max(now);
            }
            if most > crate::SLOTS as i32 {
                wrong.push(format!("{most} processes at once on node {node}, which has {} slots", crate::SLOTS));
            }
        }
        wrong
    }

    /// Nodes and attempts that were given up by a controller that has lived all the time.
    pub fn nodes_given_up(&self) -> Vec<String> {
        let events = self.cluster.host(0).pulc(&["events", "-n", "2000"]).stdout;
        let is_bad = |line: &&str| ["is down", "was lost", "has not come back"].iter().any(|word| line.contains(word));
        let mut wrong: Vec<String> =
            events.lines().filter(is_bad).map(|line| format!("a node that lived was given up: {line}")).collect();
        let again = self.jobs().0.into_iter().filter(|(_, job)| job["attempt"].as_u64() != Some(0));
        wrong.extend(again.map(|(number, job)| format!("job {number} was started again: {}", job["text"])));
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

/// One line of the ledger.
struct Entry {
    word: String,
    job: u64,
    attempt: u64,
    rank: u64,
    node: String,
    /// Hundredths of a second since the machine was started.
    at: u64,
}

impl Entry {
    /// None for a line that was cut short.
    fn parse(line: &str) -> Option<Entry> {
        let words: Vec<&str> = line.split(' ').collect();
        let [word, job, attempt, rank, index, nodes, at] = words[..] else { return None };
        let node = nodes.split(',').nth(index.parse().ok()?)?;
        Some(Entry {
            word: word.to_owned(),
            job: job.parse().ok()?,
            attempt: attempt.parse().ok()?,
            rank: rank.parse().ok()?,
            node: node.rsplit_once(':')?.0.to_owned(),
            at: at.replace('.', "").parse().ok()?,
        })
    }
}

/// What a command has said with `--json`; nothing if it failed.
pub fn array(json: &str) -> Vec<Value> {
    match serde_json::from_str(json) {
        Ok(Value::Array(values)) => values,
        _ => Vec::new(),
    }
}

fn is_over(state: &Value) -> bool {
    let over = ["COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "DEADLINE"];
    state.as_str().is_some_and(|state| over.contains(&state))
}
