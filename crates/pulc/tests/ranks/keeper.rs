//! A keeper just large enough for tests of ranks: starts copies of this test binary as ranks, gives them their job, brokers
//! their channels and tells who ended. The real one is `pulc keeper`; this one exists so that the handler is tested against
//! the words of `boot`, and can say wrong ones.

use pulc_base::boot::{self, Boot, BootNode, BootTask, Gone, RailKind, ToKeeper, ToRank};
use pulc_base::{JobId, NodeId, PROTOCOL_VERSION, Rank};
use pulc_hal::board::Board;
use pulc_hal::os::fdpass::{Listener, Seqpacket};
use pulc_hal::os::memfd;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// A guard against hanging tests, nothing more.
const HANG: Duration = Duration::from_secs(180);

/// What a test wants.
pub struct Job {
    pub scene: &'static str,
    /// What the ranks are; without one, copies of this test binary that play the scene.
    pub program: Option<PathBuf>,
    /// Ranks of each node.
    pub nodes: Vec<u32>,
    pub env: Vec<(&'static str, String)>,
    pub version: u32,
}

impl Job {
    pub fn on_one_node(scene: &'static str, ranks: u32) -> Job {
        Job { scene, program: None, nodes: vec![ranks], env: Vec::new(), version: PROTOCOL_VERSION }
    }

    pub fn on_nodes(scene: &'static str, nodes: &[u32]) -> Job {
        Job { nodes: nodes.to_vec(), ..Job::on_one_node(scene, 0) }
    }

    pub fn with(mut self, name: &'static str, value: &str) -> Job {
        self.env.push((name, value.to_owned()));
        self
    }

    fn rails(&self) -> Vec<RailKind> {
        let text = self.env.iter().find(|(name, _)| *name == boot::ENV_RAILS).map_or("udp", |(_, value)| value);
        boot::parse_rails(text).unwrap()
    }

    /// Runs the job; how each rank ended.
    pub fn run(self) -> Vec<ExitStatus> {
        Keeper::start(self).wait()
    }

    /// Runs the job; every rank must succeed.
    pub fn succeeds(self) {
        let scene = self.scene;
        for (rank, status) in self.run().into_iter().enumerate() {
            assert!(status.success(), "rank {rank} of {scene} ended with {status}");
        }
    }
}

fn bind(kind: RailKind) -> (SocketAddr, OwnedFd) {
    match kind {
        RailKind::Udp => {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            (socket.local_addr().unwrap(), socket.into())
        }
        RailKind::Tcp => {
            let socket = TcpListener::bind("127.0.0.1:0").unwrap();
            (socket.local_addr().unwrap(), socket.into())
        }
    }
}

struct Place {
    connection: Option<Arc<Seqpacket>>,
    early: Vec<(Vec<u8>, Vec<OwnedFd>)>,
    sockets: Vec<OwnedFd>,
    node: usize,
    local_rank: u32,
}

struct State {
    boards: Vec<(Board, OwnedFd)>,
    boot: OwnedFd,
    boot_bytes: u32,
    sizes: Vec<u32>,
    places: Vec<Mutex<Place>>,
    version: u32,
}

pub struct Keeper {
    children: Vec<Arc<Mutex<Child>>>,
    state: Arc<State>,
}

impl Keeper {
    pub fn start(job: Job) -> Keeper {
        static JOBS: AtomicU32 = AtomicU32::new(0);
        let name = format!("pulc-test-{}-{}", std::process::id(), JOBS.fetch_add(1, Ordering::Relaxed));
        let rails = if job.nodes.len() > 1 { job.rails() } else { Vec::new() };
        let mut places = Vec::new();
        let mut tasks = Vec::new();
        for (node, ranks) in job.nodes.iter().enumerate() {
            for local_rank in 0..*ranks {
                let (addresses, sockets) = rails.iter().map(|kind| bind(*kind)).unzip();
                tasks.push(BootTask { node: node as u32, rails: addresses });
                places.push(Mutex::new(Place { connection: None, early: Vec::new(), sockets, node, local_rank }));
            }
        }
        let nodes = (0..job.nodes.len()).map(|n| BootNode { id: NodeId([n as u8; 16]), name: format!("node{n}") });
        let boot = Boot { version: job.version, job: JobId(42), nodes: nodes.collect(), tasks };
        let boot = boot::encode(&boot);
        let state = Arc::new(State {
            boards: job.nodes.iter().map(|ranks| Board::create(*ranks).unwrap()).collect(),
            boot: memfd::create_constant("boot", &boot).unwrap(),
            boot_bytes: boot.len() as u32,
            sizes: job.nodes.clone(),
            places,
            version: job.version,
        });
        let listener = Listener::bind(name.as_bytes()).unwrap();
        let children: Vec<Arc<Mutex<Child>>> =
            (0..state.places.len()).map(|rank| Arc::new(Mutex::new(spawn(&job, rank, &name)))).collect();
        for child in &children {
            drop(child.lock().unwrap().stdin.take());
        }
        let keeper = Keeper { children, state };
        keeper.serve(listener);
        keeper
    }

    pub fn kill(&self, rank: usize) {
        self.children[rank].lock().unwrap().kill().unwrap();
    }

    pub fn wait(self) -> Vec<ExitStatus> {
        self.children.iter().map(wait_for).collect()
    }

    /// Waits until a rank has said something on its standard output.
    pub fn hear(&self, rank: usize) -> String {
        use std::io::BufRead;
        let mut child = self.children[rank].lock().unwrap();
        let out = child.stdout.as_mut().unwrap();
        let mut line = String::new();
        // The test harness of the child talks too; ours begin with a mark.
        let mut reader = std::io::BufReader::with_capacity(1, out);
        while !line.contains('@') {
            line.clear();
            assert!(reader.read_line(&mut line).unwrap() > 0, "rank {rank} said nothing");
        }
        line
    }

