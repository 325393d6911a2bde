//! The two phases of a launch on this node. `prepare` takes everything that can fail: program, directory, sockets, cores,
//! descriptors. `go` starts the ranks. Called by the keeper's loop; a failure is one line of text for the user.

use super::broker::Seat;
use super::cgroup::Cgroup;
use super::environment::{own_environment, shared_environment};
use super::guardian::Guarded;
use super::lookup::find_program;
use super::message::Prepare;
use super::outlet::Outlet;
use super::pinning::Pinning;
use super::remains::Remains;
use crate::error::shortage;
use crate::stage;
use pulc_base::boot::{self, ENV_RAILS, RailKind, parse_rails};
use pulc_base::{Rank, log};
use pulc_control::{LaunchSpec, Stream};
use pulc_hal::board::Board;
use pulc_hal::os::fdpass::Listener;
use pulc_hal::os::process::{Child, Group, ResourceLimit, Start, StartError, Starter};
use pulc_hal::os::{memfd, signals};
use rustix::fs::{Mode, OFlags};
use rustix::pipe::{PipeFlags, pipe_with};
use std::ffi::CString;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// All that the second phase needs.
pub struct Prepared {
    pub order: Prepare,
    pub addresses: Vec<Vec<SocketAddr>>,
    pub cgroup: Option<Cgroup>,
    /// The ranks come last on this node, and their cgroup does not see to it.
    pub lowly: bool,
    /// The lock of the job's directory, for as long as the keeper lives.
    pub room: Option<stage::Held>,
    program: CString,
    name: String,
    listener: Listener,
    board: (Board, OwnedFd),
    seats: Vec<Seat>,
    pinning: Option<Pinning>,
    null: OwnedFd,
    /// Of a queued job: its script, and what its first rank reads.
    script: Option<OwnedFd>,
    input: Option<OwnedFd>,
}

/// A started rank and our ends of its pipes.
pub struct Started {
    pub child: Child,
    pub rank: Rank,
    pub pipes: [(Stream, OwnedFd); 2],
    pub input: Option<OwnedFd>,
}

/// Name of the job's cgroup on one node; psid clears it by this name when the keeper has been killed.
pub fn cgroup_name(job: pulc_base::JobId, node: pulc_base::NodeId) -> String {
    format!("pulc-{job}-{node}")
}

/// First phase.
pub fn prepare(mut order: Prepare, guarded: &Guarded) -> Result<Prepared, String> {
    guarded.leave_word(&Remains::of(order.job, order.node, None).with_room(room_of(&order))).map_err(untold)?;
    raise_descriptor_limit();
    let script = open_script(&mut order)?;
    let input = open_input(&order)?;
    let program = find_program(&order.launch, order.program.as_deref())?;
    let room = room_of(&order)
        .map(stage::hold)
        .transpose()
        .map_err(|error| format!("cannot hold the job's directory: {error}"))?;
    let mut random = vec![0u8; 16 * (order.count as usize + 1)];
    fill_random(&mut random)?;
    let (name_bits, cookies) = random.split_at(16);
    let name = format!("pulc-keeper-{}", hex(name_bits));
    let listener = Listener::bind(name.as_bytes())
        .map_err(|error| format!("cannot open the attach socket: {}", shortage(&error)))?;
    let board = Board::create(order.count).map_err(|error| format!("cannot make the board: {error}"))?;
    let kinds = rail_kinds(&order.launch.env)?;
    let mut seats = Vec::new();
    let mut addresses = Vec::new();
    for (rank, cookie) in (order.first..).zip(cookies.chunks_exact(16)) {
        let mut rails = Vec::new();
        let mut bound = Vec::new();
        for (ip, kind) in order.rails.iter().flat_map(|ip| kinds.iter().map(move |kind| (*ip, *kind))) {
            let failed = |error| format!("cannot bind a socket for rank {rank} at {ip}: {}", shortage(&error));
            let (address, socket) = bind_rail(ip, kind).map_err(failed)?;
            bound.push(address);
            rails.push(socket);
        }
        addresses.push(bound);
        let cookie = cookie.try_into().expect("chunks of 16 bytes");
        seats.push(Seat::new(Rank(rank), cookie, rails));
    }
    let pinning = if order.launch.pin { Pinning::claim(order.count) } else { None };
    let null = rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|error| format!("cannot open /dev/null: {error}"))?;
    let cgroup = Cgroup::make(&cgroup_name(order.job, order.node));
    let lowly = order.lowly && !cgroup.as_ref().is_some_and(Cgroup::lower);
    Ok(Prepared {
        order,
        addresses,
        cgroup,
        lowly,
        room,
        program,
        name,
        listener,
        board,
        seats,
        pinning,
        null,
        script,
        input,
    })
}

