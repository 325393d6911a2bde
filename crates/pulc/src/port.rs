//! Ports: named places that messages are sent to and received from.

use crate::finding::Finding;
use crate::header::{Header, Kind};
use crate::receive::{self, Into, Patience};
use crate::table::{NAME_MAX, PortTable, Whereabouts};
use crate::{Address, Error, From, Match, Pulc, error};
use pulc_base::clock::{self, Nanos};
use pulc_base::{Proto, Rank};
use pulc_handler::matching::Pattern;
use pulc_handler::{Guard, Hand, SendFault, Sending, Waited, Watch};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How messages sent *from* a port travel, and what happens to those that nobody receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Exactly once, in order, no loss: a sender waits while the receiver's limits are reached.
    Ordered,
    /// At most once and never waiting for the receiver: what finds no room is dropped and counted.
    Datagram,
}

/// An open port. Closed when dropped. May be shared between threads.
pub struct Port {
    pub(crate) pulc: Pulc,
    number: u32,
    name: String,
    mode: Mode,
    /// Datagrams sent from here that found no room on the way.
    dropped_sends: AtomicU64,
    /// It is another process's now.
    has_moved: bool,
}

/// What arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Envelope {
    pub src: Rank,
    pub tag: u64,
    /// Length of the message in bytes.
    pub len: usize,
}

impl Port {
    pub(crate) fn open(pulc: &Pulc, name: &str, mode: Mode) -> Result<Port, Error> {
        check_name(name)?;
        pulc.process.check_fork()?;
        let mut guard = pulc.process.lock();
        let (table, outbox) = guard.engine.handler_and_outbox::<PortTable>(Proto::PORT).expect("registered by attach");
        let limit = table.ports_max;
        let number = table.open(name, outbox).map_err(|why| why.into_error(name, limit))?;
        // Those who wait for this name are told at once.
        pulc.process.poll(&mut guard, &mut Hand::empty());
        drop(guard);
        Ok(Port::made(pulc, number, name, mode))
    }

    /// The handle of a port that is there.
    pub(crate) fn made(pulc: &Pulc, number: u32, name: &str, mode: Mode) -> Port {
        let dropped_sends = AtomicU64::new(0);
        Port { pulc: pulc.clone(), number, name: name.to_owned(), mode, dropped_sends, has_moved: false }
    }