    fn serve(&self, listener: Listener) {
        let (state, children) = (Arc::clone(&self.state), self.children.clone());
        thread::spawn(move || {
            let begin = Instant::now();
            let mut left = children.len();
            while left > 0 && begin.elapsed() < HANG {
                match listener.accept() {
                    Ok(connection) => {
                        left -= 1;
                        let (state, children) = (Arc::clone(&state), children.clone());
                        thread::spawn(move || state.attend(connection, &children));
                    }
                    Err(_) => thread::sleep(Duration::from_millis(1)),
                }
            }
        });
    }
}

fn wait_for(child: &Arc<Mutex<Child>>) -> ExitStatus {
    let begin = Instant::now();
    loop {
        if let Some(status) = child.lock().unwrap().try_wait().unwrap() {
            return status;
        }
        if begin.elapsed() > HANG {
            child.lock().unwrap().kill().unwrap();
        }
        thread::sleep(Duration::from_millis(2));
    }
}

fn spawn(job: &Job, rank: usize, name: &str) -> Child {
    let mut command = match &job.program {
        Some(program) => Command::new(program),
        None => {
            let mut copy = Command::new(std::env::current_exe().unwrap());
            copy.args(["--exact", "as_a_rank", "--nocapture", "--test-threads=1"]);
            copy
        }
    };
    command.env("PULC_TEST_SCENE", job.scene).env(boot::ENV_KEEPER, name).env(boot::ENV_RANK, rank.to_string());
    command.env(boot::ENV_COOKIE, format!("{rank:032x}")).stdout(Stdio::piped()).stdin(Stdio::piped());
    command.envs(job.env.iter().map(|(name, value)| (name, value)));
    command.spawn().unwrap()
}

impl State {
    fn attend(&self, connection: Seqpacket, children: &[Arc<Mutex<Child>>]) {
        connection.set_nonblocking(false).unwrap();
        let mut buffer = [0; boot::MESSAGE_MAX];
        let hello = connection.recv(&mut buffer).unwrap().unwrap();
        let Ok(ToKeeper::Hello { version, rank, cookie }) = boot::decode(&buffer[..hello.bytes]) else {
            panic!("no hello")
        };
        let connection = Arc::new(connection);
        if version != self.version || u128::from_be_bytes(cookie) != u128::from(rank.0) {
            let why = format!("version {version} is not {}", self.version);
            connection.send(&boot::encode(&ToRank::Refused { why }), &[]).unwrap();
            return;
        }
        self.welcome(rank, &connection);
        while let Ok(Some(received)) = connection.recv(&mut buffer) {
            match boot::decode(&buffer[..received.bytes]) {
                Ok(ToKeeper::Pass { to, what }) => {
                    self.tell(to, &ToRank::Passed { from: rank, what }, received.fds);
                }
                Ok(ToKeeper::Abort { .. }) => children.iter().for_each(|child| drop(child.lock().unwrap().kill())),
                other => panic!("rank {rank} said {other:?}"),
            }
        }
        let status = wait_for(&children[rank.0 as usize]);
        let how = match status.code() {
            Some(code) => Gone::Exited(code as u8),
            None => Gone::Killed(status.signal().unwrap_or(0) as u8),
        };
        for to in (0..self.places.len()).filter(|to| *to != rank.0 as usize) {
            self.tell(Rank(to as u32), &ToRank::Gone { rank, how }, Vec::new());
        }
    }

    fn welcome(&self, rank: Rank, connection: &Arc<Seqpacket>) {
        let mut place = self.places[rank.0 as usize].lock().unwrap();
        let (boot_bytes, local_rank, local_size) = (self.boot_bytes, place.local_rank, self.sizes[place.node]);
        let welcome = boot::encode(&ToRank::Welcome { boot_bytes, local_rank, local_size });
        let mut fds = vec![self.boot.as_fd(), self.boards[place.node].1.as_fd()];
        let keys = (self.boards.len() > 1).then(|| memfd::create_constant("keys", &self.keys_of(rank)).unwrap());
        fds.extend(keys.iter().map(AsFd::as_fd));
        fds.extend(place.sockets.iter().map(AsFd::as_fd));
        connection.send(&welcome, &fds).unwrap();
        place.connection = Some(Arc::clone(connection));
        for (bytes, fds) in std::mem::take(&mut place.early) {
            self.send(&place, connection, &bytes, &fds);
        }
        place.sockets.clear();
    }

    /// Each pair has a key of its own, by whatever rule.
    fn keys_of(&self, rank: Rank) -> Vec<u8> {
        let pair = |peer: u32| [rank.0.min(peer) as u8, rank.0.max(peer) as u8].repeat(boot::PAIR_KEY_BYTES / 2);
        (0..self.places.len() as u32).flat_map(pair).collect()
    }

    fn tell(&self, to: Rank, message: &ToRank, fds: Vec<OwnedFd>) {
        let mut place = self.places[to.0 as usize].lock().unwrap();
        let bytes = boot::encode(message);
        match place.connection.clone() {
            Some(connection) => self.send(&place, &connection, &bytes, &fds),
            None => place.early.push((bytes, fds)),
        }
    }

    fn send(&self, place: &Place, connection: &Seqpacket, bytes: &[u8], fds: &[OwnedFd]) {
        let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
        let _ = connection.send(bytes, &fds);
        self.boards[place.node].0.slot(place.local_rank).announce_broker_message();
    }
}
