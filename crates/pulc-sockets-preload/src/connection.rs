//! One connection that is followed: a place in the table with its generation and phase, the calls on their way, and its end of a channel
//! once there is one. Used by `table.rs` and `promoted.rs`. Must never free what a call on its way uses.

use crate::kernel::Socket;
use crate::{outboxes, sets, settings};
use pulc_sockets::datagrams::Inbox;
use pulc_sockets::message::Reason;
use pulc_sockets::place::Place;
use pulc_sockets::{End, Flag, Looked, Wait};
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

pub use pulc_sockets::place::{AWARE, phase};

/// Connections that are there.
pub static FOLLOWED: AtomicU32 = AtomicU32::new(0);

/// Who made the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    Active,
    Passive,
    /// A socket that is not connected yet.
    Unknown,
    /// A socket for datagrams, of IPv4 or of IPv6.
    Datagrams,
    Datagrams6,
}

/// What a connection has beside the kernel's socket.
pub enum Held {
    Stream(End),
    Inbox(Inbox),
}

/// What those who wait ask of either.
pub trait Ring: Looked {
    /// Bytes there, and bytes ever.
    fn unread(&self) -> usize;
    fn arrived(&self) -> u64;
    fn may_wait(&self, kernel: &Socket) -> Wait;
    fn truth(&self, kernel: &Socket) -> Wait;
    fn were_only_bells(&self, kernel: &Socket) -> bool;
    /// Whether it takes what is sent at any time.
    fn sends_by_ring(&self) -> bool;
    fn set(&self, flag: Flag, on: bool);
    fn is(&self, flag: Flag) -> bool;
    fn sleeps_in(&self, word: u32);
}

impl Ring for End {
    fn unread(&self) -> usize {
        self.unread()
    }

    fn arrived(&self) -> u64 {
        self.arrived()
    }

    fn may_wait(&self, kernel: &Socket) -> Wait {
        self.may_wait(kernel)
    }

    fn truth(&self, kernel: &Socket) -> Wait {
        self.truth(kernel)
    }

    fn were_only_bells(&self, kernel: &Socket) -> bool {
        self.were_only_bells(kernel)
    }

    fn sends_by_ring(&self) -> bool {
        self.sends_by_ring()
    }

    fn set(&self, flag: Flag, on: bool) {
        self.set(flag, on);
    }

    fn is(&self, flag: Flag) -> bool {
        self.is(flag)
    }

    fn sleeps_in(&self, word: u32) {
        self.sleeps_in(word);
    }
}

impl Ring for Inbox {
    fn unread(&self) -> usize {
        self.unread()
    }

    fn arrived(&self) -> u64 {
        self.arrived()
    }

    fn may_wait(&self, _: &Socket) -> Wait {
        self.may_wait()
    }

    fn truth(&self, kernel: &Socket) -> Wait {
        self.truth(kernel)
    }

    fn were_only_bells(&self, kernel: &Socket) -> bool {
        self.were_only_bells(kernel)
    }

    /// A socket for datagrams can be sent by as soon as it can be read: nobody waits for a reader's room.
    fn sends_by_ring(&self) -> bool {
        self.unread() != 0
    }

    fn set(&self, flag: Flag, on: bool) {
        self.set(flag, on);
    }

    fn is(&self, flag: Flag) -> bool {
        self.is(flag)
    }

    fn sleeps_in(&self, word: u32) {
        self.sleeps_in(word);
    }
}

impl Held {
    pub fn ring(&self) -> &dyn Ring {
        match self {
            Held::Stream(end) => end,
            Held::Inbox(inbox) => inbox,
        }
    }

    pub fn looked(&self) -> &dyn Looked {
        match self {
            Held::Stream(end) => end,
            Held::Inbox(inbox) => inbox,
        }
    }
}

/// Of [`Connection::role`], those of sockets for datagrams are the highest.
const IPV4: u32 = 3;
const IPV6: u32 = 4;
/// Of [`Connection::sleeps`]: not asked yet, no, and yes.
const UNKNOWN: u32 = 0;
const NEVER: u32 = 1;
const MAY: u32 = 2;

/// How many times the calls so far before the broker is asked again.
const AGAIN: u32 = 4;
/// Calls between two looks whether the broker may be asked.
const SOON: u32 = 64;

