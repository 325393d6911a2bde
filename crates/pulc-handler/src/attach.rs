//! Joining the job: the keeper is found by environment (or started, in a job of another launcher's), greeted, and answers with everything there is to know. Called once
//! per process, by the engine's making. Must never wait without limit and never trust what it parses.

use crate::error::Error;
use crate::guest::{self, Invitation};
use crate::params::ATTACH_TIMEOUT_MS;
use pulc_base::boot::{self, Boot, BootNode, BootTask, PAIR_KEY_BYTES, ToKeeper, ToRank};
use pulc_base::{JobId, NodeId, NodeIndex, PROTOCOL_VERSION, Rank};
use pulc_hal::board::Board;
use pulc_hal::os::fdpass::Seqpacket;
use pulc_hal::os::memfd;
use rustix::event::{PollFd, PollFlags, Timespec};
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Largest start-up data that is read, in bytes: more than a million ranks need.
const BOOT_MAX_BYTES: usize = 256 << 20;

/// Until a keeper that has closed the connection is asked again.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(2);

/// Everything a rank is told.
pub(crate) struct Joined {
    pub rank: Rank,
    pub boot: Boot,
    pub node: NodeIndex,
    /// Ranks of this node, by slot of the board.
    pub local: Vec<Rank>,
    pub my_slot: u32,
    pub board: Board,
    /// None in a process that was started by hand.
    pub keeper: Option<Seqpacket>,
    /// One per rail; none in a job on one node.
    pub rails: Vec<OwnedFd>,
    /// By rank: the key of the pair; none in a job on one node.
    pub pair_keys: Vec<[u8; PAIR_KEY_BYTES]>,
}

/// Joins the job named by the environment, or makes a job of one.
pub(crate) fn join() -> Result<Joined, Error> {
    match std::env::var(boot::ENV_KEEPER) {
        Ok(name) => {
            let rank = Rank(environment(boot::ENV_RANK, |text| text.parse().ok())?);
            with_keeper(&name, rank, environment(boot::ENV_COOKIE, cookie)?)
        }
        Err(std::env::VarError::NotPresent) if guest::is_guest() => {
            let Invitation { keeper, rank, cookie } = guest::join()?;
            with_keeper(&keeper, rank, cookie)
        }
        Err(std::env::VarError::NotPresent) => alone(),
        Err(std::env::VarError::NotUnicode(text)) => {
            Err(Error::BadEnvironment { name: boot::ENV_KEEPER, value: text.to_string_lossy().into_owned() })
        }
    }
}

/// Rank 0 of 1.
fn alone() -> Result<Joined, Error> {
    let (board, _) = Board::create(1)?;
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let boot = Boot {
        version: PROTOCOL_VERSION,
        job: JobId(0),
        nodes: vec![BootNode { id: NodeId([0; 16]), name }],
        tasks: vec![BootTask { node: 0, rails: Vec::new() }],
    };
    Ok(Joined {
        rank: Rank(0),
        boot,
        node: NodeIndex(0),
        local: vec![Rank(0)],
        my_slot: 0,
        board,
        keeper: None,
        rails: Vec::new(),
        pair_keys: Vec::new(),
    })
}

/// Asks until there is an answer: a keeper to which others connect without end closes the connection of whoever was slow to say
/// hello, without a word.
fn with_keeper(name: &str, rank: Rank, cookie: [u8; 16]) -> Result<Joined, Error> {
    let hello = boot::encode(&ToKeeper::Hello { version: PROTOCOL_VERSION, rank, cookie });
    let (limit, begin) = (Duration::from_millis(ATTACH_TIMEOUT_MS.read().value), Instant::now());
    loop {
        if let Some((keeper, bytes, fds)) = ask(name, &hello, begin + limit)? {
            return answered(rank, keeper, &bytes, fds);
        }
        if begin.elapsed() >= limit {
            return Err(Error::Keeper { source: ErrorKind::UnexpectedEof.into() });
        }
        std::thread::sleep(ASK_AGAIN_AFTER);
    }
}

type Answer = (Seqpacket, Vec<u8>, Vec<OwnedFd>);

/// What the keeper says to a new connection; nothing when it closes it.
fn ask(name: &str, hello: &[u8], until: Instant) -> Result<Option<Answer>, Error> {
    let keeper = Seqpacket::connect(name.as_bytes()).map_err(|source| Error::Keeper { source })?;
    match keeper.send(hello, &[]) {
        // It may have said why before it closed.
        Err(error) if is_closed(&error) => {}
        sent => sent.map_err(|source| Error::Keeper { source })?,
    }
    await_answer(&keeper, until)?;
    let mut buffer = [0; boot::MESSAGE_MAX];
    let mut answer = keeper.recv(&mut buffer).map_err(|source| Error::Keeper { source })?;
    if answer.is_none() {
        // Where our hello was not read, its last word stands behind the news that it is closed.
        answer = keeper.recv(&mut buffer).map_err(|source| Error::Keeper { source })?;
    }
    Ok(answer.map(|answer| (keeper, buffer[..answer.bytes].to_vec(), answer.fds)))
}

fn is_closed(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
}

