//! Two processes joined as a keeper would join them: board, offers and bells go through an abstract socket.

use pulc_hal::HalError;
use pulc_hal::board::{Board, Sleep, Woken};
use pulc_hal::device::shm::{Arena, Shm, ShmConfig};
use pulc_hal::device::{Device, Frame, Peer, PeerFault, SendError, Sink};
use pulc_hal::os::bell::Bell;
use pulc_hal::os::fdpass::{Listener, Seqpacket};
use pulc_hal::os::watched::Watched;
use std::os::fd::{AsFd, BorrowedFd};
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

const PEER: &str = "PULC_TEST_PEER";
/// Guards against a hang only.
const PATIENCE: Duration = Duration::from_secs(120);

/// One end: a device joined to the other process.
struct End {
    device: Shm,
    to: Peer,
    board: Arc<Board>,
    slot: u32,
    bell: Arc<Bell>,
    arena: Arc<Arena>,
    inbox: Inbox,
}

#[derive(Default)]
struct Inbox(Vec<Vec<u8>>);

impl Sink for Inbox {
    fn frame(&mut self, _: Peer, frame: Frame<'_>) {
        self.0.push(match frame {
            Frame::Private(bytes) => bytes.to_vec(),
            Frame::Shared(shared) => {
                let mut bytes = vec![0; shared.len()];
                shared.copy_to(&mut bytes);
                bytes
            }
        });
    }

    fn peer_failed(&mut self, _: Peer, why: PeerFault) {
        panic!("an honest peer was given up: {why}");
    }
}

impl End {
    fn new(board: Board, slot: u32) -> End {
        let (board, bell) = (Arc::new(board), Arc::new(Bell::new().unwrap()));
        let arena = Arena::new(1 << 20).unwrap();
        let config = ShmConfig { bell: Some(bell.clone()), arena: Some(arena.clone()), ..ShmConfig::default() };
        let device = Shm::new(config, board.clone(), slot).unwrap();
        End { device, to: Peer(0), board, slot, bell, arena, inbox: Inbox::default() }
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), SendError> {
        if bytes.len() <= self.device.limits().short_max {
            self.device.send_short(self.to, [&[], bytes])
        } else {
            self.device.send_bulk(self.to, [&[], bytes])
        }
    }

    /// The next frame; sleeps while there is none, on the word or in poll.
    fn receive(&mut self, how: Sleep) -> Vec<u8> {
        let start = Instant::now();
        while self.inbox.0.is_empty() {
            if self.device.poll(&mut self.inbox, 1) > 0 {
                break;
            }
            let slot = self.board.slot(self.slot);
            slot.prepare_sleep(how);
            if self.device.poll(&mut self.inbox, 1) > 0 {
                slot.cancel();
                break;
            }
            let woken = match how {
                Sleep::Futex => slot.sleep(None).unwrap(),
                Sleep::Poll => slot.sleep_in_poll(Some(&self.bell), &[], &mut Watched::default(), None).unwrap(),
            };
            assert!(woken != Woken::Watchdog || start.elapsed() < PATIENCE, "nothing came");
        }
        self.inbox.0.remove(0)
    }
}

/// Starts this binary again as the peer of `test` and joins with it.
fn with_peer(test: &str) -> (End, Child) {
    let name = format!("pulc-test-{}-{test}", std::process::id());
    let listener = Listener::bind(name.as_bytes()).unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args([&format!("shm_processes::{test}"), "--exact", "--nocapture", "--test-threads=1"])
        .env(PEER, &name)
        .spawn()
        .unwrap();
    let start = Instant::now();
    let socket = loop {
        match listener.accept() {
            Ok(socket) => break socket,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                assert!(start.elapsed() < PATIENCE, "the peer never came");
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(error) => panic!("{error}"),
        }
    };
    socket.set_nonblocking(false).unwrap();
    assert_eq!(socket.peer().unwrap().pid as u32, child.id());
    let (board, board_fd) = Board::create(2).unwrap();
    socket.send(b"board", &[board_fd.as_fd()]).unwrap();
    let mut end = End::new(board, 0);
    let (to, offer) = end.device.open(1).unwrap();
    let fds: Vec<BorrowedFd<'_>> = offer.fds.iter().map(AsFd::as_fd).collect();
    socket.send(&offer.what, &fds).unwrap();
    drop(offer);
    let mut what = [0; 256];
    let answer = socket.recv(&mut what).unwrap().expect("the peer answers");
    let (same, none) = end.device.accept(1, &what[..answer.bytes], answer.fds).unwrap();
    assert!(same == to && none.is_none());
    end.to = to;
    (end, child)
}

