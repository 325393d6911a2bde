//! The link between two processes over a simulated network: what it promises must hold whatever the network does, and a failed
//! run must be repeatable from what it prints.

mod crowd;
mod hostile;
mod over_udp;
mod properties;
mod rails;
mod rig;
mod seeds;
mod silence;
mod trains;
