//! A rank that was made to do harm: it attaches as the protocol says and then speaks to every floor of its job-mates by itself,
//! with frames that their devices take and their handlers should not, over shared memory and over the network, while it also
//! writes over the memory below, storms over the board, and lets its keeper pass on nonsense.

use super::frames::{FRAME_MAX, Frames};
use super::memory::Mappings;
use super::{Chance, board_storm, honest, sockets};
use pulc_base::boot::{self, Boot, Gone, PAIR_KEY_BYTES, ToKeeper, ToRank};
use pulc_base::clock::now;
use pulc_base::{PROTOCOL_VERSION, Rank};
use pulc_hal::board::Board;
use pulc_hal::device::shm::{Arena, Block, Shm, ShmConfig};
use pulc_hal::device::{Device, Frame, Peer, PeerFault, SendError, Sink};
use pulc_hal::os::fdpass::Seqpacket;
use pulc_hal::os::memfd;
use pulc_link::{Config, Link, LinkKeys, Rail};
use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A guard against hanging.
const HANG: Duration = Duration::from_secs(120);
/// Parcels of nonsense for each job-mate, less than the keeper cuts a rank off for.
const NONSENSE_PARCELS: u64 = 200;
const MTU: usize = 1400;

struct Crafted {
    keeper: Seqpacket,
    shm: Shm,
    /// Once more, for another thread.
    board: Option<Board>,
    my_slot: u32,
    /// Ranks of this node, by slot.
    local: Vec<Rank>,
    block: Block,
    random: Chance,
    victims: HashMap<u32, Victim>,
    remote: Vec<Remote>,
    gone: Vec<Rank>,
    sent: u64,
    poisoned: u64,
}

/// A rank of this node.
struct Victim {
    frames: Frames,
    parcels: u64,
}

/// A rank of another node, with a link that is as good as an honest one.
struct Remote {
    link: Link,
    address: SocketAddr,
    socket: UdpSocket,
    frames: Frames,
}

/// Reads what comes and forgets it.
#[derive(Default)]
struct Hole(u64);

impl Sink for Hole {
    fn frame(&mut self, _: Peer, _: Frame<'_>) {
        self.0 += 1;
    }

    fn peer_failed(&mut self, _: Peer, _: PeerFault) {}
}

/// Until the honest ranks have ended.
pub fn attack(me: u32) {
    let seed = std::env::var(super::ENV_SEED).ok().and_then(|seed| seed.parse::<u64>().ok()).unwrap_or(1);
    let mut crafted = Crafted::attach(Rank(me), Chance(seed ^ u64::from(me) << 32 | 1));
    let (stop, begin) = (AtomicBool::new(false), Instant::now());
    let keeper = std::env::var(boot::ENV_KEEPER).expect("this is a rank");
    let board = crafted.board.take().expect("it was mapped");
    let (storms, said) = std::thread::scope(|scope| {
        let storm = Chance(crafted.random.word() | 1);
        let storm = scope.spawn(|| board_storm::storm(&board, storm, &stop));
        let garbage = Chance(crafted.random.word() | 1);
        let garbage = scope.spawn(|| sockets::garbage(&keeper, garbage, &stop));
        let mut mappings = Mappings::new();
        super::tell_that_it_has_begun(me);
        while !crafted.is_over() && begin.elapsed() < HANG {
            crafted.round(&mut mappings);
        }
        stop.store(true, Ordering::Relaxed);
        (storm.join().expect("it does not panic"), garbage.join().expect("it does not panic"))
    });
    println!(
        "rank {me} attacked: {} frames, {} pairs given up, {storms} writes to the board, {said} words to the keeper",
        crafted.sent, crafted.poisoned
    );
}

