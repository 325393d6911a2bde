//! Many links over one narrow line: each gets its share, and the line is used and not flooded. Virtual time, seeded.

use crate::rig::JOB_KEY;
use crate::seeds::each_seed;
use pulc_base::clock::Nanos;
use pulc_base::{JobId, Rank};
use pulc_hal::device::sim::{Path, Sim, SimNet};
use pulc_hal::device::{Device, Frame, Peer, PeerFault, Sink};
use pulc_link::{Config, Full, Link, LinkKeys, Outlet, Rail, credit_share};

const FLOWS: usize = 16;
const FRAME_MAX: usize = 1472;
/// 10 Gbit/s.
const BYTES_PER_US: u64 = 1250;

/// One end: an endpoint and links to one or more peers over it.
struct Host {
    sim: Sim,
    /// By [`Peer`].
    links: Vec<Link>,
    received_bytes: Vec<u64>,
    /// Sends as much as it may.
    is_source: bool,
}

struct Frames(Vec<(Peer, Vec<u8>)>);

impl Sink for Frames {
    fn frame(&mut self, from: Peer, frame: Frame<'_>) {
        if let Frame::Private(bytes) = frame {
            self.0.push((from, bytes.to_vec()));
        }
    }

    fn peer_failed(&mut self, from: Peer, why: PeerFault) {
        panic!("the simulated device gave {from:?} up: {why}");
    }
}

struct To<'a>(&'a mut Sim, Peer);

impl Outlet for To<'_> {
    fn send_run(&mut self, _rail: Rail, pieces: &[&[u8]], segment: usize) -> Result<(), Full> {
        for frame in pieces.iter().flat_map(|piece| piece.chunks(segment)) {
            self.0.send_short(self.1, [frame, &[]]).map_err(|_| Full)?;
        }
        Ok(())
    }
}

impl Host {
    fn new(net: &SimNet, is_source: bool) -> Host {
        Host { sim: net.endpoint(1 << 20), links: Vec::new(), received_bytes: Vec::new(), is_source }
    }

    fn add_link(&mut self, here: u32, peer: u32, address: u32, window_bytes: u32) {
        let at = self.sim.open(address);
        assert_eq!(at.0 as usize, self.links.len());
        let config = Config {
            frame_max: FRAME_MAX,
            rails: 1,
            window_bytes,
            first_window_bytes: window_bytes,
            retention_max_bytes: 1 << 20,
            encrypt: false,
            train_max_bytes: 0,
        };
        let keys = LinkKeys::derive(&JOB_KEY, JobId(1), Rank(here), Rank(peer));
        self.links.push(Link::new(config, keys, Nanos(0)));
        self.received_bytes.push(0);
    }

    fn work(&mut self, now: Nanos) {
        let mut frames = Frames(Vec::new());
        self.sim.poll(&mut frames, usize::MAX);
        for (from, mut frame) in frames.0 {
            let index = from.0 as usize;
            let (link, received) = (&mut self.links[index], &mut self.received_bytes[index]);
            if let Ok(Some(packet)) = link.receive(now, Rail(0), &mut frame) {
                *received += packet.len() as u64;
            }
            while let Some(packet) = link.next_packet() {
                *received += packet.len() as u64;
            }
        }
        for (index, link) in self.links.iter_mut().enumerate() {
            let packet = [7; FRAME_MAX - pulc_link::OVERHEAD];
            while self.is_source && link.send(now, [&packet, &[]]).is_ok() {}
            link.transmit_runs(now, &mut To(&mut self.sim, Peer(index as u32)));
        }
    }

    fn deadline(&self) -> Option<Nanos> {
        self.links.iter().filter_map(Link::deadline).min()
    }
}

/// Lets all hosts work until then; each one begins when its time has come.
fn run(net: &SimNet, hosts: &mut [Host], begins: &[Nanos], until: Nanos) {
    while net.now() < until {
        let now = net.now();
        let up = |index: usize| begins.get(index).is_none_or(|begin| *begin <= now);
        for (index, host) in hosts.iter_mut().enumerate().filter(|(index, _)| up(*index)) {
            host.work(now);
            assert_ne!(host.deadline(), Some(Nanos(0)), "host {index} is due at once right after everything was sent");
        }
        let wakes = hosts.iter().enumerate().filter(|(index, _)| up(*index)).filter_map(|(_, host)| host.deadline());
        let begins = begins.iter().copied().filter(|begin| *begin > now);
        let next = wakes.chain(begins).chain(net.next_arrival()).min().unwrap_or(until);
        net.advance_to(next.max(now + Nanos(1)).min(until));
    }
}

/// 1: all alike; one over their number: one has everything.
fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    sum * sum / (shares.len() as f64 * shares.iter().map(|share| share * share).sum::<f64>())
}

