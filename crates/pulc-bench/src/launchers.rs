//! `pulc bench launchers`: PULC beside what else starts and watches jobs: Slurm, and the launchers of the MPIs on this machine. All on
//! the same nodes, which are network namespaces of this machine, in turns; each does what it can do at all. Called by the command
//! line. Kills only what it has started.

mod slurm;

use crate::Error;
use crate::peers::{Across, Kind, Mpi, others, write_agent};
use crate::queue::{
    CLIENTS, EACH, MARK, Table, all_at_once, cluster, done, living, since_1970, submit_commands, timed,
};
use pulc_base::clock::{Nanos, now};
use pulc_testkit::cluster::HANG;
use pulc_testkit::{Cluster, run_within, wait_until};
use slurm::Slurm;
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

#[derive(clap::Args)]
pub struct Args {
    /// Nodes
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(3..=64))]
    nodes: u32,
    /// Processes on each of them
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=256))]
    per_node: u32,
    /// Interleaved rounds
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// An MPI whose launcher takes part: the folder it is installed in, or NAME=FOLDER. Those in the search path are found
    #[arg(long = "mpi", value_name = "FOLDER")]
    mpis: Vec<String>,
    /// Only these beside PULC: `slurm`, and MPIs by their names
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// How often a node is lost, which takes up to a minute for each launcher; 0: never
    #[arg(long, default_value_t = 1)]
    losses: u32,
    /// One JSON object per line instead of a table
    #[arg(long)]
    json: bool,
}

/// A launcher that takes longer is given up in this round.
const START: Duration = Duration::from_secs(20);
/// Whoever has not noticed the loss of a node by then is said not to.
const PATIENCE: Duration = Duration::from_secs(60);
/// Nodes of the cluster that loses one, and processes of its job on each.
const LOSING: (u32, u32) = (3, 2);

pub fn run(args: &Args) -> Result<ExitCode, Error> {
    let table = Table { json: args.json };
    let wanted = |name: &str| args.only.is_empty() || args.only.iter().any(|only| only == name);
    let mut mpis = others(&args.mpis)?;
    mpis.retain(|mpi| wanted(&mpi.name));
    let others = Others { mpis, slurm: wanted("slurm") };
    table.head();
    {
        let field = Field::new(args.nodes, args.per_node, &others)?;
        starts(args, &field, &table)?;
        submissions(args, &field, &table)?;
        field.end()?;
    }
    if args.losses > 0 {
        losses(args, &others, &table)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Who takes part.
struct Others {
    mpis: Vec<Mpi>,
    slurm: bool,
}

/// Who starts a job and waits for its end.
#[derive(Clone, Copy)]
enum Starter<'a> {
    Pulc,
    Srun,
    Mpi(&'a Mpi),
}

impl Starter<'_> {
    fn name(self) -> String {
        match self {
            Starter::Pulc => "pulc run".into(),
            Starter::Srun => "srun".into(),
            Starter::Mpi(mpi) => format!("{} {}", mpi.name, mpi.version),
        }
    }
}

/// The nodes, and everybody's daemons on them.
struct Field<'a> {
    // Ended before the nodes are.
    slurm: Option<Slurm>,
    cluster: Cluster,
    nodes: u32,
    per_node: u32,
    agent: PathBuf,
    mpis: &'a [Mpi],
}

impl<'a> Field<'a> {
    fn new(nodes: u32, per_node: u32, others: &'a Others) -> Result<Field<'a>, Error> {
        let cluster = cluster(nodes, per_node)?;
        let entered = cluster.hosts().iter().map(|host| {
            let command = host.program_command("env");
            let words = std::iter::once(command.get_program()).chain(command.get_args()).map(OsString::from);
            (IpAddr::from(host.address), words.collect())
        });
        let agent = write_agent(cluster.directory(), &entered.collect::<Vec<_>>())?;
        let slurm = match others.slurm.then(|| Slurm::start(&cluster, per_node)).transpose() {
            Err(why @ Error::NotHere { .. }) => {
                eprintln!("pulc: {why}");
                None
            }
            started => started?,
        };
        Ok(Field { slurm, cluster, nodes, per_node, agent, mpis: &others.mpis })
    }

    fn starters(&self) -> Vec<Starter<'a>> {
        let slurm = self.slurm.as_ref().map(|_| Starter::Srun);
        [Some(Starter::Pulc), slurm].into_iter().flatten().chain(self.mpis.iter().map(Starter::Mpi)).collect()
    }

