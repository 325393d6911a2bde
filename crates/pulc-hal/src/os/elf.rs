//! What a program asks the dynamic loader for: the libraries that its file names, and whether it brings a search path of its own. Called
//! by the launcher for files of users; runs nothing, and believes no number in the file.
//! Source: System V ABI, chapters 4 and 5 (object files, dynamic linking); ld.so(8) for `DT_RPATH` and `DT_RUNPATH`.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Largest table of segments, dynamic section and string table that are looked at.
const READ_MAX: u64 = 16 << 20;
/// Longest name of a library, and most of them that are kept.
const NAME_MAX: usize = 4096;
const LIBRARIES_MAX: usize = 4096;

const HEAD_BYTES: u64 = 64;
/// Class, byte order: 64 bits, little end first.
const MAGIC: &[u8; 6] = b"\x7fELF\x02\x01";
/// Where the table of segments is, how long an entry is, how many there are.
const AT_TABLE: usize = 32;
const AT_ENTRY_BYTES: usize = 54;
const AT_ENTRIES: usize = 56;
/// Shortest entry that holds what is read here.
const ENTRY_BYTES_MIN: u64 = 56;

/// Tags of the dynamic section.
const NEEDED: u64 = 1;
const STRTAB: u64 = 5;
const STRSZ: u64 = 10;
const RPATH: u64 = 15;
const RUNPATH: u64 = 29;

/// What a program's dynamic section says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Needs {
    pub libraries: Vec<String>,
    /// Searched before `LD_LIBRARY_PATH` …
    pub has_rpath: bool,
    /// … and this one after it; where both stand, only this one counts.
    pub has_runpath: bool,
    /// What they say: directories with colons between them, as they stand in the file.
    pub rpath: Vec<String>,
    pub runpath: Vec<String>,
}

impl Needs {
    /// Of a 64-bit little-endian ELF file; `None` for scripts, for programs without a dynamic section, and for what does not add up.
    pub fn of(path: &Path) -> Option<Needs> {
        let file = File::open(path).ok()?;
        Needs::read(|offset, bytes| {
            let mut buffer = vec![0; bytes];
            file.read_exact_at(&mut buffer, offset).ok()?;
            Some(buffer)
        })
    }

    /// The same of whatever gives so many bytes from an offset on, or nothing if it has not that many.
    pub fn read(at: impl Fn(u64, usize) -> Option<Vec<u8>>) -> Option<Needs> {
        let at = |offset: u64, bytes: u64| at(offset, usize::try_from(bytes.min(READ_MAX)).ok()?);
        let head = at(0, HEAD_BYTES)?;
        if !head.starts_with(MAGIC) {
            return None;
        }
        let entry_bytes = half(&head, AT_ENTRY_BYTES)?;
        let table = at(word(&head, AT_TABLE)?, entry_bytes * half(&head, AT_ENTRIES)?)?;
        let entries = table.chunks_exact(entry_bytes.max(ENTRY_BYTES_MIN) as usize);
        let segments: Vec<Segment> = entries.filter_map(Segment::read).collect();
        let dynamic = segments.iter().find(|one| one.kind == Segment::DYNAMIC)?;
        let section = at(dynamic.offset, dynamic.bytes)?;
        let pair = |pair: &[u8; 16]| Some((word(pair, 0)?, word(pair, 8)?));
        // Tag 0 ends it; what follows is room.
        let pairs = section.as_chunks::<16>().0.iter().filter_map(pair).take_while(|(tag, _)| *tag != 0);
        let pairs: Vec<(u64, u64)> = pairs.collect();
        let value = |tag: u64| pairs.iter().find(|(known, _)| *known == tag).map(|(_, value)| *value);
        let strings_at = value(STRTAB)?;
        let place = segments.iter().find_map(|one| one.place_of(strings_at))?;
        let strings = at(place, value(STRSZ)?)?;
        let name = |offset: u64| {
            let rest = strings.get(usize::try_from(offset).ok()?..)?;
            let name = rest.split(|byte| *byte == 0).next().filter(|name| name.len() <= NAME_MAX)?;
            Some(String::from_utf8_lossy(name).into_owned())
        };
        let search = |tag| value(tag).and_then(name).into_iter().collect();
        let needed = pairs.iter().filter(|(tag, _)| *tag == NEEDED).take(LIBRARIES_MAX);
        Some(Needs {
            libraries: needed.filter_map(|(_, offset)| name(*offset)).collect(),
            has_rpath: value(RPATH).is_some(),
            has_runpath: value(RUNPATH).is_some(),
            rpath: search(RPATH),
            runpath: search(RUNPATH),
        })
    }
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

/// The bytes as a program's file; and as what follows the head of one, since no chance makes that.
pub(crate) fn fuzz_program(bytes: &[u8]) {
    let mut whole = vec![0; HEAD_BYTES as usize];
    whole[..MAGIC.len()].copy_from_slice(MAGIC);
    whole[AT_TABLE] = HEAD_BYTES as u8;
    whole[AT_ENTRY_BYTES] = ENTRY_BYTES_MIN as u8;
    whole[AT_ENTRIES] = bytes.first().copied().unwrap_or_default();
    whole.extend_from_slice(bytes);
    for file in [bytes, &whole] {
        let at = |offset: u64, len: usize| {
            let rest = file.get(usize::try_from(offset).ok()?..)?;
            Some(rest.get(..len)?.to_vec())
        };
        if let Some(needs) = Needs::read(at) {
            assert!(needs.libraries.len() <= LIBRARIES_MAX);
            // Bytes that are no text grow threefold.
            assert!(needs.libraries.iter().all(|name| name.len() <= 3 * NAME_MAX && !name.contains('\0')));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(file: &[u8]) -> Option<Needs> {
        Needs::read(|offset, len| Some(file.get(usize::try_from(offset).ok()?..)?.get(..len)?.to_vec()))
    }

    #[test]
    fn the_libraries_of_this_program_are_read() {
        let own = std::env::current_exe().unwrap();
        let needs = Needs::of(&own).unwrap();
        assert!(needs.libraries.iter().any(|name| name == "libc.so.6"), "{:?}", needs.libraries);
        assert_eq!(Needs::of(Path::new("/dev/null")), None);
        assert_eq!(Needs::of(Path::new("Cargo.toml")), None);
        assert_eq!(Needs::of(Path::new("/nowhere")), None);
    }

    #[test]
    fn a_program_that_is_cut_anywhere_is_none_or_says_the_same() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let whole = read(&own).unwrap();
        for len in [0, 5, 63, 64, 100, 500, 5000, own.len() / 2, own.len() - 1] {
            assert!(read(&own[..len]).is_none_or(|needs| needs == whole), "cut at {len}");
        }
    }
}
