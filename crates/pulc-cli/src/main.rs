//! The command `pulc`: picks the subcommand, nothing else. Each subcommand is one file with `Args` and `run`.
#![forbid(unsafe_code)]

mod bench;
mod bypass;
mod daemon;
mod demo;
mod down;
mod generate;
mod info;
mod join;
mod keeper;
mod kill;
mod mpi_choice;
mod mpiexec;
mod native;
mod node_start;
mod nodes;
mod preload;
mod program;
mod ps;
mod psid;
mod queue;
mod run;
mod sockets;
mod sockets_broker;
mod staging;
mod terminal;
mod token;
mod up;
mod why;

use clap::{Parser, Subcommand};
use pulc_control::queue::Verb;
use std::ffi::OsString;
use std::process::ExitCode;

const EXAMPLES: &str = "First steps:
  pulc demo                           see it work
  pulc run -n 4 ./program             four processes here; nothing has to be set up
  pulc run -n 4 --nodes 2 ./program   the same on two nodes, on this machine if there are no others
  pulc up; pulc join TOKEN            more machines: `up` prints the token, `join` is for the others";

/// PULC turns ordinary machines into one parallel computer
#[derive(Parser)]
#[command(name = "pulc", version, max_term_width = 100, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a parallel program
    Run(run::Args),
    /// Run an unmodified program whose TCP connections may go past the kernel's stack
    Bypass(bypass::Args),
    /// Show the bypassed connections, or send them back to the kernel
    Sockets(sockets::Args),
    /// Show the jobs and their processes on all nodes
    Ps(ps::Args),
    /// Say which MPI call each process of a job is in, since when and for whom, and name a deadlock
    Why(why::Args),
    /// Stop a job
    Kill(kill::Args),
    /// Put a job into the queue
    Submit(Box<queue::submit::Args>),
    /// Show the jobs that wait and run
    Queue(queue::list::QueueArgs),
    /// Show all about a job, and why it waits
    Job(queue::list::JobArgs),
    /// Show the jobs that have ended
    History(queue::list::HistoryArgs),
    /// End jobs, or take them out of the queue
    Cancel(queue::cancel::CancelArgs),
    /// Hold waiting jobs back
    Hold(queue::change::Jobs),
    /// Let held jobs go
    Release(queue::change::Jobs),
    /// Make running jobs stand still; their slots come free
    Suspend(queue::change::Jobs),
    /// Let suspended jobs go on
    Resume(queue::change::Jobs),
    /// End running jobs and let them start again
    Requeue(queue::change::Jobs),
    /// Change priority or time limit of jobs
    Alter(queue::change::AlterArgs),
    /// Start nothing new on nodes
    Drain(queue::operator::DrainArgs),
    /// Let nodes have work again
    Undrain(queue::operator::UndrainArgs),
    /// Show or change what the queue knows of a node
    Node(queue::operator::NodeArgs),
    /// Show or change what is set for the whole cluster, such as the health check of its nodes
    Config(queue::config::Args),
    /// Keep nodes free for somebody, or show for whom
    Reserve(queue::operator::ReserveArgs),
    /// Wait for slots, then run a command here that uses them
    Alloc(Box<queue::alloc::AllocArgs>),
    /// Show the output of a queued job as it comes
    Attach(queue::attach::AttachArgs),
    /// Watch nodes and jobs, live
    Top(queue::top::Args),
    /// Show what happens in the cluster
    Events(queue::events::EventsArgs),
    /// Numbers for monitoring, in Prometheus' format
    Metrics(queue::events::MetricsArgs),
    /// Make this machine a node, founding a cluster the first time
    Up(up::Args),
    /// Make this machine a node of an existing cluster
    Join(join::Args),
    /// Stop this node, or all of them
    Down(down::Args),
    /// Stop this node's daemon and start it again; queued jobs go on
    Restart(down::RestartArgs),
    /// Show the nodes of the cluster
    Nodes(nodes::Args),
    /// Make, list and revoke the tokens with which machines join
    Token(token::Args),
    /// Show this build, this machine, and every limit with its value
    Info(info::Args),
    /// Measure this machine and PULC on it
    Bench(bench::Args),
    /// See it work: a heat diffusion alone, on all cores and on two nodes, drawn while it runs
    Demo(demo::Args),
    #[command(hide = true)]
    Heat(demo::HeatArgs),
    #[command(hide = true, name = sockets_broker::NAME)]
    SocketsBroker(sockets_broker::Args),
    #[command(hide = true)]
    Daemon(psid::Args),
    #[command(hide = true)]
    SystemState(psid::StateArgs),
    #[command(hide = true)]
    Generate(generate::Args),
}

