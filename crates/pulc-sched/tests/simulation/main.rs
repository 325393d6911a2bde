//! The controller under a simulator: clusters, jobs and faults by chance from a seed, time of its own making. After every event the
//! promises are checked: no slot given twice, no accepted job lost, the log tells the same state, and backfill delays nobody.

mod loss;
mod scale;
mod world;

use pulc_base::NodeId;
use pulc_control::StopKind;
use pulc_control::queue::{
    Class, Exclusive, JobNumber, JobState, Millis, Outcome, QueueReply, QueueRequest, Target, Verb, Yield,
};
use pulc_sched::{Event, Health, State};
use pulc_testkit::{Chance, rounds};
use std::collections::BTreeMap;
use world::{World, spec};

#[test]
fn no_slot_is_given_twice_and_no_accepted_job_is_lost_whatever_happens() {
    for seed in 1..=u64::from(rounds(60, 3000)) {
        let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let nodes: Vec<u32> = (0..1 + chance.below(6)).map(|_| 1 + chance.below(8) as u32).collect();
        let mut world = World::new(seed, &nodes);
        for _ in 0..120 {
            match world.chance.below(20) {
                0..9 => {
                    let mut job = spec(1 + world.chance.below(8) as u32, None);
                    let needs = 1 + world.chance.below(20_000);
                    job.limit_ms =
                        [None, Some(needs), Some(needs * 3), Some(needs / 2 + 1)][world.chance.below(4) as usize];
                    job.class = Class::ALL[world.chance.below(4) as usize].1;
                    job.threads = 1 + world.chance.below(2) as u32;
                    job.requeue = world.chance.below(4) > 0;
                    job.yields = [Yield::Suspend, Yield::Requeue, Yield::Never][world.chance.below(3) as usize];
                    job.exclusive = [Exclusive::No, Exclusive::No, Exclusive::Node][world.chance.below(3) as usize];
                    if world.chance.below(6) == 0 {
                        job.array =
                            Some(pulc_control::queue::Array { indices: vec![1, 2, 5], at_most_at_once: Some(2) });
                    }
                    world.submit(job, needs);
                }
                9 | 10 => {
                    let node = NodeId([world.chance.below(nodes.len() as u64) as u8; 16]);
                    if world.up.contains(&node) { world.lose(node) } else { world.health(node, Health::Up) }
                }
                11 => world.restart_controller(),
                12..15 => {
                    let newest = world.accepted.last().map_or(1, |number| number.0);
                    let number = JobNumber(1 + world.chance.below(newest));
                    let verbs = [
                        Verb::Cancel(StopKind::Gently),
                        Verb::Hold,
                        Verb::Release,
                        Verb::Suspend,
                        Verb::Resume,
                        Verb::Requeue,
                    ];
                    let verb = verbs[world.chance.below(6) as usize];
                    let targets = vec![Target { number, index: None }];
                    world.event(Event::Ask { ticket: 2, user: 1, request: QueueRequest::Change { targets, verb } });
                    world.event(Event::Ask { ticket: 3, user: 1, request: QueueRequest::Queue });
                }
                _ => {
                    let until = world.now + world.chance.below(8000);
                    while world.advance(until) {}
                }
            }
        }
        // In the end everything is up and let go.
        for node in world.slots.keys().copied().collect::<Vec<_>>() {
            if !world.up.contains(&node) {
                world.health(node, Health::Up);
            }
        }
        for number in world.accepted.clone() {
            for verb in [Verb::Release, Verb::Resume] {
                let targets = vec![Target { number, index: None }];
                world.event(Event::Ask { ticket: 2, user: 1, request: QueueRequest::Change { targets, verb } });
            }
        }
        world.finish();
        let mut state = State::default();
        world.log.iter().for_each(|record| state.apply(record));
        assert_eq!(&state, world.controller.state(), "seed {seed}");
    }
}

