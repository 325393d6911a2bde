//! Bad input to the real commands: garbage on every open port of a running job, a full disk, too little memory, another protocol
//! version. Which test covers which kind of bad input is listed in docs/bad-input.md.

use crate::harness::{GUARD, Job, TempDir, command, tag};
use crate::ports::Ports;
use pulc_base::NodeId;
use pulc_control::{Reply, Request, frame, socket_name};
use pulc_psid::{identity::Token, membership::Member, mesh};
use pulc_testkit::{run_within, skipped, token_in};
use std::io::Write;
use std::net::{TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::process::{Command, Stdio};

const PULC: &str = env!("CARGO_BIN_EXE_pulc");

/// Why a daemon does not let a machine join whose PULC is of another version.
fn join_as_version(version: u32, token: &str) -> pulc_psid::Error {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let token = Token::parse(token).unwrap();
    let me = Member { id: NodeId([0; 16]), name: "other".to_owned(), addresses: Vec::new(), cores: 1, version };
    runtime.block_on(mesh::join(&token, me)).err().expect("it was let in")
}

/// Bytes of every length up to a limit that look random and are the same every time.
struct Garbage(u64);

impl Garbage {
    fn next(&mut self, longest: usize) -> Vec<u8> {
        let mut word = || {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0
        };
        let length = word() as usize % (longest + 1);
        (0..length).map(|_| word() as u8).collect()
    }
}

#[test]
fn garbage_on_every_port_of_a_running_job_changes_nothing() {
    let mut garbage = Garbage(0x9e37_79b9_7f4a_7c15);
    let (mut hits, mut whole, mut jobs) = (Hits::default(), 0, 0);
    // A job may end before all of its ports have been seen at once.
    while whole == 0 || hits.datagrams <= 100 || hits.lines() <= 10 {
        assert!(jobs < 50, "{jobs} jobs, and in none was every kind of port there and hit: {hits:?}");
        jobs += 1;
        let tag = tag();
        let heat = ["-n", "4", "--nodes", "2", "--rail", "udp,tcp", PULC, "heat"];
        let plate = ["--size", "128", "--steps", "6000", "--verify"];
        let mut job = Job::of(&mut command(&tag, &[&heat[..], &plate].concat()), tag);
        job.wait_for_ranks(4);
        let mut of_this_job = Hits::default();
        while job.child.try_wait().unwrap().is_none() && of_this_job.datagrams + of_this_job.lines() < 20_000 {
            let pids = job.processes().iter().map(|found| found.pid).chain([job.child.id() as i32]).collect::<Vec<_>>();
            let once = Hits::at(&Ports::of(&pids), &mut garbage);
            whole += u32::from(once.is_whole());
            of_this_job.add(&once);
        }
        hits.add(&of_this_job);
        let ended = job.finish();
        assert_eq!(ended.code(), 0, "{}", ended.stderr);
    }
}

/// Messages that have arrived, by kind of port.
#[derive(Default, Debug)]
struct Hits {
    datagrams: usize,
    streams: usize,
    keepers: usize,
    clients: usize,
}

impl Hits {
    /// Something of no meaning for each port.
    fn at(ports: &Ports, garbage: &mut Garbage) -> Hits {
        let mut hits = Hits::default();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..50 {
            for port in &ports.udp {
                // A socket that has just been closed answers with an error, which is no matter here.
                hits.datagrams += usize::from(udp.send_to(&garbage.next(1500), ("127.0.0.1", *port)).is_ok());
            }
        }
        for port in &ports.tcp {
            if let Ok(mut line) = TcpStream::connect(("127.0.0.1", *port)) {
                hits.streams += usize::from(line.write_all(&garbage.next(4000)).is_ok());
            }
        }
        for name in &ports.seqpacket {
            hits.keepers += usize::from(say_to_keeper(name, &garbage.next(300)));
        }
        for name in &ports.stream {
            let line = SocketAddr::from_abstract_name(name).and_then(|name| UnixStream::connect_addr(&name));
            if let Ok(mut line) = line {
                hits.clients += usize::from(line.write_all(&garbage.next(4000)).is_ok());
            }
        }
        hits
    }

    /// Of one round: the rails of four ranks, of UDP and of TCP; the mesh of two nodes, their keepers; the clients' socket.
    fn is_whole(&self) -> bool {
        self.datagrams >= 4 * 50 && self.streams >= 4 + 2 && self.keepers >= 2 && self.clients >= 1
    }

    fn lines(&self) -> usize {
        self.streams + self.keepers + self.clients
    }

    fn add(&mut self, other: &Hits) {
        self.datagrams += other.datagrams;
        self.streams += other.streams;
        self.keepers += other.keepers;
        self.clients += other.clients;
    }
}

/// One message on a keeper's attach socket.
fn say_to_keeper(name: &str, message: &[u8]) -> bool {
    use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    let Ok(address) = SocketAddrUnix::new_abstract_name(name.as_bytes()) else { return false };
    rustix::net::connect(&socket, &address).is_ok() && rustix::net::send(&socket, message, SendFlags::NOSIGNAL).is_ok()
}

#[test]
fn too_little_memory_ends_the_job_with_a_word() {
    let limit = |megabytes: u32| format!("--as={}", megabytes << 20);
    // Below that the program itself cannot be loaded: nobody is there who could say a word.
    let loads = |megabytes: &u32| {
        let mut probe = Command::new("prlimit");
        probe.arg(limit(*megabytes)).args([PULC, "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
        probe.status().unwrap().success()
    };
    let tried = [12, 14, 16, 18, 20, 22, 24, 28, 32, 40, 48, 64, 80].into_iter().filter(loads).collect::<Vec<u32>>();
    assert!(tried.len() >= 5, "{tried:?}");
    let mut named = 0;
    for megabytes in tried {
        let tag = tag();
        let (name, value) = tag.split_once('=').unwrap();
        let mut limited = Command::new("prlimit");
        limited.arg(limit(megabytes)).args([PULC, "run", "--alone", "-n", "2"]);
        limited.args([PULC, "heat", "--size", "512", "--steps", "10", "--verify"]).env(name, value);
        limited.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let ended = Job::of(&mut limited, tag.clone()).finish();
        // Rust's runtime and the loader have words of their own for it.
        assert!(ended.status.success() || !ended.stderr.is_empty(), "{megabytes} MiB: {:?}", ended.status);
        let own = |line: &str| (line.starts_with("pulc: ") || line.starts_with("heat: ")) && line.contains("memory");
        named += u32::from(!ended.status.success() && ended.stderr.lines().any(own));
    }
    assert!(named > 0, "nowhere did PULC itself say what memory was missing for");
}

/// A shell command in a mount namespace with a file system of so many KiB at `$DISK`.
fn on_a_small_disk(kib: u32, script: &str) -> Option<Command> {
    let privileged = rustix::process::geteuid().is_root();
    let unshare = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(if privileged { &["--mount"][..] } else { &["--user", "--map-root-user", "--mount"] });
        command.args(["sh", "-c", script]);
        command
    };
    let mounted = unshare("mount -t tmpfs -o size=4k none /mnt").stderr(Stdio::null()).status();
    if !mounted.is_ok_and(|status| status.success()) {
        return None;
    }
    Some(unshare(&format!("mount -t tmpfs -o size={kib}k none /mnt && DISK=/mnt && {script}")))
}

#[test]
fn a_full_disk_is_named_by_the_daemon_and_nothing_is_kept_running() {
    let mut refusals = 0;
    for kib in [4, 8, 12, 16, 20, 24, 28] {
        let script = format!(
            "export PULC_STATE_DIR=$DISK/state PULC_ENDS_WITH=$PPID; {PULC} up --listen 127.0.0.1:0; up=$?; {PULC} down 2>$DISK/../dev/null; \
             test $up = 0 || {{ {PULC} nodes && echo a daemon runs; }} >&2; exit $up"
        );
        let Some(mut command) = on_a_small_disk(kib, &script) else {
            return skipped("a_full_disk_is_named_by_the_daemon_and_nothing_is_kept_running", "nothing may be mounted");
        };
        command.stdin(Stdio::null());
        let ended = run_within(command, GUARD);
        if ended.code() != Some(0) {
            refusals += 1;
            assert!(ended.stderr.contains("No space left on device (os error 28); make room"), "{kib}: {ended:?}");
            assert!(!ended.stderr.contains("a daemon runs"), "{kib}: {ended:?}");
        }
    }
    assert!(refusals > 0, "no disk was too small: the state takes less room than the smallest of them");
}

#[test]
fn a_full_disk_is_named_by_heat() {
    for (option, file) in [("--png", "a.png"), ("--gif", "a.gif")] {
        let script = format!("{PULC} run --alone -n 2 {PULC} heat --size 300 --steps 60 {option} $DISK/{file}");
        let Some(command) = on_a_small_disk(8, &script) else {
            return skipped("a_full_disk_is_named_by_heat", "nothing may be mounted");
        };
        let ended = run_within(command, GUARD);
        assert_eq!(ended.code(), Some(1), "{ended:?}");
        assert!(ended.stderr.contains(&format!("cannot write /mnt/{file}: No space left on device")), "{ended:?}");
    }
}

#[test]
fn output_to_a_full_disk_ends_the_job_with_a_word() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let tag = tag();
    let mut command = command(&tag, &["-n", "2", "sh", "-c", "while :; do echo text; done"]);
    let ended = Job::of(command.stdout(full), tag.clone()).finish();
    assert_eq!(ended.code(), 1);
    assert!(ended.stderr.contains("output cannot be written (No space left on device"), "{}", ended.stderr);
}

#[test]
fn clients_and_nodes_of_another_version_and_nonsense_are_refused_by_the_daemon() {
    let (home, tag) = (TempDir::new(), tag());
    let (name, value) = tag.split_once('=').unwrap();
    let instance = format!("version-{}", std::process::id());
    let pulc = |arguments: &[&str]| {
        let mut command = Command::new(PULC);
        command.args(arguments).env("PULC_INSTANCE", &instance).env_remove("PULC_STATE_DIR").env(name, value);
        command.env("XDG_STATE_HOME", &home.0).env("PULC_ENDS_WITH", std::process::id().to_string());
        run_within(command, GUARD)
    };
    let up = pulc(&["up", "--listen", "127.0.0.1:0"]).expect_success();
    let refused = join_as_version(999, &token_in(&up.stdout)).to_string();
    let said = format!(
        "speaks protocol version {}, this one 999; use versions of PULC that go together on both",
        mesh::VERSION
    );
    assert!(refused.contains(&said), "{refused}");
    let socket = socket_name(rustix::process::getuid().as_raw(), Some(&instance));
    let answer = |bytes: &[u8]| {
        let mut line = UnixStream::connect_addr(&SocketAddr::from_abstract_name(&socket).unwrap()).unwrap();
        line.set_read_timeout(Some(GUARD)).unwrap();
        line.write_all(bytes).unwrap();
        match frame::read::<Reply>(&mut line).unwrap() {
            Reply::Refused { why } => why,
            other => panic!("not refused but {other:?}"),
        }
    };
    let other = answer(&frame::encode(&Request::Hello { version: 999 }).unwrap());
    assert!(other.contains("the client 999; use the same pulc for both"), "{other}");
    assert!(answer(&[9, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255, 255]).contains("malformed frame"));
    assert!(answer(&u32::MAX.to_le_bytes()).contains("exceeds the limit"));
    assert!(answer(&frame::encode(&Request::Ps).unwrap()).contains("first request must be a hello"));
    pulc(&["nodes"]).expect_success();
    pulc(&["down"]).expect_success();
}
