//! `cargo xtask chaos`: the cluster under work while everything breaks that can, on namespaced nodes. `--short` does every fault once, and one
//! mix. What came of each fault is written to `docs/chaos.md`, with what of the list is tested elsewhere and what is not. Called by `main`.

use crate::record;
use crate::steps::{self, Outcome, Scratch, cargo};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

#[derive(clap::Args)]
pub struct Arguments {
    /// Every fault once, and one mix of them
    #[arg(long)]
    short: bool,
    /// Rounds, each with another seed
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Begin with this seed, which a run that failed has printed
    #[arg(long)]
    seed: Option<u64>,
    /// Only faults with this in their names; writes no table
    #[arg(long, value_name = "WORDS")]
    fault: Option<String>,
    /// Only tests with this in their name: by_itself, mixed; writes no table
    only: Option<String>,
}

impl Arguments {
    /// What `test --full` does.
    pub fn full() -> Arguments {
        Arguments { short: false, rounds: 5, seed: None, fault: None, only: None }
    }
}

/// For one round of everything.
const ROUND: Duration = Duration::from_secs(40 * 60);

pub fn run(root: &Path, arguments: &Arguments) -> Outcome {
    let rounds = if arguments.short { 1 } else { arguments.rounds };
    let scratch = Scratch::new("chaos")?;
    let report = scratch.path().join("report");
    let mut words = vec!["test", "-p", "pulc-cli", "--test", "chaos"];
    words.extend(arguments.only.as_deref());
    words.extend(["--", "--ignored", "--nocapture", "--test-threads=1"]);
    let mut command = cargo(root, &words);
    command.env("PULC_CHAOS_ROUNDS", rounds.to_string()).env("PULC_CHAOS_REPORT", &report);
    if let Some(seed) = arguments.seed {
        command.env("PULC_TEST_SEED", seed.to_string());
    }
    if let Some(fault) = &arguments.fault {
        command.env("PULC_CHAOS_FAULT", fault);
    }
    let outcome = steps::run(&mut command, ROUND * (rounds + 1));
    if arguments.fault.is_none() && arguments.only.is_none() {
        let lines = std::fs::read_to_string(&report).unwrap_or_default();
        let page = root.join("docs/chaos.md");
        std::fs::write(&page, text(&record::day_and_machine(root), &lines))
            .map_err(|error| format!("cannot write {}: {error}", page.display()))?;
        println!("wrote {}", page.display());
    }
    outcome
}

/// What came of one fault, or of one mix, in all rounds.
#[derive(Default)]
struct Came {
    cases: String,
    runs: u32,
    jobs: u64,
    broken: Vec<String>,
    /// Why it was not made.
    not_made: Option<String>,
}

/// Source: the list of faults that a resource manager has to survive; its numbers are those of `Fault::cases` in the tests.
const CASES: [(u32, &str, &str); 30] = [
    (1, "a worker's daemon is killed while a job runs", ""),
    (2, "the controller's is, while jobs are submitted", ""),
    (3, "a keeper is killed", ""),
    (4, "a process is killed, ends without a word, aborts the job", "aborts and silent ends: `jobs/endings.rs`"),
    (5, "a whole node vanishes", ""),
    (6, "a link is down for a moment, for long", ""),
    (7, "packets are lost in one direction", ""),
    (8, "packets are lost and late", "late ones are not made: the kernel here has no netem"),
    (9, "a part of the nodes is cut off", ""),
    (10, "the controller is cut off", "no other takes over: there is one"),
    (11, "a daemon is stopped and goes on", ""),
    (12, "no processor time is left", ""),
    (13, "clocks jump", "also `pulc-psid/src/queue/clock.rs`"),
    (14, "the controller's disk is full", ""),
    (15, "the disk for output is full", "`queue/life.rs`"),
    (16, "the log is torn, cut or bent", "also byte by byte: `pulc-sched/src/journal.rs`"),
    (17, "descriptors, processes, programs are missing", "`jobs/shortage.rs`, `jobs/bad_input.rs`"),
    (18, "programs fork twice, ignore signals, hide", "also `jobs/violence.rs`"),
    (19, "a process can't be killed", "`queue/stuck.rs`"),
    (20, "clients are interrupted or killed", "also `jobs/endings.rs`, `queue/commands.rs`"),
    (21, "nobody reads the output", "`jobs/output.rs`"),
    (22, "standing still meets start, cancel, loss", ""),
    (23, "cancel meets end and requeue", ""),
    (24, "everything starts anew at once", ""),
    (
        25,
        "versions are mixed",
        "daemons of two versions meet: `pulc-psid/src/mesh/hostile_tests.rs`; there is one version so far",
    ),
    (26, "names, tokens and frames are wrong", "`cluster.rs`, `replay.rs`, `pulc-psid/src/mesh/hostile_tests.rs`"),
    (
        27,
        "users and their homes are missing",
        "unknown users: `pulc-helper`'s tests; homes are not looked at, a directory that is missing is said before the start",
    ),
    (
        28,
        "orders come twice or out of order",
        "the mesh keeps order; starts and ends told twice: `pulc-sched/tests/simulation`",
    ),
    (29, "a process number is used again", "processes are known by pidfd: `pulc-psid/src/keeper`"),
    (30, "the chosen network is dead at the start", "with messages under way: `network/choice.rs`"),
];

