//! A scene in which collectives whose blocks or results differ from member to member give in shared memory what their nonblocking forms
//! give by messages, whatever the lengths; and blocks that are too long are an error where they arrive, and nowhere else
//! (MPI-5.0, 6.5 to 6.12).

use crate::random::Dice;
use crate::values::{INT, SUM, Values, WORLD, place};
use pulc_mpi::call;
use pulc_mpi::callback::UserOp;
use pulc_mpi::error::{Class, Result};
use pulc_mpi::handle::{Comm, Datatype, Op, Request};
use pulc_mpi::memory::{Addr, Ints};
use std::sync::Arc;

/// Integers of a block: on both sides of what a line, a piece and the way by messages take.
const LENGTHS: [usize; 10] = [0, 1, 2, 12, 13, 300, 3_000, 12_000, 16_385, 30_000];

pub fn play() {
    let (me, n) = place(WORLD);
    for _ in 0..6 {
        call::barrier(WORLD).unwrap();
    }
    let mut dice = Dice::new(u64::from(std::process::id() / 1000) + 7);
    // Everybody rolls the same.
    let mut seed = Values::of(&[dice.word() as i32 & 0xffff]);
    call::bcast(seed.addr(), 1, INT, 0, WORLD).unwrap();
    let seed = seed.get()[0] as u64;
    println!("seed {seed}");
    let mut dice = Dice::new(seed);
    let mut backwards = call::comm_split(WORLD, 0, n - me).unwrap();
    for turn in 0..8 {
        let comm = if turn % 2 == 0 { WORLD } else { backwards };
        blocks(&mut dice, comm);
        prefixes(&mut dice, comm);
    }
    call::comm_free(&mut backwards).unwrap();
}

/// Lengths of blocks from everybody to everybody; only few differ much, so that every way is taken.
fn table(dice: &mut Dice, n: usize) -> Vec<Vec<i32>> {
    let most = LENGTHS[dice.below(LENGTHS.len())];
    let mut roll = || if dice.one_in(6) { LENGTHS[dice.below(LENGTHS.len())] } else { most };
    (0..n).map(|_| (0..n).map(|_| roll() as i32).collect()).collect()
}

/// Where blocks lie with gaps between them, and how long all is.
fn places(counts: &[i32], gap: i32) -> (Vec<i32>, usize) {
    let mut at = 0;
    let places = counts.iter().map(|count| (at, at += count + gap).0).collect();
    (places, at as usize)
}

fn data(salt: i32, len: usize) -> Values {
    Values::of(&(0..len as i32).map(|at| at ^ salt << 18).collect::<Vec<i32>>())
}

/// Both forms of a collective have left the same.
fn alike(what: &str, begin: impl Fn(&mut Values, bool) -> Result<Option<Request>>, initial: &mut Values) {
    let values = initial.get();
    let (mut here, mut there) = (Values::of(&values), Values::of(&values));
    begin(&mut here, true).unwrap();
    let mut request = begin(&mut there, false).unwrap().expect("nonblocking");
    call::wait(&mut request).unwrap();
    assert_eq!(here.get(), there.get(), "{what}");
}

fn done(result: Result<()>) -> Result<Option<Request>> {
    result.map(|()| None)
}

