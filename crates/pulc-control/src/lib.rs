#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod client;
mod embedded;
pub mod frame;
#[doc(hidden)]
pub mod fuzz;
pub mod message;
pub mod network;
pub mod node;
pub mod owner;
pub mod place;
pub mod queue;
pub mod stage;
mod tie;
pub mod who;

pub use client::{Client, ClientSender, socket_name};
pub use embedded::{embedded_name, embedded_names};
pub use frame::{FRAME_MAX, FrameError};
pub use message::{
    Ended, Host, JobInfo, LaunchSpec, Limit, ProcessInfo, Reply, Request, RunSpec, StopKind, Stream, WaitInfo,
};
pub use node::{NodeInfo, NodeState};
pub use tie::Tie;
