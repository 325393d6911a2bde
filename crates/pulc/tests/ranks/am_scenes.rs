//! What the ranks of the tests of active messages do.

use pulc::am::{
    Bundle, Endpoint, Fetch, Group, Long, LongReply, MEDIUM_MAX, Medium, MediumReply, Mode, Opcode, Peer, Posted,
    Reply, Returned, Short, Status,
};
use pulc::{Error, Pulc, Rank};
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const HANG: Option<Duration> = Some(Duration::from_secs(60));
const TAG: u64 = 77;

const PING: Short<(u64, u64)> = Short::new(1);
const PONG: Reply<(u64, u64)> = Reply::new(2);
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
    let stage = Stage { me: pulc.rank(), size: pulc.size(), pulc, bundle, endpoint, hellos };
    match scene {
        "ping" => stage.ping(),
        "ring" => stage.ring(),
        "all_to_all" => stage.all_to_all(),
        "never_replies" => stage.never_replies(),
        "sizes" => stage.sizes(),
        "killed" => stage.killed(),
        "storm" => stage.storm(),
        "returned" => stage.returned(),
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

fn bump(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(31) ^ i >> 8 ^ seed) as u8).collect()
}

struct Stage {
    pulc: Pulc,
    me: Rank,
    size: u32,
    bundle: Bundle,
    endpoint: Endpoint,
    hellos: Arc<AtomicU64>,
}

impl Stage {
    fn peer(&self, rank: u32, credits: u16) -> Peer {
        self.endpoint.map(&self.bundle, Rank(rank), "main", TAG, credits).unwrap()
    }

    fn other(&self, credits: u16) -> Peer {
        self.peer(1 - self.me.0, credits)
    }

