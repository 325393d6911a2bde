#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod daemon;
pub mod embedded;
pub mod error;
mod event_loop;
#[doc(hidden)]
pub mod fuzz;
pub mod health;
pub mod identity;
pub mod jobs;
pub mod keeper;
pub mod membership;
pub mod mesh;
mod networks;
pub mod peer_message;
pub mod pmi;
pub mod queue;
pub mod sockets;
pub mod stage;

pub use error::Error;
