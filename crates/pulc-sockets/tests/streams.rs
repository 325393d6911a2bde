//! Both ends of real connections, with a ring beside them: whatever is sent, by whatever way, with whatever changes between ring and
//! kernel, arrives once and in order. Seeds are printed; a failure is repeated by its seed.

use pulc_hal::os::tcp_counts;
use pulc_sockets::{Board, CHANNEL_BYTES, End, Flag, Incoming, Kernel, Outgoing, Parting, Side, Wait, create};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SendFlags};
use std::cell::Cell;
use std::io::{IoSlice, IoSliceMut};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::atomic::Ordering;

/// xorshift: enough to choose.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn size(&mut self) -> usize {
        let most = [1, 8, 100, 3000, 70_000, 600_000][self.below(6) as usize];
        1 + self.below(most) as usize
    }
}

thread_local! {
    /// Times that this thread has told the other end's kernel what has arrived.
    static ACKNOWLEDGED: Cell<u32> = const { Cell::new(0) };
}

struct Socket<'a> {
    stream: &'a TcpStream,
    is_active: bool,
}

impl Kernel for Socket<'_> {
    fn sent(&self) -> Result<u64, i32> {
        tcp_counts::sent(self.stream.as_fd(), self.is_active)
    }

    fn taken(&self) -> Result<u64, i32> {
        tcp_counts::taken(self.stream.as_fd())
    }

    fn recv(&self, to: &mut [IoSliceMut<'_>], peek: bool) -> Result<usize, i32> {
        let flags = RecvFlags::DONTWAIT | if peek { RecvFlags::PEEK } else { RecvFlags::empty() };
        let got = rustix::net::recvmsg(self.stream, to, &mut rustix::net::RecvAncillaryBuffer::default(), flags);
        got.map(|message| message.bytes).map_err(|error| error.raw_os_error())
    }

    fn ring(&self) -> Result<(), i32> {
        let sent = rustix::net::send(self.stream, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        sent.map(drop).map_err(|error| error.raw_os_error())
    }

    fn acknowledge(&self) {
        ACKNOWLEDGED.set(ACKNOWLEDGED.get() + 1);
        rustix::net::sockopt::set_tcp_quickack(self.stream, true).unwrap();
    }

    fn has_room(&self, _: usize) -> bool {
        true
    }

    fn me(&self) -> u32 {
        rustix::thread::gettid().as_raw_nonzero().get() as u32
    }

    fn cpu(&self) -> u32 {
        0
    }

    fn is_alive(&self, _: u32) -> bool {
        true
    }
}

struct Pair {
    board: Board,
    streams: [TcpStream; 2],
    ends: [End; 2],
}

impl Pair {
    fn new() -> Pair {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let active = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let passive = listener.accept().unwrap().0;
        active.set_nodelay(true).unwrap();
        passive.set_nodelay(true).unwrap();
        let (_map, fd) = create().unwrap();
        let join = |side: Side| End::join(fd.as_fd(), side, side as u32, 1).unwrap();
        let ends = [join(Side::Active), join(Side::Passive)];
        Pair { board: Board::create().unwrap().0, streams: [active, passive], ends }
    }

    fn make_ready(&self) {
        [0, 1].iter().for_each(|&side| self.ends[side].make_ready(&self.kernel(side)).unwrap());
    }

    fn kernel(&self, side: usize) -> Socket<'_> {
        Socket { stream: &self.streams[side], is_active: side == 0 }
    }

    /// Sends by the ring or else by the kernel, without blocking; bytes that went.
    fn send(&self, side: usize, bytes: &[u8]) -> usize {
        let (end, kernel) = (&self.ends[side], self.kernel(side));
        let (one, two) = bytes.split_at(bytes.len() / 3);
        match end.send(&self.board, &kernel, &[IoSlice::new(one), IoSlice::new(two)]) {
            Outgoing::Ring(sent) => sent,
            Outgoing::Kernel(gone) => {
                let sent = match bytes.len() - gone {
                    0 => 0,
                    _ => self.by_kernel(side, &bytes[gone..]),
                };
                end.kernel_done();
                gone + sent
            }
            Outgoing::Failed(number) => panic!("sending failed with {number}"),
        }
    }

    fn by_kernel(&self, side: usize, bytes: &[u8]) -> usize {
        match rustix::net::send(&self.streams[side], bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(sent) => sent,
            Err(rustix::io::Errno::AGAIN) => 0,
            Err(error) => panic!("the kernel refused: {error}"),
        }
    }

    fn receive(&self, side: usize, room: usize, peek: bool) -> Incoming {
        let mut bytes = vec![0; room];
        self.receive_into(side, &mut bytes, peek)
    }

    fn receive_into(&self, side: usize, to: &mut [u8], peek: bool) -> Incoming {
        let (one, two) = to.split_at_mut(to.len() / 2);
        let mut parts = [IoSliceMut::new(one), IoSliceMut::new(two)];
        let from = usize::from(parts[0].is_empty());
        self.ends[side].receive(&self.kernel(side), &mut parts[from..], peek)
    }
}

