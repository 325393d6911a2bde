//! `cargo xtask mpi`: writes what is made from the tables under `abi/mpi/` and committed (headers, symbol lists, coverage page).
//! `tidy` compares it with the tables, `dist` adds the man pages. Never edits the tables.

use crate::steps::Outcome;
use crate::tidy::Finding;
use pulc_mpi_table::{Door, headers, reports};
use std::path::Path;

pub const COVERAGE: &str = "docs/reference/mpi-coverage.md";

/// Directory of a door's `mpi.h`.
pub fn include_dir(door: Door) -> &'static str {
    match door {
        Door::Mpich => "abi/mpi/include/mpich",
        Door::Standard => "abi/mpi/include/mpi_abi",
    }
}

/// List of the names that a door exports.
pub fn symbol_list(door: Door) -> &'static str {
    match door {
        Door::Mpich => "abi/libmpi.symbols",
        Door::Standard => "abi/libmpi_abi.symbols",
    }
}

/// Every committed file that is made from the tables, with its text.
fn made() -> Vec<(String, String)> {
    let mut files = vec![(COVERAGE.to_owned(), reports::coverage())];
    for door in Door::ALL {
        files.push((format!("{}/mpi.h", include_dir(door)), headers::generate(door)));
        files.push((symbol_list(door).to_owned(), reports::symbols(door)));
    }
    files
}

pub fn write(root: &Path) -> Outcome {
    for (path, text) in made() {
        let at = root.join(&path);
        let dir = at.parent().expect("every file lies in a directory");
        std::fs::create_dir_all(dir).map_err(|error| format!("cannot make {}: {error}", dir.display()))?;
        std::fs::write(&at, text).map_err(|error| format!("cannot write {path}: {error}"))?;
        println!("wrote {path}");
    }
    Ok(())
}

/// What is committed but not what the tables give.
pub fn check(root: &Path) -> Vec<Finding> {
    let stale = |(path, text): &(String, String)| std::fs::read_to_string(root.join(path)).ok().as_ref() != Some(text);
    let finding = |path: String| Finding::new(path, 0, "is not what abi/mpi/*.txt give; run `cargo xtask mpi`");
    made().into_iter().filter(stale).map(|(path, _)| finding(path)).collect()
}

/// Writes the man pages into `dir`.
pub fn man_pages(dir: &Path) -> Outcome {
    std::fs::create_dir_all(dir).map_err(|error| format!("cannot make {}: {error}", dir.display()))?;
    for (name, text) in reports::man_pages() {
        std::fs::write(dir.join(&name), text).map_err(|error| format!("cannot write {name}: {error}"))?;
    }
    Ok(())
}
