#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod board;
mod channel;
#[cfg(not(loom))]
pub mod datagrams;
mod early;
pub mod error;
#[cfg(not(loom))]
#[doc(hidden)]
pub mod fuzz;
mod incoming;
mod kernel;
mod layout;
mod lock;
mod memory;
pub mod message;
#[cfg(all(test, loom))]
mod models;
mod outgoing;
mod parting;
pub mod place;
mod ring;
mod spinning;
#[cfg(not(loom))]
pub mod window;

pub use board::Board;
#[cfg(not(loom))]
pub use channel::create;
pub use channel::{End, Flag, Summary, bar, summary};
pub use early::Sleepers;
pub use error::Error;
pub use incoming::Incoming;
pub use kernel::{Kernel, Wait};
pub use layout::{CHANNEL_BYTES, RING_BYTES, Side};
pub use outgoing::Outgoing;
pub use parting::Parting;
pub use spinning::{Looked, Luck, Other, TOGETHER, look_around};
#[cfg(not(loom))]
pub use window::Window;