/// The peer's side of [`with_peer`].
fn join(name: &str) -> End {
    let socket = Seqpacket::connect(name.as_bytes()).unwrap();
    let mut what = [0; 256];
    let board = socket.recv(&mut what).unwrap().expect("the board comes first");
    let mut end = End::new(Board::attach(board.fds[0].as_fd(), 2).unwrap(), 1);
    let offer = socket.recv(&mut what).unwrap().expect("then an offer");
    let (to, answer) = end.device.accept(0, &what[..offer.bytes], offer.fds).unwrap();
    let answer = answer.expect("the first offer is answered");
    let fds: Vec<BorrowedFd<'_>> = answer.fds.iter().map(AsFd::as_fd).collect();
    socket.send(&answer.what, &fds).unwrap();
    end.to = to;
    end
}

/// Sends everything back until an empty frame comes. Sleeps in both ways, in turn.
fn echo(mut end: End) {
    for turn in 0.. {
        let how = if turn % 2 == 0 { Sleep::Futex } else { Sleep::Poll };
        let frame = end.receive(how);
        if frame.is_empty() {
            return;
        }
        while end.send(&frame) == Err(SendError::Again) {
            end.device.poll(&mut end.inbox, 8);
        }
    }
}

fn frame(i: usize) -> Vec<u8> {
    let len = if i % 4 == 3 { 1000 + i * 7 % 15_000 } else { 1 + i % 896 };
    (0..len).map(|at| (at * 3 + i) as u8).collect()
}

#[test]
fn two_processes_echo_frames_of_all_sizes_while_sleeping_in_between() {
    if let Ok(name) = std::env::var(PEER) {
        return echo(join(&name));
    }
    let (mut end, mut child) = with_peer("two_processes_echo_frames_of_all_sizes_while_sleeping_in_between");
    for i in 0..1000 {
        end.send(&frame(i)).unwrap();
        let how = if i % 3 == 0 { Sleep::Poll } else { Sleep::Futex };
        assert!(end.receive(how) == frame(i), "frame {i} changed on its way");
    }
    let mut block = end.arena.alloc(200_000).unwrap();
    block.fill(6);
    end.device.send_zcopy(end.to, &[], &block[..10_000], 5).unwrap();
    assert_eq!(end.receive(Sleep::Futex), [6; 10_000]);
    let mut tokens = Vec::new();
    end.device.completed(&mut tokens);
    assert_eq!(tokens, [5]);
    end.send(&[]).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_peer_killed_in_the_middle_leaves_us_unharmed_and_our_pool_whole() {
    if let Ok(name) = std::env::var(PEER) {
        return echo(join(&name));
    }
    let (mut end, mut child) = with_peer("a_peer_killed_in_the_middle_leaves_us_unharmed_and_our_pool_whole");
    for i in 0..200 {
        end.send(&frame(i)).unwrap();
        assert!(end.receive(Sleep::Futex) == frame(i));
    }
    for i in 0..40 {
        let _ = end.send(&frame(i));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    // What it still sent arrives and is what it got; then there is silence, and back-pressure instead of errors.
    while end.device.poll(&mut end.inbox, 64) > 0 {}
    for (i, got) in end.inbox.0.iter().enumerate() {
        assert!(*got == frame(i), "echo {i}");
    }
    let mut sent = 0;
    while end.send(&[1; 4000]).is_ok() {
        sent += 1;
        assert!(sent < 100_000, "nobody takes this any more");
    }
    assert_eq!(end.send(&[1; 4000]), Err(SendError::Again));
    end.device.close_peer(end.to);
    assert_eq!(end.send(&[1; 4000]), Err(SendError::PeerGone));
}

#[test]
fn without_descriptors_left_a_channel_is_refused_and_works_later() {
    if std::env::var(PEER).is_err() {
        // In a process of its own: the limit counts for all of it.
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["shm_processes::without_descriptors_left_a_channel_is_refused_and_works_later", "--exact"])
            .env(PEER, "alone")
            .status()
            .unwrap();
        assert!(status.success());
        return;
    }
    let (board, _fd) = Board::create(2).unwrap();
    let mut end = End::new(board, 0);
    let mut taken = Vec::new();
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let low = rustix::process::Rlimit { current: Some(64), maximum: limit.maximum };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, low).unwrap();
    while let Ok(fd) = std::fs::File::open("/dev/null") {
        taken.push(fd);
    }
    // One free descriptor makes the channel, but not the copies that go with it; none makes nothing.
    for free in [0, 1, 2] {
        let refused = end.device.open(1).unwrap_err();
        assert!(matches!(refused, HalError::System { .. }), "with {free} descriptors: {refused}");
        assert!(end.device.peer(1).is_none(), "a refused channel must leave nothing behind");
        taken.pop();
    }
    taken.clear();
    assert!(end.device.open(1).is_ok());
}
