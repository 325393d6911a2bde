//! The way to ranks of other nodes: one reliable link per rank over all rails. Called by the engine's progress and sends;
//! never blocks. The links know no sockets and the sockets no links; this file joins them.

mod arrivals;
mod siege;

use crate::dispatch::Floor;
use crate::engine::Tally;
use crate::error::Error;
use crate::switch::Hand;
use arrivals::NetSink;
use pulc_base::boot::{Boot, PAIR_KEY_BYTES};
use pulc_base::clock::{self, Nanos};
use pulc_base::metrics::{DeviceCounters, LinkCounters};
use pulc_base::{NodeIndex, Rank};
use pulc_hal::device::fault::{Fault, FaultPlan};
use pulc_hal::device::net::NetDevice;
use pulc_hal::device::{Device, Peer, SendError};
use pulc_link::{Config, Full, Link, LinkError, LinkKeys, Outlet, Rail};
use siege::Siege;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Polls of the other devices between two looks at the sockets: looking costs a system call. Where the last frame came from the
/// network, each poll looks there too.
const POLLS_BETWEEN_LOOKS: u32 = 16;
/// Frames taken from a socket in one go.
const POLL_BUDGET: usize = 256;

const NONE: u32 = u32::MAX;

pub(crate) struct Net {
    pub tally: Tally,
    rails: Vec<RailSide>,
    links: Vec<LinkSide>,
    /// By rank: index of its link, if it has one yet.
    link_of: Vec<u32>,
    maker: Maker,
    polls: u32,
    /// The last frame of all devices came from here.
    is_hot: bool,
    /// Links that may have something to transmit.
    touched: Vec<u32>,
    /// Frames refused by links, and how many refused ones make the next warning.
    refused: u64,
    warn_at: u64,
    siege: Siege,
    /// No link has a deadline before this.
    due_from: Nanos,
}

/// A socket and who is behind its peers.
struct RailSide {
    device: Fault<NetDevice>,
    /// By [`Peer`].
    rank_of: Vec<Rank>,
    /// When it was last looked at.
    looked: Nanos,
}

struct LinkSide {
    link: Link,
    /// By rail.
    peers: Vec<Peer>,
    /// Whether it is among those touched.
    is_touched: bool,
}

/// What is needed to make a link.
struct Maker {
    me: Rank,
    job: pulc_base::JobId,
    /// By rank.
    keys: Vec<[u8; PAIR_KEY_BYTES]>,
    config: Config,
    /// By rank, then by rail; empty for ranks of this node.
    peers: Vec<Vec<Peer>>,
}

impl Net {
    pub fn new(
        boot: &Boot,
        me: Rank,
        node: NodeIndex,
        sockets: Vec<OwnedFd>,
        keys: Vec<[u8; PAIR_KEY_BYTES]>,
    ) -> Result<Net, Error> {
        let mut rails = Vec::new();
        for socket in sockets {
            let device =
                NetDevice::new(socket).map_err(|source| Error::System { doing: "take over a socket", source })?;
            let device = Fault::new(device, FaultPlan::read(rails.len()));
            rails.push(RailSide { device, rank_of: Vec::new(), looked: Nanos(0) });
        }
        let mut peers = vec![Vec::new(); boot.tasks.len()];
        let mut remote = 0;
        for (rank, task) in (0..).map(Rank).zip(&boot.tasks) {
            if task.node == node.0 {
                continue;
            }
            remote += 1;
            let [to_peer, from_peer] = LinkKeys::derive(key_of(&keys, rank), boot.job, me, rank).stream_tokens();
            for (rail, address) in rails.iter_mut().zip(&task.rails) {
                let peer = rail.device.inner_mut().open(*address, to_peer, from_peer);
                let index = peer.0 as usize;
                if rail.rank_of.len() <= index {
                    rail.rank_of.resize(index + 1, rank);
                }
                rail.rank_of[index] = rank;
                peers[rank.0 as usize].push(peer);
            }
        }
        let frame_max = rails.iter().map(|rail| rail.device.limits().frame_max).min().unwrap_or(0);
        let buffer = rails.iter().map(|rail| rail.device.inner().receive_buffer_bytes()).min().unwrap_or(0);
        let window = pulc_link::credit_share(buffer, remote, frame_max);
        let mut config = Config::from_params(frame_max, rails.len() as u8, window);
        if !rails.iter().all(|rail| rail.device.inner().carries_trains()) {
            config.train_max_bytes = 0;
        }
        let maker = Maker { me, job: boot.job, keys, config, peers };
        let link_of = vec![NONE; boot.tasks.len()];
        Ok(Net {
            tally: Tally::default(),
            rails,
            links: Vec::new(),
            link_of,
            maker,
            polls: 0,
            is_hot: false,
            touched: Vec::new(),
            refused: 0,
            warn_at: 1,
            siege: Siege::default(),
            due_from: Nanos::MAX,
        })
    }

