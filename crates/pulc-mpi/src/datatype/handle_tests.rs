//! Datatypes through their handles, as programs use them: what each call returns, and which mistakes are refused how.

use super::basic::{BASICS, contiguous_size, index_of};
use super::calls::*;
use super::packing::*;
use super::{Datatype, get};
use crate::consts::*;
use crate::error::Class;
use crate::handle::Keyval;
use crate::memory::{Ints, Room};
use crate::status::Status;

fn named(name: &str) -> Datatype {
    Datatype(super::basic::named(name).mpich as i32)
}

#[test]
fn every_predefined_type_is_found_under_its_handle_and_no_other_number_is_one() {
    for basic in &BASICS {
        let found = get(Datatype(basic.mpich as i32)).unwrap();
        assert_eq!(
            (found.name().as_str(), found.size(), found.extent()),
            (basic.name, basic.size(), basic.extent() as i64)
        );
        assert!(found.is_committed());
        if basic.mpich >> 16 == 0x4c00 {
            assert_eq!(contiguous_size(basic.mpich as i32), Some(basic.size()), "{}", basic.name);
            assert_eq!(basic.size(), u64::from(basic.mpich >> 8 & 0xff), "{}", basic.name);
        }
        let same = BASICS.iter().filter(|other| other.mpich == basic.mpich || other.standard == basic.standard);
        assert_eq!(
            same.filter(|other| other.standard != 0 || basic.standard != 0).count(),
            usize::from(basic.standard != 0)
        );
    }
    for wrong in [0, 0x0c00_0000, 0x4c00_0406 + 0x100, 0x4c00_0405 + 0x1_0000, 0x4c00_04ff, 0x8c00_ffffu32 as i32, -1] {
        assert_eq!(index_of(wrong), None);
        assert_eq!(contiguous_size(wrong), None);
        assert_eq!(get(Datatype(wrong)).map(|_| ()).unwrap_err().class, Class::TYPE);
    }
}

#[test]
fn a_made_type_never_gets_the_handle_of_a_predefined_one() {
    let mut made = type_contiguous(3, named("MPI_INT"), false).unwrap();
    assert_eq!(index_of(made.0), None);
    assert_eq!(type_size(made), Ok(12));
    type_free(&mut made).unwrap();
    assert_eq!(made, Datatype::NULL);
    // A freed number is unknown, unless another test, in another thread, was given it meanwhile.
    let is_unknown = || {
        let mut made = type_contiguous(3, named("MPI_INT"), false).unwrap();
        let kept = made;
        type_free(&mut made).unwrap();
        type_size(kept).is_err_and(|error| error.class == Class::TYPE)
    };
    assert!((0..1000).any(|_| is_unknown()));
    for name in ["MPI_INT", "MPI_FLOAT_INT", "MPI_DOUBLE_INT"] {
        assert_eq!(type_free(&mut named(name)).unwrap_err().class, Class::TYPE);
        assert!(type_size(named(name)).is_ok());
    }
}

#[test]
fn sizes_of_pairs_are_those_of_c_structs() {
    let facts = |name| {
        let found = get(named(name)).unwrap();
        (found.size(), found.extent(), found.is_contiguous())
    };
    assert_eq!(facts("MPI_FLOAT_INT"), (8, 8, true));
    assert_eq!(facts("MPI_DOUBLE_INT"), (12, 16, false));
    assert_eq!(facts("MPI_LONG_INT"), (12, 16, false));
    assert_eq!(facts("MPI_SHORT_INT"), (6, 8, false));
    assert_eq!(facts("MPI_2INT"), (8, 8, true));
    assert_eq!(facts("MPI_LONG_DOUBLE_INT"), (20, 32, false));
    assert_eq!(type_get_true_extent(named("MPI_DOUBLE_INT")), Ok((0, 12)));
}

