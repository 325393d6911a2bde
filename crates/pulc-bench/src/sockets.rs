//! `pulc bench sockets`: unmodified programs on kernel TCP, on unix sockets, with the kernel's own shortcut (a sockmap, where the rights to load one
//! are there) and with the sockets bypass, in the same run: a 64-byte ping-pong over TCP and UDP, requests of one and of many clients, a stream, connections a second, and redis, iperf3, nginx with wrk and Open MPI over TCP where they are installed. Called by
//! the command line. Rounds are interleaved, and what is shown of the bypass beside kernel TCP are ratios within a round, with the interval in
//! which their median lies; a row whose bytes did not go through rings says so.

use crate::job::{output, this_program};
use crate::socket_mpi::OverTcp;
use crate::socket_plot::{Compared, Comparison};
use crate::{Error, plot, socket_nginx, socket_programs};
use pulc_base::clock::{Nanos, now};
use pulc_hal::os::cpu;
use pulc_hal::os::sockmap::Sockmap;
use std::ffi::OsString;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::OnceLock;

#[derive(clap::Args)]
pub struct Args {
    /// Interleaved rounds, of which the medians are shown
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// One short round: does it all work
    #[arg(long)]
    quick: bool,
    /// Only rows with this in their name
    #[arg(long, default_value = "")]
    only: String,
    /// One JSON object per line instead of a table
    #[arg(long)]
    json: bool,
    /// Folder for a picture of the ratios
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,
}

pub const LIMIT: Nanos = Nanos::from_ms(120_000);
/// For a server that was asked to end.
const PATIENCE: Nanos = Nanos::from_ms(5_000);
const MILLIS: u32 = 300;
const MILLIS_QUICK: u32 = 30;
/// Where there are many.
const CLIENTS: u32 = 50;
/// Whose interval lies below is slower than the kernel.
const SLOWER: f64 = 0.97;

/// How the two ends are connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Path {
    Kernel,
    Unix,
    Sockmap,
    Bypass,
}

const PATHS: [Path; 4] = [Path::Kernel, Path::Unix, Path::Sockmap, Path::Bypass];

/// What stands before programs that are to use the kernel's shortcut, while there is one.
static INTO_SOCKMAP: OnceLock<Vec<OsString>> = OnceLock::new();

/// Where the two ends run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cores {
    /// Where the kernel puts them.
    Free,
    Two,
    One,
}

impl Cores {
    fn name(self) -> &'static str {
        match self {
            Cores::Free => "",
            Cores::Two => " on two cores",
            Cores::One => " on one core",
        }
    }
}

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Contest {
    Pingpong(Cores),
    Datagrams(Cores),
    Stream,
    Connect,
    Requests { clients: u32, cores: Cores },
    Redis { clients: u32, pipeline: u32, requests: u32 },
    Iperf { streams: u32, megabytes: u32 },
    Nginx { clients: u32 },
    Mpi { bytes: usize },
}

impl Contest {
    fn name(self) -> String {
        match self {
            Contest::Pingpong(cores) => format!("64 bytes one way{}, ns", cores.name()),
            Contest::Datagrams(cores) => format!("64 bytes one way by UDP{}, ns", cores.name()),
            Contest::Stream => "stream, GB/s".to_owned(),
            Contest::Requests { clients, cores } => format!("requests of {clients} in epoll{}, 1000/s", cores.name()),
            Contest::Connect => "connections, 1000/s".to_owned(),
            Contest::Redis { clients, pipeline, .. } => {
                format!("redis SET, {clients} clients, pipeline {pipeline}, 1000/s")
            }
            Contest::Iperf { streams, .. } => format!("iperf3, streams: {streams}, GB/s"),
            Contest::Nginx { clients } => format!("nginx, 1000 bytes, {clients} clients of wrk, 1000/s"),
            Contest::Mpi { bytes } => format!("Open MPI over TCP, {bytes} bytes one way, ns"),
        }
    }

