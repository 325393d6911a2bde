//! The node daemon psid and the keeper of a job on a node.
#![forbid(unsafe_code)]

pub mod error;
pub mod mesh;
pub mod peer_message;

pub use error::Error;
