//! Every operation on every predefined type: defined exactly where the standard's tables say so, and computed like an oracle that
//! takes one element at a time, also from odd addresses and in lengths that no vector divides.

use super::calls::*;
use super::*;
use crate::datatype::basic::{Basic, Form};
use crate::datatype::number::Number;
use crate::memory::Room;
use proptest::prelude::*;
use wide::{BRAIN, HALF, QUAD, Wide, X87};

/// The groups of section 6.9.2, by name.
fn groups(name: &str) -> &'static [&'static str] {
    let name = name.trim_start_matches("MPIX_").trim_start_matches("MPI_");
    let pairs = ["FLOAT_INT", "DOUBLE_INT", "LONG_INT", "SHORT_INT", "LONG_DOUBLE_INT", "2INT", "2INTEGER", "2REAL"];
    match name {
        _ if pairs.contains(&name) || name == "2DOUBLE_PRECISION" => &["pair"],
        "CHARACTER" | "WCHAR" | "PACKED" | "LB" | "UB" => &[],
        "BYTE" => &["byte"],
        "C_BOOL" | "CXX_BOOL" => &["logical"],
        "AINT" | "COUNT" | "OFFSET" => &["c integer"],
        _ if name.starts_with("LOGICAL") => &["logical"],
        _ if name.starts_with("INTEGER") => &["fortran integer"],
        _ if name.contains("COMPLEX") => &["complex"],
        "FLOAT" | "DOUBLE" | "LONG_DOUBLE" | "REAL" | "DOUBLE_PRECISION" | "C_FLOAT16" | "BFLOAT16" => &["float"],
        _ if name.starts_with("REAL") => &["float"],
        _ => &["c integer"],
    }
}

fn is_allowed(op: Builtin, name: &str) -> bool {
    let allowed: &[&str] = match op {
        Builtin::Maximum | Builtin::Minimum => &["c integer", "fortran integer", "float"],
        Builtin::Sum | Builtin::Product => &["c integer", "fortran integer", "float", "complex"],
        Builtin::LogicalAnd | Builtin::LogicalOr | Builtin::LogicalXor => &["c integer", "logical"],
        Builtin::BitAnd | Builtin::BitOr | Builtin::BitXor => &["c integer", "fortran integer", "byte"],
        Builtin::MinimumPlace | Builtin::MaximumPlace => &["pair"],
        Builtin::Replace | Builtin::Nothing => &[],
    };
    groups(name).iter().any(|group| allowed.contains(group))
}

#[test]
fn an_operation_is_defined_where_the_standard_says_so_and_nowhere_else() {
    for (builtin, name) in BUILTINS {
        for basic in &BASICS {
            let result = check(&OpRef::Builtin(builtin), Datatype(basic.mpich as i32));
            assert_eq!(result.is_ok(), is_allowed(builtin, basic.name), "{name} on {}", basic.name);
            if let Err(error) = result {
                assert_eq!(error.class, Class::OP);
            }
        }
    }
}

fn le(bytes: &[u8]) -> u128 {
    bytes.iter().rev().fold(0, |bits, byte| bits << 8 | u128::from(*byte))
}

fn integer(op: Builtin, number: Number, left: &[u8], right: &[u8]) -> Vec<u8> {
    let signed = |bits: u128| {
        let shift = 128 - 8 * number.bytes() as u32;
        if number.is_signed() { (bits << shift) as i128 >> shift } else { bits as i128 }
    };
    let (a, b) = (le(left), le(right));
    let result = match op {
        Builtin::Sum => a.wrapping_add(b),
        Builtin::Product => a.wrapping_mul(b),
        Builtin::Maximum => signed(a).max(signed(b)) as u128,
        Builtin::Minimum => signed(a).min(signed(b)) as u128,
        Builtin::BitAnd => a & b,
        Builtin::BitOr => a | b,
        Builtin::BitXor => a ^ b,
        Builtin::LogicalAnd => u128::from(a != 0 && b != 0),
        Builtin::LogicalOr => u128::from(a != 0 || b != 0),
        Builtin::LogicalXor => u128::from((a != 0) != (b != 0)),
        _ => unreachable!("not for integers"),
    };
    result.to_le_bytes()[..number.bytes() as usize].to_vec()
}