    /// A figure in the unit of the name.
    fn shown(self, figure: f64) -> f64 {
        match self {
            Contest::Pingpong(_) | Contest::Datagrams(_) | Contest::Mpi { .. } => figure,
            Contest::Stream | Contest::Iperf { .. } => figure / 1e9,
            Contest::Connect | Contest::Requests { .. } | Contest::Redis { .. } | Contest::Nginx { .. } => figure / 1e3,
        }
    }

    /// How many times better than `other`.
    fn ratio(self, figure: f64, other: f64) -> f64 {
        let is_time = matches!(self, Contest::Pingpong(_) | Contest::Datagrams(_) | Contest::Mpi { .. });
        if is_time { other / figure } else { figure / other }
    }

    fn measure(self, path: Path, millis: u32, mpi: Option<&OverTcp>) -> Result<f64, Error> {
        let has_none = path == Path::Sockmap && (INTO_SOCKMAP.get().is_none() || matches!(self, Contest::Datagrams(_)));
        if has_none {
            return Ok(f64::NAN);
        }
        match self {
            Contest::Pingpong(cores) => ends("pingpong", path, cores, 1, millis),
            Contest::Datagrams(cores) => ends("datagrams", path, cores, 1, millis),
            Contest::Stream => ends("stream", path, Cores::Free, 1, millis),
            Contest::Connect => ends("connect", path, Cores::Free, 1, millis),
            Contest::Requests { clients, cores } => ends("requests", path, cores, clients, millis),
            Contest::Redis { clients, pipeline, requests } => {
                socket_programs::redis(path, clients, pipeline, (requests * millis).div_ceil(MILLIS))
            }
            Contest::Iperf { streams, megabytes } => {
                socket_programs::iperf(path, streams, (megabytes * millis).div_ceil(MILLIS))
            }
            Contest::Nginx { clients } => socket_nginx::answers(path, clients),
            Contest::Mpi { bytes } => mpi.map_or(Ok(f64::NAN), |mpi| mpi.latency(path, bytes, millis)),
        }
    }
}

/// A process that ends with its owner.
pub struct Server(pub Child);

impl Server {
    /// What a server of ours says first: where it can be reached.
    pub fn place(&mut self) -> Result<String, Error> {
        let mut place = String::new();
        if let Some(out) = self.0.stdout.take() {
            BufReader::new(out).read_line(&mut place).map_err(Error::system("hear a server"))?;
        }
        Ok(place.trim().to_owned())
    }

