//! The predefined datatypes: one row each, with its name, its number in both ABIs and what one element looks like in memory.
//! Everything else in `datatype` and `op` asks this table; nobody else knows a size of a predefined type.
//!
//! Source: MPI-5.0, sections 3.2.2 (named types), 6.9.4 (pairs), 15.5.2 (external32) and 20.3 (numbers of the standard ABI).
//! The optional types are all there: half and quadruple precision are computed by `op::wide`.

use crate::datatype::number::Number;

/// What one element is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// A C or Fortran integer, or an address, a count, an offset.
    Integer(Number),
    Floating(Number),
    Complex(Number),
    /// Zero is false, everything else is true.
    Logical(Number),
    /// A character that is not a number to reductions.
    Character(Number),
    Byte,
    Packed,
    /// A value and its place: the second number follows the first one as in a C struct.
    Pair(Number, Number),
    /// MPI-1's explicit lower or upper bound; no data.
    LowerBound,
    UpperBound,
}

/// Which language a type belongs to: decides which operations the standard allows for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Language {
    C,
    Fortran,
    Both,
}

/// One predefined type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Basic {
    pub name: &'static str,
    /// The handle in the MPICH ABI, which is also ours.
    pub mpich: u32,
    /// The handle in the standard ABI; 0 where that has none.
    pub standard: u16,
    pub form: Form,
    pub language: Language,
    /// Bytes of one element in external32.
    external_bytes: u8,
}

impl Basic {
    /// Bytes of data in one element, gaps not counted.
    pub const fn size(&self) -> u64 {
        match self.form {
            Form::Integer(n) | Form::Floating(n) | Form::Logical(n) | Form::Character(n) => n.bytes(),
            Form::Complex(n) => 2 * n.bytes(),
            Form::Byte | Form::Packed => 1,
            Form::Pair(value, place) => value.bytes() + place.bytes(),
            Form::LowerBound | Form::UpperBound => 0,
        }
    }

    /// What the address of an element must be a multiple of in C.
    pub const fn align(&self) -> u64 {
        match self.form {
            Form::Integer(n) | Form::Floating(n) | Form::Logical(n) | Form::Character(n) | Form::Complex(n) => {
                n.bytes()
            }
            Form::Byte | Form::Packed => 1,
            Form::Pair(value, place) => max(value.bytes(), place.bytes()),
            Form::LowerBound | Form::UpperBound => 1,
        }
    }

    /// From one element of an array to the next.
    pub const fn extent(&self) -> u64 {
        match self.form {
            Form::Pair(_, place) => (self.place_offset() + place.bytes()).next_multiple_of(self.align()),
            _ => self.size(),
        }
    }

    /// Where the second part of a pair begins; the size of everything else.
    pub const fn place_offset(&self) -> u64 {
        match self.form {
            Form::Pair(value, place) => value.bytes().next_multiple_of(place.bytes()),
            _ => self.size(),
        }
    }

    /// Basic elements as `MPI_Get_elements` counts them: a pair is two.
    pub const fn elements(&self) -> u64 {
        match self.form {
            Form::Pair(..) => 2,
            Form::LowerBound | Form::UpperBound => 0,
            _ => 1,
        }
    }

    /// Bytes of one element in external32.
    pub const fn external_bytes(&self) -> u64 {
        self.external_bytes as u64
    }

    /// Whether the bytes of one element follow each other without a gap.
    pub const fn is_dense(&self) -> bool {
        self.size() == self.extent()
    }
}

const fn max(a: u64, b: u64) -> u64 {
    if a > b { a } else { b }
}

/// Where the type with this handle stands in [`BASICS`].
#[inline]
pub fn index_of(handle: i32) -> Option<usize> {
    let handle = handle as u32;
    match handle & 0xffff_0000 {
        DENSE => match PLACES.get(handle as usize & 0xff) {
            Some(&place) if place != NOWHERE && BASICS[place as usize].mpich == handle => Some(place as usize),
            _ => None,
        },
        LIKE_MADE => (handle - LIKE_MADE < PAIRS_LIKE_MADE).then(|| FIRST_PAIR + (handle - LIKE_MADE) as usize),
        _ => None,
    }
}

/// Bytes of an element whose bytes follow each other, from the bits of its handle; none for the pairs that look like types of the
/// program, and for these.
#[inline(always)]
pub fn contiguous_size(handle: i32) -> Option<u64> {
    let handle = handle as u32;
    let place = PLACES[handle as usize & 0xff];
    let known = handle & 0xffff_0000 == DENSE && place != NOWHERE && BASICS[place as usize].mpich == handle;
    known.then_some(u64::from(handle >> 8 & 0xff))
}

/// The types whose handles look like those of types that the program made, in the order of their handles.
pub(crate) fn like_made() -> &'static [Basic] {
    &BASICS[FIRST_PAIR..][..PAIRS_LIKE_MADE as usize]
}

