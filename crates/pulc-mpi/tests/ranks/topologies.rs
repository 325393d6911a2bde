//! Grids and graphs of ranks, and exchanges with neighbours: every block says who sent it, to which neighbour, and arrives where the
//! topology says (MPI-5.0, 8.5 to 8.8).

use crate::values::{INT, Values, WORLD, place};
use pulc_mpi::call;
use pulc_mpi::consts::{CART, DIST_GRAPH, GRAPH, PROC_NULL, UNDEFINED};
use pulc_mpi::error::Class;
use pulc_mpi::handle::Info;
use pulc_mpi::memory::Ints;

pub fn play() {
    let (me, n) = place(WORLD);
    for wraps in [true, false] {
        grid(n, wraps);
    }
    subgrids(me, n);
    graphs(me, n);
    distributed_graphs(me, n);
    assert_eq!(call::topo_test(WORLD), Ok(UNDEFINED));
    assert_eq!(call::neighbor_counts(WORLD).unwrap_err().class, Class::TOPOLOGY);
}

/// What process `from` sends over its edge number `at`.
fn value(from: i32, at: usize) -> i32 {
    1000 * (from + 1) + at as i32
}

/// A grid of two dimensions, of which the first one wraps or not.
fn grid(n: i32, wraps: bool) {
    let mut dims = [0, 0];
    call::dims_create(n, &mut dims).unwrap();
    let mut comm = call::cart_create(WORLD, &dims, &[wraps, true], true).unwrap();
    assert_eq!(call::topo_test(comm), Ok(CART));
    let me = call::comm_rank(comm).unwrap();
    let (same, periods, coords) = call::cart_get(comm, 2).unwrap();
    assert_eq!((same, periods), (dims.to_vec(), vec![wraps, true]));
    assert_eq!(call::cart_rank(comm, &coords), Ok(me));
    assert_eq!(call::cart_coords(comm, me, 2), Ok(coords));
    assert_eq!(call::neighbor_counts(comm), Ok((4, 4)));
    let neighbours: Vec<i32> = (0..2)
        .flat_map(|direction| {
            let (below, above) = call::cart_shift(comm, direction, 1).unwrap();
            [below, above]
        })
        .collect();
    // What comes from below was sent upwards, over the edge beside; also where both neighbours are one process, or this one.
    let expected: Vec<i32> = neighbours
        .iter()
        .enumerate()
        .map(|(at, &from)| if from == PROC_NULL { -7 } else { value(from, at ^ 1) })
        .collect();
    let mut out = Values::of(&[0, 1, 2, 3].map(|at| value(me, at)));
    let mut into = Values::of(&[-7; 4]);
    call::neighbor_alltoall(out.addr(), 1, INT, into.addr(), 1, INT, comm).unwrap();
    assert_eq!(into.get(), expected);
    let mut into = Values::of(&[-7; 4]);
    let mut request = call::ineighbor_alltoall(out.addr(), 1, INT, into.addr(), 1, INT, comm).unwrap();
    call::wait(&mut request).unwrap();
    assert_eq!(into.get(), expected);
    let gathered: Vec<i32> =
        neighbours.iter().map(|&from| if from == PROC_NULL { -7 } else { value(from, 0) }).collect();
    let mut into = Values::of(&[-7; 4]);
    call::neighbor_allgather(out.addr(), 1, INT, into.addr(), 1, INT, comm).unwrap();
    assert_eq!(into.get(), gathered);
    let mut into = Values::of(&[-7; 4]);
    let mut request = call::neighbor_allgather_init(out.addr(), 1, INT, into.addr(), 1, INT, comm, Info::NULL).unwrap();
    for _ in 0..3 {
        call::start(&mut request).unwrap();
        call::wait(&mut request).unwrap();
        assert_eq!(into.get(), gathered);
    }
    call::request_free(&mut request).unwrap();
    // The blocks in reverse order of memory, by displacements and by types.
    let reversed = [3, 2, 1, 0];
    let mut into = Values::of(&[-7; 4]);
    let ones = Ints::Small(&[1; 4]);
    let displacements = Ints::Small(&reversed);
    call::neighbor_alltoallv(
        out.addr(),
        ones,
        Ints::Small(&[0, 1, 2, 3]),
        INT,
        into.addr(),
        ones,
        displacements,
        INT,
        comm,
    )
    .unwrap();
    assert_eq!(into.get().into_iter().rev().collect::<Vec<_>>(), expected);
    let mut into = Values::of(&[-7; 4]);
    let types = [INT; 4];
    let bytes = Ints::Large(&[12, 8, 4, 0]);
    call::neighbor_alltoallw(
        out.addr(),
        ones,
        Ints::Large(&[0, 4, 8, 12]),
        &types,
        into.addr(),
        ones,
        bytes,
        &types,
        comm,
    )
    .unwrap();
    assert_eq!(into.get().into_iter().rev().collect::<Vec<_>>(), expected);
    // A duplicate has the topology, too.
    let mut copy = call::comm_dup(comm).unwrap();
    assert_eq!(call::cartdim_get(copy), Ok(2));
    assert_eq!(call::graphdims_get(copy).unwrap_err().class, Class::TOPOLOGY);
    call::comm_free(&mut copy).unwrap();
    call::comm_free(&mut comm).unwrap();
}

