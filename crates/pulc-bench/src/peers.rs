//! `pulc bench peers`: PULC beside every MPI on this machine, the comparison that Parnass made of all the MPIs on the cluster. One
//! C program, compiled by each one's compiler and started by its launcher; rounds are interleaved, what is shown are medians and ratios of
//! medians of the same rounds.

mod across;
mod between;
mod find;
mod shown;
mod tasks;

use crate::Error;
use crate::job::output;
use crate::rounds::{BUDGET_QUICK, Wanted, measure};
use crate::row::{Layer, Place, Row};
pub use across::{Across, write_agent};
use between::Between;
pub use find::{Kind, Mpi, in_path, which};
use pulc_base::clock::{Nanos, now};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tasks::Task;

#[derive(clap::Args)]
pub struct Args {
    /// Folder with PULC as `cargo xtask dist` makes it; by default the one that this program lies in
    #[arg(long)]
    pulc: Option<PathBuf>,
    /// Another MPI to compare with: the folder it is installed in, or NAME=FOLDER. Those in the search path are found
    #[arg(long = "mpi", value_name = "FOLDER")]
    mpis: Vec<String>,
    /// Only MPIs with these names (PULC is always there)
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Processes of the collectives
    #[arg(short = 'n', long, value_delimiter = ',', default_value = "2,4,8,16,32")]
    ranks: Vec<u32>,
    /// Places of messages between two processes
    #[arg(long, value_enum, value_delimiter = ',', default_value = "node,core")]
    places: Vec<Place>,
    /// Processes of the job whose start and end is timed; 0: none
    #[arg(long, default_value_t = 128)]
    start: u32,
    /// Processes whose shares of memory are looked at; 0: none
    #[arg(long, default_value_t = 32)]
    memory: u32,
    /// Interleaved rounds
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Milliseconds for each figure in each round
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    budget_ms: u32,
    /// One short round with few processes: does it all work
    #[arg(long)]
    quick: bool,
    /// Leave collectives out
    #[arg(long)]
    no_collectives: bool,
    /// Leave messages between two processes, at whatever place, out
    #[arg(long)]
    no_messages: bool,
    /// One JSON object per line instead of a table
    #[arg(long)]
    json: bool,
    /// Folder for plots of latency and bandwidth
    #[arg(long)]
    plots: Option<PathBuf>,
}

/// What every MPI compiles.
pub const SOURCE: &str = include_str!("../assets/peers.c");
/// Some MPIs take seconds for one collective with more processes than cores; longer than this nobody is waited for.
const LIMIT: Nanos = Nanos::from_ms(60_000);
const LIMIT_QUICK: Nanos = Nanos::from_ms(20_000);
/// Bytes that are handed over in a cache line, and sizes of memcpy beside the messages.
const LINE: usize = 8;
const COPIES: [usize; 3] = [64 << 10, 1 << 20, 16 << 20];

/// What a value belongs to: the run, the figure, bytes.
type Key = (Task, String, usize);

/// What all rounds have found.
#[derive(Default)]
struct Found {
    /// By figure, then by the index of the MPI: a value of each round; none where it failed.
    values: BTreeMap<Key, Vec<Vec<Option<f64>>>>,
    /// Of each round: memcpy in bytes a second by size.
    copies: BTreeMap<usize, Vec<f64>>,
    /// By the index of the MPI: of each round the hand-over of a cache line in nanoseconds, the slower one of that before and that after
    /// its messages between two cores. A hypervisor moves virtual cores nearer to each other and apart within minutes.
    hops: Vec<Vec<Option<f64>>>,
    /// What is not tried again, and why.
    given_up: BTreeMap<(usize, Task), String>,
}

