//! Which MPI a program gets. Ours stands in `lib/` beside this binary and is found through `LD_LIBRARY_PATH`, which keepers set; a program
//! with an old-style search path of its own (`DT_RPATH` without `DT_RUNPATH`) would look there first, so for it ours is loaded before
//! everything else. Called by `run`; reads the program's file, never runs it.

use pulc_hal::os::elf::Needs;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Says to keepers that programs keep the MPI they were built for.
pub const NATIVE: (&str, &str) = (pulc_base::boot::ENV_MPI, "native");

/// Libraries of ours that stand for what programs ask for.
const STANDS_FOR: [(&str, &str); 3] =
    [("libmpi.so.12", "libmpi.so.12"), ("libmpich.so.12", "libmpi.so.12"), ("libmpi_abi.so.1", "libmpi_abi.so.1")];

/// Where our MPI libraries are, if this binary stands in a tree that has them.
pub fn libraries() -> Option<PathBuf> {
    let binary = std::env::current_exe().ok()?;
    let lib = binary.parent()?.parent()?.join("lib");
    lib.join("libmpi.so.12").exists().then_some(lib)
}

/// Variables that a job needs so that `program` gets our MPI.
pub fn variables(program: &OsStr, lib: &Path, set: impl Fn(&str) -> Option<OsString>) -> Vec<(String, OsString)> {
    let mut variables = Vec::new();
    if set("MPI4PY_LIBMPI").is_none() {
        // mpi4py's wheel looks into its own environment before it asks the loader.
        variables.push(("MPI4PY_LIBMPI".to_owned(), lib.join("libmpi.so.12").into_os_string()));
    }
    let asked = found(program).and_then(|path| insists(&path));
    if let Some((_, ours)) = asked.and_then(|name| STANDS_FOR.iter().find(|(known, _)| *known == name)) {
        let mut preload = lib.join(ours).into_os_string();
        if let Some(more) = set("LD_PRELOAD") {
            preload.push(":");
            preload.push(more);
        }
        variables.push(("LD_PRELOAD".to_owned(), preload));
    }
    variables
}

/// The file that a shell would start.
fn found(program: &OsStr) -> Option<PathBuf> {
    let path = Path::new(program);
    if path.components().count() > 1 {
        return Some(path.to_path_buf());
    }
    std::env::split_paths(&std::env::var_os("PATH")?).map(|dir| dir.join(path)).find(|path| path.is_file())
}

/// The MPI library that a program asks for and would find by an old-style search path of its own.
fn insists(path: &Path) -> Option<&'static str> {
    let needs = Needs::of(path)?;
    let asked = STANDS_FOR.iter().map(|(name, _)| *name).find(|name| needs.libraries.iter().any(|one| one == name));
    asked.filter(|_| needs.has_rpath && !needs.has_runpath)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_insists_on_an_mpi_that_it_names_and_has_an_old_style_search_path_for() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/program_files");
        for (name, asked) in [
            ("an-old-search-path", Some("libmpi.so.12")),
            ("a-new-search-path", None),
            ("both-search-paths", None),
            ("behind-the-end-tag", None),
            ("a-script", None),
        ] {
            assert!(corpus.join(name).exists(), "{name}");
            assert_eq!(insists(&corpus.join(name)), asked, "{name}");
        }
        assert_eq!(insists(&std::env::current_exe().unwrap()), None);
    }
}
