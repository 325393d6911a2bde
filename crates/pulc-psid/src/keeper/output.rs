//! What the ranks print, on its way to psid: whole lines of one rank at a time, against credit. While there is no credit the
//! pipes are not read, so ranks that print are held back by the kernel and nothing is lost or piled up.
//!
//! Lines longer than [`LINE_MAX`] go in pieces; their rank then has the *floor* of that stream, and others wait until its
//! line ends (or until it has been silent for [`FLOOR_PATIENCE`] in mid-line). A job of one rank is passed on as it comes.

use super::message::Report;
use pulc_base::Rank;
use pulc_base::clock::{Nanos, now};
use pulc_control::Stream;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Longest part of a line that is held back for its end.
pub const LINE_MAX: usize = 64 << 10;
/// Output that may be under way from one node, in bytes.
pub const WINDOW: i64 = 256 << 10;
/// How long a rank that has shown half a line may keep the others waiting.
const FLOOR_PATIENCE: Nanos = Nanos::from_ms(2000);
/// Quiet time after which half a line of the rank that has the standard input is shown: a prompt.
const PROMPT_QUIET: Nanos = Nanos::from_ms(100);

struct Source {
    pipe: Option<OwnedFd>,
    rank: Rank,
    stream: Stream,
    held: Vec<u8>,
    last_read: Nanos,
    /// Readable, but something was in the way; not polled until it is tried again.
    waiting: bool,
}

#[derive(Default)]
struct Floor {
    holder: Option<usize>,
    since: Nanos,
}

pub struct Output {
    sources: Vec<Source>,
    floors: [Floor; 2],
    credit: i64,
    /// Pass on whatever comes (a job of one rank).
    raw: bool,
}

/// What the event loop has to change about polling a source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Go on polling.
    Poll,
    /// Stop polling until [`Output::retry`] names it.
    Pause,
    /// Its pipe is at its end and closed.
    Closed,
}

impl Output {
    pub fn new(raw: bool) -> Output {
        Output { sources: Vec::new(), floors: [Floor::default(), Floor::default()], credit: WINDOW, raw }
    }

    /// Adds a pipe (its read end, non-blocking) and returns its number.
    pub fn add(&mut self, pipe: OwnedFd, rank: Rank, stream: Stream) -> usize {
        self.sources.push(Source {
            pipe: Some(pipe),
            rank,
            stream,
            held: Vec::new(),
            last_read: now(),
            waiting: false,
        });
        self.sources.len() - 1
    }

