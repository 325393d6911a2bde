//! The way to ranks of other nodes: one reliable link per rank over all rails. Called by the engine's progress and sends;
//! never blocks. The links know no sockets and the sockets no links; this file joins them.

use crate::dispatch::Floor;
use crate::engine::Tally;
use crate::error::Error;
use crate::switch::Hand;
use pulc_base::boot::Boot;
use pulc_base::clock::{self, Nanos};
use pulc_base::metrics::{DeviceCounters, LinkCounters};
use pulc_base::{NodeIndex, Rank};
use pulc_hal::device::fault::{Fault, FaultPlan};
use pulc_hal::device::net::NetDevice;
use pulc_hal::device::{Device, Frame, Peer, PeerFault, SendError, Sink};
use pulc_link::{Config, Full, Link, LinkError, LinkKeys, Outlet, Rail};
use std::os::fd::{BorrowedFd, OwnedFd};

/// Polls of the other devices between two looks at the sockets: looking costs a system call.
const POLLS_BETWEEN_LOOKS: u32 = 16;
/// Frames taken from a socket in one go.
const POLL_BUDGET: usize = 256;

/// Frames seen before that pass without a warning.
const REPLAYS_WITHOUT_WORD: u64 = 4096;

const NONE: u32 = u32::MAX;

pub(crate) struct Net {
    pub tally: Tally,
    rails: Vec<RailSide>,
    links: Vec<LinkSide>,
    /// By rank: index of its link, if it has one yet.
    link_of: Vec<u32>,
    maker: Maker,
    polls: u32,
    /// Frames refused by links, and how many refused ones make the next warning.
    refused: u64,
    warn_at: u64,
    /// The earliest deadline of any link.
    deadline: Option<Nanos>,
}

/// A socket and who is behind its peers.
struct RailSide {
    device: Fault<NetDevice>,
    /// By [`Peer`].
    rank_of: Vec<Rank>,
}

struct LinkSide {
    link: Link,
    /// By rail.
    peers: Vec<Peer>,
    /// Something may be due for transmission.
    touched: bool,
}

/// What is needed to make a link.
struct Maker {
    me: Rank,
    job: pulc_base::JobId,
    key: [u8; 32],
    config: Config,
    /// By rank, then by rail; empty for ranks of this node.
    peers: Vec<Vec<Peer>>,
}

impl Net {
    pub fn new(boot: &Boot, me: Rank, node: NodeIndex, sockets: Vec<OwnedFd>) -> Result<Net, Error> {
        let mut rails = Vec::new();
        for socket in sockets {
            let device =
                NetDevice::new(socket).map_err(|source| Error::System { doing: "take over a socket", source })?;
            rails.push(RailSide { device: Fault::new(device, FaultPlan::read(rails.len())), rank_of: Vec::new() });
        }
        let mut peers = vec![Vec::new(); boot.tasks.len()];
        let mut remote = 0;
        for (rank, task) in (0..).map(Rank).zip(&boot.tasks) {
            if task.node == node.0 {
                continue;
            }
            remote += 1;
            let [to_peer, from_peer] = LinkKeys::derive(&boot.key, boot.job, me, rank).stream_tokens();
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
        let config = Config::from_params(frame_max, rails.len() as u8, window);
        let maker = Maker { me, job: boot.job, key: boot.key, config, peers };
        let link_of = vec![NONE; boot.tasks.len()];
        Ok(Net {
            tally: Tally::default(),
            rails,
            links: Vec::new(),
            link_of,
            maker,
            polls: 0,
            refused: 0,
            warn_at: 1,
            deadline: None,
        })
    }

    /// The link to a rank of another node, made now if there is none.
    pub fn link_to(&mut self, rank: Rank) -> Option<u32> {
        find_or_make(&mut self.links, &mut self.link_of, &self.maker, rank)
    }

    /// Longest packet that every link takes.
    pub fn packet_min(&self) -> usize {
        self.maker.config.packet_max()
    }

    pub fn packet_max(&self, link: u32) -> usize {
        self.links[link as usize].link.packet_max()
    }

    /// Gives a packet to the link. It leaves with the next [`Net::push`] or progress.
    pub fn send(&mut self, link: u32, parts: [&[u8]; 2]) -> Result<(), SendError> {
        let side = &mut self.links[link as usize];
        side.touched = true;
        match side.link.send(clock::now(), parts) {
            Ok(()) => Ok(()),
            Err(LinkError::Again) => Err(SendError::Again),
            Err(LinkError::TooLong { len, max }) => Err(SendError::TooLong { len, max }),
            Err(_) => Err(SendError::PeerGone),
        }
    }

    /// Puts on the wire what the links have ready.
    pub fn push(&mut self) {
        self.transmit(clock::now());
    }

    /// The next progress looks at the sockets in any case.
    pub fn look_next(&mut self) {
        self.polls = POLLS_BETWEEN_LOOKS;
    }

    /// Takes frames, delivers packets, lets timers act, transmits. Returns packets delivered.
    pub fn progress(&mut self, floor: &mut Floor, hand: &mut Hand<'_>) -> usize {
        self.polls += 1;
        if self.polls < POLLS_BETWEEN_LOOKS {
            return 0;
        }
        self.polls = 0;
        let now = clock::now();
        let Net { rails, links, link_of, maker, tally, .. } = self;
        let mut sink = NetSink {
            floor,
            hand,
            links,
            link_of,
            maker,
            tally,
            now,
            rail: Rail(0),
            rank_of: &[],
            packets: 0,
            refused: 0,
        };
        let mut frames = 0;
        for (index, rail) in rails.iter_mut().enumerate() {
            sink.rail = Rail(index as u8);
            sink.rank_of = &rail.rank_of;
            frames += rail.device.poll(&mut sink, POLL_BUDGET);
        }
        let packets = sink.packets;
        self.refused += sink.refused;
        self.warn_of_refusals();
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            for side in &mut self.links {
                if side.link.deadline().is_some_and(|deadline| deadline <= now) {
                    side.link.tick(now);
                    side.touched = true;
                }
            }
        }
        self.transmit(now);
        if frames > 0 {
            self.look_next();
        }
        packets
    }

