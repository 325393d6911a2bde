#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod attach;
mod awaited;
mod batches;
mod broker;
mod dispatch;
mod engine;
mod errand;
mod error;
#[doc(hidden)]
pub mod fuzz;
mod guest;
#[cfg(test)]
mod hostile_tests;
mod incoming;
pub mod leaf;
pub mod matching;
pub mod memory;
pub mod mpi_params;
mod net;
mod outbox;
mod outgoing;
pub mod params;
mod pattern;
mod peers;
mod process;
mod progress;
mod referring;
mod segments;
mod sending;
mod sleepers;
mod switch;
mod uncounted;
mod wait;
mod wire;

pub use awaited::{Awaited, Look};
pub use batches::BATCHED_MAX;
pub use engine::{DeviceReport, Engine, Tally};
pub use errand::{Busy, Errand};
pub use error::{End, Error, SendFault};
pub use outbox::Outbox;
pub use process::{Armed, Beside, Guard, Process, Shared, Swept, Waited, Wakeup, Watch};
pub use sending::{Progress as SendProgress, Sending};
pub use switch::{Begin, Body, Fate, Hand, Here, ReceiveHandler, TransferId, Want};
pub use uncounted::{HEADER_WORDS, Parcel, Sent};
pub use wire::MESSAGE_COST;
