//! The keeper's attach socket: ranks say hello, get the wire-up table, the board and their sockets, and have descriptors of
//! channels passed to each other. The keeper never looks inside what it passes and never waits for a rank: what a rank
//! does not take waits in a bounded queue.
//!
//! A process that is not this job's (wrong user, wrong cookie, nonsense) is refused, told why, and counted.

mod strangers;
mod waits;

use super::pair_keys::PairKeys;
use pulc_base::boot::{self, Gone, MESSAGE_MAX, PASS_BYTES_MAX, PASS_FDS_MAX, ToKeeper, ToRank};
use pulc_base::{PROTOCOL_VERSION, Rank, log};
use pulc_hal::board::Board;
use pulc_hal::os::fdpass::{Listener, Seqpacket};
use pulc_hal::os::memfd;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

/// Parcels from one rank to another that wait at a time, and that pass in a job's life: an honest pair needs three or four. Both
/// count for each pair, so that nobody who floods a rank makes its other job-mates break the rules.
const WAITING_MAX: usize = 32;
const PASSES_MAX: u32 = 1024;

/// Refusals that are written to the log.
const REFUSALS_LOGGED: u64 = 8;
/// Messages read from one connection at a time.
const READS_MAX: u32 = 64;

/// What one local rank is to the broker.
pub struct Seat {
    pub rank: Rank,
    pub cookie: [u8; 16],
    /// Its bound sockets, until they have been handed over.
    pub rails: Vec<OwnedFd>,
    conn: Option<usize>,
    attached_once: bool,
    gone: bool,
    queue: VecDeque<Parcel>,
    /// By seat: what has passed from there to here.
    passed: Vec<u32>,
}

impl Seat {
    pub fn new(rank: Rank, cookie: [u8; 16], rails: Vec<OwnedFd>) -> Seat {
        Seat {
            rank,
            cookie,
            rails,
            conn: None,
            attached_once: false,
            gone: false,
            queue: VecDeque::new(),
            passed: Vec::new(),
        }
    }

    /// Closes the sockets of networks that the job does not use; `bound` are the addresses of all.
    pub fn keep_rails(&mut self, bound: &[SocketAddr], used: &[SocketAddr]) {
        let rails = std::mem::take(&mut self.rails);
        let kept = rails.into_iter().zip(bound).filter(|(_, address)| used.contains(address));
        self.rails = kept.map(|(rail, _)| rail).collect();
    }
}

struct Parcel {
    /// The seat of the rank that passed it.
    from: Option<usize>,
    bytes: Vec<u8>,
    fds: Vec<OwnedFd>,
}

struct Conn {
    socket: Rc<Seqpacket>,
    seat: Option<usize>,
    /// The process that connected.
    pid: i32,
    /// Counts connections in the order of their coming.
    number: u64,
}

/// What the event loop has to do for the broker.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    Abort {
        rank: Rank,
        code: u8,
        text: String,
    },
    /// The connection is closed; stop polling it.
    Closed,
}

pub struct Broker {
    listener: Listener,
    boot: OwnedFd,
    boot_bytes: u32,
    keys: Option<PairKeys>,
    board: Board,
    board_fd: OwnedFd,
    seats: Vec<Seat>,
    conns: Vec<Option<Conn>>,
    /// Everybody who has ended so far, for ranks that attach later.
    ended: Vec<(Rank, Gone)>,
    refused: u64,
    /// Connections taken so far.
    accepted: u64,
}

impl Broker {
    /// `keys`: of the pairs of ranks of different nodes, if there are such.
    pub fn new(
        listener: Listener,
        boot: (OwnedFd, u32),
        keys: Option<PairKeys>,
        board: (Board, OwnedFd),
        seats: Vec<Seat>,
    ) -> Broker {
        let (boot, boot_bytes) = boot;
        let (board, board_fd) = board;
        Broker {
            listener,
            boot,
            boot_bytes,
            keys,
            board,
            board_fd,
            seats,
            conns: Vec::new(),
            ended: Vec::new(),
            refused: 0,
            accepted: 0,
        }
    }

