//! Making and ending a mapping: the question for an endpoint, the wait for its answer, and the word that it is not needed any
//! more. Called by `endpoint`.

use super::channels::{MapState, Outgoing};
use super::endpoint::Opened;
use super::graveyard;
use super::peer::Peer;
use super::returned::Status;
use super::send;
use super::table::header;
use super::wire::{Header, Kind};
use crate::{Error, error};
use pulc_base::clock::{self, Nanos};
use pulc_base::{Proto, Rank};
use pulc_handler::Watch;
use std::sync::Arc;
use std::time::Duration;

impl Peer {
    pub(crate) fn map(
        opened: &Arc<Opened>,
        rank: Rank,
        name: &str,
        tag: u64,
        credits: u16,
        timeout: Option<Duration>,
    ) -> Result<Peer, Error> {
        let inner = &opened.bundle;
        inner.check()?;
        error::check_rank(inner.process, rank)?;
        if name.is_empty() || name.len() > super::NAME_MAX {
            return Err(Error::BadName { len: name.len(), max: super::NAME_MAX });
        }
        let channel = ask_for(opened, rank, name, tag, credits)?;
        // Dropped on every way out but the last, which takes back what was asked.
        let peer = Peer { opened: Arc::clone(opened), channel, rank };
        let wait = timeout.map_or(inner.lookup, Nanos::from);
        let answered = inner.drive(Some(clock::now() + wait), Watch::News, |engine| {
            let state = send::table(engine).outgoing.get(channel)?.state;
            (state != MapState::Asked).then_some(state)
        })?;
        match answered {
            Some(MapState::Open) => Ok(peer),
            Some(MapState::Refused(Status::BadTag)) => Err(Error::TagRefused { rank, name: name.to_owned() }),
            Some(MapState::Gone(end)) => Err(Error::PeerGone { rank, how: end.to_string() }),
            Some(MapState::Refused(why)) => Err(Error::System(format!("rank {rank} refused a mapping: {why}"))),
            Some(MapState::Asked) | None => {
                Err(Error::UnknownEndpoint { rank, name: name.to_owned(), waited: wait.as_duration() })
            }
        }
    }
}

/// Asks for a channel; its number here.
fn ask_for(opened: &Arc<Opened>, rank: Rank, name: &str, tag: u64, credits: u16) -> Result<u32, Error> {
    let process = opened.bundle.process;
    let mut guard = process.lock();
    if let Some(end) = guard.engine.end_of(rank) {
        return Err(Error::PeerGone { rank, how: end.to_string() });
    }
    if let Err(fault) = guard.engine.connect(rank) {
        drop(guard);
        return Err(error::of_send(process, fault));
    }
    let table = send::table(&mut guard.engine);
    let credits = credits.clamp(1, table.credits_max);
    let outgoing = Outgoing::new(rank, Arc::clone(&opened.shared));
    let channel = table.outgoing.add(|_| outgoing).ok_or(Error::TooManyPorts { limit: super::ENDPOINTS_MAX })?;
    let front = Header { words: 2, ..header(Kind::Map, channel) }.front(&[tag, u64::from(credits)]);
    let names = format!("{name}\0{}", opened.shared.name);
    send::outbox(&mut guard.engine).post(rank, Proto::AM, front.bytes(), names.as_bytes());
    Ok(channel)
}

impl Drop for Peer {
    fn drop(&mut self) {
        let process = self.opened.bundle.process;
        if process.check_fork().is_err() {
            return;
        }
        let mut guard = process.lock();
        let table = send::table(&mut guard.engine);
        let Some(outgoing) = table.outgoing.get(self.channel) else { return };
        outgoing.closing = true;
        if outgoing.is_idle() {
            table.unmap(self.channel);
        }
        send::flush_acks(&mut guard.engine);
        graveyard::leave(guard);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Bundle, Mode, Short};
    use super::*;
    use crate::Pulc;

    #[test]
    fn a_channel_whose_last_answer_comes_after_its_peer_was_dropped_is_taken_back_without_another_handler() {
        const NOTE: Short<()> = Short::new(1);
        let pulc = Pulc::attach().expect("a process by itself can attach");
        let bundle = Bundle::new(&pulc, Mode::Sequential).expect("there is room");
        let endpoint = bundle.endpoint("taken back", 5).expect("the name is new");
        endpoint.on(NOTE, |_acknowledged, ()| {}).expect("the index is free");
        let peer = endpoint.map(&bundle, pulc.rank(), "taken back", 5, 1).expect("it is open");
        let remote = send::table(&mut pulc.process.lock().engine).outgoing.get(peer.channel).map(|mine| mine.remote);
        let remote = remote.expect("it is open");
        let is_there = || send::table(&mut pulc.process.lock().engine).incoming.get(remote).is_some();
        peer.request(&bundle, NOTE, ()).expect("there is credit");
        drop(peer);
        assert!(is_there(), "its request is under way");
        let mut ran = 0;
        for _ in 0..1000 {
            ran += bundle.poll().expect("polling is allowed here");
        }
        assert_eq!((ran, is_there()), (1, false));
    }
}
