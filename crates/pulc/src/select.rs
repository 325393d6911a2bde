//! Waiting for several things at once: ports, rawdata channels, bundles of active messages, and descriptors of the user's; and
//! the other way round, a descriptor that tells a loop of the user's that one of them has something. Nothing is received
//! here. Must never sleep with the engine locked, and never say that nothing is there without having looked since arming.

use crate::am::{Bundle, is_ready as bundle_is_ready};
use crate::rawdata::{Channel, has_something};
use crate::table::PortTable;
use crate::{Error, Port, Pulc};
use pulc_base::Proto;
use pulc_base::clock::{self, Nanos};
use pulc_hal::os::watched::Watched;
use pulc_handler::{Armed, Awaited, Beside, Engine, Look, Process, Waited, Watch};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

/// What a descriptor is watched for, or what something is ready for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Readiness {
    /// A message can be received, a handler can run, bytes can be read.
    pub read: bool,
    /// Bytes can be written (descriptors only).
    pub write: bool,
    /// Nothing more comes: the next receive or read says why. Need not be asked for.
    pub ended: bool,
}

impl Readiness {
    pub const READ: Readiness = Readiness { read: true, write: false, ended: false };
    pub const WRITE: Readiness = Readiness { read: false, write: true, ended: false };

    pub fn any(self) -> bool {
        self.read || self.write || self.ended
    }
}

