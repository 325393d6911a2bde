//! A device that spoils what another one brings: it drops, doubles, reorders, bends and holds back frames on arrival, or dies,
//! all drawn from one seed. Called by tests and, with its parameters set, by the handler around any device between nodes;
//! must cost nothing when no fault is asked for.

use super::sim::Random;
use super::{Caps, Device, Frame, Limits, Peer, PeerFault, SendError, Sink};
use pulc_base::metrics::DeviceCounters;
use pulc_base::param::Param;
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

macro_rules! chance {
    ($name:ident, $param:literal, $text:literal) => {
        pub static $name: Param = Param { name: $param, default: 0, min: 0, max: 1000, text: $text };
    };
}

chance!(DROP, "fault_drop_permille", "test: of a thousand frames from other nodes, so many are dropped on arrival");
chance!(DUPLICATE, "fault_duplicate_permille", "test: of a thousand frames from other nodes, so many arrive twice");
chance!(
    REORDER,
    "fault_reorder_permille",
    "test: of a thousand frames from other nodes, so many are overtaken by others"
);
chance!(
    CORRUPT,
    "fault_corrupt_permille",
    "test: of a thousand frames from other nodes, so many arrive with a bit flipped"
);
chance!(STALL, "fault_stall_permille", "test: of a thousand looks at the network, so many are followed by blind ones");

pub static STALL_LOOKS: Param =
    Param { name: "fault_stall_looks", default: 100, min: 1, max: 1 << 30, text: "test: blind looks of one stall" };
pub static DIE_AFTER: Param = Param {
    name: "fault_die_after_frames",
    default: 0,
    min: 0,
    max: 1 << 60,
    text: "test: after so many frames from other nodes nothing arrives or leaves any more; 0: never",
};
pub static RAIL: Param = Param {
    name: "fault_rail",
    default: EVERY_RAIL,
    min: 0,
    max: EVERY_RAIL,
    text: "test: only this rail is spoilt, counted from 0; 255: every rail",
};
const EVERY_RAIL: u64 = 255;
pub static SEED: Param =
    Param { name: "fault_seed", default: 1, min: 0, max: u64::MAX, text: "test: what all faults are drawn from" };

/// This device's rows.
pub static PARAMS: &[&Param] = &[&SEED, &RAIL, &DROP, &DUPLICATE, &REORDER, &CORRUPT, &STALL, &STALL_LOOKS, &DIE_AFTER];

/// How many later frames overtake a reordered one.
const OVERTAKEN_BY_MAX: u64 = 8;
/// Frames held back or doubled and not handed over yet.
const HELD_MAX: usize = 1024;

/// What goes wrong, chances in parts of a thousand.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct FaultPlan {
    pub seed: u64,
    pub drop_permille: u32,
    pub duplicate_permille: u32,
    pub reorder_permille: u32,
    pub corrupt_permille: u32,
    pub stall_permille: u32,
    pub stall_looks: u64,
    /// Frames after which nothing arrives or leaves any more; zero: never.
    pub die_after_frames: u64,
}

impl FaultPlan {
    /// The parameters in force for a rail. Reads the environment.
    pub fn read(rail: usize) -> FaultPlan {
        let spoilt = RAIL.read().value;
        if spoilt != EVERY_RAIL && spoilt != rail as u64 {
            return FaultPlan::default();
        }
        let permille = |param: &Param| param.read().value as u32;
        FaultPlan {
            seed: SEED.read().value,
            drop_permille: permille(&DROP),
            duplicate_permille: permille(&DUPLICATE),
            reorder_permille: permille(&REORDER),
            corrupt_permille: permille(&CORRUPT),
            stall_permille: permille(&STALL),
            stall_looks: STALL_LOOKS.read().value,
            die_after_frames: DIE_AFTER.read().value,
        }
    }

    fn is_harmless(&self) -> bool {
        let chances = [
            self.drop_permille,
            self.duplicate_permille,
            self.reorder_permille,
            self.corrupt_permille,
            self.stall_permille,
        ];
        chances == [0; 5] && self.die_after_frames == 0
    }
}

/// What was done to frames so far.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct FaultCounters {
    pub dropped: u64,
    pub duplicated: u64,
    pub reordered: u64,
    pub corrupted: u64,
    pub stalls: u64,
}

/// A frame kept for later.
struct Held {
    from: Peer,
    bytes: Vec<u8>,
    /// Handed over when so many frames have come in all.
    due: u64,
}

/// The faults, apart from the device.
struct Mischief {
    plan: FaultPlan,
    random: Random,
    held: VecDeque<Held>,
    seen: u64,
    blind_looks: u64,
    counters: FaultCounters,
}

/// `D`, spoilt.
pub struct Fault<D> {
    inner: D,
    harmless: bool,
    mischief: Mischief,
}

impl<D: Device> Fault<D> {
    pub fn new(inner: D, plan: FaultPlan) -> Fault<D> {
        let mischief = Mischief {
            plan,
            random: Random::new(plan.seed),
            held: VecDeque::new(),
            seen: 0,
            blind_looks: 0,
            counters: FaultCounters::default(),
        };
        Fault { inner, harmless: plan.is_harmless(), mischief }
    }

    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// The device itself: what is sent through it bypasses nothing, because frames are spoilt on arrival.
    pub fn inner_mut(&mut self) -> &mut D {
        &mut self.inner
    }

    /// Whether it has died by plan: what is sent now is lost.
    pub fn is_dead(&self) -> bool {
        let after = self.mischief.plan.die_after_frames;
        after > 0 && self.mischief.seen >= after
    }

    pub fn faults(&self) -> FaultCounters {
        self.mischief.counters
    }
}

