//! The one engine of this process, and how its threads share it. A lock keeps the engine; whoever waits polls with the lock
//! held and lets go as soon as another thread wants it; one thread at a time sleeps on the doorbell, the others wait for it.
//! Called by the interfaces. Must never hold the lock across user code or while sleeping.

mod beside;
mod meeting;
mod sends;
mod sharing;
mod shortly;
mod wakeup;

use self::sharing::{Telling, Waiting};
use crate::attach;
use crate::engine::Engine;
use crate::error::{Error, SendFault};
use crate::leaf;
use crate::memory;
use crate::sending::Sending;
use crate::switch::Hand;
use crate::wait::{Crowd, Ladder, Step};
pub use beside::Beside;
use pulc_base::boot::Boot;
use pulc_base::clock::{self, Nanos};
use pulc_base::{NodeIndex, PROTOCOL_VERSION, Proto, Rank};
use pulc_hal::board::Board;
use pulc_hal::os::bell::Bell;
use pulc_hal::os::biased::{Biased, BiasedGuard};
use pulc_hal::os::registry::{self, Announced};
use pulc_hal::os::{cpu, life};
pub use shortly::Swept;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
pub use wakeup::{Armed, Wakeup};

/// Polls with frames between two looks at the clock: a deadline counts also for whoever is flooded with what he does not want.
const BUSY_POLLS_PER_LOOK: u32 = 64;

/// Kind of announcement in the registry of this process: the engine itself.
const ENGINE_KIND: u32 = 2;

/// This process as a member of its job.
pub struct Process {
    shared: Biased<Shared>,
    /// Threads that want the lock and did not get it at once.
    wanted: AtomicU32,
    /// Counts what may interest threads that sleep in `follow`.
    news: Mutex<u64>,
    news_came: Condvar,
    board: Arc<Board>,
    my_slot: u32,
    /// Made at the latest when somebody first waits for descriptors as well.
    bell: OnceLock<Arc<Bell>>,
    /// Every sleep is one in poll: the network concerns this process.
    sleeps_in_poll: bool,
    /// Copies of the descriptors that a sleeper watches.
    wait_fds: Vec<OwnedFd>,
    pid: u32,
    rank: Rank,
    node: NodeIndex,
    boot: Arc<Boot>,
}

/// What the lock protects.
pub struct Shared {
    pub engine: Engine,
    crowd: Crowd,
    /// A thread sleeps on the doorbell.
    sleeper: bool,
    /// Threads that wait for that one.
    followers: u32,
}

/// The engine, locked.
pub type Guard<'a> = BiasedGuard<'a, Shared>;

/// How a wait ended.
pub enum Waited<R> {
    Ready(R),
    Timeout,
}

/// The process that attaches, for the words of its forks.
static PARENT: AtomicU32 = AtomicU32::new(0);
static PROCESS: Mutex<Option<&'static Process>> = Mutex::new(None);

