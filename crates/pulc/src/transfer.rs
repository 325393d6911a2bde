//! Moving a port to another process, and taking one over. The calls; what goes on in between is in `table/moves`. Must never let a
//! message be lost or received twice, whoever gives up or ends meanwhile.

use crate::port::check_name;
use crate::table::{Answer, PortTable};
use crate::{Error, Mode, Port, Pulc, error};
use pulc_base::clock::{self, Nanos};
use pulc_base::{Proto, Rank};
use pulc_handler::{Engine, Hand, Outbox, Waited, Watch};
use std::time::Duration;

fn table(engine: &mut Engine) -> (&mut PortTable, &mut Outbox) {
    engine.handler_and_outbox::<PortTable>(Proto::PORT).expect("registered by attach")
}

impl Port {
    /// Moves the port to another process, which takes it with [`Pulc::adopt_port`]. Messages that are kept here go with it, those on
    /// the way follow, and senders learn the new place by themselves: addresses of the port stay good. To the new owner's
    /// receives the order and number of every sender's messages are as if the port had always been there.
    ///
    /// # Blocks
    /// Until the other process has taken the port, then until all senders have learnt of it: each of them does when it next calls
    /// PULC, and until then what it sends is passed on when this process does. When `timeout` is over after the port was
    /// taken, that goes on in later calls of this process ([`Pulc::flush`] waits for it, and so does its exit, for a while).
    ///
    /// # Errors
    /// With the port, which stays here, nothing lost: [`Error::Timeout`], [`Error::PeerGone`], [`Error::NotTaken`],
    /// [`Error::NoSuchRank`]. Should the other process end after it has taken the port, that is the end of the port as of any:
    /// senders are told.
    pub fn transfer(self, to: Rank, timeout: Option<Duration>) -> Result<(), (Port, Error)> {
        match self.try_transfer(to, timeout) {
            Ok(()) => {
                self.let_go();
                Ok(())
            }
            Err(error) => Err((self, error)),
        }
    }

    fn try_transfer(&self, to: Rank, timeout: Option<Duration>) -> Result<(), Error> {
        let process = self.pulc.process;
        process.check_fork()?;
        error::check_rank(process, to)?;
        if to == process.rank() {
            return Err(Error::NotTaken { rank: to, name: self.name().to_owned() });
        }
        let deadline = timeout.map(|timeout| clock::now() + Nanos::from(timeout));
        let number = self.number();
        let mut guard = process.lock();
        if let Some(end) = guard.engine.end_of(to) {
            return Err(Error::PeerGone { rank: to, how: end.to_string() });
        }
        if let Err(fault) = guard.engine.connect(to) {
            drop(guard);
            return Err(error::of_send(process, fault));
        }
        let (ports, outbox) = table(&mut guard.engine);
        ports.offer(number, to, self.mode() == Mode::Datagram, outbox);
        let hand = &mut Hand::empty();
        let (waited, mut guard) = process.wait(guard, hand, deadline, Watch::News, |engine, _| {
            let (ports, outbox) = table(engine);
            let answer = ports.answer_to_offer(number)?;
            if let Answer::Taken(_) = answer {
                // At once, with the engine still locked: from here on there is no way back.
                ports.hand_over(number, outbox);
            }
            Some(answer)
        });
        let refusal = match waited {
            Waited::Ready(Answer::Taken(_)) => None,
            Waited::Ready(Answer::Refused) => Some(Error::NotTaken { rank: to, name: self.name().to_owned() }),
            Waited::Ready(Answer::Gone(end)) => Some(Error::PeerGone { rank: to, how: end.to_string() }),
            Waited::Timeout => Some(Error::Timeout),
        };
        if let Some(error) = refusal {
            let (ports, outbox) = table(&mut guard.engine);
            ports.take_offer_back(number, outbox);
            process.poll(&mut guard, hand);
            return Err(error);
        }
        let (_, mut guard) = process.wait(guard, hand, deadline, Watch::News, |engine, _| {
            table(engine).0.has_moved_wholly(number).then_some(())
        });
        process.poll(&mut guard, hand);
        Ok(())
    }
}

impl Pulc {
    /// Takes over the port of that name, which `from` moves here with [`Port::transfer`]. It keeps its name, which must not be in use
    /// in this process, and its mode.
    ///
    /// # Blocks
    /// Until the port is offered. When `timeout` is over while it is being taken over, the port is not lost: the next call with the
    /// same `from` and `name` has it.
    ///
    /// # Errors
    /// [`Error::Timeout`], [`Error::NameTaken`], [`Error::TooManyPorts`], [`Error::PeerGone`]. Should the old owner end before it has
    /// handed over everything, one receive from the port returns [`Error::PeerGone`] with that word once what has come is received.
    pub fn adopt_port(&self, from: Rank, name: &str, timeout: Option<Duration>) -> Result<Port, Error> {
        let process = self.process;
        process.check_fork()?;
        error::check_rank(process, from)?;
        check_name(name)?;
        let deadline = timeout.map(|timeout| clock::now() + Nanos::from(timeout));
        let guard = process.lock();
        let (waited, mut guard) =
            process.wait(guard, &mut Hand::empty(), deadline, Watch::News, |engine, _| adopt(engine, from, name));
        // The word that it is taken, or what it has to say first, leaves at once.
        process.poll(&mut guard, &mut Hand::empty());
        match waited {
            Waited::Ready(Ok((number, is_datagram))) => {
                let mode = if is_datagram { Mode::Datagram } else { Mode::Ordered };
                Ok(Port::made(self, number, name, mode))
            }
            Waited::Ready(Err(error)) => Err(error),
            Waited::Timeout => Err(Error::Timeout),
        }
    }
}

/// One look for a port that is being moved here.
fn adopt(engine: &mut Engine, from: Rank, name: &str) -> Option<Result<(u32, bool), Error>> {
    let (ports, outbox) = table(engine);
    if let Some(ours) = ports.take_ours(from, name) {
        return Some(Ok(ours));
    }
    let limit = ports.ports_max;
    match ports.take_offer(from, name, outbox) {
        Err(why) => Some(Err(why.into_error(name, limit))),
        Ok(Some(_)) => None,
        Ok(None) => engine.end_of(from).map(|end| Err(Error::PeerGone { rank: from, how: end.to_string() })),
    }
}