fn blocks(dice: &mut Dice, comm: Comm) {
    let (me, n) = place(comm);
    let (table, root, gap) = (table(dice, n as usize), dice.below(n as usize), dice.below(3) as i32);
    let (gives, gets): (&[i32], Vec<i32>) = (&table[me as usize], table.iter().map(|row| row[me as usize]).collect());
    let ((from, out_len), (to, into_len)) = (places(gives, gap), places(&gets, gap));
    let (mut out, mut into) = (data(me, out_len), Values::filled(-1, into_len.max(1)));
    let ints = |list| Ints::Small(list);
    let base = out.addr();
    alike(
        "alltoallv",
        |into, waits| {
            let (c, f, g, t) = (ints(gives), ints(&from), ints(&gets), ints(&to));
            match waits {
                true => done(call::alltoallv(base, c, f, INT, into.addr(), g, t, INT, comm)),
                false => call::ialltoallv(base, c, f, INT, into.addr(), g, t, INT, comm).map(Some),
            }
        },
        &mut into,
    );
    let bytes = |list: &[i32]| list.iter().map(|at| at * 4).collect::<Vec<i32>>();
    let (from, to, types) = (bytes(&from), bytes(&to), vec![INT; n as usize]);
    alike(
        "alltoallw",
        |into, waits| {
            let (c, f, g, t) = (ints(gives), ints(&from), ints(&gets), ints(&to));
            match waits {
                true => done(call::alltoallw(base, c, f, &types, into.addr(), g, t, &types, comm)),
                false => call::ialltoallw(base, c, f, &types, into.addr(), g, t, &types, comm).map(Some),
            }
        },
        &mut into,
    );
    // In place both directions have the same length.
    let both: Vec<i32> = (0..n).map(|peer| table[me.min(peer) as usize][me.max(peer) as usize]).collect();
    let (at, len) = places(&both, gap);
    alike(
        "alltoallv in place",
        |into, waits| {
            let (c, t) = (ints(&both), ints(&at));
            match waits {
                true => done(call::alltoallv(Addr::IN_PLACE, c, t, INT, into.addr(), c, t, INT, comm)),
                false => call::ialltoallv(Addr::IN_PLACE, c, t, INT, into.addr(), c, t, INT, comm).map(Some),
            }
        },
        &mut data(me, len),
    );
    rooted(comm, &table[0], root, gap);
    for stepped in [&table[0], &vec![LENGTHS[dice.below(6)] as i32; n as usize]] {
        to_all(comm, stepped, gap);
    }
}

/// Gathers and scatters blocks with gaps between them, also of data with gaps in it.
fn rooted(comm: Comm, counts: &[i32], root: usize, gap: i32) {
    let (me, _) = place(comm);
    let (is_root, own, to_root) = (me as usize == root, i64::from(counts[me as usize]), root as i32);
    let (at, len) = places(counts, gap);
    let (c, t) = (Ints::Small(counts), Ints::Small(&at));
    let mut strided = call::type_vector(own.max(1), 1, 2, INT, false).unwrap();
    call::type_commit(strided).unwrap();
    for in_place in [false, true] {
        let mut out = data(me, own as usize * 2);
        let base = if in_place && is_root { Addr::IN_PLACE } else { out.addr() };
        let (count, datatype) = if in_place { (own, INT) } else { (i64::from(own > 0), strided) };
        alike(
            "gatherv",
            |into, waits| match waits {
                true => done(call::gatherv(base, count, datatype, into.addr(), c, t, INT, to_root, comm)),
                false => call::igatherv(base, count, datatype, into.addr(), c, t, INT, to_root, comm).map(Some),
            },
            &mut data(99, if is_root { len } else { 0 }),
        );
        let mut all = data(root as i32, if is_root { len } else { 0 });
        let base = all.addr();
        alike(
            "scatterv",
            |into, waits| {
                let to = if in_place && is_root { Addr::IN_PLACE } else { into.addr() };
                match waits {
                    true => done(call::scatterv(base, c, t, INT, to, count, datatype, to_root, comm)),
                    false => call::iscatterv(base, c, t, INT, to, count, datatype, to_root, comm).map(Some),
                }
            },
            &mut Values::filled(-1, own as usize * 2 + 1),
        );
    }
    call::type_free(&mut strided).unwrap();
}

fn to_all(comm: Comm, counts: &[i32], gap: i32) {
    let (me, _) = place(comm);
    let own = i64::from(counts[me as usize]);
    let (at, len) = places(counts, gap);
    let (c, t) = (Ints::Small(counts), Ints::Small(&at));
    for in_place in [false, true] {
        let mut out = data(me, own as usize);
        let base = if in_place { Addr::IN_PLACE } else { out.addr() };
        alike(
            "allgatherv",
            |into, waits| match waits {
                true => done(call::allgatherv(base, own, INT, into.addr(), c, t, INT, comm)),
                false => call::iallgatherv(base, own, INT, into.addr(), c, t, INT, comm).map(Some),
            },
            &mut data(me, len),
        );
    }
}

/// Associative, and does not commute: maps `x * a + b` over the remainders of a power of two, one after the other.
struct Affine;

impl UserOp for Affine {
    fn apply(&self, input: Addr, inout: Addr, len: i64, _datatype: Datatype) {
        for at in 0..len {
            let number = |from: Addr| {
                let mut bytes = [0; 4];
                from.read(at * 4, &mut bytes);
                u32::from_ne_bytes(bytes)
            };
            let (left, right) = (number(input), number(inout));
            let (a, b) = ((left & 0xffff) * (right & 0xffff), (left >> 16) * (right & 0xffff) + (right >> 16));
            inout.write(at * 4, &((a & 0xffff) | (b & 0xffff) << 16).to_ne_bytes());
        }
    }
}