/// The byte at a position of a stream.
fn byte(side: usize, position: u64) -> u8 {
    (position.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (40 + side)) as u8
}

fn bytes(side: usize, from: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| byte(side, from + at)).collect()
}

fn seeds() -> impl Iterator<Item = u64> {
    let count = if std::env::var_os("PULC_TEST_FULL").is_some() { 3000 } else { 60 };
    (1..=count).map(|seed: u64| seed.wrapping_mul(0x2545_f491_4f6c_dd1d))
}

#[test]
fn every_byte_arrives_once_and_in_order_whatever_changes_between_ring_and_kernel() {
    let mut promotions = 0;
    for seed in seeds() {
        let mut random = Random(seed);
        let pair = Pair::new();
        let (mut sent, mut got) = ([0u64; 2], [0u64; 2]);
        for step in 0..400 {
            let side = random.below(2) as usize;
            match random.below(20) {
                0 if step > 20 && !pair.ends[side].is_ready() => {
                    pair.ends[side].make_ready(&pair.kernel(side)).unwrap()
                }
                1 => pair.ends[side].set(Flag::Corked, random.below(2) == 0),
                2 => pair.ends[side].set(Flag::Parked, random.below(2) == 0),
                3 => pair.ends[side].set(Flag::Edge, random.below(2) == 0),
                4 => {
                    let word = pair.board.word(side as u32, 0);
                    word.store(random.below(2) as u32, Ordering::SeqCst);
                }
                5 => {
                    // A call that only the kernel can do.
                    pair.ends[side].send_by_kernel(&pair.kernel(side)).unwrap();
                    let len = random.size();
                    sent[side] += pair.by_kernel(side, &bytes(side, sent[side], len)) as u64;
                    pair.ends[side].kernel_done();
                }
                6 => {
                    let _ = pair.ends[side].truth(&pair.kernel(side));
                }
                7..=12 => {
                    let len = random.size();
                    sent[side] += pair.send(side, &bytes(side, sent[side], len)) as u64;
                }
                _ => {
                    let mut room = vec![0; random.size()];
                    let peek = random.below(4) == 0;
                    take(&pair, side, &mut room, peek, &mut got, seed, step);
                }
            }
        }
        for end in &pair.ends {
            promotions += u64::from(end.arrived() > 0);
            end.set(Flag::Shut, true);
        }
        pair.streams.iter().for_each(|stream| stream.shutdown(Shutdown::Write).unwrap());
        for side in [0, 1] {
            drain(&pair, side, &mut got, seed);
            assert_eq!(got[side], sent[1 - side], "seed {seed}: bytes are missing");
        }
    }
    assert!(promotions > 20, "only {promotions} directions went through rings: this proves nothing");
}

fn take(pair: &Pair, side: usize, room: &mut [u8], peek: bool, got: &mut [u64; 2], seed: u64, step: usize) {
    match pair.receive_into(side, room, peek) {
        Incoming::Got(count) => {
            assert!(count > 0 && count <= room.len());
            let expected = bytes(1 - side, got[side], count);
            assert!(room[..count] == expected, "seed {seed}, step {step}: wrong bytes at {}", got[side]);
            if !peek {
                got[side] += count as u64;
            }
        }
        Incoming::Empty => {}
        other => panic!("seed {seed}, step {step}: {other:?}"),
    }
}

/// Reads to the end.
fn drain(pair: &Pair, side: usize, got: &mut [u64; 2], seed: u64) {
    let mut room = vec![0; 50_000];
    for _ in 0..100_000 {
        match pair.receive_into(side, &mut room, false) {
            Incoming::Got(count) => {
                assert!(
                    room[..count] == bytes(1 - side, got[side], count),
                    "seed {seed}: wrong bytes at {}",
                    got[side]
                );
                got[side] += count as u64;
            }
            Incoming::Ended => return,
            Incoming::Empty => readable(&pair.streams[side]),
            Incoming::Failed(number) => panic!("seed {seed}: failed with {number}"),
        }
    }
    panic!("seed {seed}: no end");
}

/// Sleeps until the kernel says that there is something; a hang of the protocol ends here.
fn readable(stream: &TcpStream) {
    let limit = Timespec { tv_sec: 60, tv_nsec: 0 };
    let found = poll(&mut [PollFd::new(stream, PollFlags::IN)], Some(&limit)).unwrap();
    assert!(found > 0, "nothing woke the receiver for a minute");
}

