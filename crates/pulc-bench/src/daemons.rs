//! `pulc bench daemons`: a cluster of many real daemons, each in a network namespace of this machine: how long they take to find each
//! other, what they cost while nobody wants anything of them, and how fast one process is started on every node. Called by the
//! command line. Kills only what it has started.

use crate::memory::share_of;
use crate::{Error, row};
use pulc_base::clock::{Nanos, now};
use pulc_testkit::{Cluster, Finished, Host};
use std::process::ExitCode;
use std::time::Duration;

#[derive(clap::Args)]
pub struct Args {
    /// Daemons
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(2..=254))]
    nodes: u32,
    /// For how long they are left alone
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// How often a process is started on every node
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// A JSON object instead of sentences
    #[arg(long)]
    json: bool,
}

const LIMIT: Nanos = Nanos::from_ms(600_000);
const MIB: f64 = (1 << 20) as f64;

pub fn run(args: &Args) -> Result<ExitCode, Error> {
    let cluster = Cluster::routed(args.nodes as usize, crate::job::this_program()?)
        .map_err(Error::system("make network namespaces for the nodes"))?;
    let begin = now();
    cluster.start_founder_and_join();
    let joined = now().since(begin);
    for host in cluster.hosts() {
        sees_all(host, args.nodes, begin + LIMIT)?;
    }
    let met = now().since(begin);
    let daemons: Vec<i32> = cluster.hosts().iter().filter_map(Host::daemon_pid).collect();
    let before = burnt(&daemons)?;
    std::thread::sleep(Duration::from_secs(args.seconds));
    let idle = (burnt(&daemons)? - before) / args.seconds as f64;
    let shares: Vec<u64> = daemons.iter().map(|pid| share_of(*pid)).collect::<Result<_, _>>()?;
    let (most, mean) = (shares.iter().max().copied().unwrap_or(0), shares.iter().sum::<u64>() / shares.len() as u64);
    let nodes = args.nodes.to_string();
    let mut runs = Vec::new();
    for _ in 0..args.rounds {
        let begin = now();
        done(cluster.host(0).pulc(&["run", "-n", &nodes, "--nodes", &nodes, "/bin/true"]))?;
        runs.push(now().since(begin).0 as f64);
    }
    runs.sort_by(f64::total_cmp);
    let run = runs[runs.len() / 2];
    let begin = now();
    done(cluster.host(0).pulc(&["down", "--all"]))?;
    cluster.expect_nothing_left();
    let down = now().since(begin);
    if args.json {
        let line = serde_json::json!({
            "nodes": args.nodes, "joined_ns": joined.0, "met_ns": met.0, "idle_cores": idle, "mean_bytes": mean,
            "most_bytes": most, "run_median_ns": run, "down_ns": down.0,
        });
        println!("{line}");
        return Ok(ExitCode::SUCCESS);
    }
    println!("{nodes} daemons on one machine, each in a network namespace of its own");
    println!(
        "{:>12}  from the first `pulc up` until the last one has joined, one after the other",
        row::time(joined.0 as f64)
    );
    println!("{:>12}  and until every one sees all", row::time(met.0 as f64));
    println!("{:>8.2} MiB  memory (PSS) of one, mean; most {:.2} MiB", mean as f64 / MIB, most as f64 / MIB);
    println!(
        "{:>11.1}%  of one core for all of them together while nothing is wanted ({} s), {:.3} % each",
        idle * 100.0,
        args.seconds,
        idle * 100.0 / f64::from(args.nodes)
    );
    println!("{:>12}  one /bin/true on every node, from command to end, median of {}", row::time(run), args.rounds);
    println!("{:>12}  `pulc down --all` until nothing is left", row::time(down.0 as f64));
    Ok(ExitCode::SUCCESS)
}

fn sees_all(host: &Host, nodes: u32, deadline: Nanos) -> Result<(), Error> {
    while host.states().iter().filter(|(_, state)| state == "up").count() != nodes as usize {
        if now() > deadline {
            return Err(Error::Hung { seconds: LIMIT.as_duration().as_secs() });
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

fn done(finished: Finished) -> Result<(), Error> {
    if finished.code() == Some(0) {
        return Ok(());
    }
    let text = format!("{:?} {}", finished.status, finished.stderr.trim());
    Err(Error::Program { program: "pulc".to_owned(), text })
}

/// Seconds of processor time that these processes have used together.
fn burnt(pids: &[i32]) -> Result<f64, Error> {
    let ticks = rustix::param::clock_ticks_per_second() as f64;
    let mut sum = 0.0;
    for pid in pids {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).map_err(Error::system("look at a daemon"))?;
        // The name in brackets may hold anything; user and system time are the 12th and 13th words behind it.
        let behind = text.rsplit_once(')').map_or("", |(_, behind)| behind);
        let words = behind.split_whitespace().skip(11).take(2);
        sum += words.filter_map(|word| word.parse::<f64>().ok()).sum::<f64>() / ticks;
    }
    Ok(sum)
}
