//! `cargo xtask fuzz`: looks for new inputs with cargo-fuzz and a nightly compiler, each target for some seconds. Called by `main`
//! and by `test --full`; where there is no such compiler it says how to get one. New inputs of interest stay in `fuzz/corpus/`,
//! what breaks a target in `fuzz/artifacts/`.

use crate::steps::{self, Outcome};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

#[derive(clap::Args)]
pub struct Arguments {
    /// One target; all of them without it
    target: Option<String>,
    /// How long each target runs
    #[arg(long, default_value_t = 60)]
    seconds: u64,
}

impl Arguments {
    /// All targets, each for so long.
    pub fn each(seconds: u64) -> Arguments {
        Arguments { target: None, seconds }
    }
}

/// For building all targets once.
const BUILD: Duration = Duration::from_secs(30 * 60);

pub fn run(root: &Path, arguments: &Arguments) -> Outcome {
    if !is_there(root) {
        return Err("needs a nightly compiler and cargo-fuzz: `rustup toolchain install nightly --profile minimal`, \
                    `cargo install cargo-fuzz`; without them `cargo test` replays the corpora"
            .to_owned());
    }
    steps::run(cargo_fuzz(root).arg("build"), BUILD)?;
    let targets = match &arguments.target {
        Some(target) => vec![target.clone()],
        None => targets(root)?,
    };
    for target in &targets {
        println!("\n-- {target}");
        let limits = ["-max_len=4096", "-timeout=20", "-rss_limit_mb=4096", "-print_final_stats=1"];
        let mut command = cargo_fuzz(root);
        command.args(["run", target, "--", &format!("-max_total_time={}", arguments.seconds)]).args(limits);
        steps::run(&mut command, Duration::from_secs(arguments.seconds + 300))?;
    }
    Ok(())
}

/// Whether there are both, for this user.
pub fn is_there(root: &Path) -> bool {
    let asked = cargo_fuzz(root).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    asked.is_ok_and(|status| status.success())
}

/// The nightly cargo, whichever called us.
fn cargo_fuzz(root: &Path) -> Command {
    let mut command = Command::new("cargo");
    command.current_dir(root).args(["+nightly", "fuzz"]).env_remove("CARGO").env_remove("RUSTUP_TOOLCHAIN");
    command
}

fn targets(root: &Path) -> Result<Vec<String>, String> {
    let folder = root.join("fuzz/fuzz_targets");
    let entries = std::fs::read_dir(&folder).map_err(|error| format!("cannot read {}: {error}", folder.display()))?;
    let mut names: Vec<String> = entries
        .flatten()
        .filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".rs")?.to_owned()))
        .collect();
    names.sort();
    Ok(names)
}