    /// Says so when somebody sends what is not ours: at the first frame, and whenever there are sixteen times as many. Frames
    /// that come twice are any network's right; very many of them are not.
    fn warn_of_refusals(&mut self) {
        let strangers: u64 = self.rails.iter().map(|rail| rail.device.counters().frames_refused).sum();
        if strangers + self.refused < self.warn_at {
            return;
        }
        let links = self.link_counters();
        let (replays, tags, malformed) = (links.replays_refused, links.tags_refused, links.malformed_refused);
        let refused = strangers + tags + malformed + replays;
        if strangers + tags + malformed >= self.warn_at || replays >= self.warn_at.max(REPLAYS_WITHOUT_WORD) {
            self.warn_at = refused.saturating_mul(16);
            pulc_base::log!(
                Warn,
                "handler",
                "rank {}: {refused} frames from the network refused so far ({strangers} of unknown senders, {tags} with a \
                 wrong tag, {malformed} malformed or for others, {replays} seen before); nothing of them was delivered",
                self.maker.me
            );
        }
    }

    fn transmit(&mut self, now: Nanos) {
        let Net { rails, links, deadline, .. } = self;
        let mut changed = false;
        for side in links.iter_mut().filter(|side| side.touched) {
            side.link.transmit_runs(now, &mut RailsOutlet { rails, peers: &side.peers });
            side.touched = false;
            changed = true;
        }
        // A link whose deadline has passed stays in the minimum until its tick moves it.
        if changed || deadline.is_some_and(|deadline| deadline <= now) {
            *deadline = links.iter().filter_map(|side| side.link.deadline()).min();
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

    pub fn deadline(&self) -> Option<Nanos> {
        self.deadline
    }

    pub fn all_acknowledged(&self) -> bool {
        self.links.iter().all(|side| side.link.unacknowledged() == 0)
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
        let refused = DeviceCounters { frames_refused: self.refused, ..DeviceCounters::default() };
        self.rails.iter().map(|rail| rail.device.counters()).fold(refused, |sum, one| DeviceCounters {
            frames_sent: sum.frames_sent + one.frames_sent,
            frames_received: sum.frames_received + one.frames_received,
            bytes_sent: sum.bytes_sent + one.bytes_sent,
            bytes_received: sum.bytes_received + one.bytes_received,
            again: sum.again + one.again,
            frames_refused: sum.frames_refused + one.frames_refused,
            system_calls: sum.system_calls + one.system_calls,
        })
    }

    pub fn link_counters(&self) -> LinkCounters {
        self.links.iter().map(|side| side.link.counters()).fold(LinkCounters::default(), |sum, one| LinkCounters {
            packets_sent: sum.packets_sent + one.packets_sent,
            packets_retransmitted: sum.packets_retransmitted + one.packets_retransmitted,
            packets_delivered: sum.packets_delivered + one.packets_delivered,
            duplicates_dropped: sum.duplicates_dropped + one.duplicates_dropped,
            acks_sent: sum.acks_sent + one.acks_sent,
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
    let keys = LinkKeys::derive(&maker.key, maker.job, maker.me, rank);
    let link = Link::new(maker.config, keys, clock::now());
    let index = links.len() as u32;
    links.push(LinkSide { link, peers, touched: true });
    link_of[rank.0 as usize] = index;
    Some(index)
}

/// Where the sockets put their frames.
struct NetSink<'a, 'h> {
    floor: &'a mut Floor,
    hand: &'a mut Hand<'h>,
    links: &'a mut Vec<LinkSide>,
    link_of: &'a mut [u32],
    maker: &'a Maker,
    tally: &'a mut Tally,
    now: Nanos,
    rail: Rail,
    rank_of: &'a [Rank],
    packets: usize,
    refused: u64,
}

impl Sink for NetSink<'_, '_> {
    fn frame(&mut self, from: Peer, frame: Frame<'_>) {
        let Frame::Private(bytes) = frame else { return };
        let Some(&rank) = self.rank_of.get(from.0 as usize) else { return };
        if self.floor.peers[rank.0 as usize].end().is_some() {
            return;
        }
        let Some(index) = find_or_make(self.links, self.link_of, self.maker, rank) else { return };
        let side = &mut self.links[index as usize];
        side.touched = true;
        match side.link.receive(self.now, self.rail, bytes) {
            Ok(Some(packet)) => {
                self.tally.messages_received += 1;
                self.tally.bytes_received += self.floor.private(rank, packet, self.hand) as u64;
                self.packets += 1;
            }
            Ok(None) => {}
            // It has been counted by the link and changed nothing.
            Err(_) => self.refused += 1,
        }
        while let Some(packet) = side.link.next_packet() {
            self.tally.messages_received += 1;
            self.tally.bytes_received += self.floor.private(rank, packet, self.hand) as u64;
            self.packets += 1;
        }
    }

    fn peer_failed(&mut self, from: Peer, why: PeerFault) {
        // One rail's trouble with one address is no end of a rank: the link goes on over time or other rails.
        if let Some(rank) = self.rank_of.get(from.0 as usize) {
            let rail = self.rail.0;
            pulc_base::log!(Info, "handler", "rail {rail} to or from rank {rank}: {why}; it is tried again");
        }
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
