//! Talk with the keeper after attaching: it hands descriptors from rank to rank and tells who has ended. Called by the
//! engine's progress; never blocks.

use pulc_base::Rank;
use pulc_base::boot::{self, MESSAGE_MAX, PASS_FDS_MAX, ToKeeper, ToRank};
use pulc_hal::device::shm::Courier;
use pulc_hal::os::fdpass::Seqpacket;
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// This rank's end of the connection.
pub(crate) struct Broker {
    keeper: Seqpacket,
    /// Messages that the socket had no room for yet.
    waiting: VecDeque<(Vec<u8>, Vec<OwnedFd>)>,
    /// Messages read so far, to compare with what the board says was written.
    read: u32,
    /// Given up for a moment while reading, so that a channel can be taken although the program has used up all
    /// descriptors: the kernel drops those that find no room.
    reserve: Vec<OwnedFd>,
}

/// What [`Broker::next`] found.
pub(crate) enum Heard {
    Message(ToRank, Vec<OwnedFd>),
    /// What came is lost: its descriptors found no room.
    Lost,
    /// Nothing is there.
    Nothing,
    /// The keeper has ended or talks nonsense.
    Closed,
}

impl Broker {
    /// The welcome counts as the first message if the keeper announced it.
    pub fn new(keeper: Seqpacket) -> Broker {
        let mut broker = Broker { keeper, waiting: VecDeque::new(), read: 0, reserve: Vec::new() };
        broker.refill();
        broker
    }

    /// Frees the reserve of descriptors; to be called before reading.
    pub fn open_reserve(&mut self) {
        self.reserve.clear();
    }

    /// And this after what was read has been dealt with.
    pub fn refill(&mut self) {
        while self.reserve.len() < PASS_FDS_MAX {
            match self.keeper.as_fd().try_clone_to_owned() {
                Ok(fd) => self.reserve.push(fd),
                Err(_) => return,
            }
        }
    }

    /// Whether the board's count says that there is something to read. The keeper need not count the welcome: reading a
    /// little too often is harmless.
    #[inline]
    pub fn has_news(&self, written: u32) -> bool {
        written != self.read || !self.waiting.is_empty()
    }

    /// After everything readable has been read: the count that this corresponds to, taken before reading.
    pub fn caught_up(&mut self, written: u32) {
        self.read = written;
    }

    pub fn pass(&mut self, to: Rank, what: Vec<u8>, fds: Vec<OwnedFd>) {
        self.waiting.push_back((boot::encode(&ToKeeper::Pass { to, what }), fds));
        self.flush();
    }

    /// For words that must go now, from wherever a frame is sent.
    pub fn messenger(&self, local: &[Rank]) -> Result<Messenger, std::io::Error> {
        Ok(Messenger { keeper: self.keeper.share()?, local: local.to_vec() })
    }

    pub fn abort(&mut self, code: u8, text: &str) {
        let mut end = text.len().min(MESSAGE_MAX / 2);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.waiting.push_back((boot::encode(&ToKeeper::Abort { code, text: text[..end].to_owned() }), Vec::new()));
        self.flush();
    }

    /// Sends what waits, as far as the socket takes it. A keeper that has ended is noticed by reading.
    pub fn flush(&mut self) {
        while let Some((bytes, fds)) = self.waiting.front() {
            let borrowed: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
            match self.keeper.send(bytes, &borrowed) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                _ => drop(self.waiting.pop_front()),
            }
        }
    }

    /// Reads one message if there is one.
    pub fn next(&mut self) -> Heard {
        let mut buffer = [0; MESSAGE_MAX];
        match self.keeper.recv(&mut buffer) {
            Ok(Some(received)) => match boot::decode(&buffer[..received.bytes]) {
                Ok(message) => Heard::Message(message, received.fds),
                Err(_) => Heard::Closed,
            },
            Err(error) if error.kind() == ErrorKind::WouldBlock => Heard::Nothing,
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                pulc_base::log!(Error, "handler", "a channel is lost because its descriptors found no room: {error}");
                Heard::Lost
            }
            Ok(None) | Err(_) => Heard::Closed,
        }
    }
}

/// Wakes a job-mate that sleeps in poll by an empty word through the keeper.
#[derive(Debug)]
pub(crate) struct Messenger {
    keeper: Seqpacket,
    /// By slot.
    local: Vec<Rank>,
}

impl Courier for Messenger {
    fn wake(&self, slot: u32) {
        let Some(to) = self.local.get(slot as usize) else { return };
        // A keeper that takes nothing now leaves the sleeper to its watchdog.
        let _ = self.keeper.send(&boot::encode(&ToKeeper::Pass { to: *to, what: Vec::new() }), &[]);
    }
}

impl AsFd for Broker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.keeper.as_fd()
    }
}
