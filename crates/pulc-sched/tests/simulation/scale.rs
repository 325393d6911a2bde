//! What the controller costs on large clusters: time for a submission with the pass over the queue behind it, while nodes are free, while
//! all are taken and a thousand jobs wait, and for a report. Printed, never judged: run by `cargo xtask sim`.

use crate::world::{exited, spec};
use pulc_base::NodeId;
use pulc_control::queue::QueueRequest;
use pulc_sched::{Controller, Effect, Event, Health, NodeSeen, Report, State, Step};
use pulc_testkit::Chance;
use std::time::Instant;

const SLOTS: u32 = 16;

/// A controller with so many nodes, all up.
fn cluster(nodes: u32) -> Controller {
    let mut controller = Controller::recover(State::default(), 1_000_000, 7);
    for number in 0..nodes {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&number.to_be_bytes());
        controller.step(
            1_000_000,
            Event::Node(NodeSeen {
                node: NodeId(id),
                name: format!("n{number}"),
                health: Health::Up,
                cores: SLOTS,
                memory_mib: 64_000,
                memory_free_mib: 60_000,
                load_milli: 0,
                addresses: Vec::new(),
            }),
        );
    }
    controller.settle(1_000_000);
    controller
}

/// Submits a job and plans; returns what happened.
fn submit(controller: &mut Controller, now: u64, ranks: u32) -> Vec<Effect> {
    let request = QueueRequest::Submit(Box::new(spec(ranks, Some(3_600_000))));
    let Step { mut effects, .. } = controller.step(now, Event::Ask { ticket: 1, user: 1, request });
    effects.extend(controller.settle(now).effects);
    effects
}

fn median_us(mut times: Vec<u128>) -> (u128, u128) {
    times.sort_unstable();
    (times[times.len() / 2] / 1000, times[times.len() * 99 / 100] / 1000)
}

#[test]
#[ignore = "a measurement: run by cargo xtask sim"]
fn cost_of_submissions_and_reports_on_large_clusters() {
    println!("nodes  what                                            median us   99th per cent us");
    for nodes in [100, 1000, 10_000] {
        let mut controller = cluster(nodes);
        let mut chance = Chance(nodes.into());
        let mut now = 1_000_000;
        let row = |what: &str, times: Vec<u128>| {
            let (median, worst) = median_us(times);
            println!("{nodes:5}  {what:47} {median:9}   {worst:9}");
        };
        let mut first = Vec::new();
        let mut started = Vec::new();
        for _ in 0..500 {
            now += 1;
            let begin = Instant::now();
            let effects = submit(&mut controller, now, 1);
            first.push(begin.elapsed().as_nanos());
            started.extend(effects);
        }
        row("a process submitted and placed, nodes free", first);
        // Everything is taken, by jobs of one node to eight.
        let mut left = nodes * SLOTS - 500;
        while left > 0 {
            let ranks = (SLOTS * (1 + chance.below(8) as u32)).min(left);
            left -= ranks;
            let request = QueueRequest::Submit(Box::new(spec(ranks, Some(3_600_000 + chance.below(100_000)))));
            started.extend(controller.step(now, Event::Ask { ticket: 1, user: 1, request }).effects);
            started.extend(controller.settle(now).effects);
        }
        for _ in 0..1000 {
            let request = QueueRequest::Submit(Box::new(spec(SLOTS, Some(3_600_000))));
            controller.step(now, Event::Ask { ticket: 1, user: 1, request });
        }
        controller.settle(now);
        let mut behind = Vec::new();
        for _ in 0..20 {
            now += 1;
            let begin = Instant::now();
            submit(&mut controller, now, SLOTS);
            behind.push(begin.elapsed().as_nanos());
        }
        row("one submitted behind a thousand that wait", behind);
        let orders = started.into_iter().filter_map(|effect| match effect {
            Effect::Start { to, order } => Some((to, order.job)),
            _ => None,
        });
        let mut reports = Vec::new();
        for (from, job) in orders.take(20) {
            now += 1;
            let begin = Instant::now();
            controller.step(now, Event::Report { from, job, report: Report::Started });
            controller.step(now, Event::Report { from, job, report: exited(0) });
            controller.settle(now);
            reports.push(begin.elapsed().as_nanos());
        }
        row("a start and an end told, the next one placed", reports);
    }
}
