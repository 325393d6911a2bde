//! Communicators: a group of processes, two contexts that keep their messages apart from all others, and what programs hang on them.
//! Every call with a communicator looks here first; what a message needs never changes after the making.
//! Source: MPI-5.0, chapter 7.

mod agree;
mod create;
mod inter;
mod query;

pub use create::*;
pub use inter::*;
pub use query::*;

use crate::attribute::AttrSet;
use crate::collective::Door;
use crate::consts::{ANY_SOURCE, ANY_TAG, PROC_NULL};
use crate::error::{Class, Error, Result};
use crate::group::Group;
use crate::handle::{Comm, Errhandler, Info};
use crate::topology::Topology;
use pulc_base::Rank;
use pulc_handler::matching::Pattern;
use std::ops::Deref;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// How a collective was called. Tags below `0x3000_0000` are theirs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    Blocking,
    Nonblocking,
    Persistent,
}

/// A communicator.
pub(crate) struct Communicator {
    pub handle: Comm,
    /// Of messages between two processes; the next one is that of collectives.
    pub context: u32,
    /// This process's rank.
    pub me: i32,
    pub group: Arc<Group>,
    /// Ranks are those in the job.
    is_whole: bool,
    /// The other side of an intercommunicator.
    pub remote: Option<Remote>,
    /// Number the collectives of each form, so that those under way at the same time do not mix.
    collectives: [AtomicU32; 3],
    errhandler: AtomicI32,
    pub attributes: AttrSet,
    /// To the shared memory of its collectives.
    pub door: Door,
    extras: Mutex<Extras>,
}

pub(crate) struct Remote {
    pub group: Arc<Group>,
    /// This side by itself, for its own part of collectives.
    pub local: Arc<Communicator>,
    /// Whether this side is the first one in the order both agree on.
    pub is_low: bool,
}

/// What a program hangs on a communicator.
#[derive(Default)]
pub(crate) struct Extras {
    pub name: Option<String>,
    pub info: Option<Info>,
    pub topology: Option<Arc<Topology>>,
}

impl Communicator {
    /// `MPI_COMM_WORLD` and `MPI_COMM_SELF`.
    pub fn predefined(me: u32, size: u32) -> Vec<Option<Arc<Communicator>>> {
        let world = Communicator::new(Comm::WORLD, 0, me as i32, Arc::new(Group::range(0, size)), None);
        let own = Communicator::new(Comm::SELF, 2, 0, Arc::new(Group::range(me, 1)), None);
        world.extras().name = Some("MPI_COMM_WORLD".into());
        own.extras().name = Some("MPI_COMM_SELF".into());
        vec![Some(Arc::new(world)), Some(Arc::new(own))]
    }

    pub fn new(handle: Comm, context: u32, me: i32, group: Arc<Group>, remote: Option<Remote>) -> Communicator {
        let peers = remote.as_ref().map_or(&group, |remote| &remote.group);
        let is_whole = **peers == Group::range(0, peers.size() as u32);
        Communicator {
            handle,
            context,
            me,
            group,
            is_whole,
            remote,
            collectives: Default::default(),
            errhandler: AtomicI32::new(Errhandler::ERRORS_ARE_FATAL.0),
            attributes: AttrSet::default(),
            door: Door::default(),
            extras: Mutex::new(Extras::default()),
        }
    }

    #[inline]
    pub fn size(&self) -> usize {
        self.group.size()
    }

    /// Whether ranks are those in the job.
    #[inline(always)]
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Those that messages go to and come from.
    #[inline]
    pub fn peers(&self) -> &Arc<Group> {
        match &self.remote {
            None => &self.group,
            Some(remote) => &remote.group,
        }
    }

    /// Names senders by rank; `None` where that is their rank in the job.
    #[inline]
    pub fn senders(&self) -> Option<Arc<Group>> {
        if self.is_whole { None } else { Some(Arc::clone(self.peers())) }
    }

