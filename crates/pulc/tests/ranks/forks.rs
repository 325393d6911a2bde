//! Ranks that fork, start programs and use threads, all at once: what they do. A child is no rank: whatever it calls says so at
//! once, and nothing it does, not even dropping what it was born with or its exit, is felt by its parent.

use pulc::am::{Bundle, Endpoint, Mode, Peer, Server, Short};
use pulc::rawdata::{Channel, View};
use pulc::{Address, Block, Error, From, Item, Match, Port, Pulc, Rank, Wakeup, select, select_items};
use pulc_hal::os::process::fork_beside_threads;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const HANG: Duration = Duration::from_secs(180);
const NOTE: Short<()> = Short::new(1);
const CHILDREN: usize = 40;

pub fn play(scene: &str) {
    let pulc = Pulc::attach().unwrap();
    let port = pulc.open_port("main").unwrap();
    let other = Address::new(Rank(1 - pulc.rank().0), "main");
    if pulc.rank().0 == 1 {
        return serve(&pulc, &port, &other);
    }
    match scene {
        "fork_traffic" => under_traffic(&pulc, &port, &other, || {
            for turn in 0..CHILDREN {
                // Every other one drops what it was born with.
                let child = if turn % 2 == 0 { uses_everything } else { drops_everything };
                assert_eq!(fork_beside_threads(child).unwrap(), 7, "child {turn}");
            }
        }),
        "fork_programs" => under_traffic(&pulc, &port, &other, || {
            for _ in 0..CHILDREN {
                assert!(Command::new("true").status().unwrap().success());
            }
            no_descriptor_is_inherited();
        }),
        other => panic!("no scene {other}"),
    }
    port.send(&other, 0, &[]).unwrap();
    port.recv_timeout(From::Any, Match::Tag(0), &mut [], HANG).unwrap();
}

/// Everything a rank can have.
struct Things {
    pulc: Pulc,
    port: Port,
    address: Address,
    channel: Channel,
    peer: Peer,
    endpoint: Endpoint,
    _server: Server,
    bundle: Bundle,
    wakeup: Wakeup,
    _view: View,
    _block: Block,
}

static THINGS: Mutex<Option<Things>> = Mutex::new(None);

impl Things {
    fn of(pulc: &Pulc, other: &Address) -> Things {
        let channel = pulc.open_channel(other.rank(), 5).unwrap();
        let view = channel.recv_view_timeout(HANG).unwrap();
        let bundle = Bundle::new(pulc, Mode::Sequential).unwrap();
        let endpoint = bundle.endpoint("fork", 1).unwrap();
        endpoint.on(NOTE, |_token, ()| {}).unwrap();
        let peer = endpoint.map(&bundle, pulc.rank(), "fork", 1, 2).unwrap();
        Things {
            pulc: pulc.clone(),
            port: pulc.open_port("fork").unwrap(),
            address: Address::new(pulc.rank(), "fork"),
            channel,
            peer,
            endpoint,
            _server: bundle.serve().unwrap(),
            bundle,
            wakeup: Wakeup::new(pulc).unwrap(),
            _view: view,
            _block: pulc::alloc(4096).unwrap(),
        }
    }
}

/// Echoes what comes until an empty message.
fn serve(pulc: &Pulc, port: &Port, other: &Address) {
    let channel = pulc.open_channel(other.rank(), 5).unwrap();
    let mut loan = channel.loan(1000).unwrap();
    loan.fill(3);
    channel.send_loan(loan).unwrap();
    let mut buffer = vec![0; 100_000];
    loop {
        let got = port.recv_timeout(From::Any, Match::Any, &mut buffer, HANG).unwrap();
        port.send(other, got.tag, &buffer[..got.len]).unwrap();
        if got.len == 0 {
            return;
        }
    }
}