    /// Lets a server end that has children of its own to end.
    pub fn ask_to_end(mut self) {
        let asked = rustix::process::Pid::from_raw(self.0.id() as i32)
            .map(|process| rustix::process::kill_process(process, rustix::process::Signal::TERM));
        let started = now();
        while matches!(asked, Some(Ok(()))) && matches!(self.0.try_wait(), Ok(None)) && now().since(started) < PATIENCE
        {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Words to put before a program.
pub fn before(path: Path) -> Result<Vec<OsString>, Error> {
    Ok(match path {
        Path::Bypass => vec![this_program()?, "bypass".into()],
        Path::Sockmap => INTO_SOCKMAP.get().cloned().unwrap_or_default(),
        Path::Kernel | Path::Unix => Vec::new(),
    })
}

pub fn start(words: &[OsString], out: Stdio) -> Result<Server, Error> {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).stdin(Stdio::null()).stdout(out).stderr(Stdio::null());
    command.spawn().map(Server).map_err(Error::system("start a server"))
}

/// The cores of the server and the client, where they have to stay on some.
fn places(cores: Cores) -> Result<[Option<u32>; 2], Error> {
    let allowed = cpu::allowed_cores()?;
    let (first, last) = (allowed.first().copied(), allowed.last().copied());
    Ok(match cores {
        Cores::Free => [None; 2],
        Cores::One => [first; 2],
        Cores::Two => [first, last],
    })
}

/// Two processes of our own.
fn ends(what: &str, path: Path, cores: Cores, clients: u32, millis: u32) -> Result<f64, Error> {
    let mut words = before(path)?;
    words.push(this_program()?);
    words.extend(["bench", "socket-end", what, "--clients", &clients.to_string()].map(OsString::from));
    words.extend((path == Path::Unix).then(|| "--unix".into()));
    let pinned = |words: &[OsString], core: Option<u32>| {
        let mut words = words.to_vec();
        words.extend(core.map(|core| format!("--core={core}").into()));
        words
    };
    let [server_core, client_core] = places(cores)?;
    let mut server = start(&pinned(&words, server_core), Stdio::piped())?;
    let mut words = pinned(&words, client_core);
    words.extend(["--server", &server.place()?, "--millis", &millis.to_string()].map(OsString::from));
    let said = output(&words, LIMIT)?;
    said.trim().parse().map_err(|_| Error::Nonsense(said))
}

/// Bytes that went through rings since this user's broker is there; none without one.
pub fn ring_bytes() -> Result<u64, Error> {
    let said = output(&[this_program()?, "sockets".into()], LIMIT).unwrap_or_default();
    let bytes = said.lines().find_map(|line| line.strip_prefix("so far ")?.split(' ').next()?.parse().ok());
    Ok(bytes.unwrap_or(0))
}

fn contests(only: &str) -> Vec<Contest> {
    let has_two = cpu::allowed_cores().is_ok_and(|cores| cores.len() > 1);
    let all = [Cores::Free, Cores::Two, Cores::One].into_iter().filter(|cores| has_two || *cores != Cores::Two);
    let mut contests: Vec<Contest> = all.clone().map(Contest::Pingpong).collect();
    contests.extend(all.clone().map(Contest::Datagrams));
    for clients in [1, CLIENTS] {
        contests.extend(all.clone().map(|cores| Contest::Requests { clients, cores }));
    }
    contests.extend([Contest::Stream, Contest::Connect]);
    if socket_programs::has_redis() {
        for (clients, pipeline, requests) in [(1, 1, 10_000), (CLIENTS, 1, 30_000), (CLIENTS, 16, 200_000)] {
            contests.push(Contest::Redis { clients, pipeline, requests });
        }
    }
    if socket_programs::has_iperf() {
        contests.extend([1, 4].map(|streams| Contest::Iperf { streams, megabytes: 500 / streams }));
    }
    if socket_nginx::is_there() {
        contests.extend([1, CLIENTS].map(|clients| Contest::Nginx { clients }));
    }
    contests.extend([8, 64 << 10].map(|bytes| Contest::Mpi { bytes }));
    contests.retain(|contest| contest.name().contains(only));
    contests
}

/// The middle of these, in order.
fn median(sorted: &[f64]) -> f64 {
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

fn sorted(figures: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures
}

/// Between which of these, in order, the median of all rounds that there could be lies, with 95 % at least; of fewer than six nobody
/// knows, and it is the lowest and the highest. Each round is above or below that median like a coin that falls.
fn interval(sorted: &[f64]) -> (f64, f64) {
    let count = sorted.len();
    let (mut outside, mut chance, mut below) = (0, 0.5f64.powi(count as i32), 0.0);
    while outside < count / 2 {
        below += chance;
        if below > 0.025 {
            break;
        }
        chance *= (count - outside) as f64 / (outside + 1) as f64;
        outside += 1;
    }
    let from = outside.saturating_sub(1);
    (sorted[from], sorted[count - 1 - from])
}

/// What the rounds of one contest have come to.
#[derive(Default)]
struct Seen {
    /// By path.
    rounds: Vec<[f64; PATHS.len()]>,
    ring_bytes: u64,
}

impl Seen {
    fn round(&mut self, contest: Contest, first: usize, millis: u32, mpi: Option<&OverTcp>) -> Result<(), Error> {
        let mut figures = [0.0; PATHS.len()];
        for turn in 0..PATHS.len() {
            let at = (first + turn) % PATHS.len();
            let before = if PATHS[at] == Path::Bypass { ring_bytes()? } else { 0 };
            figures[at] = contest.measure(PATHS[at], millis, mpi)?;
            if PATHS[at] == Path::Bypass {
                self.ring_bytes += ring_bytes()?.saturating_sub(before);
            }
        }
        self.rounds.push(figures);
        Ok(())
    }

    /// How many times as good as the kernel another path is, and the interval of that.
    fn ratio(&self, contest: Contest, path: usize) -> (f64, (f64, f64)) {
        let ratios = sorted(self.rounds.iter().map(|figures| contest.ratio(figures[path], figures[0])));
        (median(&ratios), interval(&ratios))
    }

    fn compared(&self, contest: Contest) -> Compared {
        let (bypass, interval) = self.ratio(contest, 3);
        let other = |path| Some(self.ratio(contest, path).0).filter(|ratio| !ratio.is_nan());
        Compared { name: contest.name(), bypass, interval, unix: other(1), sockmap: other(2) }
    }

    fn show(&self, contest: Contest, json: bool) {
        let [kernel, unix, sockmap, bypass] =
            std::array::from_fn(|at| contest.shown(median(&sorted(self.rounds.iter().map(|figures| figures[at])))));
        let (ratio, (low, high)) = self.ratio(contest, 3);
        let name = contest.name();
        if json {
            let line = serde_json::json!({
                "what": name, "kernel": kernel, "unix": unix, "sockmap": sockmap, "bypass": bypass, "ratio": ratio, "low": low,
                "high": high, "rounds": self.rounds.len(), "ring_bytes": self.ring_bytes,
            });
            println!("{line}");
            return;
        }
        let remark = match self.ring_bytes {
            0 => " (nothing went through rings)",
            _ if high < SLOWER => " (slower)",
            _ => "",
        };
        let shown = |figure: f64| if figure.is_nan() { "-".to_owned() } else { format!("{figure:.2}") };
        let (unix, sockmap) = (shown(unix), shown(sockmap));
        println!(
            "{kernel:>10.2} {unix:>10} {sockmap:>10} {bypass:>10.2} {ratio:>7.2} {low:>7.2}-{high:<7.2}  {name}{remark}"
        );
    }
}

pub fn run(args: &Args) -> Result<ExitCode, Error> {
    let mut contests = contests(&args.only);
    let wants_mpi = contests.iter().any(|contest| matches!(contest, Contest::Mpi { .. }));
    let mpi = if wants_mpi { OverTcp::find()? } else { None };
    contests.retain(|contest| mpi.is_some() || !matches!(contest, Contest::Mpi { .. }));
    // It is there until the end of this function.
    let sockmap = Sockmap::make();
    match &sockmap {
        Ok(sockmap) => _ = INTO_SOCKMAP.set(sockmap.before()),
        Err(why) => eprintln!("pulc: the kernel's sockmap is left out: {why}"),
    }
    let (rounds, millis) = if args.quick { (1, MILLIS_QUICK) } else { (args.rounds, MILLIS) };
    let mut seen: Vec<Seen> = contests.iter().map(|_| Seen::default()).collect();
    for round in 0..rounds as usize {
        for (contest, seen) in contests.iter().zip(&mut seen) {
            // Another path is first in each round.
            seen.round(*contest, round, millis, mpi.as_ref())?;
        }
    }
    if !args.json {
        println!(
            "medians of {rounds} interleaved rounds; ratio: bypass beside kernel in a round, and the interval of its median (95 %)"
        );
        let heads = ["kernel", "unix", "sockmap", "bypass"].map(|head| format!("{head:>10}")).join(" ");
        println!("{heads} {:>7} {:>15}", "ratio", "interval");
    }
    contests.iter().zip(&seen).for_each(|(contest, seen)| seen.show(*contest, args.json));
    if let Some(directory) = &args.plots {
        let all = Comparison(contests.iter().zip(&seen).map(|(contest, seen)| seen.compared(*contest)).collect());
        for file in plot::write(&all, &directory.join("sockets"))? {
            eprintln!("{}", file.display());
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_a_median_leaves_out_what_chance_allows() {
        let figures: Vec<f64> = (1..=20).map(f64::from).collect();
        assert_eq!(interval(&figures[..5]), (1.0, 5.0), "of five nobody knows");
        assert_eq!(interval(&figures[..6]), (1.0, 6.0));
        assert_eq!(interval(&figures[..9]), (2.0, 8.0));
        assert_eq!(interval(&figures), (6.0, 15.0));
        assert_eq!(interval(&figures[..1]), (1.0, 1.0));
        assert_eq!(median(&figures[..9]), 5.0);
    }
}
