//! What can go wrong in the handler.

use pulc_base::Rank;
use pulc_base::boot::Gone;
use pulc_hal::device::PeerFault;
use std::fmt;

/// Errors of making and using the engine outside the data path.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the environment variable {name} is {value:?}: start this program with `pulc run`")]
    BadEnvironment { name: &'static str, value: String },
    #[error("cannot reach this job's keeper: {source}; has the job ended?")]
    Keeper {
        #[source]
        source: std::io::Error,
    },
    #[error(
        "this job's keeper did not answer within {waited_ms} ms; raise PULC_ATTACH_TIMEOUT_MS if the machine is this slow"
    )]
    KeeperSilent { waited_ms: u64 },
    #[error("this job's keeper refused: {why}")]
    Refused { why: String },
    #[error(
        "this process speaks protocol version {ours}, its keeper version {theirs}: use programs and `pulc` of one build"
    )]
    Version { ours: u32, theirs: u32 },
    #[error("cannot join the job that another launcher has started through PMI: {source}")]
    Launcher {
        #[source]
        source: std::io::Error,
    },
    #[error("malformed start-up data: {what}")]
    BadBoot { what: &'static str },
    #[error(transparent)]
    Hal(#[from] pulc_hal::error::HalError),
    #[error("process {child} is a fork of the attached process {parent}")]
    Forked { parent: u32, child: u32 },
    #[error(
        "another library of this process has made the engine already and offers no functions to share it: load one PULC only"
    )]
    EngineElsewhere,
    #[error("the memory that job-mates read is not inherited by a fork: use it in the process that made it")]
    ForkedMemory,
    #[error("protocol {0} already has a receive handler")]
    ProtocolTaken(u8),
    #[error("{doing}: {source}")]
    System {
        doing: &'static str,
        #[source]
        source: std::io::Error,
    },
}

/// Why a message was not sent.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SendFault {
    #[error("rank {0} does not exist")]
    NoSuchRank(Rank),
    #[error("rank {0} is gone: {1}")]
    PeerGone(Rank, End),
    #[error("message of {len} bytes exceeds the limit of {max}")]
    TooLong { len: usize, max: usize },
    #[error("{kept} bytes sent by this process to itself wait to be received, the limit is {max}")]
    SelfFull { kept: u64, max: u64 },
    #[error("not taken in time")]
    Timeout,
    /// By the caller itself; nothing of the message arrives.
    #[error("called off")]
    CalledOff,
    /// Something below failed while the channel was made; `Engine::last_failure` has the text.
    #[error("no channel to rank {0}")]
    NoChannel(Rank),
}

/// Why nothing more comes from a rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    Gone(Gone),
    Broken(PeerFault),
    /// What it sent is no message of ours.
    BrokenRules(&'static str),
    /// Our own keeper has ended, and with it the job on this node.
    KeeperGone,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Gone(Gone::Exited(code)) => write!(f, "it exited with status {code}"),
            End::Gone(Gone::Killed(signal)) => write!(f, "it was killed by signal {signal}"),
            End::Gone(Gone::Lost) => write!(f, "its node was lost"),
            End::Broken(fault) => write!(f, "{fault}"),
            End::BrokenRules(what) => write!(f, "its messages broke the rules: {what}"),
            End::KeeperGone => write!(f, "this node's keeper has ended"),
        }
    }
}