/// One connection.
pub struct Connection {
    pub place: Place,
    /// Data calls so far; a hint, lost updates do no harm.
    calls: AtomicU32,
    /// The number of calls after which the broker is asked.
    ask_at: AtomicU32,
    /// Why it never gets a channel, as a number of `Reason`: somebody has it who would not know. Zero: it may get one.
    forbidden: AtomicU32,
    role: AtomicU32,
    /// The process in which it became aware of its channel; in a fork's child another one.
    pub aware_in: AtomicU32,
    /// How it is waited for in sets, and whether for edges; see `sets.rs`.
    pub watch: AtomicU32,
    pub edges: AtomicU32,
    /// Where it was last among the members of its set.
    pub member: AtomicU32,
    /// Whether a read may sleep; see [`Connection::sleeps`].
    sleeps: AtomicU32,
    /// TCP_NODELAY as the program wants it, once it is not what the kernel has.
    pub has_nodelay: AtomicBool,
    pub nodelay: AtomicU32,
    /// TCP_CORK as the program wants it, where the kernel was not told because nothing goes by it.
    pub has_cork: AtomicBool,
    /// Ways to other sockets' inboxes may have been made for it, and none may be made any more; see `outboxes.rs`.
    pub has_outboxes: AtomicBool,
    pub sends_by_kernel: AtomicBool,
    /// There from phase `JOINED` on, until the place is freed.
    has_end: AtomicBool,
    end: UnsafeCell<MaybeUninit<Held>>,
}

// SAFETY: `end` is written once, by the one call that has turned the phase to `JOINING`, before `has_end` says so; it is dropped by the one
// that has turned it to `DYING`, when no call is on its way.
unsafe impl Sync for Connection {}