fn received(hosts: &[Host]) -> Vec<u64> {
    hosts.iter().flat_map(|host| host.received_bytes.iter().copied()).collect()
}

/// What arrived between two looks, as shares of the line.
fn shares(before: &[u64], after: &[u64], during: Nanos) -> Vec<f64> {
    let line = (during.0 / 1000 * BYTES_PER_US) as f64;
    before.iter().zip(after).map(|(before, after)| (after - before) as f64 / line).collect()
}

/// Sixteen pairs of hosts over one line between two switches, begun one after the other, so that the last ones find it full.
#[test]
fn sixteen_flows_over_one_line_get_equal_shares_and_use_it() {
    // A queue too short for delays to tell of anything before it overflows, and one as long as nothing is lost.
    for (queue_max_bytes, repeated_percent) in [(8 << 20, 1), (256 << 10, 25)] {
        each_seed(2, |seed, _| {
            let path = Path { delay: Nanos::from_us(25), jitter: Nanos(500), ..Path::PERFECT };
            let net = SimNet::new(seed, path);
            let mut sources: Vec<Host> = (0..FLOWS).map(|_| Host::new(&net, true)).collect();
            let mut drains: Vec<Host> = (0..FLOWS).map(|_| Host::new(&net, false)).collect();
            let window = 2 << 20;
            for (flow, (source, drain)) in sources.iter_mut().zip(&mut drains).enumerate() {
                let (here, there) = (flow as u32, (flow + FLOWS) as u32);
                source.add_link(here, there, drain.sim.address(), window);
                drain.add_link(there, here, source.sim.address(), window);
            }
            let line: Vec<u32> = drains.iter().map(|drain| drain.sim.address()).collect();
            net.add_bottleneck(&line, BYTES_PER_US, queue_max_bytes);
            let begins: Vec<Nanos> = (0..FLOWS as u64).map(|flow| Nanos::from_us(500 * flow)).collect();
            let mut hosts: Vec<Host> = sources.into_iter().chain(drains).collect();
            let (settled, end) = (Nanos::from_ms(100), Nanos::from_ms(200));
            run(&net, &mut hosts, &begins, settled);
            let before = received(&hosts[FLOWS..]);
            run(&net, &mut hosts, &begins, end);
            let shares = shares(&before, &received(&hosts[FLOWS..]), end - settled);
            let (fair, used) = (jain(&shares), shares.iter().sum::<f64>());
            let counters = hosts[..FLOWS].iter().map(|host| host.links[0].counters());
            let (sent, repeated) =
                counters.fold((0, 0), |sum, one| (sum.0 + one.packets_sent, sum.1 + one.packets_retransmitted));
            println!(
                "queue {queue_max_bytes}, seed {seed}: Jain {fair:.3}, line {used:.2}, {repeated} of {sent} repeated"
            );
            assert!(fair >= 0.9, "Jain's index {fair:.3}: {shares:.3?}");
            assert!(used >= 0.8, "{used:.2} of the line used");
            assert!(repeated * 100 <= sent * repeated_percent, "{repeated} of {sent} packets repeated");
        });
    }
}

/// Sixteen hosts send to one at once, whose switch port holds little.
#[test]
fn sixteen_to_one_do_not_collapse() {
    for queue_max_bytes in [128 << 10, 1 << 20] {
        each_seed(2, |seed, _| {
            let path = Path { delay: Nanos::from_us(25), ..Path::PERFECT };
            let net = SimNet::new(seed, path);
            let mut drain = Host::new(&net, false);
            let mut hosts: Vec<Host> = (0..FLOWS).map(|_| Host::new(&net, true)).collect();
            // The receiver's kernel holds 2 MiB and counts double, as the socket would say.
            let window = credit_share(4 << 20, FLOWS, FRAME_MAX);
            for (flow, host) in hosts.iter_mut().enumerate() {
                let (here, there) = (flow as u32 + 1, 0);
                host.add_link(here, there, drain.sim.address(), window);
                drain.add_link(there, here, host.sim.address(), window);
            }
            net.add_bottleneck(&[drain.sim.address()], BYTES_PER_US, queue_max_bytes);
            hosts.push(drain);
            let end = Nanos::from_ms(100);
            run(&net, &mut hosts, &[], end);
            let shares = shares(&[0; FLOWS], &hosts[FLOWS].received_bytes, end);
            let (fair, used) = (jain(&shares), shares.iter().sum::<f64>());
            println!("queue {queue_max_bytes}, seed {seed}: Jain {fair:.3}, line {used:.2}");
            assert!(used >= 0.7, "{used:.2} of the line used: {shares:.3?}");
            assert!(fair >= 0.8, "Jain's index {fair:.3}: {shares:.3?}");
            assert_eq!(net.counters().overflowed, 0, "windows keep within what the receiver's kernel holds");
        });
    }
}