    /// The link to a rank of another node, made now if there is none.
    pub fn link_to(&mut self, rank: Rank) -> Option<u32> {
        find_or_make(&mut self.links, &mut self.link_of, &self.maker, rank)
    }

    /// Longest packet that every link takes at any time.
    pub fn packet_min(&self) -> usize {
        self.maker.config.packet_max()
    }

    /// Longest packet that it is good to send now.
    pub fn packet_max(&self, link: u32) -> usize {
        self.links[link as usize].link.packet_max()
    }

    /// Gives a packet to the link. It leaves with the next [`Net::push`] or progress, or now if much waits.
    pub fn send(&mut self, link: u32, parts: [&[u8]; 2]) -> Result<(), SendError> {
        let now = clock::now();
        self.touch(link);
        let side = &mut self.links[link as usize];
        match side.link.send(now, parts) {
            Ok(()) => {
                if side.link.has_a_run() {
                    self.transmit(now);
                }
                Ok(())
            }
            Err(LinkError::Again) => Err(SendError::Again),
            Err(LinkError::TooLong { len, max }) => Err(SendError::TooLong { len, max }),
            Err(_) => Err(SendError::PeerGone),
        }
    }

    fn touch(&mut self, link: u32) {
        touch(&mut self.links, &mut self.touched, link);
    }

    /// Puts on the wire what the links have ready.
    pub fn push(&mut self) {
        self.transmit(clock::now());
    }

    /// The next progress looks at the sockets in any case.
    pub fn look_next(&mut self) {
        self.polls = POLLS_BETWEEN_LOOKS;
    }

    /// Whether the last frame of all devices came from the network.
    pub fn is_hot(&self) -> bool {
        self.is_hot
    }

    /// A frame has come by another way.
    pub fn cool(&mut self) {
        self.is_hot = false;
    }

    /// Before a sleep on the descriptors.
    pub fn prepare_wait(&mut self) {
        self.rails.iter_mut().for_each(|rail| rail.device.prepare_wait());
    }

    /// Takes frames, delivers packets, lets timers act, transmits. Returns packets delivered.
    pub fn progress(&mut self, floor: &mut Floor, hand: &mut Hand<'_>) -> usize {
        self.polls += 1;
        if self.polls < POLLS_BETWEEN_LOOKS && !self.is_hot {
            return 0;
        }
        self.polls = 0;
        let now = clock::now();
        let Net { rails, links, link_of, maker, tally, touched, .. } = self;
        let mut sink = NetSink {
            floor,
            hand,
            links,
            link_of,
            maker,
            tally,
            touched,
            now,
            rail: Rail(0),
            looked: Nanos(0),
            rank_of: &[],
            packets: 0,
            refused: 0,
        };
        let mut frames = 0;
        for (index, rail) in rails.iter_mut().enumerate() {
            sink.rail = Rail(index as u8);
            sink.rank_of = &rail.rank_of;
            sink.looked = std::mem::replace(&mut rail.looked, now);
            frames += rail.device.poll(&mut sink, POLL_BUDGET);
        }
        let (packets, refused) = (sink.packets, sink.refused);
        if frames > 0 {
            self.refused += refused;
            self.is_hot = true;
            self.look_next();
        }
        let strangers: u64 = self.rails.iter().map(|rail| rail.device.inner().frames_refused()).sum();
        if self.siege.wants_a_look(now, strangers + self.refused) {
            if self.siege.look(now, strangers + self.refused, &mut self.rails, &mut self.links) {
                (0..self.links.len() as u32).for_each(|link| self.touch(link));
            }
            self.warn_of_refusals(strangers);
        }
        if self.due_from <= now {
            self.tick(now);
        }
        if !self.touched.is_empty() {
            self.transmit(now);
        }
        packets
    }

    /// Lets the timers act that are over.
    #[cold]
    fn tick(&mut self, now: Nanos) {
        for index in 0..self.links.len() as u32 {
            let link = &mut self.links[index as usize].link;
            if link.deadline().is_some_and(|deadline| deadline <= now) {
                link.tick(now);
                self.touch(index);
            }
        }
        self.due_from = self.deadline().unwrap_or(Nanos::MAX);
    }

    fn transmit(&mut self, now: Nanos) {
        let Net { rails, links, touched, due_from, .. } = self;
        for index in touched.drain(..) {
            let side = &mut links[index as usize];
            side.link.transmit_runs(now, &mut RailsOutlet { rails, peers: &side.peers });
            side.is_touched = false;
            *due_from = side.link.deadline().map_or(*due_from, |deadline| deadline.min(*due_from));
        }
    }