impl Connection {
    pub const fn new() -> Connection {
        Connection {
            place: Place::new(),
            calls: AtomicU32::new(0),
            ask_at: AtomicU32::new(u32::MAX),
            forbidden: AtomicU32::new(0),
            role: AtomicU32::new(0),
            aware_in: AtomicU32::new(0),
            watch: AtomicU32::new(0),
            edges: AtomicU32::new(0),
            member: AtomicU32::new(0),
            sleeps: AtomicU32::new(UNKNOWN),
            has_nodelay: AtomicBool::new(false),
            nodelay: AtomicU32::new(0),
            has_cork: AtomicBool::new(false),
            has_outboxes: AtomicBool::new(false),
            sends_by_kernel: AtomicBool::new(false),
            has_end: AtomicBool::new(false),
            end: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    pub fn role(&self) -> Role {
        match self.role.load(Ordering::Relaxed) {
            1 => Role::Active,
            2 => Role::Passive,
            IPV4 => Role::Datagrams,
            IPV6 => Role::Datagrams6,
            _ => Role::Unknown,
        }
    }

    /// Whether it is a socket for datagrams.
    #[inline]
    pub fn is_datagrams(&self) -> bool {
        self.role.load(Ordering::Relaxed) >= IPV4
    }

    /// The program has called `connect`.
    pub fn become_active(&self) {
        self.role.store(1, Ordering::Relaxed);
    }

    /// The channel that the call in phase `JOINING` has got.
    pub fn keep(&self, end: Held) {
        // SAFETY: only the call that has turned the phase to `JOINING` comes here, and nobody reads before `has_end`.
        unsafe { (*self.end.get()).write(end) };
        self.has_end.store(true, Ordering::Release);
        self.turn(phase::JOINING, phase::JOINED);
    }

    /// For the length of a call on its way.
    #[inline]
    pub fn held(&self) -> Option<&Held> {
        // SAFETY: written before `has_end` said so, and dropped only when no call is on its way.
        self.has_end.load(Ordering::Acquire).then(|| unsafe { (*self.end.get()).assume_init_ref() })
    }

    /// Of a stream.
    #[inline]
    pub fn end(&self) -> Option<&End> {
        match self.held() {
            Some(Held::Stream(end)) => Some(end),
            _ => None,
        }
    }

    /// Of a socket for datagrams.
    #[inline]
    pub fn inbox(&self) -> Option<&Inbox> {
        match self.held() {
            Some(Held::Inbox(inbox)) => Some(inbox),
            _ => None,
        }
    }

    pub fn calls(&self) -> u32 {
        self.calls.load(Ordering::Relaxed)
    }

    #[inline]
    pub fn phase(&self) -> u32 {
        self.place.phase()
    }

    /// Changes the phase if it is still `from`.
    pub fn turn(&self, from: u32, to: u32) -> bool {
        self.place.turn(from, to)
    }

    /// A new connection in a place that was just taken.
    pub fn begin(&self, role: Role) {
        self.calls.store(0, Ordering::Relaxed);
        self.ask_at.store(settings::after_calls(), Ordering::Relaxed);
        self.forbidden.store(Reason::None as u32, Ordering::Relaxed);
        self.watch.store(sets::UNWATCHED, Ordering::Relaxed);
        self.edges.store(0, Ordering::Relaxed);
        self.sleeps.store(UNKNOWN, Ordering::Relaxed);
        self.has_nodelay.store(false, Ordering::Relaxed);
        self.has_cork.store(false, Ordering::Relaxed);
        self.sends_by_kernel.store(false, Ordering::Relaxed);
        let role = match role {
            Role::Active => 1,
            Role::Passive => 2,
            Role::Unknown => 0,
            Role::Datagrams => IPV4,
            Role::Datagrams6 => IPV6,
        };
        self.role.store(role, Ordering::Relaxed);
        self.aware_in.store(0, Ordering::Relaxed);
    }

    /// Counts a data call without a locked instruction.
    #[inline]
    fn count_call(&self) -> u32 {
        let calls = self.calls.load(Ordering::Relaxed).wrapping_add(1);
        self.calls.store(calls, Ordering::Relaxed);
        calls
    }

    /// Whether the next step towards a channel is due, once this call is counted.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.count_call() >= self.ask_at.load(Ordering::Relaxed) && self.phase() < phase::LEFT
    }

    /// The broker is asked as soon as it may be asked at all.
    pub fn ask_soon(&self) {
        self.ask_at.store(self.calls().saturating_add(SOON), Ordering::Relaxed);
    }

    /// The broker is asked again when the connection has been used several times as much.
    pub fn ask_later(&self) {
        self.ask_at.store(self.calls().max(1).saturating_mul(AGAIN), Ordering::Relaxed);
    }

    /// Somebody is about to have it who knows nothing of a channel: if it has none yet, it never gets one. Said before anything else is
    /// done about it, so that a call that asks the broker just now finds it said when it has its answer.
    pub fn forbid(&self, reason: Reason) {
        if self.phase() < phase::AWARE {
            self.forbidden.store(reason as u32, Ordering::SeqCst);
        }
    }

    /// Why it never gets a channel, if so.
    pub fn forbidden(&self) -> Option<Reason> {
        match Reason::of(self.forbidden.load(Ordering::SeqCst)) {
            Reason::None => None,
            reason => Some(reason),
        }
    }

    /// Whether a read may sleep, as far as this process knows; `ask` is for the first time. Another process that has the connection may
    /// have changed it: only what is slow or fast may depend on this, never a result.
    pub fn sleeps(&self, ask: impl FnOnce() -> bool) -> bool {
        match self.sleeps.load(Ordering::Relaxed) {
            UNKNOWN => {
                let may = ask();
                self.now_sleeps(may);
                may
            }
            known => known == MAY,
        }
    }

    /// The program has said whether a read may sleep.
    pub fn now_sleeps(&self, may: bool) {
        self.sleeps.store(if may { MAY } else { NEVER }, Ordering::Relaxed);
    }

    /// Gives the place back if nobody uses it any more.
    pub fn free_if_unused(&self) {
        self.place.free_if_unused(|| {
            if self.has_end.swap(false, Ordering::SeqCst) {
                // SAFETY: it was there, no call is on its way, and the phase lets nobody else come here.
                unsafe { (*self.end.get()).assume_init_drop() };
            }
            if self.has_outboxes.swap(false, Ordering::SeqCst) {
                outboxes::forget(self);
            }
            FOLLOWED.fetch_sub(1, Ordering::Relaxed);
        });
    }
}
