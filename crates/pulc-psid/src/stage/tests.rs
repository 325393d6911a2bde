//! Staging between daemons that are connected over loopback: what one has, the others get, through each other, and what is wrong is said.

use super::*;
use crate::mesh::{MeshConfig, MeshEvent};
use crate::peer_message::PeerMsg;
use std::fs;
use std::path::Path;

/// An empty place for one test.
pub(crate) fn directory(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("pulc-stage-test-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

pub(crate) fn content(bytes: &[u8]) -> Content {
    Content { hash: *blake3::hash(bytes).as_bytes(), bytes: bytes.len() as u64 }
}

pub(crate) fn file(role: Role, name: &str, path: &str) -> StageFile {
    StageFile { role, name: name.into(), path: path.into(), mode: 0o640, content: Content::default() }
}

/// A node: its staging, or whatever answers for it, and where it keeps what came.
struct Node {
    mesh: Mesh,
    staging: Staging,
    root: PathBuf,
}

/// What answers instead of a node.
type Other = fn(&Mesh, NodeId, StageMsg);

/// Nodes over loopback; what comes for the last one goes to `other` instead, if that is given.
async fn nodes(name: &str, count: usize, other: Option<Other>) -> Vec<Node> {
    let mut all = Vec::new();
    for (number, config) in MeshConfig::local_cluster(count).unwrap().into_iter().enumerate() {
        let (events, mut incoming) = mpsc::channel(64);
        let mesh = Mesh::start(config, events).unwrap();
        let root = directory(&format!("{name}-{number}"));
        let staging = Staging::new(mesh.clone(), root.clone(), None);
        let (own, behind) = (mesh.clone(), staging.clone());
        let other = other.filter(|_| number + 1 == count);
        tokio::spawn(async move {
            while let Some(event) = incoming.recv().await {
                let MeshEvent::Message(from, PeerMsg::Stage(message)) = event else { continue };
                match other {
                    Some(other) => other(&own, from, message),
                    None => behind.peer(from, message),
                }
            }
        });
        all.push(Node { mesh, staging, root });
    }
    let up = |node: &Node| node.mesh.nodes().iter().filter(|one| one.state == pulc_control::NodeState::Up).count();
    while !all.iter().all(|node| up(node) == count) {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    all
}

fn quiet() -> Ticker {
    Ticker::new(|| ())
}

/// A stage with one input of so many bytes, looked at by the first node; its file is removed if `gone`.
async fn surveyed(node: &Node, bytes: usize, keep: bool) -> (Stage, Vec<u8>) {
    let mut text = vec![0; bytes];
    blake3::Hasher::new().finalize_xof().fill(&mut text);
    let path = node.root.join("input");
    fs::write(&path, &text).unwrap();
    let files = vec![file(Role::Input, "input", path.to_str().unwrap())];
    let stage = Stage { directory: true, files, ..Stage::default() };
    (node.staging.survey(stage, None, keep, quiet()).await.unwrap(), text)
}

/// Each node sees the first one's files: that they don't have them is what is tested.
fn hidden(mut stage: Stage) -> Stage {
    for file in &mut stage.files {
        file.path = [b"/no/such", &file.path[..]].concat();
    }
    stage
}

fn on_a_runtime(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
}

fn finish(nodes: Vec<Node>) {
    nodes.into_iter().for_each(|node| fs::remove_dir_all(node.root).unwrap());
}

fn count(node: &Node, place: &str) -> usize {
    fs::read_dir(node.root.join(place)).into_iter().flatten().count()
}

#[test]
fn a_file_goes_from_node_to_node_and_comes_once() {
    on_a_runtime(async {
        let nodes = nodes("chain", 3, None).await;
        let (stage, text) = surveyed(&nodes[0], 3_000_001, false).await;
        // The last asks the middle one, which has only begun to ask the first.
        let (first, middle) = (nodes[0].mesh.me(), nodes[1].mesh.me());
        let wanted: Vec<Wanted> =
            nodes[1..].iter().map(|node| node.staging.want(hidden(stage.clone()), None)).collect();
        let again = nodes[1].staging.want(hidden(stage.clone()), None);
        let [one, two] = <[Wanted; 2]>::try_from(wanted).ok().unwrap();
        let (at_two, at_one, twice) = tokio::join!(
            nodes[2].staging.stage(JobId(1), two, middle, quiet()),
            nodes[1].staging.stage(JobId(1), one, first, quiet()),
            nodes[1].staging.stage(JobId(2), again, first, quiet()),
        );
        for made in [at_two, at_one, twice] {
            let placed = made.ok().unwrap().take();
            assert_eq!(fs::read(placed.directory.unwrap().join("input")).unwrap(), text);
            remove(&placed.room.unwrap());
        }
        assert_eq!((count(&nodes[1], "files"), count(&nodes[2], "files"), count(&nodes[1], "coming")), (1, 1, 0));
        // At home there was never a need for a copy.
        assert_eq!(count(&nodes[0], "files"), 0);
        finish(nodes);
    });
}

#[test]
fn what_was_kept_at_submission_travels_though_it_was_changed_and_else_that_is_said() {
    on_a_runtime(async {
        for keep in [true, false] {
            let nodes = nodes("changed", 2, None).await;
            let (stage, text) = surveyed(&nodes[0], 300_000, keep).await;
            fs::write(nodes[0].root.join("input"), "something else").unwrap();
            let wanted = nodes[1].staging.want(hidden(stage.clone()), None);
            let made = nodes[1].staging.stage(JobId(1), wanted, nodes[0].mesh.me(), quiet()).await;
            let at_home = nodes[0].staging.want(stage, None);
            let at_home = nodes[0].staging.stage(JobId(1), at_home, nodes[0].mesh.me(), quiet()).await;
            for made in [made, at_home] {
                match made.map(Made::take) {
                    Ok(placed) if keep => assert_eq!(fs::read(placed.directory.unwrap().join("input")).unwrap(), text),
                    Err(why) if !keep => assert!(why.contains("was changed or removed since the job"), "{why}"),
                    other => panic!("{keep}: {other:?}"),
                }
            }
            finish(nodes);
        }
    });
}

/// Answers with bytes of its own.
fn liar(mesh: &Mesh, from: NodeId, message: StageMsg) {
    if let StageMsg::Get { content, at, len, .. } = message {
        let data = StageMsg::Data { hash: content.hash, at, bytes: vec![7; len as usize] };
        mesh.send(from, PeerMsg::Stage(data)).unwrap();
    }
}

/// Answers with more, elsewhere, than was asked for.
fn bender(mesh: &Mesh, from: NodeId, message: StageMsg) {
    if let StageMsg::Get { content, at, len, .. } = message {
        let data = StageMsg::Data { hash: content.hash, at: at ^ 1, bytes: vec![7; len as usize + 1] };
        mesh.send(from, PeerMsg::Stage(data)).unwrap();
    }
}

#[test]
fn a_node_that_sends_something_else_is_found_out_and_nothing_of_it_is_kept() {
    on_a_runtime(async {
        let nonsense: [(Other, &str); 2] =
            [(liar, "something else came than was announced"), (bender, "has sent what was not asked for")];
        for (other, said) in nonsense {
            let nodes = nodes("liar", 2, Some(other)).await;
            let (stage, _) = surveyed(&nodes[0], 400_000, false).await;
            fs::remove_file(nodes[0].root.join("input")).unwrap();
            let wanted = nodes[0].staging.want(hidden(stage), None);
            let made = nodes[0].staging.stage(JobId(1), wanted, nodes[1].mesh.me(), quiet()).await;
            let why = made.err().unwrap();
            assert!(why.contains(said), "{why}");
            assert_eq!((count(&nodes[0], "files"), count(&nodes[0], "coming"), count(&nodes[0], "jobs")), (0, 0, 0));
            finish(nodes);
        }
    });
}

#[test]
fn who_does_not_know_what_is_in_a_file_gets_nothing_of_it() {
    on_a_runtime(async {
        let nodes = nodes("curious", 2, None).await;
        let secret = nodes[0].root.join("secret");
        fs::write(&secret, "secret").unwrap();
        let mut files = vec![file(Role::Input, "x", secret.to_str().unwrap())];
        files[0].content = content(b"guess!");
        let stage = Stage { directory: true, files, ..Stage::default() };
        // The same length, at a path that is right.
        let get = |at, len| serve::Get { content: stage.files[0].content, path: stage.files[0].path.clone(), at, len };
        for get in [get(0, 6), get(0, 7), get(u64::MAX, 6), get(0, u32::MAX)] {
            assert!(nodes[0].staging.answer_to(nodes[1].mesh.me(), &get).await.is_err());
        }
        finish(nodes);
    });
}

#[test]
fn a_job_that_is_stopped_in_the_middle_leaves_nothing_and_keeps_nobody_waiting() {
    on_a_runtime(async {
        fn silent(_: &Mesh, _: NodeId, _: StageMsg) {}
        let nodes = nodes("stopped", 2, Some(silent)).await;
        let (stage, text) = surveyed(&nodes[0], 400_000, false).await;
        let asked = hidden(stage.clone());
        let wanted = nodes[0].staging.want(asked.clone(), None);
        let (staging, from) = (nodes[0].staging.clone(), nodes[1].mesh.me());
        let fetching = tokio::spawn(async move { staging.stage(JobId(1), wanted, from, quiet()).await });
        while count(&nodes[0], "coming") == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        // Another job that wants it and finds it here.
        let other = nodes[0].staging.want(stage, None);
        fetching.abort();
        let made = nodes[0].staging.stage(JobId(2), other, nodes[0].mesh.me(), quiet()).await.ok().unwrap();
        assert_eq!(fs::read(made.placed.directory.as_ref().unwrap().join("input")).unwrap(), text);
        drop(made);
        assert!(lock(&nodes[0].staging.inner.pending).is_empty() && lock(&nodes[0].staging.inner.incoming).is_empty());
        assert_eq!((count(&nodes[0], "coming"), count(&nodes[0], "jobs")), (0, 0));
        finish(nodes);
    });
}

#[test]
fn what_cannot_travel_is_named() {
    on_a_runtime(async {
        let nodes = nodes("named", 1, None).await;
        let stage = Stage { directory: true, files: vec![file(Role::Input, "x", "/no/such/file")], ..Stage::default() };
        let why = nodes[0].staging.survey(stage, None, false, quiet()).await.unwrap_err();
        assert!(why.starts_with("/no/such/file cannot travel with the job: No such file"), "{why}");
        assert!(!Path::new("/no/such").exists());
        finish(nodes);
    });
}