/// Something to wait for.
#[derive(Clone, Copy)]
enum Source<'a> {
    Awaited(&'a dyn Awaited),
    Port(&'a Port),
    Channel(&'a Channel),
    Bundle(&'a Bundle),
    Fd(BorrowedFd<'a>, Readiness),
}

/// Something to wait for, and what the last wait found about it.
#[derive(Clone, Copy)]
pub struct Item<'a> {
    source: Source<'a>,
    ready: Readiness,
}

impl<'a> Item<'a> {
    fn new(source: Source<'a>) -> Item<'a> {
        Item { source, ready: Readiness::default() }
    }

    /// Ready when a message can be received from it, or all other ranks have ended and nothing is left.
    pub fn port(port: &'a Port) -> Item<'a> {
        Item::new(Source::Port(port))
    }

    /// Ready when a message can be received from it, a posted buffer is done, or its other end is gone.
    pub fn channel(channel: &'a Channel) -> Item<'a> {
        Item::new(Source::Channel(channel))
    }

    /// Ready when a handler can run: [`Bundle::poll`] runs it.
    pub fn bundle(bundle: &'a Bundle) -> Item<'a> {
        Item::new(Source::Bundle(bundle))
    }

    /// Ready when another interface says so: a request of MPI, say.
    pub fn awaited(awaited: &'a dyn Awaited) -> Item<'a> {
        Item::new(Source::Awaited(awaited))
    }

    /// Ready as in poll(2), level-triggered: as long as it can be read or written.
    pub fn fd(fd: BorrowedFd<'a>, wanted: Readiness) -> Item<'a> {
        Item::new(Source::Fd(fd, wanted))
    }

    /// What the last wait found.
    pub fn ready(&self) -> Readiness {
        self.ready
    }

    /// `goes_on`: set where something has to be done without the engine locked before it can be told.
    fn look(&self, engine: &mut Engine, goes_on: &mut bool) -> Readiness {
        match self.source {
            Source::Awaited(awaited) => {
                let found = awaited.look(engine);
                *goes_on |= found == Look::GoOn;
                Readiness { read: found == Look::Ready, ..Readiness::default() }
            }
            Source::Port(port) => match engine.handler::<PortTable>(Proto::PORT) {
                Some(table) => table.readiness(port.number()),
                None => Readiness::default(),
            },
            Source::Channel(channel) => has_something(engine, channel),
            Source::Bundle(bundle) => Readiness { read: bundle_is_ready(engine, bundle), ..Readiness::default() },
            Source::Fd(..) => Readiness::default(),
        }
    }
}

/// Waits until at least one item is ready; how many are. Each says what it is ready for by [`Item::ready`]. `None` waits without
/// limit. A signal does not end the wait: to hear of signals, add a signalfd(2) or the reading end of a pipe that the signal
/// handler writes to.
///
/// The thread sleeps while nothing is ready; one call costs a system call if there are descriptors among the items.
///
/// # Errors
/// [`Error::Timeout`], [`Error::BadSelect`] (no item), [`Error::BadDescriptor`], [`Error::Forked`].
pub fn select_items(pulc: &Pulc, items: &mut [Item<'_>], timeout: Option<Duration>) -> Result<usize, Error> {
    let process = checked(pulc, items)?;
    let deadline = timeout.map(|timeout| clock::now() + Nanos::from(timeout));
    let mut watched = Watched::default();
    for item in items.iter_mut() {
        item.ready = Readiness::default();
        if let Source::Fd(fd, wanted) = item.source {
            watched.add(fd, wanted.read, wanted.write);
        }
    }
    loop {
        go_on(items);
        let ready = wait_once(process, items, &mut watched, deadline)?;
        if ready > 0 {
            return Ok(ready);
        }
    }
}

/// What other interfaces have to do outside of the engine's lock.
fn go_on(items: &[Item<'_>]) {
    for item in items {
        if let Source::Awaited(awaited) = item.source {
            awaited.go_on();
        }
    }
}

/// One wait; zero: something of another interface has to go on first.
fn wait_once<'a>(
    process: &'static Process,
    items: &mut [Item<'a>],
    watched: &mut Watched<'a>,
    deadline: Option<Nanos>,
) -> Result<usize, Error> {
    let guard = process.lock();
    let mut look = |engine: &mut Engine| look_at_all(engine, items);
    let ready = if watched.is_empty() {
        let mut hand = pulc_handler::Hand::empty();
        match process.wait(guard, &mut hand, deadline, Watch::News, |engine, _| look(engine)).0 {
            Waited::Ready(count) => count,
            Waited::Timeout => return Err(Error::Timeout),
        }
    } else {
        let (waited, mut guard) = process.wait_beside(guard, watched, deadline, &mut look);
        match waited? {
            // Both kinds are told, whichever came first.
            Waited::Ready(Beside::Ready(_)) => {
                drop(guard);
                watched.look()?;
            }
            Waited::Ready(Beside::Descriptors) => drop(look(&mut guard.engine)),
            Waited::Timeout => return Err(Error::Timeout),
        }
        take_descriptors(items, watched)?
    };
    Ok(ready)
}

fn checked(pulc: &Pulc, items: &[Item<'_>]) -> Result<&'static Process, Error> {
    pulc.process.check_fork()?;
    if items.is_empty() { Err(Error::BadSelect) } else { Ok(pulc.process) }
}

/// Looks at everything but descriptors; how many are ready, if any. Zero: something has to go on without the lock first.
fn look_at_all(engine: &mut Engine, items: &mut [Item<'_>]) -> Option<usize> {
    let (mut count, mut goes_on) = (0, false);
    for item in items {
        item.ready = item.look(engine, &mut goes_on);
        count += usize::from(item.ready.any());
    }
    (count > 0 || goes_on).then_some(count)
}

/// What the descriptors are ready for; how many of all items are ready.
fn take_descriptors(items: &mut [Item<'_>], watched: &Watched<'_>) -> Result<usize, Error> {
    let mut index = 0;
    for item in items.iter_mut() {
        if let Source::Fd(fd, _) = item.source {
            let found = watched.readiness(index);
            index += 1;
            if found.bad {
                return Err(Error::BadDescriptor { fd: fd.as_raw_fd() });
            }
            item.ready = Readiness { read: found.read, write: found.write, ended: found.ended };
        }
    }
    Ok(items.iter().filter(|item| item.ready.any()).count())
}

/// A descriptor for a loop of the user's own: epoll, an event library, an async runtime.
///
/// The order is: take everything there is, [`Wakeup::arm`], wait until the descriptor is readable, and again from the start.
/// Nothing is lost in between: arming looks once more and says so when something is there. The descriptor itself is never
/// read; arming makes it unreadable. It may become readable for nothing, while it is armed about four times a second.
pub struct Wakeup {
    inner: pulc_handler::Wakeup,
}

impl Wakeup {
    /// # Errors
    /// [`Error::Forked`], [`Error::NoDescriptors`].
    pub fn new(pulc: &Pulc) -> Result<Wakeup, Error> {
        Ok(Wakeup { inner: pulc_handler::Wakeup::new(pulc.process)? })
    }

    /// Looks at the items; how many are ready, as each of them says. When none is, the descriptor becomes readable as soon as
    /// one may be. Not for descriptors: the user's loop waits for these itself.
    ///
    /// # Errors
    /// [`Error::BadSelect`] (no item, or a descriptor among them), [`Error::Forked`].
    pub fn arm(&self, items: &mut [Item<'_>]) -> Result<usize, Error> {
        if items.is_empty() || items.iter().any(|item| matches!(item.source, Source::Fd(..))) {
            return Err(Error::BadSelect);
        }
        loop {
            go_on(items);
            match self.inner.arm(|engine| look_at_all(engine, items))? {
                Armed::Ready(0) => {}
                Armed::Ready(count) => return Ok(count),
                Armed::Wait => return Ok(0),
            }
        }
    }
}

impl AsFd for Wakeup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}