/// Runs `body` while two threads exchange messages with the other rank and check every byte of them.
fn under_traffic(pulc: &Pulc, port: &Port, other: &Address, body: impl FnOnce()) {
    *THINGS.lock().unwrap() = Some(Things::of(pulc, other));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let threads = [8, 70_000].map(|size| {
            let stop = &stop;
            scope.spawn(move || {
                let (mut turn, mut buffer) = (0_u64, vec![0; size]);
                while !stop.load(Ordering::Relaxed) {
                    let bytes: Vec<u8> = (0..size as u64).map(|at| (at * 7 + turn) as u8).collect();
                    port.send(other, size as u64, &bytes).unwrap();
                    port.recv_timeout(From::Any, Match::Tag(size as u64), &mut buffer, HANG).unwrap();
                    assert!(buffer == bytes, "turn {turn} of {size} bytes came back wrong");
                    turn += 1;
                }
                turn
            })
        });
        body();
        stop.store(true, Ordering::Relaxed);
        let turns = threads.map(|thread| thread.join().unwrap());
        assert!(turns.iter().all(|turns| *turns > 0), "{turns:?}: the channels have not survived");
    });
    let things = THINGS.lock().unwrap().take().unwrap();
    things.peer.request(&things.bundle, NOTE, ()).unwrap();
    assert_eq!(things.endpoint.name(), "fork");
}

fn is_forked<T>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::Forked { .. }))
}

/// In a child: every call says that it is one.
fn uses_everything() -> i32 {
    let things = THINGS.lock().unwrap().take().unwrap();
    let Things { pulc, port, address, channel, peer, bundle, wakeup, .. } = &things;
    let mut buffer = [0; 8];
    let said = [
        is_forked(Pulc::attach()),
        is_forked(pulc.open_port("child")),
        is_forked(pulc.open_channel(Rank(0), 9)),
        is_forked(port.send(address, 1, b"x")),
        is_forked(port.recv(From::Any, Match::Any, &mut buffer)),
        is_forked(port.try_recv(From::Any, Match::Any, &mut buffer)),
        is_forked(port.recv_vec(From::Any, Match::Any)),
        is_forked(select(&[port], None)),
        is_forked(select_items(pulc, &mut [Item::port(port)], None)),
        is_forked(wakeup.arm(&mut [Item::port(port)])),
        is_forked(Wakeup::new(pulc)),
        is_forked(channel.send(b"x")),
        is_forked(channel.recv(&mut buffer)),
        is_forked(channel.recv_view()),
        is_forked(channel.loan(10)),
        is_forked(channel.post(vec![0; 8], 1)),
        is_forked(pulc::rawdata::select(&[channel], None)),
        is_forked(Bundle::new(pulc, Mode::Parallel)),
        is_forked(bundle.poll()),
        is_forked(bundle.wait(None)),
        is_forked(bundle.wait_until(None, || false)),
        is_forked(bundle.endpoint("child", 1)),
        is_forked(bundle.serve()),
        is_forked(peer.request(bundle, NOTE, ())),
        is_forked(peer.try_request(NOTE, ())),
        is_forked(peer.try_prepare(10)),
        matches!(pulc::alloc(10), Err(Error::NoMemory(_))),
        pulc.counters().is_empty(),
        peer.credits() == (0, 0),
        port.dropped() == 0,
        channel.unpost().is_none(),
    ];
    pulc.flush();
    match said.iter().position(|said| !said) {
        None => 7,
        Some(which) => 100 + which as i32,
    }
}

/// In a child: all is dropped, as at the end of a program.
fn drops_everything() -> i32 {
    drop(THINGS.lock().unwrap().take());
    7
}

/// What a started program finds open: its own three and nothing of ours.
fn no_descriptor_is_inherited() {
    let mut ls = Command::new("ls");
    let output = ls.args(["-l", "/proc/self/fd"]).stdin(Stdio::null()).stderr(Stdio::null()).output().unwrap();
    let listed = String::from_utf8(output.stdout).unwrap();
    let ours = ["socket:", "memfd:", "anon_inode:"];
    assert!(listed.contains("/dev/null"), "{listed}");
    assert!(!ours.iter().any(|kind| listed.contains(kind)), "{listed}");
}
