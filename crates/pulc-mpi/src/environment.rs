//! What programs ask about the library and the machine.
//! Source: MPI-5.0, 9.1 and 9.6.

use crate::consts::MAX_PROCESSOR_NAME;
use crate::error::Result;
use crate::handle::{Comm, Info};
use crate::{comm, info, world};
use pulc_base::clock;

/// The version of the standard: 5.0.
pub const VERSION: (i32, i32) = (5, 0);

pub fn get_version() -> (i32, i32) {
    VERSION
}

pub fn get_library_version() -> String {
    format!("PULC {} (MPI {}.{})", env!("CARGO_PKG_VERSION"), VERSION.0, VERSION.1)
}

/// The name of the node that this process runs on.
pub fn get_processor_name() -> Result<String> {
    let process = world::process()?;
    let mut name = process.boot().nodes[process.node().0 as usize].name.clone();
    name.truncate(MAX_PROCESSOR_NAME - 1);
    Ok(name)
}

/// Seconds since some time in the past.
pub fn wtime() -> f64 {
    clock::now().0 as f64 * 1e-9
}

/// Resolution of [`wtime`] in seconds.
pub fn wtick() -> f64 {
    1e-9
}

/// What kinds of hardware this process may use one of only: the node, whose memory it shares.
pub fn get_hw_resource_info() -> Result<Info> {
    let hints = info::info_create()?;
    info::info_set(hints, "mpi_shared_memory", "true")?;
    Ok(hints)
}

/// Ends the whole job with a status.
pub fn abort(on: Comm, code: i32) -> Result<()> {
    let name = comm::find(on).map(|comm| format!(" on {}", comm.display_name())).unwrap_or_default();
    let text = format!("MPI_Abort{name}{}: the program ends the job with status {code}", world::who());
    world::abort_job(code, &text)
}
