//! The one error type of this crate: all of it is about the log on disk.

use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("{}: {what}: {source}", path.display())]
    Io { path: PathBuf, what: &'static str, source: std::io::Error },
    #[error("{}: it is no log of this program (its first bytes are wrong); move it away to begin with an empty queue", path.display())]
    Foreign { path: PathBuf },
    #[error(
        "{}: byte {at} is damaged though records follow it, so this is no torn end; restore the file, or move it away to \
         begin with an empty queue",
        path.display()
    )]
    Damaged { path: PathBuf, at: u64 },
    #[error("{}: record {number} is of a newer PULC; use that one, or move the file away to begin with an empty queue", path.display())]
    Unknown { path: PathBuf, number: u64 },
}
