#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

mod am;
mod attach;
mod calls;
mod daemons;
mod desk;
mod device;
mod error;
mod hardware;
mod idle;
mod job;
mod kernel;
mod launchers;
mod layers;
mod measure;
mod memory;
#[allow(unsafe_code)]
mod mpi_door;
mod net;
mod offload;
mod pair;
mod peers;
mod plot;
mod queue;
mod rank;
mod ring;
mod rounds;
mod row;
mod shares;
mod socket_datagrams;
mod socket_end;
mod socket_layer;
mod socket_mpi;
mod socket_nginx;
mod socket_plot;
mod socket_programs;
mod socket_requests;
mod sockets;
mod start;
mod switch;
mod waiting;
mod wire;
mod worker;

pub use error::Error;
pub use row::{Layer, Place, Row};

use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Every floor of PULC beside pipe, unix socket, TCP and UDP: latency, bandwidth, rate
    Layers(layers::Args),
    /// Start and end of a job of many processes
    Start(start::Args),
    /// Processor time of a process that is blocked in a receive
    Idle(idle::Args),
    /// Memory that a process of a job takes, idle and after everybody has talked with everybody
    Memory(memory::Args),
    /// Bandwidth of the interfaces as a share of the device's and of memcpy's
    Shares(shares::Args),
    /// Many processes pass a token round, beside a bare futex ring of the same processes
    Ring(ring::Args),
    /// One core handed over: by yielding, by sleeping, between processes and threads, and what a port adds
    Switch(switch::Args),
    /// System calls made for small messages between processes that are awake
    Calls(calls::Args),
    /// Latency and processor time burnt: pinned, unpinned, too many, beside another job, beside a hog
    Waiting(waiting::Args),
    /// Time from the call that attaches to the first message
    Attach(attach::Args),
    /// Unmodified programs on kernel TCP, unix sockets and the sockets bypass; redis and iperf3 where they are installed
    Sockets(sockets::Args),
    /// MPI beside every other MPI on this machine: messages, collectives, blocked processes
    Peers(peers::Args),
    /// The queue and the cluster under it: submissions, many processes on many nodes, a node that is lost
    Queue(queue::Args),
    /// Starting jobs and losing a node, beside Slurm and the launchers of other MPIs where they are installed
    Launchers(launchers::Args),
    /// A cluster of many daemons on this machine: what they cost, and one process on every node
    Daemons(daemons::Args),
    /// What a person does at a workstation: alone, beside a job on every core, and beside one that comes last
    Desk(desk::Args),
    /// Draws what `layers --json` has written
    Plot(plot::Args),
    #[command(hide = true)]
    Rank(rank::Args),
    #[command(hide = true)]
    SocketEnd(socket_end::Args),
    #[command(hide = true)]
    SocketLayer(socket_layer::Args),
    #[command(hide = true)]
    Worker { core: u32 },
    #[command(hide = true)]
    Partner(switch::OfPartner),
}

/// Runs one benchmark.
pub fn run(args: &Args) -> Result<ExitCode, Error> {
    pulc_hal::calibration::load();
    match &args.what {
        What::Layers(args) => layers::run(args),
        What::Start(args) => start::run(args),
        What::Idle(args) => idle::run(args),
        What::Memory(args) => memory::run(args),
        What::Shares(args) => shares::run(args),
        What::Ring(args) => ring::run(args),
        What::Switch(args) => switch::run(args),
        What::Calls(args) => calls::run(args),
        What::Waiting(args) => waiting::run(args),
        What::Attach(args) => attach::run(args),
        What::Sockets(args) => sockets::run(args),
        What::SocketEnd(args) => socket_end::run(args).map(|()| ExitCode::SUCCESS),
        What::SocketLayer(args) => socket_layer::run(args).map(|()| ExitCode::SUCCESS),
        What::Peers(args) => peers::run(args),
        What::Queue(args) => queue::run(args),
        What::Launchers(args) => launchers::run(args),
        What::Daemons(args) => daemons::run(args),
        What::Desk(args) => desk::run(args),
        What::Plot(args) => plot::run(args),
        What::Rank(args) => rank::run(args).map(|()| ExitCode::SUCCESS),
        What::Worker { core } => worker::run(*core).map(|()| ExitCode::SUCCESS),
        What::Partner(args) => switch::partner(args).map(|()| ExitCode::SUCCESS),
    }
}
