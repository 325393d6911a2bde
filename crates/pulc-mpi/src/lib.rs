#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

mod added_errors;
pub mod attribute;
pub mod call;
pub mod callback;
mod collective;
mod comm;
pub mod consts;
mod data;
pub mod datatype;
mod envelope;
mod environment;
pub mod error;
pub mod errors;
#[doc(hidden)]
pub mod fuzz;
pub mod group;
pub mod handle;
mod info;
mod leaving;
mod matcher;
#[allow(unsafe_code)]
pub mod memory;
pub mod op;
mod p2p;
mod progress;
mod request;
mod session;
mod stats;
pub mod status;
pub mod table;
pub mod topology;
pub mod trace;
pub mod watch;
mod world;