    pub fn fd(&self, index: usize) -> Option<BorrowedFd<'_>> {
        self.sources.get(index)?.pipe.as_ref().map(AsFd::as_fd)
    }

    pub fn add_credit(&mut self, bytes: u32) {
        self.credit = self.credit.saturating_add(bytes.into()).min(WINDOW);
    }

    /// Sources that were paused and may be polled again now. To be asked after credit, after an end of line, after a tick.
    pub fn retry(&mut self) -> Vec<usize> {
        if self.credit <= 0 {
            return Vec::new();
        }
        let floors = [self.floors[0].holder, self.floors[1].holder];
        let mut ready = Vec::new();
        for (index, source) in self.sources.iter_mut().enumerate() {
            let free = floors[source.stream as usize].is_none_or(|holder| holder == index);
            if source.waiting && free {
                source.waiting = false;
                ready.push(index);
            }
        }
        ready
    }

    /// Reads a source that is readable or at its end, and reports what may be shown.
    pub fn read(&mut self, index: usize, report: &mut dyn FnMut(&Report)) -> Next {
        let Some(source) = self.sources.get_mut(index) else { return Next::Closed };
        let Some(pipe) = &source.pipe else { return Next::Closed };
        let floor_taken = self.floors[source.stream as usize].holder.is_some_and(|holder| holder != index);
        if self.credit <= 0 || floor_taken {
            source.waiting = true;
            return Next::Pause;
        }
        let before = source.held.len();
        source.held.resize(before.max(LINE_MAX / 2) + LINE_MAX / 2, 0);
        let result = retry_interrupted(|| rustix::io::read(pipe, &mut source.held[before..]));
        let got = *result.as_ref().unwrap_or(&0);
        source.held.truncate(before + got);
        source.last_read = now();
        match result {
            Ok(0) => {
                source.pipe = None;
                self.show(index, usize::MAX, false, report);
                return Next::Closed;
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Next::Poll,
            Err(error) => {
                pulc_base::log!(Warn, "keeper", "output of rank {} cannot be read: {error}", source.rank);
                source.pipe = None;
                self.show(index, usize::MAX, false, report);
                return Next::Closed;
            }
        }
        if self.raw {
            self.show(index, usize::MAX, false, report);
            return Next::Poll;
        }
        self.show_lines(index, report);
        Next::Poll
    }

    fn show_lines(&mut self, index: usize, report: &mut dyn FnMut(&Report)) {
        let source = &self.sources[index];
        let has_floor = self.floors[source.stream as usize].holder == Some(index);
        match line_end(&source.held) {
            Some(end) => {
                let rest = source.held.len() - end;
                self.show(index, end, false, report);
                if rest >= LINE_MAX {
                    self.show(index, usize::MAX, true, report);
                }
            }
            None if has_floor || source.held.len() >= LINE_MAX => self.show(index, usize::MAX, true, report),
            None => {}
        }
    }

    /// Reports the first `len` held bytes of a source; `more` takes or keeps the floor, else it is given back.
    fn show(&mut self, index: usize, len: usize, more: bool, report: &mut dyn FnMut(&Report)) {
        let source = &mut self.sources[index];
        let floor = &mut self.floors[source.stream as usize];
        let had_floor = floor.holder == Some(index);
        let rest = source.held.split_off(len.min(source.held.len()));
        let bytes = std::mem::replace(&mut source.held, rest);
        if more {
            *floor = Floor { holder: Some(index), since: now() };
        } else if had_floor {
            floor.holder = None;
        }
        if bytes.is_empty() && !had_floor {
            return;
        }
        self.credit -= bytes.len() as i64;
        report(&Report::Output { at: 0, rank: source.rank, stream: source.stream, more, bytes });
    }

    /// Shows prompts and takes the floor from ranks that went silent in mid-line. `asks` may prompt (has the standard input).
    /// Returns when to be called again.
    pub fn tick(&mut self, asks: Option<Rank>, report: &mut dyn FnMut(&Report)) -> Option<Nanos> {
        let time = now();
        let mut next = None::<Nanos>;
        let mut at = |when: Nanos| next = Some(next.map_or(when, |next| next.min(when)));
        for stream in [Stream::Out, Stream::Err] {
            let floor = &self.floors[stream as usize];
            let Some(holder) = floor.holder else { continue };
            let waited = self.sources.iter().any(|source| source.waiting && source.stream == stream);
            let since = self.sources[holder].last_read.max(floor.since);
            if !waited || self.credit <= 0 {
                continue;
            }
            if time.since(since) >= FLOOR_PATIENCE {
                self.show(holder, usize::MAX, false, report);
            } else {
                at(since + FLOOR_PATIENCE);
            }
        }
        for index in 0..self.sources.len() {
            let source = &self.sources[index];
            let prompts = Some(source.rank) == asks && !source.held.is_empty() && source.pipe.is_some();
            if !prompts || self.credit <= 0 || self.floors[source.stream as usize].holder.is_some() {
                continue;
            }
            if time.since(source.last_read) >= PROMPT_QUIET {
                self.show(index, usize::MAX, true, report);
            } else {
                at(source.last_read + PROMPT_QUIET);
            }
        }
        next
    }

    /// Closes pipes that are still open though no process of the job is left: somebody outside holds their other end.
    /// What they hold now has been read before. Returns whether everything has been shown.
    pub fn finish(&mut self, report: &mut dyn FnMut(&Report)) -> bool {
        for index in 0..self.sources.len() {
            while self.sources[index].pipe.is_some() {
                let before = self.sources[index].held.len();
                match self.read(index, report) {
                    Next::Pause => return false,
                    Next::Closed => break,
                    Next::Poll => {}
                }
                let source = &mut self.sources[index];
                if source.held.len() == before && nothing_to_read(source.pipe.as_ref()) {
                    source.pipe = None;
                    self.show(index, usize::MAX, false, report);
                }
            }
        }
        true
    }
}

fn nothing_to_read(pipe: Option<&OwnedFd>) -> bool {
    pipe.is_none_or(|pipe| rustix::io::ioctl_fionread(pipe).unwrap_or(0) == 0)
}

