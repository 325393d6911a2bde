//! Scenes in which members of a communicator do so many collectives that they meet in shared memory, and what becomes of those who
//! lose a member there (MPI-5.0, chapter 6; 6.14: which orders of calls are correct).

use crate::values::{INT, SUM, Values, WORLD, place};
use pulc_mpi::call;
use pulc_mpi::callback::UserOp;
use pulc_mpi::error::Class;
use pulc_mpi::handle::{Comm, Datatype};
use pulc_mpi::memory::{Addr, Room};
use std::sync::Arc;

const DOUBLE: Datatype = Datatype(0x4c00_080b);

/// Numbers of integers on both sides of every border: lines, shares, pieces.
const COUNTS: [usize; 10] = [0, 1, 14, 15, 700, 5_000, 16_384, 24_577, 60_000, 120_001];

/// The same collectives on the whole, on parts of it in other orders, and on copies that are freed again.
pub fn play() {
    let (me, n) = place(WORLD);
    all(WORLD);
    let mut backwards = call::comm_split(WORLD, me % 2, n - me).unwrap();
    all(backwards);
    for _ in 0..3 {
        let mut copy = call::comm_dup(WORLD).unwrap();
        for _ in 0..12 {
            call::barrier(copy).unwrap();
        }
        call::comm_free(&mut copy).unwrap();
    }
    in_order(WORLD);
    typed(WORLD);
    same_every_time(WORLD);
    call::comm_free(&mut backwards).unwrap();
}

pub fn all(comm: Comm) {
    let (me, n) = place(comm);
    for turn in 0..8 {
        call::barrier(comm).unwrap();
        let mut into = Values::filled(0, 1);
        call::allreduce(Values::of(&[me + turn]).addr(), into.addr(), 1, INT, SUM, comm).unwrap();
        assert_eq!(into.get(), vec![n * (n - 1) / 2 + n * turn]);
    }
    for count in COUNTS {
        reductions(comm, me, n, count);
        blocks(comm, me, n, count);
    }
    // Roots that run ahead of the others, one after the other.
    for turn in 0..40 {
        let root = turn / 10 % n;
        let mut value = Values::of(&[if me == root { turn } else { -1 }]);
        call::bcast(value.addr(), 1, INT, root, comm).unwrap();
        assert_eq!(value.get(), vec![turn]);
    }
    run_ahead(comm, me, n);
}

/// Lower places of scans, and roots of what needs a piece, run ahead as far as there are lines or pieces, and no further.
fn run_ahead(comm: Comm, me: i32, n: i32) {
    for turn in 0..300 {
        let mut into = Values::filled(-1, 1);
        call::scan(Values::of(&[me + turn]).addr(), into.addr(), 1, INT, SUM, comm).unwrap();
        assert_eq!(into.get(), vec![(0..=me).sum::<i32>() + (me + 1) * turn]);
    }
    for turn in 0..150 {
        let count = if turn % 50 < 30 { 200 } else { 1 };
        let root = turn / 50 % n;
        let mut values = Values::filled(if me == root { turn } else { -1 }, count);
        call::bcast(values.addr(), count as i64, INT, root, comm).unwrap();
        assert_eq!(values.get(), vec![turn; count]);
    }
}

fn reductions(comm: Comm, me: i32, n: i32, count: usize) {
    let own: Vec<i32> = (0..count as i32).map(|at| at * 3 + me).collect();
    let sum: Vec<i32> = (0..count as i32).map(|at| n * at * 3 + n * (n - 1) / 2).collect();
    let (mut out, mut into, len) = (Values::of(&own), Values::filled(0, count), count as i64);
    call::allreduce(out.addr(), into.addr(), len, INT, SUM, comm).unwrap();
    assert_eq!(into.get(), sum, "{count} of {n}");
    let mut in_place = Values::of(&own);
    call::allreduce(Addr::IN_PLACE, in_place.addr(), len, INT, SUM, comm).unwrap();
    assert_eq!(in_place.get(), sum);
    for root in 0..n {
        let mut into = Values::filled(-1, count);
        call::reduce(out.addr(), into.addr(), len, INT, SUM, root, comm).unwrap();
        assert_eq!(into.get(), if me == root { sum.clone() } else { vec![-1; count] });
        let mut shared = if me == root { Values::of(&sum) } else { Values::filled(0, count) };
        call::bcast(shared.addr(), len, INT, root, comm).unwrap();
        assert_eq!(shared.get(), sum);
    }
}