    /// The command that starts these words on every node and ends with them.
    fn start(&self, starter: Starter<'_>, words: &[&str]) -> Command {
        let host = self.cluster.host(0);
        let ranks = (self.nodes * self.per_node).to_string();
        let mut command = match starter {
            Starter::Pulc => {
                let mut command = host.command();
                command.args(["run", "-n", &ranks, "--nodes", &self.nodes.to_string()]);
                command
            }
            Starter::Srun => {
                let mut command = self.slurm_command("srun");
                command.args(["-N", &self.nodes.to_string(), "-n", &ranks]);
                command
            }
            Starter::Mpi(mpi) => {
                let hosts: Vec<IpAddr> = self.cluster.hosts().iter().map(|host| host.address.into()).collect();
                let across = Across::new(mpi, &self.agent, &hosts, self.per_node);
                let mut command = host.program_command("env");
                command.args(mpi.environment()).args(across.variables).arg(mpi.launcher()).args(across.options);
                if matches!(mpi.kind, Kind::OpenMpi4 | Kind::OpenMpi5) {
                    // It hands on only the environment that it is told of.
                    command.args(["-x", MARK]);
                }
                command.args(["-n", &ranks]);
                command
            }
        };
        command.args(words);
        command
    }

    fn slurm_command(&self, program: &str) -> Command {
        let mut command = self.cluster.host(0).program_command(program);
        if let Some(slurm) = &self.slurm {
            command.env("SLURM_CONF", slurm.configuration());
        }
        command
    }

    /// Ends our daemons in order; whatever else there is goes with the nodes.
    fn end(self) -> Result<(), Error> {
        done(self.cluster.host(0).pulc(&["down", "--all"])).map(drop)
    }
}

fn starts(args: &Args, field: &Field<'_>, table: &Table) -> Result<(), Error> {
    let starters = field.starters();
    let output = field.cluster.directory().join("ended");
    let (mut times, mut pulc_queue, mut slurm_queue) = (vec![Vec::new(); starters.len()], Vec::new(), Vec::new());
    let ranks = (field.nodes * field.per_node).to_string();
    let nodes = field.nodes.to_string();
    for _ in 0..args.rounds {
        for (starter, times) in starters.iter().zip(&mut times) {
            let mut command = field.start(*starter, &["/bin/true"]);
            command.env(MARK, "");
            let begin = now();
            let finished = run_within(command, START);
            match finished.status {
                Some(_) => done(finished).map(|_| times.push(now().since(begin).0 as f64))?,
                None => eprintln!("pulc: {} did not come to its end within {START:?}", starter.name()),
            }
        }
        let words = ["submit", "-W", "-o", "/dev/null", "-n", &ranks, "--nodes", &nodes, "/bin/true"];
        pulc_queue.push(timed(|| done(field.cluster.host(0).pulc(&words)))?);
        if field.slurm.is_some() {
            let script = format!("srun -n {ranks} /bin/true; date +%s%N");
            slurm_queue.push(sbatch(field, &["-N", &nodes, "-n", &ranks], &script, &output)?);
        }
    }
    let what = format!("{} processes of /bin/true on each of {nodes} nodes, from command to end", args.per_node);
    for (starter, times) in starters.iter().zip(times) {
        let given_up = match args.rounds as usize - times.len() {
            0 => String::new(),
            number => format!(" ({number} of {} given up after {START:?})", args.rounds),
        };
        table.times(&format!("{}: {what}{given_up}", starter.name()), times);
    }
    table.times(&format!("pulc submit -W: {what}"), pulc_queue);
    table.times(&format!("sbatch with srun in it: {what} of srun"), slurm_queue);
    Ok(())
}

/// From `sbatch` to what its script tells of the time, in nanoseconds.
fn sbatch(field: &Field<'_>, options: &[&str], script: &str, output: &Path) -> Result<f64, Error> {
    let _ = std::fs::remove_file(output);
    let begin = since_1970();
    let mut command = field.slurm_command("sbatch");
    command.args(options).arg("-o").arg(output).args(["--wrap", script]);
    done(run_within(command, HANG))?;
    let told = wait_until(|| std::fs::read_to_string(output).ok()?.trim().parse::<f64>().ok());
    Ok(told.ok_or(Error::Hung { seconds: HANG.as_secs() })? - begin)
}

