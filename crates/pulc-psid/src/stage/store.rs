//! The cache of a node: files that came from other nodes, and copies of what waiting jobs were submitted with, named by what is in them.
//! Called by the rooms of `stage` on threads that may block. What is found here has the hash that it is asked for by: it was counted when
//! it arrived, and again when this daemon met it first. Nothing half-written is ever found; what is used longest ago makes room.
//!
//! ```text
//! files/HASH     whole files, not writable; mtime is when one was used last
//! coming/N       what is arriving; emptied when the daemon starts
//! jobs/JOB-NODE  directories of jobs, see `place`
//! ```

use super::known::{Known, Whose};
use crate::error::shortage;
use pulc_base::log;
use pulc_control::stage::Content;
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::{self, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

/// What was used so shortly before is not thrown away: a job may be about to link it.
const IN_USE: Duration = Duration::from_secs(60);
/// Not writable, so that no job changes what others are given; executable, since programs are linked, not copied.
const MODE: u32 = 0o500;

pub struct Store {
    root: PathBuf,
    limit_bytes: u64,
    next: AtomicU64,
    known: Known,
    /// Bytes promised to files that are arriving. Held while room is made, so that two never count on the same.
    promised: Mutex<u64>,
}

/// A file that is arriving; thrown away unless it is finished.
pub struct Coming {
    store: Arc<Store>,
    pub content: Content,
    pub path: PathBuf,
    file: File,
    hasher: blake3::Hasher,
    have: u64,
}

impl Store {
    /// Creates nothing; sweeps away what an earlier life has left half-done.
    pub fn new(root: PathBuf, limit_bytes: u64) -> Arc<Store> {
        let _ = fs::remove_dir_all(root.join("coming"));
        let (next, known, promised) = (AtomicU64::new(0), Known::default(), Mutex::new(0));
        Arc::new(Store { root, limit_bytes, next, known, promised })
    }

    pub fn known(&self) -> &Known {
        &self.known
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    fn promised(&self) -> MutexGuard<'_, u64> {
        self.promised.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place_of(&self, content: &Content) -> PathBuf {
        self.root.join("files").join(content.hex())
    }

    /// Where a whole, sound copy is, and marks it as used.
    pub fn find(&self, content: &Content, tick: &dyn Fn()) -> Option<PathBuf> {
        let path = self.place_of(content);
        if !path.exists() {
            return None;
        }
        if !self.known.holds(&path, content, Whose::Ours, tick) {
            log!(Warn, "stage", "{} is not what it was; it is thrown away", path.display());
            let _ = fs::remove_file(&path);
            return None;
        }
        self.touch(&path, content);
        Some(path)
    }

    /// Its times change with its use; what is known of it must not be lost by that.
    fn touch(&self, path: &Path, content: &Content) {
        let now = SystemTime::now();
        let recent = fs::metadata(path).and_then(|data| data.modified());
        let stale = |at: SystemTime| now.duration_since(at).is_ok_and(|age| age > IN_USE / 4);
        if recent.is_ok_and(stale) && set_modified(path, now).is_ok() {
            self.known.vouch(path, content.hash);
        }
    }

    /// Makes room for a file and opens its place.
    ///
    /// # Errors
    /// One line: too large, no room, or no place to write to.
    pub fn begin(self: &Arc<Self>, content: Content) -> Result<Coming, String> {
        let refuse = |what: &str| {
            let (mib, limit) = (content.bytes.div_ceil(1 << 20), self.limit_bytes >> 20);
            Err(format!("{what} {mib} MiB in {} (limit {limit} MiB, PULC_STAGE_MAX_MIB)", self.root.display()))
        };
        if content.bytes > self.limit_bytes {
            return refuse("there can be no room for");
        }
        let failed = |error: io::Error| format!("cannot write to {}: {}", self.root.display(), shortage(&error));
        for directory in ["files", "coming"] {
            make_directory(&self.root.join(directory)).map_err(failed)?;
        }
        {
            let mut promised = self.promised();
            if !self.make_room(*promised + content.bytes) {
                return refuse("jobs that run hold what would have to make room for");
            }
            *promised += content.bytes;
        }
        let path = self.root.join("coming").join(self.next.fetch_add(1, Ordering::Relaxed).to_string());
        let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path);
        let file = file.inspect_err(|_| *self.promised() -= content.bytes).map_err(failed)?;
        let coming = Coming { store: self.clone(), content, path, file, hasher: blake3::Hasher::new(), have: 0 };
        // A disk that is too full says so before anything has travelled. Not every file system can.
        match fallocate(&coming.file, FallocateFlags::empty(), 0, content.bytes.max(1)) {
            Err(error @ (rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT | rustix::io::Errno::FBIG)) => {
                Err(failed(error.into()))
            }
            _ => Ok(coming),
        }
    }

    /// Throws away what was used longest ago until so many more bytes fit.
    fn make_room(&self, wanted: u64) -> bool {
        let entries = fs::read_dir(self.root.join("files")).into_iter().flatten().flatten();
        let mut all: Vec<(SystemTime, u64, u64, PathBuf)> = entries
            .filter_map(|entry| {
                let data = entry.metadata().ok()?;
                Some((data.modified().ok()?, data.len(), data.nlink(), entry.path()))
            })
            .collect();
        all.sort();
        let mut total: u64 = all.iter().map(|(_, bytes, ..)| bytes).sum();
        let now = SystemTime::now();
        for (used, bytes, links, path) in all {
            if total + wanted <= self.limit_bytes {
                return true;
            }
            let idle = now.duration_since(used).is_ok_and(|idle| idle > IN_USE);
            // Another link is a job that runs.
            if links == 1 && idle && fs::remove_file(&path).is_ok() {
                total -= bytes;
            }
        }
        total + wanted <= self.limit_bytes
    }

    /// Keeps a copy of a file of this machine, so that it can be had when it was changed or removed there.
    ///
    /// # Errors
    /// One line.
    pub fn keep(self: &Arc<Self>, content: Content, from: &Path, tick: &dyn Fn()) -> Result<PathBuf, String> {
        if let Some(path) = self.find(&content, tick) {
            return Ok(path);
        }
        let failed = |error: io::Error| format!("cannot read {}: {}", from.display(), shortage(&error));
        let mut source = File::open(from).map_err(failed)?;
        let mut coming = self.begin(content)?;
        let mut buffer = vec![0; 1 << 20];
        while coming.have < content.bytes {
            match io::Read::read(&mut source, &mut buffer).map_err(failed)? {
                0 => break,
                count => coming.write(&buffer[..count])?,
            }
            tick();
        }
        coming.finish()
    }
}

impl Coming {
    /// # Errors
    /// One line; more than was announced is an error, too.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        if self.have + bytes.len() as u64 > self.content.bytes {
            return Err("more came than was announced".to_owned());
        }
        self.file
            .write_all(bytes)
            .map_err(|error| format!("cannot write to {}: {}", self.store.root.display(), shortage(&error)))?;
        self.hasher.update(bytes);
        self.have += bytes.len() as u64;
        Ok(())
    }

    pub fn have(&self) -> u64 {
        self.have
    }

    /// Lets it be found by what has come.
    ///
    /// # Errors
    /// One line.
    pub fn finish_as_it_is(mut self) -> Result<Content, String> {
        let content = Content { hash: *self.hasher.finalize().as_bytes(), bytes: self.have };
        // What is there already may be in use, and is the same.
        if self.have == self.content.bytes && self.store.find(&content, &|| ()).is_some() {
            return Ok(content);
        }
        self.content.hash = content.hash;
        self.finish().map(|_| content)
    }

    /// Checks that it is what it should be and lets it be found.
    ///
    /// # Errors
    /// One line.
    pub fn finish(self) -> Result<PathBuf, String> {
        if self.have != self.content.bytes || *self.hasher.finalize().as_bytes() != self.content.hash {
            return Err("something else came than was announced: the file was changed on its way".to_owned());
        }
        let place = self.store.place_of(&self.content);
        let settle = || {
            self.file.set_permissions(Permissions::from_mode(MODE))?;
            fs::rename(&self.path, &place)
        };
        settle().map_err(|error| format!("cannot keep {}: {}", place.display(), shortage(&error)))?;
        self.store.known.vouch(&place, self.content.hash);
        Ok(place)
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        *self.store.promised() -= self.content.bytes;
        // Nothing is there after it was finished.
        let _ = fs::remove_file(&self.path);
    }
}

