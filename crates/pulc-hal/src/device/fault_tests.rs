//! The `fault` device: the conformance suite around other devices, each with the faults that it may have and still conform, and
//! that every fault happens as often as asked for and the same way with the same seed.

use super::fault::{Fault, FaultCounters, FaultPlan};
use super::sim::{Path, Sim, SimNet};
use super::udp::Udp;
use super::{Device, Frame, Peer, PeerFault, SendError, Sink, conformance};
use pulc_base::clock::Nanos;
use std::net::{Ipv4Addr, UdpSocket};

fn sims(net: &SimNet) -> (Sim, Peer, Sim, Peer) {
    let (mut one, mut two) = (net.endpoint(1 << 20), net.endpoint(1 << 20));
    let (to_two, to_one) = (one.open(two.address()), two.open(one.address()));
    (one, to_two, two, to_one)
}

fn conforms(plan: FaultPlan, exclusions: &[conformance::Exclusion]) -> conformance::Report {
    let make = || {
        let net = SimNet::new(plan.seed, Path::PERFECT);
        let (a, b_at_a, b, a_at_b) = sims(&net);
        let (a, b) = (Fault::new(a, plan), Fault::new(b, plan));
        let pass_time = Box::new(move || net.advance_to(net.now() + Nanos::from_us(10)));
        conformance::Rig { a, b, b_at_a, a_at_b, pass_time }
    };
    conformance::run(make, exclusions)
}

#[test]
fn a_harmless_plan_changes_nothing_about_any_device() {
    assert!(conforms(FaultPlan::default(), &[]).excluded.is_empty());
    let make = || {
        let device = || {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback exists");
            Fault::new(Udp::new(socket).expect("a fresh socket is usable"), FaultPlan::default())
        };
        let (mut a, mut b) = (device(), device());
        let (at_a, at_b) = (a.inner().local_address(), b.inner().local_address());
        let (b_at_a, a_at_b) = (a.inner_mut().open(at_b), b.inner_mut().open(at_a));
        conformance::Rig { a, b, b_at_a, a_at_b, pass_time: Box::new(std::thread::yield_now) }
    };
    assert!(conformance::run(make, &[]).excluded.is_empty());
}

#[test]
fn a_device_that_stalls_conforms() {
    let plan = FaultPlan { seed: 3, stall_permille: 100, stall_looks: 20, ..FaultPlan::default() };
    assert!(conforms(plan, &[]).excluded.is_empty());
}

#[test]
fn a_device_that_reorders_conforms_but_for_the_order() {
    let plan = FaultPlan { seed: 4, reorder_permille: 300, ..FaultPlan::default() };
    let order =
        conformance::Exclusion { check: "frames_arrive_once_and_in_order", reason: "reordering is what it is for" };
    assert_eq!(conforms(plan, &[order]).excluded.len(), 1);
}

#[derive(Default)]
struct Taken(Vec<Vec<u8>>);

impl Sink for Taken {
    fn frame(&mut self, _from: Peer, frame: Frame<'_>) {
        if let Frame::Private(bytes) = frame {
            self.0.push(bytes.to_vec());
        }
    }

    fn peer_failed(&mut self, _from: Peer, _why: PeerFault) {}
}

/// What arrives of numbered frames.
fn deliver(plan: FaultPlan, frames: u32) -> (Vec<Vec<u8>>, FaultCounters) {
    let net = SimNet::new(9, Path::PERFECT);
    let (mut one, to_two, two, _) = sims(&net);
    let mut two = Fault::new(two, plan);
    let mut taken = Taken::default();
    for number in 0..frames {
        one.send_short(to_two, [&number.to_le_bytes(), &[0; 60]]).expect("the network has room");
        net.advance_to(net.now() + Nanos::from_us(10));
        two.poll(&mut taken, 8);
    }
    for _ in 0..10_000 {
        net.advance_to(net.now() + Nanos::from_us(10));
        two.poll(&mut taken, 8);
    }
    (taken.0, two.faults())
}

#[test]
fn every_fault_happens_about_as_often_as_asked_for_and_alike_with_the_same_seed() {
    let plan = FaultPlan {
        seed: 5,
        drop_permille: 100,
        duplicate_permille: 100,
        reorder_permille: 100,
        corrupt_permille: 100,
        stall_permille: 50,
        stall_looks: 7,
        die_after_frames: 0,
    };
    let (came, faults) = deliver(plan, 4000);
    for (what, count) in [
        ("dropped", faults.dropped),
        ("duplicated", faults.duplicated),
        ("reordered", faults.reordered),
        ("corrupted", faults.corrupted),
    ] {
        assert!((200..600).contains(&count), "{count} of 4000 {what} at 100 of a thousand");
    }
    assert!(faults.stalls > 10);
    assert_eq!(came.len() as u64, 4000 - faults.dropped + faults.duplicated, "nothing else is lost or made");
    assert!(deliver(plan, 4000) == (came, faults), "the same seed is the same run");
    assert!(deliver(FaultPlan { seed: 6, ..plan }, 4000).1 != faults, "another seed is another run");
}

#[test]
fn a_device_that_died_neither_delivers_nor_sends() {
    let (came, _) = deliver(FaultPlan { die_after_frames: 10, ..FaultPlan::default() }, 100);
    assert_eq!(came.len(), 10);
    let net = SimNet::new(9, Path::PERFECT);
    let (mut one, to_two, two, to_one) = sims(&net);
    let mut two = Fault::new(two, FaultPlan { die_after_frames: 1, ..FaultPlan::default() });
    one.send_short(to_two, [b"last", b""]).expect("the network has room");
    net.advance_to(net.now() + Nanos::from_us(50));
    assert_eq!(two.poll(&mut Taken::default(), 8), 1);
    assert!(two.is_dead());
    assert_eq!(two.send_short(to_one, [b"unheard", b""]), Ok::<(), SendError>(()));
    net.advance_to(net.now() + Nanos::from_us(50));
    assert_eq!(one.poll(&mut Taken::default(), 8), 0);
}