/// Position behind the last complete line. A carriage return counts as an end of line (progress bars) unless a line feed
/// may follow it.
fn line_end(bytes: &[u8]) -> Option<usize> {
    let last = bytes.len().checked_sub(1)?;
    (0..=last)
        .rev()
        .find(|at| bytes[*at] == b'\n' || (bytes[*at] == b'\r' && *at < last && bytes[at + 1] != b'\n'))
        .map(|at| at + 1)
}

fn retry_interrupted<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(rustix::io::Errno::INTR) => {}
            other => return Ok(other?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::{PipeFlags, pipe_with};

    fn pair(output: &mut Output, rank: u32) -> (usize, OwnedFd) {
        let (reader, writer) = pipe_with(PipeFlags::NONBLOCK).unwrap();
        (output.add(reader, Rank(rank), Stream::Out), writer)
    }

    fn read(output: &mut Output, index: usize) -> (Next, Vec<(u32, bool, Vec<u8>)>) {
        let mut seen = Vec::new();
        let next = output.read(index, &mut |report| {
            if let Report::Output { rank, more, bytes, .. } = report {
                seen.push((rank.0, *more, bytes.clone()));
            }
        });
        (next, seen)
    }

    #[test]
    fn half_a_line_is_held_back_until_its_end_or_the_end_of_the_pipe() {
        let mut output = Output::new(false);
        let (index, writer) = pair(&mut output, 3);
        rustix::io::write(&writer, b"one\ntw").unwrap();
        assert_eq!(read(&mut output, index), (Next::Poll, vec![(3, false, b"one\n".to_vec())]));
        rustix::io::write(&writer, b"o").unwrap();
        assert_eq!(read(&mut output, index), (Next::Poll, vec![]));
        drop(writer);
        assert_eq!(read(&mut output, index), (Next::Closed, vec![(3, false, b"two".to_vec())]));
    }

    #[test]
    fn a_line_longer_than_the_limit_keeps_the_floor_until_it_ends() {
        let mut output = Output::new(false);
        let (long, long_writer) = pair(&mut output, 0);
        let (short, short_writer) = pair(&mut output, 1);
        let mut shown = 0;
        while shown == 0 {
            rustix::io::write(&long_writer, &[b'x'; 16 << 10]).unwrap();
            shown = read(&mut output, long)
                .1
                .iter()
                .map(|(_, more, bytes)| {
                    assert!(more);
                    bytes.len()
                })
                .sum();
        }
        rustix::io::write(&short_writer, b"short\n").unwrap();
        assert_eq!(read(&mut output, short), (Next::Pause, vec![]));
        assert!(output.retry().is_empty());
        rustix::io::write(&long_writer, b"end\n").unwrap();
        assert_eq!(read(&mut output, long).1, vec![(0, false, b"end\n".to_vec())]);
        assert_eq!(output.retry(), vec![short]);
        assert_eq!(read(&mut output, short).1, vec![(1, false, b"short\n".to_vec())]);
    }

    #[test]
    fn without_credit_nothing_is_read_and_nothing_is_lost() {
        let mut output = Output::new(false);
        let (index, writer) = pair(&mut output, 0);
        let mut sent = 0;
        let line = [[b'y'; 1023].as_slice(), b"\n"].concat();
        let mut taken = 0;
        loop {
            if let Ok(n) = rustix::io::write(&writer, &line[..]) {
                sent += n;
            }
            let (next, seen) = read(&mut output, index);
            taken += seen.iter().map(|(_, _, bytes)| bytes.len()).sum::<usize>();
            if next == Next::Pause {
                break;
            }
        }
        assert!(taken as i64 <= WINDOW + LINE_MAX as i64 && taken <= sent);
        output.add_credit(u32::MAX);
        assert_eq!(output.retry(), vec![index]);
        drop(writer);
        loop {
            let (next, seen) = read(&mut output, index);
            taken += seen.iter().map(|(_, _, bytes)| bytes.len()).sum::<usize>();
            if next == Next::Closed {
                break;
            }
        }
        assert_eq!(taken, sent);
    }

    #[test]
    fn carriage_returns_end_a_line_unless_a_line_feed_may_follow() {
        assert_eq!(line_end(b"10%\r20%"), Some(4));
        assert_eq!(line_end(b"dos\r"), None);
        assert_eq!(line_end(b"a\nb\r\nc"), Some(5));
        assert_eq!(line_end(b""), None);
    }
}
