//! Waiting for ports and descriptors at once, and loops of the user's own: what the ranks do.

use pulc::am::{Bundle, Mode, Short};
use pulc::{Address, Error, From, Item, Match, Port, Pulc, Rank, Readiness, Wakeup, select_items};
use pulc_hal::os::watched::Watched;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const HANG: Duration = Duration::from_secs(180);
/// Of a message that is repeated in time, in each trial.
const ROUND_TRIPS: u32 = 40;
const TURNS: u64 = 300;

pub fn play(scene: &str) {
    let pulc = Pulc::attach().unwrap();
    let port = pulc.open_port("main").unwrap();
    let other = Address::new(Rank(1 - pulc.rank().0), "main");
    let stage = Stage { me: pulc.rank(), pulc, port, other };
    match scene {
        "wait_descriptors" => stage.descriptors(),
        "wait_descriptors_idle" => stage.idle(),
        "wait_beside_threads" => stage.beside_threads(),
        "wait_loop" => stage.own_loop(false),
        "wait_loop_beside_threads" => stage.own_loop(true),
        "wait_ended" => stage.ended(),
        "wait_retransmit" => stage.retransmit(),
        other => panic!("no scene {other}"),
    }
}

struct Stage {
    pulc: Pulc,
    port: Port,
    me: Rank,
    other: Address,
}

/// A descriptor into which a thread of this process writes one byte whenever it is told to.
struct Echo {
    near: UnixStream,
    far: UnixStream,
}

impl Echo {
    fn new() -> Echo {
        let (near, far) = UnixStream::pair().unwrap();
        Echo { near, far }
    }

    /// Reads a byte and answers it until the other end is closed.
    fn run(mut self) {
        drop(self.near);
        let mut byte = [0];
        while matches!(self.far.read(&mut byte), Ok(1)) && self.far.write_all(&byte).is_ok() {}
    }
}

impl Stage {
    /// Sends back whatever comes, until an empty message.
    fn answer(&self) {
        let mut buffer = [0; 64];
        loop {
            let got = self.port.recv_timeout(From::Any, Match::Any, &mut buffer, HANG).unwrap();
            self.port.send(&self.other, got.tag, &buffer[..got.len]).unwrap();
            if got.len == 0 {
                return;
            }
        }
    }

    fn finish(&self) {
        self.port.send(&self.other, 9, &[]).unwrap();
        self.port.recv_timeout(From::Any, Match::Tag(9), &mut [], HANG).unwrap();
    }

    /// A message and a byte are under way at a time, and each is sent again as soon as it is back.
    fn descriptors(&self) {
        if self.me.0 == 1 {
            return self.answer();
        }
        let echo = Echo::new();
        let mut near = echo.near.try_clone().unwrap();
        let thread = std::thread::spawn(move || echo.run());
        let (mut messages, mut bytes) = (0, 0);
        near.write_all(b"x").unwrap();
        self.port.send(&self.other, 1, b"x").unwrap();
        while messages < TURNS || bytes < TURNS {
            let fd = near.try_clone().unwrap();
            let mut items = [Item::port(&self.port), Item::fd(fd.as_fd(), Readiness::READ)];
            let count = select_items(&self.pulc, &mut items, Some(HANG)).unwrap();
            let ready = items.map(|item| item.ready());
            assert_eq!(count, ready.iter().filter(|ready| ready.any()).count());
            if ready[0].read {
                self.port.recv(From::Any, Match::Tag(1), &mut [0; 8]).unwrap();
                messages += 1;
                self.port.send(&self.other, 1, b"x").unwrap();
            }
            if ready[1].read {
                near.read_exact(&mut [0]).unwrap();
                bytes += 1;
                near.write_all(b"x").unwrap();
            }
        }
        near.shutdown(std::net::Shutdown::Both).unwrap();
        self.port.recv_timeout(From::Any, Match::Tag(1), &mut [0; 8], HANG).unwrap();
        thread.join().unwrap();
        self.finish();
    }