fn room_of(order: &Prepare) -> Option<&Path> {
    order.room.as_deref().map(pulc_control::stage::as_path)
}

/// A script travels as text: it is handed to its interpreter as an open file, so it needs no place in a file system, and later
/// changes of the file that was submitted don't matter.
fn open_script(order: &mut Prepare) -> Result<Option<OwnedFd>, String> {
    let Some(text) = order.stays.as_ref().and_then(|stay| stay.script.as_ref()) else { return Ok(None) };
    let fd = memfd::create_constant("pulc-script", text).map_err(|error| format!("cannot keep the script: {error}"))?;
    let arguments = order.launch.argv.iter().skip(1).cloned();
    order.launch.argv = interpreter(text).into_iter().chain([SCRIPT.to_vec()]).chain(arguments).collect();
    Ok(Some(fd))
}

/// Where a rank finds its script: the first descriptor behind the standard streams.
const SCRIPT: &[u8] = b"/proc/self/fd/3";

/// As the kernel reads the first line: a path and at most one argument.
fn interpreter(text: &[u8]) -> Vec<Vec<u8>> {
    let line = text.strip_prefix(b"#!").and_then(|rest| rest.split(|byte| *byte == b'\n').next()).unwrap_or_default();
    let line = line.trim_ascii();
    if line.is_empty() {
        return vec![b"/bin/sh".to_vec()];
    }
    let end = line.iter().position(|byte| byte.is_ascii_whitespace()).unwrap_or(line.len());
    let (path, argument) = (line[..end].to_vec(), line[end..].trim_ascii().to_vec());
    if argument.is_empty() { vec![path] } else { vec![path, argument] }
}

fn open_input(order: &Prepare) -> Result<Option<OwnedFd>, String> {
    let Some(files) = order.stays.as_ref().and_then(|stay| stay.files.as_ref()) else { return Ok(None) };
    let directory = std::path::Path::new(std::ffi::OsStr::from_bytes(&order.launch.cwd));
    Ok(Outlet::open_input(files, directory)?.map(OwnedFd::from))
}

/// What the job's environment asks for.
fn rail_kinds(env: &[(Vec<u8>, Vec<u8>)]) -> Result<Vec<RailKind>, String> {
    // Of a name that comes twice the ranks see the last one.
    match env.iter().rev().find(|(name, _)| name == ENV_RAILS.as_bytes()) {
        Some((_, value)) => parse_rails(&String::from_utf8_lossy(value)).map_err(|why| format!("{ENV_RAILS}: {why}")),
        None => Ok(vec![RailKind::Udp]),
    }
}

/// A socket that the rank takes over: bound, or listening, so that nobody is refused who comes before the rank.
pub(super) fn bind_rail(ip: IpAddr, kind: RailKind) -> std::io::Result<(SocketAddr, OwnedFd)> {
    match kind {
        RailKind::Udp => UdpSocket::bind((ip, 0)).and_then(|socket| Ok((socket.local_addr()?, OwnedFd::from(socket)))),
        RailKind::Tcp => {
            TcpListener::bind((ip, 0)).and_then(|socket| Ok((socket.local_addr()?, OwnedFd::from(socket))))
        }
    }
}

fn no_pipe(error: rustix::io::Errno) -> String {
    format!("no pipe: {}", shortage(&error.into()))
}

fn not_started(error: StartError) -> String {
    format!("{}: {}", error.step.what(), shortage(&error.source))
}

