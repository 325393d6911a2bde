//! Tests of the job room at its lines: clients that talk nonsense lose their connection, and nobody else is bothered.

use super::*;
use crate::mesh::MeshConfig;
use pulc_base::Rank;
use pulc_base::boot::Gone;
use pulc_control::{LaunchSpec, RunSpec, frame};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn room() -> Jobs {
    let (events, incoming) = mpsc::channel(16);
    let mesh = Mesh::start(MeshConfig::alone("here", NodeId([7; 16])), events).unwrap();
    Jobs::start(alone(mesh), incoming).unwrap()
}

async fn client(jobs: &Jobs) -> UnixStream {
    let (ours, theirs) = UnixStream::pair().unwrap();
    jobs.client(theirs).await;
    ours
}

/// Everything the room says until it closes the line.
async fn replies(mut stream: UnixStream) -> Vec<Reply> {
    let mut bytes = Vec::new();
    // A reset is a close, too: the room need not have read everything.
    let _ = stream.read_to_end(&mut bytes).await;
    let mut frames = frame::Deframer::default();
    frames.feed(&bytes);
    std::iter::from_fn(|| frames.take().unwrap()).collect()
}

async fn say(stream: &mut UnixStream, request: &Request) {
    stream.write_all(&frame::encode(request).unwrap()).await.unwrap();
}

fn refusal(replies: &[Reply]) -> &str {
    match replies.last() {
        Some(Reply::Refused { why }) => why,
        other => panic!("not refused but {other:?}"),
    }
}

fn launch(argv: &[&str]) -> LaunchSpec {
    LaunchSpec {
        argv: argv.iter().map(|arg| arg.as_bytes().to_vec()).collect(),
        env: Vec::new(),
        cwd: b"/".to_vec(),
        umask: 0o22,
        limits: Vec::new(),
        pin: false,
        kill_delay_ms: 0,
    }
}

fn run(argv: &[&str]) -> Request {
    let launch = launch(argv);
    Request::Run(Box::new(RunSpec {
        ranks: 1,
        nodes: None,
        hosts: Vec::new(),
        timeout_ms: None,
        allocation: None,
        launch,
    }))
}

fn on_a_runtime(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
}

#[test]
fn clients_that_talk_nonsense_are_refused_and_cut_off() {
    on_a_runtime(async {
        let jobs = room();
        let mut stream = client(&jobs).await;
        stream.write_all(&[5, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff]).await.unwrap();
        assert!(refusal(&replies(stream).await).contains("malformed frame"));
        let mut stream = client(&jobs).await;
        stream.write_all(&u32::MAX.to_le_bytes()).await.unwrap();
        assert!(refusal(&replies(stream).await).contains("exceeds the limit"));
        let mut stream = client(&jobs).await;
        say(&mut stream, &Request::Ps).await;
        assert!(refusal(&replies(stream).await).contains("first request must be a hello"));
        let mut stream = client(&jobs).await;
        say(&mut stream, &Request::Hello { version: 99 }).await;
        assert!(refusal(&replies(stream).await).contains("protocol version"));
    });
}

#[test]
fn requests_that_make_no_sense_are_refused_and_the_line_stays() {
    on_a_runtime(async {
        let jobs = room();
        let mut stream = client(&jobs).await;
        for request in [
            Request::Hello { version: PROTOCOL_VERSION },
            Request::Credit { node: 9, bytes: u32::MAX },
            Request::Input { bytes: vec![1] },
            Request::Stop(StopKind::AtOnce),
            run(&[]),
            Request::Kill { job: JobId(1), kind: StopKind::Gently },
            Request::Token,
            Request::Ps,
        ] {
            say(&mut stream, &request).await;
        }
        stream.shutdown().await.unwrap();
        let replies = replies(stream).await;
        let refused: Vec<&str> = replies
            .iter()
            .filter_map(|reply| match reply {
                Reply::Refused { why } => Some(why.as_str()),
                _ => None,
            })
            .collect();
        assert_eq!(refused.len(), 3, "{replies:?}");
        assert!(refused[0].contains("no program given") && refused[1].contains("no node knows"), "{refused:?}");
        assert_eq!(replies.last(), Some(&Reply::Jobs(Vec::new())));
    });
}

