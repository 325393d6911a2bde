//! The terminal side of a running job: output in whole lines and against credit, standard input on its way to rank 0, and
//! signals. Used by `pulc run`. Writing blocks: a slow reader of our output holds the job back, nothing piles up.

use pulc_base::Rank;
use pulc_control::{ClientSender, Request, StopKind, Stream, Tie};
use pulc_hal::os::signals::{SIGHUP, SIGINT, SignalFd};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Where output goes. Keeps frames of other ranks back while one is in the middle of a long line; their number is bounded
/// by the credit of their nodes.
pub struct Sink {
    label: bool,
    sender: ClientSender,
    streams: [Half; 2],
    broken: Option<io::Error>,
}

#[derive(Default)]
struct Half {
    floor: Option<Rank>,
    held: VecDeque<Frame>,
    /// Whose line is not ended by a line feed.
    open_line: Option<Rank>,
}

struct Frame {
    node: u32,
    rank: Rank,
    more: bool,
    bytes: Vec<u8>,
}

impl Sink {
    pub fn new(label: bool, sender: ClientSender) -> Sink {
        Sink { label, sender, streams: [Half::default(), Half::default()], broken: None }
    }

    /// Writes a frame, or keeps it until the rank that has the floor has ended its line.
    pub fn put(&mut self, node: u32, rank: Rank, stream: Stream, more: bool, bytes: Vec<u8>) {
        self.streams[stream as usize].held.push_back(Frame { node, rank, more, bytes });
        loop {
            let half = &mut self.streams[stream as usize];
            let floor = half.floor;
            let Some(next) = half.held.iter().position(|frame| floor.is_none_or(|rank| rank == frame.rank)) else {
                return;
            };
            let Some(frame) = half.held.remove(next) else { return };
            half.floor = frame.more.then_some(frame.rank);
            self.write(stream, &frame);
        }
    }

    fn write(&mut self, stream: Stream, frame: &Frame) {
        if self.broken.is_none() && !frame.bytes.is_empty() {
            let labelled;
            let bytes = if self.label {
                labelled = label(frame.rank, &frame.bytes, &mut self.streams[stream as usize].open_line);
                &labelled
            } else {
                &frame.bytes
            };
            if let Err(error) = write_all(stream, bytes) {
                self.broken = Some(error);
                let _ = self.sender.send(&Request::Stop(StopKind::Gently));
            }
        }
        // Also when nobody reads any more: what is left is thrown away until the job has ended.
        let credit = Request::Credit { node: frame.node, bytes: frame.bytes.len() as u32 };
        let _ = self.sender.send(&credit);
    }

    /// Exit status when our output could not be written.
    pub fn broken(&self) -> Option<u8> {
        self.broken.as_ref().map(|error| if error.kind() == io::ErrorKind::BrokenPipe { 141 } else { 1 })
    }

    pub fn why_broken(&self) -> Option<String> {
        self.broken.as_ref().map(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => "nobody reads the output any more; the job was stopped".to_owned(),
            _ => format!("output cannot be written ({error}); the job was stopped"),
        })
    }
}

/// `[rank] ` before each line. A last line without line feed is ended when somebody else's follows.
fn label(rank: Rank, bytes: &[u8], open_line: &mut Option<Rank>) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes.len() + 64);
    if open_line.is_some_and(|open| open != rank) {
        text.push(b'\n');
        *open_line = None;
    }
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        if open_line.is_none() {
            text.extend_from_slice(format!("[{rank}] ").as_bytes());
        }
        text.extend_from_slice(line);
        *open_line = (!line.ends_with(b"\n")).then_some(rank);
    }
    text
}

