//! Graphs of processes: the general one, in which every process knows all edges, and the distributed one, in which each knows its own.
//!
//! Source: MPI-5.0, sections 8.5.3 to 8.5.5.

use crate::error::{Class, Error, Result};

/// A graph that everybody knows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Graph {
    /// Where the edges of each node end.
    index: Vec<i32>,
    edges: Vec<i32>,
}

impl Graph {
    /// A graph for a communicator of `size` processes; those beyond the nodes stay outside.
    pub fn new(index: &[i32], edges: &[i32], size: usize) -> Result<Graph> {
        let nodes = index.len();
        if nodes > size {
            return Err(Error::new(Class::TOPOLOGY, format!("a graph of {nodes} nodes for {size} processes")));
        }
        let rising = index.first().is_none_or(|first| *first >= 0) && index.windows(2).all(|pair| pair[0] <= pair[1]);
        if !rising {
            return Err(Error::new(
                Class::ARG,
                "the index of a graph does not rise: entry i counts the edges of nodes 0 to i",
            ));
        }
        let count = index.last().map_or(0, |last| *last as usize);
        if edges.len() < count {
            return Err(Error::new(Class::ARG, format!("{} edges where the index says {count}", edges.len())));
        }
        let edges = &edges[..count];
        if let Some(edge) = edges.iter().find(|edge| !(0..nodes as i32).contains(*edge)) {
            return Err(Error::new(Class::ARG, format!("an edge to node {edge} of a graph of {nodes} nodes")));
        }
        Ok(Graph { index: index.to_vec(), edges: edges.to_vec() })
    }

    pub fn index(&self) -> &[i32] {
        &self.index
    }

    pub fn edges(&self) -> &[i32] {
        &self.edges
    }

    pub fn neighbours(&self, rank: i32) -> Result<&[i32]> {
        let node = usize::try_from(rank).ok().filter(|&node| node < self.index.len());
        let node = node
            .ok_or_else(|| Error::new(Class::RANK, format!("rank {rank} of a graph of {} nodes", self.index.len())))?;
        let from = if node == 0 { 0 } else { self.index[node - 1] as usize };
        Ok(&self.edges[from..self.index[node] as usize])
    }
}

/// The edges of one process. Weights are kept, all or none.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct DistGraph {
    pub sources: Vec<i32>,
    pub source_weights: Option<Vec<i32>>,
    pub destinations: Vec<i32>,
    pub destination_weights: Option<Vec<i32>>,
}

/// One edge, as any process may name it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Edge {
    pub source: i32,
    pub destination: i32,
    pub weight: i32,
}

impl DistGraph {
    /// From the edges that this process gave for itself (`MPI_Dist_graph_create_adjacent`).
    pub fn adjacent(
        sources: &[i32],
        source_weights: Option<&[i32]>,
        destinations: &[i32],
        destination_weights: Option<&[i32]>,
        size: usize,
    ) -> Result<DistGraph> {
        if source_weights.is_some() != destination_weights.is_some() {
            return Err(Error::new(Class::ARG, "weights of one direction only: give both, or MPI_UNWEIGHTED for both"));
        }
        for (weights, count) in [(source_weights, sources.len()), (destination_weights, destinations.len())] {
            check_weights(weights, count)?;
        }
        check_ranks(sources, size)?;
        check_ranks(destinations, size)?;
        Ok(DistGraph {
            sources: sources.to_vec(),
            source_weights: source_weights.map(<[i32]>::to_vec),
            destinations: destinations.to_vec(),
            destination_weights: destination_weights.map(<[i32]>::to_vec),
        })
    }

    /// The edges that a call of `MPI_Dist_graph_create` names: `degrees[i]` of them begin at `sources[i]`. Unweighted ones weigh 1.
    pub fn edges(
        sources: &[i32],
        degrees: &[i32],
        destinations: &[i32],
        weights: Option<&[i32]>,
        size: usize,
    ) -> Result<Vec<Edge>> {
        if sources.len() != degrees.len() {
            return Err(Error::new(Class::ARG, format!("{} sources and {} degrees", sources.len(), degrees.len())));
        }
        if let Some(degree) = degrees.iter().find(|degree| **degree < 0) {
            return Err(Error::new(Class::ARG, format!("a degree of {degree}: 0 or more")));
        }
        let count: usize = degrees.iter().map(|degree| *degree as usize).sum();
        if destinations.len() < count {
            return Err(Error::new(
                Class::ARG,
                format!("{} destinations where the degrees say {count}", destinations.len()),
            ));
        }
        let destinations = &destinations[..count];
        check_ranks(sources, size)?;
        check_ranks(destinations, size)?;
        check_weights(weights, count)?;
        let begins = sources.iter().zip(degrees).flat_map(|(source, degree)| (0..*degree).map(|_| *source));
        let edges = begins.zip(destinations).enumerate().map(|(at, (source, &destination))| {
            let weight = weights.map_or(1, |weights| weights[at]);
            Edge { source, destination, weight }
        });
        Ok(edges.collect())
    }

