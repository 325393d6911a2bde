//! Two users on one machine, each with a cluster of two daemons and a job that talks at full speed over shared memory, UDP and TCP.
//! Everybody may see the other one's processes, names and ports, and the second user tries to get in at every one of them.

use super::{Chance, ENV_HONEST, ENV_PART, ENV_TURNS, copy, seed};
use crate::harness::{GUARD, find, tag};
use crate::ports::Ports;
use crate::user::Other;
use pulc_base::boot::{self, ToKeeper, ToRank};
use pulc_base::clock::now;
use pulc_base::{JobId, PROTOCOL_VERSION, Rank};
use pulc_control::frame;
use pulc_control::queue::{QueueRequest, Verb};
use pulc_control::{Reply, Request, StopKind};
use pulc_hal::os::fdpass::Seqpacket;
use pulc_link::{Config, Link, LinkKeys};
use pulc_testkit::{Finished, rounds, run_within, skipped, token_in, wait_until};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const TEST: &str = "a_process_of_another_user_reaches_nothing_while_both_work_at_full_speed";
const FIRST: u32 = 65_534;
const SECOND: u32 = 65_531;
/// The first job of a queue.
const QUEUED: &str = "1";
/// Where the second user is told what there is to try.
const ENV_TARGETS: &str = "PULC_TEST_TARGETS";

/// One user with everything that runs for it.
struct Party {
    user: Other,
    tag: String,
}

impl Party {
    fn new(number: u32) -> Option<Party> {
        let user = Other::user(number)?;
        let copy = copy();
        std::fs::copy(&copy[0], user.path("copy")).expect("this program can be copied");
        Some(Party { user, tag: tag() })
    }

    fn command(&self, node: &str, arguments: &[&str]) -> Command {
        let (name, value) = self.tag.split_once('=').expect("it was made so");
        let mut command = self.user.pulc(arguments);
        command.env("PULC_INSTANCE", node).env(name, value);
        command
    }

    fn pulc(&self, node: &str, arguments: &[&str]) -> Finished {
        run_within(self.command(node, arguments), Duration::from_secs(60))
    }

    fn start_daemons(&self) {
        let up = self.pulc("a", &["up", "--listen", "127.0.0.1:0"]).expect_success();
        self.pulc("b", &["join", "--listen", "127.0.0.1:0", &token_in(&up.stdout)]).expect_success();
        let both = || Some(()).filter(|()| self.pulc("b", &["nodes"]).stdout.matches(" up ").count() == 2);
        wait_until(both).expect("both daemons see each other");
    }

    /// Four ranks on two nodes; returns when they have begun.
    fn start_job(&self, part: &str) -> Talking {
        let words = self.words();
        let mut arguments = vec!["run", "-n", "4", "--nodes", "2", "--rail", "udp,tcp", "--"];
        arguments.extend(words.iter().map(String::as_str));
        let mut command = self.command("a", &arguments);
        command.env(ENV_PART, part).env(ENV_HONEST, "0,1,2,3").env(ENV_TURNS, rounds(600, 3000).to_string());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("pulc can be started");
        let mut said = String::new();
        let mut lines = BufReader::new(child.stdout.take().expect("it is a pipe"));
        while said.matches("has begun").count() < 4 {
            assert!(lines.read_line(&mut said).expect("it is text") > 0, "the job ended: {said}");
        }
        Talking { child, said, lines }
    }

    fn words(&self) -> Vec<String> {
        let mut words = copy();
        words[0] = self.user.path("copy");
        words
    }

    /// The program of this user in a part of its own, outside of any job.
    fn copy_command(&self, part: &str) -> Command {
        let words = self.words();
        let mut command = self.user.program(&words[0]);
        command.args(&words[1..]).env(ENV_PART, part).env_remove(boot::ENV_KEEPER);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn pids(&self) -> Vec<i32> {
        find(&self.tag).iter().map(|found| found.pid).collect()
    }
}

impl Drop for Party {
    fn drop(&mut self) {
        let _ = self.pulc("a", &["down", "--all"]);
        find(&self.tag).iter().for_each(|found| found.kill());
    }
}

/// A job and what it has said so far.
struct Talking {
    child: Child,
    said: String,
    lines: BufReader<std::process::ChildStdout>,
}

impl Talking {
    fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("it is our child").is_none()
    }

    fn expect_success(mut self) {
        self.lines.read_to_string(&mut self.said).expect("it is text");
        let mut errors = String::new();
        self.child.stderr.take().expect("it is a pipe").read_to_string(&mut errors).expect("it is text");
        let status = self.child.wait().expect("it is our child");
        assert!(status.success(), "{status}: {}\n{errors}", self.said);
        assert_eq!(self.said.matches("stood it").count(), 4, "{}\n{errors}", self.said);
    }
}