    /// The rank here of a sender.
    #[inline(always)]
    pub fn source_of(&self, src: Rank) -> i32 {
        if self.is_whole { src.0 as i32 } else { self.peers().rank_of(src.0).unwrap_or(ANY_SOURCE) }
    }

    /// Where a message to `rank` goes; `None`: nowhere.
    #[inline(always)]
    pub fn destination(&self, rank: i32) -> Result<Option<Rank>> {
        match self.peers().world(rank) {
            Some(world) => Ok(Some(Rank(world))),
            None if rank == PROC_NULL => Ok(None),
            None => Err(self.no_rank(rank)),
        }
    }

    /// What a receive takes; `None`: it takes nothing, from nobody.
    #[inline(always)]
    pub fn pattern(&self, source: i32, tag: i32) -> Result<Option<Pattern>> {
        if tag < 0 && tag != ANY_TAG {
            return Err(bad_tag(tag));
        }
        let tag = (tag != ANY_TAG).then_some(u64::from(tag as u32));
        if source == ANY_SOURCE {
            return Ok(Some(Pattern { src: None, tag }));
        }
        Ok(self.destination(source)?.map(|src| Pattern { src: Some(src.0), tag }))
    }

    #[cold]
    fn no_rank(&self, rank: i32) -> Error {
        let size = self.peers().size();
        Error::new(
            Class::RANK,
            format!("rank {rank} of a communicator with {size} processes: ranks are 0 to {}", size - 1),
        )
    }

    /// A number for the next collective of a form, used as its tag. Every form counts for itself: programs exist that call a blocking
    /// and a nonblocking one in another order on another process, which the standard forbids and other implementations take.
    pub fn next_collective(&self, form: Form) -> i32 {
        let number = self.collectives[form as usize].fetch_add(1, Ordering::Relaxed) & 0x0fff_ffff;
        ((form as u32 * 0x1000_0000) | number) as i32
    }

    pub fn errhandler(&self) -> Errhandler {
        Errhandler(self.errhandler.load(Ordering::Relaxed))
    }

    /// Returns the one before.
    pub fn set_errhandler(&self, errhandler: Errhandler) -> Errhandler {
        Errhandler(self.errhandler.swap(errhandler.0, Ordering::Relaxed))
    }

    /// Locked for a moment: nothing is called meanwhile.
    pub fn extras(&self) -> MutexGuard<'_, Extras> {
        self.extras.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The name, or the handle's number.
    pub fn display_name(&self) -> String {
        self.extras().name.clone().unwrap_or_else(|| format!("communicator {:#010x}", self.handle.0))
    }
}

#[cold]
pub(crate) fn bad_tag(tag: i32) -> Error {
    Error::new(Class::TAG, format!("tag {tag}: tags are 0 to {}", crate::consts::TAG_MAX))
}

/// A communicator for the length of a call.
pub(crate) enum Held {
    /// Lives as long as the process: nothing is counted.
    World(&'static Arc<Communicator>),
    Counted(Arc<Communicator>),
}

impl Deref for Held {
    type Target = Arc<Communicator>;

    #[inline(always)]
    fn deref(&self) -> &Arc<Communicator> {
        match self {
            Held::World(comm) => comm,
            Held::Counted(comm) => comm,
        }
    }
}

/// As [`find`], without counting a use of `MPI_COMM_WORLD`, which cannot be freed.
#[inline]
pub(crate) fn hold(comm: Comm) -> Result<Held> {
    static WORLD: OnceLock<Arc<Communicator>> = OnceLock::new();
    if comm != Comm::WORLD {
        return find(comm).map(Held::Counted);
    }
    crate::world::process()?;
    match WORLD.get() {
        Some(world) => Ok(Held::World(world)),
        None => find(comm).map(|world| Held::World(WORLD.get_or_init(|| world))),
    }
}

/// The communicator with this handle.
pub(crate) fn find(comm: Comm) -> Result<Arc<Communicator>> {
    let process = crate::world::process()?;
    let mut guard = process.lock();
    crate::matcher::matcher(&mut guard.engine).comm(comm).cloned()
}
