//! `cargo xtask chaos`: the cluster under work while everything breaks that can, on namespaced nodes. `--short` is what the continuous
//! integration can afford: every fault once, and one mix. Called by `main`.

use crate::steps::{self, Outcome, cargo};
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
    /// Only tests with this in their name: by_itself, mixed
    only: Option<String>,
}

/// For one round of everything.
const ROUND: Duration = Duration::from_secs(10 * 60);

pub fn run(root: &Path, arguments: &Arguments) -> Outcome {
    let rounds = if arguments.short { 1 } else { arguments.rounds };
    let mut words = vec!["test", "-p", "pulc-cli", "--test", "chaos"];
    words.extend(arguments.only.as_deref());
    words.extend(["--", "--ignored", "--nocapture", "--test-threads=1"]);
    let mut command = cargo(root, &words);
    command.env("PULC_CHAOS_ROUNDS", rounds.to_string());
    if let Some(seed) = arguments.seed {
        command.env("PULC_TEST_SEED", seed.to_string());
    }
    steps::run(&mut command, ROUND * (rounds + 1))
}