pub fn run(args: &Args) -> Result<ExitCode, Error> {
    let folder = Folder::new("pulc-peers")?;
    let mpis = all_mpis(args)?;
    let mut ready = Vec::new();
    let source = folder.0.join("peers.c");
    std::fs::write(&source, SOURCE).map_err(Error::system("write a program"))?;
    for mpi in mpis {
        let program = folder.0.join(format!("peers.{}", ready.len()));
        match mpi.compile(&source, &program) {
            Ok(()) => ready.push((mpi, program)),
            Err(error) if mpi.kind == Kind::Pulc => return Err(error),
            Err(error) => eprintln!("pulc: {} is left out, it compiles nothing: {error}", mpi.name),
        }
    }
    let found = measure_all(args, &ready, &folder.0)?;
    let mpis: Vec<&Mpi> = ready.iter().map(|(mpi, _)| mpi).collect();
    if args.json {
        shown::json(&mpis, &found);
    } else {
        shown::table(&mpis, &found);
    }
    if let Some(directory) = &args.plots {
        for file in shown::plots(&mpis, &found, directory)? {
            eprintln!("{}", file.display());
        }
    }
    for ((index, task), why) in &found.given_up {
        eprintln!("pulc: {} {} was given up: {why}", mpis[*index].name, task.text());
    }
    let ours_failed = found.given_up.keys().any(|(index, _)| *index == 0);
    Ok(if ours_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// PULC first.
fn all_mpis(args: &Args) -> Result<Vec<Mpi>, Error> {
    let own = match &args.pulc {
        Some(folder) => folder.clone(),
        None => {
            let program = std::env::current_exe().map_err(Error::system("find this program"))?;
            program.parent().and_then(Path::parent).map(Path::to_owned).unwrap_or_default()
        }
    };
    let pulc = Mpi::in_folder(&own, Some("pulc")).map_err(|error| Error::NotHere {
        layer: "MPI",
        why: format!("{error}; make the tree with `cargo xtask dist` and start dist/bin/pulc, or name it with --pulc"),
    })?;
    let mut all = vec![pulc];
    all.extend(others(&args.mpis)?);
    if !args.only.is_empty() {
        all.retain(|mpi| mpi.kind == Kind::Pulc || args.only.contains(&mpi.name));
    }
    if all.len() == 1 {
        eprintln!("pulc: no other MPI is installed; name the folder of one with --mpi");
    }
    Ok(all)
}

/// MPIs in these folders, and those in the search path, each name once.
pub fn others(folders: &[String]) -> Result<Vec<Mpi>, Error> {
    let mut all = Vec::new();
    for word in folders {
        let (name, folder) = word.split_once('=').map_or((None, word.as_str()), |(name, folder)| (Some(name), folder));
        all.push(Mpi::in_folder(Path::new(folder), name)?);
    }
    all.extend(find::in_path());
    let mut names = BTreeSet::new();
    all.retain(|mpi| names.insert(mpi.name.clone()));
    Ok(all)
}

/// What is run, by what the user wants.
fn all_tasks(args: &Args) -> Vec<Task> {
    let most = if args.quick { 4 } else { u32::MAX };
    let mut tasks = Vec::new();
    if !args.no_messages {
        tasks.extend(args.places.iter().map(|place| Task::Pair(*place)));
        tasks.push(Task::Blocked);
    }
    if !args.no_collectives {
        tasks.extend(args.ranks.iter().filter(|ranks| **ranks <= most).map(|ranks| Task::Many(*ranks)));
    }
    tasks.extend(Some(args.memory.min(most)).filter(|ranks| *ranks > 0).map(Task::Memory));
    tasks.extend(Some(args.start.min(most)).filter(|start| *start > 0).map(Task::Start));
    tasks
}

fn measure_all(args: &Args, ready: &[(Mpi, PathBuf)], folder: &Path) -> Result<Found, Error> {
    let (rounds, budget_ms, limit) =
        if args.quick { (1, 5, LIMIT_QUICK) } else { (args.rounds, args.budget_ms, LIMIT) };
    let tasks = all_tasks(args);
    let needs_wire = tasks.iter().any(|task| task.place() == Place::Net);
    let between = if needs_wire { Some(Between::new(folder)?) } else { None };
    let seconds = format!("{}", f64::from(budget_ms) / 1000.0);
    let mut found = Found { hops: vec![Vec::new(); ready.len()], ..Found::default() };
    for round in 0..rounds as usize {
        found.look_at_memory();
        for task in &tasks {
            // Who is first changes, so that nobody always comes after the same one.
            for turn in 0..ready.len() {
                let index = (turn + round) % ready.len();
                if found.given_up.contains_key(&(index, *task)) {
                    continue;
                }
                let (mpi, program) = &ready[index];
                let seconds = if *task == Task::Blocked && !args.quick { "1" } else { &seconds };
                let mut words = vec![task.word(), seconds];
                words.extend(task.pinning(mpi.kind == Kind::Pulc));
                let launch = match &between {
                    Some(between) if task.place() == Place::Net => between.launch(mpi, program, &words),
                    _ => mpi.launch(task.ranks(), program, &words),
                };
                let near = *task == Task::Pair(Place::Node);
                let before = if near { hop() } else { None };
                let began = now();
                match output(&launch, limit) {
                    Ok(_) if matches!(task, Task::Start(_)) => {
                        let line = format!("start 0 {}", now().since(began).0);
                        found.take(&line, *task, index, ready.len(), round);
                    }
                    Ok(text) => found.take(&text, *task, index, ready.len(), round),
                    Err(error) => drop(found.given_up.insert((index, *task), error.to_string())),
                }
                if near {
                    found.hops[index].resize(round, None);
                    found.hops[index].push(before.zip(hop()).map(|(before, after)| before.max(after)));
                }
            }
        }
    }
    Ok(found)
}

/// The hardware's own rows between two cores, in one short round.
fn hardware(bytes: &[usize]) -> Vec<Row> {
    let wanted = Wanted {
        bytes: bytes.to_vec(),
        layers: vec![Layer::Hardware],
        places: vec![Place::Node],
        rounds: 1,
        budget: BUDGET_QUICK,
        apart: false,
    };
    measure(&wanted).map(|found| found.rows()).unwrap_or_default()
}

/// The hand-over of a cache line between two cores, as it is now.
fn hop() -> Option<f64> {
    hardware(&[LINE]).first().and_then(|row| row.latency_ns_p50)
}

impl Found {
    /// The yardstick of long messages in this round.
    fn look_at_memory(&mut self) {
        for row in hardware(&COPIES) {
            if let Some(bandwidth) = row.bandwidth_bytes_per_s {
                self.copies.entry(row.bytes).or_default().push(bandwidth);
            }
        }
    }

    /// As many as the longest row of values has.
    fn rounds(&self) -> usize {
        self.values.values().flatten().map(Vec::len).max().unwrap_or(0)
    }

    /// Takes what a program has written: a name, bytes and a value a line.
    fn take(&mut self, text: &str, task: Task, index: usize, mpis: usize, round: usize) {
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let (Some(name), Some(bytes), Some(value), None) = (words.next(), words.next(), words.next(), words.next())
            else {
                continue;
            };
            let (Ok(bytes), Ok(value)) = (bytes.parse(), value.parse()) else { continue };
            let rounds = self.values.entry((task, name.to_owned(), bytes)).or_insert_with(|| vec![Vec::new(); mpis]);
            rounds[index].resize(round, None);
            rounds[index].push(Some(value));
        }
    }
}

/// A folder for programs and what they need, gone at the end.
pub struct Folder(pub PathBuf);

impl Folder {
    /// A name that no other folder of this process has.
    pub fn new(name: &str) -> Result<Folder, Error> {
        let path = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).map_err(Error::system("make a folder for programs"))?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
