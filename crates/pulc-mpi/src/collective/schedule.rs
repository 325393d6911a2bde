//! Running programs of collectives: round by round, by whichever thread waits for anything. The engine is locked only while
//! messages are begun and looked at.

use super::program::{Program, Side, Step};
use crate::comm::{Communicator, Form};
use crate::data::Data;
use crate::envelope::Envelope;
use crate::error::{Error, Result};
use crate::handle::{Comm, Request};
use crate::matcher::{Recv, Requests, Work, matcher, matcher_and_outbox, settle};
use crate::op;
use crate::p2p::{self, Mode};
use crate::request::{Known, abandon, keep_going};
use crate::status::Status;
use crate::watch::For;
use crate::world;
use pulc_handler::matching::Pattern;
use pulc_handler::{Engine, Guard, Process};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How far one execution of a program has come.
struct Run {
    program: Arc<Program>,
    comm: Arc<Communicator>,
    /// Keep the messages of this collective apart from those of others under way, on either side.
    tags: [i32; 2],
    at: usize,
    waiting: Vec<u32>,
    /// The request whose status is that of the whole.
    plain: Option<u32>,
    status: Status,
    error: Option<Error>,
}

/// A nonblocking collective under way.
pub(crate) struct Schedule {
    request: u32,
    run: Mutex<Run>,
}

static ACTIVE: Mutex<Vec<Arc<Schedule>>> = Mutex::new(Vec::new());
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Whether any nonblocking collective is under way.
#[inline(always)]
pub(crate) fn any_active() -> bool {
    COUNT.load(Ordering::Relaxed) > 0
}

