//! Hardware abstraction layer: devices that move frames, `os/` with safe tools for what the kernel can do, and the board of
//! doorbells. Called by the handler and by the keeper; must never know of protocols or jobs.
#![doc = include_str!("../README.md")]

mod bias;
pub mod board;
pub mod calibration;
pub mod device;
mod doorbell;
pub mod error;
#[doc(hidden)]
pub mod fuzz;
#[cfg(all(test, loom))]
mod models;
pub mod os;
pub mod segment;
mod sync;
pub mod tally;
#[cfg(loom)]
pub mod tried;
pub mod turns;

pub use error::HalError;
