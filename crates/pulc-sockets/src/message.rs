//! What ends, the broker and `pulc sockets` say to each other: fixed datagrams, little-endian, parsed without allocating. A stranger's
//! datagram is refused, not guessed.

use crate::error::Error;
use crate::layout::Side;

/// First four bytes of every datagram; the last one is the version.
const MAGIC: [u8; 4] = *b"PSK\x01";
pub const REQUEST_BYTES: usize = 72;
pub const ANSWER_BYTES: usize = 16;
/// No slot of the board yet.
pub const NO_SLOT: u32 = u32::MAX;
/// What no broker calls its board.
pub const NO_BOARD: u32 = 0;

/// Name of a user's broker, in the abstract namespace (which belongs to a network namespace, as connections do).
pub fn broker_name(uid: u32) -> [u8; NAME_BYTES] {
    let mut name = *b"pulc-sockets-0000000000";
    let mut rest = uid;
    for digit in name.iter_mut().rev().take(10) {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    name
}

pub const NAME_BYTES: usize = 23;
/// Name of the one broker of a network namespace that meets ends of different users: a system's psid, which has to be root's. A [`Join`] to it
/// brings along, the first time, the memory in which its process shows who sleeps (`window`); `slot` and `board` are what that broker calls
/// that memory and itself. What comes with the answer is the channel and the other end's window.
pub const SYSTEM_NAME: [u8; NAME_BYTES] = *b"pulc-sockets-the-system";

/// Address and port; IPv4 as the mapped IPv6 address, so that both ends of a connection have the same form.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Place {
    pub address: [u8; 16],
    pub port: u16,
}

impl Place {
    pub fn v4(address: [u8; 4], port: u16) -> Place {
        let mut mapped = [0; 16];
        mapped[10..12].fill(0xff);
        mapped[12..].copy_from_slice(&address);
        Place { address: mapped, port }
    }

    /// The IPv4 address, if it is one.
    pub fn as_v4(&self) -> Option<[u8; 4]> {
        let is_mapped = self.address[..10] == [0; 10] && self.address[10..12] == [0xff; 2];
        is_mapped.then(|| [self.address[12], self.address[13], self.address[14], self.address[15]])
    }
}

/// "This connection of mine may be promoted." With `is_datagram`: "this socket of mine may have an inbox" (it is the passive side, and `remote`
/// is what it is connected to, or nothing), or "this socket of mine sends to that one" (it is the active side).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Join {
    pub side: Side,
    pub is_datagram: bool,
    /// The kernel's name of the socket, never used twice.
    pub cookie: u64,
    pub local: Place,
    pub remote: Place,
    pub slot: u32,
    /// The board that the slot is of, [`NO_BOARD`] without one.
    pub board: u32,
}

/// "This connection of mine stays on the kernel, because …"
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Report {
    pub side: Side,
    pub reason: Reason,
    pub local: Place,
    pub remote: Place,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    Join(Join),
    /// Is not answered.
    Report(Report),
    /// All connections, one a line, then a list's end.
    List,
    /// Back to the kernel: those of a process, or all (0).
    Demote(u32),
}

