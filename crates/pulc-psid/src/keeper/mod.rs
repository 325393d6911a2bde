//! The keeper: one process per job and node, parent and subreaper of the job's ranks there, owner of their standard streams
//! and broker of their channels. Started by psid from the same binary (`pulc keeper`) with its line to psid as descriptor 3;
//! that process splits into the keeper and its guardian, who clears up when the keeper is killed.
//! One thread, one epoll loop, no async runtime. It has no policy: it does what psid says, and when psid is gone it ends the
//! job, or goes on and looks for it if the job was queued. It never waits for a rank and never outlives the job.

mod attaching;
mod broker;
pub mod cgroup;
mod control;
mod desk;
mod ending;
mod environment;
mod fuzz;
mod guardian;
pub mod guest;
mod input;
pub mod launch;
mod lookup;
pub mod message;
mod outlet;
pub mod output;
mod pair_keys;
mod pinning;
pub mod remains;
pub(crate) mod staying;
mod streams;

pub use environment::{TUNABLES, without_sequences};
pub(crate) use fuzz::datagrams as fuzz_datagrams;

use crate::error::shortage;
use broker::Broker;
use control::Control;
use ending::Processes;
use guardian::{Guarded, Part};
use input::Input;
use launch::Prepared;
use message::{Order, Report, Stay};
use output::Output;
use pair_keys::PairKeys;
use pulc_base::boot::Gone;
use pulc_base::clock::{Nanos, now};
use pulc_base::{JobId, Rank, log};
use pulc_control::StopKind;
use pulc_hal::os::signals::{SIGCHLD, SIGHUP, SIGINT, SIGTERM, SignalFd};
use rustix::event::epoll::{self, EventData, EventFlags};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

const CONTROL: u64 = 1 << 32;
const SIGNALS: u64 = 2 << 32;
const LISTENER: u64 = 3 << 32;
const CONNECTION: u64 = 4 << 32;
const OUTPUT: u64 = 5 << 32;
const INPUT: u64 = 6 << 32;
const KIND: u64 = 0xffff_ffff << 32;

/// Connections taken in one go: who connects without end does not keep those from being heard that are connected.
const ACCEPTS_MAX: usize = 64;
/// Parcels that a rank's socket did not take are tried again after so long.
const RETRY: Nanos = Nanos::from_ms(2);
/// Time between two rounds of killing what is left of a job.
const SWEEP: Nanos = Nanos::from_ms(5);

/// The whole life of a keeper and of its guardian. `line` is the keeper's connection to psid, which the keeper of a queued job
/// (`stays`) outlives.
pub fn main(line: OwnedFd, stays: bool) -> ExitCode {
    let (error, line) = match guardian::split(line, stays) {
        Ok(Part::Guardian(code)) => return code,
        Ok(Part::Keeper(guarded, line)) => {
            let spare = line.try_clone();
            match Keeper::new(UnixStream::from(line), guarded).and_then(|mut keeper| keeper.run()) {
                Ok(()) => return ExitCode::SUCCESS,
                Err(error) => (error, spare),
            }
        }
        Err((error, line)) => (error, Ok(line)),
    };
    let text = format!("the keeper of the job cannot go on: {}", shortage(&error));
    log!(Info, "keeper", "{text}");
    if let Ok(line) = line {
        control::last_words(UnixStream::from(line), text);
    }
    ExitCode::FAILURE
}

struct Keeper {
    epoll: OwnedFd,
    control: Control,
    guarded: Guarded,
    signals: SignalFd,
    prepared: Option<Box<Prepared>>,
    broker: Option<Broker>,
    output: Output,
    input: Input,
    processes: Processes,
    /// The launch has failed or has not begun: nothing to wait for once told to stop.
    started: bool,
    psid_gone: bool,
    done: bool,
    control_writes: bool,
    input_writes: bool,
    job: JobId,
    stay: Option<Stay>,
    alone_since: Option<Nanos>,
    parting: staying::Parting,
}