/// With limits that are kept, the first job that waits starts no later than it was promised when it became the first.
#[test]
fn backfill_never_delays_the_first_job_that_waits() {
    let mut backfilled = 0;
    for seed in 1..=u64::from(rounds(150, 2000)) {
        let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let nodes: Vec<u32> = (0..1 + chance.below(5)).map(|_| 1 + chance.below(6) as u32).collect();
        let mut world = World::new(seed, &nodes);
        let unlimited = chance.below(3) == 0;
        let mut promised = BTreeMap::<JobNumber, Millis>::new();
        for _ in 0..80 {
            let ranks = 1 + chance.below(u64::from(nodes.iter().sum::<u32>())) as u32;
            let needs = 1 + chance.below(10_000);
            let limit = if unlimited && chance.below(2) == 0 { None } else { Some(needs + chance.below(3) * 1000) };
            world.submit(spec(ranks, limit), needs);
            let replies = world.event(Event::Ask { ticket: 1, user: 1, request: QueueRequest::Queue });
            let Some(QueueReply::Jobs(jobs)) = replies.into_iter().next() else { panic!("no queue") };
            let first = jobs.iter().find(|job| job.state == JobState::Pending);
            if let Some((first, at)) = first.and_then(|job| Some((job, job.may_start?)))
                && first.text.as_ref().is_some_and(|text| text.contains("it is the next one"))
            {
                promised.entry(first.number).or_insert(at);
            }
            let running = jobs.iter().filter(|job| job.started.is_some());
            backfilled += usize::from(first.is_some_and(|first| running.clone().any(|job| job.number > first.number)));
            let until = world.now + chance.below(4000);
            while world.advance(until) {}
        }
        world.finish();
        for (number, at) in promised {
            let started = world.controller.state().job(number).and_then(|job| job.started).expect("it has ended");
            assert!(started <= at + 50, "seed {seed}: job {number} started at {started}, promised for {at}");
        }
    }
    assert!(backfilled > 20, "nothing was ever backfilled ({backfilled}); this test would prove nothing");
}

#[test]
fn an_urgent_job_makes_others_stand_still_and_they_go_on_afterwards() {
    let mut world = World::new(7, &[4]);
    let long = world.submit(spec(4, Some(10_000)), 8000).unwrap();
    world.advance(world.now + 100);
    let mut urgent = spec(2, None);
    urgent.class = Class::Urgent;
    let urgent = world.submit(urgent, 5000).unwrap();
    let state = |world: &World, number| world.controller.state().job(number).unwrap().state;
    let until = world.now + 100;
    while world.advance(until) {}
    assert_eq!((state(&world, long), state(&world, urgent)), (JobState::Suspended, JobState::Running));
    world.finish();
    let long = world.controller.state().job(long).unwrap();
    // It stood still for 5 s, which does not count against its limit.
    assert_eq!(long.state, JobState::Ended(Outcome::Completed));
    assert!(long.still_ms >= 4900, "{}", long.still_ms);
}

#[test]
fn a_thousand_slots_are_filled_and_emptied() {
    let nodes: Vec<u32> = vec![4; 250];
    let mut world = World::new(3, &nodes);
    for round in 0..rounds(400, 4000) {
        world.submit(spec(1 + round % 16, Some(60_000)), 30_000);
    }
    world.finish();
}

/// Slots that somebody holds by hand: his going ends the job at once, a daemon's that is in between only if he does not come back.
#[test]
fn a_tied_job_ends_with_its_client_and_waits_for_one_that_may_come_back() {
    let mut world = World::new(11, &[2]);
    let state = |world: &World, number| world.controller.state().job(number).unwrap().state;
    let tie = |world: &mut World, ticket, number| {
        let request = QueueRequest::Tie(Target { number, index: None });
        world.event(Event::Ask { ticket, user: 1, request })
    };
    let run = |world: &mut World, ms| {
        let until = world.now + ms;
        while world.advance(until) {}
    };
    let [short, long] = [(); 2].map(|()| world.submit(spec(1, None), 10_000_000).unwrap());
    assert!(tie(&mut world, 41, short).is_empty() && tie(&mut world, 42, long).is_empty());
    run(&mut world, 100);
    world.event(Event::Hung { ticket: 41 });
    run(&mut world, 100);
    assert_eq!(state(&world, short), JobState::Ended(Outcome::Cancelled));
    // The other one's daemon goes, and so does the controller; he comes back.
    world.event(Event::Away { ticket: 42 });
    run(&mut world, 50_000);
    world.restart_controller();
    run(&mut world, 50_000);
    assert_eq!(state(&world, long), JobState::Running);
    assert!(tie(&mut world, 43, long).is_empty());
    run(&mut world, 500_000);
    assert_eq!(state(&world, long), JobState::Running);
    // And then does not.
    world.event(Event::Away { ticket: 43 });
    run(&mut world, 61_000);
    assert_eq!(state(&world, long), JobState::Ended(Outcome::Cancelled));
    // It is another user's business no more than cancelling it would be.
    let other = world.submit(spec(1, None), 1000).unwrap();
    let request = QueueRequest::Tie(Target { number: other, index: None });
    let replies = world.event(Event::Ask { ticket: 44, user: 2, request });
    assert!(matches!(&replies[..], [QueueReply::Refused { why }] if why.contains("not yours")), "{replies:?}");
}