impl Crafted {
    fn attach(me: Rank, mut random: Chance) -> Crafted {
        let variable = |name| std::env::var(name).expect("this is a rank");
        let keeper = Seqpacket::connect(variable(boot::ENV_KEEPER).as_bytes()).expect("the keeper lives");
        let cookie = variable(boot::ENV_COOKIE);
        let cookie =
            std::array::from_fn(|at| u8::from_str_radix(&cookie[2 * at..2 * at + 2], 16).expect("hexadecimal"));
        let hello = boot::encode(&ToKeeper::Hello { version: PROTOCOL_VERSION, rank: me, cookie });
        keeper.send(&hello, &[]).expect("the keeper lives");
        let mut buffer = [0; boot::MESSAGE_MAX];
        let welcome = keeper.recv(&mut buffer).expect("the keeper answers").expect("the keeper lives");
        let Ok(ToRank::Welcome { boot_bytes, local_rank, local_size }) = boot::decode(&buffer[..welcome.bytes]) else {
            panic!("no welcome")
        };
        keeper.set_nonblocking(true).expect("a socket");
        let mut fds = welcome.fds.into_iter();
        let boot = fds.next().expect("start-up data");
        let boot = memfd::read_constant(boot.as_fd(), 1 << 20).expect("it is sealed");
        let boot: Boot = boot::decode(&boot[..boot_bytes as usize]).expect("it is well-formed");
        let board_fd = fds.next().expect("the board");
        let board = Board::attach(board_fd.as_fd(), local_size).expect("it fits");
        let for_device = Arc::new(Board::attach(board_fd.as_fd(), local_size).expect("it fits"));
        let arena = Arena::new(1 << 20).expect("there is memory");
        let block = arena.alloc(900_000).expect("it is empty");
        let config = ShmConfig { arena: Some(arena), ..ShmConfig::default() };
        let shm = Shm::new(config, for_device, local_rank).expect("there is memory");
        let node = boot.tasks[me.0 as usize].node;
        let local = (0..).zip(&boot.tasks).filter(|(_, task)| task.node == node).map(|(rank, _)| Rank(rank)).collect();
        let keys =
            fds.next().map(|fd| memfd::read_constant(fd.as_fd(), 1 << 20).expect("it is sealed")).unwrap_or_default();
        let remote = fds.next().map(|socket| links(&boot, &keys, me, socket)).unwrap_or_default();
        let mut crafted = Crafted {
            keeper,
            shm,
            board: Some(board),
            my_slot: local_rank,
            local,
            block,
            random: Chance(random.word() | 1),
            victims: HashMap::new(),
            remote,
            gone: Vec::new(),
            sent: 0,
            poisoned: 0,
        };
        (0..local_size).filter(|slot| *slot != local_rank).for_each(|slot| crafted.open(slot));
        crafted
    }

    fn open(&mut self, slot: u32) {
        let to = self.local[slot as usize];
        if let Ok((_, offer)) = self.shm.open(slot) {
            self.pass(to, offer.what, &offer.fds);
        }
        self.victims.insert(slot, Victim { frames: Frames::new(), parcels: 0 });
    }

    fn pass(&self, to: Rank, what: Vec<u8>, fds: &[OwnedFd]) {
        let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
        let _ = self.keeper.send(&boot::encode(&ToKeeper::Pass { to, what }), &fds);
    }

    fn is_over(&self) -> bool {
        honest::ranks().iter().all(|rank| self.gone.contains(&Rank(*rank)))
    }

    fn round(&mut self, mappings: &mut Mappings) {
        self.hear_keeper();
        mappings.look_again();
        let slots: Vec<u32> = self.victims.keys().copied().collect();
        for _ in 0..300 {
            let slot = slots[self.random.below(slots.len() as u64) as usize];
            if self.strike(slot) {
                mappings.look_again();
            }
            if self.random.once_in(50) {
                mappings.scribble(&mut self.random);
            }
            // It seldom takes what the others send.
            if self.random.once_in(200) {
                self.shm.poll(&mut Hole::default(), 8);
            }
        }
        let slot = slots[self.random.below(slots.len() as u64) as usize];
        self.offer_nonsense(slot);
        self.strike_remote();
        std::thread::yield_now();
    }

    fn hear_keeper(&mut self) {
        let mut buffer = [0; boot::MESSAGE_MAX];
        while let Ok(Some(received)) = self.keeper.recv(&mut buffer) {
            match boot::decode(&buffer[..received.bytes]) {
                Ok(ToRank::Passed { from, what }) => {
                    let slot = self.local.iter().position(|rank| *rank == from);
                    if let Some(slot) = slot {
                        let _ = self.shm.accept(slot as u32, &what, received.fds);
                    }
                }
                Ok(ToRank::Gone { rank, how: Gone::Exited(_) | Gone::Killed(_) | Gone::Lost }) => self.gone.push(rank),
                _ => {}
            }
        }
    }

