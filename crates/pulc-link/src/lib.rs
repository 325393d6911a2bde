#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod acknowledge;
mod arrivals;
mod config;
mod credit;
#[doc(hidden)]
pub mod fuzz;
mod glue;
mod keys;
mod link;
mod partial;
mod rail;
mod receive;
mod replay;
mod retention;
mod sieve;
mod trains;
mod transmit;
mod wire;

pub use config::{Config, ENCRYPT, FIXED, PACKETS_UNDER_WAY_MAX, PARAMS, RAILS_MAX};
pub use credit::credit_share;
pub use keys::LinkKeys;
pub use link::{Full, Link, LinkError, Outlet, Rail, Refused};
pub use wire::{MAGIC_VERSION, OVERHEAD, PACKET_AT, TAG_BYTES, peek};