impl Request {
    pub fn encode(&self) -> [u8; REQUEST_BYTES] {
        let mut bytes = [0; REQUEST_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        match self {
            Request::Join(join) => {
                bytes[4] = 1;
                bytes[5] = join.side as u8;
                bytes[6] = u8::from(join.is_datagram);
                bytes[8..12].copy_from_slice(&join.slot.to_le_bytes());
                bytes[12..16].copy_from_slice(&join.board.to_le_bytes());
                bytes[16..24].copy_from_slice(&join.cookie.to_le_bytes());
                put_place(&mut bytes[24..42], &join.local);
                put_place(&mut bytes[42..60], &join.remote);
            }
            Request::List => bytes[4] = 2,
            Request::Demote(pid) => {
                bytes[4] = 3;
                bytes[8..12].copy_from_slice(&pid.to_le_bytes());
            }
            Request::Report(report) => {
                bytes[4] = 4;
                bytes[5] = report.side as u8;
                bytes[8..12].copy_from_slice(&(report.reason as u32).to_le_bytes());
                put_place(&mut bytes[24..42], &report.local);
                put_place(&mut bytes[42..60], &report.remote);
            }
        }
        bytes
    }

    /// # Errors
    /// Anything that [`Request::encode`] would not write.
    pub fn decode(bytes: &[u8]) -> Result<Request, Error> {
        let unknown = || Error::Message(bytes.len());
        if bytes.len() != REQUEST_BYTES || bytes[..4] != MAGIC {
            return Err(unknown());
        }
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let number = word(8);
        let side = || Side::of(u32::from(bytes[5])).ok_or_else(unknown);
        let (local, remote) = (place(&bytes[24..42]), place(&bytes[42..60]));
        match bytes[4] {
            1 => Ok(Request::Join(Join {
                side: side()?,
                is_datagram: match bytes[6] {
                    0 => false,
                    1 => true,
                    _ => return Err(unknown()),
                },
                cookie: u64::from_le_bytes(bytes[16..24].try_into().map_err(|_| unknown())?),
                local,
                remote,
                slot: number,
                board: word(12),
            })),
            4 => Ok(Request::Report(Report { side: side()?, reason: Reason::of(number), local, remote })),
            2 => Ok(Request::List),
            3 => Ok(Request::Demote(number)),
            _ => Err(unknown()),
        }
    }
}

fn put_place(to: &mut [u8], place: &Place) {
    to[..16].copy_from_slice(&place.address);
    to[16..18].copy_from_slice(&place.port.to_le_bytes());
}

fn place(from: &[u8]) -> Place {
    let mut address = [0; 16];
    address.copy_from_slice(&from[..16]);
    Place { address, port: u16::from_le_bytes([from[16], from[17]]) }
}

/// Why a connection stays on the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Reason {
    /// Nothing speaks against it.
    None = 0,
    NoBroker = 1,
    NotTcp = 2,
    PeerElsewhere = 3,
    PeerOfAnotherUser = 4,
    NotTheSocket = 5,
    Full = 6,
    KernelUnknown = 7,
    Forked = 8,
    HandedOver = 9,
    Option = 10,
    Waiting = 11,
    Excluded = 12,
    Told = 13,
    NoMemory = 14,
    Urgent = 15,
    Unwatched = 16,
    Closed = 17,
    Slow = 18,
    OtherBroker = 19,
    KernelSilent = 20,
    NoTrial = 21,
    NotOpen = 22,
    SharedPort = 23,
    NotMet = 24,
}

impl Reason {
    pub const ALL: [Reason; 25] = [
        Reason::None,
        Reason::NoBroker,
        Reason::NotTcp,
        Reason::PeerElsewhere,
        Reason::PeerOfAnotherUser,
        Reason::NotTheSocket,
        Reason::Full,
        Reason::KernelUnknown,
        Reason::Forked,
        Reason::HandedOver,
        Reason::Option,
        Reason::Waiting,
        Reason::Excluded,
        Reason::Told,
        Reason::NoMemory,
        Reason::Urgent,
        Reason::Unwatched,
        Reason::Closed,
        Reason::Slow,
        Reason::OtherBroker,
        Reason::KernelSilent,
        Reason::NoTrial,
        Reason::NotOpen,
        Reason::SharedPort,
        Reason::NotMet,
    ];

    /// Whether it may be otherwise later: then the connection asks again.
    pub fn may_pass(self) -> bool {
        match self {
            Reason::NoBroker
            | Reason::PeerOfAnotherUser
            | Reason::Full
            | Reason::KernelUnknown
            | Reason::NoMemory
            | Reason::Slow
            | Reason::KernelSilent
            | Reason::NoTrial
            | Reason::NotOpen
            | Reason::NotMet => true,
            Reason::None
            | Reason::NotTcp
            | Reason::PeerElsewhere
            | Reason::NotTheSocket
            | Reason::Forked
            | Reason::HandedOver
            | Reason::Option
            | Reason::Waiting
            | Reason::Excluded
            | Reason::Told
            | Reason::Urgent
            | Reason::Unwatched
            | Reason::Closed
            | Reason::OtherBroker
            | Reason::SharedPort => false,
        }
    }

