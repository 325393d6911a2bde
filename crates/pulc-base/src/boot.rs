//! What a rank is told when it attaches, and what ranks and their keeper say to each other afterwards.
//!
//! A rank finds its keeper by environment ([`ENV_KEEPER`]): an abstract unix `SOCK_SEQPACKET` address, so nothing is left in
//! the file system whatever dies. It sends [`ToKeeper::Hello`] and is answered with [`ToRank::Welcome`], which carries the
//! descriptors listed there. Wire-up data is complete at that moment: no rank ever asks another one for addresses.
//! Encoded with postcard, one message a datagram, at most [`MESSAGE_MAX`] bytes. Parsing never panics.

use crate::ids::{JobId, NodeId, Rank};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// Name (without the leading NUL byte) of the keeper's abstract socket.
pub const ENV_KEEPER: &str = "PULC_KEEPER";
/// 32 hexadecimal digits that prove to the keeper that this process was given rank [`ENV_RANK`].
pub const ENV_COOKIE: &str = "PULC_COOKIE";
pub const ENV_RANK: &str = "PULC_RANK";
pub const ENV_SIZE: &str = "PULC_SIZE";
/// Also the tag by which processes of a job are recognised in /proc.
pub const ENV_JOBID: &str = "PULC_JOBID";
pub const ENV_NODE: &str = "PULC_NODE";
pub const ENV_LOCAL_RANK: &str = "PULC_LOCAL_RANK";
pub const ENV_LOCAL_SIZE: &str = "PULC_LOCAL_SIZE";
/// `COLUMNSxLINES` of the terminal that the job's output appears on, set by `pulc run` where it is one (and lines are not
/// labelled): a rank's own standard output is a pipe, so it could not know.
pub const ENV_TERMINAL: &str = "PULC_TERMINAL";
/// Number of a process with which a daemon or a `pulc run` ends, however that process ends. Set by tests, benchmarks and the
/// demo for what they start; never given to ranks.
pub const ENV_ENDS_WITH: &str = "PULC_ENDS_WITH";

/// The rails of a job between nodes, see [`parse_rails`]. Read by the keepers, so it is the same for all ranks.
pub const ENV_RAILS: &str = "PULC_RAILS";
/// `native`: programs get the MPI they were built for, not ours.
pub const ENV_MPI: &str = "PULC_MPI";

/// Largest datagram between rank and keeper, in bytes. [`Boot`] travels in a sealed memfd, not in a datagram.
pub const MESSAGE_MAX: usize = 4096;

/// What carries frames between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RailKind {
    Udp,
    /// Where UDP is filtered.
    Tcp,
}

/// `udp`, `tcp`, or both with a comma: then every rank has both, and what does not get through on one goes over the other.
///
/// # Errors
/// A text for the user.
pub fn parse_rails(text: &str) -> Result<Vec<RailKind>, String> {
    let mut rails = Vec::new();
    for word in text.split(',') {
        let kind = match word {
            "udp" => RailKind::Udp,
            "tcp" => RailKind::Tcp,
            _ => return Err(format!("{word:?} is no rail; there are udp and tcp, and udp,tcp for both")),
        };
        if rails.contains(&kind) {
            return Err(format!("the rail {word} is named twice"));
        }
        rails.push(kind);
    }
    Ok(rails)
}

/// The whole job as every rank sees it, identical for all ranks of a job. Lives in a sealed memfd, read-only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Boot {
    pub version: u32,
    pub job: JobId,
    pub nodes: Vec<BootNode>,
    /// Indexed by rank.
    pub tasks: Vec<BootTask>,
}

/// From which the keys of all network frames of a job are derived. Known to daemons and keepers, never to ranks: each of these
/// gets the keys of its own pairs.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSecret(pub [u8; 32]);

impl std::fmt::Debug for JobSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JobSecret(..)")
    }
}

