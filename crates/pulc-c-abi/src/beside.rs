//! An MPI door in the same process: whoever makes the engine must be able to serve MPI, which only that library can. So where one is
//! loaded, its table is taken, whichever of the two attaches first. Must not load anything itself.

use pulc_hal::os::loaded;

/// The MPI doors, by what the loader knows them as.
const DOORS: [&std::ffi::CStr; 2] = [c"libmpi.so.12", c"libmpi_abi.so.1"];
/// Gives the address of its table. Exported by our MPI doors, and by no other MPI.
const TABLE: &std::ffi::CStr = c"pulc_door_table";

/// Where the table of an MPI door of ours lies that is loaded in this process.
pub fn table_of_mpi() -> Option<usize> {
    let function = DOORS.iter().find_map(|door| loaded::symbol(door, TABLE))?;
    // SAFETY: only our MPI doors export this name: a function without arguments that returns the address of a static table.
    let table = unsafe { std::mem::transmute::<usize, extern "C" fn() -> usize>(function) };
    Some(table())
}