/// The type with this name.
///
/// # Panics
/// If there is none: for names written in the code.
pub fn named(name: &str) -> &'static Basic {
    BASICS.iter().find(|basic| basic.name == name).expect("the name of a predefined type")
}

/// High half of the other handles: the low half is size, then number.
const DENSE: u32 = 0x4c00_0000;
/// High half of the handles of the pairs that look like types of the program.
const LIKE_MADE: u32 = 0x8c00_0000;
const PAIRS_LIKE_MADE: u32 = 5;
const FIRST_PAIR: usize = 0;
const NOWHERE: u8 = u8::MAX;

/// From the low byte of such a handle to its row.
static PLACES: [u8; 256] = places();

const fn places() -> [u8; 256] {
    let mut places = [NOWHERE; 256];
    let mut at = 0;
    while at < BASICS.len() {
        if BASICS[at].mpich & 0xffff_0000 == DENSE {
            places[BASICS[at].mpich as usize & 0xff] = at as u8;
        }
        at += 1;
    }
    places
}

const fn row(name: &'static str, mpich: u32, standard: u16, form: Form, language: Language, external: u8) -> Basic {
    Basic { name, mpich, standard, form, language, external_bytes: external }
}

use Form::{Character, Complex, Floating, Integer, Logical, Pair};
use Language::{Both, C, Fortran};
use Number::*;

