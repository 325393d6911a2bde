//! What it takes to start and end one process on every node of a large cluster. Printed, never judged: run by `cargo xtask sim`. Messages
//! and the work of the job's first node are real and timed; the network and what happens on each node are assumed, in one place.
//!
//! The launch goes down a tree and its answers come up merged; reports of starts and ends go straight to the first node, which is asked
//! here with the very code that a daemon runs.

use super::local::FAN_OUT;
use super::message::{JobBody, JobMsg, JobOrder, OrderNode, PreparedNode};
use super::origin::OriginJob;
use super::*;
use crate::mesh::MeshConfig;
use pulc_base::boot::{Boot, BootNode, BootTask, Gone, JobSecret, decode, encode};
use pulc_base::{PROTOCOL_VERSION, Rank};
use pulc_control::LaunchSpec;
use std::time::Instant as Clock;

const JOB: JobId = JobId(7);
/// One way between two nodes, and what a cable and TLS with its system calls take for a byte.
const HOP_US: f64 = 50.0;
const WIRE_US_PER_BYTE: f64 = 1e6 / 1.25e9;
const CRYPT_US_PER_BYTE: f64 = 1e6 / 1e9;
/// From the order to a keeper that is ready, and from the start order to a process that runs.
const KEEPER_US: f64 = 4000.0;
const PROCESS_US: f64 = 1000.0;

fn id(node: u32) -> NodeId {
    let mut id = [0; 16];
    id[..4].copy_from_slice(&(node + 1).to_be_bytes());
    // As long on the wire as real ones, which are random.
    id[4..].fill(0xa5);
    NodeId(id)
}

fn rails() -> Vec<std::net::SocketAddr> {
    vec![std::net::SocketAddr::from(([10, 77, 3, 4], 40_000))]
}

fn launch() -> LaunchSpec {
    let variable = |number: usize| (format!("VARIABLE_{number}").into_bytes(), vec![b'v'; 60]);
    LaunchSpec {
        argv: vec![b"/bin/true".to_vec()],
        env: (0..40).map(variable).collect(),
        cwd: b"/home/somebody/work".to_vec(),
        umask: 0o22,
        limits: Vec::new(),
        pin: true,
        kill_delay_ms: 10_000,
    }
}

fn order(nodes: u32) -> JobOrder {
    let node = |number| OrderNode { id: id(number), name: format!("node-{number:05}"), ranks: 1 };
    let nodes: Vec<OrderNode> = (0..nodes).map(node).collect();
    JobOrder { origin: nodes[0].id, nodes, launch: launch(), user: 1000, queued: None }
}

fn boot(nodes: u32) -> Boot {
    Boot {
        version: PROTOCOL_VERSION,
        job: JOB,
        nodes: (0..nodes).map(|number| BootNode { id: id(number), name: format!("node-{number:05}") }).collect(),
        tasks: (0..nodes).map(|node| BootTask { node, rails: rails() }).collect(),
    }
}

/// The quickest of three, in microseconds.
fn time_us<T>(mut work: impl FnMut() -> T) -> f64 {
    let once = |_| {
        let begin = Clock::now();
        drop(work());
        begin.elapsed().as_secs_f64() * 1e6
    };
    (0..3).map(once).fold(f64::INFINITY, f64::min)
}

/// A message on its way down the tree: its length, and what making and reading it take.
struct Freight {
    bytes: f64,
    make_us: f64,
    read_us: f64,
}

impl Freight {
    fn of(body: &JobBody) -> Freight {
        let message = || PeerMsg::Job(JobMsg { job: JOB, body: body.clone() });
        let encoded = encode(&message());
        // Of each child's copy.
        let make_us = time_us(|| encode(&message()));
        let read_us = time_us(|| decode::<PeerMsg>(&encoded).map(drop).is_ok());
        Freight { bytes: encoded.len() as f64, make_us, read_us }
    }

    /// Moments at which it has been read by every node if the root has it at `begin`, and at which each has passed it on.
    fn down(&self, nodes: u32, begin: f64) -> Vec<(f64, f64)> {
        let crypt = self.bytes * CRYPT_US_PER_BYTE;
        let mut times = vec![(begin, begin); nodes as usize];
        for node in 0..nodes {
            let mut busy = times[node as usize].0;
            let first = node * FAN_OUT + 1;
            for child in first..(first + FAN_OUT).min(nodes).max(first) {
                // The thread makes and encrypts one after the other; the cable is quicker than that.
                busy += self.make_us + crypt.max(self.bytes * WIRE_US_PER_BYTE);
                times[child as usize].0 = busy + HOP_US + crypt + self.read_us;
            }
            times[node as usize].1 = busy;
        }
        times
    }
}

