//! Which MPI a program gets. Ours stands in `lib/` beside this binary and is found through `LD_LIBRARY_PATH`, which keepers set; a program
//! with an old-style search path of its own (`DT_RPATH` without `DT_RUNPATH`) would look there first, so for it ours is loaded before
//! everything else. Called by `run`; reads the program's file, never runs it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Says to keepers that programs keep the MPI they were built for.
pub const NATIVE: (&str, &str) = (pulc_base::boot::ENV_MPI, "native");

/// Libraries of ours that stand for what programs ask for.
const STANDS_FOR: [(&str, &str); 3] =
    [("libmpi.so.12", "libmpi.so.12"), ("libmpich.so.12", "libmpi.so.12"), ("libmpi_abi.so.1", "libmpi_abi.so.1")];

/// Largest dynamic section and string table that are looked at.
const READ_MAX: u64 = 16 << 20;

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
    let needs = Needs::read(path)?;
    let asked = STANDS_FOR.iter().map(|(name, _)| *name).find(|name| needs.libraries.iter().any(|one| one == name));
    asked.filter(|_| needs.has_rpath && !needs.has_runpath)
}

/// What a program's dynamic section says.
struct Needs {
    libraries: Vec<String>,
    has_rpath: bool,
    has_runpath: bool,
}

impl Needs {
    /// Of a 64-bit little-endian ELF file; `None` for scripts and anything that does not add up.
    fn read(path: &Path) -> Option<Needs> {
        let file = File::open(path).ok()?;
        let at = |offset: u64, bytes: u64| -> Option<Vec<u8>> {
            let mut buffer = vec![0; usize::try_from(bytes.min(READ_MAX)).ok()?];
            file.read_exact_at(&mut buffer, offset).ok()?;
            Some(buffer)
        };
        let head = at(0, 64)?;
        if head[..6] != *b"\x7fELF\x02\x01" {
            return None;
        }
        let (start, size, count) = (word(&head, 32)?, half(&head, 54)?, half(&head, 56)?);
        let table = at(start, size * count)?;
        let segments: Vec<Segment> = table.chunks_exact(size.max(56) as usize).filter_map(Segment::read).collect();
        let dynamic = segments.iter().find(|one| one.kind == Segment::DYNAMIC)?;
        let entries = at(dynamic.offset, dynamic.bytes)?;
        let pairs: Vec<(u64, u64)> =
            entries.chunks_exact(16).map_while(|pair| Some((word(pair, 0)?, word(pair, 8)?))).collect();
        let value = |tag: u64| pairs.iter().find(|(known, _)| *known == tag).map(|(_, value)| *value);
        let strings_at = value(Self::STRTAB)?;
        let place = segments.iter().find_map(|one| one.place_of(strings_at))?;
        let strings = at(place, value(Self::STRSZ)?)?;
        let name = |offset: u64| {
            let rest = strings.get(usize::try_from(offset).ok()?..)?;
            Some(String::from_utf8_lossy(rest.split(|byte| *byte == 0).next()?).into_owned())
        };
        let needed = pairs.iter().filter(|(tag, _)| *tag == Self::NEEDED);
        Some(Needs {
            libraries: needed.filter_map(|(_, offset)| name(*offset)).collect(),
            has_rpath: value(Self::RPATH).is_some(),
            has_runpath: value(Self::RUNPATH).is_some(),
        })
    }

    const NEEDED: u64 = 1;
    const STRTAB: u64 = 5;
    const STRSZ: u64 = 10;
    const RPATH: u64 = 15;
    const RUNPATH: u64 = 29;
}

struct Segment {
    kind: u32,
    offset: u64,
    address: u64,
    bytes: u64,
}

impl Segment {
    const LOAD: u32 = 1;
    const DYNAMIC: u32 = 2;

    fn read(entry: &[u8]) -> Option<Segment> {
        let kind = u32::from_le_bytes(entry.get(..4)?.try_into().ok()?);
        Some(Segment { kind, offset: word(entry, 8)?, address: word(entry, 16)?, bytes: word(entry, 32)? })
    }

    /// Where in the file the byte at a loaded address is.
    fn place_of(&self, address: u64) -> Option<u64> {
        let inside = address.checked_sub(self.address)?;
        (self.kind == Segment::LOAD && inside < self.bytes).then(|| self.offset.checked_add(inside)).flatten()
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_libraries_of_this_program_are_read_and_it_insists_on_none() {
        let own = std::env::current_exe().unwrap();
        let needs = Needs::read(&own).unwrap();
        assert!(needs.libraries.iter().any(|name| name == "libc.so.6"), "{:?}", needs.libraries);
        assert_eq!(insists(&own), None);
        assert!(Needs::read(Path::new("/dev/null")).is_none());
        assert!(Needs::read(Path::new("Cargo.toml")).is_none());
    }

    #[test]
    fn a_file_that_is_cut_anywhere_is_no_program_and_no_panic() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let file = std::env::temp_dir().join(format!("pulc-elf-{}", std::process::id()));
        for len in [0, 5, 63, 64, 100, 500, 5000, own.len() / 2] {
            std::fs::write(&file, &own[..len.min(own.len())]).unwrap();
            let _ = Needs::read(&file);
        }
        std::fs::remove_file(&file).unwrap();
    }
}