fn blocks(comm: Comm, me: i32, n: i32, count: usize) {
    let (size, len) = (n as usize, count as i64);
    let own: Vec<i32> = (0..count as i32).map(|at| at ^ me << 20).collect();
    let every: Vec<i32> = (0..n).flat_map(|rank| (0..count as i32).map(move |at| at ^ rank << 20)).collect();
    let (mut out, mut into) = (Values::of(&own), Values::filled(-1, count * size));
    call::allgather(out.addr(), len, INT, into.addr(), len, INT, comm).unwrap();
    assert_eq!(into.get(), every);
    call::allgather(Addr::IN_PLACE, 0, INT, into.addr(), len, INT, comm).unwrap();
    assert_eq!(into.get(), every);
    for root in 0..n {
        let mut into = Values::filled(-1, count * size);
        call::gather(out.addr(), len, INT, into.addr(), len, INT, root, comm).unwrap();
        if me == root {
            assert_eq!(into.get(), every);
            call::gather(Addr::IN_PLACE, 0, INT, into.addr(), len, INT, root, comm).unwrap();
        } else {
            call::gather(out.addr(), len, INT, Addr::NULL, 0, INT, root, comm).unwrap();
        }
        let mut mine = Values::filled(-1, count);
        call::scatter(into.addr(), len, INT, mine.addr(), len, INT, root, comm).unwrap();
        assert_eq!(mine.get(), own);
    }
    let to_all: Vec<i32> =
        (0..n).flat_map(|rank| (0..count as i32).map(move |at| at ^ (me * 64 + rank) << 16)).collect();
    let from_all: Vec<i32> =
        (0..n).flat_map(|rank| (0..count as i32).map(move |at| at ^ (rank * 64 + me) << 16)).collect();
    let mut into = Values::filled(-1, count * size);
    call::alltoall(Values::of(&to_all).addr(), len, INT, into.addr(), len, INT, comm).unwrap();
    assert_eq!(into.get(), from_all);
    let mut in_place = Values::of(&to_all);
    call::alltoall(Addr::IN_PLACE, 0, INT, in_place.addr(), len, INT, comm).unwrap();
    assert_eq!(in_place.get(), from_all);
}

/// The number of the right operand, in the digits behind that of the left one.
pub struct Append;

impl UserOp for Append {
    fn apply(&self, input: Addr, inout: Addr, len: i64, _datatype: Datatype) {
        for at in 0..len {
            let number = |from: Addr| {
                let mut bytes = [0; 4];
                from.read(at * 4, &mut bytes);
                i32::from_ne_bytes(bytes)
            };
            let (left, right) = (number(input), number(inout));
            let digits = if right > 9 { right.ilog10() + 1 } else { 1 };
            inout.write(at * 4, &(left * 10_i32.pow(digits) + right).to_ne_bytes());
        }
    }
}

/// An operation that does not commute is applied in the order of ranks.
fn in_order(comm: Comm) {
    let (me, n) = place(comm);
    let mut append = call::op_create(Arc::new(Append), false).unwrap();
    let expected = (1..=n).fold(0, |number, digit| number * 10 + digit);
    for count in [1, 100, 9_000, 20_000] {
        let (mut out, mut into) = (Values::filled(me + 1, count), Values::filled(0, count));
        call::allreduce(out.addr(), into.addr(), count as i64, INT, append, comm).unwrap();
        assert_eq!(into.get(), vec![expected; count]);
        call::reduce(out.addr(), into.addr(), count as i64, INT, append, n - 1, comm).unwrap();
        assert_eq!(into.get(), vec![expected; count]);
    }
    call::op_free(&mut append).unwrap();
}