    pub fn of(number: u32) -> Reason {
        Reason::ALL.into_iter().find(|reason| *reason as u32 == number).unwrap_or(Reason::None)
    }

    /// For people.
    pub fn text(self) -> &'static str {
        match self {
            Reason::None => "",
            Reason::NoBroker => "no broker",
            Reason::NotTcp => "not plain TCP",
            Reason::PeerElsewhere => "the other end is not on this machine",
            Reason::PeerOfAnotherUser => "the other end belongs to another user",
            Reason::NotTheSocket => "the kernel knows this connection by another name",
            Reason::Full => "too many connections",
            Reason::KernelUnknown => "this kernel does not count bytes as expected",
            Reason::Forked => "shared by a fork before it was promoted",
            Reason::HandedOver => "handed to another program",
            Reason::Option => "a socket option that only the kernel has",
            Reason::Waiting => "the other end does not take part, or not yet",
            Reason::Excluded => "its port is not among those of --only",
            Reason::Told => "told to by `pulc sockets demote`",
            Reason::NoMemory => "no memory",
            Reason::Urgent => "urgent data",
            Reason::Unwatched => "waited for in a way that is not followed",
            Reason::Closed => "closed",
            Reason::Slow => "the broker took too long to answer; it is asked again",
            Reason::OtherBroker => "its process began with a broker that is gone; start the program again",
            Reason::KernelSilent => "the kernel did not say whose connection it is; it is asked again",
            Reason::NoTrial => "the broker could not make a connection of its own to try the kernel with",
            Reason::NotOpen => "not open both ways yet",
            Reason::NotMet => "the other end, of another user, has not asked the system's broker yet",
            Reason::SharedPort => "other sockets may have its port too",
        }
    }
}

/// What the broker says to a [`Join`]: a channel and a slot (with the board, if there was none yet), or why not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    pub reason: Reason,
    pub slot: u32,
    /// What the broker calls its board; other brokers call theirs otherwise.
    pub board: u32,
}

impl Answer {
    pub fn encode(&self) -> [u8; ANSWER_BYTES] {
        let mut bytes = [0; ANSWER_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..8].copy_from_slice(&(self.reason as u32).to_le_bytes());
        bytes[8..12].copy_from_slice(&self.slot.to_le_bytes());
        bytes[12..].copy_from_slice(&self.board.to_le_bytes());
        bytes
    }

    /// # Errors
    /// Anything that [`Answer::encode`] would not write.
    pub fn decode(bytes: &[u8]) -> Result<Answer, Error> {
        if bytes.len() != ANSWER_BYTES || bytes[..4] != MAGIC {
            return Err(Error::Message(bytes.len()));
        }
        let number = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Ok(Answer { reason: Reason::of(number(4)), slot: number(8), board: number(12) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded_and_nothing_else() {
        let join = Join {
            side: Side::Passive,
            is_datagram: true,
            cookie: 7 << 40,
            local: Place::v4([127, 0, 0, 1], 6379),
            remote: Place { address: [9; 16], port: 65535 },
            slot: NO_SLOT,
            board: 0x1234_5678,
        };
        let report = Report { side: Side::Active, reason: Reason::Excluded, local: join.remote, remote: join.local };
        for request in [Request::Join(join), Request::Report(report), Request::List, Request::Demote(77)] {
            assert_eq!(Request::decode(&request.encode()).unwrap(), request);
        }
        for reason in Reason::ALL {
            let answer = Answer { reason, slot: 5, board: 9 };
            assert_eq!(Answer::decode(&answer.encode()).unwrap(), answer);
        }
        let good = Request::List.encode();
        assert!(Request::decode(&good[1..]).is_err() && Request::decode(&[0; REQUEST_BYTES]).is_err());
        for at in [0, 3, 4] {
            let mut bad = good;
            bad[at] = 0x55;
            assert!(Request::decode(&bad).is_err(), "byte {at}");
        }
    }

    #[test]
    fn brokers_of_different_users_have_different_names() {
        assert_eq!(&broker_name(0), b"pulc-sockets-0000000000");
        assert_eq!(&broker_name(4_294_967_295), b"pulc-sockets-4294967295");
    }
}
