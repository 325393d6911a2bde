//! One of the two measured processes: takes tasks from the driver on its standard input, a socket, until that closes.

use crate::measure::{Buffers, Figures, answer, ask};
use crate::pair::{Side, Task, ToDriver, ToWorker, receive, send};
use crate::row::{Layer, Place};
use crate::{Error, device, hardware, kernel, net, offload};
use pulc_base::clock::Nanos;
use pulc_hal::os::cpu;
use pulc_hal::os::fdpass::Seqpacket;
use std::os::fd::{AsFd, OwnedFd};

/// How the driver starts this very program as a worker; the core follows.
pub const ARGUMENTS: [&str; 2] = ["bench", "worker"];

/// The way to the other side, through the driver.
pub struct Line(Seqpacket);

impl Line {
    pub fn tell(&self, word: &[u8], fds: &[OwnedFd]) -> Result<(), Error> {
        send(&self.0, &ToDriver::Word(word.to_vec()), fds)
    }

    /// # Blocks
    /// Until the other side says something; the driver ends us when that takes too long.
    pub fn hear(&self) -> Result<(Vec<u8>, Vec<OwnedFd>), Error> {
        match receive(&self.0)? {
            (ToWorker::Word(word), fds) => Ok((word, fds)),
            (other, _) => Err(Error::Nonsense(format!("{other:?}"))),
        }
    }
}

/// Runs until the driver closes the socket.
pub fn run(core: u32) -> Result<(), Error> {
    cpu::pin_to(&[core])?;
    let socket = std::io::stdin().as_fd().try_clone_to_owned().map_err(Error::system("take the driver's socket"))?;
    let line = Line(socket.into());
    loop {
        let task = match receive(&line.0) {
            Ok((ToWorker::Task(task), _)) => task,
            // Words that the other side still sent when we were done.
            Ok((ToWorker::Word(_), _)) => continue,
            Err(Error::Ended) => return Ok(()),
            Err(error) => return Err(error),
        };
        let answer = match measure(&task, &line) {
            Ok(figures) => ToDriver::Done(figures),
            Err(error) => ToDriver::Failed(format!("{} on side {:?}: {error}", task.layer.name(), task.side)),
        };
        send(&line.0, &answer, &[])?;
    }
}

fn measure(task: &Task, line: &Line) -> Result<Option<Figures>, Error> {
    match task.layer {
        Layer::Hardware => hardware::measure(task, line),
        Layer::Device if task.place == Place::Net => both(task, &mut net::frames(task, line)?),
        Layer::Device => device::measure(task, line),
        Layer::Link => both(task, &mut net::links(task, line, false)?),
        Layer::Encrypted => both(task, &mut net::links(task, line, true)?),
        Layer::Pipe => both(task, &mut kernel::pipe(task, line)?),
        Layer::Unix => both(task, &mut kernel::unix(task, line)?),
        Layer::Tcp => both(task, &mut kernel::tcp(task, line)?),
        Layer::Udp => both(task, &mut kernel::udp(task, line)?),
        Layer::Gso => both(task, &mut offload::runs(task, line)?),
        Layer::Rawdata
        | Layer::Shared
        | Layer::Port
        | Layer::Am
        | Layer::Leaf
        | Layer::Mpi
        | Layer::Socket
        | Layer::Threads => {
            Err(Error::NotHere { layer: task.layer.name(), why: "its processes are started in another way".into() })
        }
    }
}

/// Takes the task's side of a channel.
pub fn both(task: &Task, channel: &mut impl crate::measure::Channel) -> Result<Option<Figures>, Error> {
    let buffers = Buffers::new(task.bytes, task.apart);
    let figures = match task.side {
        Side::A => ask(channel, buffers, Nanos::from_us(task.budget_us)).map(Some),
        Side::B => answer(channel, buffers).map(|()| None),
    }?;
    channel.finish();
    Ok(figures)
}