    /// Everyone has come this far, and all that was asked has been answered. Once in a scene, as its last act.
    fn part(&self) {
        for rank in (0..self.size).filter(|rank| *rank != self.me.0) {
            self.peer(rank, 1).request(&self.bundle, HELLO, ()).unwrap();
        }
        let all = u64::from(self.size - 1);
        self.bundle.wait_until(HANG, || self.hellos.load(Ordering::Relaxed) == all).unwrap();
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
            offer.fetch(Vec::new(), then).unwrap();
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

    fn killed(&self) {
        let returned = Arc::new(Mutex::new(Vec::new()));
        let keep = Arc::clone(&returned);
        self.endpoint.on_error(move |back: Returned| keep.lock().unwrap().push(back)).unwrap();
        if self.me.0 == 2 {
            // Takes requests and never runs their handlers.
            let idle = Bundle::new(&self.pulc, Mode::Sequential).unwrap();
            panic!("not killed: {:?}", idle.wait(HANG));
        }
        let victim = self.peer(2, 8);
        for turn in 0..8 {
            victim.request(&self.bundle, PING, (turn, 1)).unwrap();
        }
        assert_eq!(victim.try_request(PING, (9, 9)).unwrap(), Posted::Again);
        println!("@ asked");
        std::io::stdout().flush().unwrap();
        // Blocked for credit when it dies.
        let error = victim.request(&self.bundle, PING, (8, 1)).unwrap_err();
        assert!(matches!(error, Error::PeerGone { rank: Rank(2), .. }), "{error}");
        self.bundle.wait_until(HANG, || returned.lock().unwrap().len() == 8).unwrap();
        for (turn, back) in returned.lock().unwrap().iter().enumerate() {
            assert_eq!(
                (back.status, back.opcode, back.peer, back.handler),
                (Status::PeerGone, Opcode::Short, Rank(2), 1)
            );
            assert_eq!(back.args.all(), [turn as u64, 1]);
        }
        let error = self.endpoint.map(&self.bundle, Rank(2), "main", TAG, 1).map(|_| ()).unwrap_err();
        assert!(matches!(error, Error::PeerGone { .. }), "{error}");
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

    fn returned(&self) {
        let returned = Arc::new(Mutex::new(Vec::new()));
        let keep = Arc::clone(&returned);
        self.endpoint.on_error(move |back: Returned| keep.lock().unwrap().push((back.opcode, back.status))).unwrap();
        self.endpoint.set_segment(vec![0_u8; 100]);
        let side = self.bundle.endpoint("side", 5).unwrap();
        // Handler 1 is a short one here; 2 takes another number of arguments; 3 declines; 4 panics.
        side.on(Short::<(u64,)>::new(1), |token, _| token.reply(Reply::<()>::new(99), ())).unwrap();
        side.on_fetch(Fetch::<()>::new(3), |offer, ()| drop(offer)).unwrap();
        side.on_long(Long::<()>::new(7), |_, (), _| {}).unwrap();
        self.endpoint.on_fetch(Fetch::<()>::new(33), |_, ()| {}).unwrap();
        let tag = self.endpoint.map(&self.bundle, Rank(1 - self.me.0), "side", 6, 2).map(|_| ()).unwrap_err();
        assert!(matches!(tag, Error::TagRefused { .. }), "{tag}");
        let name = self.endpoint.map_timeout(&self.bundle, Rank(0), "nobody", 5, 2, Duration::from_millis(30));
        assert!(matches!(name.map(|_| ()), Err(Error::UnknownEndpoint { .. })));
        let rank = self.endpoint.map(&self.bundle, Rank(9), "side", 5, 2).map(|_| ()).unwrap_err();
        assert!(matches!(rank, Error::NoSuchRank { .. }));
        let other = self.endpoint.map(&self.bundle, Rank(1 - self.me.0), "side", 5, 2).unwrap();
        let mut expected = Vec::new();
        let mut expect = |what| {
            expected.push(what);
            self.bundle.wait_until(HANG, || returned.lock().unwrap().len() == expected.len()).unwrap();
        };
        other.request(&self.bundle, Short::<()>::new(200), ()).unwrap();
        expect((Opcode::Short, Status::BadHandler));
        other.request_medium(&self.bundle, Medium::<(u64,)>::new(1), (1,), b"x").unwrap();
        expect((Opcode::Medium, Status::BadHandler));
        other.request(&self.bundle, Short::<(u64, u64)>::new(1), (1, 2)).unwrap();
        expect((Opcode::Short, Status::BadArguments));
        other.request(&self.bundle, Short::<(u64,)>::new(1), (1,)).unwrap();
        expect((Opcode::Reply, Status::BadHandler));
        other.request_long(&self.bundle, Long::<()>::new(7), (), 0, b"no segment there").unwrap();
        expect((Opcode::Long, Status::BadLength));
        let event = other.post_fetch(&self.bundle, Fetch::<()>::new(3), (), vec![1; 1000], None).unwrap();
        expect((Opcode::Fetch, Status::Declined));
        assert_eq!(event.outcome(), Some(false));
        let main = self.other(2);
        main.request_long(&self.bundle, Long::<()>::new(7), (), 101, b"x").unwrap();
        expect((Opcode::Long, Status::BadOffset));
        main.request_long(&self.bundle, Long::<()>::new(7), (), 99, b"xx").unwrap();
        expect((Opcode::Long, Status::BadLength));
        main.post_long(&self.bundle, Long::<()>::new(7), (), 50, vec![0; 300_000], None).unwrap();
        expect((Opcode::Long, Status::BadLength));
        self.part();
        // Both sides have done with `side`.
        side.set_tag(8);
        let ready = self.bundle.endpoint("ready", TAG).unwrap();
        let third = ready.map(&self.bundle, Rank(1 - self.me.0), "ready", TAG, 1).unwrap();
        other.request(&self.bundle, Short::<(u64,)>::new(1), (1,)).unwrap();
        expect((Opcode::Short, Status::BadTag));
        drop(third);
        assert_eq!(*returned.lock().unwrap(), expected);
        let again = self.bundle.endpoint("again", TAG).unwrap();
        let last = again.map(&self.bundle, Rank(1 - self.me.0), "again", TAG, 1).unwrap();
        drop(side);
        drop(last);
        // Whoever is slower still has its own `side` closed before the other asks: the answer is the same.
        other.request(&self.bundle, Short::<(u64,)>::new(1), (1,)).unwrap();
        self.bundle.wait_until(HANG, || returned.lock().unwrap().len() == expected.len() + 1).unwrap();
        let last = returned.lock().unwrap()[expected.len()];
        assert!(matches!(last, (Opcode::Short, Status::BadEndpoint | Status::BadTag)), "{last:?}");
        let over = self.bundle.endpoint("over", TAG).unwrap();
        drop(over.map(&self.bundle, Rank(1 - self.me.0), "over", TAG, 1).unwrap());
    }

    fn served(&self) {
        const THREADS: u64 = 3;
        const TURNS: u64 = 300;
        let sum = Arc::new(AtomicU64::new(0));
        self.endpoint.on(PING, |token, (a, b)| token.reply(PONG, (a, b))).unwrap();
        let add = Arc::clone(&sum);
        self.endpoint.on_reply(PONG, move |_, (a, _)| bump(&add, a)).unwrap();
        let panics = |_: pulc::am::Token<'_>, ()| panic!("this handler panics on purpose");
        self.endpoint.on(Short::<()>::new(66), panics).unwrap();
        let returned = Arc::new(AtomicU64::new(0));
        let add = Arc::clone(&returned);
        let on_error = move |back: Returned| {
            assert_eq!(back.status, Status::Panicked);
            add.fetch_add(1, Ordering::Relaxed);
        };
        self.endpoint.on_error(on_error).unwrap();
        let other = self.other(4);
        let server = self.bundle.serve().unwrap();
        if self.me.0 == 1 {
            // Computes, and never looks at its messages.
            while sum.load(Ordering::Relaxed) == 0 && self.hellos.load(Ordering::Relaxed) == 0 {
                std::hint::spin_loop();
                std::thread::yield_now();
            }
        } else {
            std::thread::scope(|scope| {
                for thread in 0..THREADS {
                    let (other, bundle) = (&other, &self.bundle);
                    scope.spawn(move || {
                        for turn in 0..TURNS {
                            other.request(bundle, PING, (1, thread * TURNS + turn)).unwrap();
                        }
                    });
                }
            });
            self.bundle.wait_until(HANG, || sum.load(Ordering::Relaxed) == THREADS * TURNS).unwrap();
            other.request(&self.bundle, Short::<()>::new(66), ()).unwrap();
            self.bundle.wait_until(HANG, || returned.load(Ordering::Relaxed) == 1).unwrap();
            other.request(&self.bundle, PING, (1, 1)).unwrap();
            self.bundle.wait_until(HANG, || sum.load(Ordering::Relaxed) == THREADS * TURNS + 1).unwrap();
        }
        self.part();
        server.stop();
    }
}
