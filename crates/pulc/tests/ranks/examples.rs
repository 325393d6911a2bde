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
            Job::of_program(name, program(name), &[ranks]).succeeds();
        }
    }
}

#[test]
fn every_example_runs_over_nodes() {
    for name in NAMES {
        Job::of_program(name, program(name), &[1, 1]).succeeds();
        Job::of_program(name, program(name), &[2, 1]).succeeds();
    }
}