fn prefixes(dice: &mut Dice, comm: Comm) {
    let (me, n) = place(comm);
    let len = LENGTHS[dice.below(LENGTHS.len())] + dice.below(3);
    let counts: Vec<i32> = (0..n).map(|_| (dice.below(2 * len + 1)) as i32).collect();
    let total: usize = counts.iter().sum::<i32>() as usize;
    let mut affine = call::op_create(Arc::new(Affine), false).unwrap();
    for op in [SUM, affine] {
        for in_place in [false, true] {
            scans(comm, len, op, in_place);
            let mut out = data(me, total.max(len * n as usize));
            let from = |into: &mut Values, out: Addr| {
                if in_place { (Addr::IN_PLACE, into.addr()) } else { (out, into.addr()) }
            };
            let base = out.addr();
            let c = Ints::Small(&counts);
            alike(
                "reduce_scatter",
                |into, waits| {
                    let (from, to) = from(into, base);
                    match waits {
                        true => done(call::reduce_scatter(from, to, c, INT, op, comm)),
                        false => call::ireduce_scatter(from, to, c, INT, op, comm).map(Some),
                    }
                },
                &mut first(me, total, in_place, counts[me as usize] as usize),
            );
            let count = len as i64;
            alike(
                "reduce_scatter_block",
                |into, waits| {
                    let (from, to) = from(into, base);
                    match waits {
                        true => done(call::reduce_scatter_block(from, to, count, INT, op, comm)),
                        false => call::ireduce_scatter_block(from, to, count, INT, op, comm).map(Some),
                    }
                },
                &mut first(me, len * n as usize, in_place, len),
            );
        }
    }
    call::op_free(&mut affine).unwrap();
}

/// What the result's memory has at the beginning: in place all of the input, of which the end is undefined afterwards.
fn first(me: i32, whole: usize, in_place: bool, own: usize) -> Values {
    if in_place { data(me, whole) } else { Values::filled(-1, own) }
}

fn scans(comm: Comm, len: usize, op: Op, in_place: bool) {
    let (me, _) = place(comm);
    let (mut out, count) = (data(me, len), len as i64);
    let base = if in_place { Addr::IN_PLACE } else { out.addr() };
    alike(
        "scan",
        |into, waits| match waits {
            true => done(call::scan(base, into.addr(), count, INT, op, comm)),
            false => call::iscan(base, into.addr(), count, INT, op, comm).map(Some),
        },
        &mut data(me, len),
    );
    alike(
        "exscan",
        |into, waits| match waits {
            true => done(call::exscan(base, into.addr(), count, INT, op, comm)),
            false => call::iexscan(base, into.addr(), count, INT, op, comm).map(Some),
        },
        &mut data(me, len),
    );
}

/// The last member sends one more element than it is asked for. Who gets it is told, everybody goes on.
pub fn too_long() {
    let (me, n) = place(WORLD);
    for _ in 0..6 {
        call::barrier(WORLD).unwrap();
    }
    let last = n - 1;
    for asked in [0_i64, 3, 500, 20_000] {
        let gives = asked + i64::from(me == last);
        let counts = vec![asked as i32; n as usize];
        let (at, len) = places(&counts, 0);
        let (c, t) = (Ints::Small(&counts), Ints::Small(&at));
        let (mut out, mut into) = (data(me, (asked as usize + 1) * n as usize), Values::filled(-1, len.max(1)));
        let result = call::gatherv(out.addr(), gives, INT, into.addr(), c, t, INT, 0, WORLD);
        truncated(result, me == 0);
        let mut more = counts.clone();
        if me == last {
            more[0] += 1;
        }
        let (from, _) = places(&more, 0);
        let (m, f) = (Ints::Small(&more), Ints::Small(&from));
        truncated(call::alltoallv(out.addr(), m, f, INT, into.addr(), c, t, INT, WORLD), me == 0);
        truncated(call::scatterv(out.addr(), m, f, INT, into.addr(), asked, INT, last, WORLD), me == 0);
        call::barrier(WORLD).unwrap();
    }
}

fn truncated(result: Result<()>, is_it: bool) {
    match result {
        Ok(()) => assert!(!is_it),
        Err(error) => assert!(is_it && error.class == Class::TRUNCATE, "{error}"),
    }
}