/// One number of any floating-point kind as a double, and back. Exact for the values that the tests use.
fn value(number: Number, bytes: &[u8]) -> f64 {
    let double = |format| {
        let wide = Wide::decode(le(bytes), format);
        f64::from_bits(wide.encode(&wide::DOUBLE) as u64)
    };
    match number {
        Number::F32 => f64::from(f32::from_le_bytes(bytes.try_into().unwrap())),
        Number::F64 => f64::from_le_bytes(bytes.try_into().unwrap()),
        Number::F16 => double(&HALF),
        Number::Bf16 => double(&BRAIN),
        Number::X87 => double(&X87),
        Number::F128 => double(&QUAD),
        _ => {
            (le(bytes) << (128 - 8 * number.bytes()) as u32).cast_signed() as f64
                / 2f64.powi(128 - 8 * number.bytes() as i32)
        }
    }
}

fn bytes_of(number: Number, value: f64) -> Vec<u8> {
    let wide = |format| Wide::decode(u128::from(value.to_bits()), &wide::DOUBLE).encode(format).to_le_bytes();
    let bytes: Vec<u8> = match number {
        Number::F32 => (value as f32).to_le_bytes().to_vec(),
        Number::F64 => value.to_le_bytes().to_vec(),
        Number::F16 => wide(&HALF).to_vec(),
        Number::Bf16 => wide(&BRAIN).to_vec(),
        Number::X87 => wide(&X87).to_vec(),
        Number::F128 => wide(&QUAD).to_vec(),
        _ => (value as i128).to_le_bytes().to_vec(),
    };
    bytes[..number.bytes() as usize].to_vec()
}

fn floating(op: Builtin, a: f64, b: f64) -> f64 {
    match op {
        Builtin::Sum => a + b,
        Builtin::Product => a * b,
        Builtin::Maximum => a.max(b),
        Builtin::Minimum => a.min(b),
        _ => unreachable!("not for floats"),
    }
}

/// One element by the oracle. Gaps of pairs are left as they are in `right`.
fn combined(op: Builtin, basic: &Basic, left: &[u8], right: &[u8]) -> Vec<u8> {
    match basic.form {
        Form::Integer(number) | Form::Logical(number) => integer(op, number, left, right),
        Form::Byte => integer(op, Number::U8, left, right),
        Form::Floating(number) => bytes_of(number, floating(op, value(number, left), value(number, right))),
        Form::Complex(number) => {
            let half = number.bytes() as usize;
            let part = |bytes: &[u8], at: usize| value(number, &bytes[at * half..][..half]);
            let (a, b, c, d) = (part(left, 0), part(left, 1), part(right, 0), part(right, 1));
            let (re, im) = match op {
                Builtin::Sum => (a + c, b + d),
                _ => (a * c - b * d, a * d + b * c),
            };
            [bytes_of(number, re), bytes_of(number, im)].concat()
        }
        Form::Pair(first, second) => {
            let at = basic.place_offset() as usize;
            let parts = |bytes: &[u8]| {
                (value(first, &bytes[..first.bytes() as usize]), value(second, &bytes[at..][..second.bytes() as usize]))
            };
            let ((x, i), (y, j)) = (parts(left), parts(right));
            let left_wins = if op == Builtin::MinimumPlace { x < y } else { x > y };
            let (result, place) = if x == y {
                (x, i.min(j))
            } else if left_wins {
                (x, i)
            } else {
                (y, j)
            };
            let mut bytes = right.to_vec();
            bytes[..first.bytes() as usize].copy_from_slice(&bytes_of(first, result));
            bytes[at..][..second.bytes() as usize].copy_from_slice(&bytes_of(second, place));
            bytes
        }
        _ => unreachable!("no operation"),
    }
}