fn subgrids(me: i32, n: i32) {
    // All but the last process, in one dimension.
    let inside = (n - 1).max(1);
    let line = call::cart_create(WORLD, &[inside], &[false], false).unwrap();
    assert_eq!(line.is_null(), me >= inside);
    if !line.is_null() {
        let whole = call::cart_sub(line, &[true]).unwrap();
        assert_eq!((call::comm_size(whole), call::comm_rank(whole)), (Ok(inside), Ok(me)));
        let alone = call::cart_sub(line, &[false]).unwrap();
        assert_eq!((call::comm_size(alone), call::cartdim_get(alone)), (Ok(1), Ok(0)));
        assert_eq!(call::cart_shift(whole, 0, 1).unwrap().0, if me == 0 { PROC_NULL } else { me - 1 });
    }
    assert_eq!(call::cart_create(WORLD, &[n + 1], &[false], false).unwrap_err().class, Class::TOPOLOGY);
    assert_eq!(call::cart_map(WORLD, &[inside], &[false]), Ok(if me < inside { me } else { UNDEFINED }));
}

/// A star: everybody is a neighbour of process 0.
fn graphs(me: i32, n: i32) {
    let index: Vec<i32> = (0..n).map(|node| n - 1 + node).collect();
    let edges: Vec<i32> = (1..n).chain((1..n).map(|_| 0)).collect();
    let star = call::graph_create(WORLD, &index, &edges, false).unwrap();
    assert_eq!(call::topo_test(star), Ok(GRAPH));
    assert_eq!(call::graphdims_get(star), Ok((n, 2 * (n - 1))));
    assert_eq!(call::graph_get(star, n, 2 * n), Ok((index, edges)));
    let neighbours: Vec<i32> = if me == 0 { (1..n).collect() } else { vec![0] };
    assert_eq!(call::graph_neighbors(star, me, n), Ok(neighbours.clone()));
    assert_eq!(call::graph_neighbors_count(star, me), Ok(neighbours.len() as i32));
    let mut out = Values::of(&[value(me, 0)]);
    let mut into = Values::of(&vec![-7; neighbours.len()]);
    call::neighbor_allgather(out.addr(), 1, INT, into.addr(), 1, INT, star).unwrap();
    assert_eq!(into.get(), neighbours.iter().map(|&from| value(from, 0)).collect::<Vec<_>>());
}

/// A ring in one direction, made in both ways; the general one from edges that process 0 gives for all.
fn distributed_graphs(me: i32, n: i32) {
    let (before, behind) = ((me + n - 1) % n, (me + 1) % n);
    let adjacent =
        call::dist_graph_create_adjacent(WORLD, &[before], Some(&[5]), &[behind], Some(&[6]), Info::NULL, false)
            .unwrap();
    let all: Vec<i32> = (0..n).collect();
    let next: Vec<i32> = (0..n).map(|node| (node + 1) % n).collect();
    let given = if me == 0 { n as usize } else { 0 };
    let ones = vec![1; given];
    let general =
        call::dist_graph_create(WORLD, &all[..given], &ones, &next[..given], None, Info::NULL, false).unwrap();
    for (comm, weights) in [(adjacent, [Some(vec![5]), Some(vec![6])]), (general, [None, None])] {
        assert_eq!(call::topo_test(comm), Ok(DIST_GRAPH));
        assert_eq!(call::dist_graph_neighbors_count(comm), Ok((1, 1, weights[0].is_some())));
        let graph = call::dist_graph_neighbors(comm, 1, 1).unwrap();
        assert_eq!((graph.sources, graph.destinations), (vec![before], vec![behind]));
        assert_eq!([graph.source_weights, graph.destination_weights], weights);
        let mut out = Values::of(&[value(me, 0)]);
        let mut into = Values::of(&[-7]);
        call::neighbor_alltoall(out.addr(), 1, INT, into.addr(), 1, INT, comm).unwrap();
        assert_eq!(into.get(), [value(before, 0)]);
    }
}