#[test]
fn an_envelope_and_its_contents_give_the_arguments_back() {
    let int = named("MPI_INT");
    let vector = type_vector(2, 3, -4, int, false).unwrap();
    let lengths = [1, 2];
    let made = type_create_struct(Ints::Small(&lengths), Ints::Large(&[0, 80]), &[int, vector], false).unwrap();
    let envelope = type_get_envelope(made, false).unwrap();
    assert_eq!((envelope.integers, envelope.addresses, envelope.large_counts, envelope.types), (3, 2, 0, 2));
    assert_eq!(envelope.combiner, 12);
    let contents = type_get_contents(made, [3, 2, 0, 2], false).unwrap();
    assert_eq!((contents.integers, contents.addresses), (vec![2, 1, 2], vec![0, 80]));
    assert_eq!(contents.types[0], int);
    // The inner type has a new handle and the same meaning.
    let inner = type_get_contents(contents.types[1], [3, 0, 0, 1], false).unwrap();
    assert_eq!((inner.integers, inner.types), (vec![2, 3, -4], vec![int]));
    assert_eq!(type_get_contents(made, [2, 2, 0, 2], false).unwrap_err().class, Class::ARG);
    assert_eq!(type_get_contents(int, [9; 4], false).unwrap_err().class, Class::TYPE);
    assert_eq!(type_get_envelope(int, false).unwrap().combiner, 1);
    // Made with large counts: they stand apart, and only the large call tells.
    let large = type_create_hvector(2, 3, 1 << 40, int, true).unwrap();
    assert_eq!(type_get_envelope(large, false).unwrap_err().class, Class::TYPE);
    let envelope = type_get_envelope(large, true).unwrap();
    assert_eq!((envelope.integers, envelope.addresses, envelope.large_counts, envelope.types), (0, 0, 3, 1));
    assert_eq!(type_get_contents(large, [0, 0, 3, 1], true).unwrap().large_counts, [2, 3, 1 << 40]);
}

#[test]
fn arguments_that_make_no_type_are_refused_and_nothing_wraps() {
    let int = named("MPI_INT");
    let class = |made: crate::error::Result<Datatype>| made.unwrap_err().class;
    assert_eq!(class(type_contiguous(-1, int, false)), Class::COUNT);
    assert_eq!(class(type_vector(2, -1, 1, int, false)), Class::ARG);
    assert_eq!(class(type_contiguous(1, Datatype::NULL, false)), Class::TYPE);
    assert_eq!(class(type_contiguous(i64::MAX, int, true)), Class::ARG);
    assert_eq!(class(type_create_hvector(3, 1, i64::MAX / 2 + 1, int, true)), Class::ARG);
    assert_eq!(class(type_create_hindexed(Ints::Small(&[1]), Ints::Large(&[i64::MAX - 3]), int, false)), Class::ARG);
    assert_eq!(class(type_create_resized(int, i64::MAX, 1, false)), Class::ARG);
    assert_eq!(
        class(type_create_subarray(Ints::Small(&[4]), Ints::Small(&[2]), Ints::Small(&[3]), ORDER_C, int, false)),
        Class::ARG
    );
    assert_eq!(
        class(type_create_subarray(Ints::Small(&[4]), Ints::Small(&[2]), Ints::Small(&[0]), 7, int, false)),
        Class::ARG
    );
    // Two to the 62nd bytes are a type, four times as many are none.
    let huge = type_contiguous(1 << 60, int, true).unwrap();
    assert_eq!(type_size(huge), Ok(1 << 62));
    assert_eq!(class(type_contiguous(4, huge, true)), Class::ARG);
    let mut nested = int;
    for _ in 0..super::typemap::NESTING_MAX {
        nested = type_vector(2, 1, 3, nested, false)
            .map(|made| {
                // Its extent stays small.
                type_create_resized(made, 0, 8, false).unwrap()
            })
            .unwrap_or(Datatype::NULL);
        if nested == Datatype::NULL {
            break;
        }
    }
    assert_eq!(nested, Datatype::NULL, "two to the thousandth bytes");
    let mut nested = int;
    let deep = (0..).find(|_| match type_create_hvector(1, 1, 0, nested, false) {
        Ok(made) => {
            nested = made;
            false
        }
        Err(error) => error.class == Class::TYPE,
    });
    assert_eq!(deep, Some(super::typemap::NESTING_MAX));
    type_commit(nested).unwrap();
    assert_eq!(type_size(nested), Ok(4));
}

