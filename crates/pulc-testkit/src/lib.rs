//! Tools of whole-system tests: clusters of network namespaces in which the real `pulc` runs, a scan for what a test left behind,
//! and the count of tests that cannot run here. Named by tests and by the
//! workshop.
#![forbid(unsafe_code)]

mod chance;
pub mod cluster;
mod corpus;
pub mod finished;
pub mod leftovers;
pub mod netns;
mod skip;

pub use chance::Chance;
pub use cluster::{Cluster, Host, token_in, wait_until};
pub use corpus::replay;
pub use finished::{Finished, finish_within, run_within, start};
pub use skip::{rounds, skipped};
