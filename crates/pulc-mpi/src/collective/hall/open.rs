//! Opening a hall: when a communicator has done some blocking collectives, the first member of each node makes the memory and passes it
//! to the others by the keeper; then all members of the communicator find out together whether everybody has it. If anybody has not, nobody
//! ever uses it, and collectives stay messages. Called at the beginning of a blocking collective, by all members alike.

use super::across::Across;
use super::choose::Choice;
use super::{AHEAD, BLOCK_BYTES, Hall, Shape};
use crate::collective::{allreduce_program, bcast_data, run_tagged};
use crate::comm::{Communicator, Form};
use crate::data::Data;
use crate::error::{Error, Result};
use crate::group::Group;
use crate::handle::{Datatype, Op};
use crate::memory::Room;
use crate::world;
use pulc_base::Rank;
use pulc_base::clock::{self, Nanos};
use pulc_hal::os::biased::{Biased, BiasedGuard};
use pulc_hal::segment::{Segment, SegmentText};
use pulc_hal::turns::Turns;
use pulc_handler::mpi_params::{BLOCK_BYTES as BLOCK_PARAM, HALL_AFTER, HALL_MEMBERS_MAX, HALLS_MAX, READ_ALL_BYTES};
use pulc_handler::{Hand, Process, Waited, Watch};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// How long a member waits for the memory. The keeper passes it in far less, unless its descriptor found no room.
const PATIENCE: Nanos = Nanos::from_ms(5_000);

/// Halls of this process.
static OPEN: AtomicU32 = AtomicU32::new(0);

/// Where a communicator keeps its hall.
#[derive(Default)]
pub(crate) struct Door {
    calls: AtomicU32,
    /// Two threads that are in a collective here at once are a mistake of the program, which costs it its result and nothing else.
    hall: OnceLock<Option<Box<Biased<Hall>>>>,
}

impl Drop for Hall {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The hall of a communicator for one blocking collective; `None`: it goes by messages.
#[inline]
pub(super) fn hall(comm: &Arc<Communicator>) -> Result<Option<BiasedGuard<'_, Hall>>> {
    let found = match comm.door.hall.get() {
        Some(found) => found,
        None => match knock(comm)? {
            Some(found) => found,
            None => return Ok(None),
        },
    };
    Ok(found.as_ref().map(|hall| hall.lock()))
}

/// Counts a collective, and opens the hall when it is time; `None`: it is not.
#[cold]
fn knock(comm: &Arc<Communicator>) -> Result<Option<&Option<Box<Biased<Hall>>>>> {
    let calls = comm.door.calls.fetch_add(1, Ordering::Relaxed);
    if u64::from(calls) < params().after {
        return Ok(None);
    }
    let hall = if may_have_one(comm)? { open(comm)? } else { None };
    Ok(Some(comm.door.hall.get_or_init(|| hall.map(|hall| Box::new(Biased::new(hall))))))
}

struct Params {
    after: u64,
    halls_max: u64,
    members_max: u64,
    choice: Choice,
}

fn params() -> &'static Params {
    static PARAMS: OnceLock<Params> = OnceLock::new();
    PARAMS.get_or_init(|| Params {
        after: HALL_AFTER.read().value,
        halls_max: HALLS_MAX.read().value,
        members_max: HALL_MEMBERS_MAX.read().value,
        choice: Choice {
            read_all_bytes: READ_ALL_BYTES.read().value as usize,
            block_bytes: BLOCK_PARAM.read().value as usize,
        },
    })
}

/// Who is where among the members: known to all alike.
pub(super) struct Places {
    /// By node, in the order of each node's first member: ranks in the communicator.
    pub nodes: Vec<Vec<i32>>,
    /// Which of them is this process's.
    pub own: usize,
}

impl Places {
    fn of(comm: &Communicator, process: &Process) -> Places {
        let tasks = &process.boot().tasks;
        let mut known: Vec<u32> = Vec::new();
        let mut places = Places { nodes: Vec::new(), own: 0 };
        for rank in 0..comm.size() as i32 {
            let Some(world) = comm.group.world(rank) else { continue };
            let node = tasks[world as usize].node;
            let at = known.iter().position(|other| *other == node).unwrap_or_else(|| {
                known.push(node);
                places.nodes.push(Vec::new());
                known.len() - 1
            });
            places.nodes[at].push(rank);
            if rank == comm.me {
                places.own = at;
            }
        }
        places
    }
}

/// Whether a hall would be of use: the same answer on all members.
fn may_have_one(comm: &Communicator) -> Result<bool> {
    if comm.remote.is_some() || comm.size() < 2 {
        return Ok(false);
    }
    let places = Places::of(comm, world::process()?);
    let longest = places.nodes.iter().map(Vec::len).max().unwrap_or(0);
    Ok(longest >= 2 && longest as u64 <= params().members_max)
}

