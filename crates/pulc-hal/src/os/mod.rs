//! Safe tools for what the kernel can do. Used by the devices, the handler and the daemon; nothing here knows of frames,
//! ranks or jobs.

pub mod account;
pub mod bell;
pub mod biased;
pub mod call_count;
pub mod copy;
pub mod copy_kernel;
pub mod core_claims;
pub mod cpu;
pub mod elf;
pub mod fdpass;
pub mod foreign;
pub mod futex;
pub mod knock;
pub mod label;
pub mod life;
pub mod loaded;
pub mod memfd;
mod memfd_given_back;
pub mod peer_memory;
pub mod policy;
pub mod process;
pub mod proctree;
pub mod registry;
pub mod settled;
pub mod signals;
pub mod sockmap;
pub mod tcp;
pub mod tcp_counts;
pub mod topology;
pub mod udp_offload;
pub mod watched;
