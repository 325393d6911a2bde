//! Where a keeper's output goes: to the job's client through psid, into files of a queued job (on its first node), or through psid to the
//! first node's keeper, kept here until that one has written it. So whatever psid dies in between, nothing of a queued job's output is
//! lost or written twice. Called by `control` for every report of output; writes files, never waits for psid.

use super::message::Report;
use pulc_base::Rank;
use pulc_control::Stream;
use pulc_control::queue::Files;
use std::collections::{HashMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

#[derive(Default)]
pub enum Outlet {
    /// Against the credit of a client.
    #[default]
    Line,
    Files(Box<Sink>),
    Kept(Kept),
}

/// The files of a queued job.
pub struct Sink {
    output: (File, PathBuf),
    error: Option<(File, PathBuf)>,
    /// Bytes written for each other node.
    received: HashMap<u32, u64>,
    /// Bytes of this node's ranks written since last asked.
    written: u32,
    failed: Option<String>,
}

/// Output that the first node has not written yet.
#[derive(Default)]
pub struct Kept {
    next: u64,
    frames: VecDeque<(u64, Rank, Stream, bool, Vec<u8>)>,
}

impl Sink {
    /// Opens the files; `append` keeps what is in them.
    ///
    /// # Errors
    /// One line that names the file.
    pub fn open(files: &Files, directory: &Path, append: bool) -> Result<Sink, String> {
        let open = |name: &str| {
            let path = directory.join(name);
            let mut options = OpenOptions::new();
            options.create(true).append(true);
            let opened = options.open(&path).and_then(|file| {
                if !append && file.metadata()?.is_file() {
                    file.set_len(0)?;
                }
                Ok(file)
            });
            opened.map(|file| (file, path.clone())).map_err(|error| {
                format!("cannot write the output file {}: {}", path.display(), crate::error::shortage(&error))
            })
        };
        let output = open(files.output.as_deref().unwrap_or("/dev/null"))?;
        let other = files.error.as_ref().filter(|name| Some(*name) != files.output.as_ref());
        let error = other.map(|name| open(name)).transpose()?;
        Ok(Sink { output, error, received: HashMap::new(), written: 0, failed: None })
    }

    fn write(&mut self, stream: Stream, bytes: &[u8]) {
        let (file, path) = match (&mut self.error, stream) {
            (Some(error), Stream::Err) => error,
            _ => &mut self.output,
        };
        if let Err(error) = file.write_all(bytes)
            && self.failed.is_none()
        {
            let why = crate::error::shortage(&error);
            self.failed = Some(format!("output cannot be written to {}: {why}", path.display()));
        }
    }

    /// What another node's ranks have printed, from byte `at` of all they have; tells how much of it is written now.
    pub fn write_of(&mut self, node: u32, at: u64, stream: Stream, bytes: &[u8]) -> u64 {
        let have = self.received.get(&node).copied().unwrap_or(0);
        // Twice, after a daemon was restarted; a gap is filled when it is sent again.
        if at == have {
            self.write(stream, bytes);
            self.received.insert(node, have + bytes.len() as u64);
        }
        self.received.get(&node).copied().unwrap_or(0)
    }
}

impl Kept {
    /// Frames that have not been written yet.
    pub fn frames(&self) -> impl Iterator<Item = Report> {
        self.frames.iter().map(|(at, rank, stream, more, bytes)| Report::Output {
            at: *at,
            rank: *rank,
            stream: *stream,
            more: *more,
            bytes: bytes.clone(),
        })
    }

    /// All bytes before `upto` are written; returns how many that were.
    pub fn acked(&mut self, upto: u64) -> u32 {
        let mut bytes = 0;
        while self.frames.front().is_some_and(|(at, .., held)| at + held.len() as u64 <= upto) {
            bytes += self.frames.pop_front().map_or(0, |(.., held)| held.len() as u32);
        }
        bytes
    }
}

impl Outlet {
    /// Takes a report of output; returns what has to be sent to psid.
    pub fn pass(&mut self, rank: Rank, stream: Stream, more: bool, bytes: &[u8]) -> Option<Report> {
        let at = match self {
            Outlet::Line => 0,
            Outlet::Files(sink) => {
                sink.write(stream, bytes);
                sink.written += bytes.len() as u32;
                return None;
            }
            Outlet::Kept(kept) => {
                let at = kept.next;
                kept.next += bytes.len() as u64;
                if !bytes.is_empty() {
                    kept.frames.push_back((at, rank, stream, more, bytes.to_vec()));
                }
                at
            }
        };
        Some(Report::Output { at, rank, stream, more, bytes: bytes.to_vec() })
    }

    /// Bytes that have been written to files since last asked.
    pub fn take_written(&mut self) -> u32 {
        match self {
            Outlet::Files(sink) => std::mem::take(&mut sink.written),
            _ => 0,
        }
    }

    /// Why files can't be written; told once.
    pub fn take_failure(&mut self) -> Option<String> {
        match self {
            Outlet::Files(sink) => sink.failed.as_mut().filter(|text| !text.is_empty()).map(std::mem::take),
            _ => None,
        }
    }

    /// # Errors
    /// When the job's input can't be read.
    pub fn open_input(files: &Files, directory: &Path) -> Result<Option<File>, String> {
        let Some(name) = &files.input else { return Ok(None) };
        let path = directory.join(name);
        let failed = |error: io::Error| format!("cannot read the input file {}: {error}", path.display());
        File::open(&path).map(Some).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_another_node_is_written_once_however_often_it_is_sent() {
        let path = std::env::temp_dir().join(format!("pulc-outlet-{}", std::process::id()));
        let files = Files { output: Some(path.to_string_lossy().into_owned()), ..Files::default() };
        let mut sink = Sink::open(&files, Path::new("/"), false).unwrap();
        let mut outlet = Outlet::Kept(Kept::default());
        let reports: Vec<Report> = ["one\n", "two\n", "three\n"]
            .iter()
            .filter_map(|text| outlet.pass(Rank(5), Stream::Out, false, text.as_bytes()))
            .collect();
        let write = |sink: &mut Sink, report: &Report| match report {
            Report::Output { at, stream, bytes, .. } => sink.write_of(1, *at, *stream, bytes),
            other => panic!("{other:?}"),
        };
        assert_eq!(write(&mut sink, &reports[0]), 4);
        // The second is lost on its way, the third comes too early; then all that is not acknowledged is sent again.
        assert_eq!(write(&mut sink, &reports[2]), 4);
        let Outlet::Kept(kept) = &mut outlet else { unreachable!() };
        assert_eq!(kept.acked(4), 4);
        let again: Vec<Report> = kept.frames().collect();
        assert_eq!(again.len(), 2);
        for report in again.iter().chain(&again) {
            write(&mut sink, report);
        }
        assert_eq!(kept.acked(14), 10);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\ntwo\nthree\n");
        std::fs::remove_file(&path).unwrap();
    }
}
