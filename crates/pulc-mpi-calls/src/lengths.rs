//! Lengths of arrays that no argument tells: they follow from the communicator. Called by the made bodies.

use crate::abi::Abi;
use pulc_mpi::call;
use pulc_mpi::consts::ROOT;
use pulc_mpi::error::{Class, Error, Result};
use pulc_mpi::handle::Comm;
use std::ffi::c_void;

/// A length that another argument gives.
#[inline]
pub fn of(length: i64) -> Result<usize> {
    let text = || format!("a count is {length}; it must not be negative");
    usize::try_from(length).map_err(|_| Error::new(Class::COUNT, text()))
}

/// Processes that this one exchanges with: of an intercommunicator those on the other side.
pub fn peers(comm: Comm) -> Result<usize> {
    let count = if call::comm_test_inter(comm)? { call::comm_remote_size(comm)? } else { call::comm_size(comm)? };
    of(i64::from(count))
}

/// The same for what is sent: nothing is, if the data lies in place.
pub fn sends<A: Abi>(comm: Comm, buffer: *const c_void) -> Result<usize> {
    if A::is_in_place(buffer) { Ok(0) } else { peers(comm) }
}

/// The same at the root; nothing elsewhere, where such an array may be anything.
pub fn at_root(comm: Comm, root: i32) -> Result<usize> {
    let here = if call::comm_test_inter(comm)? { root == ROOT } else { root == call::comm_rank(comm)? };
    if here { peers(comm) } else { Ok(0) }
}

/// Members of the local group.
pub fn members(comm: Comm) -> Result<usize> {
    of(i64::from(call::comm_size(comm)?))
}

/// Neighbours that this process receives from.
pub fn incoming(comm: Comm) -> Result<usize> {
    call::neighbor_counts(comm).map(|(incoming, _)| incoming)
}

/// Neighbours that this process sends to.
pub fn outgoing(comm: Comm) -> Result<usize> {
    call::neighbor_counts(comm).map(|(_, outgoing)| outgoing)
}

/// Dimensions of a Cartesian communicator.
pub fn cartdims(comm: Comm) -> Result<usize> {
    of(i64::from(call::cartdim_get(comm)?))
}

/// Number of edges of a graph: `index` counts them up node by node.
pub fn edges(index: &[i32]) -> Result<usize> {
    of(index.last().map_or(0, |&last| i64::from(last)))
}