fn write_all(stream: Stream, mut bytes: &[u8]) -> io::Result<()> {
    let (out, err) = (io::stdout(), io::stderr());
    let fd = match stream {
        Stream::Out => out.as_fd(),
        Stream::Err => err.as_fd(),
    };
    while !bytes.is_empty() {
        match rustix::io::write(fd, bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(rustix::io::Errno::INTR) => {}
            // Somebody made the terminal or pipe non-blocking: wait as if it were not.
            Err(rustix::io::Errno::AGAIN) => {
                let mut wait = [rustix::event::PollFd::from_borrowed_fd(fd, rustix::event::PollFlags::OUT)];
                let _ = rustix::event::poll(&mut wait, None);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Credit for standard input, shared with the thread that reads it.
#[derive(Clone)]
pub struct InputCredit {
    state: Arc<(Mutex<Option<u64>>, Condvar)>,
}

impl InputCredit {
    pub fn grant(&self, bytes: u32) {
        let (credit, changed) = &*self.state;
        if let Some(credit) = credit.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            *credit += u64::from(bytes);
        }
        changed.notify_one();
    }

    /// Rank 0 reads no more.
    pub fn close(&self) {
        let (credit, changed) = &*self.state;
        *credit.lock().unwrap_or_else(PoisonError::into_inner) = None;
        changed.notify_one();
    }

    /// Waits for credit; none when the other end is closed.
    fn wait(&self) -> Option<u64> {
        let (credit, changed) = &*self.state;
        let guard = credit.lock().unwrap_or_else(PoisonError::into_inner);
        *changed.wait_while(guard, |credit| *credit == Some(0)).unwrap_or_else(PoisonError::into_inner)
    }

    fn spend(&self, bytes: usize) {
        let (credit, _) = &*self.state;
        if let Some(credit) = credit.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            *credit = credit.saturating_sub(bytes as u64);
        }
    }
}

/// Reads standard input in a thread that lives as long as the process, and sends it as far as there is credit.
pub fn feed_input(sender: ClientSender) -> io::Result<InputCredit> {
    let credit = InputCredit { state: Arc::new((Mutex::new(Some(0)), Condvar::new())) };
    let shared = credit.clone();
    std::thread::Builder::new().name("input".to_owned()).spawn(move || {
        let stdin = io::stdin();
        let stdin = stdin.as_fd();
        let mut buffer = vec![0; 16 << 10];
        while let Some(allowed) = shared.wait() {
            if in_background(stdin) {
                // Reading would stop us: wait until the user brings us to the foreground.
                std::thread::sleep(Duration::from_millis(200));
                continue;
            }
            let room = buffer.len().min(allowed as usize);
            let request = match rustix::io::read(stdin, &mut buffer[..room]) {
                Err(rustix::io::Errno::INTR) => continue,
                Err(rustix::io::Errno::AGAIN) => {
                    let mut wait = [rustix::event::PollFd::from_borrowed_fd(stdin, rustix::event::PollFlags::IN)];
                    let _ = rustix::event::poll(&mut wait, None);
                    continue;
                }
                Ok(0) | Err(_) => Request::InputEnd,
                Ok(n) => {
                    shared.spend(n);
                    Request::Input { bytes: buffer[..n].to_vec() }
                }
            };
            if sender.send(&request).is_err() || request == Request::InputEnd {
                break;
            }
        }
    })?;
    Ok(credit)
}

/// Whether `stdin` is a terminal that belongs to somebody else at the moment.
fn in_background(stdin: BorrowedFd<'_>) -> bool {
    rustix::termios::isatty(stdin)
        && rustix::termios::tcgetpgrp(stdin).is_ok_and(|foreground| foreground != rustix::process::getpgrp())
}

/// How long the second signal waits for an orderly end.
const AT_ONCE: Duration = Duration::from_secs(2);

/// The signal that stopped us, 0 while there is none.
#[derive(Clone)]
pub struct Stopped(Arc<AtomicI32>);

impl Stopped {
    fn signal(&self) -> Option<i32> {
        Some(self.0.load(Ordering::Acquire)).filter(|signal| *signal != 0)
    }

    pub fn code(&self) -> Option<u8> {
        self.signal().map(|signal| 128 + signal as u8)
    }

    pub fn text(&self) -> Option<String> {
        self.signal().map(|signal| format!("the job was stopped by {}", pulc_hal::os::signals::describe(signal)))
    }
}

/// The first signal stops the job gently, the second one at once.
pub fn watch_signals(signals: SignalFd, sender: ClientSender) -> io::Result<Stopped> {
    let stopped = Stopped(Arc::new(AtomicI32::new(0)));
    let seen = stopped.clone();
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        while let Ok(signal) = signals.read() {
            let first = seen.0.compare_exchange(0, signal, Ordering::AcqRel, Ordering::Acquire).is_ok();
            let kind = if first { StopKind::Gently } else { StopKind::AtOnce };
            if first && matches!(signal, SIGINT | SIGHUP) {
                eprintln!("pulc: stopping the job; once more to kill it at once");
            }
            if sender.send(&Request::Stop(kind)).is_err() {
                break;
            }
            if !first {
                // Should a reader of our output stall, nobody waits for it: psid or the keepers see us go and clear up.
                std::thread::sleep(AT_ONCE);
                std::process::exit(128 + seen.signal().unwrap_or(signal));
            }
        }
    })?;
    Ok(stopped)
}

/// The job ends at once when another process does.
pub fn end_with(tie: Tie, sender: ClientSender) -> io::Result<()> {
    std::thread::Builder::new().name("tie".to_owned()).spawn(move || {
        tie.wait();
        let _ = sender.send(&Request::Stop(StopKind::AtOnce));
        std::thread::sleep(AT_ONCE);
        std::process::exit(143);
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_stand_before_each_line_and_only_there() {
        let mut open = None;
        assert_eq!(label(Rank(3), b"a\nb", &mut open), b"[3] a\n[3] b");
        assert_eq!(label(Rank(3), b"c\n", &mut open), b"c\n");
        assert_eq!(label(Rank(4), b"d", &mut open), b"[4] d");
        assert_eq!(label(Rank(5), b"e\n", &mut open), b"\n[5] e\n");
        assert_eq!(open, None);
    }
}
