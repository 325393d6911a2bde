//! Measures what datatypes and reductions cost beside plain loops: packing against `memcpy` and loops written for the one case, a
//! reduction against the loop that a program would write. Prints medians of interleaved rounds and their ratios; asserts nothing.
//!
//! `cargo run --release -p pulc-mpi --example datatype_copies`

use pulc_mpi::call;
use pulc_mpi::datatype::{self, TypeRef};
use pulc_mpi::error::Result;
use pulc_mpi::handle::{Datatype, Op};
use pulc_mpi::memory::{Ints, Room};
use pulc_mpi::op;
use std::cell::RefCell;
use std::hint::black_box;
use std::time::Instant;

const DOUBLE: Datatype = Datatype(0x4c00_080b);
const BYTE: Datatype = Datatype(0x4c00_010d);
const LONG_DOUBLE: Datatype = Datatype(0x4c00_100c);
const SUM: Op = Op(0x5800_0003);
const ROUNDS: usize = 21;

fn main() -> Result<()> {
    println!("{:44} {:>9} {:>9} {:>6}", "bytes per ns; ratio to the plain loop", "ours", "plain", "ratio");
    for bytes in [64, 4096, 1 << 20] {
        contiguous(bytes)?;
    }
    for (count, stride) in [(512, 2), (512, 7), (32768, 4), (1 << 20, 4)] {
        column(count, stride)?;
    }
    for blocklength in [2, 3, 5, 32] {
        blocks(blocklength)?;
    }
    listed()?;
    records()?;
    for count in [8, 1024, 131_072] {
        sums(count)?;
    }
    long_sums()
}

fn contiguous(bytes: usize) -> Result<()> {
    let datatype = datatype::get(BYTE)?;
    let (mut room, mut out) = (filled(bytes), vec![0u8; bytes]);
    let (source, out) = (room.addr(), RefCell::new(&mut out));
    report(
        &format!("contiguous, {bytes} B"),
        bytes,
        20,
        &mut || datatype.pack(source, bytes as i64, 0, black_box(&mut out.borrow_mut())),
        &mut || black_box(&mut out.borrow_mut()).copy_from_slice(black_box(source.bytes(bytes))),
    );
    Ok(())
}

/// A column of a matrix: one double of each row.
fn column(count: usize, stride: usize) -> Result<()> {
    let datatype = committed(call::type_vector(count as i64, 1, stride as i64, DOUBLE, false)?)?;
    let (mut room, mut out) = (filled(count * stride * 8), vec![0u8; count * 8]);
    let (matrix, out) = (room.addr(), RefCell::new(&mut out));
    report(
        &format!("packs {count} doubles, {stride} apart"),
        count * 8,
        10,
        &mut || datatype.pack(matrix, 1, 0, black_box(&mut out.borrow_mut())),
        &mut || {
            let (from, row) = (black_box(matrix.bytes(count * stride * 8)), 8 * black_box(stride));
            let mut out = out.borrow_mut();
            for (to, from) in black_box(out.as_mut_slice()).chunks_exact_mut(8).zip(from.chunks_exact(row)) {
                to.copy_from_slice(&from[..8]);
            }
        },
    );
    report(
        &format!("unpacks {count} doubles, {stride} apart"),
        count * 8,
        10,
        &mut || datatype.unpack(matrix, 1, 0, black_box(&out.borrow())),
        &mut || {
            let (to, row) = (black_box(matrix.bytes_mut(count * stride * 8)), 8 * black_box(stride));
            for (to, from) in to.chunks_exact_mut(row).zip(black_box(out.borrow().as_slice()).chunks_exact(8)) {
                to[..8].copy_from_slice(from);
            }
        },
    );
    Ok(())
}

/// Memory whose pages are all there.
fn filled(bytes: usize) -> Room {
    let mut room = Room::new(bytes);
    room.addr().bytes_mut(bytes).fill(1);
    room
}

/// Blocks of several doubles.
fn blocks(blocklength: usize) -> Result<()> {
    let (count, stride) = (2048, 2 * blocklength);
    let datatype = committed(call::type_vector(count as i64, blocklength as i64, stride as i64, DOUBLE, false)?)?;
    let source = vec![1.0f64; count * stride];
    let mut room = filled(count * stride * 8);
    let bytes = count * blocklength * 8;
    let (mut out, mut plain) = (vec![0u8; bytes], vec![0.0f64; count * blocklength]);
    report(
        &format!("packs {count} blocks of {blocklength} doubles"),
        bytes,
        10,
        &mut || {
            datatype.pack(room.addr(), 1, 0, black_box(&mut out));
        },
        &mut || {
            let (blocklength, stride) = (black_box(blocklength), black_box(stride));
            let from = black_box(source.as_slice()).chunks_exact(stride);
            for (to, from) in black_box(plain.as_mut_slice()).chunks_exact_mut(blocklength).zip(from) {
                for (to, from) in to.iter_mut().zip(&from[..blocklength]) {
                    *to = *from;
                }
            }
        },
    );
    Ok(())
}

