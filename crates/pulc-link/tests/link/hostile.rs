//! Frames that no honest peer sends: none may panic, change anything, or pass.

use crate::rig::{JOB_KEY, Rig, config};
use pulc_base::clock::Nanos;
use pulc_base::{JobId, Rank};
use pulc_hal::device::sim::Path;
use pulc_link::{Config, Link, LinkKeys, Rail, Refused, peek};

fn link(config: Config, here: u32, peer: u32) -> Link {
    Link::new(config, LinkKeys::derive(&JOB_KEY, JobId(1), Rank(here), Rank(peer)), Nanos(0))
}

fn frame_of(link: &mut Link, now: Nanos, packet: &[u8]) -> Vec<u8> {
    link.send(now, [packet, b""]).expect("an idle link has room");
    next_frame(link, now).expect("a packet leaves at once")
}

fn next_frame(link: &mut Link, now: Nanos) -> Option<Vec<u8>> {
    let mut out = [0; 1472];
    link.transmit(now, &mut out).map(|(_, len)| out[..len].to_vec())
}

/// A generator without dependencies; the seed is in the message of every assertion.
fn random_bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..len).map(|_| next()).collect()
}

#[test]
fn random_truncated_and_bent_frames_are_refused_and_counted() {
    for encrypt in [false, true] {
        let config = Config { encrypt, ..config(2) };
        let (mut one, mut two) = (link(config, 0, 1), link(config, 1, 0));
        let good = frame_of(&mut one, Nanos(1), b"the only good one");
        let mut tries = 0;
        let mut refuse = |bytes: &[u8], what: &str| {
            let _ = peek(bytes);
            for rail in [0, 1, 7, 255] {
                assert!(two.receive(Nanos(2), Rail(rail), &mut bytes.to_vec()).is_err(), "{what} passed");
                tries += 1;
            }
        };
        for seed in 0..2000 {
            let mut bytes = random_bytes(seed, seed as usize % 300);
            refuse(&bytes, &format!("random frame, seed {seed}"));
            // The same behind a header that looks right.
            let len = bytes.len().min(good.len()).min(16);
            bytes[..len].copy_from_slice(&good[..len]);
            refuse(&bytes, &format!("random frame behind a good start, seed {seed}"));
        }
        (0..good.len()).for_each(|len| refuse(&good[..len], &format!("a prefix of {len} bytes")));
        for bit in 0..good.len() * 8 {
            let mut bent = good.clone();
            bent[bit / 8] ^= 1 << (bit % 8);
            refuse(&bent, &format!("bit {bit} bent"));
        }
        refuse(&[good.as_slice(), b"more"].concat(), "a longer frame");
        let counters = two.counters();
        assert_eq!(counters.tags_refused + counters.malformed_refused + counters.replays_refused, tries);
        assert_eq!(two.receive(Nanos(3), Rail(0), &mut good.clone()), Ok(Some(&b"the only good one"[..])));
        assert_eq!(two.receive(Nanos(3), Rail(0), &mut good.clone()), Err(Refused::Replayed));
    }
}

#[test]
fn the_corpus_of_frames_is_refused_without_a_panic() {
    let mut two = link(config(1), 1, 0);
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus");
    let mut replayed = 0;
    for entry in std::fs::read_dir(corpus).expect("the corpus is part of the crate") {
        let path = entry.expect("readable").path();
        let mut frame = std::fs::read(&path).expect("readable");
        let _ = peek(&frame);
        assert!(two.receive(Nanos(1), Rail(0), &mut frame).is_err(), "{} passed", path.display());
        replayed += 1;
    }
    assert!(replayed >= 8, "only {replayed} files in {corpus}");
}

#[test]
fn frames_of_other_ranks_jobs_directions_and_modes_are_refused() {
    let mut one = link(config(1), 0, 1);
    let frame = frame_of(&mut one, Nanos(1), b"for rank 1");
    assert_eq!(peek(&frame), Some((Rank(0), Rank(1))));
    let receive = |mut link: Link| link.receive(Nanos(2), Rail(0), &mut frame.clone()).map(|_| ());
    assert_eq!(receive(link(config(1), 2, 0)), Err(Refused::NotOurs), "redirected to another rank");
    assert_eq!(receive(link(config(1), 0, 1)), Err(Refused::NotOurs), "reflected");
    let other_job = LinkKeys::derive(&JOB_KEY, JobId(2), Rank(1), Rank(0));
    assert_eq!(receive(Link::new(config(1), other_job, Nanos(0))), Err(Refused::Tag), "of another job");
    assert_eq!(receive(link(Config { encrypt: true, ..config(1) }, 1, 0)), Err(Refused::Tag), "in the clear");
    let mut redirected = frame.clone();
    redirected[8] = 2;
    let mut third = link(config(1), 2, 0);
    assert_eq!(third.receive(Nanos(2), Rail(0), &mut redirected), Err(Refused::Tag), "readdressed");
    assert_eq!(receive(link(config(1), 1, 0)), Ok(()));
}