/// An element of small numbers, so that all results are exact in every format; integers take any bits.
fn element(basic: &Basic, seed: u64) -> Vec<u8> {
    let small = |shift: u32| f64::from((seed >> shift) as i8 % 8);
    match basic.form {
        Form::Integer(_) | Form::Byte => {
            let bits = u128::from(seed) | u128::from(seed.rotate_left(17)) << 64;
            bits.to_le_bytes()[..basic.size() as usize].to_vec()
        }
        Form::Logical(number) => {
            let mut bytes = vec![0; number.bytes() as usize];
            bytes[seed as usize / 4 % number.bytes() as usize] = (seed % 4).saturating_sub(1) as u8;
            bytes
        }
        Form::Floating(number) => bytes_of(number, small(0)),
        Form::Complex(number) => [bytes_of(number, small(0)), bytes_of(number, small(8))].concat(),
        Form::Pair(first, second) => {
            let mut bytes = vec![0; basic.extent() as usize];
            bytes[..first.bytes() as usize].copy_from_slice(&bytes_of(first, small(0)));
            let at = basic.place_offset() as usize;
            bytes[at..][..second.bytes() as usize].copy_from_slice(&bytes_of(second, small(8)));
            bytes
        }
        _ => unreachable!("no operation"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 40 }))]

    #[test]
    fn every_operation_computes_like_the_oracle(
        seeds in prop::collection::vec(any::<u64>(), 2..140),
        odd in 0i64..16,
    ) {
        let half = seeds.len() / 2;
        for (builtin, name) in BUILTINS {
            for basic in BASICS.iter().filter(|basic| is_allowed(builtin, basic.name)) {
                let size = basic.extent() as usize;
                let make = |seeds: &[u64]| seeds.iter().flat_map(|seed| element(basic, *seed)).collect::<Vec<u8>>();
                let (left, right) = (make(&seeds[..half]), make(&seeds[half..2 * half]));
                let expected: Vec<u8> = left
                    .chunks(size)
                    .zip(right.chunks(size))
                    .flat_map(|(left, right)| combined(builtin, basic, left, right))
                    .collect();
                let (mut input, mut inout) = (Room::new(left.len() + 32), Room::new(left.len() + 64));
                let (input, inout) = (input.addr().offset(odd), inout.addr().offset(15 - odd));
                input.write(0, &left);
                inout.write(0, &right);
                inout.write(right.len() as i64, &[0xa5; 32]);
                reduce(&OpRef::Builtin(builtin), Datatype(basic.mpich as i32), input, inout, half as i64).unwrap();
                let mut result = vec![0; expected.len() + 32];
                inout.read(0, &mut result);
                prop_assert_eq!(&result[expected.len()..], &[0xa5; 32], "{} {}: wrote beyond the end", name, basic.name);
                for (index, (got, wanted)) in result.chunks(size).zip(expected.chunks(size)).enumerate() {
                    for &(from, len) in &data(basic) {
                        // -0.0 and 0.0 are equal, their bits are not; every other value has one pattern.
                        let zeros = |bytes: &[u8]| bytes[..len - 1].iter().all(|byte| *byte == 0) && bytes[len - 1] & 0x7f == 0;
                        let (got, wanted) = (&got[from..][..len], &wanted[from..][..len]);
                        prop_assert!(got == wanted || is_floating(basic) && zeros(got) && zeros(wanted) ||
                            is_extended(basic) && got[..10] == wanted[..10],
                            "{} {} element {}: {:?}, not {:?}", name, basic.name, index, got, wanted);
                    }
                }
            }
        }
    }
}

/// The parts of an element that are data: place and length.
fn data(basic: &Basic) -> Vec<(usize, usize)> {
    match basic.form {
        Form::Pair(first, second) => {
            vec![(0, first.bytes() as usize), (basic.place_offset() as usize, second.bytes() as usize)]
        }
        Form::Complex(number) => vec![(0, number.bytes() as usize), (number.bytes() as usize, number.bytes() as usize)],
        _ => vec![(0, basic.size() as usize)],
    }
}

fn is_floating(basic: &Basic) -> bool {
    matches!(basic.form, Form::Floating(_) | Form::Complex(_) | Form::Pair(Number::F32 | Number::F64 | Number::X87, _))
}

fn is_extended(basic: &Basic) -> bool {
    matches!(basic.form, Form::Floating(Number::X87) | Form::Complex(Number::X87))
}

#[test]
fn a_long_double_keeps_all_its_bits() {
    let (mut input, mut inout) = (Room::new(16), Room::new(16));
    let long_double = Datatype(crate::datatype::basic::named("MPI_LONG_DOUBLE").mpich as i32);
    // 2^63 + 2^-0 needs 64 bits: a double would lose the one.
    input.addr().write(0, &0x403e_8000_0000_0000_0000u128.to_ne_bytes());
    inout.addr().write(0, &0x3fff_8000_0000_0000_0000u128.to_ne_bytes());
    reduce(&OpRef::Builtin(Builtin::Sum), long_double, input.addr(), inout.addr(), 1).unwrap();
    let mut result = [0; 16];
    inout.addr().read(0, &mut result);
    assert_eq!(u128::from_ne_bytes(result), 0x403e_8000_0000_0000_0001);
}

