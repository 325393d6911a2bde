//! The timeline of `pulc run --trace FILE`: every call of MPI by every thread, and inside of it the time that it waited, as a file that
//! Perfetto and Chrome open. Each process keeps its own events, at the end the first one writes those of all. Where nobody asked, a
//! call costs one relaxed load. Called by the doors around every call, and by `world`. Must never change what a call does.
//! Source: the Trace Event Format (JSON) that Perfetto reads.

use crate::callback::ErrorOn;
use crate::collective;
use crate::comm::find;
use crate::error::Result;
use crate::handle::{Comm, Datatype};
use crate::memory::{Ints, Room};
use pulc_base::clock::Nanos;
use pulc_hal::board::machine_time;
use pulc_handler::Process;
use pulc_handler::mpi_params::EVENTS_MAX;
use std::cell::Cell;
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// Names the file; set for the ranks by the launcher.
const VARIABLE: &str = "PULC_TRACE";

/// Looks at the clocks of other nodes; the middle one counts.
const CLOCK_LOOKS: usize = 9;

static IS_ON: AtomicBool = AtomicBool::new(false);
static LOG: Mutex<Log> = Mutex::new(Log { events: Vec::new(), lost: 0, max: 0 });
static THREADS: AtomicU32 = AtomicU32::new(0);

struct Log {
    events: Vec<Event>,
    lost: u64,
    max: usize,
}

struct Event {
    name: &'static str,
    thread: u32,
    began: Nanos,
    took: Nanos,
    comm: Option<Comm>,
    message: Option<Message>,
}

/// What a call has sent or received.
#[derive(Clone, Copy)]
struct Message {
    peer: i32,
    tag: i32,
    bytes: u64,
}

thread_local! {
    /// This thread's number; zero: it has none yet.
    static THREAD: Cell<u32> = const { Cell::new(0) };
    static MESSAGE: Cell<Option<Message>> = const { Cell::new(None) };
}

#[inline(always)]
pub(crate) fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// A call begins.
#[inline(always)]
pub fn begin() -> Option<Nanos> {
    if is_on() { Some(start()) } else { None }
}

#[cold]
fn start() -> Nanos {
    MESSAGE.set(None);
    machine_time()
}

/// It ends.
#[inline(always)]
pub fn end(began: Option<Nanos>, function: &'static str, on: ErrorOn) {
    if let Some(began) = began {
        let comm = match on {
            ErrorOn::Comm(comm) => Some(comm),
            _ => None,
        };
        keep(function, began, comm, MESSAGE.take());
    }
}

/// The call that goes on has sent or received this.
#[inline(always)]
pub(crate) fn message(peer: i32, tag: i32, bytes: u64) {
    if is_on() {
        MESSAGE.set(Some(Message { peer, tag, bytes }));
    }
}

/// The call that goes on has waited so long, until now.
pub(crate) fn waited(time: Nanos) {
    if is_on() {
        keep("waits", machine_time().since(time), None, None);
    }
}

#[cold]
fn keep(name: &'static str, began: Nanos, comm: Option<Comm>, message: Option<Message>) {
    let took = machine_time().since(began);
    if THREAD.get() == 0 {
        THREAD.set(THREADS.fetch_add(1, Ordering::Relaxed) + 1);
    }
    let event = Event { name, thread: THREAD.get(), began, took, comm, message };
    let mut log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
    if log.events.len() < log.max {
        log.events.push(event);
    } else {
        log.lost += 1;
    }
}

pub(crate) fn open() {
    if std::env::var_os(VARIABLE).is_some_and(|file| !file.is_empty()) {
        LOG.lock().unwrap_or_else(PoisonError::into_inner).max = EVENTS_MAX.read().value as usize;
        IS_ON.store(true, Ordering::Relaxed);
    }
}

/// Brings everybody's events to the first rank, which writes the file. All processes of the job take part.
pub(crate) fn tell(process: &'static Process) -> Result<()> {
    if !is_on() {
        return Ok(());
    }
    let offset = offset_of_first(process)?;
    IS_ON.store(false, Ordering::Relaxed);
    let log = {
        let mut log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
        Log { events: std::mem::take(&mut log.events), lost: log.lost, max: 0 }
    };
    if log.lost > 0 {
        let (name, lost) = (EVENTS_MAX.variable(), log.lost);
        pulc_base::log!(
            Warn,
            "mpi",
            "the timeline of rank {} lacks {lost} events; {name} sets how many are kept",
            process.rank()
        );
    }
    let text = events(process, &log, offset);
    let parts = gathered(process, text.as_bytes())?;
    if process.rank().0 == 0 {
        let file = std::env::var_os(VARIABLE).unwrap_or_default();
        if let Err(error) = write(std::path::Path::new(&file), &parts) {
            pulc_base::log!(Warn, "mpi", "the timeline cannot be written to {}: {error}", file.display());
        }
    }
    Ok(())
}