/// When the root has the merged answers of all, of which each node has its own at `own`.
fn up(own: &[f64], per_node_us: f64) -> f64 {
    let mut ready = own.to_vec();
    let mut below = vec![1.0_f64; own.len()];
    for node in (1..own.len()).rev() {
        let parent = (node - 1) / FAN_OUT as usize;
        // Passed on, read and put together with the others'.
        let arrives = ready[node] + HOP_US + below[node] * per_node_us;
        ready[parent] = ready[parent].max(arrives);
        below[parent] += below[node];
    }
    ready[0]
}

/// When one thread has dealt with reports that come at these moments.
fn dealt_with(mut arrivals: Vec<f64>, each_us: f64) -> f64 {
    arrivals.sort_by(f64::total_cmp);
    arrivals.into_iter().fold(0.0_f64, |busy, at| busy.max(at) + each_us)
}

/// The first node of a job on so many nodes, with nobody else there. Returns what a report of a start and of an end cost it, in
/// microseconds, and to how many messages to others the ends led.
fn first_node_us(nodes: u32) -> (f64, f64, usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime can be had");
    runtime.block_on(async {
        let (sender, _mesh_events) = mpsc::channel(16);
        let mesh = Mesh::start(MeshConfig::alone("here", id(0)), sender).expect("a mesh of one node needs nothing");
        let config = super::tests::alone(mesh);
        let (events, _queue) = mpsc::channel(16);
        let mut room = Room::new(config, events);
        room.origin.insert(JOB, OriginJob::new(&order(nodes).nodes, &launch(), 0));
        // Where messages to others wait, counted instead of sent.
        let mut lines: Vec<mpsc::UnboundedReceiver<PeerMsg>> = Vec::new();
        for node in 1..nodes {
            let (outbox, line) = mpsc::unbounded_channel();
            room.outboxes.insert(id(node), outbox);
            lines.push(line);
        }
        let begin = Clock::now();
        for node in 0..nodes {
            room.origin_report(id(node), JOB, JobBody::Started { pids: vec![1] });
        }
        let starts = begin.elapsed();
        let begin = Clock::now();
        for node in 0..nodes {
            room.origin_report(id(node), JOB, JobBody::Exited { ranks: vec![(Rank(node), Gone::Exited(0))] });
            room.origin_report(id(node), JOB, JobBody::Clean);
            room.deadlines();
            room.inbox.clear();
        }
        let ends = begin.elapsed();
        assert!(room.origin.is_empty(), "the job has not ended");
        let told = lines.iter_mut().map(|line| std::iter::from_fn(|| line.try_recv().ok()).count()).sum();
        let each = |time: std::time::Duration| time.as_secs_f64() * 1e6 / f64::from(nodes);
        (each(starts), each(ends), told)
    })
}

#[test]
#[ignore = "a measurement: run by cargo xtask sim"]
fn one_process_on_every_node_of_a_large_cluster() {
    println!(
        "one process on every node: tree of {FAN_OUT}, {HOP_US} us a hop, 10 Gbit/s, 1 GB/s for TLS, {KEEPER_US} us for a keeper, \
         {PROCESS_US} us for a process; messages and the first node's work are timed"
    );
    println!(
        "nodes   order KiB   table KiB   ready ms   started ms   ended ms   us a start   us an end   told of ends"
    );
    for nodes in [16, 100, 1000, 10_000] {
        let prepare = Freight::of(&JobBody::Prepare(Box::new(order(nodes))));
        let go = Freight::of(&JobBody::Go { boot: Box::new(boot(nodes)), secret: JobSecret([1; 32]) });
        let one = JobBody::Prepared { nodes: vec![PreparedNode { node: 1, rails: vec![rails()] }] };
        let answer = Freight::of(&one);
        let per_node = answer.bytes * CRYPT_US_PER_BYTE + answer.make_us + answer.read_us;
        let own: Vec<f64> =
            prepare.down(nodes, prepare.read_us).iter().map(|(_, passed_on)| passed_on + KEEPER_US).collect();
        let ready = up(&own, per_node);
        // Each keeper reads the table as well.
        let runs = go.down(nodes, ready + go.make_us);
        let (start_us, end_us, told) = first_node_us(nodes);
        let reports = |after: f64| runs.iter().map(|(_, at)| at + go.read_us + after + HOP_US).collect::<Vec<f64>>();
        let started = dealt_with(reports(PROCESS_US), start_us);
        // Processes that end at once.
        let ended = dealt_with(reports(2.0 * PROCESS_US), start_us + end_us);
        println!(
            "{nodes:5} {:11.1} {:11.1} {:10.1} {:12.1} {:10.1} {start_us:12.1} {end_us:11.1} {told:14}",
            prepare.bytes / 1024.0,
            go.bytes / 1024.0,
            ready / 1000.0,
            started / 1000.0,
            ended / 1000.0,
        );
    }
}
