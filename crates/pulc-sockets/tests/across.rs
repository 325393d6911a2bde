//! Ends of different users: they share one channel and see each other's sleepers through windows, nothing else.

use pulc_hal::os::tcp_counts;
use pulc_sockets::window::{self, OWN_SLOT};
use pulc_sockets::{Board, End, Incoming, Kernel, Outgoing, Side, Wait, Window, create};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use std::cell::Cell;
use std::io::{IoSlice, IoSliceMut};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::atomic::Ordering;

/// One end with its kernel's connection.
struct Process {
    stream: TcpStream,
    is_active: bool,
    end: End,
    /// Who sleeps here, as the other one sees it.
    shown: Board,
    rung: Cell<u32>,
}

impl Kernel for Process {
    fn sent(&self) -> Result<u64, i32> {
        tcp_counts::sent(self.stream.as_fd(), self.is_active)
    }

    fn taken(&self) -> Result<u64, i32> {
        tcp_counts::taken(self.stream.as_fd())
    }

    fn recv(&self, to: &mut [IoSliceMut<'_>], peek: bool) -> Result<usize, i32> {
        let flags = RecvFlags::DONTWAIT | if peek { RecvFlags::PEEK } else { RecvFlags::empty() };
        let got = rustix::net::recvmsg(&self.stream, to, &mut rustix::net::RecvAncillaryBuffer::default(), flags);
        got.map(|message| message.bytes).map_err(|error| error.raw_os_error())
    }

    fn ring(&self) -> Result<(), i32> {
        self.rung.set(self.rung.get() + 1);
        let sent = rustix::net::send(&self.stream, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        sent.map(drop).map_err(|error| error.raw_os_error())
    }

    fn acknowledge(&self) {}

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

impl Process {
    fn send(&self, bytes: &[u8]) -> Outgoing {
        // Of a board of their own neither has anything to do with the other.
        self.end.send(&self.shown, self, &[IoSlice::new(bytes)])
    }

    fn receive(&self) -> (Incoming, [u8; 64]) {
        let mut bytes = [0; 64];
        let got = self.end.receive(self, &mut [IoSliceMut::new(&mut bytes)], false);
        (got, bytes)
    }
}

/// Two ends whose directions are both on the ring, and the channel as a hostile end sees it.
fn pair() -> ([Process; 2], impl Fn(usize, u32)) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let active = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let passive = listener.accept().unwrap().0;
    let (map, fd) = create().unwrap();
    let ([shown, other], [window, others]) = {
        let ((one, first), (two, second)) = (window::create().unwrap(), window::create().unwrap());
        ([one, two], [first, second])
    };
    let join = |side, window| End::join_across(fd.as_fd(), side, 1, Window::map(window).unwrap()).unwrap();
    let ends = [join(Side::Active, others), join(Side::Passive, window)];
    let [one, two] = ends;
    let all = [
        Process { stream: active, is_active: true, end: one, shown, rung: Cell::new(0) },
        Process { stream: passive, is_active: false, end: two, shown: other, rung: Cell::new(0) },
    ];
    all.iter().for_each(|process| process.end.make_ready(process).unwrap());
    (all, move |at, value| map.u32_at(at).store(value, Ordering::SeqCst))
}

#[test]
fn who_sleeps_is_rung_for_and_who_does_not_is_not() {
    let ([one, two], _) = pair();
    for (from, to) in [(&one, &two), (&two, &one)] {
        assert_eq!(from.send(b"awake"), Outgoing::Ring(5));
        assert_eq!(from.rung.get(), 0, "a bell for nobody");
        assert_eq!(to.receive().0, Incoming::Got(5));
        to.shown.enter(OWN_SLOT, 0);
        assert_eq!(to.end.may_wait(to), Wait::Yes);
        assert_eq!(from.send(b"asleep"), Outgoing::Ring(6));
        assert_eq!(from.rung.get(), 1);
        to.shown.exit(OWN_SLOT, 0);
        let (got, bytes) = to.receive();
        assert_eq!((got, &bytes[..6]), (Incoming::Got(6), b"asleep".as_slice()));
        assert_eq!(to.receive().0, Incoming::Empty, "a bell was taken for a byte");
    }
}

#[test]
fn another_user_that_keeps_a_lock_stops_nobody() {
    // The locks of both sides of both directions, see `layout.rs`.
    for lock in [4 * 64, 6 * 64, 7 * 64, 8 * 64] {
        let ([one, two], scribble) = pair();
        assert_eq!(one.send(b"before"), Outgoing::Ring(6));
        // A thread that lives and is not ours.
        scribble(lock, u32::MAX);
        for _ in 0..3 {
            let reset = Errno::CONNRESET.raw_os_error();
            let outcomes = [one.send(b"x"), two.send(b"x")];
            let received = [one.receive().0, two.receive().0];
            let has_sent = outcomes.contains(&Outgoing::Failed(reset));
            assert!(has_sent || received.contains(&Incoming::Failed(reset)), "lock {lock}: {outcomes:?}, {received:?}");
        }
    }
}