fn set_modified(path: &Path, at: SystemTime) -> io::Result<()> {
    // Of a file that its owner may not write, too.
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let time = rustix::fs::Timespec { tv_sec: since.as_secs() as i64, tv_nsec: i64::from(since.subsec_nanos()) };
    let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
    Ok(rustix::fs::utimensat(rustix::fs::CWD, path, &times, rustix::fs::AtFlags::empty())?)
}

/// A directory for this user alone, and those above it.
pub fn make_directory(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::tests::{content, directory};

    fn put(store: &Arc<Store>, text: &[u8]) -> Result<PathBuf, String> {
        let mut coming = store.begin(content(text))?;
        coming.write(text)?;
        coming.finish()
    }

    fn age(path: &Path, seconds: u64) {
        set_modified(path, SystemTime::now() - Duration::from_secs(seconds)).unwrap();
    }

    #[test]
    fn only_what_is_whole_and_right_is_found() {
        let root = directory("whole");
        let store = Store::new(root.clone(), 1 << 20);
        let mut coming = store.begin(content(b"twelve bytes")).unwrap();
        coming.write(b"twelve").unwrap();
        assert_eq!(store.find(&content(b"twelve bytes"), &|| ()), None);
        assert!(coming.write(b" bytes and more").unwrap_err().contains("more came"));
        assert!(coming.finish().unwrap_err().contains("something else came"));
        let mut wrong = store.begin(content(b"right")).unwrap();
        wrong.write(b"wrong").unwrap();
        assert!(wrong.finish().unwrap_err().contains("something else came"));
        assert_eq!(fs::read_dir(root.join("coming")).unwrap().count(), 0);
        let path = put(&store, b"right").unwrap();
        assert_eq!(store.find(&content(b"right"), &|| ()), Some(path.clone()));
        // Spoilt behind our back: it is not given out, now or after a restart.
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, b"wrong").unwrap();
        assert_eq!(Store::new(root.clone(), 1 << 20).find(&content(b"right"), &|| ()), None);
        assert!(!path.exists());
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn what_was_used_longest_ago_makes_room_and_what_a_job_holds_does_not() {
        let root = directory("room");
        let store = Store::new(root.clone(), 100);
        let texts = [[1; 40], [2; 40], [3; 40]];
        let first = put(&store, &texts[0]).unwrap();
        let second = put(&store, &texts[1]).unwrap();
        let full = put(&store, &texts[2]).unwrap_err();
        assert!(full.contains("jobs that run hold"), "{full}");
        age(&first, 500);
        age(&second, 400);
        fs::hard_link(&first, root.join("held")).unwrap();
        put(&store, &texts[2]).unwrap();
        assert!(first.exists() && !second.exists());
        let large = put(&store, &[0; 101]).unwrap_err();
        assert!(large.contains("there can be no room for 1 MiB") && large.contains("PULC_STAGE_MAX_MIB"), "{large}");
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_copy_is_kept_of_what_is_as_it_was() {
        let root = directory("keep");
        let store = Store::new(root.join("store"), 1 << 20);
        fs::write(root.join("file"), "text").unwrap();
        assert!(store.keep(content(b"other"), &root.join("file"), &|| ()).is_err());
        let kept = store.keep(content(b"text"), &root.join("file"), &|| ()).unwrap();
        fs::remove_file(root.join("file")).unwrap();
        assert_eq!(fs::read(kept).unwrap(), b"text");
        fs::remove_dir_all(root).unwrap();
    }
}