impl Keeper {
    fn new(line: UnixStream, guarded: Guarded) -> io::Result<Keeper> {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let signals = SignalFd::new(&[SIGCHLD, SIGTERM, SIGINT, SIGHUP], true)?;
        let control = Control::new(line)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &control, EventData::new_u64(CONTROL), EventFlags::IN)?;
        epoll::add(&epoll, &signals, EventData::new_u64(SIGNALS), EventFlags::IN)?;
        Ok(Keeper {
            epoll,
            control,
            guarded,
            signals,
            prepared: None,
            broker: None,
            output: Output::new(false),
            input: Input::default(),
            processes: Processes::default(),
            started: false,
            psid_gone: false,
            done: false,
            control_writes: false,
            input_writes: false,
            job: JobId(0),
            stay: None,
            alone_since: None,
            parting: staying::Parting::default(),
        })
    }

    fn run(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(256);
        loop {
            let timer = self.timers();
            self.control.flush();
            if self.done && self.may_leave() {
                self.leave_directory();
                return Ok(());
            }
            self.update_polling()?;
            let timeout = timer.map(|at| {
                let wait = at.since(now()).as_duration();
                rustix::event::Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) }
            });
            events.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                let (token, flags) = (event.data.u64(), event.flags);
                self.event(token & KIND, (token & !KIND) as usize, flags);
            }
        }
    }

    fn event(&mut self, kind: u64, index: usize, flags: EventFlags) {
        match kind {
            CONTROL if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) => self.hear_psid(),
            SIGNALS => self.hear_signals(),
            LISTENER => self.accept(),
            CONNECTION => {
                let events = self.broker.as_mut().map(|broker| broker.read(index)).unwrap_or_default();
                self.broker_events(events);
            }
            OUTPUT => self.read_output(index),
            INPUT => {
                if flags.contains(EventFlags::ERR) {
                    self.input.close();
                }
                let control = &mut self.control;
                self.input.write(&mut |report| control.report(report));
            }
            _ => {}
        }
    }

    /// Does what is due and returns when to look again.
    fn timers(&mut self) -> Option<Nanos> {
        let mut next = self.processes.due();
        if let Some(text) = self.processes.stuck() {
            log!(Error, "keeper", "{text}");
            self.control.report_stuck(text);
        }
        let mut at = |when: Nanos| next = Some(next.map_or(when, |next: Nanos| next.min(when)));
        if let Some(broker) = self.broker.as_mut().filter(|broker| broker.has_waiting()) {
            broker.retry();
            if broker.has_waiting() {
                at(now() + RETRY);
            }
        }
        let asks = self.input.is_open().then_some(Rank(0));
        let control = &mut self.control;
        if let Some(when) = self.output.tick(asks, &mut |report| control.report(report)) {
            at(when);
        }
        self.account_files();
        if let Some(when) = self.find_psid() {
            at(when);
        }
        self.resume_outputs();
        if self.started && self.processes.all_ended() && !self.done {
            if self.wind_up() {
                self.done = true;
                return Some(now());
            }
            let pause = self.processes.pause(SWEEP);
            at(now() + pause);
        }
        next
    }

    /// Everything of the job gone and everything printed sent?
    fn wind_up(&mut self) -> bool {
        if !self.processes.sweep() {
            return false;
        }
        let control = &mut self.control;
        if (!self.psid_gone || self.stay.is_some()) && !self.output.finish(&mut |report| control.report(report)) {
            self.account_files();
            return false;
        }
        if let Some(refused) = self.broker.as_ref().map(Broker::refused).filter(|refused| *refused > 0) {
            log!(Info, "keeper", "{refused} messages on the attach socket were refused");
        }
        self.account_files();
        self.report_used();
        self.processes.remove_cgroup();
        self.leave_directory();
        self.control.report(&Report::Clean);
        true
    }

    fn hear_psid(&mut self) {
        match self.control.receive() {
            Ok(orders) => orders.into_iter().for_each(|order| self.obey(order)),
            Err(error) => {
                self.psid_gone = true;
                let _ = epoll::delete(&self.epoll, &self.control);
                if self.goes_on_alone() {
                    return;
                }
                if !self.done {
                    log!(Info, "keeper", "psid is gone ({error}); the job ends");
                }
                self.stop(StopKind::AtOnce);
            }
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Prepare(prepare) if self.prepared.is_none() && !self.started => self.prepare(*prepare),
            Order::Go { boot, secret } => {
                if let Some(prepared) = self.prepared.take() {
                    self.go(*prepared, &boot, PairKeys::new(&secret, &boot));
                }
            }
            Order::Input { bytes } => {
                self.input.push(&bytes);
                let control = &mut self.control;
                self.input.write(&mut |report| control.report(report));
            }
            Order::InputEnd => {
                self.input.end();
                let control = &mut self.control;
                self.input.write(&mut |report| control.report(report));
            }
            Order::Credit { bytes } => self.output.add_credit(bytes),
            Order::Stop(kind) => self.stop(kind),
            Order::Gone { ranks } => {
                let events = self.broker.as_mut().map(|broker| broker.gone(&ranks)).unwrap_or_default();
                self.broker_events(events);
            }
            Order::Look { number } => {
                let waits = self.broker.as_ref().map(Broker::waits).unwrap_or_default();
                self.control.report(&Report::Looked { number, waits });
            }
            Order::Prepare(_) => log!(Error, "keeper", "a second launch order was ignored"),
            other => self.obey_queue(other),
        }
    }

    fn fail(&mut self, text: String) {
        self.control.report(&Report::Failed { text });
        self.started = true;
        self.processes.stop(StopKind::AtOnce);
    }

    fn go(&mut self, prepared: Prepared, boot: &pulc_base::boot::Boot, keys: Option<PairKeys>) {
        self.started = true;
        self.processes.kill_delay = std::time::Duration::from_millis(prepared.order.launch.kill_delay_ms).into();
        self.processes.come_last(prepared.lowly);
        self.control.keep_network(boot, prepared.order.first);
        let (processes, output, input) = (&mut self.processes, &mut self.output, &mut self.input);
        let mut outputs = Vec::new();
        let (result, cgroup, pinning) = launch::go(prepared, boot, &self.guarded, &mut |started| {
            for (stream, pipe) in started.pipes {
                outputs.push(output.add(pipe, started.rank, stream));
            }
            if let Some(pipe) = started.input {
                *input = Input::new(pipe);
            }
            processes.add(started.rank, started.child);
        });
        for index in outputs {
            self.poll_output(index);
        }
        self.processes.keep(cgroup, pinning);
        match result {
            Ok(parts) => {
                let broker = Broker::new(parts.listener, parts.boot, keys, parts.board, parts.seats);
                if let Err(error) = self.poll(broker.listener(), LISTENER, EventFlags::IN) {
                    return self.fail(format!("cannot poll the attach socket: {error}"));
                }
                self.broker = Some(broker);
                if let Some(fd) = self.input.fd()
                    && let Err(error) = self.poll(fd, INPUT, EventFlags::empty())
                {
                    log!(Warn, "keeper", "standard input cannot be polled: {error}");
                }
                self.control.report(&Report::Started { pids: self.processes.pids() });
            }
            Err(text) => self.fail(text),
        }
    }

    fn stop(&mut self, kind: StopKind) {
        self.prepared = None;
        self.started = true;
        self.processes.stop(kind);
    }

    fn hear_signals(&mut self) {
        while let Ok(signal) = self.signals.read() {
            if signal == SIGCHLD {
            } else if !self.guarded.guardian_lives() {
                self.fail("the guardian of the job died".to_owned());
            } else {
                log!(Info, "keeper", "signal {signal}; the job ends");
                self.stop(StopKind::Gently);
            }
        }
        let ended: Vec<(Rank, Gone)> = self.processes.reap();
        if ended.is_empty() {
            return;
        }
        if ended.iter().any(|(rank, _)| *rank == Rank(0)) {
            self.input.close();
            let control = &mut self.control;
            self.input.write(&mut |report| control.report(report));
        }
        let events = self.broker.as_mut().map(|broker| broker.gone(&ended)).unwrap_or_default();
        self.broker_events(events);
        self.control.report(&Report::Exited { ranks: ended });
    }

    fn poll(&self, fd: BorrowedFd<'_>, token: u64, flags: EventFlags) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, EventData::new_u64(token), flags)?)
    }
}