/// Data with gaps goes in and comes out of the same memory.
fn typed(comm: Comm) {
    let (me, n) = place(comm);
    let mut column = call::type_vector(30_000, 1, 2, INT, false).unwrap();
    call::type_commit(column).unwrap();
    for root in 0..n {
        let mut values = Values::filled(if me == root { 7 + root } else { -1 }, 60_000);
        call::bcast(values.addr(), 1, column, root, comm).unwrap();
        let got = values.get();
        assert!(got.iter().step_by(2).all(|value| *value == 7 + root));
        assert!(
            me == root || got.iter().skip(1).step_by(2).all(|value| *value == -1),
            "what lies between is untouched"
        );
        // Gaps on one side only.
        let mut flat = Values::filled(-1, 30_000);
        let (addr, count, datatype) = if me == root { (values.addr(), 1, column) } else { (flat.addr(), 30_000, INT) };
        call::bcast(addr, count, datatype, root, comm).unwrap();
        assert!(me == root || flat.get() == vec![7 + root; 30_000]);
    }
    call::type_free(&mut column).unwrap();
}

/// Sums of fractions are the same bits on all members and each time.
fn same_every_time(comm: Comm) {
    let (me, n) = place(comm);
    for count in [1_usize, 3_000, 50_000] {
        let result = || {
            let mut own = Room::new(count * 8);
            for at in 0..count {
                own.addr().write(at as i64 * 8, &(1.0 / (1.0 + at as f64 + 7.3 * f64::from(me))).to_ne_bytes());
            }
            let mut into = Room::new(count * 8);
            call::allreduce(own.addr(), into.addr(), count as i64, DOUBLE, SUM, comm).unwrap();
            let mut bytes = vec![0; count * 8];
            into.addr().read(0, &mut bytes);
            bytes
        };
        let first = result();
        for _ in 0..3 {
            assert_eq!(result(), first);
        }
        let mut every = Room::new(first.len() * n as usize);
        let mut mine = Room::new(first.len());
        mine.addr().write(0, &first);
        let len = first.len() as i64;
        call::allgather(mine.addr(), len, Datatype::BYTE, every.addr(), len, Datatype::BYTE, comm).unwrap();
        let mut bytes = vec![0; first.len() * n as usize];
        every.addr().read(0, &mut bytes);
        assert!(bytes.chunks(first.len()).all(|theirs| theirs == first));
    }
}

/// Rank 1 is killed while all others wait for it.
pub fn bereft() {
    let (me, _) = place(WORLD);
    for _ in 0..10 {
        call::barrier(WORLD).unwrap();
    }
    if me == 1 {
        println!("@ here");
        loop {
            std::thread::park();
        }
    }
    let mut into = Values::of(&[0]);
    let error = call::allreduce(Values::of(&[me]).addr(), into.addr(), 1, INT, SUM, WORLD).unwrap_err();
    assert_eq!(error.class, Class::PROC_ABORTED);
    let error = call::barrier(WORLD).unwrap_err();
    assert!(error.to_string().contains("out of step"), "{error}");
}

/// One member is in another collective than the others.
pub fn confused() {
    let (me, _) = place(WORLD);
    for _ in 0..10 {
        call::barrier(WORLD).unwrap();
    }
    let mut into = Values::of(&[0]);
    let mut own = Values::of(&[me]);
    let result = if me == 0 {
        call::allgather(own.addr(), 1, INT, Values::filled(0, 2).addr(), 1, INT, WORLD)
    } else {
        call::allreduce(own.addr(), into.addr(), 1, INT, SUM, WORLD)
    };
    assert!(result.unwrap_err().to_string().contains("in another collective"));
}

/// Two threads, each with a communicator of its own, and messages of a third kind meanwhile.
pub fn threads() {
    let (me, n) = place(WORLD);
    let comms = [call::comm_dup(WORLD).unwrap(), call::comm_dup(WORLD).unwrap()];
    std::thread::scope(|scope| {
        for comm in comms {
            scope.spawn(move || {
                for turn in 0..200 {
                    let mut into = Values::filled(0, 1);
                    call::allreduce(Values::of(&[me + turn]).addr(), into.addr(), 1, INT, SUM, comm).unwrap();
                    assert_eq!(into.get(), vec![n * (n - 1) / 2 + n * turn]);
                }
            });
        }
        let (right, left) = ((me + 1) % n, (me + n - 1) % n);
        for turn in 0..200 {
            let (mut out, mut into) = (Values::of(&[turn]), Values::of(&[0]));
            let mut sent = call::isend(out.addr(), 1, INT, right, 1, WORLD).unwrap();
            call::recv(into.addr(), 1, INT, left, 1, WORLD).unwrap();
            call::wait(&mut sent).unwrap();
            assert_eq!(into.get(), vec![turn]);
        }
    });
}
