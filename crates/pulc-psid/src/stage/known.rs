//! What is in the files of this machine that jobs name: hashes, kept as long as a file has not been written since. Reads files and
//! therefore blocks: called on threads for that only. Believes a hash only as long as size, times and inode are the same, and none that
//! was taken of a file written a moment before, since a second write in that moment could leave the same times.

use crate::error::shortage;
use pulc_control::stage::Content;
use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

/// Files that are remembered; beyond this all are forgotten, which costs reading them again.
const KNOWN_MAX: usize = 16 << 10;
/// A file written so shortly before may be written again without looking different.
const SETTLED: Duration = Duration::from_secs(1);
const READ_BYTES: usize = 1 << 20;

/// One version of a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Version {
    device: u64,
    inode: u64,
    bytes: u64,
    written: (i64, i64),
    changed: (i64, i64),
}

impl Version {
    fn of(data: &Metadata, whose: Whose) -> Version {
        Version {
            device: data.dev(),
            inode: data.ino(),
            bytes: data.len(),
            written: (data.mtime(), data.mtime_nsec()),
            changed: match whose {
                Whose::Users => (data.ctime(), data.ctime_nsec()),
                // Each link that a job gets changes that.
                Whose::Ours => (0, 0),
            },
        }
    }

    fn is_settled(&self) -> bool {
        let (seconds, nanos) = self.changed.max(self.written);
        let changed = Duration::new(seconds.try_into().unwrap_or(0), nanos.try_into().unwrap_or(0));
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        changed + SETTLED < now
    }
}

/// Who writes to a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whose {
    Users,
    /// The cache's own: nobody should.
    Ours,
}

#[derive(Default)]
pub struct Known {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    versions: HashMap<Version, [u8; 32]>,
    /// Where something was last seen.
    places: HashMap<Content, PathBuf>,
}

impl Known {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is in a file, and its permission bits. `tick` is called while a long one is read.
    ///
    /// # Errors
    /// What keeps it from being read, without its path.
    ///
    /// # Blocking
    /// As long as reading it takes.
    pub fn look(&self, path: &Path, whose: Whose, tick: &dyn Fn()) -> Result<(Content, u32), String> {
        let words = |error: std::io::Error| shortage(&error);
        // Not a FIFO that nobody opens at the other end.
        if !std::fs::metadata(path).map_err(words)?.is_file() {
            return Err("it is not a regular file".to_owned());
        }
        let mut file = File::open(path).map_err(words)?;
        let data = file.metadata().map_err(words)?;
        if !data.is_file() {
            return Err("it is not a regular file".to_owned());
        }
        let version = Version::of(&data, whose);
        let known = self.inner().versions.get(&version).copied();
        let hash = match known {
            Some(hash) => hash,
            None => {
                let hash = hash_of(&mut file, version.bytes, tick)?;
                let after = file.metadata().map_err(words)?;
                if Version::of(&after, whose) != version {
                    return Err("it is being written".to_owned());
                }
                if version.is_settled() {
                    self.remember(version, hash);
                }
                hash
            }
        };
        let content = Content { hash, bytes: version.bytes };
        if whose == Whose::Users {
            let mut inner = self.inner();
            if inner.places.len() >= KNOWN_MAX {
                inner.places.clear();
            }
            inner.places.insert(content, path.to_owned());
        }
        Ok((content, data.mode() & 0o7777))
    }

    fn remember(&self, version: Version, hash: [u8; 32]) {
        let mut inner = self.inner();
        if inner.versions.len() >= KNOWN_MAX {
            inner.versions.clear();
        }
        inner.versions.insert(version, hash);
    }

    /// What is in a file of ours that was just written.
    pub fn vouch(&self, path: &Path, hash: [u8; 32]) {
        if let Ok(data) = std::fs::metadata(path) {
            self.remember(Version::of(&data, Whose::Ours), hash);
        }
    }

    /// Where this was last seen; what is there now has to be looked at.
    pub fn place_of(&self, content: &Content) -> Option<PathBuf> {
        self.inner().places.get(content).cloned()
    }

    /// Whether exactly this is at that path.
    pub fn holds(&self, path: &Path, content: &Content, whose: Whose, tick: &dyn Fn()) -> bool {
        // Without reading it, if its length says enough.
        std::fs::metadata(path).is_ok_and(|data| data.is_file() && data.len() == content.bytes)
            && self.look(path, whose, tick).is_ok_and(|(found, _)| found == *content)
    }
}

fn hash_of(file: &mut File, expected: u64, tick: &dyn Fn()) -> Result<[u8; 32], String> {
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; READ_BYTES.min(usize::try_from(expected).unwrap_or(READ_BYTES).max(1))];
    let mut read = 0;
    // One byte more than it had: a file that grows is found out by its times.
    while read <= expected {
        let count = match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(shortage(&error)),
        };
        hasher.update(&buffer[..count]);
        read += count as u64;
        tick();
    }
    if read == expected { Ok(*hasher.finalize().as_bytes()) } else { Err("it is being written".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_written_again_is_read_again() {
        let directory = crate::stage::tests::directory("known");
        let path = directory.join("file");
        let known = Known::default();
        let look = || known.look(&path, Whose::Users, &|| ()).unwrap().0;
        std::fs::write(&path, "one").unwrap();
        let one = look();
        assert_eq!(one.hash, *blake3::hash(b"one").as_bytes());
        assert_eq!(look(), one);
        std::fs::write(&path, "two").unwrap();
        assert_eq!(look().hash, *blake3::hash(b"two").as_bytes());
        assert!(!known.holds(&path, &one, Whose::Users, &|| ()));
        assert_eq!(known.place_of(&one), Some(path.clone()));
        // Old enough to be believed without reading.
        let old = std::fs::File::options().write(true).open(&path).unwrap();
        old.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(look(), look());
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn what_is_no_file_is_named() {
        let known = Known::default();
        assert_eq!(known.look(Path::new("/"), Whose::Users, &|| ()).unwrap_err(), "it is not a regular file");
        assert_eq!(known.look(Path::new("/dev/null"), Whose::Users, &|| ()).unwrap_err(), "it is not a regular file");
        assert!(known.look(Path::new("/no/such"), Whose::Users, &|| ()).unwrap_err().contains("No such file"));
    }
}
