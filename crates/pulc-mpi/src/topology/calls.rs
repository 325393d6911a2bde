//! MPI's calls about topologies: communicators with a grid or a graph on them, and questions about these. Re-exported by `call`.
//! The processes are not reordered: every one keeps its place among those that take part.
//!
//! Source: MPI-5.0, sections 8.5.1 to 8.5.7.

use super::{Cart, DistGraph, Edge, Graph, Topology};
use crate::collective;
use crate::comm::{self, Communicator};
use crate::consts::UNDEFINED;
use crate::error::{Class, Error, Result};
use crate::handle::{Comm, Datatype, Info};
use crate::memory::{Ints, Room};
use std::sync::Arc;

pub use super::dims_create;

/// Null for the processes that the grid has no place for.
pub fn cart_create(comm: Comm, dims: &[i32], periods: &[bool], _reorder: bool) -> Result<Comm> {
    let old = intra(comm)?;
    let cart = Cart::new(dims, periods, old.size())?;
    let new = comm::with_members(&old, &(0..cart.size()).collect::<Vec<_>>())?;
    attach(new, Topology::Cart(cart))
}

/// Communicators of the subgrids along the remaining dimensions.
pub fn cart_sub(comm: Comm, remain: &[bool]) -> Result<Comm> {
    let (found, topology) = with_topology(comm)?;
    let part = cart(&topology)?.sub(found.me, remain)?;
    attach(comm::comm_split(comm, part.color, part.key)?, Topology::Cart(part.grid))
}

/// Null for the processes beyond the nodes.
pub fn graph_create(comm: Comm, index: &[i32], edges: &[i32], _reorder: bool) -> Result<Comm> {
    let old = intra(comm)?;
    let graph = Graph::new(index, edges, old.size())?;
    let new = comm::with_members(&old, &(0..index.len() as i32).collect::<Vec<_>>())?;
    attach(new, Topology::Graph(graph))
}

/// From the edges that each process gives for itself. No weights: all edges are alike.
pub fn dist_graph_create_adjacent(
    comm: Comm,
    sources: &[i32],
    source_weights: Option<&[i32]>,
    destinations: &[i32],
    destination_weights: Option<&[i32]>,
    _info: Info,
    _reorder: bool,
) -> Result<Comm> {
    let old = intra(comm)?;
    let graph = DistGraph::adjacent(sources, source_weights, destinations, destination_weights, old.size())?;
    attach(everybody(&old)?, Topology::DistGraph(graph))
}

/// From edges that any process may give: they are told to everybody.
pub fn dist_graph_create(
    comm: Comm,
    sources: &[i32],
    degrees: &[i32],
    destinations: &[i32],
    weights: Option<&[i32]>,
    _info: Info,
    _reorder: bool,
) -> Result<Comm> {
    let old = intra(comm)?;
    let own = DistGraph::edges(sources, degrees, destinations, weights, old.size())?;
    let all = gathered(&old, &own)?;
    attach(everybody(&old)?, Topology::DistGraph(DistGraph::of_edges(old.me, weights.is_some(), all)))
}

/// Which kind of topology, if any.
pub fn topo_test(comm: Comm) -> Result<i32> {
    let topology = comm::find(comm)?.extras().topology.clone();
    Ok(topology.map_or(UNDEFINED, |topology| topology.kind()))
}

pub fn cartdim_get(comm: Comm) -> Result<i32> {
    Ok(cart(&with_topology(comm)?.1)?.dims().len() as i32)
}

/// Dimensions, whether they wrap, and the coordinates of this process.
pub fn cart_get(comm: Comm, room: i32) -> Result<(Vec<i32>, Vec<bool>, Vec<i32>)> {
    let (found, topology) = with_topology(comm)?;
    let cart = cart(&topology)?;
    enough(room, cart.dims().len(), "dimensions")?;
    Ok((cart.dims().to_vec(), cart.periods().to_vec(), cart.coords(found.me)?))
}