/// `pulc submit` by itself: said by the hundred, and to tell clap of all the other commands takes as long as the rest of it.
#[derive(Parser)]
#[command(name = "pulc")]
struct SubmitAlone {
    #[command(subcommand)]
    command: OnlySubmit,
}

#[derive(Subcommand)]
enum OnlySubmit {
    Submit(Box<queue::submit::Args>),
}

/// A submission in which nothing is wrong; none for what the whole command line has to answer, help and errors among it.
fn submission(words: &[OsString]) -> Option<queue::submit::Args> {
    let OnlySubmit::Submit(args) = SubmitAlone::try_parse_from(words).ok()?.command;
    Some(*args)
}

fn main() -> ExitCode {
    // Before anything else: a keeper is started for every job and must be quick, and so must a rank.
    let mut words = std::env::args_os();
    let name = words.next().unwrap_or_default();
    if mpiexec::is_called(&name) {
        return mpiexec::run(words);
    }
    match std::env::args_os().nth(1) {
        Some(command) if command == "keeper" => return keeper::run(),
        // The one part that runs as root reads nothing that it need not.
        Some(command) if command == "helper" => return pulc_helper::main(words.skip(1)),
        Some(command) if command == pulc_base::boot::GUEST_KEEPER => return keeper::run_as_guest(words.nth(1)),
        Some(command) if command == native::NAME => return native::run(words.skip(1)),
        Some(command) if command == program::NAME => return program::run(words.skip(1)),
        Some(command) if command == queue::attach::READ_ALONG => return queue::attach::read_along(words.skip(1)),
        _ => {}
    }
    let own = queue::names::own_words(&name, words);
    let words = match own {
        Some((own, left_out)) => {
            if !left_out.is_empty() {
                eprintln!("pulc: not understood here and left out: {}", left_out.join(", "));
            }
            own
        }
        None => std::env::args_os().collect(),
    };
    if words.get(1).is_some_and(|word| word == "submit")
        && let Some(args) = submission(&words)
    {
        return queue::submit::run(args);
    }
    let cli = Cli::parse_from(words);
    match cli.command {
        Command::Run(args) => run::run(args),
        Command::Bypass(args) => bypass::run(&args),
        Command::Submit(args) => queue::submit::run(*args),
        Command::Queue(args) => queue::list::queue(&args),
        Command::Job(args) => queue::list::job(&args),
        Command::History(args) => queue::list::history(&args),
        Command::Cancel(args) => queue::cancel::cancel(args),
        Command::Hold(jobs) => queue::change::change(&jobs, Verb::Hold),
        Command::Release(jobs) => queue::change::change(&jobs, Verb::Release),
        Command::Suspend(jobs) => queue::change::change(&jobs, Verb::Suspend),
        Command::Resume(jobs) => queue::change::change(&jobs, Verb::Resume),
        Command::Requeue(jobs) => queue::change::change(&jobs, Verb::Requeue),
        Command::Alter(args) => queue::change::alter(&args),
        Command::Drain(args) => queue::operator::drain(args),
        Command::Undrain(args) => queue::operator::undrain(&args),
        Command::Node(args) => queue::operator::node(args),
        Command::Config(args) => queue::config::run(&args),
        Command::Reserve(args) => queue::operator::reserve(args),
        Command::Alloc(args) => queue::alloc::alloc(*args),
        Command::Attach(args) => queue::attach::attach(&args),
        Command::Top(args) => queue::top::run(&args),
        Command::Events(args) => queue::events::events(&args),
        Command::Metrics(args) => queue::events::metrics(&args),
        Command::Sockets(args) => sockets::run(&args),
        Command::SocketsBroker(args) => sockets_broker::run(&args),
        Command::Up(args) => up::run(&args),
        Command::Join(args) => join::run(&args),
        Command::Down(args) => down::run(&args),
        Command::Restart(args) => down::restart(&args),
        Command::Nodes(args) => nodes::run(&args),
        Command::Token(args) => token::run(&args),
        Command::Info(args) => info::run(&args),
        Command::Ps(args) => ps::run(&args),
        Command::Why(args) => why::run(&args),
        Command::Kill(args) => kill::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Demo(args) => demo::run(args),
        Command::Heat(args) => demo::heat(args),
        Command::Daemon(args) => psid::run(&args),
        Command::SystemState(args) => psid::keep_state(&args),
        Command::Generate(args) => generate::run(&args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_submission_is_read_alone_and_what_is_wrong_by_the_whole_command_line() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert!(submission(&words("pulc submit -n 4 -t 30 ./solver --help")).is_some());
        for other in ["pulc submit --help", "pulc submit -n many x", "pulc --version"] {
            assert!(submission(&words(other)).is_none(), "{other}");
            assert!(Cli::try_parse_from(words(other)).is_err(), "{other}");
        }
    }
}
