//! Meshes of one process on loopback.

use super::*;
use crate::jobs::message::{JobBody, JobMsg};
use pulc_base::JobId;
use std::time::Duration;
use tokio::time::timeout;

pub(super) const HANG: Duration = Duration::from_secs(30);

pub(super) struct Node {
    pub(super) mesh: Mesh,
    pub(super) events: mpsc::Receiver<MeshEvent>,
    pub(super) ca: Option<crate::identity::Fingerprint>,
}

pub(super) fn start(config: MeshConfig, capacity: usize) -> Node {
    let (sender, events) = mpsc::channel(capacity);
    let ca = config.identity.as_ref().map(|identity| identity.cluster());
    Node { mesh: Mesh::start(config, sender).unwrap(), events, ca }
}

impl Node {
    pub(super) async fn next(&mut self) -> MeshEvent {
        timeout(HANG, self.events.recv()).await.expect("no event came").expect("the mesh ended")
    }

    pub(super) async fn up(&mut self) -> NodeId {
        match self.next().await {
            MeshEvent::Up(info) => info.id,
            other => panic!("expected Up, got {other:?}"),
        }
    }
}

pub(super) fn pair() -> (Node, Node) {
    let mut configs = MeshConfig::local_cluster(2).unwrap();
    let b = start(configs.pop().unwrap(), 64);
    let a = start(configs.pop().unwrap(), 64);
    (a, b)
}

#[tokio::test]
async fn a_node_alone_talks_to_itself() {
    let mut node = start(MeshConfig::alone("me", NodeId([1; 16])), 8);
    node.mesh.send(node.mesh.me(), PeerMsg::Probe(5)).unwrap();
    assert!(matches!(node.next().await, MeshEvent::Message(NodeId([1, ..]), PeerMsg::Probe(5))));
    assert!(matches!(node.mesh.send(NodeId([2; 16]), PeerMsg::Probe(5)), Err(Error::UnknownNode(_))));
    assert_eq!(node.mesh.nodes().len(), 1);
}

#[tokio::test]
async fn two_nodes_find_each_other_and_messages_keep_their_order() {
    let (mut a, mut b) = pair();
    assert_eq!(a.up().await, b.mesh.me());
    assert_eq!(b.up().await, a.mesh.me());
    for n in 0..1000 {
        a.mesh.send(b.mesh.me(), PeerMsg::Probe(n)).unwrap();
    }
    for n in 0..1000 {
        assert!(matches!(b.next().await, MeshEvent::Message(from, PeerMsg::Probe(m)) if m == n && from == a.mesh.me()));
    }
    assert!(a.mesh.nodes().iter().all(|node| node.state == NodeState::Up));
}

#[tokio::test]
async fn eight_nodes_all_meet_and_nobody_is_lost_meanwhile() {
    let mut nodes: Vec<Node> =
        MeshConfig::local_cluster(8).unwrap().into_iter().map(|config| start(config, 64)).collect();
    for node in &mut nodes {
        let mut met = Vec::new();
        for _ in 0..7 {
            met.push(node.up().await);
        }
        met.sort();
        met.dedup();
        assert_eq!(met.len(), 7);
    }
    for node in &mut nodes {
        assert!(node.events.try_recv().is_err(), "nothing else happens");
    }
}

#[tokio::test]
async fn a_stopped_mesh_delivers_what_was_queued_and_says_goodbye() {
    let (mut a, mut b) = pair();
    a.up().await;
    b.up().await;
    for n in 0..100 {
        a.mesh.send(b.mesh.me(), PeerMsg::Probe(n)).unwrap();
    }
    a.mesh.stop().await;
    for n in 0..100 {
        assert!(matches!(b.next().await, MeshEvent::Message(_, PeerMsg::Probe(m)) if m == n));
    }
    assert!(matches!(b.next().await, MeshEvent::Down(_, DownWhy::Left)));
    assert!(matches!(b.mesh.send(a.mesh.me(), PeerMsg::Probe(1)), Err(Error::NotConnected(_))));
    assert_eq!(b.mesh.nodes()[1].state, NodeState::Left);
}

#[tokio::test]
async fn a_dropped_mesh_is_noticed() {
    let (mut a, mut b) = pair();
    a.up().await;
    b.up().await;
    let gone = a.mesh.me();
    drop(a);
    assert!(matches!(b.next().await, MeshEvent::Down(id, _) if id == gone));
}

#[tokio::test]
async fn a_reader_that_does_not_read_holds_the_sender_back() {
    let mut configs = MeshConfig::local_cluster(2).unwrap();
    let mut lazy = start(configs.pop().unwrap(), 1);
    let mut config = configs.pop().unwrap();
    config.limits.queue_bytes = 64 << 10;
    let mut busy = start(config, 64);
    busy.up().await;
    let mut sent = 0_u64;
    while busy.mesh.send(lazy.mesh.me(), PeerMsg::Probe(sent)).is_ok() {
        sent += 1;
        if sent.is_multiple_of(1000) {
            tokio::task::yield_now().await;
        }
        assert!(sent < 50_000_000, "the queue has no limit");
    }
    let to = lazy.mesh.me();
    let mesh = busy.mesh.clone();
    let waiting = tokio::spawn(async move { mesh.send_wait(to, PeerMsg::Probe(sent)).await });
    lazy.up().await;
    for n in 0..=sent {
        assert!(matches!(lazy.next().await, MeshEvent::Message(_, PeerMsg::Probe(m)) if m == n));
    }
    waiting.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_message_too_long_is_refused_with_both_numbers() {
    let mut configs = MeshConfig::local_cluster(2).unwrap();
    let mut config = configs.pop().unwrap();
    // The limit holds both ways: what the other node says by itself must still fit.
    config.limits.frame_bytes = 4096;
    let mut a = start(config, 8);
    let b = start(configs.pop().unwrap(), 8);
    a.up().await;
    let body = JobBody::Input { bytes: vec![0; 5000] };
    let error = a.mesh.send(b.mesh.me(), PeerMsg::Job(JobMsg { job: JobId(1), body })).unwrap_err();
    assert!(matches!(error, Error::MessageTooLong { limit: 4096, .. }), "{error}");
}
