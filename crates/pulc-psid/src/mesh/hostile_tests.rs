//! What strangers, broken members, other versions and false tokens get, and that nobody else suffers from it.

use super::config::OLDEST_SPOKEN;
use super::tests::{HANG, Node, pair, start};
use super::*;
use crate::identity::{ClusterCa, Fingerprint, Settings, StateDir, Token};
use crate::membership::Member;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

fn address_of(node: &Node) -> SocketAddr {
    node.mesh.nodes()[0].addresses[0]
}

/// Proves that two nodes still talk.
async fn still_talk(a: &mut Node, b: &mut Node, number: u64) {
    a.mesh.send(b.mesh.me(), PeerMsg::Probe(number)).unwrap();
    assert!(matches!(b.next().await, MeshEvent::Message(_, PeerMsg::Probe(n)) if n == number));
}

#[tokio::test]
async fn garbage_on_the_port_is_turned_away_and_disturbs_nobody() {
    let (mut a, mut b) = pair();
    a.up().await;
    b.up().await;
    // A TLS record that promises more than comes, another protocol, noise, a record of absurd length, nothing at all.
    let noise: Vec<u8> = (0..5000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let cases: [&[u8]; 5] =
        [&[0x16, 3, 1, 2, 0, 1, 0, 1], b"GET / HTTP/1.0\r\n\r\n", &noise, &[0x16, 3, 3, 0xff, 0xff, 1], &[]];
    for (number, bytes) in (0..).zip(cases.iter().cycle().take(25)) {
        let mut stream = TcpStream::connect(address_of(&a)).await.unwrap();
        // The other side may have hung up already.
        let _ = stream.write_all(bytes).await;
        let _ = stream.shutdown().await;
        let mut answer = Vec::new();
        let _ = timeout(HANG, stream.read_to_end(&mut answer)).await.expect("the connection was left hanging");
        still_talk(&mut b, &mut a, number).await;
    }
}

#[tokio::test]
async fn callers_that_say_nothing_do_not_keep_members_out() {
    let mut configs = MeshConfig::local_cluster(2).unwrap();
    let b_config = configs.pop().unwrap();
    let mut a = start(configs.pop().unwrap(), 64);
    let mut silent = Vec::new();
    for _ in 0..300 {
        silent.push(TcpStream::connect(address_of(&a)).await.unwrap());
    }
    let mut b = start(b_config, 64);
    a.up().await;
    b.up().await;
    still_talk(&mut a, &mut b, 1).await;
}

/// A member by its certificate that then does as it likes.
async fn rogue(config: &MeshConfig, to: &Node) -> connection::Stream {
    let tls = tls::Tls::of(config.identity.as_ref().unwrap()).unwrap();
    dial::dial(&tls, &config.me, 1, to.mesh.me(), &[address_of(to)]).await.map_err(|e| e.to_string()).unwrap().stream
}

#[tokio::test]
async fn a_member_that_breaks_the_protocol_loses_only_its_own_connection() {
    let length = |len: u32| len.to_le_bytes().to_vec();
    let cases = [
        [length(u32::MAX), vec![0; 100]].concat(),
        [length(5), vec![0xff; 5]].concat(),
        // A whole message with a byte behind it.
        [length(4), vec![2, 0, 0, 0]].concat(),
    ];
    for case in cases {
        let mut configs = MeshConfig::local_cluster(3).unwrap();
        let broken = configs.pop().unwrap();
        for config in &mut configs {
            config.members.retain(|member| member.id != broken.me.id);
        }
        let (mut a, mut b) = (start(configs.remove(0), 64), start(configs.remove(0), 64));
        a.up().await;
        b.up().await;
        let mut stream = rogue(&broken, &a).await;
        assert_eq!(a.up().await, broken.me.id);
        stream.write_all(&case).await.unwrap();
        stream.flush().await.unwrap();
        assert!(matches!(a.next().await, MeshEvent::Down(id, DownWhy::BrokenRules) if id == broken.me.id));
        still_talk(&mut b, &mut a, 9).await;
    }
}

#[tokio::test]
async fn a_member_of_another_cluster_is_no_member() {
    let (mut a, mut b) = pair();
    a.up().await;
    b.up().await;
    let stranger = MeshConfig::local_cluster(1).unwrap().remove(0);
    let tls = tls::Tls::of(stranger.identity.as_ref().unwrap()).unwrap();
    assert!(dial::dial(&tls, &stranger.me, 1, a.mesh.me(), &[address_of(&a)]).await.is_err());
    still_talk(&mut a, &mut b, 3).await;
    assert_eq!(a.mesh.nodes().len(), 2);
}

#[tokio::test]
async fn without_a_certificate_nobody_becomes_a_member() {
    let (mut a, mut b) = pair();
    a.up().await;
    b.up().await;
    let config = Arc::new(tls::joiner(a.ca.expect("nodes of a local cluster have an authority")).unwrap());
    let mut stream = dial::connect(&config, address_of(&a)).await.map_err(|e| e.to_string()).unwrap();
    let opening = wire::Opening::Mesh { session: 1, member: Member { id: NodeId([9; 16]), ..newcomer() } };
    stream.write_all(&wire::preamble_and(VERSION, &opening)).await.unwrap();
    stream.flush().await.unwrap();
    wire::read_preamble(&mut stream, VERSION).await.map_err(|e| e.to_string()).unwrap();
    let answer: wire::Answer = wire::read_first(&mut stream).await.map_err(|e| e.to_string()).unwrap();
    assert!(matches!(answer, wire::Answer::Refused(crate::membership::Refusal::Stranger)), "{answer:?}");
    still_talk(&mut a, &mut b, 4).await;
    assert_eq!(a.mesh.nodes().len(), 2);
}

/// The founder of a cluster with a state directory that goes with it.
struct Founder {
    node: Node,
    state: StateDir,
    cluster: Fingerprint,
}

impl Drop for Founder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.state.path());
    }
}