    /// Returns whether channels have come or gone.
    fn strike(&mut self, slot: u32) -> bool {
        let Some(peer) = self.shm.peer(slot) else { return false };
        let Some(victim) = self.victims.get_mut(&slot) else { return false };
        let frame = victim.frames.next(&mut self.random, 20_000);
        // Only whole messages can have a body of any length.
        let way = if frame.get(1) == Some(&0) { self.random.below(40) } else { 40 };
        let sent = match way {
            0 => self.shm.send_bulk(peer, [&frame, &vec![0xdd; FRAME_MAX - frame.len()]]),
            // Nearly a megabyte that stays where it is and changes all the time.
            1 => self.shm.send_zcopy(peer, &frame[..frame.len().min(48)], &self.block, 1),
            _ => self.shm.send_short(peer, [&frame[..frame.len().min(800)], &[]]),
        };
        match sent {
            Ok(()) => self.sent += 1,
            Err(SendError::Again | SendError::Unsupported) => std::thread::yield_now(),
            Err(_) => {
                // Our end found the other one at fault, or it is gone: once more from the beginning.
                self.poisoned += 1;
                self.shm.close_peer(peer);
                self.open(slot);
                return true;
            }
        }
        false
    }

    /// Something that is no channel, or one more of them, with descriptors that are no memory.
    fn offer_nonsense(&mut self, slot: u32) {
        let to = self.local[slot as usize];
        let Some(victim) = self.victims.get_mut(&slot) else { return };
        if victim.parcels >= NONSENSE_PARCELS || !self.random.once_in(200) || slot == self.my_slot {
            return;
        }
        victim.parcels += 1;
        let null = || std::fs::File::open("/dev/null").map(OwnedFd::from);
        let bare = || rustix::fs::memfd_create("pulc-bare", rustix::fs::MemfdFlags::CLOEXEC);
        let mut fds = Vec::new();
        for _ in 0..self.random.below(5) {
            let fd = if self.random.once_in(2) { null() } else { bare().map_err(Into::into) };
            fds.extend(fd);
        }
        let what = (0..self.random.below(64)).map(|_| self.random.word() as u8).collect();
        self.pass(to, what, &fds);
    }

    fn strike_remote(&mut self) {
        let mut buffer = [0; 1 << 16];
        for remote in &mut self.remote {
            while let Ok((bytes, _)) = remote.socket.recv_from(&mut buffer) {
                let _ = remote.link.receive(now(), Rail(0), &mut buffer[..bytes]);
                while remote.link.next_packet().is_some() {}
            }
            for _ in 0..30 {
                let frame = remote.frames.next(&mut self.random, 20_000);
                if remote.link.send(now(), [&frame[..frame.len().min(900)], &[]]).is_err() {
                    break;
                }
                self.sent += 1;
            }
            let mut out = [0; MTU];
            while let Some((_, len)) = remote.link.transmit(now(), &mut out) {
                let _ = remote.socket.send_to(&out[..len], remote.address);
                if self.random.once_in(20) {
                    let at = self.random.below(len as u64) as usize;
                    out[at] ^= 1 << self.random.below(8);
                    let _ = remote.socket.send_to(&out[..len], remote.address);
                }
            }
            if remote.link.deadline().is_some_and(|deadline| deadline <= now()) {
                remote.link.tick(now());
            }
        }
    }
}

/// Links to all ranks of other nodes over this rank's socket.
fn links(boot: &Boot, keys: &[u8], me: Rank, socket: OwnedFd) -> Vec<Remote> {
    let socket = UdpSocket::from(socket);
    let node = boot.tasks[me.0 as usize].node;
    let remote = (0..).map(Rank).zip(&boot.tasks).filter(|(_, task)| task.node != node);
    remote
        .filter_map(|(rank, task)| {
            let socket = socket.try_clone().ok()?;
            socket.set_nonblocking(true).ok()?;
            let keys =
                LinkKeys::derive(&keys[rank.0 as usize * PAIR_KEY_BYTES..][..PAIR_KEY_BYTES], boot.job, me, rank);
            let link = Link::new(Config::from_params(MTU, 1, 1 << 20), keys, now());
            Some(Remote { link, address: *task.rails.first()?, socket, frames: Frames::new() })
        })
        .collect()
}
