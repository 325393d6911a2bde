#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod admit;
mod apply;
mod ask;
pub mod controller;
mod earmark;
mod error;
pub mod fit;
pub mod fuzz;
mod give_way;
mod health;
pub mod journal;
mod metrics;
mod plan;
mod report;
mod roll;
pub mod state;
mod tie;
mod view;
mod why;

pub use admit::FIXED;
pub use controller::{Controller, Effect, Event, StartOrder, Step};
pub use error::Error;
pub use journal::Journal;
pub use report::{Cause, Health, NodeSeen, Report};
pub use state::{Change, Record, State};
