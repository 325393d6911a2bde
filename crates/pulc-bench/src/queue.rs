//! `pulc bench queue`: what the queue and the cluster under it take, on real daemons in network namespaces of this machine: from a submission
//! to the job's first act, submissions that are on disk, many processes on many nodes, and from a node's end until what it leaves
//! of a job elsewhere is gone. Called by the command line. Kills only what it has started.

use crate::{Error, row};
use pulc_base::clock::now;
use pulc_testkit::cluster::HANG;
use pulc_testkit::{Cluster, Finished, Host, leftovers, wait_until};
use std::fs::File;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::SystemTime;

#[derive(clap::Args)]
pub struct Args {
    /// Nodes of the cluster on which many processes are started
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(2..=64))]
    nodes: u32,
    /// Processes on each of them
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=256))]
    per_node: u32,
    /// How often everything is done
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Nothing that needs a node to be lost, which takes seconds each time
    #[arg(long)]
    no_loss: bool,
    /// One JSON object per line instead of a table
    #[arg(long)]
    json: bool,
}

/// Clients at once, and submissions of each.
pub const CLIENTS: u32 = 16;
pub const EACH: u32 = 25;
/// Submissions of a round over connections that stay.
const KEPT: u32 = 1600;
/// Jobs that wait for a cluster that is full while more are submitted.
const WAITING: [u32; 2] = [1000, 10_000];
/// In the environment of jobs whose node is lost.
pub const MARK: &str = "PULC_BENCH_MARK";

pub fn run(args: &Args) -> Result<ExitCode, Error> {
    let table = Table { json: args.json };
    table.head();
    submissions(args, &table)?;
    for waiting in WAITING {
        behind(waiting, args, &table)?;
    }
    urgent(args, &table)?;
    many_processes(args, &table)?;
    if !args.no_loss {
        lost_nodes(args, &table)?;
    }
    Ok(ExitCode::SUCCESS)
}

pub struct Table {
    pub json: bool,
}

impl Table {
    pub fn head(&self) {
        if !self.json {
            println!("{:>10} {:>10} {:>10}  what", "best", "median", "worst");
        }
    }

    pub fn times(&self, what: &str, mut ns: Vec<f64>) {
        ns.sort_by(f64::total_cmp);
        self.line(what, "ns", &ns, |ns| format!("{:>10}", row::time(ns)));
    }

    pub fn rate(&self, what: &str, mut per_s: Vec<f64>) {
        per_s.sort_by(|one, other| other.total_cmp(one));
        self.line(what, "per_s", &per_s, |per_s| format!("{per_s:>8.0}/s"));
    }

    /// Best, median and worst of what is sorted so.
    fn line(&self, what: &str, unit: &str, sorted: &[f64], shown: impl Fn(f64) -> String) {
        let (Some(&best), Some(&worst)) = (sorted.first(), sorted.last()) else { return };
        let median = sorted[sorted.len() / 2];
        if self.json {
            let mut line = serde_json::json!({ "what": what, "rounds": sorted.len() });
            for (name, value) in [("best", best), ("median", median), ("worst", worst)] {
                line[format!("{name}_{unit}")] = value.into();
            }
            println!("{line}");
        } else {
            println!("{} {} {}  {what}", shown(best), shown(median), shown(worst));
        }
    }
}

/// A started cluster that the controller has seen whole, each node with so many slots.
pub fn cluster(nodes: u32, slots: u32) -> Result<Cluster, Error> {
    let made = Cluster::new(nodes as usize, crate::job::this_program()?);
    let cluster = made.map_err(Error::system("make network namespaces for the nodes"))?;
    cluster.start();
    let host = cluster.host(0);
    let names = wait_until(|| {
        let nodes_seen = array(&host.pulc(&["nodes", "--queue", "--json"]).stdout);
        let up = nodes_seen.iter().filter(|node| node["state"] == "up");
        let names: Vec<String> = up.filter_map(|node| node["name"].as_str().map(str::to_owned)).collect();
        (names.len() == nodes as usize).then_some(names)
    });
    let hung = Error::Hung { seconds: HANG.as_secs() };
    for name in names.ok_or(hung)? {
        done(host.pulc(&["node", &name, "--slots", &slots.to_string()]))?;
    }
    Ok(cluster)
}

fn array(json: &str) -> Vec<serde_json::Value> {
    match serde_json::from_str(json) {
        Ok(serde_json::Value::Array(values)) => values,
        _ => Vec::new(),
    }
}

pub fn done(finished: Finished) -> Result<Finished, Error> {
    if finished.code() == Some(0) {
        return Ok(finished);
    }
    Err(Error::Program {
        program: "pulc".to_owned(),
        text: format!("{:?} {}", finished.status, finished.stderr.trim()),
    })
}

pub fn timed<T>(work: impl FnOnce() -> Result<T, Error>) -> Result<f64, Error> {
    let begin = now();
    work()?;
    Ok(now().since(begin).0 as f64)
}

