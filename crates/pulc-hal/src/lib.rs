//! Hardware abstraction layer. `device/` moves frames between processes; `os/` offers the rest of the house safe tools for
//! what the kernel can do; `board` is the page of doorbells that the ranks of a node share. All `unsafe` below the
//! interfaces lives here.

pub mod board;
pub mod device;
mod doorbell;
pub mod error;
#[cfg(all(test, loom))]
mod models;
pub mod os;
mod sync;

pub use error::HalError;