    /// The part of process `rank` in the edges that all processes named together, in the order of those who named them.
    pub fn of_edges(rank: i32, is_weighted: bool, edges: impl IntoIterator<Item = Edge>) -> DistGraph {
        let mut graph = DistGraph::default();
        let (mut inward, mut outward) = (Vec::new(), Vec::new());
        for edge in edges {
            if edge.destination == rank {
                graph.sources.push(edge.source);
                inward.push(edge.weight);
            }
            if edge.source == rank {
                graph.destinations.push(edge.destination);
                outward.push(edge.weight);
            }
        }
        if is_weighted {
            graph.source_weights = Some(inward);
            graph.destination_weights = Some(outward);
        }
        graph
    }

    pub fn is_weighted(&self) -> bool {
        self.source_weights.is_some()
    }
}

fn check_ranks(ranks: &[i32], size: usize) -> Result<()> {
    match ranks.iter().find(|rank| usize::try_from(**rank).map_or(true, |rank| rank >= size)) {
        Some(rank) => {
            Err(Error::new(Class::ARG, format!("rank {rank} in a graph of {size} processes: 0 to {}", size - 1)))
        }
        None => Ok(()),
    }
}

fn check_weights(weights: Option<&[i32]>, count: usize) -> Result<()> {
    let Some(weights) = weights else { return Ok(()) };
    if weights.len() < count {
        return Err(Error::new(Class::ARG, format!("{} weights for {count} edges", weights.len())));
    }
    match weights[..count].iter().find(|weight| **weight < 0) {
        Some(weight) => Err(Error::new(Class::ARG, format!("a weight of {weight}: 0 or more"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_neighbours_of_the_standards_example_are_right() {
        // Section 8.5.3: 0 with 1 and 3, 1 with 0, 2 with 3, 3 with 0 and 2.
        let graph = Graph::new(&[2, 3, 4, 6], &[1, 3, 0, 3, 0, 2], 4).unwrap();
        let all: Vec<&[i32]> = (0..4).map(|rank| graph.neighbours(rank).unwrap()).collect();
        assert_eq!(all, [&[1, 3][..], &[0], &[3], &[0, 2]]);
        assert_eq!(graph.neighbours(4).unwrap_err().class, Class::RANK);
        assert_eq!(graph.neighbours(-1).unwrap_err().class, Class::RANK);
    }

    #[test]
    fn graphs_that_are_none_are_refused() {
        assert_eq!(Graph::new(&[1, 2], &[1, 0], 1).unwrap_err().class, Class::TOPOLOGY);
        assert_eq!(Graph::new(&[2, 1], &[1, 0], 2).unwrap_err().class, Class::ARG);
        assert_eq!(Graph::new(&[1, 2], &[1, 2], 2).unwrap_err().class, Class::ARG);
        assert_eq!(Graph::new(&[1, 2], &[1], 2).unwrap_err().class, Class::ARG);
        assert_eq!(DistGraph::adjacent(&[0], Some(&[1]), &[], None, 2).unwrap_err().class, Class::ARG);
        assert_eq!(DistGraph::adjacent(&[2], None, &[], None, 2).unwrap_err().class, Class::ARG);
        assert_eq!(DistGraph::edges(&[0], &[2], &[1], None, 2).unwrap_err().class, Class::ARG);
        assert_eq!(DistGraph::edges(&[0], &[-1], &[1], None, 2).unwrap_err().class, Class::ARG);
        assert_eq!(DistGraph::edges(&[0], &[1], &[1], Some(&[-1]), 2).unwrap_err().class, Class::ARG);
    }

    proptest! {
        #[test]
        fn every_edge_is_known_at_both_ends(
            calls in prop::collection::vec(prop::collection::vec((0i32..6, prop::collection::vec((0i32..6, 0i32..9), 0..4)), 0..4), 6)
        ) {
            let mut edges = Vec::new();
            for call in &calls {
                let sources: Vec<i32> = call.iter().map(|node| node.0).collect();
                let degrees: Vec<i32> = call.iter().map(|node| node.1.len() as i32).collect();
                let (destinations, weights): (Vec<i32>, Vec<i32>) = call.iter().flat_map(|node| node.1.iter().copied()).unzip();
                edges.extend(DistGraph::edges(&sources, &degrees, &destinations, Some(&weights), 6).unwrap());
            }
            let named: usize = calls.iter().flatten().map(|node| node.1.len()).sum();
            prop_assert_eq!(edges.len(), named);
            let graphs: Vec<DistGraph> = (0..6).map(|rank| DistGraph::of_edges(rank, true, edges.iter().copied())).collect();
            let inward: usize = graphs.iter().map(|graph| graph.sources.len()).sum();
            prop_assert_eq!(inward, named);
            for (source, graph) in graphs.iter().enumerate() {
                for (at, &destination) in graph.destinations.iter().enumerate() {
                    let weight = graph.destination_weights.as_ref().unwrap()[at];
                    let there = &graphs[destination as usize];
                    let back = there.sources.iter().zip(there.source_weights.as_ref().unwrap());
                    prop_assert!(back.into_iter().any(|edge| edge == (&(source as i32), &weight)));
                }
            }
        }
    }
}