#[test]
fn every_frame_ever_sent_can_be_replayed_without_effect() {
    let path = Path { loss_permille: 100, ..Path::PERFECT };
    let mut rig = Rig::new(11, path, config(1));
    let (mut one, mut two) = (link(config(1), 0, 1), link(config(1), 1, 0));
    let mut seen: [Vec<Vec<u8>>; 2] = Default::default();
    let mut delivered = Vec::new();
    for round in 0..60u64 {
        let now = Nanos::from_us(round * 100);
        one.send(now, [&round.to_le_bytes(), b""]).expect("room");
        while let Some(frame) = next_frame(&mut one, now) {
            // Every fourth frame is held back by the attacker.
            seen[0].push(frame.clone());
            if round % 4 != 3 {
                if let Ok(Some(packet)) = two.receive(now, Rail(0), &mut frame.clone()) {
                    delivered.push(packet.to_vec());
                }
                while let Some(packet) = two.next_packet() {
                    delivered.push(packet.to_vec());
                }
            }
        }
        while let Some(frame) = next_frame(&mut two, now) {
            seen[1].push(frame.clone());
            let _ = one.receive(now, Rail(0), &mut frame.clone());
        }
        // Everything so far once more, in both directions, oldest last.
        for frame in seen[0].iter().rev() {
            if let Ok(Some(packet)) = two.receive(now, Rail(0), &mut frame.clone()) {
                delivered.push(packet.to_vec());
            }
            while let Some(packet) = two.next_packet() {
                delivered.push(packet.to_vec());
            }
        }
        for frame in seen[1].iter().rev() {
            let before = (one.unacknowledged(), one.deadline());
            assert_eq!(one.receive(now, Rail(0), &mut frame.clone()), Err(Refused::Replayed));
            assert_eq!((one.unacknowledged(), one.deadline()), before, "a replayed acknowledgement did something");
        }
    }
    let numbers: Vec<u64> =
        delivered.iter().map(|packet| u64::from_le_bytes(packet[..8].try_into().unwrap())).collect();
    assert!(numbers.iter().copied().eq(0..numbers.len() as u64), "{numbers:?}");
    assert!(numbers.len() >= 56);
    // And the same under a network that doubles everything.
    rig.net.set_everywhere(Path { duplicate_permille: 1000, ..path });
    (rig.ends[0].to_send, rig.ends[1].to_send) = (500, 500);
    rig.finish();
}

#[test]
fn acknowledging_what_was_never_sent_is_refused() {
    // An authentic peer that breaks the rules: the frames of a link that has received more than this one has sent.
    let (mut one, mut two) = (link(config(1), 0, 1), link(config(1), 1, 0));
    for round in 0..70 {
        let mut frame = frame_of(&mut one, Nanos(round), b"x");
        two.receive(Nanos(round), Rail(0), &mut frame).expect("honest so far");
    }
    let mut acknowledgement = next_frame(&mut two, Nanos::from_ms(1)).expect("an acknowledgement is due");
    let mut innocent = link(config(1), 0, 1);
    let len = acknowledgement.len();
    assert_eq!(innocent.receive(Nanos(1), Rail(0), &mut acknowledgement), Err(Refused::Malformed { len }));
    assert_eq!(innocent.counters().malformed_refused, 1);
}

#[test]
fn who_leaves_acknowledges_before_anybody_has_to_ask() {
    let (mut one, mut two) = (link(config(1), 0, 1), link(config(1), 1, 0));
    assert!(!two.acknowledge_early(), "nothing has arrived");
    let mut last_words = frame_of(&mut one, Nanos(1), b"x");
    two.receive(Nanos(2), Rail(0), &mut last_words).expect("honest");
    assert!(next_frame(&mut two, Nanos(3)).is_none(), "it may ride on an answer");
    assert!(two.acknowledge_early());
    let mut acknowledgement = next_frame(&mut two, Nanos(4)).expect("due now");
    one.receive(Nanos(5), Rail(0), &mut acknowledgement).expect("honest");
    assert_eq!(one.unacknowledged(), 0);
    assert!(!two.acknowledge_early(), "told already");
}

/// A frame of the peer with these flags that says it is so long, made by somebody without the key.
fn forged(flags: u8, said: usize, len: usize) -> Vec<u8> {
    let mut frame = vec![0x77; len];
    frame[..12].copy_from_slice(&[0xB3, flags, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
    frame[16..24].copy_from_slice(&(9 | (said as u64) << 48).to_le_bytes());
    frame
}

#[test]
fn forged_beginnings_and_pieces_of_trains_deliver_nothing_and_hold_little() {
    let config = Config { train_max_bytes: 65_507, ..config(1) };
    let (mut one, mut two) = (link(config, 0, 1), link(config, 1, 0));
    let part = 0x41;
    for round in 0..2000u64 {
        let now = Nanos::from_us(round);
        let said = 2000 + (round as usize * 37) % 63_000;
        let mut beginning = forged(part, said, 1472);
        assert_eq!(two.receive(now, Rail(0), &mut beginning), Ok(None));
        for piece in 0..round % 48 {
            let mut bytes = random_bytes(round * 64 + piece, 1472.min(said));
            let _ = two.receive(now, Rail(0), &mut bytes);
            assert_eq!(two.next_packet(), None);
        }
        assert!(two.memory_bytes() <= 70_000, "{} bytes", two.memory_bytes());
        // The honest peer gets through in between.
        let mut good = frame_of(&mut one, now, &round.to_le_bytes());
        assert_eq!(two.receive(now, Rail(0), &mut good), Ok(Some(&round.to_le_bytes()[..])));
        if let Some(mut answer) = next_frame(&mut two, now) {
            one.receive(now, Rail(0), &mut answer).expect("an honest answer");
        }
    }
    assert!(two.counters().trains_broken > 1000, "{:?}", two.counters());
    assert_eq!(two.counters().packets_delivered, 2000);
    // For another rank, longer than any, or of an impossible shape: nothing is begun.
    for (mut frame, here) in
        [(forged(part, 60_000, 1472), 3), (forged(part, 65_530, 1472), 1), (forged(0x43, 60_000, 1472), 1)]
    {
        let mut stranger = link(config, here, 0);
        assert!(stranger.receive(Nanos(0), Rail(0), &mut frame).is_err());
        assert_eq!(stranger.memory_bytes(), 0);
    }
}

#[test]
fn frames_of_links_forged_and_authentic_are_taken_or_refused() {
    pulc_testkit::replay("link_frames", 3000, pulc_link::fuzz::frames);
}
