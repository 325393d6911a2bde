//! What daemons say to each other about files of jobs. Who needs a file asks for it piece by piece, so it is never sent more than it has
//! room for; what is asked for is named by what is in it. Handled only by `stage`. Variants are only ever appended.

use pulc_control::stage::Content;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StageMsg {
    /// `len` bytes from `at` on, please; answered with [`StageMsg::Data`] or [`StageMsg::Not`] in the order of asking. `path` is where
    /// the file was when the job was asked for, at its home.
    Get {
        content: Content,
        path: Vec<u8>,
        at: u64,
        len: u32,
    },
    Data {
        hash: [u8; 32],
        at: u64,
        bytes: Vec<u8>,
    },
    /// It is not here yet, but coming.
    Wait {
        hash: [u8; 32],
    },
    /// It is not to be had here.
    Not {
        hash: [u8; 32],
        why: String,
    },
    /// A job has left this at the sender, for the asked node to fetch and put in its place; answered with [`StageMsg::Taken`]. The number
    /// is the sender's.
    Offer {
        ticket: u64,
        content: Content,
        path: Vec<u8>,
        mode: u32,
        target: Vec<u8>,
    },
    /// It is being fetched and written.
    Taking {
        ticket: u64,
    },
    /// It is in its place, on disk; or why not.
    Taken {
        ticket: u64,
        outcome: Result<(), String>,
    },
    /// As [`StageMsg::Offer`], of a job of this user's, where nodes serve several.
    OfferOf {
        ticket: u64,
        content: Content,
        path: Vec<u8>,
        mode: u32,
        target: Vec<u8>,
        uid: u32,
        name: String,
    },
}
