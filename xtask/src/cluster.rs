//! `cargo xtask cluster`: a cluster on this machine whose nodes are network namespaces, each with its own daemon and its
//! own identity. Runs one command (or a shell) on the first node and takes everything down when it ends. The work is done
//! by an example of `pulc-testkit`, which the whole-system tests use too.

use crate::steps::{self, Outcome};
use std::path::Path;
use std::time::Duration;

#[derive(clap::Args)]
pub struct Arguments {
    /// How many nodes
    #[arg(short, long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=32))]
    nodes: u8,
    /// Command to run on the first node; a shell when left out
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

const BUILD: Duration = Duration::from_secs(1200);
/// A person works in it; the limit only ends what was forgotten.
const SESSION: Duration = Duration::from_secs(24 * 3600);

pub fn run(root: &Path, arguments: &Arguments) -> Outcome {
    steps::run(&mut steps::cargo(root, &["build", "-q", "--release", "-p", "pulc-cli"]), BUILD)?;
    let example = ["build", "-q", "--release", "-p", "pulc-testkit", "--example", "local_cluster"];
    steps::run(&mut steps::cargo(root, &example), BUILD)?;
    let built = root.join("target/release");
    let mut cluster = std::process::Command::new(built.join("examples/local_cluster"));
    cluster.arg(built.join("pulc")).arg(arguments.nodes.to_string()).args(&arguments.command);
    steps::run(&mut cluster, SESSION)
}