    /// Nothing happens for two seconds: the waiting thread sleeps, and the message after it still wakes it.
    fn idle(&self) {
        let (near, _far) = UnixStream::pair().unwrap();
        if self.me.0 == 1 {
            std::thread::sleep(Duration::from_secs(2));
            self.port.send(&self.other, 1, b"x").unwrap();
            return self.answer();
        }
        let before = super::scenes::cpu_ms();
        let mut items = [Item::fd(near.as_fd(), Readiness::READ), Item::port(&self.port)];
        assert_eq!(select_items(&self.pulc, &mut items, Some(HANG)).unwrap(), 1);
        let burnt = super::scenes::cpu_ms() - before;
        assert!(items[1].ready().read);
        println!("@ burnt {burnt:.3} ms in 2 s");
        assert!(burnt < 100.0, "{burnt} ms burnt in 2 s of waiting");
        self.finish();
    }

    /// Other threads receive by themselves while this one waits for a port and descriptors.
    fn beside_threads(&self) {
        if self.me.0 == 1 {
            return self.answer();
        }
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for tag in [2, 3] {
                let done = &done;
                scope.spawn(move || {
                    while !done.load(Ordering::Relaxed) {
                        self.port.send(&self.other, tag, b"abc").unwrap();
                        self.port.recv_timeout(From::Any, Match::Tag(tag), &mut [0; 8], HANG).unwrap();
                    }
                });
            }
            let inbox = self.pulc.open_port("inbox").unwrap();
            let to_inbox = Address::new(self.me, "inbox");
            let (near, mut far) = UnixStream::pair().unwrap();
            for turn in 0..TURNS {
                if turn % 2 == 0 {
                    far.write_all(b"y").unwrap();
                } else {
                    inbox.send(&to_inbox, 1, b"z").unwrap();
                }
                let mut items = [Item::port(&inbox), Item::fd(near.as_fd(), Readiness::READ)];
                assert_eq!(select_items(&self.pulc, &mut items, Some(HANG)).unwrap(), 1);
                if items[0].ready().read {
                    inbox.recv(From::Any, Match::Any, &mut [0; 8]).unwrap();
                } else {
                    (&near).read_exact(&mut [0]).unwrap();
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        self.finish();
    }

    /// A loop of the user's own that waits for the engine's descriptor and one of its own.
    fn own_loop(&self, beside_threads: bool) {
        if self.me.0 == 1 {
            return self.answer();
        }
        const NOTE: Short<(u64,)> = Short::new(1);
        let bundle = Bundle::new(&self.pulc, Mode::Sequential).unwrap();
        let endpoint = bundle.endpoint("loop", 1).unwrap();
        let noted = std::sync::Arc::new(AtomicU64::new(0));
        let counter = std::sync::Arc::clone(&noted);
        endpoint.on(NOTE, move |_token, (by,)| super::am_scenes::bump(&counter, by)).unwrap();
        let own = endpoint.map(&bundle, self.me, "loop", 1, 4).unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            if beside_threads {
                let done = &done;
                scope.spawn(move || {
                    while !done.load(Ordering::Relaxed) {
                        self.port.send(&self.other, 2, b"abc").unwrap();
                        self.port.recv_timeout(From::Any, Match::Tag(2), &mut [0; 8], HANG).unwrap();
                    }
                });
            }
            let wakeup = Wakeup::new(&self.pulc).unwrap();
            let echo = self.pulc.open_port("echo").unwrap();
            let mut turns = 0;
            echo.send(&self.other, 7, b"x").unwrap();
            while turns < TURNS {
                // What was sent to the port "main" by the other side comes back there, under this tag.
                while self.port.try_recv(From::Any, Match::Tag(7), &mut [0; 8]).unwrap().is_some() {
                    turns += 1;
                    echo.send(&self.other, 7, b"x").unwrap();
                    own.request(&bundle, NOTE, (1,)).unwrap();
                }
                bundle.poll().unwrap();
                let mut items = [Item::port(&self.port), Item::bundle(&bundle)];
                if wakeup.arm(&mut items).unwrap() > 0 {
                    // With another thread's tag on the port there may be nothing for us.
                    continue;
                }
                let (quiet, _far) = UnixStream::pair().unwrap();
                let mut fds = Watched::default();
                fds.add(quiet.as_fd(), true, false);
                fds.wait(wakeup.as_fd(), HANG).unwrap();
                assert!(!fds.any_ready());
            }
            done.store(true, Ordering::Relaxed);
            self.port.recv_timeout(From::Any, Match::Tag(7), &mut [0; 8], HANG).unwrap();
        });
        while noted.load(Ordering::Relaxed) < TURNS {
            bundle.poll().unwrap();
        }
        let wakeup = Wakeup::new(&self.pulc).unwrap();
        assert_eq!(wakeup.arm(&mut []), Err(Error::BadSelect));
        let (quiet, _far) = UnixStream::pair().unwrap();
        assert_eq!(wakeup.arm(&mut [Item::fd(quiet.as_fd(), Readiness::READ)]), Err(Error::BadSelect));
        self.finish();
    }