const HEAD: &str = "# What was broken, and what was kept

Written by `cargo xtask chaos`; `--rounds` says how often, `--seed` makes a run come again. Three nodes in network namespaces, each with a
daemon of its own and two slots, run jobs of one to three processes, some of which ignore SIGTERM and all of which leave a process behind in
a session of its own; a third of them bring a file along and give one back. Each node has two networks and a health check. One fault is made among them,
then everything is healed. What jobs do they write down themselves. Checked is:

- no accepted job is lost, each is listed once and has ended;
- none began more often than it was started, and one that may not be started again began once at most;
- no job has failed but by what was done to it;
- the output of those that ended well is complete, and what they leave is at its home;
- of the processes that came to their ends no more ran at once on a node than it has slots (but for jobs that stood still);
- no process of a job is left, no slot is held; after `pulc down --all` no process and no socket is left;
- where every node answers in time and the controller lives on (*), no node is given up and no job is started again.

";

fn text(where_and_when: &str, lines: &str) -> String {
    let mut came = Vec::<(String, Came)>::new();
    for line in lines.lines() {
        let words: Vec<&str> = line.split('\t').collect();
        let [cases, what, seed, jobs, wrong] = words[..] else { continue };
        let at = came.iter().position(|(name, _)| name == what).unwrap_or_else(|| {
            came.push((what.to_owned(), Came::default()));
            came.len() - 1
        });
        let entry = &mut came[at].1;
        cases.clone_into(&mut entry.cases);
        entry.runs += 1;
        entry.jobs += jobs.parse().unwrap_or(0);
        match wrong.parse::<u64>() {
            Ok(0) => {}
            Ok(_) => entry.broken.push(seed.to_owned()),
            Err(_) => entry.not_made = Some(wrong.to_owned()),
        }
    }
    let mut text = format!("{HEAD}Last run: {where_and_when}.\n\n");
    text +=
        "| what was done | of the list below | runs | jobs accepted | promises |\n| --- | --- | --- | --- | --- |\n";
    let mut by_case = BTreeMap::<u32, Vec<&str>>::new();
    for (what, Came { cases, runs, jobs, broken, not_made }) in &came {
        let kept = match (broken.len(), not_made) {
            (0, None) => "kept".to_owned(),
            (0, Some(why)) => why.clone(),
            (count, _) => format!("BROKEN in {count}: seeds {}", broken.join(", ")),
        };
        let _ = writeln!(text, "| {what} | {} | {runs} | {jobs} | {kept} |", cases.replace(',', ", "));
        for case in cases.split(',').filter_map(|case| case.parse().ok()).filter(|_| not_made.is_none()) {
            by_case.entry(case).or_default().push(what);
        }
    }
    text += "\n## The list\n\n| | fault | made here | elsewhere, or why not |\n| --- | --- | --- | --- |\n";
    for (number, what, elsewhere) in CASES {
        let here = by_case.get(&number).map_or(0, Vec::len);
        let here = if here > 0 { format!("in {here} of the runs above") } else { "no".to_owned() };
        let _ = writeln!(text, "| {number} | {what} | {here} | {elsewhere} |");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_become_a_table() {
        let page = text(
            "some day",
            "1\ta daemon is killed\t7\t5\t0\n1\ta daemon is killed\t9\t4\t2\n\tsix faults\t7\t30\t0\n",
        );
        assert!(page.contains("| a daemon is killed | 1 | 2 | 9 | BROKEN in 1: seeds 9 |"), "{page}");
        assert!(page.contains("| six faults |  | 1 | 30 | kept |"), "{page}");
        assert!(
            page.contains("| 1 | a worker's daemon is killed while a job runs | in 1 of the runs above |"),
            "{page}"
        );
        let page = text("some day", "8\ta link loses packets (*)\t7\t5\tnot made: no filter\n");
        assert!(page.contains("Last run: some day."), "{page}");
        assert!(page.contains("| a link loses packets (*) | 8 | 1 | 5 | not made: no filter |"), "{page}");
        assert!(page.contains("| 8 | packets are lost and late | no |"), "{page}");
        assert!(CASES.iter().zip(1..).all(|(case, number)| case.0 == number));
    }
}