#[test]
fn a_shared_part_does_not_make_a_program_long() {
    // Each type holds the one before twice: a million elements in twenty types.
    let mut nested = named("MPI_SHORT");
    for _ in 0..20 {
        let extent = type_get_extent(nested).unwrap().1;
        nested = type_create_struct(Ints::Small(&[1, 1]), Ints::Large(&[0, extent + 2]), &[nested; 2], false).unwrap();
    }
    type_commit(nested).unwrap();
    let found = get(nested).unwrap();
    assert_eq!(found.size(), 2 << 20);
    assert!(found.map().program().body.pieces.len() < 64);
    let mut bytes = 0;
    found.pieces(1, 0, found.size(), &mut |_, len| bytes += len);
    assert_eq!(bytes, 2 << 20);
}

#[test]
fn packing_appends_and_needs_room_and_a_committed_type() {
    let vector = type_vector(2, 1, 2, named("MPI_INT"), false).unwrap();
    let (mut data, mut packed) = (Room::new(64), Room::new(64));
    let (data, packed) = (data.addr(), packed.addr());
    data.write(0, &(0..64).collect::<Vec<u8>>());
    let mut position = 0;
    assert_eq!(pack(data, 1, vector, packed, 64, &mut position).unwrap_err().class, Class::TYPE);
    type_commit(vector).unwrap();
    pack(data, 1, vector, packed, 20, &mut position).unwrap();
    pack(data.offset(20), 2, named("MPI_INT"), packed, 20, &mut position).unwrap();
    assert_eq!(position, 16);
    assert_eq!(pack(data, 1, vector, packed, 20, &mut position).unwrap_err().class, Class::ARG);
    assert_eq!(position, 16);
    let mut bytes = [0; 16];
    packed.read(0, &mut bytes);
    assert_eq!(bytes, [0, 1, 2, 3, 8, 9, 10, 11, 20, 21, 22, 23, 24, 25, 26, 27]);
    let mut out = Room::new(64);
    let mut position = 4;
    unpack(packed, 16, &mut position, out.addr(), 1, vector).unwrap();
    assert_eq!(position, 12);
    let mut bytes = [0; 12];
    out.addr().read(0, &mut bytes);
    assert_eq!(bytes, [8, 9, 10, 11, 0, 0, 0, 0, 20, 21, 22, 23]);
    assert_eq!(pack_size(3, vector), Ok(24));
}

#[test]
fn external32_is_big_endian_with_the_sizes_of_the_standard() {
    let fields = ["MPI_INT", "MPI_LONG", "MPI_LONG_DOUBLE", "MPI_CHAR", "MPI_C_BOOL", "MPI_WCHAR"].map(named);
    let places = [0, 8, 16, 32, 33, 36];
    let made = type_create_struct(Ints::Small(&[1; 6]), Ints::Large(&places), &fields, false).unwrap();
    type_commit(made).unwrap();
    assert_eq!(pack_external_size("external32", 2, made), Ok(2 * 28));
    let mut data = Room::new(128);
    let base = data.addr();
    base.write(0, &0x0102_0304i32.to_ne_bytes());
    base.write(8, &(-2i64).to_ne_bytes());
    base.write(16, &0xc000_c000_0000_0000_0000u128.to_ne_bytes());
    base.write(32, b"x\x01");
    base.write(36, &0x20acu32.to_ne_bytes());
    let mut packed = Room::new(64);
    let mut position = 1;
    pack_external("external32", base, 1, made, packed.addr(), 64, &mut position).unwrap();
    assert_eq!(position, 29);
    let mut bytes = [0; 28];
    packed.addr().read(1, &mut bytes);
    assert_eq!(bytes[..8], [1, 2, 3, 4, 255, 255, 255, 254]);
    // -3 as binary128.
    assert_eq!(bytes[8..24], (0xc000_8000u128 << 96).to_be_bytes());
    assert_eq!(bytes[24..], [b'x', 1, 0x20, 0xac]);
    let mut back = Room::new(128);
    let mut position = 1;
    unpack_external("external32", packed.addr(), 64, &mut position, back.addr(), 1, made).unwrap();
    let (mut before, mut after) = ([0; 40], [0; 40]);
    base.read(0, &mut before);
    back.addr().read(0, &mut after);
    assert_eq!(before, after);
    assert_eq!(pack_external_size("native", 1, made).unwrap_err().class, Class::ARG);
}