/// Subtracts: neither commutative nor predefined.
struct Minus;

impl UserOp for Minus {
    fn apply(&self, input: Addr, inout: Addr, len: i64, datatype: Datatype) {
        assert_eq!(datatype::contiguous_size(datatype), Some(4));
        for at in 0..len {
            let mut both = [[0; 4]; 2];
            input.read(4 * at, &mut both[0]);
            inout.read(4 * at, &mut both[1]);
            let [left, right] = both.map(i32::from_ne_bytes);
            inout.write(4 * at, &(left - right).to_ne_bytes());
        }
    }
}

#[test]
fn a_function_of_the_program_gets_the_lower_rank_first_and_outlives_its_handle() {
    let mut handle = op_create(Arc::new(Minus), false).unwrap();
    assert_eq!(op_commutative(handle), Ok(false));
    assert_eq!(op_commutative(Op(PREDEFINED + 3)), Ok(true));
    let held = get(handle).unwrap();
    op_free(&mut handle).unwrap();
    assert_eq!(handle, Op::NULL);
    let (mut input, mut inout) = (Room::new(4), Room::new(4));
    input.addr().write(0, &10i32.to_ne_bytes());
    inout.addr().write(0, &3i32.to_ne_bytes());
    reduce(&held, Datatype(0x4c00_0405), input.addr(), inout.addr(), 1).unwrap();
    let mut result = [0; 4];
    inout.addr().read(0, &mut result);
    assert_eq!(i32::from_ne_bytes(result), 7);
    assert_eq!(get(handle).map(|_| ()).unwrap_err().class, Class::OP);
    assert_eq!(op_free(&mut Op(PREDEFINED + 1)).unwrap_err().class, Class::OP);
    assert_eq!(get(Op(PREDEFINED)).map(|_| ()).unwrap_err().class, Class::OP);
    assert_eq!(get(Op(PREDEFINED + 15)).map(|_| ()).unwrap_err().class, Class::OP);
}

/// What comes out must be the same bit for bit, of integers and of floating-point numbers below one. One byte in front: odd addresses.
#[test]
fn many_sources_in_one_pass_make_what_they_make_one_after_the_other() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for (builtin, name) in BUILTINS {
        for basic in &BASICS {
            let (op, datatype) = (OpRef::Builtin(builtin), Datatype(basic.mpich as i32));
            let Ok(reduction) = Reduction::new(&op, datatype) else { continue };
            let Some(size) = datatype::contiguous_size(datatype).map(|size| size as usize) else { continue };
            for (sources, count) in [(1, 40), (2, 129), (3, 1), (5, 700), (9, 64)] {
                let bytes = size * count;
                let mut rooms: Vec<Room> = (0..sources).map(|_| Room::new(bytes + 1)).collect();
                let each: Vec<Addr> = rooms.iter_mut().map(|room| room.addr().offset(1)).collect();
                for addr in &each {
                    (0..bytes).for_each(|at| addr.write(at as i64, &[random() as u8 & 0x3f]));
                }
                let mut once = Room::new(bytes + 1);
                let once = once.addr().offset(1);
                let named: Vec<Source<'_>> = each.iter().map(|addr| Source::of(*addr)).collect();
                let done = reduction.apply_many(&named, once, count);
                assert!(done <= count, "{name} on {}: {done} of {count}", basic.name);
                for pair in each.windows(2) {
                    reduction.apply(pair[0], pair[1], count);
                }
                let expected = each.last().unwrap().bytes(done * size);
                assert!(once.bytes(done * size) == expected, "{name} on {}, {sources} sources", basic.name);
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn sums_of_doubles_are_made_in_one_pass_where_there_are_vectors() {
    let mut room = Room::new(4096);
    let sources = [Source::of(room.addr()); 3];
    let op = OpRef::Builtin(Builtin::Sum);
    let double = BASICS.iter().find(|basic| basic.name == "MPI_DOUBLE").unwrap();
    let reduction = Reduction::new(&op, Datatype(double.mpich as i32)).unwrap();
    let expected = if std::arch::is_x86_feature_detected!("avx2") && !cfg!(miri) { 496 } else { 0 };
    assert_eq!(reduction.apply_many(&sources, room.addr(), 500), expected);
}