/// Single doubles at listed places.
fn listed() -> Result<()> {
    let count = 4096;
    let places: Vec<i32> = (0..count).map(|index| 3 * index + index % 2).collect();
    let datatype = committed(call::type_create_indexed_block(1, Ints::Small(&places), DOUBLE, false)?)?;
    let source = vec![1.0f64; 3 * count as usize + 2];
    let mut room = filled(source.len() * 8);
    let (mut out, mut plain) = (vec![0u8; 8 * count as usize], vec![0.0f64; count as usize]);
    report(
        &format!("packs {count} doubles at listed places"),
        8 * count as usize,
        10,
        &mut || {
            datatype.pack(room.addr(), 1, 0, black_box(&mut out));
        },
        &mut || {
            let source = black_box(source.as_slice());
            for (to, &place) in black_box(plain.as_mut_slice()).iter_mut().zip(black_box(&places)) {
                *to = source[place as usize];
            }
        },
    );
    Ok(())
}

/// Records with a gap: a double and an int.
fn records() -> Result<()> {
    let count = 4096;
    let lengths = [1, 1];
    let types = [DOUBLE, Datatype(0x4c00_0405)];
    let datatype = committed(call::type_create_struct(Ints::Small(&lengths), Ints::Large(&[0, 8]), &types, false)?)?;
    let source = vec![(1.0f64, 1i32); count];
    let mut room = filled(16 * count);
    let (mut out, mut plain) = (vec![0u8; 12 * count], vec![0u8; 12 * count]);
    report(
        &format!("packs {count} records of 12 bytes in 16"),
        12 * count,
        10,
        &mut || {
            datatype.pack(room.addr(), count as i64, 0, black_box(&mut out));
        },
        &mut || {
            for (to, from) in black_box(plain.as_mut_slice()).chunks_exact_mut(12).zip(black_box(&source)) {
                to[..8].copy_from_slice(&from.0.to_ne_bytes());
                to[8..].copy_from_slice(&from.1.to_ne_bytes());
            }
        },
    );
    Ok(())
}

fn sums(count: usize) -> Result<()> {
    let sum = op::get(SUM)?;
    let (mut input, mut inout) = (filled(8 * count), filled(8 * count));
    let (source, mut plain) = (vec![1.0f64; count], vec![0.0f64; count]);
    report(
        &format!("sums {count} doubles"),
        8 * count,
        10,
        &mut || {
            op::reduce(&sum, DOUBLE, input.addr(), inout.addr(), count as i64).expect("a sum of doubles");
        },
        &mut || {
            for (to, from) in black_box(plain.as_mut_slice()).iter_mut().zip(black_box(&source)) {
                *to += *from;
            }
        },
    );
    Ok(())
}

fn long_sums() -> Result<()> {
    let count = 4096;
    let sum = op::get(SUM)?;
    let (mut input, mut inout) = (Room::new(16 * count), Room::new(16 * count));
    let one = 0x3fff_8000_0000_0000_0000u128.to_ne_bytes();
    (0..count as i64).for_each(|at| input.addr().write(16 * at, &one));
    let (source, mut plain) = (vec![1.0f64; count], vec![0.0f64; count]);
    report(
        &format!("sums {count} long doubles (plain: doubles)"),
        16 * count,
        1,
        &mut || {
            op::reduce(&sum, LONG_DOUBLE, input.addr(), inout.addr(), count as i64).expect("a sum of long doubles");
        },
        &mut || {
            for (to, from) in black_box(plain.as_mut_slice()).iter_mut().zip(black_box(&source)) {
                *to += *from;
            }
        },
    );
    Ok(())
}

fn committed(datatype: Datatype) -> Result<TypeRef> {
    call::type_commit(datatype)?;
    datatype::get(datatype)
}

/// Runs both in turns. Each round lasts long enough for the clock, about `scale` times a millionth of a second or more.
fn report(what: &str, bytes: usize, scale: usize, ours: &mut dyn FnMut(), plain: &mut dyn FnMut()) {
    let turns = (scale * 10_000 / bytes.max(100)).max(3);
    let timed = |work: &mut dyn FnMut()| {
        let begin = Instant::now();
        for _ in 0..turns {
            work();
        }
        (bytes * turns) as f64 / begin.elapsed().as_nanos().max(1) as f64
    };
    let (mut ours_rates, mut plain_rates) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours_rates.push(timed(ours));
        plain_rates.push(timed(plain));
    }
    let [ours, plain] = [ours_rates, plain_rates].map(|mut rates| {
        rates.sort_unstable_by(f64::total_cmp);
        rates[ROUNDS / 2]
    });
    println!("{what:44} {ours:9.2} {plain:9.2} {:6.2}", ours / plain);
}
