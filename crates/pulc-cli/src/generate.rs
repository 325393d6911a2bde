//! `pulc generate`, hidden: man pages and shell completions out of the command line's own definition. Called when the
//! relocatable tree is built.

use clap::{CommandFactory, ValueEnum};
use clap_complete::Shell;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    what: What,
    /// An existing directory to write to
    dir: PathBuf,
}

#[derive(Clone, Copy, ValueEnum)]
enum What {
    Man,
    Completions,
}

pub fn run(args: &Args) -> ExitCode {
    let written = match args.what {
        What::Man => man(&args.dir),
        What::Completions => completions(&args.dir),
    };
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pulc: cannot write to {}: {error}", args.dir.display());
            ExitCode::FAILURE
        }
    }
}

/// `pulc.1`, and `pulc-run.1` and so on for every subcommand that is shown.
fn man(dir: &Path) -> io::Result<()> {
    clap_mangen::generate_to(crate::Cli::command(), dir)
}

fn completions(dir: &Path) -> io::Result<()> {
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut crate::Cli::command(), "pulc", dir)?;
    }
    Ok(())
}