#[test]
fn a_keeper_that_cannot_be_started_ends_the_job_with_its_reason() {
    on_a_runtime(async {
        let jobs = room();
        let mut stream = client(&jobs).await;
        say(&mut stream, &Request::Hello { version: PROTOCOL_VERSION }).await;
        say(&mut stream, &run(&["true"])).await;
        let mut frames = frame::Deframer::default();
        let mut buffer = [0; 4096];
        let ended = loop {
            match frames.take().unwrap() {
                Some(Reply::Ended(ended)) => break ended,
                Some(_) => {}
                None => {
                    let count = stream.read(&mut buffer).await.unwrap();
                    frames.feed(&buffer[..count]);
                }
            }
        };
        assert_eq!(ended.code, 127);
        assert!(ended.text.unwrap().contains("node here: cannot start a keeper: cannot execute the program"));
        jobs.shutdown().await;
    });
}

#[test]
fn random_frames_from_clients_never_stop_the_room() {
    on_a_runtime(async {
        let jobs = room();
        let mut state = 88_172_645_463_325_252u64;
        for _ in 0..200 {
            let mut stream = client(&jobs).await;
            let mut bytes = frame::encode(&Request::Hello { version: PROTOCOL_VERSION }).unwrap();
            let mut body = Vec::new();
            for _ in 0..state % 40 {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                body.push(state as u8);
            }
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            bytes.extend_from_slice(&(body.len() as u32).to_le_bytes());
            bytes.extend_from_slice(&body);
            stream.write_all(&bytes).await.unwrap();
            stream.shutdown().await.unwrap();
            replies(stream).await;
        }
        jobs.shutdown().await;
    });
}

/// A room of jobs on one node, which can start none.
pub(super) fn alone(mesh: Mesh) -> JobsConfig {
    JobsConfig {
        system: None,
        mesh,
        keeper_program: c"/no/such/keeper".to_owned(),
        admin: None,
        queue: None,
        stage: None,
        health: None,
    }
}

/// What waits for a node; nothing is left of it afterwards.
fn told(line: &mut mpsc::UnboundedReceiver<PeerMsg>) -> Vec<Vec<u32>> {
    let ranks = |message| match message {
        PeerMsg::Job(JobMsg { body: JobBody::Gone { ranks }, .. }) => ranks.iter().map(|(rank, _)| rank.0).collect(),
        other => panic!("{other:?}"),
    };
    std::iter::from_fn(|| line.try_recv().ok()).map(ranks).collect()
}

#[test]
fn ranks_that_end_in_a_crowd_are_told_in_rounds_to_all_nodes_but_their_own() {
    on_a_runtime(async {
        let (sender, _mesh_events) = mpsc::channel(16);
        let mesh = Mesh::start(MeshConfig::alone("here", NodeId([0; 16])), sender).unwrap();
        let config = alone(mesh);
        let mut room = Room::new(config, mpsc::channel(16).0);
        let node = |n: u8| message::OrderNode { id: NodeId([n; 16]), name: format!("n{n}"), ranks: 1 };
        let job = JobId(5);
        room.origin.insert(job, OriginJob::new(&[node(0), node(1), node(2)], &launch(&["true"]), 0));
        let [mut one, mut two] = [1, 2].map(|n| {
            let (outbox, line) = mpsc::unbounded_channel();
            room.outboxes.insert(NodeId([n; 16]), outbox);
            line
        });
        let time = Instant::now();
        let end = |room: &mut Room, node: usize, time| {
            let job_of = room.origin.get_mut(&job).unwrap();
            job_of.news.add(node, &[(Rank(node as u32), Gone::Exited(0))]);
            room.tell_news(job, time);
        };
        // The first one at once.
        end(&mut room, 0, time);
        assert_eq!((told(&mut one), told(&mut two)), (vec![vec![0]], vec![vec![0]]));
        // Those that follow a moment later together, when their time has come.
        end(&mut room, 1, time);
        end(&mut room, 2, time);
        assert_eq!((told(&mut one), told(&mut two)), (vec![], vec![]));
        let due = room.next_deadline().unwrap();
        room.news_deadlines(due);
        assert_eq!((told(&mut one), told(&mut two)), (vec![vec![2]], vec![vec![1]]));
    });
}