impl Process {
    /// The engine of this process, made at the first call.
    ///
    /// # Errors
    /// When the job cannot be joined, or in a fork of an attached process.
    pub fn attach() -> Result<&'static Process, Error> {
        // Before any lock: in a fork's child a thread that is not there may hold it.
        life::watch_forks();
        if life::is_fork_child() {
            let parent = PARENT.load(Ordering::Relaxed);
            return Err(Error::Forked { parent, child: std::process::id() });
        }
        let mut known = PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(process) = *known {
            return Ok(process);
        }
        PARENT.store(std::process::id(), Ordering::Relaxed);
        announce()?;
        let process = Box::leak(Box::new(Process::new()?));
        *known = Some(process);
        Ok(process)
    }

    fn new() -> Result<Process, Error> {
        memory::adopt();
        let engine = Engine::new(attach::join()?)?;
        let wait_fds: Result<Vec<OwnedFd>, std::io::Error> =
            engine.wait_fds().into_iter().map(|fd| fd.try_clone_to_owned()).collect();
        let wait_fds = wait_fds.map_err(|source| Error::System { doing: "copy a descriptor", source })?;
        life::at_exit(last_words);
        Ok(Process {
            wanted: AtomicU32::new(0),
            news: Mutex::new(0),
            news_came: Condvar::new(),
            board: Arc::clone(&engine.board),
            my_slot: engine.my_slot,
            sleeps_in_poll: engine.bell.is_some(),
            bell: engine.bell.clone().map_or_else(OnceLock::new, OnceLock::from),
            wait_fds,
            pid: std::process::id(),
            rank: engine.rank(),
            node: engine.node(),
            boot: Arc::clone(engine.boot()),
            shared: Biased::new(Shared {
                crowd: Crowd::new(engine.limits().spin_us),
                engine,
                sleeper: false,
                followers: 0,
            }),
        })
    }

    pub fn rank(&self) -> Rank {
        self.rank
    }

    pub fn node(&self) -> NodeIndex {
        self.node
    }

    pub fn boot(&self) -> &Boot {
        &self.boot
    }

    /// An engine is never used across a fork: both processes would write the same rings.
    #[inline]
    pub fn check_fork(&self) -> Result<(), Error> {
        if life::is_fork_child() { Err(Error::Forked { parent: self.pid, child: std::process::id() }) } else { Ok(()) }
    }

    /// The engine, for a moment. To be called only after [`Process::check_fork`].
    #[inline]
    pub fn lock(&self) -> Guard<'_> {
        match self.shared.try_lock() {
            Some(guard) => guard,
            None => self.lock_slowly(),
        }
    }

    /// # Panics
    /// In a fork's child, where the thread that holds the lock does not exist: every call asks [`Process::check_fork`] first,
    /// but a program may fork in the middle of one, in a handler. And in a leaf handler, whose own poll has the lock.
    #[cold]
    fn lock_slowly(&self) -> Guard<'_> {
        assert!(!life::is_fork_child(), "a fork's child of process {} went on in a handler of its parent", self.pid);
        assert!(!leaf::is_running(), "a leaf handler has called PULC, which it has promised not to");
        self.wanted.fetch_add(1, Ordering::Relaxed);
        let guard = self.shared.lock();
        self.wanted.fetch_sub(1, Ordering::Relaxed);
        guard
    }

    /// Sends one message, waiting for room where there is none. The bytes are free on return.
    ///
    /// # Blocks
    /// Until `deadline` at most, unless parts of the message are already under way.
    #[inline]
    pub fn send(
        &self,
        dst: Rank,
        proto: Proto,
        header: &[u8],
        body: &[u8],
        deadline: Option<Nanos>,
    ) -> Result<(), SendFault> {
        self.send_unless(self.lock(), Sending::counted(dst, proto, header, body), deadline, || false)
    }

    /// Makes progress until `ready` has a result or the deadline is over. `ready` is asked at least whenever something may
    /// have changed it; the hand belongs to this thread alone.
    #[inline]
    pub fn wait<'p, R>(
        &'p self,
        guard: Guard<'p>,
        hand: &mut Hand<'_>,
        deadline: Option<Nanos>,
        watch: Watch,
        ready: impl FnMut(&mut Engine, &mut Hand<'_>) -> Option<R>,
    ) -> (Waited<R>, Guard<'p>) {
        self.wait_wanting(guard, hand, deadline, watch, |_, _| {}, ready)
    }

    /// As [`Process::wait`] with a hand that wants something: before this thread lets go of the engine for the first time,
    /// `post` must post its receive.
    #[inline]
    pub fn wait_wanting<'p, R>(
        &'p self,
        guard: Guard<'p>,
        hand: &mut Hand<'_>,
        deadline: Option<Nanos>,
        watch: Watch,
        post: impl FnMut(&mut Engine, &mut Hand<'_>),
        ready: impl FnMut(&mut Engine, &mut Hand<'_>) -> Option<R>,
    ) -> (Waited<R>, Guard<'p>) {
        self.wait_in(guard, hand, deadline, watch, None, post, ready)
    }

    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "of its two callers each has all but one")]
    fn wait_in<'p, R>(
        &'p self,
        mut guard: Guard<'p>,
        hand: &mut Hand<'_>,
        deadline: Option<Nanos>,
        watch: Watch,
        mut telling: Option<&mut Telling<'_>>,
        mut post: impl FnMut(&mut Engine, &mut Hand<'_>),
        mut ready: impl FnMut(&mut Engine, &mut Hand<'_>) -> Option<R>,
    ) -> (Waited<R>, Guard<'p>) {
        let mut ladder = Ladder::new();
        let mut ask = true;
        let mut busy_polls = 0_u32;
        loop {
            let shared = &mut *guard;
            let frames = shared.engine.progress(hand);
            if frames > 0 {
                ladder.arrived(&mut shared.crowd);
            }
            // A lone frame that landed in this thread's own buffer concerns nobody else.
            if frames > 1 || (frames == 1 && hand.landed.is_none()) {
                self.tell_others(shared);
            }
            if frames > 0 || ask || watch == Watch::Always {
                if let Some(result) = ready(&mut shared.engine, hand) {
                    self.leave(&guard);
                    return (Waited::Ready(result), guard);
                }
                ask = false;
            }
            if self.wanted.load(Ordering::Relaxed) > 0 {
                if hand.want().is_some() {
                    post(&mut guard.engine, hand);
                }
                guard = self.let_others_in(guard);
                ask = true;
            }
            let shared = &mut *guard;
            if frames > 0 {
                ladder.restart();
                busy_polls = busy_polls.wrapping_add(1);
                if deadline.is_none() || !busy_polls.is_multiple_of(BUSY_POLLS_PER_LOOK) {
                    continue;
                }
            }
            let step = if frames > 0 {
                Step::Look(clock::now())
            } else {
                ladder.step(&mut shared.crowd, &self.board, self.my_slot)
            };
            let now = match step {
                Step::Pause => {
                    cpu::pause();
                    continue;
                }
                Step::Look(now) => now,
                Step::Yield(now) => {
                    if hand.want().is_some() {
                        post(&mut shared.engine, hand);
                    }
                    drop(guard);
                    cpu::yield_now();
                    guard = self.lock();
                    ask = true;
                    guard.engine.look_at_all();
                    now.unwrap_or(Nanos(0))
                }
                Step::Sleep => {
                    if hand.want().is_some() {
                        post(&mut shared.engine, hand);
                    }
                    let telling = telling.as_deref_mut();
                    let waiting = Waiting { hand, deadline, watch, ladder: &mut ladder, watched: None, telling };
                    let (locked, result) = self.sleep(guard, waiting, &mut ready);
                    guard = locked;
                    if let Some(result) = result {
                        self.leave(&guard);
                        return (Waited::Ready(result), guard);
                    }
                    ask = true;
                    if deadline.is_none() { Nanos(0) } else { clock::now() }
                }
            };
            if deadline.is_some_and(|deadline| now >= deadline) {
                // What arrived in the last moment counts.
                self.poll(&mut guard, hand);
                let result = ready(&mut guard.engine, hand);
                self.leave(&guard);
                return (result.map_or(Waited::Timeout, Waited::Ready), guard);
            }
        }
    }

    /// Makes progress once, without waiting.
    pub fn poll(&self, guard: &mut Guard<'_>, hand: &mut Hand<'_>) {
        guard.engine.look_at_all();
        if guard.engine.progress(hand) > 0 {
            self.tell_others(guard);
        }
    }
}

/// When a wait's condition is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Watch {
    /// When a frame came or another thread had the engine: for receives.
    News,
    /// After every poll: for room, which no frame announces.
    Always,
}

/// Tells other images of this process (libraries with their own copy of this code) that the engine is here.
fn announce() -> Result<(), Error> {
    static ANNOUNCED: AtomicU32 = AtomicU32::new(0);
    let address = std::ptr::from_ref(&ANNOUNCED) as usize;
    let first = registry::with(|registry| {
        registry.first(ENGINE_KIND).unwrap_or_else(|| {
            let own = Announced { kind: ENGINE_KIND, version: PROTOCOL_VERSION, address };
            registry.announce(own);
            own
        })
    })?;
    if first.address == address { Ok(()) } else { Err(Error::EngineElsewhere) }
}

/// At the end of the process.
fn last_words(status: i32) {
    if life::is_fork_child() {
        return;
    }
    let known = PROCESS.try_lock().ok().and_then(|known| *known);
    // A leaf handler that ends the process does so inside of a poll, which nobody comes back to.
    if let Some(process) = known.filter(|_| !leaf::is_running()) {
        process.linger();
    }
    // Otherwise the launcher sees a failure, and ends the job.
    if status == 0 {
        crate::guest::finalize();
    }
}
