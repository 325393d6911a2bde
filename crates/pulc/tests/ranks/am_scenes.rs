//! What the ranks of the tests of active messages do.

use pulc::am::{
    Bundle, Endpoint, Fetch, Group, Long, LongReply, MEDIUM_MAX, Medium, MediumReply, Mode, Peer, Reply, Short,
};
use pulc::{Error, Pulc, Rank};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub const HANG: Option<Duration> = Some(Duration::from_secs(180));
pub const TAG: u64 = 77;

pub const PING: Short<(u64, u64)> = Short::new(1);
pub const PONG: Reply<(u64, u64)> = Reply::new(2);
const NOTE: Short<[u64; 8]> = Short::new(3);
const HELLO: Short<()> = Short::new(4);
const ECHO: Medium<(u64, u64, u64, u64, u64)> = Medium::new(5);
const ECHOED: MediumReply<(u64, u64, u64, u64, u64)> = MediumReply::new(6);
const PUT: Long<(u64, u64, u64, u64)> = Long::new(7);
const PUT_BACK: LongReply<(u64, u64, u64, u64)> = LongReply::new(8);
const TAKE: Fetch<(u64, u64, u64, u64)> = Fetch::new(9);
const PASS: Short<(u64,)> = Short::new(10);

pub fn play(scene: &str) {
    let pulc = Pulc::attach().unwrap();
    let bundle = Bundle::new(&pulc, Mode::Sequential).unwrap();
    let endpoint = bundle.endpoint("main", TAG).unwrap();
    let hellos = Arc::new(AtomicU64::new(0));
    endpoint.on(HELLO, count(&hellos)).unwrap();
    let stage = Stage { me: pulc.rank(), size: pulc.size(), pulc, bundle, endpoint, hellos, parts: Cell::new(0) };
    match scene {
        "ping" => stage.ping(),
        "ring" => stage.ring(),
        "all_to_all" => stage.all_to_all(),
        "never_replies" => stage.never_replies(),
        "sizes" => stage.sizes(),
        "killed" => stage.killed(),
        "storm" => stage.storm(),
        "returned" => stage.returned(),
        "last_reply" => stage.last_reply(),
        "idle" => stage.idle(),
        "leaf" => stage.leaf(),
        "served" => stage.served(),
        other => panic!("no scene {other}"),
    }
}