fn submissions(args: &Args, field: &Field<'_>, table: &Table) -> Result<(), Error> {
    let host = field.cluster.host(0);
    let output = field.cluster.directory().join("first-act");
    let name = output.to_string_lossy().into_owned();
    let (mut ours, mut slurms) = (Vec::new(), Vec::new());
    for _ in 0..args.rounds * 3 {
        let begin = since_1970();
        done(host.pulc(&["submit", "-W", "-o", &name, "date", "+%s%N"]))?;
        let text = std::fs::read_to_string(&output).map_err(Error::system("read a job's output"))?;
        ours.push(text.trim().parse::<f64>().map_err(|_| Error::Nonsense(text.clone()))? - begin);
        if field.slurm.is_some() {
            slurms.push(sbatch(field, &["-n", "1"], "date +%s%N", &output)?);
        }
    }
    let what = "from the command to the first act of the job, idle cluster";
    table.times(&format!("pulc submit: {what}"), ours);
    table.times(&format!("sbatch: {what}"), slurms);
    let (mut ours, mut slurms) = (Vec::new(), Vec::new());
    let rate = |ns: f64| f64::from(CLIENTS * EACH) / ns * 1e9;
    for _ in 0..args.rounds {
        ours.push(rate(timed(|| submit_commands(host, CLIENTS, EACH))?));
        if field.slurm.is_some() {
            let held = || {
                let mut command = field.slurm_command("sbatch");
                command.args(["-H", "-o", "/dev/null", "--wrap", "true"]);
                done(run_within(command, HANG)).map(drop)
            };
            slurms.push(rate(timed(|| all_at_once(CLIENTS, || (0..EACH).try_for_each(|_| held())))?));
        }
    }
    let what = format!("submissions, each a command of its own, {CLIENTS} at a time");
    table.rate(&format!("pulc submit -H: {what}"), ours);
    table.rate(&format!("sbatch -H: {what}"), slurms);
    Ok(())
}

/// A job on all of three nodes, of which the last one's cable is cut.
fn losses(args: &Args, others: &Others, table: &Table) -> Result<(), Error> {
    let (nodes, per_node) = LOSING;
    let names: Vec<String> = Field::new(nodes, per_node, others)?.starters().iter().map(|one| one.name()).collect();
    for (index, name) in names.iter().enumerate() {
        let (mut times, mut missed) = (Vec::new(), 0);
        for _ in 0..args.losses {
            let field = Field::new(nodes, per_node, others)?;
            match lost(&field, field.starters()[index])? {
                Some(took) => times.push(took.0 as f64),
                None => missed += 1,
            }
        }
        table.times(
            &format!("{name}: from the cut of a node's link until nothing of the job is left on the others"),
            times,
        );
        if missed > 0 && !args.json {
            println!("{:>32}  {name}: the job was still there {PATIENCE:?} after the cut of a node's link", missed);
        }
    }
    Ok(())
}

fn lost(field: &Field<'_>, starter: Starter<'_>) -> Result<Option<Nanos>, Error> {
    let mark = format!("{}-{}", std::process::id(), now().0);
    let mut command = field.start(starter, &["sleep", "1000"]);
    command.env(MARK, &mark).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut client = command.spawn().map_err(Error::system("start a job"))?;
    let sleepers = || -> Vec<i32> {
        let is_one =
            |pid: &i32| std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "sleep");
        living(&mark).into_iter().filter(is_one).collect()
    };
    let all = (field.nodes * field.per_node) as usize;
    let started = wait_until(|| (sleepers().len() == all).then_some(()));
    let on_it = field.cluster.host(2).processes();
    let begin = now();
    let mut gone = None;
    if started.is_some() {
        field.cluster.cut(2).map_err(Error::system("cut a link"))?;
        let limit = begin + Nanos::from(PATIENCE);
        while gone.is_none() && now() < limit {
            std::thread::sleep(Duration::from_millis(10));
            let is_clean = sleepers().iter().all(|pid| on_it.contains(pid));
            gone = is_clean.then(|| now().since(begin));
        }
    }
    let _ = client.kill();
    let _ = client.wait();
    started.map(|()| gone).ok_or(Error::Hung { seconds: HANG.as_secs() })
}