fn active() -> MutexGuard<'static, Vec<Arc<Schedule>>> {
    ACTIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Run {
    fn new(comm: &Arc<Communicator>, program: Arc<Program>, tags: [i32; 2]) -> Run {
        Run {
            program,
            comm: Arc::clone(comm),
            tags,
            at: 0,
            waiting: Vec::new(),
            plain: None,
            status: Status::EMPTY,
            error: None,
        }
    }

    /// Goes as far as possible now; whether it is at its end.
    fn advance(&mut self, process: &'static Process) -> bool {
        loop {
            if !self.waiting.is_empty() && !self.collect(&mut process.lock()) {
                return false;
            }
            if self.error.is_some() || self.at == self.program.rounds.len() {
                return true;
            }
            let program = Arc::clone(&self.program);
            self.at += 1;
            if let Err(error) = self.round(process, &program.rounds[self.at - 1]) {
                self.error = Some(error);
                for request in std::mem::take(&mut self.waiting) {
                    abandon(process, Requests::handle(request));
                }
            }
        }
    }

    /// Takes the results of messages that are through; whether all are.
    fn collect(&mut self, guard: &mut Guard<'_>) -> bool {
        let table = matcher(&mut guard.engine);
        let (plain, status, error) = (self.plain, &mut self.status, &mut self.error);
        self.waiting.retain(|request| {
            if table.requests.is_active(*request) {
                return true;
            }
            let taken = table.take(*request);
            if plain == Some(*request) {
                *status = taken.status;
            }
            if let Some(failed) = taken.error {
                error.get_or_insert(failed);
            }
            false
        });
        self.waiting.is_empty()
    }

    fn round(&mut self, process: &'static Process, steps: &[Step]) -> Result<()> {
        let mut guard = None;
        for step in steps {
            match step {
                Step::Send { data, to, side } => {
                    self.send(process, guard.get_or_insert_with(|| process.lock()), data, *to, *side)?;
                }
                Step::Recv { data, from, side } => {
                    let guard = guard.get_or_insert_with(|| process.lock());
                    self.recv(&mut guard.engine, data, *from, *side)?;
                }
                Step::SendPlain { data, dest, tag } => {
                    let guard = guard.get_or_insert_with(|| process.lock());
                    self.send_plain(process, guard, data, *dest, *tag)?;
                }
                Step::RecvPlain { data, source, tag } => {
                    let guard = guard.get_or_insert_with(|| process.lock());
                    self.recv_plain(&mut guard.engine, data, *source, *tag)?;
                }
                Step::Copy { from, to } => {
                    guard = None;
                    from.copy_to(to)?;
                }
                Step::Reduce { op, datatype, input, inout, count } => {
                    guard = None;
                    op::reduce(op, *datatype, *input, *inout, *count)?;
                }
            }
        }
        Ok(())
    }

    /// Communicator and tag of one side.
    fn on(&self, side: Side) -> (&Arc<Communicator>, i32) {
        match (side, &self.comm.remote) {
            (Side::Local, Some(remote)) => (&remote.local, self.tags[1]),
            _ => (&self.comm, self.tags[0]),
        }
    }

    fn send(
        &mut self,
        process: &'static Process,
        guard: &mut Guard<'_>,
        data: &Data,
        to: i32,
        side: Side,
    ) -> Result<()> {
        let (comm, tag) = self.on(side);
        let (handle, envelope) = (comm.handle, Envelope { context: comm.context + 1, tag });
        let Some(dst) = comm.destination(to)? else { return Ok(()) };
        let request = p2p::begin_to(process, guard, dst, envelope, data.clone(), Mode::Standard, handle)?;
        self.await_request(&mut guard.engine, request)
    }

    fn recv(&mut self, engine: &mut Engine, data: &Data, from: i32, side: Side) -> Result<()> {
        let (comm, tag) = self.on(side);
        let (handle, context, senders) = (comm.handle, comm.context + 1, comm.senders());
        let Some(src) = comm.destination(from)? else { return Ok(()) };
        let recv = Recv { data: data.clone(), context, entry: None, senders, src, tag: 0, total: 0, arrived: 0 };
        let pattern = Pattern { src: Some(src.0), tag: Some(u64::from(tag as u32)) };
        let (table, outbox) = matcher_and_outbox(engine);
        let index = table.post(recv, pattern, handle, outbox);
        settle(engine);
        self.await_request(engine, Requests::handle(index))
    }

    fn send_plain(
        &mut self,
        process: &'static Process,
        guard: &mut Guard<'_>,
        data: &Data,
        dest: i32,
        tag: i32,
    ) -> Result<()> {
        let (envelope, handle) = (Envelope { context: self.comm.context, tag }, self.comm.handle);
        let Some(dst) = self.comm.destination(dest)? else { return Ok(()) };
        let request = p2p::begin_to(process, guard, dst, envelope, data.clone(), Mode::Standard, handle)?;
        self.await_request(&mut guard.engine, request)
    }

    fn recv_plain(&mut self, engine: &mut Engine, data: &Data, source: i32, tag: i32) -> Result<()> {
        let Some(pattern) = self.comm.pattern(source, tag)? else {
            self.status = Status::NOBODY;
            return Ok(());
        };
        let request = p2p::post(engine, data.clone(), pattern, self.comm.handle)?;
        self.plain = matcher(engine).requests.index(request);
        // Even one that is complete is waited for: its status is wanted.
        if let Some(index) = self.plain {
            matcher(engine).requests.place(index).of_schedule = true;
            self.waiting.push(index);
        }
        Ok(())
    }

    fn await_request(&mut self, engine: &mut Engine, request: Request) -> Result<()> {
        let table = matcher(engine);
        match table.look_up(request)? {
            Known::Active(index) => {
                table.requests.place(index).of_schedule = true;
                self.waiting.push(index);
            }
            Known::Done(index) => {
                // The others wait for what this round sends: it goes on.
                if let Some(error) = table.take(index).error {
                    self.error.get_or_insert(error);
                }
            }
            Known::Nothing | Known::Sent => {}
        }
        Ok(())
    }
}

