#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod attach;
mod broker;
mod dispatch;
mod engine;
mod error;
pub mod matching;
pub mod memory;
mod net;
mod outgoing;
pub mod params;
mod pattern;
mod peers;
mod process;
mod progress;
mod referring;
mod sending;
mod switch;
mod uncounted;
mod wait;
mod wire;

pub use engine::{DeviceReport, Engine, Tally};
pub use error::{End, Error, SendFault};
pub use process::{Guard, Process, Shared, Waited, Watch};
pub use sending::{Progress, Sending};
pub use switch::{Begin, Body, Fate, Hand, Here, Outbox, ReceiveHandler, TransferId, Want};
pub use uncounted::{Parcel, Sent};
pub use wire::MESSAGE_COST;
