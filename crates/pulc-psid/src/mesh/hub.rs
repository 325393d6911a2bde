//! The heart of a mesh: one task that feeds the membership core with what happened and carries out what it decides. Started by
//! [`super::Mesh::start`]. Never waits for a peer or for whoever takes the events: connections do that.

use super::accept::{self, Host, prefer, refuse};
use super::connection::{Connection, Limits, Report, Start, Stream};
use super::dial::{DialError, Dialed, dial};
use super::wire::{self, Answer, Frame};
use super::{DownWhy, MeshEvent};
use crate::identity::StateDir;
use crate::membership::{Action, ConnId, Event, Member, Membership, Refusal, Timing};
use pulc_base::clock::{Nanos, now};
use pulc_base::{NodeId, log};
use std::collections::HashMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinHandle};

pub(crate) enum Input {
    Incoming { stream: Box<Stream>, member: Member, session: u64 },
    Dialed { id: NodeId, result: Result<Box<Dialed>, DialError> },
    Stop { done: oneshot::Sender<()> },
}

pub(crate) struct Hub {
    pub(crate) core: Membership,
    pub(crate) timing: Timing,
    pub(crate) limits: Limits,
    pub(crate) host: Arc<Host>,
    pub(crate) events: mpsc::Sender<MeshEvent>,
    /// Where known members are written down.
    pub(crate) state: Option<StateDir>,
    conns: HashMap<ConnId, Line>,
    dials: HashMap<NodeId, AbortHandle>,
    /// Proven callers and answered dials that the core has not decided on.
    fresh: HashMap<ConnId, Fresh>,
    /// Last event of the latest connection with a node.
    last_words: HashMap<NodeId, oneshot::Receiver<()>>,
    reports: mpsc::Sender<(ConnId, Report)>,
    next_conn: ConnId,
    next_load: Nanos,
    load_milli: u32,
    unsaved: bool,
    saving: Option<JoinHandle<()>>,
}

struct Line {
    connection: Connection,
    /// Since when what we sent has been waiting for the peer's kernel.
    waiting_since: Option<Nanos>,
}

struct Fresh {
    stream: Box<Stream>,
    called: bool,
}

struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Hub {
    pub(crate) fn new(
        core: Membership,
        timing: Timing,
        limits: Limits,
        host: Arc<Host>,
        events: mpsc::Sender<MeshEvent>,
        state: Option<StateDir>,
        reports: mpsc::Sender<(ConnId, Report)>,
    ) -> Hub {
        Hub {
            core,
            timing,
            limits,
            host,
            events,
            state,
            conns: HashMap::new(),
            dials: HashMap::new(),
            fresh: HashMap::new(),
            last_words: HashMap::new(),
            reports,
            next_conn: 1,
            next_load: Nanos(0),
            load_milli: 0,
            unsaved: false,
            saving: None,
        }
    }

    pub(crate) async fn run(
        mut self,
        listener: Option<TcpListener>,
        known: Vec<Member>,
        mut inputs: mpsc::Receiver<Input>,
        mut reports: mpsc::Receiver<(ConnId, Report)>,
    ) {
        let _accepting = listener
            .map(|listener| AbortOnDrop(tokio::spawn(accept::accept(listener, self.host.clone())).abort_handle()));
        let mut ticks = tokio::time::interval(self.timing.tick.as_duration());
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        self.step(Event::Learned { members: known, at_once: self.state.is_some() });
        self.unsaved = false;
        loop {
            tokio::select! {
                input = inputs.recv() => match input {
                    Some(Input::Incoming { stream, member, session }) => {
                        let conn = self.keep_fresh(stream, true);
                        self.step(Event::Incoming { conn, member, session });
                    }
                    Some(Input::Dialed { id, result }) => self.dialed(id, result),
                    Some(Input::Stop { done }) => {
                        self.farewell().await;
                        let _ = done.send(());
                        return;
                    }
                    None => return,
                },
                report = reports.recv() => match report {
                    Some((conn, report)) => self.reported(conn, report),
                    None => return,
                },
                _ = ticks.tick() => self.tick(),
            }
        }
    }

    fn step(&mut self, event: Event) {
        self.quietly(now(), event);
        if self.core.take_changed() {
            self.host.shared.set_others(self.core.others().collect());
        }
    }

    /// What others are told of it is brought up to date later.
    fn quietly(&mut self, now: Nanos, event: Event) {
        for action in self.core.step(now, event) {
            self.act(action);
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Dial { id, addresses } => {
                let (host, me) = (self.host.clone(), self.host.shared.me());
                let dial = tokio::spawn(async move {
                    let result = dial(&host.tls, &me, host.session, id, &addresses).await.map(Box::new);
                    let _ = host.hub.send(Input::Dialed { id, result }).await;
                });
                self.dials.insert(id, dial.abort_handle());
            }
            Action::CancelDial { id } => {
                if let Some(dial) = self.dials.remove(&id) {
                    dial.abort();
                }
            }
            Action::Admit { conn, info } => self.admit(conn, info),
            Action::Refuse { conn, why } => {
                if let Some(fresh) = self.fresh.remove(&conn) {
                    if why != Refusal::Busy {
                        log!(Warn, "mesh", "a caller is refused: {why:?}");
                    }
                    let host = self.host.clone();
                    tokio::spawn(async move {
                        let _ = tokio::time::timeout(super::dial::HANDSHAKE, refuse(&host, *fresh.stream, why)).await;
                    });
                }
            }
            Action::Close { conn, why } => {
                self.fresh.remove(&conn);
                self.forget(conn, why);
            }
            Action::SendMembers { conn, members } => {
                if let Some(line) = self.conns.get(&conn) {
                    line.connection.outbox.put_upkeep(&Frame::Members(members));
                }
            }
            Action::Beat { conn, answer } => {
                // What waits to be written is as good a sign, but asks for nothing.
                if let Some(line) = self.conns.get(&conn).filter(|line| answer || line.connection.is_idle()) {
                    line.connection.outbox.put_upkeep(&Frame::Beat { load_milli: self.load_milli, answer });
                }
            }
            Action::SendMissed { conn, ids } => {
                if let Some(line) = self.conns.get(&conn) {
                    line.connection.outbox.put_upkeep(&Frame::Missed(ids));
                }
            }
            Action::Remember => {
                self.host.shared.set_members(self.core.members());
                self.unsaved = true;
            }
        }
    }

    fn keep_fresh(&mut self, stream: Box<Stream>, called: bool) -> ConnId {
        let conn = self.next_conn;
        self.next_conn += 1;
        self.fresh.insert(conn, Fresh { stream, called });
        conn
    }

    fn dialed(&mut self, id: NodeId, result: Result<Box<Dialed>, DialError>) {
        self.dials.remove(&id);
        match result {
            Ok(dialed) => {
                let Dialed { stream, mut member, session } = *dialed;
                if let Ok(address) = stream.get_ref().0.peer_addr() {
                    prefer(&mut member, address.ip());
                }
                let conn = self.keep_fresh(Box::new(stream), false);
                self.step(Event::Dialed { conn, member, session });
            }
            Err(error) => {
                let busy = matches!(error, DialError::Refused(Refusal::Busy));
                if !busy {
                    log!(Info, "mesh", "node {id} does not answer: {error}");
                }
                self.step(Event::DialFailed { id, busy });
            }
        }
    }

    fn admit(&mut self, conn: ConnId, info: super::NodeInfo) {
        let Some(Fresh { stream, called }) = self.fresh.remove(&conn) else { return };
        let socket: OwnedFd = match stream.get_ref().0.as_fd().try_clone_to_owned() {
            Ok(socket) => socket,
            Err(error) => {
                log!(Error, "mesh", "node {} can't be connected: {error}", info.id);
                return self.step_lost(conn);
            }
        };
        if let Ok(address) = stream.get_ref().0.local_addr()
            && self.conns.is_empty()
        {
            let mut me = self.host.shared.me();
            prefer(&mut me, address.ip());
            self.host.shared.set_me(me);
        }
        let (done, last_word) = oneshot::channel();
        let after = self.last_words.insert(info.id, last_word);
        let welcome = called.then(|| Answer::Welcome { session: self.host.session, member: self.host.shared.me() });
        let first = welcome.map(|welcome| wire::preamble_and(self.host.version, &welcome));
        let id = info.id;
        let connection = Connection::start(Start {
            conn,
            info,
            stream: *stream,
            socket,
            first: first.unwrap_or_default(),
            limits: self.limits,
            events: self.events.clone(),
            hub: self.reports.clone(),
            after,
            done,
        });
        connection.outbox.put_upkeep(&Frame::Beat { load_milli: self.load_milli, answer: false });
        self.host.shared.open(id, conn, connection.outbox.clone());
        self.conns.insert(conn, Line { connection, waiting_since: None });
    }

    fn step_lost(&mut self, conn: ConnId) {
        self.core.step(now(), Event::Lost { conn, why: DownWhy::Closed });
    }

    fn reported(&mut self, conn: ConnId, report: Report) {
        match report {
            Report::Beat { load_milli, answer } => {
                self.quietly(now(), Event::Beat { conn, load_milli, answer });
            }
            Report::Missed(ids) => self.quietly(now(), Event::Missed { ids }),
            Report::Members(members) => self.step(Event::Learned { members, at_once: false }),
            Report::Ended(why) => {
                self.forget(conn, why);
                self.step(Event::Lost { conn, why });
            }
        }
    }

    fn forget(&mut self, conn: ConnId, why: DownWhy) {
        if let Some(line) = self.conns.remove(&conn) {
            self.host.shared.close(line.connection.id, conn);
            line.connection.close(why);
        }
    }

    fn tick(&mut self) {
        let now = now();
        let new_loads = now >= self.next_load;
        if new_loads {
            self.next_load = now + self.timing.beat;
            self.load_milli = load_milli();
            self.host.shared.set_load(self.load_milli);
        }
        let looked_at: Vec<ConnId> = self.core.looks_at(now).collect();
        for conn in looked_at {
            let Some(line) = self.conns.get_mut(&conn) else { continue };
            let at = line.connection.heard();
            let during = line.waiting(now, now.since(at) > self.timing.beat + self.timing.tick, self.timing.tick);
            self.quietly(now, Event::Heard { conn, at });
            self.quietly(now, Event::Unacknowledged { conn, during });
        }
        self.quietly(now, Event::Tick);
        if self.core.take_changed() || new_loads {
            self.host.shared.set_others(self.core.others().collect());
        }
        self.save();
    }

    /// Writes the members down, one writer at a time and off this task.
    fn save(&mut self) {
        let busy = self.saving.as_ref().is_some_and(|saving| !saving.is_finished());
        if let Some(state) = self.state.clone().filter(|_| self.unsaved && !busy) {
            self.unsaved = false;
            let members = self.core.members().split_off(1);
            self.saving = Some(tokio::task::spawn_blocking(move || {
                if let Err(error) = state.keep_members(&members) {
                    log!(Error, "mesh", "the list of members can't be kept: {error}");
                }
            }));
        }
    }

    async fn farewell(&mut self) {
        let parting: Vec<_> = self.conns.drain().map(|(_, line)| tokio::spawn(line.connection.farewell())).collect();
        for farewell in parting {
            let _ = farewell.await;
        }
        self.save();
        if let Some(saving) = self.saving.take() {
            let _ = saving.await;
        }
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.dials.values().for_each(AbortHandle::abort);
    }
}

impl Line {
    /// How long the peer's kernel has been silent about what we sent; asked only when the peer's daemon is silent.
    fn waiting(&mut self, now: Nanos, silent: bool, tick: Nanos) -> Nanos {
        let waits = silent
            && pulc_hal::os::tcp::progress(self.connection.socket.as_fd())
                .map_or(true, |tcp| tcp.is_waiting() && Nanos::from(tcp.last_ack) > tick);
        self.waiting_since = if waits { self.waiting_since.or(Some(now)) } else { None };
        self.waiting_since.map_or(Nanos(0), |since| now.since(since))
    }
}

/// Load average of one minute in thousandths; zero where there is none.
fn load_milli() -> u32 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: f64 = text.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0);
    (load * 1000.0) as u32
}
