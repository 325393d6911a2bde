//! A peer that does not poll is not dead: nothing is lost, nothing is flooded, nothing gives up.

use crate::rig::{Rig, config};
use pulc_base::clock::Nanos;
use pulc_hal::device::sim::Path;
use pulc_link::{Full, LinkError, Outlet, Rail};

const HOUR: Nanos = Nanos::from_ms(3_600_000);

#[test]
fn a_peer_that_computes_for_an_hour_gets_everything_afterwards() {
    let mut rig = Rig::new(5, Path::PERFECT, config(1));
    rig.ends[0].to_send = 50;
    rig.finish();
    rig.ends[0].to_send = 1000;
    rig.ends[1].paused_until = rig.net.now() + HOUR;
    let before = rig.ends[0].frames_out;
    rig.run_until(rig.ends[1].paused_until);
    let (queued_frames, queued_bytes) = rig.ends[1].sims[0].waiting();
    assert!(queued_bytes <= config(1).window_bytes as usize, "{queued_bytes} bytes in {queued_frames} frames wait");
    let probes = rig.ends[0].frames_out - before - queued_frames.min(100) as u64;
    assert!(probes < 600, "{probes} probes in an hour");
    assert_eq!(rig.ends[0].link.counters().packets_retransmitted, 0, "nothing was lost, nothing is repeated");
    assert!(rig.finish() < Nanos::from_ms(50));
    assert_eq!(rig.net.counters().overflowed, 0);
}

#[test]
fn what_is_under_way_never_exceeds_the_window_of_a_peer_that_does_not_poll() {
    for window_bytes in [2_240, 5_000, 50_000, 200_000] {
        let config = pulc_link::Config { window_bytes, first_window_bytes: window_bytes, ..config(1) };
        let mut rig = Rig::new(u64::from(window_bytes), Path::PERFECT, config);
        rig.ends[0].to_send = 2000;
        rig.ends[1].paused_until = Nanos::from_ms(1000);
        rig.run_until(Nanos::from_ms(999));
        let (frames, bytes) = rig.ends[1].sims[0].waiting();
        let probes = 40;
        assert!(
            bytes + frames.saturating_sub(probes) * 768 <= window_bytes as usize + probes * 64,
            "{bytes} in {frames}"
        );
        assert!(frames > 0);
        rig.finish();
    }
}

/// Two processes on one core, in slices of 4 ms: every answer comes 4 ms late, and no queue of the network is to blame.
#[test]
fn processes_that_take_turns_keep_their_windows() {
    let packets_in_fifty_turns = |tells: bool| {
        let config = pulc_link::Config {
            window_bytes: 1 << 20,
            first_window_bytes: 1 << 20,
            retention_max_bytes: 2 << 20,
            ..config(1)
        };
        let mut rig = Rig::new(13, Path::PERFECT, config);
        if !tells {
            rig.ends.iter_mut().for_each(|end| end.looked = None);
        }
        rig.ends[0].to_send = u64::MAX;
        let begin = Nanos::from_ms(4);
        rig.run_until(begin);
        let before = rig.ends[1].received;
        for slice in 0..100 {
            let until = begin + Nanos::from_ms(4 * (slice + 1));
            rig.ends[slice as usize % 2].paused_until = until;
            rig.run_until(until);
        }
        rig.ends[1].received - before
    };
    let (told, not_told) = (packets_in_fifty_turns(true), packets_in_fifty_turns(false));
    assert!(told > 2 * not_told, "{told} packets arrived, {not_told} when the pauses were taken for a queue");
    // Every turn moves what the window had grown to before.
    assert!(told > 50 * 150, "{told} packets arrived in 50 turns");
}

#[test]
fn a_full_link_pushes_back_and_goes_on() {
    let mut rig = Rig::new(6, Path::PERFECT, config(1));
    rig.ends[1].paused_until = Nanos::from_ms(10);
    let mut taken = 0;
    loop {
        match rig.ends[0].link.send(Nanos(0), [&[0; 1000], &[]]) {
            Ok(()) => taken += 1,
            Err(LinkError::Again) => break,
            Err(other) => panic!("{other}"),
        }
    }
    assert!((100..=262).contains(&taken), "{taken} packets of 1000 bytes in 256 KiB");
    assert_eq!(rig.ends[0].link.send(Nanos(0), [&[0; 1472], &[]]), Err(LinkError::TooLong { len: 1472, max: 1408 }));
    assert_eq!(rig.ends[0].link.unacknowledged(), taken);
}