/// On a cluster of two that does nothing else.
fn submissions(args: &Args, table: &Table) -> Result<(), Error> {
    let cluster = cluster(2, 2)?;
    let host = cluster.host(0);
    let output = cluster.directory().join("first-act");
    let name = output.to_string_lossy().into_owned();
    let (mut acts, mut syncs) = (Vec::new(), Vec::new());
    for _ in 0..args.rounds * 3 {
        let begin = since_1970();
        done(host.pulc(&["submit", "-W", "-o", &name, "date", "+%s%N"]))?;
        let text = std::fs::read_to_string(&output).map_err(Error::system("read a job's output"))?;
        let act: f64 = text.trim().parse().map_err(|_| Error::Nonsense(text.clone()))?;
        acts.push(act - begin);
        syncs.push(timed(|| sync_something(&cluster))?);
    }
    table.times("from the command `pulc submit` to the first act of the job, idle cluster of 2 nodes", acts);
    table.times("one record written and synced by itself, on the disk of the controller", syncs);
    let commands = (0..args.rounds).map(|_| {
        let ns = timed(|| submit_commands(host, CLIENTS, EACH))?;
        Ok(f64::from(CLIENTS * EACH) / ns * 1e9)
    });
    table.rate(
        &format!("submissions that are on disk, each a command of its own, {CLIENTS} at a time"),
        commands.collect::<Result<_, Error>>()?,
    );
    for (clients, times) in [(1, KEPT), (CLIENTS, KEPT / CLIENTS)] {
        let kept = (0..args.rounds).map(|_| {
            let ns = timed(|| submit_kept(host, &["-H"], clients, times))?;
            Ok(f64::from(clients * times) / ns * 1e9)
        });
        table.rate(
            &format!(
                "submissions that are on disk, one after the other over a connection that stays, {clients} of these"
            ),
            kept.collect::<Result<_, Error>>()?,
        );
    }
    let arrays = (0..args.rounds).map(|_| {
        let ns = timed(|| done(host.pulc(&["submit", "-H", "-a", "1-2000", "true"])))?;
        Ok(2000.0 / ns * 1e9)
    });
    table.rate("tasks of an array of 2000 that are on disk, one command", arrays.collect::<Result<_, Error>>()?);
    done(host.pulc(&["down", "--all"])).map(drop)
}

/// On a cluster of two that is full, behind many jobs that wait for it.
fn behind(waiting: u32, args: &Args, table: &Table) -> Result<(), Error> {
    let cluster = cluster(2, 2)?;
    let host = cluster.host(0);
    done(host.pulc(&["submit", "-n", "4", "-o", "/dev/null", "sleep", "100000"]))?;
    let runs = || array(&host.pulc(&["queue", "--json"]).stdout).iter().any(|job| job["state"] == "RUNNING");
    wait_until(|| runs().then_some(())).ok_or(Error::Hung { seconds: HANG.as_secs() })?;
    done(host.pulc(&["submit", "-o", "/dev/null", "-a", &format!("1-{waiting}"), "true"]))?;
    let rates = (0..args.rounds).map(|_| {
        let ns = timed(|| submit_kept(host, &["-o", "/dev/null"], CLIENTS, KEPT / CLIENTS))?;
        Ok(f64::from(KEPT) / ns * 1e9)
    });
    table.rate(
        &format!("submissions that are on disk, over {CLIENTS} connections that stay, behind {waiting} jobs that wait"),
        rates.collect::<Result<_, Error>>()?,
    );
    done(host.pulc(&["down", "--all"])).map(drop)
}

/// So many clients, each of which submits so many jobs over its connection.
fn submit_kept(host: &Host, flags: &[&str], clients: u32, times: u32) -> Result<(), Error> {
    let times = times.to_string();
    let words = [&["submit", "--times", &times][..], flags, &["true"]].concat();
    all_at_once(clients, || done(host.pulc(&words)).map(drop))
}

pub fn since_1970() -> f64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0.0, |since| since.as_nanos() as f64)
}

fn sync_something(cluster: &Cluster) -> Result<(), Error> {
    let path = cluster.host(0).state_dir.join("bench-sync");
    let failed = || Error::system("write to the controller's disk");
    let mut file = File::options().create(true).append(true).open(path).map_err(failed())?;
    file.write_all(&[0; 200]).and_then(|()| file.sync_data()).map_err(failed())
}

/// Commands one after the other, by so many clients. The jobs are held back, so that nothing but their acceptance is measured.
pub fn submit_commands(host: &Host, clients: u32, each: u32) -> Result<(), Error> {
    all_at_once(clients, || (0..each).try_for_each(|_| done(host.pulc(&["submit", "-H", "true"])).map(drop)))
}

pub fn all_at_once(clients: u32, client: impl Fn() -> Result<(), Error> + Sync) -> Result<(), Error> {
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..clients).map(|_| scope.spawn(&client)).collect();
        clients.into_iter().try_for_each(|client| client.join().map_err(|_| Error::Ended)?)
    })
}