/// A handler that counts.
fn count(counter: &Arc<AtomicU64>) -> impl Fn(pulc::am::Token<'_>, ()) + Send + Sync + 'static {
    let counter = Arc::clone(counter);
    move |_token, ()| {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

pub fn bump(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(31) ^ i >> 8 ^ seed) as u8).collect()
}

pub struct Stage {
    pub pulc: Pulc,
    pub me: Rank,
    size: u32,
    pub bundle: Bundle,
    pub endpoint: Endpoint,
    pub hellos: Arc<AtomicU64>,
    parts: Cell<u64>,
}

impl Stage {
    pub fn peer(&self, rank: u32, credits: u16) -> Peer {
        self.endpoint.map(&self.bundle, Rank(rank), "main", TAG, credits).unwrap()
    }

    pub fn other(&self, credits: u16) -> Peer {
        self.peer(1 - self.me.0, credits)
    }

    /// Everyone has come this far, and all that was asked before has been answered.
    pub fn part(&self) {
        for rank in (0..self.size).filter(|rank| *rank != self.me.0) {
            self.peer(rank, 1).request(&self.bundle, HELLO, ()).unwrap();
        }
        self.parts.set(self.parts.get() + 1);
        let all = self.parts.get() * u64::from(self.size - 1);
        self.bundle.wait_until(HANG, || self.hellos.load(Ordering::Relaxed) >= all).unwrap();
        // The others may still wait for our last answers.
        while self.bundle.poll().unwrap() > 0 {}
    }

    fn ping(&self) {
        let sum = Arc::new(AtomicU64::new(0));
        self.endpoint.on(PING, |token, (a, b)| token.reply(PONG, (a + 1, b + 2))).unwrap();
        let add = Arc::clone(&sum);
        self.endpoint.on_reply(PONG, move |_, (a, b)| bump(&add, a * 1000 + b)).unwrap();
        let other = self.other(4);
        assert_eq!(other.credits(), (4, 4));
        let mut expected = 0;
        for turn in 0..2000 {
            other.request(&self.bundle, PING, (turn, 7)).unwrap();
            expected += (turn + 1) * 1000 + 9;
            if turn % 5 == 0 {
                self.bundle.wait_until(HANG, || sum.load(Ordering::Relaxed) == expected).unwrap();
            }
        }
        self.bundle.wait_until(HANG, || sum.load(Ordering::Relaxed) == expected).unwrap();
        assert_eq!(other.credits(), (4, 4));
        self.part();
        let tally = self.bundle.tally();
        assert!(tally.requests >= 2000 && tally.replies >= 2000 && tally.strays == 0, "{tally:?}");
    }

    fn ring(&self) {
        const ROUNDS: u64 = 50;
        let seen = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&seen);
        self.endpoint.on(PASS, move |_token, (value,)| kept.lock().unwrap().push(value)).unwrap();
        let next = self.peer((self.me.0 + 1) % self.size, 2);
        for round in 0..ROUNDS {
            if self.me.0 == 0 {
                next.request(&self.bundle, PASS, (round * u64::from(self.size) + 1,)).unwrap();
            }
            self.bundle.wait_until(HANG, || seen.lock().unwrap().len() > round as usize).unwrap();
            let value = seen.lock().unwrap()[round as usize];
            let steps = if self.me.0 == 0 { self.size } else { self.me.0 };
            assert_eq!(value, round * u64::from(self.size) + u64::from(steps));
            if self.me.0 != 0 {
                next.request(&self.bundle, PASS, (value + 1,)).unwrap();
            }
        }
        self.part();
    }

    fn all_to_all(&self) {
        const TURNS: u64 = 60;
        let answers = Arc::new(AtomicU64::new(0));
        self.endpoint.on(PING, |token, (a, b)| token.reply(PONG, (a, b))).unwrap();
        let add = Arc::clone(&answers);
        self.endpoint.on_reply(PONG, move |_, _| bump(&add, 1)).unwrap();
        let peers: Vec<Peer> = (0..self.size).map(|rank| self.peer(rank, 1)).collect();
        for turn in 0..TURNS {
            for peer in &peers {
                peer.request(&self.bundle, PING, (turn, 0)).unwrap();
            }
        }
        let all = TURNS * u64::from(self.size);
        self.bundle.wait_until(HANG, || answers.load(Ordering::Relaxed) == all).unwrap();
        assert!(peers.iter().all(|peer| peer.credits() == (1, 1)));
        self.part();
    }

    /// Rank 1 waits in a port all the time; its leaf handlers answer all the same.
    fn leaf(&self) {
        const COUNT: u64 = 2000;
        let port = self.pulc.open_port("end of leaves").unwrap();
        let seen = Arc::new(AtomicU64::new(0));
        self.endpoint.on_leaf(PING, |token, (a, b)| token.reply(PONG, (a + 1, b + 2))).unwrap();
        let add = Arc::clone(&seen);
        self.endpoint.on_leaf_reply(PONG, move |_, (a, b)| bump(&add, a * 1000 + b)).unwrap();
        let notes = Arc::new(AtomicU64::new(0));
        let add = Arc::clone(&notes);
        let run = move |_: pulc::am::LeafToken<'_>, words: [u64; 8]| {
            assert_eq!(words, std::array::from_fn(|at| words[0] + at as u64));
            bump(&add, 1);
        };
        self.endpoint.on_leaf(NOTE, run).unwrap();
        let other = self.other(4);
        self.part();
        if self.me.0 == 1 {
            port.recv(pulc::From::Any, pulc::Match::Any, &mut [0; 8]).unwrap();
            assert_eq!(notes.load(Ordering::Relaxed), COUNT);
        } else {
            let mut expected = 0;
            for turn in 0..COUNT {
                other.request(&self.bundle, PING, (turn, 7)).unwrap();
                expected += (turn + 1) * 1000 + 9;
                if turn % 5 == 0 {
                    self.bundle.wait_until(HANG, || seen.load(Ordering::Relaxed) == expected).unwrap();
                }
            }
            self.bundle.wait_until(HANG, || seen.load(Ordering::Relaxed) == expected).unwrap();
            let group = Group::new();
            for turn in 0..COUNT {
                let words = std::array::from_fn(|at| turn + at as u64);
                if turn % 7 == 0 {
                    other.telling(Some(&group)).request(&self.bundle, NOTE, words).unwrap();
                } else {
                    other.request(&self.bundle, NOTE, words).unwrap();
                }
            }
            assert_eq!(self.bundle.wait_group(&group, HANG).unwrap(), 0);
            self.bundle.wait_until(HANG, || other.credits() == (4, 4)).unwrap();
            let to = pulc::Address::new(Rank(1), "end of leaves");
            port.send(&to, 0, &[0; 8]).unwrap();
        }
        self.part();
        let tally = self.bundle.tally();
        assert!(tally.strays == 0 && tally.returned == 0, "{tally:?}");
    }

    fn never_replies(&self) {
        const COUNT: u64 = 3000;
        let sum = Arc::new(AtomicU64::new(0));
        let add = Arc::clone(&sum);
        let run = move |_token: pulc::am::Token<'_>, words: [u64; 8]| {
            assert_eq!(words, std::array::from_fn(|at| words[0] + at as u64));
            add.fetch_add(1, Ordering::Relaxed);
        };
        self.endpoint.on(NOTE, run).unwrap();
        let other = self.other(3);
        for turn in 0..COUNT {
            other.request(&self.bundle, NOTE, std::array::from_fn(|at| turn + at as u64)).unwrap();
        }
        self.bundle.wait_until(HANG, || sum.load(Ordering::Relaxed) == COUNT).unwrap();
        self.part();
        assert_eq!(other.credits(), (3, 3));
        let tally = self.bundle.tally();
        assert!(tally.acks > 0 && tally.replies == 0, "{tally:?}");
    }

    fn sizes(&self) {
        // Requests land in the first half, replies in the second.
        const HALF: usize = 6 << 20;
        let echoed = Arc::new(AtomicU64::new(0));
        self.endpoint.set_segment(vec![0_u8; 2 * HALF]);
        let echo = |token: pulc::am::Token<'_>, args, bytes: &[u8]| {
            token.reply_medium(ECHOED, args, &bytes.iter().map(|byte| !byte).collect::<Vec<u8>>()).unwrap();
        };
        self.endpoint.on_medium(ECHO, echo).unwrap();
        let done = Arc::clone(&echoed);
        let check = move |_, (seed, a, b, c, len): (u64, u64, u64, u64, u64), bytes: &[u8]| {
            assert_eq!((a, b, c), (1, 2, 3));
            let wanted: Vec<u8> = pattern(seed, len as usize).iter().map(|byte| !byte).collect();
            assert!(bytes == wanted, "{len} bytes came back wrong");
            done.fetch_add(1, Ordering::Relaxed);
        };
        self.endpoint.on_reply_medium(ECHOED, check).unwrap();
        let put = |token: pulc::am::Token<'_>, (seed, len, x, y), landed: pulc::am::Landed<'_>| {
            assert_eq!((landed.len as u64, x, y), (len, 5, 6));
            let back = landed.with(|bytes| {
                assert!(bytes == pattern(seed, bytes.len()), "{len} bytes landed wrong");
                bytes.iter().map(|byte| byte ^ 0x55).collect::<Vec<u8>>()
            });
            token.reply_long(PUT_BACK, (seed, len, 8, 9), HALF as u64, back);
        };
        self.endpoint.on_long(PUT, put).unwrap();
        let done = Arc::clone(&echoed);
        let put_back = move |_, (seed, len, x, y): (u64, u64, u64, u64), landed: pulc::am::Landed<'_>| {
            assert_eq!((landed.offset, landed.len as u64, x, y), (HALF, len, 8, 9));
            let wanted: Vec<u8> = pattern(seed, len as usize).iter().map(|byte| byte ^ 0x55).collect();
            landed.with(|bytes| assert!(bytes == wanted, "{len} bytes came back wrong"));
            done.fetch_add(1, Ordering::Relaxed);
        };
        self.endpoint.on_reply_long(PUT_BACK, put_back).unwrap();
        let taken = Arc::new(AtomicU64::new(0));
        let take = Arc::clone(&taken);
        let on_take = move |offer: pulc::am::Offer<'_>, (seed, len, x, y): (u64, u64, u64, u64)| {
            assert_eq!((offer.len(), x, y), (len, 1, 2));
            let take = Arc::clone(&take);
            let then = move |token: pulc::am::Token<'_>, bytes: Vec<u8>| {
                assert!(bytes == pattern(seed, len as usize), "{len} bytes were fetched wrong");
                take.fetch_add(1, Ordering::Relaxed);
                token.reply(PONG, (seed, len));
            };
            offer.fetch(vec![0; len as usize], then).unwrap();
        };
        self.endpoint.on_fetch(TAKE, on_take).unwrap();
        let done = Arc::clone(&echoed);
        self.endpoint.on_reply(PONG, move |_, _| bump(&done, 1)).unwrap();
        let other = self.other(2);
        let mut asked = 0;
        let short = [0, 1, 7, 8, 40, 41, 200, 1300, 1472, 4000, MEDIUM_MAX - 1, MEDIUM_MAX];
        for (seed, len) in short.into_iter().enumerate() {
            let (seed, bytes) = (seed as u64, pattern(seed as u64, len));
            other.request_medium(&self.bundle, ECHO, (seed, 1, 2, 3, len as u64), &bytes).unwrap();
            let mut prepared = other.prepare(&self.bundle, (len + 3).min(MEDIUM_MAX)).unwrap();
            prepared.bytes_mut()[..len].copy_from_slice(&bytes);
            prepared.commit(ECHO, (seed, 1, 2, 3, len as u64), len).unwrap();
            asked += 2;
        }
        drop(other.prepare(&self.bundle, 100).unwrap());
        let too_long = other.request_medium(&self.bundle, ECHO, (0, 1, 2, 3, 0), &[0; MEDIUM_MAX + 1]);
        assert!(matches!(too_long, Err(Error::MessageTooLarge { .. })), "{too_long:?}");
        let lens = short.into_iter().chain([20_000, 65_536, 65_537, 300_000, 1 << 20, (5 << 20) + 3]);
        let group = Group::new();
        for (seed, len) in lens.enumerate() {
            let (seed, bytes) = (seed as u64, pattern(seed as u64, len));
            let told = other.telling(Some(&group));
            let event = told.request_long(&self.bundle, PUT, (seed, len as u64, 5, 6), 3, &bytes).unwrap();
            asked += 1;
            assert!(self.bundle.wait_event(&event, HANG).unwrap());
            self.bundle.wait_until(HANG, || echoed.load(Ordering::Relaxed) == asked).unwrap();
            let args = (seed, len as u64, 5, 6);
            let event = other.post_long(&self.bundle, PUT, args, 2, bytes.clone(), Some(&group)).unwrap();
            asked += 1;
            self.bundle.wait_until(HANG, || echoed.load(Ordering::Relaxed) == asked).unwrap();
            assert_eq!(event.outcome(), Some(true));
            other.post_fetch(&self.bundle, TAKE, (seed, len as u64, 1, 2), bytes, Some(&group)).unwrap();
            asked += 1;
        }
        self.bundle.wait_until(HANG, || echoed.load(Ordering::Relaxed) == asked).unwrap();
        assert_eq!(self.bundle.wait_group(&group, HANG).unwrap(), 0);
        self.bundle.wait_until(HANG, || taken.load(Ordering::Relaxed) == 18).unwrap();
        assert_eq!(other.credits(), (2, 2));
        self.part();
        assert_eq!(self.bundle.tally().strays, 0);
    }

    fn storm(&self) {
        const COUNT: u64 = 400;
        let answered = Arc::new(AtomicU64::new(0));
        self.endpoint.set_segment(vec![0_u8; 200_000]);
        let medium = |token: pulc::am::Token<'_>, args, _: &[u8]| {
            token.reply_medium(ECHOED, args, &[7; MEDIUM_MAX]).unwrap();
        };
        self.endpoint.on_medium(ECHO, medium).unwrap();
        let long = |token: pulc::am::Token<'_>, args, _: pulc::am::Landed<'_>| {
            token.reply_long(PUT_BACK, args, 0, vec![9; 150_000]);
        };
        self.endpoint.on_long(PUT, long).unwrap();
        let add = Arc::clone(&answered);
        self.endpoint.on_reply_medium(ECHOED, move |_, _, _: &[u8]| bump(&add, 1)).unwrap();
        let add = Arc::clone(&answered);
        self.endpoint.on_reply_long(PUT_BACK, move |_, _, _| bump(&add, 1)).unwrap();
        let other = self.other(64);
        for turn in 0..COUNT {
            let bytes = [1; MEDIUM_MAX];
            other.request_medium(&self.bundle, ECHO, (turn, 0, 0, 0, 0), &bytes).unwrap();
            if turn % 8 == 0 {
                other.request_long(&self.bundle, PUT, (turn, 0, 0, 0), 0, &bytes).unwrap();
            }
        }
        self.bundle.wait_until(HANG, || answered.load(Ordering::Relaxed) == COUNT + COUNT / 8).unwrap();
        self.part();
    }
}