    /// A loop of the user's own is told that nobody is left, and why, however it looks at the port.
    fn ended(&self) {
        if self.me.0 == 1 {
            return self.port.send(&self.other, 1, b"last").unwrap();
        }
        let wakeup = Wakeup::new(&self.pulc).unwrap();
        let mut got = 0;
        let error = loop {
            match self.port.try_recv(From::Any, Match::Any, &mut [0; 8]) {
                Ok(Some(_)) => got += 1,
                Ok(None) => {
                    let (quiet, _far) = UnixStream::pair().unwrap();
                    let mut fds = Watched::default();
                    fds.add(quiet.as_fd(), true, false);
                    if wakeup.arm(&mut [Item::port(&self.port)]).unwrap() == 0 {
                        fds.wait(wakeup.as_fd(), HANG).unwrap();
                    }
                }
                Err(error) => break error,
            }
        };
        assert_eq!(got, 1);
        assert!(matches!(error, Error::PeerGone { rank: Rank(1), .. }), "{error}");
        let mut items = [Item::port(&self.port)];
        assert_eq!(wakeup.arm(&mut items), Ok(1));
        let [item] = items;
        assert_eq!(item.ready(), Readiness { read: false, write: false, ended: true });
        let from_it = self.port.try_recv(From::Rank(Rank(1)), Match::Tag(1), &mut [0; 8]).unwrap_err();
        assert!(matches!(from_it, Error::PeerGone { rank: Rank(1), .. }), "{from_it}");
    }

    /// One thread sleeps in a receive while another one sends over a network that loses frames, and then leaves the engine alone:
    /// the sleeping thread must repeat them in time. Compared with one thread that does both.
    fn retransmit(&self) {
        if self.me.0 == 1 {
            return self.answer();
        }
        const TRIALS: usize = 8;
        // A machine that is busy just now makes either of them slow; a thread that sleeps over what is due does so every time.
        let in_time = (0..TRIALS).any(|_| {
            let (alone, beside) = (self.round_trips(), self.round_trips_beside_a_sleeper());
            println!("@ {alone:?} alone and {beside:?} beside a thread that sleeps");
            beside < 5 * alone + Duration::from_secs(1)
        });
        assert!(in_time, "beside a sleeping thread it took much longer in each of {TRIALS} trials");
        self.finish();
    }

    fn round_trip(&self) {
        self.port.send(&self.other, 1, b"x").unwrap();
        self.port.recv_timeout(From::Any, Match::Tag(1), &mut [0; 8], HANG).unwrap();
    }

    fn round_trips(&self) -> Duration {
        let begin = std::time::Instant::now();
        (0..ROUND_TRIPS).for_each(|_| self.round_trip());
        begin.elapsed()
    }

    fn round_trips_beside_a_sleeper(&self) -> Duration {
        const PAUSE: Duration = Duration::from_millis(30);
        let begin = std::time::Instant::now();
        std::thread::scope(|scope| {
            let (tell, told) = std::sync::mpsc::channel();
            scope.spawn(move || {
                for _ in 0..ROUND_TRIPS {
                    self.port.recv_timeout(From::Any, Match::Tag(1), &mut [0; 8], HANG).unwrap();
                    tell.send(()).unwrap();
                }
            });
            for _ in 0..ROUND_TRIPS {
                // The other thread sleeps by now, and nothing is due for it.
                std::thread::sleep(PAUSE);
                self.port.send(&self.other, 1, b"x").unwrap();
                told.recv().unwrap();
            }
        });
        begin.elapsed().saturating_sub(ROUND_TRIPS * PAUSE)
    }
}