fn founder(name: &str, version: u32) -> Founder {
    let path = std::env::temp_dir().join(format!("pulc-hostile-{name}-{}", std::process::id()));
    let state = StateDir::open(&path).unwrap();
    let identity = state.found().unwrap();
    let cluster = identity.cluster();
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let settings = Settings { name: name.to_owned(), listen, listen_chosen: true };
    let mut config = MeshConfig::of_state(&state, identity, &settings).unwrap();
    config.me.version = version;
    Founder { node: start(config, 64), state, cluster }
}

fn newcomer() -> Member {
    Member { id: NodeId([0; 16]), name: "new".to_owned(), addresses: Vec::new(), cores: 1, version: VERSION }
}

impl Founder {
    fn token(&self, life: Duration) -> Token {
        self.state.new_token(vec![address_of(&self.node)], self.cluster, life).unwrap().0
    }
}

#[tokio::test]
async fn a_token_joins_and_a_name_that_is_taken_gets_a_number() {
    let founder = founder("new", VERSION);
    let joined = join(&founder.token(Duration::from_secs(60)), newcomer()).await.unwrap();
    assert_eq!(joined.name, "new-2");
    assert_eq!(joined.identity.cluster(), founder.cluster);
    assert_eq!(joined.members.len(), 1);
}

#[tokio::test]
async fn false_expired_and_foreign_tokens_are_refused_each_with_its_reason() {
    let founder = founder("tokens", VERSION);
    let good = founder.token(Duration::from_secs(60));
    let refused = |token: Token| async move { join(&token, newcomer()).await.err().expect("it was let in") };
    let forged = refused(Token { secret: [7; 16], ..good.clone() }).await;
    assert!(matches!(forged, Error::JoinRefused { .. }) && forged.to_string().contains("revoked"), "{forged}");
    let expired = refused(founder.token(Duration::ZERO)).await;
    assert!(matches!(expired, Error::JoinRefused { .. }), "{expired}");
    let other = ClusterCa::new().unwrap().fingerprint();
    let foreign = refused(Token { ca: other, ..good.clone() }).await;
    assert!(foreign.to_string().contains("not the cluster of this token"), "{foreign}");
    founder.state.revoke_tokens(None).unwrap();
    let revoked = refused(good).await;
    assert!(matches!(revoked, Error::JoinRefused { .. }), "{revoked}");
}

#[tokio::test]
async fn a_node_that_did_not_found_the_cluster_admits_nobody() {
    let (a, _b) = pair();
    let ca = a.ca.expect("nodes of a local cluster have an authority");
    let token = Token { addresses: vec![address_of(&a)], ca, secret: [1; 16] };
    let error = join(&token, newcomer()).await.err().expect("it was let in");
    assert!(error.to_string().contains("did not found"), "{error}");
}

#[tokio::test]
async fn another_version_is_refused_and_both_numbers_are_named() {
    let founder = founder("version", 999);
    let error = join(&founder.token(Duration::from_secs(60)), newcomer()).await.err().expect("it was let in");
    assert!(matches!(error, Error::WrongVersion { theirs: 999, ours: VERSION, .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("999") && text.contains(&format!(" {VERSION}")), "{text}");

    let mut configs = MeshConfig::local_cluster(2).unwrap();
    configs[0].me.version = 999;
    let tls = tls::Tls::of(configs[1].identity.as_ref().unwrap()).unwrap();
    let me = configs[1].me.clone();
    let old = start(configs.remove(0), 8);
    let error = dial::dial(&tls, &me, 1, old.mesh.me(), &[address_of(&old)]).await.err().expect("it was let in");
    assert!(error.to_string().contains("version 999"), "{error}");
}

#[test]
fn the_older_of_two_versions_is_spoken_if_the_newer_one_still_can() {
    let next_kind = (VERSION / 100 + 1) * 100;
    assert_eq!(wire::spoken(VERSION, VERSION), Some(VERSION));
    assert_eq!(wire::spoken(VERSION, VERSION + 1), Some(VERSION), "the newer one decides");
    assert_eq!(wire::spoken(VERSION + 1, VERSION), Some(VERSION), "the newer one can");
    assert_eq!(wire::spoken(VERSION + 1, OLDEST_SPOKEN - 1), None, "too old for the newer one");
    assert_eq!(wire::spoken(VERSION, next_kind), None);
    assert_eq!(wire::spoken(next_kind, VERSION), None);
}

/// An upgrade while the cluster runs: one node is newer, then both.
#[tokio::test]
async fn a_newer_node_is_a_member_like_any_other() {
    let mut configs = MeshConfig::local_cluster(2).unwrap();
    configs[0].me.version = VERSION + 1;
    let (mut newer, mut older) = {
        let older = configs.pop().unwrap();
        (start(configs.pop().unwrap(), 64), start(older, 64))
    };
    newer.up().await;
    older.up().await;
    still_talk(&mut newer, &mut older, 1).await;
    let told =
        |node: &Node| node.mesh.nodes().iter().map(|node| node.version).collect::<std::collections::BTreeSet<_>>();
    assert_eq!(told(&newer), [VERSION, VERSION + 1].into());
    assert_eq!(told(&older), [VERSION, VERSION + 1].into());

    let founder = founder("rolling", VERSION);
    let next = Member { version: VERSION + 1, ..newcomer() };
    assert!(join(&founder.token(Duration::from_secs(60)), next).await.is_ok(), "a newer host joins an older cluster");
}