    /// What the rails are, for reports.
    pub fn name(&self) -> &'static str {
        let mut names = self.rails.iter().map(|rail| rail.device.inner().name());
        let first = names.next().unwrap_or("net");
        if names.all(|name| name == first) { first } else { "net" }
    }

    pub fn wait_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.rails.iter().filter_map(|rail| rail.device.wait_fd())
    }

    /// The earliest deadline of any link.
    pub fn deadline(&self) -> Option<Nanos> {
        self.links.iter().filter_map(|side| side.link.deadline()).min()
    }

    pub fn all_acknowledged(&self) -> bool {
        self.links.iter().all(|side| side.link.unacknowledged() == 0)
    }

    /// Acknowledges at once what else would be in a while; for an end that leaves, whose peers would ask it in vain.
    pub fn acknowledge_early(&mut self) {
        for index in 0..self.links.len() as u32 {
            if self.links[index as usize].link.acknowledge_early() {
                self.touch(index);
            }
        }
        self.transmit(clock::now());
    }

    /// The rank is gone: frees what its link held, if it had one.
    pub fn close(&mut self, rank: Rank) {
        let index = self.link_of[rank.0 as usize] as usize;
        let Some(side) = self.links.get_mut(index) else { return };
        side.link.close();
        for (rail, peer) in self.rails.iter_mut().zip(&side.peers) {
            rail.device.close_peer(*peer);
        }
    }

    /// Frames of all rails; refused are also those that only a link could tell.
    pub fn frame_counters(&self) -> DeviceCounters {
        let frames_dropped = self.rails.iter().map(|rail| rail.device.inner().frames_dropped()).sum();
        let refused = DeviceCounters { frames_refused: self.refused, frames_dropped, ..DeviceCounters::default() };
        self.rails.iter().map(|rail| rail.device.counters()).fold(refused, |sum, one| DeviceCounters {
            frames_sent: sum.frames_sent + one.frames_sent,
            frames_received: sum.frames_received + one.frames_received,
            bytes_sent: sum.bytes_sent + one.bytes_sent,
            bytes_received: sum.bytes_received + one.bytes_received,
            again: sum.again + one.again,
            frames_refused: sum.frames_refused + one.frames_refused,
            frames_dropped: sum.frames_dropped,
            system_calls: sum.system_calls + one.system_calls,
        })
    }

    pub fn link_counters(&self) -> LinkCounters {
        self.links.iter().map(|side| side.link.counters()).fold(LinkCounters::default(), |sum, one| LinkCounters {
            packets_sent: sum.packets_sent + one.packets_sent,
            packets_retransmitted: sum.packets_retransmitted + one.packets_retransmitted,
            packets_delivered: sum.packets_delivered + one.packets_delivered,
            packets_landed: sum.packets_landed + one.packets_landed,
            duplicates_dropped: sum.duplicates_dropped + one.duplicates_dropped,
            acks_sent: sum.acks_sent + one.acks_sent,
            trains_broken: sum.trains_broken + one.trains_broken,
            replays_refused: sum.replays_refused + one.replays_refused,
            tags_refused: sum.tags_refused + one.tags_refused,
            malformed_refused: sum.malformed_refused + one.malformed_refused,
        })
    }
}

fn find_or_make(links: &mut Vec<LinkSide>, link_of: &mut [u32], maker: &Maker, rank: Rank) -> Option<u32> {
    let known = link_of[rank.0 as usize];
    if known != NONE {
        return Some(known);
    }
    let peers = maker.peers[rank.0 as usize].clone();
    if peers.is_empty() {
        return None;
    }
    let keys = LinkKeys::derive(key_of(&maker.keys, rank), maker.job, maker.me, rank);
    let link = Link::new(maker.config, keys, clock::now());
    let index = links.len() as u32;
    links.push(LinkSide { link, peers, is_touched: false });
    link_of[rank.0 as usize] = index;
    Some(index)
}

/// Attaching made sure that there is one for every rank.
fn key_of(keys: &[[u8; PAIR_KEY_BYTES]], rank: Rank) -> &[u8] {
    &keys[rank.0 as usize]
}

fn touch(links: &mut [LinkSide], touched: &mut Vec<u32>, index: u32) {
    let side = &mut links[index as usize];
    if !side.is_touched {
        side.is_touched = true;
        touched.push(index);
    }
}

/// Where the links put their frames.
struct RailsOutlet<'a> {
    rails: &'a mut [RailSide],
    peers: &'a [Peer],
}

impl Outlet for RailsOutlet<'_> {
    fn send_run(&mut self, rail: Rail, pieces: &[&[u8]], segment: usize) -> Result<(), Full> {
        let index = usize::from(rail.0);
        let (Some(rail), Some(peer)) = (self.rails.get_mut(index), self.peers.get(index)) else { return Ok(()) };
        if rail.device.is_dead() {
            return Ok(());
        }
        match rail.device.inner_mut().send_run(*peer, pieces, segment) {
            Err(SendError::Again) => Err(Full),
            // Anything else is a loss like any on the way; the link repeats it.
            _ => Ok(()),
        }
    }
}
