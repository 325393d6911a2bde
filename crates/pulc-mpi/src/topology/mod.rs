//! Topologies: who is whose neighbour. Pure logic on ranks of one communicator; the calls that make communicators are in
//! `topology::calls`, neighbour collectives ask for [`Topology::neighbours`].
//!
//! Source: MPI-5.0, chapter 8.

pub(crate) mod calls;
mod cart;
mod dims;
mod graph;

pub use cart::Cart;
pub use dims::dims_create;
pub use graph::{DistGraph, Edge, Graph};

use crate::consts::{CART, DIST_GRAPH, GRAPH};

/// What is attached to a communicator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Topology {
    Cart(Cart),
    Graph(Graph),
    DistGraph(DistGraph),
}

impl Topology {
    /// What `MPI_Topo_test` says.
    pub fn kind(&self) -> i32 {
        match self {
            Topology::Cart(_) => CART,
            Topology::Graph(_) => GRAPH,
            Topology::DistGraph(_) => DIST_GRAPH,
        }
    }

    /// Whom process `rank` receives from and whom it sends to in a neighbour collective, in the order of its buffers. At the border of
    /// a grid that does not wrap, a neighbour is `PROC_NULL`.
    pub fn neighbours(&self, rank: i32) -> (Vec<i32>, Vec<i32>) {
        match self {
            Topology::Cart(cart) => {
                let all = cart.neighbours(rank);
                (all.clone(), all)
            }
            Topology::Graph(graph) => {
                let all = graph.neighbours(rank).unwrap_or(&[]).to_vec();
                (all.clone(), all)
            }
            // Each process knows its own edges only.
            Topology::DistGraph(graph) => (graph.sources.clone(), graph.destinations.clone()),
        }
    }
}
