//! One message to many ports. Every member gets it as if it were sent to it alone; a slow one keeps no other waiting. On this node
//! a long message is written once, into memory that job-mates read, and every member there copies it from that place. Called by
//! programs. Must not allocate for a small message to members that are known.

use crate::finding::Finding;
use crate::header::{HEADER_BYTES, Header, Kind};
use crate::port::check_name;
use crate::table::PortTable;
use crate::{Address, Block, Error, Mode, Port, error};
use pulc_base::Proto;
use pulc_base::clock::{self, Nanos};
use pulc_handler::{Engine, Hand, Process, SendFault, SendProgress, Sending, Waited, Watch, memory};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The ports that a message goes to, and how each fared with the last one. Keep and reuse it.
pub struct Members {
    list: Vec<Member>,
    /// Where long messages lie while members of this node copy them.
    written: Option<Block>,
}

struct Member {
    address: Address,
    state: State,
}

enum State {
    Finding(Finding),
    Sending {
        header: [u8; HEADER_BYTES],
        dst: pulc_base::Rank,
        /// What was known of places when it was found.
        epoch: u32,
        progress: Option<SendProgress>,
    },
    Done,
    /// To be told with the engine unlocked.
    Fault(SendFault),
    Failed(Error),
}

impl Members {
    /// # Errors
    /// [`Error::NoMembers`], [`Error::BadName`].
    pub fn new(addresses: impl IntoIterator<Item = Address>) -> Result<Members, Error> {
        let list: Vec<Member> = addresses.into_iter().map(|address| Member { address, state: State::Done }).collect();
        if list.is_empty() {
            return Err(Error::NoMembers);
        }
        list.iter().try_for_each(|member| check_name(member.address.name()))?;
        Ok(Members { list, written: None })
    }

    /// The members in the order given, and how each fared with the last message.
    pub fn outcomes(&self) -> impl ExactSizeIterator<Item = (&Address, Result<(), &Error>)> {
        self.list.iter().map(|member| match &member.state {
            State::Failed(error) => (&member.address, Err(error)),
            _ => (&member.address, Ok(())),
        })
    }

    fn result(&self) -> Result<(), Error> {
        let failed = || self.outcomes().filter_map(|(address, outcome)| Some((address, outcome.err()?)));
        match failed().next() {
            None => Ok(()),
            Some((address, error)) => Err(Error::SomeFailed {
                failed: failed().count(),
                of: self.list.len(),
                first: format!("{address}: {error}"),
            }),
        }
    }
}

impl Port {
    /// Sends one message to every member. The bytes are free to reuse on return.
    ///
    /// In ordered mode nothing is lost: the call returns when every member has it or has failed, and members that are quick do not
    /// wait for slow ones. In datagram mode no member is waited for.
    ///
    /// # Errors
    /// [`Error::SomeFailed`]; [`Members::outcomes`] says which, and why. The others have got it.
    pub fn send_many(&self, members: &mut Members, tag: u64, bytes: &[u8]) -> Result<(), Error> {
        self.send_many_until(members, tag, bytes, None)
    }

    /// As [`Port::send_many`]; members that have granted no room within `timeout` fail with [`Error::Timeout`], and nothing of the
    /// message arrives there.
    pub fn send_many_timeout(
        &self,
        members: &mut Members,
        tag: u64,
        bytes: &[u8],
        timeout: Duration,
    ) -> Result<(), Error> {
        self.send_many_until(members, tag, bytes, Some(clock::now() + Nanos::from(timeout)))
    }

    fn send_many_until(
        &self,
        members: &mut Members,
        tag: u64,
        bytes: &[u8],
        deadline: Option<Nanos>,
    ) -> Result<(), Error> {
        let process = self.pulc.process;
        process.check_fork()?;
        if self.mode() == Mode::Datagram {
            for member in &mut members.list {
                let sent = match deadline {
                    None => self.send(&member.address, tag, bytes),
                    Some(deadline) => {
                        self.send_timeout(&member.address, tag, bytes, deadline.since(clock::now()).as_duration())
                    }
                };
                member.state = sent.map_or_else(State::Failed, |()| State::Done);
            }
            return members.result();
        }
        let lookup = clock::now() + self.pulc.lookup;
        for member in &mut members.list {
            let known = error::check_rank(process, member.address.rank());
            member.state = known.map_or_else(State::Failed, |()| State::Finding(Finding::default()));
        }
        let Members { list, written } = members;
        let reference_min = process.lock().engine.limits().reference_min_bytes;
        let bytes = if bytes.len() < reference_min { bytes } else { once_for_the_node(process, list, written, bytes) };
        let mut guard = process.lock();
        // Every member goes as far as it can, whatever the others do.
        let step = |list: &mut [Member], engine: &mut Engine| {
            list.iter_mut().filter_map(|member| (!member.step(self, engine, tag, bytes)).then_some(())).count() == 0
        };
        if !step(list, &mut guard.engine) {
            let hand = &mut Hand::empty();
            let until = deadline.map_or(lookup, |deadline| deadline.min(lookup));
            let mut go_on = |engine: &mut Engine, _: &mut Hand<'_>| step(list, engine).then_some(());
            let (mut waited, mut next) = process.wait(guard, hand, Some(until), Watch::Always, &mut go_on);
            if matches!(waited, Waited::Timeout) && deadline.is_none_or(|deadline| lookup < deadline) {
                // Names that nobody has opened by now are not found.
                list.iter_mut().for_each(|member| member.not_found(&mut next.engine, self));
                let mut go_on = |engine: &mut Engine, _: &mut Hand<'_>| step(list, engine).then_some(());
                (waited, next) = process.wait(next, hand, deadline, Watch::Always, &mut go_on);
            }
            if matches!(waited, Waited::Timeout) {
                list.iter_mut().for_each(|member| member.give_up(&mut next.engine, bytes));
                // What has begun to flow cannot be called back.
                (_, next) = process.wait(next, hand, None, Watch::Always, |engine, _| step(list, engine).then_some(()));
            }
            guard = next;
        }
        process.announce(&guard);
        drop(guard);
        for member in list.iter_mut() {
            if let State::Fault(fault) = member.state {
                member.state = State::Failed(error::of_send(process, fault));
            }
        }
        members.result()
    }
}

