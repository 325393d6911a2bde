//! Return to sender: why a message was not delivered, and what its sender's error handler is told.

use super::args::Words;
use super::wire::Kind;
use pulc_base::Rank;

/// Why a message was not delivered.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[repr(u8)]
pub enum Status {
    #[error("its handler takes another number of arguments")]
    BadArguments = 1,
    #[error("the endpoint is closed")]
    BadEndpoint = 2,
    #[error("the endpoint's tag is another one now")]
    BadTag = 3,
    #[error("the endpoint has no such handler of this kind")]
    BadHandler = 4,
    #[error("the offset lies outside the endpoint's segment")]
    BadOffset = 5,
    #[error("the payload does not fit the endpoint's segment or exceeds the limit of its kind")]
    BadLength = 6,
    #[error("the receiver has no memory for it")]
    NoRoom = 7,
    #[error("the other process is gone")]
    PeerGone = 8,
    #[error("its handler did not want the payload")]
    Declined = 9,
    #[error("its handler panicked")]
    Panicked = 10,
}

impl Status {
    pub(crate) fn from(number: u8) -> Option<Status> {
        const ALL: [Status; 10] = [
            Status::BadArguments,
            Status::BadEndpoint,
            Status::BadTag,
            Status::BadHandler,
            Status::BadOffset,
            Status::BadLength,
            Status::NoRoom,
            Status::PeerGone,
            Status::Declined,
            Status::Panicked,
        ];
        ALL.get(usize::from(number).wrapping_sub(1)).copied()
    }
}

/// What kind of message was not delivered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opcode {
    Short,
    Medium,
    Long,
    Fetch,
    Reply,
    MediumReply,
    LongReply,
}

impl Opcode {
    pub(crate) fn kind(self) -> Kind {
        match self {
            Opcode::Short => Kind::Short,
            Opcode::Medium => Kind::Medium,
            Opcode::Long => Kind::Long,
            Opcode::Fetch => Kind::Fetch,
            Opcode::Reply => Kind::ReplyShort,
            Opcode::MediumReply => Kind::ReplyMedium,
            Opcode::LongReply => Kind::ReplyLong,
        }
    }

    pub(crate) fn of(kind: Kind) -> Opcode {
        match kind {
            Kind::Medium => Opcode::Medium,
            Kind::Long => Opcode::Long,
            Kind::Fetch => Opcode::Fetch,
            Kind::ReplyShort => Opcode::Reply,
            Kind::ReplyMedium => Opcode::MediumReply,
            Kind::ReplyLong => Opcode::LongReply,
            _ => Opcode::Short,
        }
    }
}

/// A message that came back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Returned {
    pub status: Status,
    pub opcode: Opcode,
    /// Who did not get it.
    pub peer: Rank,
    /// The handler it was meant for.
    pub handler: u8,
    pub args: Words,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_survives_its_number() {
        for number in 1..=10 {
            assert_eq!(Status::from(number).unwrap() as u8, number);
        }
        assert!(Status::from(0).is_none() && Status::from(11).is_none());
    }
}
