//! `pulc bench`: measurements; see `pulc-bench`.

use std::process::ExitCode;

pub type Args = pulc_bench::Args;

pub fn run(args: &Args) -> ExitCode {
    pulc_bench::run(args).unwrap_or_else(|error| {
        eprintln!("pulc: bench: {error}");
        ExitCode::FAILURE
    })
}
