//! The beginning and the end of MPI in this process: joining the job, the phases before, during and after, and ending the whole job.
//! Called by every function for the engine; must never assume that MPI has been initialised.
//! Source: MPI-5.0, chapter 11.

use crate::comm::Communicator;
use crate::consts::{THREAD_MULTIPLE, THREAD_SINGLE};
use crate::error::{Class, Error, Result};
use crate::matcher::{Matcher, push_pending};
use crate::{leaving, progress, stats, trace};
use pulc_base::Proto;
use pulc_hal::os::life;
use pulc_handler::Process;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

const BEFORE: u8 = 0;
const RUNNING: u8 = 1;
const OVER: u8 = 2;

/// How long an aborting process waits to be ended by its keeper.
pub(crate) const ABORT_PATIENCE: Duration = Duration::from_secs(10);

static PROCESS: OnceLock<&'static Process> = OnceLock::new();
static PHASE: AtomicU8 = AtomicU8::new(BEFORE);
static LEVEL: AtomicI32 = AtomicI32::new(THREAD_SINGLE);
static MAIN: Mutex<Option<ThreadId>> = Mutex::new(None);
/// Whether calls may be made: between the beginning and the end, or while a session is open.
static OPEN: AtomicBool = AtomicBool::new(false);
static SESSIONS: AtomicU32 = AtomicU32::new(0);

/// The engine, for calls that need MPI to be initialised.
#[inline(always)]
pub(crate) fn process() -> Result<&'static Process> {
    match PROCESS.get() {
        Some(process) if OPEN.load(Ordering::Relaxed) && !life::is_fork_child() => Ok(process),
        _ => Err(not_open()),
    }
}

/// The engine if this process has joined its job, whatever the phase.
pub(crate) fn attached() -> Option<&'static Process> {
    PROCESS.get().copied().filter(|process| process.check_fork().is_ok())
}

#[cold]
fn not_open() -> Error {
    let text = match PHASE.load(Ordering::Relaxed) {
        BEFORE => "MPI is not initialised: call MPI_Init first",
        RUNNING => "this process is a fork of the one that initialised MPI: exec in the child, or fork before MPI_Init",
        _ => "MPI has been finalized: nothing can be called any more",
    };
    Error::new(Class::OTHER, text)
}

/// Begins; the level of thread support that is provided.
///
/// # Errors
/// When it has begun before, or when the job cannot be joined.
pub fn init_thread(required: i32) -> Result<i32> {
    if !(THREAD_SINGLE..=THREAD_MULTIPLE).contains(&required) {
        return Err(Error::new(Class::ARG, format!("{required} is no level of thread support")));
    }
    if PHASE.compare_exchange(BEFORE, RUNNING, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return Err(Error::new(Class::OTHER, "MPI_Init may be called once only"));
    }
    if let Err(error) = attach() {
        PHASE.store(BEFORE, Ordering::Release);
        return Err(error);
    }
    // Everything is prepared for many threads in any case; what was asked for is what programs expect to be told.
    let provided = required;
    LEVEL.store(provided, Ordering::Relaxed);
    *MAIN.lock().unwrap_or_else(PoisonError::into_inner) = Some(std::thread::current().id());
    OPEN.store(true, Ordering::Release);
    Ok(provided)
}

/// As [`init_thread`] without threads.
pub fn init() -> Result<()> {
    init_thread(THREAD_SINGLE).map(|_| ())
}

/// Joins the job and takes the protocol's place in the switch; once per process.
fn attach() -> Result<()> {
    static ATTACHING: Mutex<()> = Mutex::new(());
    let _attaching = ATTACHING.lock().unwrap_or_else(PoisonError::into_inner);
    if PROCESS.get().is_some() {
        return Ok(());
    }
    let other = |error: pulc_handler::Error| Error::new(Class::OTHER, format!("cannot join the job: {error}"));
    let process = Process::attach().map_err(other)?;
    let mut guard = process.lock();
    let table = Matcher {
        comms: Communicator::predefined(process.rank().0, process.boot().tasks.len() as u32),
        contexts: vec![true; 2],
        ..Matcher::default()
    };
    guard.engine.register(Proto::MPI, Box::new(table)).map_err(other)?;
    guard.engine.register_errand(Proto::MPI, push_pending);
    drop(guard);
    PROCESS.set(process).unwrap_or_else(|_| unreachable!("set under the lock, by the first"));
    life::at_exit(leaving::look_at_exit);
    stats::begin();
    trace::open();
    progress::start(process);
    Ok(())
}

/// Ends: waits until what was sent has left and everybody has come here.
pub fn finalize() -> Result<()> {
    if PHASE.load(Ordering::Acquire) != RUNNING {
        return Err(not_open());
    }
    let process = process()?;
    crate::comm::delete_attributes_of_self()?;
    stats::tell(process)?;
    trace::tell(process)?;
    let is_last = SESSIONS.load(Ordering::Acquire) == 0;
    if is_last {
        leaving::take_no_more(process);
    }
    crate::request::wait_for_sends(process)?;
    // Nobody leaves while others may still need an answer.
    crate::collective::barrier_world()?;
    if is_last {
        leaving::tell_leftovers(process);
    }
    PHASE.store(OVER, Ordering::Release);
    if SESSIONS.load(Ordering::Acquire) == 0 {
        OPEN.store(false, Ordering::Release);
        progress::stop(process);
    }
    process.linger();
    Ok(())
}

pub fn initialized() -> bool {
    PHASE.load(Ordering::Acquire) != BEFORE
}

pub fn finalized() -> bool {
    PHASE.load(Ordering::Acquire) == OVER
}

pub fn query_thread() -> Result<i32> {
    process()?;
    Ok(LEVEL.load(Ordering::Relaxed))
}

pub fn is_thread_main() -> Result<bool> {
    process()?;
    Ok(*MAIN.lock().unwrap_or_else(PoisonError::into_inner) == Some(std::thread::current().id()))
}

/// Opens MPI for a session, which needs no `MPI_Init`.
pub(crate) fn open_session() -> Result<()> {
    attach()?;
    SESSIONS.fetch_add(1, Ordering::AcqRel);
    OPEN.store(true, Ordering::Release);
    Ok(())
}

pub(crate) fn close_session() {
    if SESSIONS.fetch_sub(1, Ordering::AcqRel) == 1 && PHASE.load(Ordering::Acquire) != RUNNING {
        OPEN.store(false, Ordering::Release);
    }
}

/// Whether the program has begun and not ended.
pub(crate) fn is_running() -> bool {
    PHASE.load(Ordering::Acquire) == RUNNING
}

/// ` at rank 3 (node)`, for words to the user; nothing before this process has joined its job.
pub(crate) fn who() -> String {
    attached().map_or_else(String::new, |process| {
        let node = &process.boot().nodes[process.node().0 as usize].name;
        format!(" at rank {} ({node})", process.rank())
    })
}

/// Ends all processes of the job; `code` is its exit status and `text` is shown to the user.
pub fn abort_job(code: i32, text: &str) -> ! {
    // What a process can give its parent has eight bits; failure must not become success.
    let status = match code & 0xff {
        0 if code != 0 => 1,
        low => low as u8,
    };
    let told = attached().is_some_and(|process| process.lock().engine.abort(status, text));
    if told {
        std::thread::sleep(ABORT_PATIENCE);
    } else {
        eprintln!("{text}");
    }
    std::process::exit(i32::from(status));
}
