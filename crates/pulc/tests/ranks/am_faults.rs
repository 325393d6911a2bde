//! What the ranks of the tests of active messages do when something goes wrong, or several threads are at it.

use crate::am_scenes::{HANG, PING, PONG, Stage, TAG, bump};
use crate::scenes::cpu_ms;
use pulc::am::{Bundle, Fetch, Landed, Long, LongReply, Medium, Mode, Opcode, Posted, Reply, Returned, Short, Status};
use pulc::{Error, Rank};
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

impl Stage {
    pub fn killed(&self) {
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

    /// Rank 1 ends as soon as its handler has replied with more than the device takes at once.
    pub fn last_reply(&self) {
        const LEN: usize = 3 << 20;
        let came = Arc::new(AtomicU64::new(0));
        self.endpoint.set_segment(vec![0_u8; LEN]);
        let asked = Arc::clone(&came);
        let run = move |token: pulc::am::Token<'_>, ()| {
            token.reply_long(LongReply::<()>::new(8), (), 0, vec![3; LEN]);
            bump(&asked, 1);
        };
        self.endpoint.on(Short::<()>::new(7), run).unwrap();
        let got = Arc::clone(&came);
        let run = move |_, (), landed: Landed<'_>| {
            landed.with(|bytes| assert!(bytes.len() == LEN && bytes.iter().all(|byte| *byte == 3)));
            bump(&got, 1);
        };
        self.endpoint.on_reply_long(LongReply::<()>::new(8), run).unwrap();
        if self.me.0 == 0 {
            self.other(1).request(&self.bundle, Short::<()>::new(7), ()).unwrap();
        }
        self.bundle.wait_until(HANG, || came.load(Ordering::Relaxed) == 1).unwrap();
    }

    pub fn idle(&self) {
        let server = self.bundle.serve().unwrap();
        self.part();
        if self.me.0 == 0 {
            std::thread::sleep(Duration::from_secs(2));
        } else {
            let before = cpu_ms();
            let (seen, more) = (self.hellos.load(Ordering::Relaxed), self.hellos.clone());
            self.bundle.wait_until(HANG, || more.load(Ordering::Relaxed) > seen).unwrap();
            let burnt = cpu_ms() - before;
            // Two threads that polled would burn 4000.
            assert!(burnt < 100.0, "{burnt} ms burnt in 2 s of waiting");
        }
        self.part();
        server.stop();
    }

    pub fn returned(&self) {
        let returned = Arc::new(Mutex::new(Vec::new()));
        let keep = Arc::clone(&returned);
        self.endpoint.on_error(move |back: Returned| keep.lock().unwrap().push((back.opcode, back.status))).unwrap();
        self.endpoint.set_segment(vec![0_u8; 100]);
        let side = self.bundle.endpoint("side", 5).unwrap();
        // Handler 1 is a short one here; 2 takes another number of arguments; 3 declines; 4 panics.
        side.on(Short::<(u64,)>::new(1), |token, _| token.reply(Reply::<()>::new(99), ())).unwrap();
        side.on_fetch(Fetch::<()>::new(3), |_not_wanted, ()| {}).unwrap();
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
        side.set_tag(8);
        self.part();
        other.request(&self.bundle, Short::<(u64,)>::new(1), (1,)).unwrap();
        expect((Opcode::Short, Status::BadTag));
        self.part();
        drop(side);
        self.part();
        other.request(&self.bundle, Short::<(u64,)>::new(1), (1,)).unwrap();
        expect((Opcode::Short, Status::BadEndpoint));
        assert_eq!(*returned.lock().unwrap(), expected);
        self.part();
    }

    pub fn served(&self) {
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
