//! Random MPI programs: `examples/mpi/random` rolls dice for messages, collectives, communicators and datatypes and knows what has to
//! arrive. Called by `test` with a few seeds, by `test --full` with many, more processes, and a lossy network between two nodes.
//! A failure prints its seed: the program does the same again with it.

use crate::mpi_door::Tree;
use crate::steps::{self, Outcome, Scratch};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const PROGRAM: &str = "examples/mpi/random";
/// Ends what hangs; a run takes a second or so.
const RUN: Duration = Duration::from_secs(300);

/// One run: processes, nodes, seed, steps.
type Case = (u32, u32, u32, u32);

const FEW: [Case; 6] = [(1, 1, 1, 60), (2, 1, 2, 60), (3, 1, 3, 30), (5, 1, 4, 20), (2, 2, 5, 40), (4, 2, 6, 20)];

pub fn test(root: &Path, full: bool) -> Outcome {
    let scratch = Scratch::new("mpi-random")?;
    let tree = Tree::lay(root, &root.join("target/debug"), scratch.path())?;
    for compiler in ["mpicc", "mpicc_abi"] {
        let sources = sources(root)?;
        let more: Vec<&str> = sources[1..].iter().map(String::as_str).collect();
        let program = tree.compile(compiler, Path::new(&sources[0]), &more, "random")?;
        for (ranks, nodes, seed, steps) in if full { many() } else { FEW.to_vec() } {
            println!("{ranks} processes on {nodes} nodes by {compiler}, seed {seed}, {steps} steps");
            let mut job = tree.job(ranks, nodes);
            steps::run(job.arg(&program).args([seed.to_string(), steps.to_string()]), RUN)?;
        }
        if full {
            lossy(&tree, &program)?;
        }
    }
    Ok(())
}

/// All C files of the program, the one with `main` first.
fn sources(root: &Path) -> Result<Vec<String>, String> {
    let dir = std::fs::read_dir(root.join(PROGRAM)).map_err(|error| format!("cannot read {PROGRAM}: {error}"))?;
    let mut found: Vec<String> = dir.flatten().map(|entry| entry.path().display().to_string()).collect();
    found.retain(|path| path.ends_with(".c"));
    found.sort_by_key(|path| !path.ends_with("random.c"));
    Ok(found)
}

fn many() -> Vec<Case> {
    let sizes = [(2, 1), (3, 1), (4, 1), (5, 1), (7, 1), (8, 1), (16, 1), (2, 2), (3, 2), (5, 2), (8, 2), (16, 2)];
    let cases = (0..3).flat_map(|round| sizes.map(|(ranks, nodes)| (ranks, nodes, 100 * round + ranks + 17 * nodes)));
    cases.map(|(ranks, nodes, seed)| (ranks, nodes, seed, if ranks > 8 { 30 } else { 100 })).collect()
}

/// The same on two nodes whose datagrams get lost: one in twenty-five, in a network namespace that exists for this run only.
fn lossy(tree: &Tree, program: &Path) -> Outcome {
    let rules = "ip link set lo up && nft add table inet loss && \
                 nft add chain inet loss in '{ type filter hook input priority 0; }' && \
                 nft add rule inet loss in meta l4proto udp numgen random mod 25 '<' 1 drop";
    let enter = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--net", "sh", "-c", script]);
        command
    };
    let tried = enter(rules).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !tried.is_ok_and(|status| status.success()) {
        println!("not between nodes that lose datagrams: that needs user namespaces, ip and nft");
        return Ok(());
    }
    for seed in 1..=6u32 {
        let ranks = 2 + seed % 4;
        println!("{ranks} processes on 2 nodes that lose datagrams, seed {seed}");
        let job = tree.job(ranks, 2);
        let words = std::iter::once(job.get_program()).chain(job.get_args()).map(|word| word.to_string_lossy());
        let line: String = words.map(|word| format!("'{word}' ")).collect();
        let script = format!("{rules} && exec {line} '{}' {seed} 60", program.display());
        steps::run(&mut enter(&script), RUN)?;
    }
    Ok(())
}
