//! The examples in Rust (`examples/rust`): each alone, with several ranks of one node, and over nodes. They check themselves.

use super::keeper::Job;
use pulc_base::boot;
use std::path::PathBuf;
use std::process::Command;

const NAMES: [&str; 3] = ["ports", "rawdata", "active"];

/// The program, built with these tests by `cargo test -p pulc`.
fn program(name: &str) -> PathBuf {
    let deps = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let path = deps.parent().unwrap().join("examples").join(name);
    assert!(path.exists(), "{} is not there: `cargo build -p pulc --examples` first", path.display());
    path
}

/// The example as the ranks of a job.
fn job(name: &'static str, nodes: &[u32]) -> Job {
    Job { program: Some(program(name)), ..Job::on_nodes(name, nodes) }
}

#[test]
fn every_example_runs_alone() {
    for name in NAMES {
        let ended = Command::new(program(name)).env_remove(boot::ENV_KEEPER).output().unwrap();
        assert!(ended.status.success() && !ended.stdout.is_empty(), "{name}: {ended:?}");
    }
}

#[test]
fn every_example_runs_with_two_and_with_three_ranks_of_one_node() {
    for name in NAMES {
        for ranks in [2, 3] {
            job(name, &[ranks]).succeeds();
        }
    }
}

#[test]
fn every_example_runs_over_nodes() {
    for name in NAMES {
        job(name, &[1, 1]).succeeds();
        job(name, &[2, 1]).succeeds();
    }
}