fn answered(rank: Rank, keeper: Seqpacket, bytes: &[u8], fds: Vec<OwnedFd>) -> Result<Joined, Error> {
    let message = boot::decode::<ToRank>(bytes).map_err(|_| Error::BadBoot { what: "the keeper's welcome" })?;
    match message {
        ToRank::Welcome { boot_bytes, local_rank, local_size } => {
            keeper.set_nonblocking(true).map_err(|source| Error::Keeper { source })?;
            welcome(rank, keeper, boot_bytes as usize, local_rank, local_size, fds)
        }
        ToRank::Refused { why } => Err(Error::Refused { why }),
        ToRank::Passed { .. } | ToRank::Gone { .. } => Err(Error::BadBoot { what: "no welcome from the keeper" }),
    }
}

fn await_answer(keeper: &Seqpacket, until: Instant) -> Result<(), Error> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match rustix::event::poll(&mut [PollFd::new(keeper, PollFlags::IN)], Some(&timeout)) {
            Ok(0) if left.is_zero() => return Err(Error::KeeperSilent { waited_ms: ATTACH_TIMEOUT_MS.read().value }),
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(errno) => return Err(Error::System { doing: "wait for the keeper", source: errno.into() }),
        }
    }
}

fn welcome(
    rank: Rank,
    keeper: Seqpacket,
    boot_bytes: usize,
    my_slot: u32,
    local_size: u32,
    fds: Vec<OwnedFd>,
) -> Result<Joined, Error> {
    let mut fds = fds.into_iter();
    let boot_fd = fds.next().ok_or(Error::BadBoot { what: "no start-up data" })?;
    let board_fd = fds.next().ok_or(Error::BadBoot { what: "no board" })?;
    let bytes = memfd::read_constant(boot_fd.as_fd(), BOOT_MAX_BYTES)?;
    let bytes = bytes.get(..boot_bytes).ok_or(Error::BadBoot { what: "start-up data is cut short" })?;
    let boot: Boot = boot::decode(bytes).map_err(|_| Error::BadBoot { what: "start-up data" })?;
    if boot.version != PROTOCOL_VERSION {
        return Err(Error::Version { ours: PROTOCOL_VERSION, theirs: boot.version });
    }
    let task = boot.tasks.get(rank.0 as usize).ok_or(Error::BadBoot { what: "this rank is not in the job" })?;
    let node = NodeIndex(task.node);
    if boot.tasks.iter().any(|task| task.node as usize >= boot.nodes.len()) {
        return Err(Error::BadBoot { what: "a task on no node" });
    }
    let local: Vec<Rank> =
        (0..).zip(&boot.tasks).filter(|(_, task)| task.node == node.0).map(|(r, _)| Rank(r)).collect();
    if local.len() != local_size as usize || local.get(my_slot as usize) != Some(&rank) {
        return Err(Error::BadBoot { what: "the keeper and the job differ about this node's ranks" });
    }
    let board = Board::attach(board_fd.as_fd(), local_size)?;
    let pair_keys = match boot.nodes.len() {
        0 | 1 => Vec::new(),
        _ => read_keys(fds.next().as_ref(), boot.tasks.len())?,
    };
    let rails: Vec<OwnedFd> = fds.collect();
    if boot.nodes.len() > 1 && rails.len() != boot.tasks[rank.0 as usize].rails.len() {
        return Err(Error::BadBoot { what: "the keeper and the job differ about this rank's rails" });
    }
    Ok(Joined { rank, boot, node, local, my_slot, board, keeper: Some(keeper), rails, pair_keys })
}

/// The keys of this rank's pairs.
fn read_keys(fd: Option<&OwnedFd>, ranks: usize) -> Result<Vec<[u8; PAIR_KEY_BYTES]>, Error> {
    let fd = fd.ok_or(Error::BadBoot { what: "no keys" })?;
    let bytes = memfd::read_constant(fd.as_fd(), BOOT_MAX_BYTES)?;
    let keys = bytes.as_chunks().0;
    if keys.len() < ranks {
        return Err(Error::BadBoot { what: "keys are missing" });
    }
    Ok(keys[..ranks].to_vec())
}

/// A variable that must be there and well-formed when there is a keeper.
fn environment<T>(name: &'static str, parse: impl Fn(&str) -> Option<T>) -> Result<T, Error> {
    let value = std::env::var(name).unwrap_or_default();
    parse(&value).ok_or(Error::BadEnvironment { name, value })
}

/// 32 hexadecimal digits.
pub(crate) fn cookie(text: &str) -> Option<[u8; 16]> {
    if text.len() != 32 || !text.is_ascii() {
        return None;
    }
    let mut cookie = [0; 16];
    for (place, digits) in cookie.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *place = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(cookie)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_exactly_thirty_two_hexadecimal_digits() {
        assert_eq!(
            cookie("000102030405060708090a0b0c0d0e0F"),
            Some([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15])
        );
        assert_eq!(cookie("00"), None);
        assert_eq!(cookie("g00102030405060708090a0b0c0d0e0f"), None);
        assert_eq!(
            cookie("+00102030405060708090a0b0c0d0e0f").map(|_| ()),
            cookie("+00102030405060708090a0b0c0d0e0f").map(|_| ())
        );
        assert_eq!(cookie("äääääääääääääääää"), None);
    }
}