fn untold(error: std::io::Error) -> String {
    format!("the guardian of the job cannot be told what to clear up: {error}")
}

/// What remains for the broker when the ranks have been started.
pub struct BrokerParts {
    pub listener: Listener,
    pub boot: (OwnedFd, u32),
    pub board: (Board, OwnedFd),
    pub seats: Vec<Seat>,
}

/// Second phase: starts the ranks one after the other. Those started before a failure are handed out through `started` and
/// have to be ended by the caller.
pub fn go(
    prepared: Prepared,
    wire_up: &boot::Boot,
    guarded: &Guarded,
    started: &mut dyn FnMut(Started),
) -> (Result<BrokerParts, String>, Option<Cgroup>, Option<Pinning>) {
    let Prepared {
        order,
        addresses,
        cgroup,
        lowly,
        program,
        name,
        listener,
        board,
        mut seats,
        pinning,
        null,
        script,
        input,
        ..
    } = prepared;
    let file = input;
    for (seat, bound) in seats.iter_mut().zip(&addresses) {
        let used = wire_up.tasks.get(seat.rank.0 as usize).map_or(&[][..], |task| &task.rails);
        seat.keep_rails(bound, used);
    }
    let queued = order.stays.is_some();
    let bytes = boot::encode(wire_up);
    let boot = match memfd::create_constant("pulc-boot", &bytes) {
        Ok(fd) => (fd, bytes.len() as u32),
        Err(error) => return (Err(format!("cannot make the wire-up table: {error}")), cgroup, pinning),
    };
    let node = wire_up.tasks.get(order.first as usize).map_or(0, |task| task.node);
    if let Err(error) = guarded.leave_word(&Remains::of(order.job, order.node, Some(node)).with_room(room_of(&order))) {
        return (Err(untold(error)), cgroup, pinning);
    }
    let argv: Vec<CString> = order.launch.argv.iter().filter_map(|arg| CString::new(arg.clone()).ok()).collect();
    let shared = shared_environment(&order, &name, node);
    let cwd = CString::new(order.launch.cwd.clone()).unwrap_or_default();
    let limits = limits_to_set(&order.launch);
    let cores = pinning.as_ref().map(Pinning::spread).unwrap_or_default();
    let extra: Vec<BorrowedFd<'_>> = script.iter().map(AsFd::as_fd).collect();
    let mut starter = Starter::default();
    for local in start_order(&cores, seats.len()) {
        let seat = &seats[local];
        let own = own_environment(seat, local);
        let mut attempt = || -> Result<Started, String> {
            let (out_reader, out) = pipe_with(PipeFlags::CLOEXEC).map_err(no_pipe)?;
            let (err_reader, err) = pipe_with(PipeFlags::CLOEXEC).map_err(no_pipe)?;
            let input = match seat.rank {
                Rank(0) if !queued => Some(pipe_with(PipeFlags::CLOEXEC).map_err(no_pipe)?),
                _ => None,
            };
            for fd in [&out_reader, &err_reader].into_iter().chain(input.as_ref().map(|(_, writer)| writer)) {
                rustix::io::ioctl_fionbio(fd, true).map_err(|error| error.to_string())?;
            }
            let other = file.as_ref().filter(|_| seat.rank == Rank(0)).unwrap_or(&null).as_fd();
            let stdin = input.as_ref().map_or(other, |(reader, _)| reader.as_fd());
            let start = Start {
                program: &program,
                argv: &argv,
                env: &[&shared, &own],
                cwd: Some(&cwd),
                umask: Some(order.launch.umask),
                limits: &limits,
                cores: cores.get(local).map_or(&[], Vec::as_slice),
                lowly,
                group: Group::NewGroup,
                parent_death_signal: Some(signals::SIGKILL),
                stdio: [Some(stdin), Some(out.as_fd()), Some(err.as_fd())],
                extra_fds: &extra,
                cgroup: cgroup.as_ref().map(AsFd::as_fd),
                user: None,
            };
            let child = starter.start(&start).map_err(not_started)?;
            let pipes = [(Stream::Out, out_reader), (Stream::Err, err_reader)];
            Ok(Started { child, rank: seat.rank, pipes, input: input.map(|(_, writer)| writer) })
        };
        match attempt() {
            Ok(rank) => started(rank),
            Err(what) => return (Err(format!("rank {} cannot be started: {what}", seat.rank)), cgroup, pinning),
        }
    }
    (Ok(BrokerParts { listener, boot, board, seats }), cgroup, pinning)
}