/// Bytes of the key that two ranks of different nodes share.
pub const PAIR_KEY_BYTES: usize = 16;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootNode {
    pub id: NodeId,
    pub name: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootTask {
    /// Index into [`Boot::nodes`].
    pub node: u32,
    /// Where this rank receives frames, one address per rail; empty in a job on one node.
    pub rails: Vec<SocketAddr>,
}

/// From a rank to its keeper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToKeeper {
    Hello {
        version: u32,
        rank: Rank,
        cookie: [u8; 16],
    },
    /// Hand `what` and the attached descriptors (at most [`PASS_FDS_MAX`]) to a rank of this job on this node. The keeper
    /// does not look inside `what` (at most [`PASS_BYTES_MAX`] bytes). Held until the addressee attaches.
    Pass {
        to: Rank,
        what: Vec<u8>,
    },
    /// End the whole job; `code` becomes its exit status.
    Abort {
        code: u8,
        text: String,
    },
}

pub const PASS_FDS_MAX: usize = 4;
pub const PASS_BYTES_MAX: usize = 256;

/// The hidden subcommand of `pulc` that keeps a node of a job which another launcher has started.
pub const GUEST_KEEPER: &str = "guest-keeper";

/// To such a keeper on its standard input, from the rank that starts it: first this, then a [`Boot`]. Every message of the two has its
/// length in front, four bytes, little-endian.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestOrder {
    pub version: u32,
    /// Ranks `first .. first + count` run on this node.
    pub first: u32,
    pub count: u32,
    /// The job has other nodes: every rank needs sockets.
    pub is_spread: bool,
}

/// What it needs to let ranks attach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestGo {
    pub boot: Boot,
    pub secret: JobSecret,
}

/// Its answer on its standard output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestReady {
    /// As in [`ENV_KEEPER`].
    pub keeper: String,
    /// Of all ranks of the node.
    pub cookie: [u8; 16],
    pub node: String,
    /// Drawn in case that the job takes this one.
    pub secret: JobSecret,
    /// Where each rank receives frames.
    pub addresses: Vec<Vec<SocketAddr>>,
}

/// From a keeper to one of its ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToRank {
    /// Descriptors, in this order: memfd with [`Boot`], memfd of the node's board (`pulc_hal::board`); in a job on several nodes
    /// also a memfd with the rank's keys ([`PAIR_KEY_BYTES`] for each rank, by rank; what stands for ranks of its own node
    /// means nothing), then one bound socket per rail.
    Welcome {
        boot_bytes: u32,
        local_rank: u32,
        local_size: u32,
    },
    Refused {
        why: String,
    },
    /// A job-mate's [`ToKeeper::Pass`], with its descriptors.
    Passed {
        from: Rank,
        what: Vec<u8>,
    },
    /// A rank has ended; what it sent before has been or will be delivered, nothing more will come.
    Gone {
        rank: Rank,
        how: Gone,
    },
}

/// How a rank ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Gone {
    Exited(u8),
    Killed(u8),
    /// Its node was lost.
    Lost,
}

/// Encodes any of the messages above.
pub fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    postcard::to_allocvec(message).expect("postcard encodes every message type: no maps, no unsized sequences")
}

/// Decodes one message; trailing bytes are an error.
pub fn decode<T: for<'a> Deserialize<'a>>(bytes: &[u8]) -> Result<T, Malformed> {
    match postcard::take_from_bytes(bytes) {
        Ok((message, [])) => Ok(message),
        _ => Err(Malformed { len: bytes.len() }),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed message of {len} bytes")]
pub struct Malformed {
    pub len: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rails_are_named_once_and_by_their_names() {
        assert_eq!(parse_rails("udp"), Ok(vec![RailKind::Udp]));
        assert_eq!(parse_rails("tcp,udp"), Ok(vec![RailKind::Tcp, RailKind::Udp]));
        for wrong in ["", "udp,", "udp,udp", "TCP", "tcp udp", "sctp"] {
            assert!(parse_rails(wrong).is_err(), "{wrong:?} was accepted");
        }
    }

    #[test]
    fn messages_survive_the_round_trip_and_reject_what_is_cut_or_padded() {
        let hello = ToKeeper::Hello { version: 1, rank: Rank(7), cookie: [9; 16] };
        let bytes = encode(&hello);
        assert_eq!(decode::<ToKeeper>(&bytes), Ok(hello));
        for len in 0..bytes.len() {
            assert!(decode::<ToKeeper>(&bytes[..len]).is_err(), "a prefix of {len} bytes was accepted");
        }
        let padded = [bytes.as_slice(), &[0]].concat();
        assert!(decode::<ToKeeper>(&padded).is_err());
    }
}
