//! Tests of this crate between real processes. A test starts its own binary again as the peer, in an environment that
//! makes the same test play the other part; it kills only what it started.

mod shm_processes;
