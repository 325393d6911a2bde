//! Our libraries that the loader puts in front of unmodified programs: where they lie, and how `LD_PRELOAD` names them. Called by `run` and
//! `bypass`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

pub const VARIABLE: &str = "LD_PRELOAD";
pub const SEARCH: &str = "LD_LIBRARY_PATH";
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

/// What a program on this machine is started with, so that the loader finds a library.
pub struct Here {
    pub library: OsString,
    /// A folder to be searched first. The loader takes blanks in `LD_PRELOAD` for separators, so a path with one is cut in two.
    pub search: Option<OsString>,
}

pub fn here(library: &str) -> Result<Here, String> {
    let Some(Found::Installed(path) | Found::Beside(path)) = find(library)? else {
        return Err(format!(
            "{library} lies neither in lib beside this program's bin nor beside it; build it with \
             `cargo build -p pulc-sockets-preload`"
        ));
    };
    named(path, library)
}

fn named(path: PathBuf, library: &str) -> Result<Here, String> {
    let text = path.as_os_str().as_bytes();
    if text.contains(&b':') || text.contains(&b';') {
        return Err(format!(
            "{}: the loader finds nothing below a folder with a colon or semicolon in its name",
            path.display()
        ));
    }
    if text.contains(&b' ') {
        let search = path.parent().map(|folder| folder.as_os_str().to_owned());
        return Ok(Here { library: library.into(), search });
    }
    Ok(Here { library: path.into(), search: None })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_with_a_blank_is_searched_and_one_with_a_colon_is_refused() {
        let plain = named("/opt/pulc/lib/libx.so".into(), "libx.so").unwrap();
        assert_eq!((plain.library, plain.search), ("/opt/pulc/lib/libx.so".into(), None));
        let blank = named("/some where/lib/libx.so".into(), "libx.so").unwrap();
        assert_eq!((blank.library, blank.search), ("libx.so".into(), Some("/some where/lib".into())));
        assert!(named("/a:b/lib/libx.so".into(), "libx.so").is_err());
    }
}