pub fn cart_rank(comm: Comm, coords: &[i32]) -> Result<i32> {
    cart(&with_topology(comm)?.1)?.rank(coords)
}

pub fn cart_coords(comm: Comm, rank: i32, room: i32) -> Result<Vec<i32>> {
    let topology = with_topology(comm)?.1;
    let cart = cart(&topology)?;
    enough(room, cart.dims().len(), "coordinates")?;
    cart.coords(rank)
}

/// Whom to receive from and whom to send to.
pub fn cart_shift(comm: Comm, direction: i32, by: i32) -> Result<(i32, i32)> {
    let (found, topology) = with_topology(comm)?;
    cart(&topology)?.shift(found.me, direction, by)
}

/// The rank that this process would have in such a grid.
pub fn cart_map(comm: Comm, dims: &[i32], periods: &[bool]) -> Result<i32> {
    let old = intra(comm)?;
    let size = Cart::new(dims, periods, old.size())?.size();
    Ok(if old.me < size { old.me } else { UNDEFINED })
}

/// Numbers of nodes and edges.
pub fn graphdims_get(comm: Comm) -> Result<(i32, i32)> {
    let topology = with_topology(comm)?.1;
    let graph = graph(&topology)?;
    Ok((graph.index().len() as i32, graph.edges().len() as i32))
}

pub fn graph_get(comm: Comm, index_room: i32, edge_room: i32) -> Result<(Vec<i32>, Vec<i32>)> {
    let topology = with_topology(comm)?.1;
    let graph = graph(&topology)?;
    enough(index_room, graph.index().len(), "nodes")?;
    enough(edge_room, graph.edges().len(), "edges")?;
    Ok((graph.index().to_vec(), graph.edges().to_vec()))
}

pub fn graph_neighbors_count(comm: Comm, rank: i32) -> Result<i32> {
    Ok(graph(&with_topology(comm)?.1)?.neighbours(rank)?.len() as i32)
}

pub fn graph_neighbors(comm: Comm, rank: i32, room: i32) -> Result<Vec<i32>> {
    let topology = with_topology(comm)?.1;
    let neighbours = graph(&topology)?.neighbours(rank)?;
    enough(room, neighbours.len(), "neighbours")?;
    Ok(neighbours.to_vec())
}

/// The rank that this process would have in such a graph.
pub fn graph_map(comm: Comm, index: &[i32], edges: &[i32]) -> Result<i32> {
    let old = intra(comm)?;
    Graph::new(index, edges, old.size())?;
    Ok(if (old.me as usize) < index.len() { old.me } else { UNDEFINED })
}

/// Numbers of edges in and out, and whether they have weights.
pub fn dist_graph_neighbors_count(comm: Comm) -> Result<(i32, i32, bool)> {
    let topology = with_topology(comm)?.1;
    let graph = dist_graph(&topology)?;
    Ok((graph.sources.len() as i32, graph.destinations.len() as i32, graph.is_weighted()))
}

/// The edges of this process: as many as there is room for. Without weights nothing is to be written in their place.
pub fn dist_graph_neighbors(comm: Comm, sources: i32, destinations: i32) -> Result<DistGraph> {
    let topology = with_topology(comm)?.1;
    let mut graph = dist_graph(&topology)?.clone();
    for (list, weights, room) in [
        (&mut graph.sources, &mut graph.source_weights, sources),
        (&mut graph.destinations, &mut graph.destination_weights, destinations),
    ] {
        let room = usize::try_from(room).map_err(|_| Error::new(Class::ARG, format!("room for {room} neighbours")))?;
        list.truncate(room);
        if let Some(weights) = weights {
            weights.truncate(room);
        }
    }
    Ok(graph)
}

/// How many neighbours this process receives from and sends to in a neighbour collective.
pub fn neighbor_counts(comm: Comm) -> Result<(usize, usize)> {
    let (found, topology) = with_topology(comm)?;
    let (sources, destinations) = topology.neighbours(found.me);
    Ok((sources.len(), destinations.len()))
}