#[test]
fn a_process_of_another_user_reaches_nothing_while_both_work_at_full_speed() {
    let (Some(first), Some(second)) = (Party::new(FIRST), Party::new(SECOND)) else {
        return skipped(TEST, "needs root and setpriv, to become two other users");
    };
    let seed = seed();
    let tool = build_tool(&second);
    first.start_daemons();
    second.start_daemons();
    let held = ["submit", "--parsable", "-D", "/", "-o", "/dev/null", "sleep", "1000"];
    assert_eq!(first.pulc("a", &held).expect_success().stdout.trim(), QUEUED);
    let mut victim = first.start_job("beside_another_user");
    let neighbour = second.start_job("beside_another_user");
    let pids = first.pids();
    assert!(pids.len() >= 2 + 2 * 2 + 4, "daemons, keepers, guardians and ranks: {pids:?}");
    let ports = Ports::of(&pids);
    assert!(ports.udp.len() >= 4 && ports.tcp.len() >= 6 && ports.seqpacket.len() == 3, "{ports:?}");
    reach_into(&second, &tool, &pids);
    let targets = format!(
        "{seed}\n{}\n{}\n{}\n{}",
        join(&ports.udp),
        join(&ports.tcp),
        ports.seqpacket.join(","),
        ports.stream.join(",")
    );
    let mut attacks = 0;
    while victim.is_running() {
        let mut stranger = second.copy_command("stranger");
        let ended = run_within(std::mem::replace(stranger.env(ENV_TARGETS, &targets), Command::new("true")), GUARD);
        // libtest reports what panicked in there.
        assert_eq!(ended.code(), Some(0), "{ended:?}");
        assert!(ended.stdout.contains("got nowhere"), "{ended:?}");
        attacks += 1;
    }
    assert!(attacks > 0, "the job ended before anybody attacked it");
    victim.expect_success();
    // The job in the queue has seen nothing of it, and its user can see who tried.
    let queued = first.pulc("a", &["job", QUEUED, "--json"]).expect_success().stdout;
    assert!(queued.contains("\"RUNNING\"") && queued.contains("\"attempt\":0"), "{queued}");
    first.pulc("a", &["cancel", QUEUED]).expect_success();
    let log = format!("{}/.local/state/pulc/instance-a/daemon.log", first.user.path("home"));
    let log = std::fs::read_to_string(log).expect("daemons write one");
    assert!(log.contains(&format!("a client was refused: its user is Ok({SECOND})")), "{log}");
    neighbour.expect_success();
    look_at_files(&first, &second);
}

fn join(numbers: &[u16]) -> String {
    numbers.iter().map(u16::to_string).collect::<Vec<_>>().join(",")
}

/// Before the job is started: it does not go on for ever.
fn build_tool(second: &Party) -> String {
    let tool = second.user.path("stranger");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/jobs/safety/stranger.c");
    let built =
        Command::new("cc").args(["-O1", "-o", &tool, source]).status().expect("the build needs a C compiler too");
    assert!(built.success());
    tool
}

/// Everything that the kernel offers to reach another process by its number.
fn reach_into(second: &Party, tool: &str, pids: &[i32]) {
    let pids: Vec<String> = pids.iter().map(i32::to_string).collect();
    let mut stranger = second.user.program(tool);
    stranger.args(&pids);
    let ended = run_within(stranger, GUARD).expect_success();
    assert!(!ended.stdout.contains("reached"), "{}", ended.stdout);
    assert!(ended.stdout.contains("tried"), "{}", ended.stdout);
    // These are ways: root walks them.
    let mut root = Command::new(tool);
    root.arg(&pids[0]);
    let ended = run_within(root, GUARD).expect_success();
    for way in ["mem", "environ", "fd", "process_vm_readv", "pidfd_getfd", "signal"] {
        assert!(ended.stdout.contains(&format!("reached: {way} ")), "{way}: {}", ended.stdout);
    }
}

/// State directories hold keys.
fn look_at_files(first: &Party, second: &Party) {
    let state = format!("{}/.local/state/pulc", first.user.path("home"));
    let mut look = second.user.program("sh");
    look.args(["-c", &format!("ls -R {state}; cat {state}/* {state}/*/*")]);
    let ended = run_within(look, GUARD);
    assert_ne!(ended.code(), Some(0), "{ended:?}");
    assert!(!ended.stdout.contains("PRIVATE KEY") && !ended.stdout.contains("secret"), "{ended:?}");
    let mut root = Command::new("sh");
    root.args(["-c", &format!("cat $(find {state} -type f)")]);
    assert!(!run_within(root, GUARD).expect_success().stdout.is_empty(), "there is nothing to be seen in {state}");
}