    /// It is not this process's any more.
    pub(crate) fn let_go(mut self) {
        self.has_moved = true;
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn mode(&self) -> Mode {
        self.mode
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Sends one message. The bytes are free to reuse on return.
    ///
    /// # Blocks
    /// Until the receiver has taken the message or granted it room; receives what arrives meanwhile.
    ///
    /// # Errors
    /// [`Error::UnknownPort`], [`Error::PeerGone`], [`Error::MessageTooLarge`], [`Error::NoSuchRank`].
    #[inline]
    pub fn send(&self, to: &Address, tag: u64, bytes: &[u8]) -> Result<(), Error> {
        self.send_until(to, tag, bytes, None)
    }

    /// As [`Port::send`], but gives up with [`Error::Timeout`] when the receiver has granted no room within `timeout`. Then
    /// nothing of the message arrives.
    pub fn send_timeout(&self, to: &Address, tag: u64, bytes: &[u8], timeout: Duration) -> Result<(), Error> {
        self.send_until(to, tag, bytes, Some(clock::now() + Nanos::from(timeout)))
    }

    #[inline]
    fn send_until(&self, to: &Address, tag: u64, bytes: &[u8], deadline: Option<Nanos>) -> Result<(), Error> {
        let process = self.pulc.process;
        process.check_fork()?;
        if self.mode == Mode::Datagram {
            return self.send_datagram(to, tag, bytes, deadline);
        }
        let guard = process.lock();
        // With the engine locked, so that nothing is sent to a place after it has been said that nothing more will.
        let epoch = self.pulc.epoch.load(Ordering::Relaxed);
        let Some(port) = to.number(epoch) else { return self.send_to_place(guard, to, tag, bytes, deadline) };
        let header = Header { port, kind: Kind::Data, tag }.encode();
        let sending = Sending::counted(to.rank(), Proto::PORT, &header, bytes);
        match process.send_unless(guard, sending, deadline, || self.pulc.epoch.load(Ordering::Relaxed) != epoch) {
            Ok(()) => Ok(()),
            Err(SendFault::CalledOff) => self.send_to_place(process.lock(), to, tag, bytes, deadline),
            Err(fault) => Err(error::of_send(process, fault)),
        }
    }

    /// Finds the port first, as often as it moves meanwhile.
    #[cold]
    fn send_to_place(
        &self,
        mut guard: Guard<'_>,
        to: &Address,
        tag: u64,
        bytes: &[u8],
        deadline: Option<Nanos>,
    ) -> Result<(), Error> {
        let process = self.pulc.process;
        loop {
            let (place, locked) = self.find(guard, to, deadline)?;
            let epoch = self.pulc.epoch.load(Ordering::Relaxed);
            let header = Header { port: place.number, kind: Kind::Data, tag }.encode();
            let sending = Sending::counted(place.rank, Proto::PORT, &header, bytes);
            match process.send_unless(locked, sending, deadline, || self.pulc.epoch.load(Ordering::Relaxed) != epoch) {
                Ok(()) => return Ok(()),
                Err(SendFault::CalledOff) => guard = process.lock(),
                Err(fault) => return Err(error::of_send(process, fault)),
            }
        }
    }

    fn send_datagram(&self, to: &Address, tag: u64, bytes: &[u8], deadline: Option<Nanos>) -> Result<(), Error> {
        let (len, max) = (bytes.len(), self.pulc.datagram_max);
        if len > max {
            return Err(Error::MessageTooLarge { len, max, parameter: "PULC_DATAGRAM_MAX_BYTES" });
        }
        let process = self.pulc.process;
        let (rank, port) = match to.number(self.pulc.epoch.load(Ordering::Relaxed)) {
            Some(number) => (to.rank(), number),
            None => {
                let (place, guard) = self.find(process.lock(), to, deadline)?;
                drop(guard);
                (place.rank, place.number)
            }
        };
        let header = Header { port, kind: Kind::Datagram, tag }.encode();
        let sent = process.send_or_drop(rank, Proto::PORT, &header, bytes);
        if !sent.map_err(|fault| error::of_send(process, fault))? {
            self.dropped_sends.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Finds where a port is, asking its process if need be.
    fn find<'p>(
        &self,
        guard: Guard<'p>,
        to: &Address,
        deadline: Option<Nanos>,
    ) -> Result<(Whereabouts, Guard<'p>), Error> {
        let process = self.pulc.process;
        error::check_rank(process, to.rank())?;
        check_name(to.name())?;
        let mut finding = Finding::default();
        let lookup = clock::now() + self.pulc.lookup;
        let until = deadline.map_or(lookup, |deadline| deadline.min(lookup));
        let (waited, mut guard) =
            process.wait(guard, &mut Hand::empty(), Some(until), Watch::News, |engine, _| finding.step(engine, to));
        match waited {
            Waited::Ready(Ok(place)) => Ok((place, guard)),
            Waited::Ready(Err(not_found)) => {
                finding.forget(guard.engine.handler::<PortTable>(Proto::PORT).expect("registered by attach"));
                drop(guard);
                Err(not_found.into_error(process))
            }
            Waited::Timeout => {
                finding.forget(guard.engine.handler::<PortTable>(Proto::PORT).expect("registered by attach"));
                if until < lookup {
                    return Err(Error::Timeout);
                }
                let (rank, name) = (to.rank(), to.name().to_owned());
                Err(Error::UnknownPort { rank, name, waited: self.pulc.lookup.as_duration() })
            }
        }
    }

    /// Waits for a message and copies it into `buffer`.
    ///
    /// # Errors
    /// [`Error::BufferTooSmall`] (the message is kept), [`Error::PeerGone`] when only dead ranks could still satisfy it.
    #[inline]
    pub fn recv(&self, from: From, tag: Match, buffer: &mut [u8]) -> Result<Envelope, Error> {
        self.receive(from, tag, Into::Buffer(buffer), Patience::Endless)?.ok_or(Error::Timeout)
    }

    /// As [`Port::recv`], but gives up after `timeout` with [`Error::Timeout`]. A message that has begun to arrive by then is
    /// still received.
    pub fn recv_timeout(
        &self,
        from: From,
        tag: Match,
        buffer: &mut [u8],
        timeout: Duration,
    ) -> Result<Envelope, Error> {
        self.receive(from, tag, Into::Buffer(buffer), until(timeout))?.ok_or(Error::Timeout)
    }

    /// As [`Port::recv`] without waiting: `None` when nothing is there, [`Error::PeerGone`] when nothing comes any more.
    pub fn try_recv(&self, from: From, tag: Match, buffer: &mut [u8]) -> Result<Option<Envelope>, Error> {
        self.receive(from, tag, Into::Buffer(buffer), Patience::None)
    }

    /// Receives a message of any size.
    pub fn recv_vec(&self, from: From, tag: Match) -> Result<(Envelope, Vec<u8>), Error> {
        let mut bytes = Vec::new();
        let envelope = self.receive(from, tag, Into::Vec(&mut bytes), Patience::Endless)?.ok_or(Error::Timeout)?;
        Ok((envelope, bytes))
    }

    /// As [`Port::recv_vec`], but gives up after `timeout` with [`Error::Timeout`].
    pub fn recv_vec_timeout(&self, from: From, tag: Match, timeout: Duration) -> Result<(Envelope, Vec<u8>), Error> {
        let mut bytes = Vec::new();
        let envelope = self.receive(from, tag, Into::Vec(&mut bytes), until(timeout))?.ok_or(Error::Timeout)?;
        Ok((envelope, bytes))
    }

    #[inline]
    fn receive(&self, from: From, tag: Match, into: Into<'_>, patience: Patience) -> Result<Option<Envelope>, Error> {
        let src = match from {
            From::Any => None,
            From::Rank(rank) => Some(rank.0),
        };
        let tag = match tag {
            Match::Any => None,
            Match::Tag(tag) => Some(tag),
        };
        receive::receive(self.pulc.process, self.number, Pattern { src, tag }, into, patience)
    }

    /// Datagrams dropped here because they found no room, on arrival or when they were to be sent.
    pub fn dropped(&self) -> u64 {
        let sends = self.dropped_sends.load(Ordering::Relaxed);
        if self.pulc.process.check_fork().is_err() {
            return sends;
        }
        let mut guard = self.pulc.process.lock();
        let table = guard.engine.handler::<PortTable>(Proto::PORT).expect("registered by attach");
        sends + table.port(self.number).map_or(0, |port| port.dropped)
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        if self.has_moved || self.pulc.process.check_fork().is_err() {
            return;
        }
        let mut guard = self.pulc.process.lock();
        let (table, outbox) = guard.engine.handler_and_outbox::<PortTable>(Proto::PORT).expect("registered by attach");
        for (src, cost) in table.close(self.number, outbox) {
            guard.engine.release(src, cost);
        }
        self.pulc.process.poll(&mut guard, &mut Hand::empty());
    }
}

/// Waits until one of the ports has a message and returns its index; nothing is received yet. `None` waits without limit.
///
/// # Errors
/// [`Error::Timeout`], [`Error::BadSelect`], [`Error::PeerGone`] when all other ranks are gone and nothing is left.
pub fn select(ports: &[&Port], timeout: Option<Duration>) -> Result<usize, Error> {
    let process = ports.first().ok_or(Error::BadSelect)?.pulc.process;
    process.check_fork()?;
    let deadline = timeout.map(|timeout| clock::now() + Nanos::from(timeout));
    let guard = process.lock();
    let (waited, _guard) = process.wait(guard, &mut Hand::empty(), deadline, Watch::News, |engine, _| {
        let table = engine.handler::<PortTable>(Proto::PORT)?;
        let ready = ports.iter().position(|port| table.port(port.number).is_some_and(|port| port.queue.kept_len() > 0));
        match (ready, table.last_end) {
            (Some(index), _) => Some(Ok(index)),
            (None, Some((rank, end))) if table.others_alive == 0 => {
                Some(Err(Error::PeerGone { rank, how: end.to_string() }))
            }
            _ => None,
        }
    });
    match waited {
        Waited::Ready(result) => result,
        Waited::Timeout => Err(Error::Timeout),
    }
}

fn until(timeout: Duration) -> Patience {
    Patience::Until(clock::now() + Nanos::from(timeout))
}

pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    if name.is_empty() || name.len() > NAME_MAX {
        return Err(Error::BadName { len: name.len(), max: NAME_MAX });
    }
    Ok(())
}