    pub fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    pub fn conn_fd(&self, index: usize) -> Option<BorrowedFd<'_>> {
        Some(self.conns.get(index)?.as_ref()?.socket.as_fd())
    }

    /// Ranks that were attached, are no longer, and have not been called gone.
    pub fn left(&self) -> Vec<Rank> {
        let left = |seat: &Seat| (seat.attached_once && seat.conn.is_none() && !seat.gone).then_some(seat.rank);
        self.seats.iter().filter_map(left).collect()
    }

    /// Messages refused so far, for the log at the end.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Reads what a connection has sent, so much that one talkative rank does not keep the others waiting.
    pub fn read(&mut self, index: usize) -> Vec<Event> {
        let mut events = Vec::new();
        self.read_some(index, &mut events);
        events
    }

    /// Whether there may be more to read.
    fn read_some(&mut self, index: usize, events: &mut Vec<Event>) -> bool {
        let mut buffer = [0; MESSAGE_MAX];
        for _ in 0..READS_MAX {
            let Some(conn) = self.conns.get(index).and_then(Option::as_ref) else { return false };
            let socket = Rc::clone(&conn.socket);
            let result = match socket.recv(&mut buffer) {
                Ok(Some(received)) => match boot::decode::<ToKeeper>(&buffer[..received.bytes]) {
                    Ok(message) => self.handle(index, message, received.fds, events),
                    Err(malformed) => Err(malformed.to_string()),
                },
                Ok(None) => {
                    self.close(index);
                    events.push(Event::Closed);
                    return false;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(error) => Err(error.to_string()),
            };
            if let Err(why) = result {
                self.note_refusal(&self.who(index), &why);
                let _ = socket.send(&boot::encode(&ToRank::Refused { why }), &[]);
                self.close(index);
                events.push(Event::Closed);
                return false;
            }
        }
        true
    }

    /// Counts all, logs the first few: nobody shall fill a log by talking nonsense.
    fn note_refusal(&mut self, who: &str, why: &str) {
        self.refused += 1;
        if self.refused <= REFUSALS_LOGGED {
            log!(Warn, "keeper", "{who} is refused: {why}");
        }
    }

    fn who(&self, index: usize) -> String {
        let seat = self.conns[index].as_ref().and_then(|conn| conn.seat);
        seat.map_or("a process that tried to attach".to_owned(), |seat| format!("rank {}", self.seats[seat].rank))
    }

    fn handle(
        &mut self,
        index: usize,
        message: ToKeeper,
        fds: Vec<OwnedFd>,
        events: &mut Vec<Event>,
    ) -> Result<(), String> {
        let seat = self.conns[index].as_ref().and_then(|conn| conn.seat);
        match (message, seat) {
            (ToKeeper::Hello { version, rank, cookie }, None) => self.hello(index, version, rank, cookie),
            (ToKeeper::Pass { to, what }, Some(from)) => self.pass(from, to, what, fds),
            (ToKeeper::Abort { code, text }, Some(seat)) => {
                events.push(Event::Abort { rank: self.seats[seat].rank, code, text });
                Ok(())
            }
            (ToKeeper::Hello { .. }, Some(_)) => Err("it said hello twice".to_owned()),
            (_, None) => Err("it did not say hello first".to_owned()),
        }
    }

    fn hello(&mut self, index: usize, version: u32, rank: Rank, cookie: [u8; 16]) -> Result<(), String> {
        if version != PROTOCOL_VERSION {
            return Err(format!("it speaks protocol version {version}, this keeper {PROTOCOL_VERSION}"));
        }
        let local = self.local(rank).ok_or_else(|| format!("rank {rank} does not run on this node"))?;
        let seat = &mut self.seats[local];
        if seat.cookie != cookie {
            return Err(format!("wrong cookie for rank {rank}"));
        }
        if seat.attached_once {
            return Err(format!("rank {rank} has attached already; one process of each rank may"));
        }
        seat.attached_once = true;
        seat.conn = Some(index);
        let rails = std::mem::take(&mut seat.rails);
        if let Some(conn) = &mut self.conns[index] {
            conn.seat = Some(local);
        }
        let welcome = ToRank::Welcome {
            boot_bytes: self.boot_bytes,
            local_rank: local as u32,
            local_size: self.seats.len() as u32,
        };
        let socket = self.conns[index].as_ref().map(|conn| Rc::clone(&conn.socket)).ok_or("it is gone")?;
        let own_keys = self.keys.as_ref().map(|keys| memfd::create_constant("pulc-keys", &keys.row(rank)));
        let own_keys = own_keys.transpose().map_err(|error| format!("its keys cannot be handed over: {error}"))?;
        let mut fds = vec![self.boot.as_fd(), self.board_fd.as_fd()];
        fds.extend(own_keys.iter().map(AsFd::as_fd));
        fds.extend(rails.iter().map(AsFd::as_fd));
        let failed = |error: io::Error| format!("its welcome could not be sent: {error}");
        match socket.send(&boot::encode(&welcome), &fds) {
            Ok(()) => {}
            // Too many descriptors of this user are in flight: it waits at the head of the queue.
            Err(error) if must_wait(&error) => {
                let fds =
                    fds.iter().map(|fd| fd.try_clone_to_owned()).collect::<io::Result<Vec<_>>>().map_err(failed)?;
                self.seats[local].queue.push_front(Parcel { from: None, bytes: boot::encode(&welcome), fds });
            }
            Err(error) => return Err(failed(error)),
        }
        for (rank, how) in self.ended.clone() {
            self.post(local, None, &ToRank::Gone { rank, how }, Vec::new());
        }
        self.deliver(local);
        Ok(())
    }

    fn local(&self, rank: Rank) -> Option<usize> {
        let first = self.seats.first()?.rank;
        let local = rank.0.checked_sub(first.0)? as usize;
        (local < self.seats.len()).then_some(local)
    }

    fn pass(&mut self, from: usize, to: Rank, what: Vec<u8>, fds: Vec<OwnedFd>) -> Result<(), String> {
        if what.len() > PASS_BYTES_MAX || fds.len() > PASS_FDS_MAX {
            return Err(format!(
                "it passed {} bytes and {} descriptors (limits {PASS_BYTES_MAX} and {PASS_FDS_MAX})",
                what.len(),
                fds.len()
            ));
        }
        let local =
            self.local(to).ok_or_else(|| format!("it passed something to rank {to}, which is not on this node"))?;
        let seats = self.seats.len();
        let seat = &mut self.seats[local];
        if seat.queue.iter().filter(|parcel| parcel.from == Some(from)).count() >= WAITING_MAX {
            return Err(format!("more than {WAITING_MAX} of its parcels wait for rank {to}"));
        }
        seat.passed.resize(seats, 0);
        seat.passed[from] += 1;
        if seat.passed[from] > PASSES_MAX {
            return Err(format!("it has passed more than {PASSES_MAX} parcels to rank {to}"));
        }
        let rank = self.seats[from].rank;
        self.post(local, Some(from), &ToRank::Passed { from: rank, what }, fds);
        self.deliver(local);
        Ok(())
    }

    fn post(&mut self, local: usize, from: Option<usize>, message: &ToRank, fds: Vec<OwnedFd>) {
        let seat = &mut self.seats[local];
        if !seat.gone {
            seat.queue.push_back(Parcel { from, bytes: boot::encode(message), fds });
        }
    }

    /// Sends what waits for a rank, as far as its socket takes it.
    fn deliver(&mut self, local: usize) {
        let seat = &mut self.seats[local];
        let Some(conn) = seat.conn.and_then(|index| self.conns.get(index)?.as_ref()) else { return };
        while let Some(parcel) = seat.queue.front() {
            let fds: Vec<BorrowedFd<'_>> = parcel.fds.iter().map(AsFd::as_fd).collect();
            match conn.socket.send(&parcel.bytes, &fds) {
                Ok(()) => {
                    self.board.slot(local as u32).announce_broker_message();
                    seat.queue.pop_front();
                }
                // Its buffer is full, or too many descriptors are in flight: `retry` tries again.
                Err(error) if must_wait(&error) => break,
                Err(_) => {
                    seat.queue.clear();
                    break;
                }
            }
        }
    }

    /// Whether parcels wait for ranks that are attached; then call [`Broker::retry`] soon.
    pub fn has_waiting(&self) -> bool {
        self.seats.iter().any(|seat| seat.conn.is_some() && !seat.queue.is_empty())
    }

    pub fn retry(&mut self) {
        (0..self.seats.len()).for_each(|local| self.deliver(local));
    }

    /// Tells the attached ranks that others have ended, after passing on what the dead had sent.
    pub fn gone(&mut self, ranks: &[(Rank, Gone)]) -> Vec<Event> {
        let mut events = Vec::new();
        for (rank, _) in ranks {
            if let Some(local) = self.local(*rank) {
                while let Some(index) = self.seats[local].conn
                    && self.read_some(index, &mut events)
                {}
                let seat = &mut self.seats[local];
                seat.gone = true;
                seat.queue.clear();
                seat.rails.clear();
                if let Some(index) = seat.conn.take() {
                    self.conns[index] = None;
                }
            }
        }
        self.ended.extend_from_slice(ranks);
        for local in 0..self.seats.len() {
            if self.seats[local].conn.is_none() {
                continue;
            }
            for (rank, how) in ranks {
                self.post(local, None, &ToRank::Gone { rank: *rank, how: *how }, Vec::new());
            }
            self.deliver(local);
        }
        events
    }

    fn close(&mut self, index: usize) {
        if let Some(conn) = self.conns.get_mut(index).and_then(Option::take)
            && let Some(local) = conn.seat
        {
            self.seats[local].conn = None;
            self.seats[local].queue.clear();
        }
    }
}

fn must_wait(error: &io::Error) -> bool {
    let full = [rustix::io::Errno::TOOMANYREFS, rustix::io::Errno::NOBUFS].map(|errno| Some(errno.raw_os_error()));
    error.kind() == io::ErrorKind::WouldBlock || full.contains(&error.raw_os_error())
}

#[cfg(test)]
#[path = "broker_tests.rs"]
mod tests;
