//! The log as a file. Each record is a frame with its number and a checksum; a torn end (the machine stopped in mid-write) is cut off,
//! damage anywhere else is named and nothing is thrown away. Called by psid's queue room: `open` once, then `append` from one thread,
//! many records with one sync. Never acknowledges what is not on disk.
//!
//! ```text
//! file   8 bytes magic and version, then frames
//! frame  u32 length of body | u64 number | 16 bytes of BLAKE3 over number and body | body (postcard)
//! ```

use crate::error::Error;
use crate::state::{Record, State};
use std::fs::{File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

pub(crate) const MAGIC: [u8; 8] = *b"PULCLOG1";
const HEAD: usize = 4 + 8 + SUM;
const SUM: usize = 16;
/// Longest body: a job with everything at its limit fits.
const BODY_MAX: usize = 8 << 20;
/// A log is rewritten as the state it tells when it is longer than this at the start.
const REWRITE_ABOVE_BYTES: u64 = 8 << 20;
const NAME: &str = "queue.log";

pub struct Journal {
    file: File,
    path: PathBuf,
    /// Number of the next record.
    next: u64,
    /// Where the last whole frame ends.
    end: u64,
}

/// A record as bytes, made where the state is, written elsewhere.
pub fn body(record: &Record) -> Vec<u8> {
    postcard::to_extend(record, Vec::new()).expect("postcard encodes every record: no unsized sequences")
}

impl Journal {
    /// Opens or makes the log in this directory and tells the state it leads to, with a word if its end had to be cut off.
    ///
    /// # Errors
    /// When it can't be read or written, or is damaged before its end.
    pub fn open(directory: &Path) -> Result<(Journal, State, Option<String>), Error> {
        let path = directory.join(NAME);
        let failed = |what| {
            let path = path.clone();
            move |source| Error::Io { path, what, source }
        };
        let new = !path.exists();
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        let mut journal =
            Journal { file: file.map_err(failed("cannot open the log"))?, path: path.clone(), next: 0, end: 0 };
        let bytes = std::fs::read(&path).map_err(failed("cannot read the log"))?;
        let mut state = State::default();
        // A file shorter than its head was never acknowledged.
        let whole_head = bytes.len() >= MAGIC.len();
        if whole_head && bytes[..MAGIC.len()] != MAGIC {
            return Err(Error::Foreign { path });
        }
        if !whole_head {
            journal.write_head().map_err(failed("cannot write the log"))?;
        } else {
            let told = tell(&bytes, &path)?;
            (state, journal.next, journal.end) = (told.state, told.next, told.end as u64);
        }
        if new {
            sync_directory(directory).map_err(failed("cannot make the log last"))?;
        }
        let torn = (bytes.len() as u64).saturating_sub(journal.end);
        let mut word = None;
        if whole_head && torn > 0 {
            journal.cut().map_err(failed("cannot cut off the torn end of the log"))?;
            word = Some(format!("{}: the last {torn} bytes were never finished and are left out", path.display()));
        }
        if journal.end > REWRITE_ABOVE_BYTES {
            journal.rewrite(directory, &state).map_err(failed("cannot rewrite the log"))?;
        }
        Ok((journal, state, word))
    }

    /// Writes records and returns when they are on disk, or none of them counts.
    ///
    /// # Errors
    /// The file is then as before as far as that can be had; trying again is right.
    ///
    /// # Blocking
    /// Until the disk has them.
    pub fn append(&mut self, bodies: &[Vec<u8>]) -> io::Result<()> {
        let mut bytes = Vec::new();
        for (number, body) in (self.next..).zip(bodies) {
            frame(&mut bytes, number, body);
        }
        self.file.seek(SeekFrom::Start(self.end))?;
        let written = self.file.write_all(&bytes).and_then(|()| self.file.sync_data());
        if let Err(error) = written {
            // What is there of it must not be taken for records later.
            let _ = self.cut();
            return Err(error);
        }
        self.end += bytes.len() as u64;
        self.next += bodies.len() as u64;
        Ok(())
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    fn write_head(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(&MAGIC)?;
        self.file.sync_data()?;
        self.end = MAGIC.len() as u64;
        Ok(())
    }

    fn cut(&mut self) -> io::Result<()> {
        self.file.set_len(self.end)?;
        self.file.sync_data()
    }

    /// The same state in fewer records; the old file is there until the new one is whole.
    fn rewrite(&mut self, directory: &Path, state: &State) -> io::Result<()> {
        let path = directory.join("queue.log.new");
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(&path)?;
        let mut journal = Journal { file, path: self.path.clone(), next: 0, end: 0 };
        journal.write_head()?;
        let bodies: Vec<Vec<u8>> = state.snapshot().iter().map(body).collect();
        for some in bodies.chunks(4096) {
            journal.append(some)?;
        }
        std::fs::rename(&path, &self.path)?;
        sync_directory(directory)?;
        *self = journal;
        Ok(())
    }
}

/// What the bytes of a log tell, its head left aside.
pub(crate) struct Told {
    pub state: State,
    /// Number of the record that comes next.
    pub next: u64,
    /// Where the last whole frame ends.
    pub end: usize,
}

pub(crate) fn tell(bytes: &[u8], path: &Path) -> Result<Told, Error> {
    let mut told = Told { state: State::default(), next: 0, end: MAGIC.len() };
    while let Some((number, body, end)) = whole_frame(bytes, told.end) {
        if number != told.next {
            break;
        }
        let record = postcard::from_bytes::<Record>(body);
        // Its checksum is right, so it was written like that.
        let record = record.map_err(|_| Error::Unknown { path: path.to_owned(), number })?;
        told.state.apply(&record);
        (told.end, told.next) = (end, number + 1);
    }
    // Whole frames behind a broken one were acknowledged after it: then it was, too.
    let later = (told.end + 1..bytes.len().saturating_sub(HEAD)).any(|from| {
        whole_frame(bytes, from).is_some_and(|(number, ..)| number >= told.next && number - told.next < 1 << 20)
    });
    if later { Err(Error::Damaged { path: path.to_owned(), at: told.end as u64 }) } else { Ok(told) }
}

pub(crate) fn frame(bytes: &mut Vec<u8>, number: u64, body: &[u8]) {
    bytes.extend_from_slice(&(body.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&number.to_le_bytes());
    bytes.extend_from_slice(&sum(number, body));
    bytes.extend_from_slice(body);
}

fn sum(number: u64, body: &[u8]) -> [u8; SUM] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&number.to_le_bytes()).update(body);
    hasher.finalize().as_bytes()[..SUM].try_into().expect("a hash is longer")
}

/// Number and body of the frame at `at`, and where the next one begins; none if it is not whole.
fn whole_frame(bytes: &[u8], at: usize) -> Option<(u64, &[u8], usize)> {
    let head = bytes.get(at..at + HEAD)?;
    let len = u32::from_le_bytes(head[..4].try_into().ok()?) as usize;
    let number = u64::from_le_bytes(head[4..12].try_into().ok()?);
    if len > BODY_MAX || number > 1 << 48 {
        return None;
    }
    let body = bytes.get(at + HEAD..at + HEAD + len)?;
    (sum(number, body) == head[12..]).then_some((number, body, at + HEAD + len))
}

fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Change;
    use crate::state::tests::spec;
    use std::sync::atomic::{AtomicU32, Ordering};

    struct Dir(PathBuf);

    impl Dir {
        fn new() -> Dir {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let name = format!("pulc-journal-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
            let path = std::env::temp_dir().join(name);
            std::fs::create_dir_all(&path).unwrap();
            Dir(path)
        }

        fn log(&self) -> PathBuf {
            self.0.join(NAME)
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn submitted(at: u64) -> Vec<u8> {
        body(&Record { at, change: Change::Submitted { user: 1, spec: Box::new(spec(1)) } })
    }

    fn jobs(dir: &Dir) -> usize {
        Journal::open(&dir.0).unwrap().1.jobs().count()
    }

    #[test]
    fn what_was_appended_is_there_after_opening_again() {
        let dir = Dir::new();
        let (mut journal, state, word) = Journal::open(&dir.0).unwrap();
        assert_eq!((state.jobs().count(), word), (0, None));
        journal.append(&[submitted(1), submitted(2)]).unwrap();
        journal.append(&[submitted(3)]).unwrap();
        drop(journal);
        assert_eq!(jobs(&dir), 3);
        let (mut journal, ..) = Journal::open(&dir.0).unwrap();
        journal.append(&[submitted(4)]).unwrap();
        assert_eq!(jobs(&dir), 4);
    }

    #[test]
    fn an_end_torn_at_any_byte_loses_only_the_last_record() {
        let dir = Dir::new();
        Journal::open(&dir.0).unwrap().0.append(&[submitted(1), submitted(2)]).unwrap();
        let before = std::fs::metadata(dir.log()).unwrap().len() as usize;
        Journal::open(&dir.0).unwrap().0.append(&[submitted(3)]).unwrap();
        let whole = std::fs::read(dir.log()).unwrap();
        for len in before..whole.len() {
            std::fs::write(dir.log(), &whole[..len]).unwrap();
            let (mut journal, state, word) = Journal::open(&dir.0).unwrap();
            assert_eq!((state.jobs().count(), word.is_some()), (2, len > before), "cut at {len}");
            journal.append(&[submitted(4)]).unwrap();
            drop(journal);
            assert_eq!(jobs(&dir), 3, "cut at {len}");
        }
        // A file that had just been made.
        for len in 0..MAGIC.len() {
            std::fs::write(dir.log(), &whole[..len]).unwrap();
            assert_eq!(jobs(&dir), 0);
        }
    }

    #[test]
    fn a_flipped_bit_before_the_end_is_named_and_nothing_is_thrown_away() {
        let dir = Dir::new();
        let mut journal = Journal::open(&dir.0).unwrap().0;
        let second = journal.end as usize;
        journal.append(&[submitted(1), submitted(2), submitted(3)]).unwrap();
        let whole = std::fs::read(dir.log()).unwrap();
        for at in (second..second + 60).step_by(7) {
            let mut bytes = whole.clone();
            bytes[at] ^= 16;
            std::fs::write(dir.log(), &bytes).unwrap();
            let error = Journal::open(&dir.0).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains("is damaged"), "byte {at}: {error}");
            assert_eq!(std::fs::read(dir.log()).unwrap(), bytes);
        }
        std::fs::write(dir.log(), b"something else").unwrap();
        assert!(matches!(Journal::open(&dir.0), Err(Error::Foreign { .. })));
    }

    #[test]
    fn a_rewritten_log_tells_the_same_state() {
        let dir = Dir::new();
        let (mut journal, mut state, _) = Journal::open(&dir.0).unwrap();
        for at in 1..50 {
            let record = Record { at, change: Change::Submitted { user: 1, spec: Box::new(spec(1)) } };
            state.apply(&record);
            journal.append(&[body(&record)]).unwrap();
        }
        journal.rewrite(&dir.0, &state).unwrap();
        journal.append(&[submitted(99)]).unwrap();
        state.apply(&Record { at: 99, change: Change::Submitted { user: 1, spec: Box::new(spec(1)) } });
        drop(journal);
        assert_eq!(Journal::open(&dir.0).unwrap().1, state);
    }
}