/// A communicator and what is attached to it.
pub(crate) fn with_topology(comm: Comm) -> Result<(Arc<Communicator>, Arc<Topology>)> {
    let found = comm::find(comm)?;
    let topology = found.extras().topology.clone();
    let none =
        || Error::new(Class::TOPOLOGY, "the communicator has no topology: make one with MPI_Cart_create or its like");
    Ok((found, topology.ok_or_else(none)?))
}

fn cart(topology: &Topology) -> Result<&Cart> {
    match topology {
        Topology::Cart(cart) => Ok(cart),
        _ => Err(other("Cartesian")),
    }
}

fn graph(topology: &Topology) -> Result<&Graph> {
    match topology {
        Topology::Graph(graph) => Ok(graph),
        _ => Err(other("graph")),
    }
}

fn dist_graph(topology: &Topology) -> Result<&DistGraph> {
    match topology {
        Topology::DistGraph(graph) => Ok(graph),
        _ => Err(other("distributed graph")),
    }
}

#[cold]
fn other(wanted: &str) -> Error {
    Error::new(Class::TOPOLOGY, format!("the communicator's topology is of another kind than {wanted}"))
}

fn intra(comm: Comm) -> Result<Arc<Communicator>> {
    let found = comm::find(comm)?;
    match found.remote {
        None => Ok(found),
        Some(_) => Err(Error::new(Class::COMM, "an intercommunicator can't have a topology")),
    }
}

/// A communicator of the same processes.
fn everybody(old: &Arc<Communicator>) -> Result<Comm> {
    comm::with_members(old, &(0..old.size() as i32).collect::<Vec<_>>())
}

fn attach(new: Comm, topology: Topology) -> Result<Comm> {
    if !new.is_null() {
        comm::find(new)?.extras().topology = Some(Arc::new(topology));
    }
    Ok(new)
}

fn enough(room: i32, needed: usize, what: &str) -> Result<()> {
    if i64::from(room) < needed as i64 {
        return Err(Error::new(Class::ARG, format!("room for {room} {what}: there are {needed}")));
    }
    Ok(())
}

/// The edges that all members gave, in the order of the members.
fn gathered(comm: &Arc<Communicator>, own: &[Edge]) -> Result<Vec<Edge>> {
    const NUMBERS: usize = 3;
    let counts: Vec<i64> = comm::exchange(comm, [own.len() as i32, 0])?.iter().map(|both| i64::from(both[0])).collect();
    let places: Vec<i64> = counts.iter().scan(0, |sum, count| Some(std::mem::replace(sum, *sum + count))).collect();
    let total: i64 = counts.iter().sum();
    let edge_bytes = NUMBERS * size_of::<i32>();
    let (mut mine, mut all) = (Room::new(own.len() * edge_bytes), Room::new(total as usize * edge_bytes));
    let numbers = own.iter().flat_map(|edge| [edge.source, edge.destination, edge.weight]);
    mine.addr().write(0, &numbers.flat_map(i32::to_ne_bytes).collect::<Vec<u8>>());
    let in_bytes = |list: &[i64]| list.iter().map(|edges| edges * edge_bytes as i64).collect::<Vec<i64>>();
    collective::allgatherv(
        mine.addr(),
        (own.len() * edge_bytes) as i64,
        Datatype::BYTE,
        all.addr(),
        Ints::Large(&in_bytes(&counts)),
        Ints::Large(&in_bytes(&places)),
        Datatype::BYTE,
        comm.handle,
    )?;
    let mut bytes = vec![0; total as usize * edge_bytes];
    all.addr().read(0, &mut bytes);
    let (numbers, _) = bytes.as_chunks::<4>();
    let edge = |edge: &[[u8; 4]]| {
        let [source, destination, weight] = [0, 1, 2].map(|at| i32::from_ne_bytes(edge[at]));
        Edge { source, destination, weight }
    };
    Ok(numbers.chunks_exact(NUMBERS).map(edge).collect())
}
