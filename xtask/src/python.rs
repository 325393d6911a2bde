//! Virtual environments of Python with packages from PyPI, for what runs other people's wheels.

use crate::steps::{self, Outcome};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const FETCH: Duration = Duration::from_secs(600);
/// The release of mpi4py whose suite and wheel are run.
pub const MPI4PY: &str = "4.1.2";

/// A virtual environment at this place with these packages; made at the first call.
pub fn environment(venv: &Path, packages: &[&str]) -> Outcome {
    let complete = venv.join("complete");
    let wanted = packages.join("\n");
    if std::fs::read_to_string(&complete).is_ok_and(|there| there == wanted) {
        return Ok(());
    }
    steps::run(Command::new("python3").args(["-m", "venv"]).arg(venv), FETCH)?;
    steps::run(Command::new(venv.join("bin/pip")).args(["install", "-q"]).args(packages), FETCH)?;
    std::fs::write(&complete, wanted).map_err(|error| format!("cannot write {}: {error}", complete.display()))
}
