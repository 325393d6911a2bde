//! Messages between two processes: the calls. Each looks its arguments up under one lock and takes the shortest way that fits.
//! Source: MPI-5.0, chapter 3.

mod buffered;
mod exchange;
mod probe;
mod recv;
mod send;

pub use buffered::*;
pub use exchange::*;
pub use probe::*;
pub use recv::*;
pub use send::*;