/// An urgent job on a cluster of two whose slots all have a job, which stands still for it and goes on.
fn urgent(args: &Args, table: &Table) -> Result<(), Error> {
    let cluster = cluster(2, 2)?;
    let host = cluster.host(0);
    let output = cluster.directory().join("urgent");
    let name = output.to_string_lossy().into_owned();
    done(host.pulc(&["submit", "-n", "4", "-o", "/dev/null", "sh", "-c", "while :; do :; done"]))?;
    let runs = || array(&host.pulc(&["queue", "--json"]).stdout).iter().any(|job| job["state"] == "RUNNING");
    let mut acts = Vec::new();
    for _ in 0..args.rounds {
        wait_until(|| runs().then_some(())).ok_or(Error::Hung { seconds: HANG.as_secs() })?;
        let begin = since_1970();
        done(host.pulc(&["submit", "-W", "-n", "4", "-q", "urgent", "-o", &name, "date", "+%s%N"]))?;
        let text = std::fs::read_to_string(&output).map_err(Error::system("read a job's output"))?;
        let acted: Vec<f64> = text.lines().filter_map(|line| line.trim().parse().ok()).collect();
        // The last of its processes: it runs on all slots.
        let last = acted.iter().copied().reduce(f64::max).filter(|_| acted.len() == 4);
        acts.push(last.ok_or(Error::Nonsense(text))? - begin);
    }
    table.times("from `pulc submit -q urgent` to the first act of its last process, all slots of 2 nodes busy", acts);
    done(host.pulc(&["down", "--all"])).map(drop)
}

fn many_processes(args: &Args, table: &Table) -> Result<(), Error> {
    let (nodes, ranks) = (args.nodes.to_string(), (args.nodes * args.per_node).to_string());
    let cluster = cluster(args.nodes, args.per_node)?;
    let host = cluster.host(0);
    let (mut runs, mut jobs) = (Vec::new(), Vec::new());
    for _ in 0..args.rounds {
        runs.push(timed(|| done(host.pulc(&["run", "-n", &ranks, "--nodes", &nodes, "/bin/true"])))?);
        let words = ["submit", "-W", "-o", "/dev/null", "-n", &ranks, "--nodes", &nodes, "/bin/true"];
        jobs.push(timed(|| done(host.pulc(&words)))?);
    }
    let what = format!("{} processes of /bin/true on each of {nodes} nodes, from command to end", args.per_node);
    table.times(&format!("pulc run: {what}"), runs);
    table.times(&format!("pulc submit -W: {what}"), jobs);
    done(host.pulc(&["down", "--all"])).map(drop)
}

/// How a node is lost.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Loss {
    LinkCut,
    Killed,
}

fn lost_nodes(args: &Args, table: &Table) -> Result<(), Error> {
    let (mut queued, mut cut, mut killed) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..args.rounds.min(5) {
        queued.push(lost(Loss::LinkCut, true)?);
        cut.push(lost(Loss::LinkCut, false)?);
        killed.push(lost(Loss::Killed, false)?);
    }
    let until = "until nothing of its job is left on the other nodes";
    table.times(&format!("from the cut of a node's link {until}, queued job"), queued);
    table.times(&format!("from the cut of a node's link {until}, pulc run"), cut);
    table.times(&format!("from the death of all processes of a node {until}, pulc run"), killed);
    Ok(())
}

/// A job on all of three nodes, of which the last is lost; returns how long anything of it was left on the other two.
fn lost(loss: Loss, queued: bool) -> Result<f64, Error> {
    let cluster = cluster(3, 2)?;
    let host = cluster.host(0);
    let mark = format!("{}-{}", std::process::id(), now().0);
    let variable = format!("{MARK}={mark}");
    let program = ["sh", "-c", "sleep 1000 & wait"];
    let mut client = None;
    if queued {
        let words = ["submit", "--no-requeue", "-o", "/dev/null", "--env", &variable, "-n", "6"];
        done(host.pulc(&[&words[..], &program].concat()))?;
    } else {
        let mut command = host.command();
        command.args(["run", "-n", "6", "--nodes", "3"]).args(program).env(MARK, &mark);
        command
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null());
        client = Some(command.spawn().map_err(Error::system("start a job"))?);
    }
    let hung = || Error::Hung { seconds: HANG.as_secs() };
    // Each of them has a child; the client of `pulc run` carries the mark as well.
    let expected = if queued { 12 } else { 13 };
    wait_until(|| (living(&mark).len() >= expected).then_some(())).ok_or_else(hung)?;
    let on_it: Vec<i32> = cluster.host(2).processes();
    let begin = now();
    match loss {
        Loss::LinkCut => cluster.cut(2).map_err(Error::system("cut a link"))?,
        Loss::Killed => cluster.host(2).kill_everything(),
    }
    let is_clean = || living(&mark).iter().all(|pid| on_it.contains(pid));
    wait_until(|| is_clean().then_some(())).ok_or_else(hung)?;
    let took = now().since(begin);
    if let Some(mut client) = client {
        let _ = client.kill();
        let _ = client.wait();
    }
    drop(cluster);
    Ok(took.0 as f64)
}

/// Processes with this mark.
pub fn living(mark: &str) -> Vec<i32> {
    let lines = leftovers::processes(MARK, mark);
    lines.iter().filter_map(|line| line.split_whitespace().nth(1)?.trim_end_matches(':').parse().ok()).collect()
}