#[test]
fn two_threads_that_sleep_in_the_kernel_lose_no_wake_up() {
    for seed in seeds().take(8) {
        let pair = Pair::new();
        pair.make_ready();
        let total = 400_000u64;
        std::thread::scope(|scope| {
            for side in [0, 1] {
                let pair = &pair;
                scope.spawn(move || {
                    let mut random = Random(seed + side as u64);
                    let mut sent = 0;
                    while sent < total {
                        let len = random.size().min((total - sent) as usize);
                        let gone = pair.send(side, &bytes(side, sent, len)) as u64;
                        if gone == 0 {
                            std::thread::yield_now();
                        }
                        if random.below(40) == 0 {
                            pair.ends[side].set(Flag::Corked, random.below(2) == 0);
                        }
                        sent += gone;
                    }
                });
                scope.spawn(move || {
                    let mut random = Random(seed + 10 + side as u64);
                    let (end, kernel, mut got) = (&pair.ends[side], pair.kernel(side), 0);
                    while got < total {
                        let mut room = vec![0; random.size()];
                        match pair.receive_into(side, &mut room, false) {
                            Incoming::Got(count) => {
                                assert!(room[..count] == bytes(1 - side, got, count), "seed {seed}: wrong at {got}");
                                got += count as u64;
                            }
                            Incoming::Empty => {
                                let word = pair.board.word(side as u32, 0);
                                word.fetch_add(1, Ordering::SeqCst);
                                if end.may_wait(&kernel) == Wait::Yes {
                                    readable(&pair.streams[side]);
                                }
                                word.fetch_sub(1, Ordering::SeqCst);
                            }
                            other => panic!("seed {seed}: {other:?}"),
                        }
                    }
                });
            }
        });
    }
}

#[test]
fn whoever_hears_bells_and_sends_none_tells_the_other_kernel_that_they_came() {
    let pair = Pair::new();
    pair.make_ready();
    // The receiver sleeps each time, and its answers would go by the ring.
    pair.board.word(1, 0).store(1, Ordering::SeqCst);
    let count = 100;
    for at in 0..count {
        assert_eq!(pair.send(0, &bytes(0, at, 1)), 1);
        readable(&pair.streams[1]);
        assert_eq!(pair.receive(1, 8, false), Incoming::Got(1));
    }
    // The kernel's first window has room for ten bells.
    assert!(u64::from(ACKNOWLEDGED.get()) >= count / 10, "{} of {count} bells were acknowledged", ACKNOWLEDGED.get());
}

#[test]
fn whoever_parts_leaves_every_byte_in_the_kernels_queue() {
    for seed in seeds() {
        let mut random = Random(seed);
        let pair = Pair::new();
        pair.make_ready();
        let (mut sent, mut got) = (0, [0u64; 2]);
        for step in 0..random.below(30) as usize {
            if random.below(3) == 0 {
                pair.board.word(1, 0).store(random.below(2) as u32, Ordering::SeqCst);
            }
            let len = random.size().min(9000);
            sent += pair.send(0, &bytes(0, sent, len)) as u64;
            if random.below(2) == 0 {
                let mut room = vec![0; random.size()];
                take(&pair, 1, &mut room, false, &mut got, seed, step);
            }
        }
        // The other end's descriptor is at hand here.
        let parted = pair.ends[1].part(&pair.kernel(1), 1, |bytes| pair.by_kernel(0, bytes) == bytes.len());
        match parted {
            Parting::Done => {}
            // Overtaken by the kernel, or behind bells: said, not lost.
            Parting::Unread(_) => continue,
            other => panic!("seed {seed}: {other:?}"),
        }
        sent += pair.send(0, &bytes(0, sent, 100)) as u64;
        pair.streams[0].shutdown(Shutdown::Write).unwrap();
        // From here on as a program that knows nothing.
        let mut plain = Vec::new();
        std::io::Read::read_to_end(&mut (&pair.streams[1]), &mut plain).unwrap();
        assert_eq!(plain.len() as u64, sent - got[1], "seed {seed}");
        assert!(plain == bytes(0, got[1], plain.len()), "seed {seed}: wrong bytes after parting");
    }
}

#[test]
fn a_peer_that_scribbles_over_the_channel_breaks_it_and_nothing_else() {
    for seed in seeds() {
        let mut random = Random(seed);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let active = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let passive = listener.accept().unwrap().0;
        let (map, fd) = create().unwrap();
        let ends = [Side::Active, Side::Passive].map(|side| End::join(fd.as_fd(), side, side as u32, 1).unwrap());
        let pair = Pair { board: Board::create().unwrap().0, streams: [active, passive], ends };
        pair.make_ready();
        for _ in 0..200 {
            let at = random.below(64 * 11 / 4) as usize * 4;
            // Locks excepted: who holds one is asked whether it lives, see `lock.rs`.
            if ![4 * 64, 6 * 64, 7 * 64, 8 * 64].contains(&at) && at < CHANNEL_BYTES {
                let value = [0, 1, 2, u32::MAX, random.next() as u32][random.below(5) as usize];
                map.u32_at(at).store(value, Ordering::SeqCst);
            }
            let side = random.below(2) as usize;
            let len = random.size();
            let content = bytes(side, 0, len);
            match pair.ends[side].send(&pair.board, &pair.kernel(side), &[IoSlice::new(&content)]) {
                Outgoing::Kernel(_) => {
                    let _ = rustix::net::send(&pair.streams[side], &content, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
                    pair.ends[side].kernel_done();
                }
                Outgoing::Ring(_) | Outgoing::Failed(_) => {}
            }
            let room = random.size();
            let _ = pair.receive(side, room, random.below(2) == 0);
            let _ = pair.ends[side].truth(&pair.kernel(side));
        }
    }
}