/// What to add to this process's time to have that of the first rank: between nodes the middle of some meetings' differences.
fn offset_of_first(process: &'static Process) -> Result<i64> {
    let mut differences = [0; CLOCK_LOOKS];
    let mut first = Room::new(8);
    for difference in &mut differences {
        collective::barrier(Comm::WORLD)?;
        let now = machine_time().0;
        first.addr().write(0, &now.to_ne_bytes());
        collective::bcast(first.addr(), 8, Datatype::BYTE, 0, Comm::WORLD)?;
        let mut bytes = [0; 8];
        first.addr().read(0, &mut bytes);
        *difference = u64::from_ne_bytes(bytes).wrapping_sub(now) as i64;
    }
    differences.sort_unstable();
    let nodes: Vec<u32> = process.boot().tasks.iter().map(|task| task.node).collect();
    // The processes of one node read one clock.
    let is_near = nodes.first() == nodes.get(process.rank().0 as usize);
    Ok(if is_near { 0 } else { differences[CLOCK_LOOKS / 2] })
}

/// One line for each event, each with a comma in front.
fn events(process: &Process, log: &Log, offset: i64) -> String {
    let rank = process.rank().0;
    let node = &process.boot().nodes[process.node().0 as usize].name;
    let mut text = String::with_capacity(log.events.len() * 128);
    let name = quoted(&format!("rank {rank} on {node}"));
    let _ = write!(text, ",\n{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{rank},\"args\":{{\"name\":{name}}}}}");
    let _ = write!(
        text,
        ",\n{{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":{rank},\"args\":{{\"sort_index\":{rank}}}}}"
    );
    for event in &log.events {
        let began = event.began.0.wrapping_add(offset as u64);
        let (name, thread) = (event.name, event.thread);
        let _ = write!(
            text,
            ",\n{{\"ph\":\"X\",\"cat\":\"mpi\",\"name\":\"{name}\",\"pid\":{rank},\"tid\":{thread},\"ts\":{},\"dur\":{}",
            Microseconds(began),
            Microseconds(event.took.0)
        );
        text.push_str(",\"args\":{");
        if let Some(comm) = event.comm {
            let place =
                find(comm).map_or_else(|_| format!("communicator {:#010x}", comm.0), |comm| comm.display_name());
            let _ = write!(text, "\"comm\":{}", quoted(&place));
        }
        if let Some(Message { peer, tag, bytes }) = event.message {
            let comma = if event.comm.is_some() { "," } else { "" };
            let _ = write!(text, "{comma}\"peer\":{peer},\"tag\":{tag},\"bytes\":{bytes}");
        }
        text.push_str("}}");
    }
    text
}

/// Nanoseconds, shown as microseconds.
struct Microseconds(u64);

impl std::fmt::Display for Microseconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

/// A text of JSON.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            letter if letter.is_control() => {
                let _ = write!(quoted, "\\u{:04x}", letter as u32);
            }
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

/// Everybody's bytes one after the other, at the first rank.
fn gathered(process: &'static Process, own: &[u8]) -> Result<Vec<u8>> {
    let size = process.boot().tasks.len();
    let is_first = process.rank().0 == 0;
    let (mut len, mut lens) = (Room::new(8), Room::new(if is_first { size * 8 } else { 8 }));
    len.addr().write(0, &(own.len() as i64).to_ne_bytes());
    collective::gather(len.addr(), 8, Datatype::BYTE, lens.addr(), 8, Datatype::BYTE, 0, Comm::WORLD)?;
    let counts: Vec<i64> = (0..if is_first { size } else { 0 })
        .map(|rank| {
            let mut bytes = [0; 8];
            lens.addr().read(rank as i64 * 8, &mut bytes);
            i64::from_ne_bytes(bytes)
        })
        .collect();
    let mut places = Vec::with_capacity(counts.len());
    let mut total = 0;
    for count in &counts {
        places.push(total);
        total += count;
    }
    let (mut out, mut all) = (Room::new(own.len().max(1)), Room::new(total.max(1) as usize));
    out.addr().write(0, own);
    let (counts, places) = (Ints::Large(&counts), Ints::Large(&places));
    let bytes = Datatype::BYTE;
    collective::gatherv(out.addr(), own.len() as i64, bytes, all.addr(), counts, places, bytes, 0, Comm::WORLD)?;
    Ok(all.addr().bytes(total as usize).to_vec())
}

fn write(file: &std::path::Path, parts: &[u8]) -> std::io::Result<()> {
    let mut out = std::io::BufWriter::new(std::fs::File::create(file)?);
    out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
    // Without the first comma.
    out.write_all(parts.get(1..).unwrap_or_default())?;
    out.write_all(b"\n]}\n")?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_texts_of_json_and_times_microseconds() {
        assert_eq!(quoted("a\"b\\c\nd"), "\"a\\\"b\\\\c\\u000ad\"");
        assert_eq!(Microseconds(1_002_003).to_string(), "1002.003");
    }
}