/// The tags of the next collective on either side.
fn next_tags(comm: &Communicator, form: Form) -> [i32; 2] {
    let local = comm.remote.as_ref().map_or(0, |remote| remote.local.next_collective(form));
    [comm.next_collective(form), local]
}

/// Runs a program to its end.
pub(crate) fn run(comm: &Arc<Communicator>, program: Program) -> Result<()> {
    run_tagged(comm, program, None)
}

/// The same with a tag of the caller's instead of the communicator's next one.
pub(crate) fn run_tagged(comm: &Arc<Communicator>, program: Program, tag: Option<i32>) -> Result<()> {
    let process = world::process()?;
    let mut run = match tag {
        None => Run::new(comm, Arc::new(program), next_tags(comm, Form::Blocking)),
        Some(tag) => Run::new(comm, Arc::new(program), [tag; 2]),
    };
    while !run.advance(process) {
        let waiting = &run.waiting;
        keep_going(process, For::Places(waiting), |table| {
            !waiting.iter().any(|request| table.requests.is_active(*request))
        });
    }
    match run.error {
        None => Ok(()),
        Some(error) => Err(Error { on: Some(comm.handle), ..error }),
    }
}

/// Makes a request for a program; [`launch`] starts it.
pub(crate) fn begin(engine: &mut Engine, program: Arc<Program>, comm: Comm) -> Result<Arc<Schedule>> {
    let table = matcher(engine);
    let found = Arc::clone(table.comm(comm)?);
    // What is no collective must not be counted as one: the other members do not take part.
    let tags = match program.next_turn() {
        Some(tags) => tags,
        None if program.is_plain() => [0; 2],
        None => next_tags(&found, Form::Nonblocking),
    };
    let run = Run::new(&found, program, tags);
    let request = table.requests.add(Work::None, comm);
    let schedule = Arc::new(Schedule { request, run: Mutex::new(run) });
    table.requests.place(request).work = Work::Schedule(Arc::clone(&schedule));
    Ok(schedule)
}

/// Starts a schedule; whoever waits for something drives it.
pub(crate) fn launch(process: &'static Process, schedule: Arc<Schedule>) -> Request {
    let request = Requests::handle(schedule.request);
    COUNT.fetch_add(1, Ordering::AcqRel);
    if !schedule.advance(process) {
        active().push(schedule);
    }
    request
}

/// Begins a nonblocking collective.
pub(crate) fn start(comm: &Arc<Communicator>, program: Program) -> Result<Request> {
    let process = world::process()?;
    let schedule = begin(&mut process.lock().engine, Arc::new(program), comm.handle)?;
    Ok(launch(process, schedule))
}

impl Schedule {
    /// Requests of the round that it is in, as far as can be said at the moment.
    pub fn waits_for(&self) -> Vec<u32> {
        self.run.try_lock().map(|run| run.waiting.clone()).unwrap_or_default()
    }

    /// Goes on; whether it is complete.
    fn advance(&self, process: &'static Process) -> bool {
        let mut run = self.run.lock().unwrap_or_else(PoisonError::into_inner);
        if !run.advance(process) {
            return false;
        }
        let mut guard = process.lock();
        let (status, error) = (run.status, run.error.take());
        // The request may be persistent: it is another schedule's soon.
        if matches!(&matcher(&mut guard.engine).requests.place(self.request).work,
            Work::Schedule(own) if std::ptr::eq(&**own, self))
        {
            matcher(&mut guard.engine).requests.complete(self.request, status, error);
            COUNT.fetch_sub(1, Ordering::AcqRel);
            process.announce(&guard);
        }
        true
    }
}

/// Drives all nonblocking collectives that are under way. Not to be called with the engine locked.
#[cold]
pub(crate) fn drive(process: &'static Process) {
    matcher(&mut process.lock().engine).requests.schedule_news = false;
    let all: Vec<Arc<Schedule>> = active().clone();
    for schedule in all {
        if schedule.advance(process) {
            active().retain(|other| !Arc::ptr_eq(other, &schedule));
        }
    }
}