/// The part of the second user's process, for one pass over everything there is.
pub fn stranger() {
    let targets = std::env::var(ENV_TARGETS).expect("the test says what there is");
    let mut lines = targets.lines();
    let mut random = Chance(lines.next().and_then(|seed| seed.parse().ok()).unwrap_or(1) | 1);
    let numbers = |line: Option<&str>| -> Vec<u16> {
        line.unwrap_or_default().split(',').filter_map(|number| number.parse().ok()).collect()
    };
    let names = |line: Option<&str>| -> Vec<String> {
        line.unwrap_or_default().split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
    };
    let (udp, tcp) = (numbers(lines.next()), numbers(lines.next()));
    names(lines.next()).iter().for_each(|name| knock_at_a_keeper(name));
    names(lines.next()).iter().for_each(|name| knock_at_a_daemon(name));
    speak_to_rails(&udp, &tcp, &mut random);
    println!("got nowhere");
}

/// The right words with whatever cookie: the kernel has told the keeper who speaks.
fn knock_at_a_keeper(name: &str) {
    for rank in 0..4 {
        // The job may have ended meanwhile.
        let Ok(keeper) = Seqpacket::connect(name.as_bytes()) else { return };
        let hello = ToKeeper::Hello { version: PROTOCOL_VERSION, rank: Rank(rank), cookie: [rank as u8; 16] };
        let _ = keeper.send(&boot::encode(&hello), &[]);
        let mut buffer = [0; boot::MESSAGE_MAX];
        if let Ok(Some(answer)) = keeper.recv(&mut buffer) {
            let message = boot::decode(&buffer[..answer.bytes]);
            let Ok(ToRank::Refused { why }) = message else { panic!("a keeper said {message:?}") };
            assert!(why.contains("belongs to user"), "{why}");
            assert!(answer.fds.is_empty(), "a keeper gave away descriptors");
        }
    }
}

fn knock_at_a_daemon(name: &str) {
    let target = || vec![QUEUED.parse().expect("it is a number")];
    let verbs = [Verb::Cancel(StopKind::AtOnce), Verb::Requeue, Verb::Suspend, Verb::Hold];
    let changes = verbs.map(|verb| QueueRequest::Change { targets: target(), verb });
    let questions =
        [QueueRequest::Queue, QueueRequest::Job(target()[0]), QueueRequest::Events { at_most: 9, follow: false }];
    let queue = changes.into_iter().chain(questions).map(|request| Request::Queue(Box::new(request)));
    let requests = [
        Request::Hello { version: PROTOCOL_VERSION },
        Request::Token,
        Request::Nodes,
        Request::Ps,
        Request::Kill { job: JobId(1), kind: StopKind::AtOnce },
        Request::Down { all: true },
    ];
    let requests = requests.into_iter().chain(queue);
    for request in requests {
        let address = SocketAddr::from_abstract_name(name).expect("it is a name");
        let Ok(mut line) = UnixStream::connect_addr(&address) else { return };
        line.set_read_timeout(Some(GUARD)).expect("a socket");
        // Greeting and request in one go.
        let hello = frame::encode(&Request::Hello { version: PROTOCOL_VERSION }).expect("short");
        let _ = line.write_all(&hello);
        let _ = line.write_all(&frame::encode(&request).expect("short"));
        while let Ok(reply) = frame::read::<Reply>(&mut line) {
            assert!(matches!(reply, Reply::Refused { .. }), "a daemon of another user answered {reply:?}");
        }
    }
}

/// Frames of a job of one's own, and garbage, as fast as they go.
fn speak_to_rails(udp: &[u16], tcp: &[u16], random: &mut Chance) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    for _ in 0..300 {
        for port in udp {
            let bytes = if random.once_in(2) { foreign(random) } else { garbage(random, 1400) };
            let _ = socket.send_to(&bytes, ("127.0.0.1", *port));
        }
    }
    for port in tcp {
        for _ in 0..5 {
            let Ok(mut line) = TcpStream::connect(("127.0.0.1", *port)) else { break };
            line.set_write_timeout(Some(Duration::from_secs(5))).expect("a socket");
            let token = garbage(random, 16);
            let frame = foreign(random);
            let _ = line.write_all(&token);
            let _ = line.write_all(&(frame.len() as u32).to_le_bytes());
            let _ = line.write_all(&frame);
            let _ = line.write_all(&garbage(random, 5000));
        }
    }
}

fn garbage(random: &mut Chance, longest: u64) -> Vec<u8> {
    (0..random.below(longest)).map(|_| random.word() as u8).collect()
}

/// A frame that would be right if the key were.
fn foreign(random: &mut Chance) -> Vec<u8> {
    let (from, to) = (Rank(random.below(4) as u32), Rank(random.below(4) as u32));
    let keys = LinkKeys::derive(&[random.word() as u8; 32], JobId(random.word() as _), from, to);
    let mut link = Link::new(Config::from_params(1400, 1, 1 << 20), keys, now());
    link.send(now(), [b"\x02\0\x10\x01\0\0\0\0let me in", &[]]).expect("an empty link has room");
    let mut out = vec![0; 1400];
    let (_, len) = link.transmit(now(), &mut out).expect("a packet is due");
    out.truncate(len);
    out
}
