//! Scenes with communicators of both kinds (MPI-5.0, 7.4 and 7.6).

use crate::values::{INT, SUM, Values, WORLD, place};
use pulc_mpi::call;
use pulc_mpi::consts::{COMM_TYPE_SHARED, CONGRUENT, IDENT, UNDEFINED};
use pulc_mpi::error::Class;
use pulc_mpi::handle::{Comm, Info};

fn sum_on(comm: Comm, value: i32) -> i32 {
    let (mut out, mut into) = (Values::of(&[value]), Values::of(&[0]));
    call::allreduce(out.addr(), into.addr(), 1, INT, SUM, comm).unwrap();
    into.get()[0]
}

pub fn play() {
    let (me, n) = place(WORLD);
    let mut dup = call::comm_dup(WORLD).unwrap();
    assert_eq!(call::comm_compare(WORLD, dup).unwrap(), CONGRUENT);
    assert_eq!(call::comm_compare(dup, dup).unwrap(), IDENT);
    let mut half = call::comm_split(dup, me % 2, -me).unwrap();
    let mine = (0..n).filter(|rank| rank % 2 == me % 2);
    assert_eq!(sum_on(half, me), mine.clone().sum::<i32>());
    let (place_in_half, size) = place(half);
    assert_eq!((place_in_half, size as usize), (mine.clone().filter(|rank| *rank > me).count() as i32, mine.count()));
    let alone = call::comm_split(WORLD, if me == 0 { 1 } else { UNDEFINED }, 0).unwrap();
    assert_eq!(alone == Comm::NULL, me != 0);
    let node = call::comm_split_type(WORLD, COMM_TYPE_SHARED, 0, Info::NULL).unwrap();
    assert_eq!(place(node), (me, n));
    call::comm_set_name(half, "half").unwrap();
    assert_eq!(call::comm_get_name(half).as_deref(), Ok("half"));
    call::comm_free(&mut half).unwrap();
    assert_eq!(call::comm_rank(half).unwrap_err().class, Class::COMM);
    call::comm_free(&mut dup).unwrap();
    // Contexts and handles are used again.
    for _ in 0..50 {
        let mut again = call::comm_dup(WORLD).unwrap();
        assert_eq!(sum_on(again, 1), n);
        call::comm_free(&mut again).unwrap();
    }
}

/// MPI-5.0, 7.6, and collectives between two groups, 6.2.3.
pub fn between_sides() {
    let (me, n) = place(WORLD);
    let half = call::comm_split(WORLD, me % 2, me).unwrap();
    let mut inter = call::intercomm_create(half, 0, WORLD, 1 - me % 2, 3).unwrap();
    let others: Vec<i32> = (0..n).filter(|rank| rank % 2 != me % 2).collect();
    assert!(call::comm_test_inter(inter).unwrap());
    assert_eq!(call::comm_remote_size(inter).unwrap() as usize, others.len());
    assert_eq!(sum_on(inter, me), others.iter().sum::<i32>());
    call::barrier(inter).unwrap();
    let mut all = Values::filled(-1, others.len());
    call::allgather(Values::of(&[me]).addr(), 1, INT, all.addr(), 1, INT, inter).unwrap();
    assert_eq!(all.get(), others);
    let mut dup = call::comm_dup(inter).unwrap();
    assert_eq!(sum_on(dup, me), others.iter().sum::<i32>());
    let mut merged = call::intercomm_merge(dup, me % 2 == 1).unwrap();
    assert_eq!((sum_on(merged, 1), call::comm_size(merged).unwrap()), (n, n));
    assert_eq!(call::comm_rank(merged).unwrap(), me / 2 + if me % 2 == 1 { (n + 1) / 2 } else { 0 });
    let parts = call::comm_split(inter, 0, 0).unwrap();
    assert_eq!(call::comm_remote_size(parts).unwrap() as usize, others.len());
    for comm in [&mut merged, &mut dup, &mut inter] {
        call::comm_free(comm).unwrap();
    }
}