impl Member {
    /// Goes as far as it can; whether it is finished, well or not.
    fn step(&mut self, port: &Port, engine: &mut Engine, tag: u64, bytes: &[u8]) -> bool {
        loop {
            match &mut self.state {
                State::Done | State::Fault(_) | State::Failed(_) => return true,
                State::Finding(finding) => {
                    let epoch = port.pulc.epoch.load(Ordering::Relaxed);
                    let (dst, number) = match self.address.number(epoch) {
                        Some(number) => (self.address.rank(), number),
                        None => match finding.step(engine, &self.address) {
                            None => return false,
                            Some(Ok(place)) => (place.rank, place.number),
                            Some(Err(not_found)) => {
                                self.state = not_found.into_state();
                                return true;
                            }
                        },
                    };
                    let header = Header { port: number, kind: Kind::Data, tag }.encode();
                    self.state = State::Sending { header, dst, epoch, progress: None };
                }
                State::Sending { header, dst, epoch, progress } => {
                    let mut sending = Sending::counted(*dst, Proto::PORT, header, bytes);
                    if let Some(progress) = *progress {
                        sending = sending.resume(progress);
                    }
                    if port.pulc.epoch.load(Ordering::Relaxed) != *epoch && sending.withdraw(engine) {
                        // Perhaps it has moved.
                        self.state = State::Finding(Finding::default());
                        continue;
                    }
                    match sending.step(engine) {
                        None => {
                            *progress = Some(sending.progress());
                            return false;
                        }
                        Some(Ok(())) => self.state = State::Done,
                        Some(Err(fault)) => self.state = State::Fault(fault),
                    }
                }
            }
        }
    }

    /// The time for finding is over.
    fn not_found(&mut self, engine: &mut Engine, port: &Port) {
        if let State::Finding(finding) = &mut self.state
            && finding.has_asked()
        {
            finding.forget(engine.handler::<PortTable>(Proto::PORT).expect("registered by attach"));
            let (rank, name) = (self.address.rank(), self.address.name().to_owned());
            let waited = port.pulc.lookup.as_duration();
            self.state = State::Failed(Error::UnknownPort { rank, name, waited });
        }
    }

    /// The time for everything is over.
    fn give_up(&mut self, engine: &mut Engine, bytes: &[u8]) {
        match &mut self.state {
            State::Finding(finding) => {
                finding.forget(engine.handler::<PortTable>(Proto::PORT).expect("registered by attach"));
            }
            State::Sending { header, dst, progress, .. } => {
                let mut sending = Sending::counted(*dst, Proto::PORT, header, bytes);
                if let Some(progress) = *progress {
                    sending = sending.resume(progress);
                }
                if !sending.withdraw(engine) {
                    return;
                }
            }
            _ => return,
        }
        self.state = State::Failed(Error::Timeout);
    }
}

impl crate::finding::NotFound {
    fn into_state(self) -> State {
        match self {
            crate::finding::NotFound::Said(error) => State::Failed(error),
            crate::finding::NotFound::NoWay(fault) => State::Fault(fault),
        }
    }
}

/// The bytes to send: a copy in memory that job-mates read, if that is worth it. Without room there they go to each member by
/// themselves.
fn once_for_the_node<'a>(
    process: &Process,
    list: &[Member],
    written: &'a mut Option<Block>,
    bytes: &'a [u8],
) -> &'a [u8] {
    let is_here = |member: &&Member| {
        let rank = member.address.rank();
        rank != process.rank() && process.boot().tasks.get(rank.0 as usize).is_some_and(|t| t.node == process.node().0)
    };
    let lies_there = memory::known().is_some_and(|arena| arena.offset_of(bytes).is_some());
    if lies_there || list.iter().filter(is_here).count() < 2 {
        return bytes;
    }
    if written.as_ref().is_none_or(|block| block.len() < bytes.len()) {
        *written = None;
        *written = memory::alloc(bytes.len()).ok().flatten();
    }
    match written {
        Some(block) => {
            block[..bytes.len()].copy_from_slice(bytes);
            &block[..bytes.len()]
        }
        None => bytes,
    }
}