#[test]
fn counts_of_a_status_are_undefined_where_it_ends_within_an_element() {
    let pair = named("MPI_DOUBLE_INT");
    let status = |bytes| Status { bytes, ..Status::EMPTY };
    assert_eq!(get_count(&status(24), pair), Ok(2));
    assert_eq!(get_count(&status(20), pair), Ok(i64::from(UNDEFINED)));
    assert_eq!(get_elements(&status(20), pair), Ok(3));
    assert_eq!(get_elements(&status(21), pair), Ok(i64::from(UNDEFINED)));
    let mut changed = status(0);
    status_set_elements(&mut changed, pair, 3).unwrap();
    assert_eq!(changed.bytes, 20);
    let empty = type_contiguous(0, pair, false).unwrap();
    assert_eq!((get_count(&status(0), empty), get_count(&status(4), empty)), (Ok(0), Ok(i64::from(UNDEFINED))));
}

#[test]
fn fortran_types_are_chosen_by_digits_size_and_parts() {
    let real = type_create_f90_real(10, UNDEFINED).unwrap();
    assert_eq!(type_create_f90_real(10, UNDEFINED), Ok(real));
    assert_eq!(type_size(real), Ok(8));
    let envelope = type_get_envelope(real, false).unwrap();
    assert_eq!((envelope.combiner, envelope.integers, envelope.types), (15, 2, 0));
    assert_eq!(type_get_contents(real, [2, 0, 0, 0], false).unwrap().integers, [10, UNDEFINED]);
    assert_eq!(type_free(&mut { real }).unwrap_err().class, Class::TYPE);
    assert_eq!(type_size(type_create_f90_complex(33, 4931).unwrap()), Ok(32));
    assert_eq!(type_size(type_create_f90_integer(9).unwrap()), Ok(4));
    assert_eq!(type_create_f90_real(UNDEFINED, UNDEFINED).unwrap_err().class, Class::ARG);
    assert_eq!(type_create_f90_real(34, 10).unwrap_err().class, Class::ARG);
    assert_eq!(type_create_f90_integer(39).unwrap_err().class, Class::ARG);
    assert_eq!(type_match_size(TYPECLASS_REAL, 8), Ok(named("MPI_REAL8")));
    assert_eq!(type_match_size(TYPECLASS_COMPLEX, 8), Ok(named("MPI_COMPLEX8")));
    assert_eq!(type_match_size(TYPECLASS_INTEGER, 1), Ok(named("MPI_INTEGER1")));
    assert_eq!(type_match_size(TYPECLASS_INTEGER, 3).unwrap_err().class, Class::ARG);
    assert_eq!(type_match_size(9, 8).unwrap_err().class, Class::ARG);
    assert_eq!(type_get_value_index(named("MPI_DOUBLE"), named("MPI_INT")), Ok(named("MPI_DOUBLE_INT")));
    assert_eq!(type_get_value_index(named("MPI_INT"), named("MPI_INT")), Ok(named("MPI_2INT")));
    assert_eq!(type_get_value_index(named("MPI_REAL"), named("MPI_REAL")), Ok(named("MPI_2REAL")));
    assert_eq!(type_get_value_index(named("MPI_DOUBLE"), named("MPI_LONG")), Ok(Datatype::NULL));
    assert_eq!(type_get_value_index(named("MPI_LONG_LONG_INT"), named("MPI_INT")), Ok(Datatype::NULL));
}

#[test]
fn names_and_duplicates_are_kept_apart() {
    let int = named("MPI_INT");
    let first = type_vector(2, 1, 2, int, false).unwrap();
    assert_eq!(type_get_name(first), Ok(String::new()));
    type_set_name(first, "column").unwrap();
    let second = type_dup(first).unwrap();
    assert_eq!((type_get_name(first), type_get_name(second)), (Ok("column".into()), Ok(String::new())));
    assert_eq!(type_get_envelope(second, false).unwrap().combiner, 2);
    assert!(!get(second).unwrap().is_committed());
    assert!(get(type_dup(int).unwrap()).unwrap().is_committed());
    assert_eq!(type_get_name(Datatype::NULL), Ok("MPI_DATATYPE_NULL".into()));
    assert_eq!(type_set_name(first, &"x".repeat(MAX_OBJECT_NAME)).unwrap_err().class, Class::ARG);
    assert_eq!(type_get_attr(first, Keyval::NULL).unwrap_err().class, Class::KEYVAL);
}
