//! Scenes with collectives: each is compared with what it must give.

use crate::values::{INT, SUM, Values, WORLD, place};
use pulc_mpi::call;
use pulc_mpi::handle::Info;
use pulc_mpi::memory::{Addr, Ints};

pub fn play() {
    let (me, n) = place(WORLD);
    for count in [1, 1000, 30_000] {
        reductions(me, n, count);
    }
    blocks(me, n);
    forms(me, n);
}

fn reductions(me: i32, n: i32, count: usize) {
    let own: Vec<i32> = (0..count as i32).map(|at| at + me).collect();
    let sum: Vec<i32> = (0..count as i32).map(|at| n * at + n * (n - 1) / 2).collect();
    let below: i32 = (0..=me).sum();
    let upto: Vec<i32> = (0..count as i32).map(|at| (me + 1) * at + below).collect();
    let (mut out, mut into) = (Values::of(&own), Values::filled(0, count));
    let len = count as i64;
    call::allreduce(out.addr(), into.addr(), len, INT, SUM, WORLD).unwrap();
    assert_eq!(into.get(), sum);
    let mut in_place = Values::of(&own);
    call::allreduce(Addr::IN_PLACE, in_place.addr(), len, INT, SUM, WORLD).unwrap();
    assert_eq!(in_place.get(), sum);
    call::scan(out.addr(), into.addr(), len, INT, SUM, WORLD).unwrap();
    assert_eq!(into.get(), upto);
    call::exscan(out.addr(), into.addr(), len, INT, SUM, WORLD).unwrap();
    if me > 0 {
        let before: Vec<i32> = upto.iter().zip(&own).map(|(upto, own)| upto - own).collect();
        assert_eq!(into.get(), before);
    }
    for root in 0..n {
        let mut into = Values::filled(-1, count);
        call::reduce(out.addr(), into.addr(), len, INT, SUM, root, WORLD).unwrap();
        if me == root {
            assert_eq!(into.get(), sum);
        }
        let mut shared = Values::filled(if me == root { root + 3 } else { 0 }, count);
        call::bcast(shared.addr(), len, INT, root, WORLD).unwrap();
        assert_eq!(shared.get(), vec![root + 3; count]);
    }
    let mut long = Values::of(&own.repeat(n as usize));
    call::reduce_scatter_block(long.addr(), into.addr(), len, INT, SUM, WORLD).unwrap();
    assert_eq!(into.get(), sum);
}

fn blocks(me: i32, n: i32) {
    let size = n as usize;
    for len in [1, 500, 20_000] {
        let mut own = Values::filled(me, len);
        let mut all = Values::filled(-1, len * size);
        let count = len as i64;
        let expected: Vec<i32> = (0..n).flat_map(|rank| vec![rank; len]).collect();
        call::allgather(own.addr(), count, INT, all.addr(), count, INT, WORLD).unwrap();
        assert_eq!(all.get(), expected);
        let counts = vec![len as i32; size];
        let backwards: Vec<i64> = (0..size).rev().map(|rank| (rank * len) as i64).collect();
        for root in 0..n {
            let mut all = Values::filled(-1, len * size);
            let (counts, displacements) = (Ints::Small(&counts), Ints::Large(&backwards));
            call::gatherv(own.addr(), count, INT, all.addr(), counts, displacements, INT, root, WORLD).unwrap();
            if me == root {
                let turned: Vec<i32> = (0..n).rev().flat_map(|rank| vec![rank; len]).collect();
                assert_eq!(all.get(), turned);
            }
            let mut mine = Values::filled(-1, len);
            call::scatterv(all.addr(), counts, displacements, INT, mine.addr(), count, INT, root, WORLD).unwrap();
            assert_eq!(mine.get(), vec![me; len]);
        }
    }
    let out: Vec<i32> = (0..n).map(|rank| me * 100 + rank).collect();
    let expected: Vec<i32> = (0..n).map(|rank| rank * 100 + me).collect();
    let mut into = Values::filled(0, size);
    call::alltoall(Values::of(&out).addr(), 1, INT, into.addr(), 1, INT, WORLD).unwrap();
    assert_eq!(into.get(), expected);
    let mut in_place = Values::of(&out);
    call::alltoall(Addr::IN_PLACE, 0, INT, in_place.addr(), 1, INT, WORLD).unwrap();
    assert_eq!(in_place.get(), expected);
}

fn forms(me: i32, n: i32) {
    let (mut out, mut into, mut shared) = (Values::of(&[me; 4]), Values::filled(0, 4), Values::of(&[me]));
    let mut all = [
        call::iallreduce(out.addr(), into.addr(), 4, INT, SUM, WORLD).unwrap(),
        call::ibcast(shared.addr(), 1, INT, n - 1, WORLD).unwrap(),
        call::ibarrier(WORLD).unwrap(),
    ];
    call::waitall(&mut all, &mut |_, _| {}).unwrap();
    assert_eq!((into.get(), shared.get()), (vec![n * (n - 1) / 2; 4], vec![n - 1]));
    let mut kept = call::allreduce_init(out.addr(), into.addr(), 4, INT, SUM, WORLD, Info::NULL).unwrap();
    for _ in 0..3 {
        call::start(&mut kept).unwrap();
        call::wait(&mut kept).unwrap();
    }
    call::request_free(&mut kept).unwrap();
}
