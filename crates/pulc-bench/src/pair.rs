//! The two processes that are measured, seen from the driver: started from this very program, each on its core and in its
//! network, told what to measure over a socket, killed when they hang. The driver carries words and descriptors from one to
//! the other, as the keeper does for ranks, so that a channel can be set up the way its own door wants.

use crate::measure::Figures;
use crate::row::{Layer, Place};
use crate::{Error, worker};
use pulc_base::clock::{Nanos, now};
use pulc_hal::os::fdpass::{FDS_MAX, Seqpacket};
use rustix::event::{PollFd, PollFlags, Timespec};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};

/// Which of the two.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Side {
    /// Asks, and holds the clock.
    A,
    B,
}

/// One measurement, as one side is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    pub layer: Layer,
    pub place: Place,
    pub side: Side,
    pub bytes: usize,
    pub budget_us: u64,
    /// Sent and received in buffers of their own.
    pub apart: bool,
    /// Address of this side's network.
    pub ip: std::net::IpAddr,
}

#[derive(Debug, Serialize, Deserialize)]
pub enum ToWorker {
    Task(Task),
    /// From the other side.
    Word(Vec<u8>),
}

#[derive(Debug, Serialize, Deserialize)]
pub enum ToDriver {
    /// For the other side.
    Word(Vec<u8>),
    /// The asking side brings figures.
    Done(Option<Figures>),
    Failed(String),
}

/// Longest message between driver and worker.
pub const MESSAGE_MAX: usize = 16 << 10;

/// Where one side runs.
#[derive(Clone, Debug)]
pub struct Seat {
    pub core: u32,
    pub ip: std::net::IpAddr,
    /// Words to put before the program, to enter a network namespace.
    pub enter: Vec<OsString>,
}

pub struct Pair {
    place: Place,
    seats: [Seat; 2],
    workers: [Worker; 2],
}

struct Worker {
    child: Child,
    line: Seqpacket,
}

impl Pair {
    pub fn start(place: Place, seats: [Seat; 2]) -> Result<Pair, Error> {
        let workers = [Worker::start(&seats[0])?, Worker::start(&seats[1])?];
        Ok(Pair { place, seats, workers })
    }

    /// Measures one layer with one size.
    pub fn measure(&mut self, layer: Layer, bytes: usize, budget: Nanos, apart: bool) -> Result<Figures, Error> {
        for (index, side) in [Side::A, Side::B].into_iter().enumerate() {
            let ip = self.seats[index].ip;
            let task = Task { layer, place: self.place, side, bytes, budget_us: budget.0 / 1000, apart, ip };
            self.workers[index].tell(&ToWorker::Task(task), &[])?;
        }
        let limit = Nanos::from_ms(20_000) + Nanos(budget.0.saturating_mul(20));
        let deadline = now() + limit;
        let mut done: [Option<Option<Figures>>; 2] = [None, None];
        while done.iter().any(Option::is_none) {
            for index in self.wait(deadline, limit)? {
                let (message, fds) = self.workers[index].hear()?;
                match message {
                    ToDriver::Word(word) => self.workers[1 - index].tell(&ToWorker::Word(word), &fds)?,
                    ToDriver::Done(figures) => done[index] = Some(figures),
                    ToDriver::Failed(text) => return Err(Error::Worker(text)),
                }
            }
        }
        done[0].flatten().ok_or_else(|| Error::Nonsense("no figures".into()))
    }

    /// The workers that have something to say.
    fn wait(&self, deadline: Nanos, limit: Nanos) -> Result<Vec<usize>, Error> {
        loop {
            let left = deadline.since(now());
            if left == Nanos(0) {
                return Err(Error::Hung { seconds: limit.0 / 1_000_000_000 });
            }
            let mut fds = [0, 1].map(|index: usize| PollFd::new(&self.workers[index].line, PollFlags::IN));
            let timeout =
                Timespec { tv_sec: (left.0 / 1_000_000_000) as i64, tv_nsec: (left.0 % 1_000_000_000) as i64 };
            match rustix::event::poll(&mut fds, Some(&timeout)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return Ok((0..2).filter(|&index| !fds[index].revents().is_empty()).collect()),
                Err(error) => return Err(Error::system("wait for the measured processes")(error)),
            }
        }
    }
}

impl Worker {
    fn start(seat: &Seat) -> Result<Worker, Error> {
        let (line, theirs) = Seqpacket::pair().map_err(Error::system("make a socket pair"))?;
        let program = std::env::current_exe().map_err(Error::system("find this program"))?;
        let mut words = seat.enter.clone();
        words.push(program.into());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).args(worker::ARGUMENTS).arg(seat.core.to_string());
        command.stdin(Stdio::from(OwnedFd::from(theirs)));
        let child = command.spawn().map_err(Error::system("start a process to measure"))?;
        Ok(Worker { child, line })
    }

    fn tell(&self, message: &ToWorker, fds: &[OwnedFd]) -> Result<(), Error> {
        send(&self.line, message, fds)
    }

    fn hear(&self) -> Result<(ToDriver, Vec<OwnedFd>), Error> {
        receive(&self.line)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It holds nothing that outlives it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends one message with descriptors.
pub fn send(line: &Seqpacket, message: &impl Serialize, fds: &[OwnedFd]) -> Result<(), Error> {
    let bytes = serde_json::to_vec(message).map_err(|error| Error::Nonsense(error.to_string()))?;
    let fds: Vec<_> = fds.iter().take(FDS_MAX).map(AsFd::as_fd).collect();
    line.send(&bytes, &fds).map_err(Error::system("speak to the other process"))
}

/// Waits for one message and its descriptors.
pub fn receive<T: for<'a> Deserialize<'a>>(line: &Seqpacket) -> Result<(T, Vec<OwnedFd>), Error> {
    let mut buffer = vec![0; MESSAGE_MAX];
    let got = line.recv(&mut buffer).map_err(Error::system("listen to the other process"))?.ok_or(Error::Ended)?;
    let bytes = &buffer[..got.bytes];
    let message = serde_json::from_slice(bytes);
    let message = message.map_err(|_| Error::Nonsense(String::from_utf8_lossy(bytes).into_owned()))?;
    Ok((message, got.fds))
}