/// All of them. The pairs whose handles look like those of the program's types come first, in the order of their handles.
pub static BASICS: [Basic; 74] = [
    row("MPI_FLOAT_INT", 0x8c00_0000, 0x228, Pair(F32, I32), C, 8),
    row("MPI_DOUBLE_INT", 0x8c00_0001, 0x229, Pair(F64, I32), C, 12),
    row("MPI_LONG_INT", 0x8c00_0002, 0x22a, Pair(I64, I32), C, 8),
    row("MPI_SHORT_INT", 0x8c00_0003, 0x22c, Pair(I16, I32), C, 6),
    row("MPI_LONG_DOUBLE_INT", 0x8c00_0004, 0x22d, Pair(X87, I32), C, 20),
    row("MPI_2INT", 0x4c00_0816, 0x22b, Pair(I32, I32), C, 8),
    row("MPI_2INTEGER", 0x4c00_0820, 0x232, Pair(I32, I32), Fortran, 8),
    row("MPI_2REAL", 0x4c00_0821, 0x230, Pair(F32, F32), Fortran, 8),
    row("MPI_2DOUBLE_PRECISION", 0x4c00_1023, 0x231, Pair(F64, F64), Fortran, 16),
    row("MPI_CHAR", 0x4c00_0101, 0x243, Integer(I8), C, 1),
    row("MPI_SIGNED_CHAR", 0x4c00_0118, 0x244, Integer(I8), C, 1),
    row("MPI_UNSIGNED_CHAR", 0x4c00_0102, 0x245, Integer(U8), C, 1),
    row("MPI_BYTE", 0x4c00_010d, 0x247, Form::Byte, Both, 1),
    row("MPI_PACKED", 0x4c00_010f, 0x207, Form::Packed, Both, 1),
    row("MPI_WCHAR", 0x4c00_040e, 0x23c, Character(U32), C, 2),
    row("MPI_SHORT", 0x4c00_0203, 0x208, Integer(I16), C, 2),
    row("MPI_UNSIGNED_SHORT", 0x4c00_0204, 0x20c, Integer(U16), C, 2),
    row("MPI_INT", 0x4c00_0405, 0x209, Integer(I32), C, 4),
    row("MPI_UNSIGNED", 0x4c00_0406, 0x20d, Integer(U32), C, 4),
    row("MPI_LONG", 0x4c00_0807, 0x20a, Integer(I64), C, 4),
    row("MPI_UNSIGNED_LONG", 0x4c00_0808, 0x20e, Integer(U64), C, 4),
    row("MPI_LONG_LONG_INT", 0x4c00_0809, 0x20b, Integer(I64), C, 8),
    row("MPI_UNSIGNED_LONG_LONG", 0x4c00_0819, 0x20f, Integer(U64), C, 8),
    row("MPI_FLOAT", 0x4c00_040a, 0x210, Floating(F32), C, 4),
    row("MPI_DOUBLE", 0x4c00_080b, 0x214, Floating(F64), C, 8),
    row("MPI_LONG_DOUBLE", 0x4c00_100c, 0x220, Floating(X87), C, 16),
    row("MPI_INT8_T", 0x4c00_0137, 0x240, Integer(I8), C, 1),
    row("MPI_INT16_T", 0x4c00_0238, 0x248, Integer(I16), C, 2),
    row("MPI_INT32_T", 0x4c00_0439, 0x250, Integer(I32), C, 4),
    row("MPI_INT64_T", 0x4c00_083a, 0x258, Integer(I64), C, 8),
    row("MPI_UINT8_T", 0x4c00_013b, 0x241, Integer(U8), C, 1),
    row("MPI_UINT16_T", 0x4c00_023c, 0x249, Integer(U16), C, 2),
    row("MPI_UINT32_T", 0x4c00_043d, 0x251, Integer(U32), C, 4),
    row("MPI_UINT64_T", 0x4c00_083e, 0x259, Integer(U64), C, 8),
    row("MPI_C_BOOL", 0x4c00_013f, 0x238, Logical(U8), C, 1),
    row("MPI_C_FLOAT_COMPLEX", 0x4c00_0840, 0x212, Complex(F32), C, 8),
    row("MPI_C_DOUBLE_COMPLEX", 0x4c00_1041, 0x216, Complex(F64), C, 16),
    row("MPI_C_LONG_DOUBLE_COMPLEX", 0x4c00_2042, 0x224, Complex(X87), C, 32),
    row("MPI_AINT", 0x4c00_0843, 0x201, Integer(I64), Both, 8),
    row("MPI_OFFSET", 0x4c00_0844, 0x203, Integer(I64), Both, 8),
    row("MPI_COUNT", 0x4c00_0845, 0x202, Integer(I64), Both, 8),
    row("MPI_CXX_BOOL", 0x4c00_0133, 0x239, Logical(U8), C, 1),
    row("MPI_CXX_FLOAT_COMPLEX", 0x4c00_0834, 0x213, Complex(F32), C, 8),
    row("MPI_CXX_DOUBLE_COMPLEX", 0x4c00_1035, 0x217, Complex(F64), C, 16),
    row("MPI_CXX_LONG_DOUBLE_COMPLEX", 0x4c00_2036, 0x225, Complex(X87), C, 32),
    row("MPI_CHARACTER", 0x4c00_011a, 0x21e, Character(U8), Fortran, 1),
    row("MPI_INTEGER", 0x4c00_041b, 0x219, Integer(I32), Fortran, 4),
    row("MPI_REAL", 0x4c00_041c, 0x21a, Floating(F32), Fortran, 4),
    row("MPI_LOGICAL", 0x4c00_041d, 0x218, Logical(U32), Fortran, 4),
    row("MPI_COMPLEX", 0x4c00_081e, 0x21b, Complex(F32), Fortran, 8),
    row("MPI_DOUBLE_PRECISION", 0x4c00_081f, 0x21c, Floating(F64), Fortran, 8),
    row("MPI_DOUBLE_COMPLEX", 0x4c00_1022, 0x21d, Complex(F64), Fortran, 16),
    row("MPI_INTEGER1", 0x4c00_012d, 0x2c1, Integer(I8), Fortran, 1),
    row("MPI_INTEGER2", 0x4c00_022f, 0x2c9, Integer(I16), Fortran, 2),
    row("MPI_INTEGER4", 0x4c00_0430, 0x2d1, Integer(I32), Fortran, 4),
    row("MPI_INTEGER8", 0x4c00_0831, 0x2d9, Integer(I64), Fortran, 8),
    row("MPI_INTEGER16", 0x4c00_1032, 0x2e1, Integer(I128), Fortran, 16),
    row("MPI_REAL2", 0x4c00_0226, 0x2ca, Floating(F16), Fortran, 2),
    row("MPI_REAL4", 0x4c00_0427, 0x2d2, Floating(F32), Fortran, 4),
    row("MPI_REAL8", 0x4c00_0829, 0x2da, Floating(F64), Fortran, 8),
    row("MPI_REAL16", 0x4c00_102b, 0x2e2, Floating(F128), Fortran, 16),
    row("MPI_COMPLEX4", 0x4c00_042e, 0x2d3, Complex(F16), Fortran, 4),
    row("MPI_COMPLEX8", 0x4c00_0828, 0x2db, Complex(F32), Fortran, 8),
    row("MPI_COMPLEX16", 0x4c00_102a, 0x2e3, Complex(F64), Fortran, 16),
    row("MPI_COMPLEX32", 0x4c00_202c, 0x2eb, Complex(F128), Fortran, 32),
    row("MPI_LOGICAL1", 0x4c00_0147, 0x2c0, Logical(U8), Fortran, 1),
    row("MPI_LOGICAL2", 0x4c00_0248, 0x2c8, Logical(U16), Fortran, 2),
    row("MPI_LOGICAL4", 0x4c00_0449, 0x2d0, Logical(U32), Fortran, 4),
    row("MPI_LOGICAL8", 0x4c00_084a, 0x2d8, Logical(U64), Fortran, 8),
    row("MPI_LOGICAL16", 0x4c00_104b, 0x2e0, Logical(U128), Fortran, 16),
    row("MPIX_C_FLOAT16", 0x4c00_0246, 0, Floating(F16), C, 2),
    row("MPIX_BFLOAT16", 0x4c00_024c, 0, Floating(Bf16), C, 2),
    row("MPI_LB", 0x4c00_0010, 0, Form::LowerBound, Both, 0),
    row("MPI_UB", 0x4c00_0011, 0, Form::UpperBound, Both, 0),
];
