//! The link over real sockets on loopback: the same promises, with the kernel as the network.

use pulc_base::clock::{Nanos, now};
use pulc_base::{JobId, Rank};
use pulc_hal::device::udp::Udp;
use pulc_hal::device::{Device, Frame, Peer, PeerFault, SendError, Sink};
use pulc_link::{Config, Full, Link, LinkKeys, Outlet, Rail, credit_share};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

/// Only against hanging for ever.
const HANG: Nanos = Nanos::from_ms(60_000);

struct End {
    udp: Udp,
    peer: Peer,
    taken: Taken,
}

struct Taken {
    link: Link,
    next: u64,
    bytes: u64,
    now: Nanos,
}

struct ToUdp<'a>(&'a mut Udp, Peer);

impl Outlet for ToUdp<'_> {
    fn send_run(&mut self, _rail: Rail, pieces: &[&[u8]], segment: usize) -> Result<(), Full> {
        match self.0.send_run(self.1, pieces, segment) {
            Ok(()) => Ok(()),
            Err(SendError::Again) => Err(Full),
            Err(other) => panic!("{other}"),
        }
    }
}

impl Sink for Taken {
    fn frame(&mut self, _from: Peer, frame: Frame<'_>) {
        let Frame::Private(bytes) = frame else { panic!("udp hands over private frames") };
        let (next, total) = (&mut self.next, &mut self.bytes);
        let mut check = |packet: &[u8]| {
            let fill = packet_of(*next, packet.len());
            assert!(packet == fill, "packet {next} came changed or out of order");
            *next += 1;
            *total += packet.len() as u64;
        };
        if let Ok(Some(packet)) = self.link.receive(self.now, Rail(0), bytes) {
            check(packet);
        }
        while let Some(packet) = self.link.next_packet() {
            check(packet);
        }
    }

    fn peer_failed(&mut self, _from: Peer, why: PeerFault) {
        panic!("{why}");
    }
}

fn packet_of(number: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number as usize * 31 + at) as u8).collect()
}

fn pair(loopback: IpAddr, encrypt: bool) -> [End; 2] {
    let mut udps = [0, 1]
        .map(|_| Udp::new(UdpSocket::bind((loopback, 0)).expect("loopback exists")).expect("a fresh socket is usable"));
    let addresses = [udps[0].local_address(), udps[1].local_address()];
    let peers = [udps[0].open(addresses[1]), udps[1].open(addresses[0])];
    let mut side = 0;
    udps.map(|udp| {
        let peer = peers[side as usize];
        let window = credit_share(udp.receive_buffer_bytes(), 1, udp.frame_max(peer));
        let config = Config { encrypt, ..Config::from_params(udp.frame_max(peer), 1, window) };
        let keys = LinkKeys::derive(&[3; 32], JobId(3), Rank(side), Rank(1 - side));
        side += 1;
        End { udp, peer, taken: Taken { link: Link::new(config, keys, now()), next: 0, bytes: 0, now: now() } }
    })
}

impl End {
    fn work(&mut self) {
        self.taken.now = now();
        self.udp.poll(&mut self.taken, 256);
        self.taken.link.transmit_runs(now(), &mut ToUdp(&mut self.udp, self.peer));
    }
}

#[test]
fn megabytes_in_both_directions_arrive_as_sent_over_real_sockets() {
    both_directions(Ipv4Addr::LOCALHOST.into());
}

#[test]
fn ipv6_carries_the_same() {
    if UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
        return pulc_testkit::skipped("ipv6_carries_the_same", "this machine has no ::1");
    }
    both_directions(Ipv6Addr::LOCALHOST.into());
}

fn both_directions(loopback: IpAddr) {
    for encrypt in [false, true] {
        let mut ends = pair(loopback, encrypt);
        let start = now();
        let (packets, mut sent) = (4000, [0u64; 2]);
        while ends.iter().any(|end| end.taken.next < packets || end.taken.link.unacknowledged() > 0) {
            for (end, sent) in ends.iter_mut().zip(&mut sent) {
                let max = end.taken.link.packet_max();
                while *sent < packets {
                    let len = [max, 8, max, 1000, 1][*sent as usize % 5];
                    if end.taken.link.send(now(), [&packet_of(*sent, len), &[]]).is_err() {
                        break;
                    }
                    *sent += 1;
                }
                end.work();
            }
            assert!(now().since(start) < HANG, "stuck: {:?}", ends.map(|end| end.taken.link.counters()));
        }
        assert!(ends.iter().all(|end| end.taken.bytes > 10 << 20));
    }
}

#[test]
fn frames_of_a_stranger_who_spoofs_the_ranks_are_refused() {
    let mut ends = pair(Ipv4Addr::LOCALHOST.into(), false);
    let address = ends[1].udp.local_address();
    // A link of the right ranks and the wrong key, behind the address that the receiver expects.
    let keys = LinkKeys::derive(&[4; 32], JobId(3), Rank(0), Rank(1));
    let mut forger = Link::new(Config::from_params(1472, 1, 100_000), keys, now());
    forger.send(now(), [b"forged", b""]).expect("room");
    let to = ends[0].udp.open(address);
    forger.transmit_runs(now(), &mut ToUdp(&mut ends[0].udp, to));
    let start = now();
    while ends[1].taken.link.counters().tags_refused == 0 {
        ends[1].work();
        assert!(now().since(start) < HANG);
    }
    assert_eq!((ends[1].taken.next, ends[1].taken.link.deadline()), (0, None), "nothing was believed");
}
