//! Scenes with collectives: each is compared with what it must give (MPI-5.0, 6.3 to 6.13).

use crate::halls::Append;
use crate::values::{INT, SUM, Values, WORLD, place};
use pulc_mpi::call;
use pulc_mpi::callback::UserOp;
use pulc_mpi::handle::{Datatype, Info, Op};
use pulc_mpi::memory::{Addr, Ints};
use std::sync::Arc;

pub fn play() {
    let (me, n) = place(WORLD);
    for count in [1, 1000, 30_000] {
        reductions(me, n, count);
    }
    blocks(me, n);
    forms(me, n);
    for count in [1, 20_000, 70_000] {
        own_functions(me, n, count);
    }
}

/// MPI-5.0, 6.9.1, 6.9.6, 6.10 to 6.11: reductions in all their ways.
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

/// MPI-5.0, 6.5 to 6.8.
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

/// MPI-5.0, 6.12 and 6.13: nonblocking collectives under way together, and one that persists.
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

/// Adds, and leaves nothing of what it was given to read.
struct Spoils;

impl UserOp for Spoils {
    fn apply(&self, input: Addr, inout: Addr, len: i64, _datatype: Datatype) {
        for at in 0..len {
            let number = |from: Addr| {
                let mut bytes = [0; 4];
                from.read(at * 4, &mut bytes);
                i32::from_ne_bytes(bytes)
            };
            inout.write(at * 4, &(number(input) + number(inout)).to_ne_bytes());
            input.write(at * 4, &(-7_i32).to_ne_bytes());
        }
    }
}

/// MPI-5.0, 6.9.5: functions of the program are applied in the order of ranks where they do not commute, whatever they do with what
/// they are given; what the program passes in stays as it was.
fn own_functions(me: i32, n: i32, count: usize) {
    let digits = (1..=n).fold(0, |number, digit| number * 10 + digit);
    let ops = [
        (call::op_create(Arc::new(Append), false).unwrap(), digits),
        (call::op_create(Arc::new(Spoils), false).unwrap(), n * (n + 1) / 2),
        (call::op_create(Arc::new(Spoils), true).unwrap(), n * (n + 1) / 2),
    ];
    let len = count as i64;
    for (mut op, expected) in ops {
        let (mut out, mut into, mut both) =
            (Values::filled(me + 1, count), Values::filled(0, count), Values::filled(me + 1, count));
        let mut all = [
            call::iallreduce(out.addr(), into.addr(), len, INT, op, WORLD).unwrap(),
            call::iallreduce(Addr::IN_PLACE, both.addr(), len, INT, op, WORLD).unwrap(),
        ];
        call::waitall(&mut all, &mut |_, _| {}).unwrap();
        assert_eq!((into.get(), both.get()), (vec![expected; count], vec![expected; count]));
        for root in 0..n {
            rooted(me, root, op, (&mut out, expected));
        }
        assert_eq!(out.get(), vec![me + 1; count]);
        call::op_free(&mut op).unwrap();
    }
}

/// The same at one root, whose input may be where its result shall be.
fn rooted(me: i32, root: i32, op: Op, (out, expected): (&mut Values, i32)) {
    let (len, count) = (out.count(), out.count() as usize);
    for in_place in [false, true] {
        let mut into = Values::filled(if me == root { root + 1 } else { -1 }, count);
        let input = if in_place && me == root { Addr::IN_PLACE } else { out.addr() };
        let mut request = call::ireduce(input, into.addr(), len, INT, op, root, WORLD).unwrap();
        call::wait(&mut request).unwrap();
        assert_eq!(into.get(), vec![if me == root { expected } else { -1 }; count]);
    }
}
