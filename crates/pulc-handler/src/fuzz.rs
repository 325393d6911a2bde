//! What is done with bytes from elsewhere, for fuzz targets (`fuzz/`) and for the replay of their corpora: frames of a hostile
//! rank through the floor to a protocol's receive handler, and the words by which a process joins its job. Not for programs.

use crate::dispatch::Floor;
use crate::error::End;
use crate::outbox::Outbox;
use crate::peers::{PeerState, Route};
use crate::switch::{Begin, Body, Fate, Hand, Handlers, Here, ReceiveHandler, TransferId};
use pulc_base::boot::{self, Boot, ToKeeper, ToRank};
use pulc_base::{Proto, Rank};

const WINDOW: u64 = 64 << 10;
const TRANSFERS_MAX: usize = 64;
const ANSWERS_MAX: usize = 256;
/// The hostile rank, and one that does nothing.
const HOSTILE: Rank = Rank(1);
const RANKS: usize = 3;

/// The floor of rank 0 of three, which has heard of nobody yet.
pub struct Rig {
    floor: Floor,
}

impl Rig {
    pub fn new(proto: Proto, handler: Box<dyn ReceiveHandler>) -> Rig {
        let mut handlers = Handlers::default();
        assert!(handlers.register(proto, handler), "the first handler of its protocol");
        let peers = (0..RANKS).map(|_| PeerState::new(Route::Unopened, WINDOW)).collect();
        let outbox = Outbox::new(ANSWERS_MAX);
        let (parked, broken) = (Vec::new(), Vec::new());
        Rig {
            floor: Floor {
                me: Rank(0),
                window: WINDOW,
                past_caches_min: 4 << 10,
                transfers_max: TRANSFERS_MAX,
                peers,
                handlers,
                outbox,
                parked,
                broken,
            },
        }
    }

    /// Gives frames to the floor, each behind its length in two bytes, until one breaks the rules; then its sender is gone.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        let mut room = [0; 64];
        while let Some((len, rest)) = bytes.split_first_chunk::<2>() {
            let (frame, behind) = rest.split_at(usize::from(u16::from_le_bytes(*len)).min(rest.len()));
            bytes = behind;
            // Now and then somebody waits with a buffer.
            let mut hand = if frame.len() % 5 == 0 { Hand::new(0, &mut room) } else { Hand::empty() };
            self.floor.private(HOSTILE, frame, &mut hand);
            self.check();
            if !self.floor.broken.is_empty() {
                break;
            }
        }
        self.floor.broken.clear();
        self.floor.gone(HOSTILE, End::BrokenRules("the end of a test"), &mut Hand::empty());
        assert!(self.floor.peers[HOSTILE.0 as usize].incoming.is_empty());
    }

    /// What no frame may do.
    fn check(&self) {
        let Floor { peers, broken, .. } = &self.floor;
        let hostile = &peers[HOSTILE.0 as usize];
        assert!(broken.iter().all(|(rank, _)| *rank == HOSTILE) && broken.len() <= 1);
        assert!(!broken.is_empty() || hostile.charged <= WINDOW, "more is kept than there was credit for");
        assert!(hostile.incoming.len() <= TRANSFERS_MAX);
        assert!(!broken.is_empty() || hostile.credit <= WINDOW);
        for innocent in [&peers[0], &peers[2]] {
            assert!(innocent.end().is_none() && innocent.charged == 0 && innocent.incoming.is_empty());
        }
    }

    /// The handler, to be looked at.
    pub fn handler<H: ReceiveHandler>(&mut self, proto: Proto) -> Option<&mut H> {
        self.floor.handlers.as_its_own(proto.0)
    }
}

/// Takes every second message and keeps account.
#[derive(Default)]
struct Stub {
    turns: u64,
    under_way: std::collections::HashMap<u64, usize>,
}

impl ReceiveHandler for Stub {
    fn message(&mut self, _: Rank, _: &[u8], body: Body<'_>, _: u64, _: &mut Here<'_, '_>) -> Fate {
        let mut bytes = Vec::new();
        body.append_to(&mut bytes);
        self.turns += 1;
        if self.turns.is_multiple_of(2) { Fate::Done } else { Fate::Kept }
    }

    fn begin(&mut self, id: TransferId, _: &[u8], total: usize, asked: bool, _: u64, here: &mut Here<'_, '_>) -> Begin {
        self.turns += 1;
        self.under_way.insert(self.turns, total);
        if asked && self.turns.is_multiple_of(3) {
            here.outbox.grant(id);
            return Begin::Hold(self.turns);
        }
        Begin::Take(self.turns)
    }

    fn part(&mut self, number: u64, body: Body<'_>, _: &mut Here<'_, '_>) {
        let left = self.under_way.get_mut(&number).expect("a part of a message that has begun");
        *left = left.checked_sub(body.len()).expect("no more than was announced");
    }

    fn end(&mut self, number: u64, _: &mut Here<'_, '_>) -> Fate {
        assert_eq!(self.under_way.remove(&number), Some(0), "all of it has come");
        Fate::Done
    }

    fn withdrawn(&mut self, number: u64, _: &mut Here<'_, '_>) {
        assert!(self.under_way.remove(&number).is_some(), "it has begun and not ended");
    }

    fn peer_gone(&mut self, _: Rank, _: End, _: &mut Here<'_, '_>) {}
}

/// Frames through the floor alone.
pub fn frames(bytes: &[u8]) {
    Rig::new(Proto::PORT, Box::<Stub>::default()).feed(bytes);
}

/// What a keeper and a rank tell each other, and what stands in the environment.
pub fn boot_messages(bytes: &[u8]) {
    if let Ok(message) = boot::decode::<ToRank>(bytes) {
        assert_eq!(boot::decode::<ToRank>(&boot::encode(&message)), Ok(message));
    }
    if let Ok(message) = boot::decode::<ToKeeper>(bytes) {
        assert_eq!(boot::decode::<ToKeeper>(&boot::encode(&message)), Ok(message));
    }
    if let Ok(boot) = boot::decode::<Boot>(bytes) {
        assert_eq!(boot::decode::<Boot>(&boot::encode(&boot)), Ok(boot));
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = boot::parse_rails(text);
        let _ = crate::attach::cookie(text);
    }
}

/// What another launcher answers, and the words that it keeps for the ranks.
pub fn launcher_words(bytes: &[u8]) {
    crate::guest::fuzz::answers(bytes);
}