fn open(comm: &Arc<Communicator>) -> Result<Option<Hall>> {
    let process = world::process()?;
    let places = Places::of(comm, process);
    let here = &places.nodes[places.own];
    let ranks: Vec<Rank> = here.iter().filter_map(|rank| comm.group.world(*rank)).map(Rank).collect();
    let me = here.iter().position(|rank| *rank == comm.me).unwrap_or(0);
    let mut segment = if me == 0 { make(process, &ranks) } else { None };
    let mut token = segment.as_ref().map_or(0, |(_, token)| *token);
    tell_token(comm, &ranks, me, &mut token)?;
    if me != 0 && token != 0 {
        segment = await_segment(process, ranks[0], token).map(|segment| (segment, token));
    }
    let slots: Option<Vec<u32>> = {
        let guard = process.lock();
        ranks.iter().map(|rank| guard.engine.slot_of(*rank)).collect()
    };
    let is_allowed = u64::from(OPEN.load(Ordering::Relaxed)) < params().halls_max;
    let is_ready = segment.is_some() && slots.is_some() && is_allowed;
    let Some(choice) = agree(comm, is_ready)? else { return Ok(None) };
    let (Some((segment, _)), Some(slots)) = (segment, slots) else { return Ok(None) };
    OPEN.fetch_add(1, Ordering::Relaxed);
    let shape = Shape::of(ranks.len());
    let across = (places.nodes.len() > 1).then(|| Across::new(comm, &places));
    Ok(Some(Hall {
        process,
        segment,
        comm: comm.handle,
        context: comm.context,
        name: comm.display_name(),
        everybody: Arc::clone(&comm.group),
        members: ranks.len(),
        me,
        turns: Turns::new(ranks.len(), me, shape.lines, AHEAD),
        shape,
        ranks,
        slots,
        failed: false,
        scratch: [Room::new(BLOCK_BYTES), Room::new(BLOCK_BYTES)],
        choice,
        across,
    }))
}

/// Makes the memory and passes it on. A token of zero would mean that there is none.
fn make(process: &'static Process, ranks: &[Rank]) -> Option<(Segment, u64)> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let bytes = Shape::of(ranks.len()).segment_bytes(ranks.len());
    let (segment, fd) = match Segment::create(bytes) {
        Ok(made) => made,
        Err(error) => {
            pulc_base::log!(Warn, "mpi", "collectives stay messages, there is no memory of {bytes} bytes: {error}");
            return None;
        }
    };
    let text = SegmentText { token: NEXT.fetch_add(1, Ordering::Relaxed), bytes: bytes as u64 };
    let mut guard = process.lock();
    let passed = ranks[1..].iter().all(|rank| matches!(guard.engine.pass_segment(*rank, text, &fd), Ok(true)));
    passed.then_some((segment, text.token))
}

/// Tells the members of this node which memory is meant.
fn tell_token(comm: &Arc<Communicator>, ranks: &[Rank], me: usize, token: &mut u64) -> Result<()> {
    let tag = comm.next_collective(Form::Blocking);
    let group = Group::from_ranks(ranks.iter().map(|rank| rank.0).collect());
    let here = Arc::new(Communicator::new(comm.handle, comm.context, me as i32, Arc::new(group), None));
    let mut room = Room::new(8);
    room.addr().write(0, &token.to_ne_bytes());
    run_tagged(&here, bcast_data(&here, Data::Flat { at: room.addr(), len: 8 }, 0)?, Some(tag))?;
    let mut bytes = [0; 8];
    room.addr().read(0, &mut bytes);
    *token = u64::from_ne_bytes(bytes);
    Ok(())
}

fn await_segment(process: &'static Process, from: Rank, token: u64) -> Option<Segment> {
    let deadline = clock::now() + PATIENCE;
    let (waited, _guard) =
        process.wait(process.lock(), &mut Hand::empty(), Some(deadline), Watch::Always, |engine, _| {
            let gone = || engine.end_of(from).is_some();
            match gone() {
                true => Some(None),
                false => engine.take_segment(from, token).map(Some),
            }
        });
    match waited {
        Waited::Ready(Some(Ok(segment))) => Some(segment),
        Waited::Ready(Some(Err(error))) => {
            pulc_base::log!(Warn, "mpi", "collectives stay messages, shared memory is not mapped: {error}");
            None
        }
        Waited::Ready(None) | Waited::Timeout => None,
    }
}

/// Whether all are ready, and what they choose by.
fn agree(comm: &Arc<Communicator>, is_ready: bool) -> Result<Option<Choice>> {
    let own = params().choice;
    let numbers = [u64::from(is_ready), own.read_all_bytes as u64, own.block_bytes as u64];
    let (mut out, mut into) = (Room::new(24), Room::new(24));
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
    out.addr().write(0, &bytes);
    let program = allreduce_program(comm, out.addr(), into.addr(), 3, Datatype::UINT64_T, Op::MIN)?;
    run_tagged(comm, program, None).map_err(|error| Error { on: Some(comm.handle), ..error })?;
    let base = into.addr();
    let number = |at: usize| {
        let mut bytes = [0; 8];
        base.read(at as i64 * 8, &mut bytes);
        u64::from_ne_bytes(bytes) as usize
    };
    let all = [number(0), number(1), number(2)];
    Ok((all[0] == 1).then_some(Choice { read_all_bytes: all[1], block_bytes: all[2] }))
}