/// Core after core in turn, not block after block: so all cores are busy from the beginning.
fn start_order(cores: &[Vec<u32>], ranks: usize) -> Vec<usize> {
    let mut on_core = std::collections::HashMap::<Option<u32>, usize>::new();
    let mut order: Vec<(usize, usize)> = (0..ranks)
        .map(|local| {
            let turn = on_core.entry(cores.get(local).and_then(|cores| cores.first().copied())).or_default();
            *turn += 1;
            (*turn, local)
        })
        .collect();
    if !cores.is_empty() {
        order.sort_unstable();
    }
    order.into_iter().map(|(_, local)| local).collect()
}

/// The caller's limits, as far as they differ from the keeper's and may be set here.
fn limits_to_set(launch: &LaunchSpec) -> Vec<ResourceLimit> {
    let root = rustix::process::geteuid().is_root();
    let infinite = |limit: Option<u64>| limit.unwrap_or(u64::MAX);
    let mut set = Vec::new();
    for wanted in &launch.limits {
        let Some(resource) = resource(wanted.resource) else { continue };
        let now = rustix::process::getrlimit(resource);
        let hard = if root { infinite(wanted.hard) } else { infinite(wanted.hard).min(infinite(now.maximum)) };
        let soft = infinite(wanted.soft).min(hard);
        if (soft, hard) != (infinite(now.current), infinite(now.maximum)) {
            set.push(ResourceLimit { resource: wanted.resource, soft, hard });
        }
    }
    set
}

/// Resource limits that travel with a job, by their Linux numbers.
pub fn resource(number: u32) -> Option<rustix::process::Resource> {
    use rustix::process::Resource::{
        As, Core, Cpu, Data, Fsize, Locks, Memlock, Msgqueue, Nice, Nofile, Nproc, Rss, Rtprio, Rttime, Sigpending,
        Stack,
    };
    let all = [
        Cpu, Fsize, Data, Stack, Core, Rss, Nproc, Nofile, Memlock, As, Locks, Sigpending, Msgqueue, Nice, Rtprio,
        Rttime,
    ];
    all.into_iter().find(|resource| *resource as u32 == number)
}

/// The keeper holds three or four descriptors for each rank.
fn raise_descriptor_limit() {
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = rustix::process::setrlimit(rustix::process::Resource::Nofile, limit) {
        log!(Warn, "keeper", "the limit of open files stays as it is: {error}");
    }
}

pub(super) fn fill_random(bytes: &mut [u8]) -> Result<(), String> {
    let mut done = 0;
    while done < bytes.len() {
        done += rustix::rand::getrandom(&mut bytes[done..], rustix::rand::GetRandomFlags::empty())
            .map_err(|error| format!("no random numbers: {error}"))?;
    }
    Ok(())
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_given_to_the_interpreter_of_its_first_line() {
        let words = |text: &str| -> Vec<String> {
            interpreter(text.as_bytes()).into_iter().map(|word| String::from_utf8(word).unwrap()).collect()
        };
        assert_eq!(words("#!/bin/bash\necho"), ["/bin/bash"]);
        assert_eq!(words("#! /usr/bin/env  python3 -u\n"), ["/usr/bin/env", "python3 -u"]);
        assert_eq!(words("echo no first line"), ["/bin/sh"]);
    }

    #[test]
    fn ranks_are_started_core_by_core_in_turn() {
        let cores = [vec![0], vec![0], vec![0], vec![1], vec![1]];
        assert_eq!(start_order(&cores, 5), [0, 3, 1, 4, 2]);
        assert_eq!(start_order(&[], 3), [0, 1, 2]);
    }
}