impl Mischief {
    /// Hands over kept frames whose time has come, or the oldest if nothing new comes to overtake them.
    fn release(&mut self, sink: &mut impl Sink, budget: usize, nothing_new: bool) -> usize {
        let mut handed = 0;
        while handed < budget {
            let due = self.held.iter().position(|held| held.due <= self.seen);
            let Some(index) = due.or((nothing_new && !self.held.is_empty()).then_some(0)) else { break };
            let Some(mut held) = self.held.remove(index) else { break };
            sink.frame(held.from, Frame::Private(&mut held.bytes));
            handed += 1;
        }
        handed
    }

    fn keep(&mut self, from: Peer, frame: &Frame<'_>, due: u64) -> bool {
        if self.held.len() >= HELD_MAX {
            return false;
        }
        let bytes = match frame {
            Frame::Private(bytes) => bytes.to_vec(),
            Frame::Shared(shared) => {
                let mut bytes = vec![0; shared.len()];
                shared.copy_to(&mut bytes);
                bytes
            }
        };
        self.held.push_back(Held { from, bytes, due });
        true
    }
}

/// Stands before the owner's sink.
struct Spoiler<'a, S> {
    mischief: &'a mut Mischief,
    sink: &'a mut S,
    handed: usize,
}

impl<S: Sink> Sink for Spoiler<'_, S> {
    fn frame(&mut self, from: Peer, mut frame: Frame<'_>) {
        let Spoiler { mischief, sink, handed } = self;
        let plan = mischief.plan;
        mischief.seen += 1;
        if plan.die_after_frames > 0 && mischief.seen > plan.die_after_frames {
            return;
        }
        if mischief.random.happens(plan.drop_permille) {
            mischief.counters.dropped += 1;
            return;
        }
        if mischief.random.happens(plan.duplicate_permille) && mischief.keep(from, &frame, mischief.seen) {
            mischief.counters.duplicated += 1;
        }
        let overtaken_by = 1 + mischief.random.below(OVERTAKEN_BY_MAX);
        if mischief.random.happens(plan.reorder_permille) && mischief.keep(from, &frame, mischief.seen + overtaken_by) {
            mischief.counters.reordered += 1;
            return;
        }
        if mischief.random.happens(plan.corrupt_permille) {
            mischief.counters.corrupted += 1;
            let mut bent = match &mut frame {
                Frame::Private(bytes) => bytes.to_vec(),
                Frame::Shared(shared) => {
                    let mut bytes = vec![0; shared.len()];
                    shared.copy_to(&mut bytes);
                    bytes
                }
            };
            let bit = mischief.random.below(bent.len() as u64 * 8) as usize;
            if let Some(byte) = bent.get_mut(bit / 8) {
                *byte ^= 1 << (bit % 8);
            }
            sink.frame(from, Frame::Private(&mut bent));
        } else {
            sink.frame(from, frame);
        }
        *handed += 1;
    }

    fn peer_failed(&mut self, from: Peer, why: PeerFault) {
        self.sink.peer_failed(from, why);
    }
}

impl<D: Device> Device for Fault<D> {
    fn name(&self) -> &'static str {
        if self.harmless { self.inner.name() } else { "fault" }
    }

    /// As the device inside, less what the plan takes away.
    fn caps(&self) -> Caps {
        let caps = self.inner.caps();
        if self.harmless { caps } else { Caps(caps.0 & !(Caps::RELIABLE.0 | Caps::ORDERED.0)) }
    }

    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn send_short(&mut self, to: Peer, parts: [&[u8]; 2]) -> Result<(), SendError> {
        if self.is_dead() { Ok(()) } else { self.inner.send_short(to, parts) }
    }

    fn send_bulk(&mut self, to: Peer, parts: [&[u8]; 2]) -> Result<(), SendError> {
        if self.is_dead() { Ok(()) } else { self.inner.send_bulk(to, parts) }
    }

    fn send_zcopy(&mut self, to: Peer, head: &[u8], body: &[u8], token: u64) -> Result<(), SendError> {
        // Nothing leaves a dead device, and what it kept is never done: as when its process is gone.
        if self.is_dead() { Ok(()) } else { self.inner.send_zcopy(to, head, body, token) }
    }

    fn completed(&mut self, tokens: &mut Vec<u64>) {
        self.inner.completed(tokens);
    }

    fn flush(&mut self) {
        self.inner.flush();
    }

    fn poll(&mut self, sink: &mut impl Sink, budget: usize) -> usize {
        if self.harmless {
            return self.inner.poll(sink, budget);
        }
        let mischief = &mut self.mischief;
        if mischief.blind_looks > 0 {
            mischief.blind_looks -= 1;
            return 0;
        }
        if mischief.random.happens(mischief.plan.stall_permille) {
            mischief.counters.stalls += 1;
            mischief.blind_looks = mischief.plan.stall_looks;
            return 0;
        }
        let mut handed = mischief.release(sink, budget, false);
        if handed < budget {
            let mut spoiler = Spoiler { mischief, sink, handed: 0 };
            let came = self.inner.poll(&mut spoiler, budget - handed);
            handed += spoiler.handed;
            if came == 0 {
                handed += mischief.release(sink, budget - handed, true);
            }
        }
        handed
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.wait_fd()
    }

    fn prepare_wait(&mut self) {
        self.inner.prepare_wait();
    }

    fn close_peer(&mut self, peer: Peer) {
        self.mischief.held.retain(|held| held.from != peer);
        self.inner.close_peer(peer);
    }

    fn counters(&self) -> DeviceCounters {
        self.inner.counters()
    }
}