/// An outlet that takes so many runs and no more.
struct Narrow(usize);

impl Outlet for Narrow {
    fn send_run(&mut self, _rail: Rail, _pieces: &[&[u8]], _segment: usize) -> Result<(), Full> {
        self.0 = self.0.checked_sub(1).ok_or(Full)?;
        Ok(())
    }
}

#[test]
fn what_a_full_device_refused_is_offered_again_soon_and_nothing_is_skipped() {
    let mut rig = Rig::new(12, Path::PERFECT, config(1));
    let link = &mut rig.ends[0].link;
    for len in [100, 200, 300] {
        link.send(Nanos(0), [&vec![0; len], &[]]).expect("room");
    }
    // Growing frames share no run: three runs.
    assert_eq!(link.transmit_runs(Nanos(0), &mut Narrow(1)), 1);
    let retry = link.deadline().expect("the rest wants to be offered again");
    assert!(retry > Nanos(0) && retry < Nanos::from_ms(1), "{retry:?}");
    assert_eq!(link.transmit_runs(retry, &mut Narrow(5)), 2);
    assert_eq!(link.transmit_runs(retry, &mut Narrow(5)), 0);
    assert!(link.deadline().expect("three packets are under way") > Nanos::from_ms(1));
}

#[test]
fn a_closed_link_is_silent_and_holds_nothing() {
    let mut rig = Rig::new(7, Path::PERFECT, config(1));
    rig.ends[0].to_send = 100;
    rig.ends[1].paused_until = HOUR;
    rig.run_until(Nanos::from_ms(1));
    let link = &mut rig.ends[0].link;
    link.close();
    assert_eq!(link.send(Nanos(0), [b"x", b""]), Err(LinkError::Dead));
    assert_eq!((link.deadline(), link.unacknowledged(), link.memory_bytes()), (None, 0, 0));
    assert_eq!(link.transmit(HOUR, &mut [0; 1472]), None);
}

#[test]
fn a_window_that_was_shut_opens_again_even_if_the_news_is_lost() {
    let config = pulc_link::Config { window_bytes: 0, ..config(1) };
    let mut rig = Rig::new(8, Path::PERFECT, config);
    rig.ends[0].to_send = 500;
    rig.run_until(Nanos::from_ms(100));
    let stuck = rig.ends[1].received;
    assert!(stuck < 500, "the window is shut after the first flight");
    rig.run_until(Nanos::from_ms(200));
    assert_eq!(rig.ends[1].received, stuck);
    rig.net.set_everywhere(Path { dead: true, ..Path::PERFECT });
    let now = rig.net.now();
    rig.ends[1].link.set_window(now, 100_000);
    rig.run_until(Nanos::from_ms(300));
    rig.net.set_everywhere(Path::PERFECT);
    assert!(rig.finish() < Nanos::from_ms(1500));
}

#[test]
fn an_idle_link_wants_no_timer_and_holds_no_memory() {
    let mut rig = Rig::new(10, Path::PERFECT, config(1));
    (rig.ends[0].to_send, rig.ends[1].to_send) = (3000, 3000);
    rig.finish();
    rig.run_until(rig.net.now() + Nanos::from_ms(50));
    for end in &rig.ends {
        assert_eq!((end.link.deadline(), end.link.memory_bytes()), (None, 0));
    }
}

/// Where a flood takes most of the room, hardly a frame gets through, in either direction.
#[test]
fn where_nine_of_ten_frames_are_lost_messages_get_through_all_the_same() {
    for besieged in [[true, true], [true, false]] {
        let mut rig = Rig::new(9, Path { loss_permille: 900, ..Path::PERFECT }, config(1));
        for message in 1..=20 {
            let end = message as usize % 2;
            rig.ends[end].to_send += 1;
            let until = rig.net.now() + Nanos::from_ms(60_000);
            while !rig.is_done() && rig.net.now() < until {
                let now = rig.net.now();
                for (end, besieged) in rig.ends.iter_mut().zip(besieged) {
                    end.link.is_besieged(now, besieged);
                }
                rig.run_until((now + Nanos::from_ms(100)).min(until));
            }
        }
        println!("{besieged:?}: {:?}", rig.net.now());
        assert!(rig.is_done() && rig.net.now() < Nanos::from_ms(40_000), "{besieged:?}: {:?}", rig.net.now());
    }
}
