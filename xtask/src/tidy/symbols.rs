//! The names that our libraries export are a promise to compiled programs: they are committed under abi/ and compared with
//! what was built. Needs `nm` (binutils, which every C compiler brings).

use super::Finding;
use crate::steps;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// A library and the list of what it exports.
pub struct Promise {
    pub list: &'static str,
    /// As cargo calls it under target/.
    pub built: &'static str,
}

pub static PROMISES: [Promise; 5] = [NATIVE, ALLOC, SOCKETS, MPICH, MPI_ABI];
pub const NATIVE: Promise = Promise { list: "abi/libpulc.symbols", built: "libpulc_c.so" };
pub const ALLOC: Promise = Promise { list: "abi/libpulc_alloc.symbols", built: "libpulc_alloc.so" };
pub const SOCKETS: Promise = Promise { list: "abi/libpulc_sockets.symbols", built: "libpulc_sockets.so" };
pub const MPICH: Promise = Promise { list: "abi/libmpi.symbols", built: "libpulc_mpich.so" };
pub const MPI_ABI: Promise = Promise { list: "abi/libmpi_abi.symbols", built: "libpulc_mpi_abi.so" };

impl Promise {
    /// The library that was built last, in whatever profile.
    pub fn newest(&self, root: &Path) -> Option<PathBuf> {
        let profiles = ["debug", "release", "dist"].map(|profile| root.join("target").join(profile).join(self.built));
        let time =
            |path: &Path| std::fs::metadata(path).and_then(|meta| meta.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
        profiles.into_iter().filter(|path| path.exists()).max_by_key(|path| time(path))
    }

    /// Compares what `library` exports with the committed list.
    pub fn check(&self, root: &Path, library: &Path) -> Result<Vec<Finding>, String> {
        let mut nm = Command::new("nm");
        nm.args(["--dynamic", "--defined-only", "--format=posix"]).arg(library);
        let exported = names(&steps::output(&mut nm)?);
        let listed = std::fs::read_to_string(root.join(self.list))
            .map_err(|error| format!("cannot read {}: {error}", self.list))?;
        Ok(compare(self.list, &listed, &exported))
    }
}

fn compare(list: &str, listed: &str, exported: &[String]) -> Vec<Finding> {
    let listed: Vec<&str> = listed.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    let mut findings = Vec::new();
    for name in exported.iter().filter(|name| !listed.contains(&name.as_str())) {
        let text = format!("the library exports {name}, which is not listed; list it once it is meant to stay");
        findings.push(Finding::new(list, 0, text));
    }
    for name in listed.iter().filter(|name| !exported.iter().any(|found| found == *name)) {
        findings.push(Finding::new(list, 0, format!("lists {name}, which the library no longer exports")));
    }
    findings
}

/// Names in the output of `nm --format=posix`.
fn names(text: &str) -> Vec<String> {
    text.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_too_many_and_too_few_are_found() {
        let exported = names("pulc_attach T 0000 0010\npulc_new T 0000 0010\n");
        let found = compare("list", "# promise\npulc_attach\npulc_gone\n", &exported);
        let texts: Vec<_> = found.iter().map(|finding| finding.text.as_str()).collect();
        assert_eq!(texts.len(), 2);
        assert!(texts[0].contains("exports pulc_new"));
        assert!(texts[1].contains("lists pulc_gone"));
        assert!(compare("list", "pulc_attach\npulc_new\n", &exported).is_empty());
    }
}
