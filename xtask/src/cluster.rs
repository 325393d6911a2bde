//! `cargo xtask cluster`: a cluster on this machine whose nodes are network namespaces, each with its own daemon and its
//! own identity. Runs one command (or a shell) on the first node and takes everything down when it ends. Needs root.

use crate::steps::Outcome;
use std::path::Path;

#[derive(clap::Args)]
pub struct Arguments {
    /// How many nodes
    #[arg(short, long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=32))]
    nodes: u8,
    /// Command to run on the first node; a shell when left out
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

pub fn run(_root: &Path, arguments: &Arguments) -> Outcome {
    Err(format!("cannot make {} nodes for {:?}: the cluster kit is not built yet", arguments.nodes, arguments.command))
}
