#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod acknowledge;
mod arrivals;
mod config;
mod credit;
mod keys;
mod link;
mod rail;
mod replay;
mod retention;
mod transmit;
mod wire;

pub use config::{Config, ENCRYPT, PACKETS_UNDER_WAY_MAX, PARAMS, RAILS_MAX};
pub use credit::credit_share;
pub use keys::LinkKeys;
pub use link::{Full, Link, LinkError, Outlet, Rail, Refused};
pub use wire::{OVERHEAD, peek};
