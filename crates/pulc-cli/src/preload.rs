//! Our libraries that the loader puts in front of unmodified programs: where they lie, and how `LD_PRELOAD` names them. Called by `run` and
//! `bypass`.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

pub const VARIABLE: &str = "LD_PRELOAD";
pub const ALLOCATOR: &str = "libpulc_alloc.so";
pub const SOCKETS: &str = "libpulc_sockets.so";

/// In `lib` beside this program's `bin`, or in a build tree beside this program.
enum Found {
    Installed(PathBuf),
    Beside(PathBuf),
}

fn find(library: &str) -> Result<Option<Found>, String> {
    let program = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    let installed = program.parent().and_then(std::path::Path::parent).map(|root| root.join("lib").join(library));
    if let Some(library) = installed.filter(|library| library.exists()) {
        return Ok(Some(Found::Installed(library)));
    }
    let beside = program.with_file_name(library);
    Ok(beside.exists().then_some(Found::Beside(beside)))
}

/// For ranks, on whatever node: installed, it is found by its name, for their search path names `lib`.
pub fn of_jobs(library: &str, flag: &str) -> Result<OsString, String> {
    match find(library)? {
        Some(Found::Installed(_)) => Ok(library.into()),
        Some(Found::Beside(path)) => Ok(path.into()),
        None => Err(format!(
            "{library} lies neither in lib beside this program's bin nor beside it; without {flag} the job runs"
        )),
    }
}

/// For a program on this machine.
pub fn here(library: &str) -> Result<OsString, String> {
    match find(library)? {
        Some(Found::Installed(path) | Found::Beside(path)) => Ok(path.into()),
        None => Err(format!(
            "{library} lies neither in lib beside this program's bin nor beside it; build it with \
             `cargo build -p pulc-sockets-preload`"
        )),
    }
}

/// `library` before what is preloaded already.
pub fn in_front(library: OsString, others: &OsStr) -> OsString {
    let mut all = library;
    if !others.is_empty() {
        all.push(":");
        all.push(others);
    }
    all
}
