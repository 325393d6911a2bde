//! Distributed graphs: their weights may be there, none, or an empty list, which two sentinels say.
//! Source: MPI-5.0, 8.5.4.

use crate::abi::{Abi, Handle};
use crate::convert::{fill, poke, slice_in};
use crate::guard::{self, On};
use crate::lengths;
use pulc_mpi::call;
use pulc_mpi::error::Result;
use std::ffi::c_int;

/// The sentinels, the same in both interfaces.
const UNWEIGHTED: usize = 10;
const WEIGHTS_EMPTY: usize = 11;

/// # Safety
/// A sentinel, or an array of `length` weights.
unsafe fn weights<'a>(start: *const c_int, length: usize) -> Result<Option<&'a [c_int]>> {
    match start.addr() {
        UNWEIGHTED => Ok(None),
        WEIGHTS_EMPTY => Ok(Some(&[])),
        // SAFETY: the caller's promise.
        _ => unsafe { slice_in(start, length) }.map(Some),
    }
}

/// `MPI_Dist_graph_create_adjacent`
///
/// # Safety
/// The arrays have as many elements as is said; `new` is null or points to a handle.
#[expect(clippy::too_many_arguments, reason = "the standard has them")]
pub unsafe fn dist_graph_create_adjacent<A: Abi>(
    comm: A::Comm,
    indegree: c_int,
    sources: *const c_int,
    source_weights: *const c_int,
    outdegree: c_int,
    destinations: *const c_int,
    destination_weights: *const c_int,
    info: A::Info,
    reorder: c_int,
    new: *mut A::Comm,
) -> c_int {
    let comm = comm.inward();
    // SAFETY: the caller's promise.
    guard::run::<A>(&"MPI_Dist_graph_create_adjacent", On::Comm(comm), || unsafe {
        let (incoming, outgoing) = (lengths::of(indegree.into())?, lengths::of(outdegree.into())?);
        let made = call::dist_graph_create_adjacent(
            comm,
            slice_in(sources, incoming)?,
            weights(source_weights, incoming)?,
            slice_in(destinations, outgoing)?,
            weights(destination_weights, outgoing)?,
            info.inward(),
            reorder != 0,
        )?;
        poke(new, Handle::outward(made))
    })
}

/// `MPI_Dist_graph_create`
///
/// # Safety
/// The arrays have as many elements as is said; `new` is null or points to a handle.
#[expect(clippy::too_many_arguments, reason = "the standard has them")]
pub unsafe fn dist_graph_create<A: Abi>(
    comm: A::Comm,
    n: c_int,
    sources: *const c_int,
    degrees: *const c_int,
    destinations: *const c_int,
    edge_weights: *const c_int,
    info: A::Info,
    reorder: c_int,
    new: *mut A::Comm,
) -> c_int {
    let comm = comm.inward();
    // SAFETY: the caller's promise.
    guard::run::<A>(&"MPI_Dist_graph_create", On::Comm(comm), || unsafe {
        let count = lengths::of(n.into())?;
        let degrees = slice_in(degrees, count)?;
        let edges = lengths::of(degrees.iter().map(|&degree| i64::from(degree)).sum())?;
        let made = call::dist_graph_create(
            comm,
            slice_in(sources, count)?,
            degrees,
            slice_in(destinations, edges)?,
            weights(edge_weights, edges)?,
            info.inward(),
            reorder != 0,
        )?;
        poke(new, Handle::outward(made))
    })
}

/// `MPI_Dist_graph_neighbors`
///
/// # Safety
/// The arrays have as much room as is said; arrays of weights may be sentinels.
pub unsafe fn dist_graph_neighbors<A: Abi>(
    comm: A::Comm,
    max_incoming: c_int,
    sources: *mut c_int,
    source_weights: *mut c_int,
    max_outgoing: c_int,
    destinations: *mut c_int,
    destination_weights: *mut c_int,
) -> c_int {
    let comm = comm.inward();
    // SAFETY: the caller's promise.
    guard::run::<A>(&"MPI_Dist_graph_neighbors", On::Comm(comm), || unsafe {
        let graph = call::dist_graph_neighbors(comm, max_incoming, max_outgoing)?;
        for (ranks, weights, room, ranks_out, weights_out) in [
            (&graph.sources, &graph.source_weights, max_incoming, sources, source_weights),
            (&graph.destinations, &graph.destination_weights, max_outgoing, destinations, destination_weights),
        ] {
            let room = lengths::of(room.into())?;
            fill(ranks_out, room, ranks)?;
            if let (Some(weights), false) = (weights, [UNWEIGHTED, WEIGHTS_EMPTY].contains(&weights_out.addr())) {
                fill(weights_out, room, weights)?;
            }
        }
        Ok(())
    })
}
