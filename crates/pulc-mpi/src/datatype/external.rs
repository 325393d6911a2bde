//! Packing in the portable representation "external32": big-endian, sizes that are the same on every machine. For
//! `MPI_Pack_external` and, later, files.
//!
//! Source: MPI-5.0, section 15.5.2, with the sizes of its table (a long has four bytes, a wide character two).

use crate::datatype::basic::{Basic, Form};
use crate::datatype::bounds;
use crate::datatype::number::Number;
use crate::datatype::typemap::{Blocks, Layout, Typemap};
use crate::error::Result;
use crate::memory::Addr;
use crate::op::wide::{QUAD, Wide, X87};

/// Bytes of `count` elements in external32.
pub fn size(map: &Typemap, count: u64) -> Result<u64> {
    bounds::bytes(count, unit(map)?)
}

fn unit(map: &Typemap) -> Result<u64> {
    if let Some(basic) = map.uniform() {
        return Ok(map.size() / basic.size() * basic.external_bytes());
    }
    match &map.layout {
        Layout::Basic(basic) => Ok(basic.external_bytes()),
        Layout::Blocks(part, _) => match part.size() {
            0 => Ok(0),
            size => bounds::bytes(map.size() / size, unit(part)?),
        },
        Layout::Fields(fields) => fields
            .iter()
            .try_fold(0, |sum, field| bounds::bytes_sum(sum, bounds::bytes(field.count, unit(&field.part)?)?)),
    }
}

/// Appends `count` elements at `base`.
pub fn pack(map: &Typemap, base: Addr, count: u64, out: &mut Vec<u8>) {
    each_basic(map, count, &mut |basic, at| {
        each_number(basic, &mut |offset, number, external| {
            let mut native = [0; 16];
            let native = &mut native[..number.bytes() as usize];
            base.read(at + offset, native);
            to_external(number, native, external, out);
        });
    });
}

/// Reads `count` elements into `base`. `input` holds at least [`size`] bytes.
pub fn unpack(map: &Typemap, base: Addr, count: u64, input: &[u8]) {
    let mut input = input;
    each_basic(map, count, &mut |basic, at| {
        each_number(basic, &mut |offset, number, external| {
            let (bytes, rest) = input.split_at(external);
            input = rest;
            let mut native = [0; 16];
            let native = &mut native[..number.bytes() as usize];
            to_native(number, bytes, native);
            base.write(at + offset, native);
        });
    });
}

/// Tells of the basic elements of `count` elements in the order of the type map, with their places.
fn each_basic(map: &Typemap, count: u64, each: &mut dyn FnMut(&'static Basic, i64)) {
    if map.size() == 0 {
        return;
    }
    for index in 0..count as i64 {
        visit(map, index.wrapping_mul(map.bounds.extent()), each);
    }
}

fn visit(map: &Typemap, at: i64, each: &mut dyn FnMut(&'static Basic, i64)) {
    match &map.layout {
        Layout::Basic(basic) => each(basic, at),
        Layout::Blocks(part, blocks) => {
            let mut block = |place: i64, len: u64| visit_row(part, at.wrapping_add(place), len, each);
            match blocks {
                Blocks::Strided { at, count, len, stride } => {
                    for index in 0..*count as i64 {
                        block(at.wrapping_add(index.wrapping_mul(*stride)), *len);
                    }
                }
                Blocks::Even { at, len } => at.iter().for_each(|place| block(*place, *len)),
                Blocks::Uneven(list) => list.iter().for_each(|(place, len)| block(*place, *len)),
            }
        }
        Layout::Fields(fields) => {
            for field in fields.iter() {
                visit_row(&field.part, at.wrapping_add(field.at), field.count, each);
            }
        }
    }
}

fn visit_row(part: &Typemap, at: i64, len: u64, each: &mut dyn FnMut(&'static Basic, i64)) {
    if part.size() == 0 {
        return;
    }
    for index in 0..len as i64 {
        visit(part, at.wrapping_add(index.wrapping_mul(part.bounds.extent())), each);
    }
}

/// Tells of the numbers of a basic element: place within it, kind, and bytes in external32.
fn each_number(basic: &Basic, each: &mut dyn FnMut(i64, Number, usize)) {
    let external = basic.external_bytes() as usize;
    match basic.form {
        Form::Integer(number) | Form::Floating(number) | Form::Logical(number) | Form::Character(number) => {
            each(0, number, external);
        }
        Form::Complex(number) => {
            each(0, number, external / 2);
            each(number.bytes() as i64, number, external / 2);
        }
        Form::Byte | Form::Packed => each(0, Number::U8, 1),
        Form::Pair(value, place) => {
            let place_bytes = place.bytes() as usize;
            each(0, value, external - place_bytes);
            each(basic.place_offset() as i64, place, place_bytes);
        }
        Form::LowerBound | Form::UpperBound => {}
    }
}

fn to_external(number: Number, native: &[u8], external: usize, out: &mut Vec<u8>) {
    if number == Number::X87 {
        let wide = Wide::decode(bits(native), &X87);
        out.extend_from_slice(&wide.encode(&QUAD).to_be_bytes());
        return;
    }
    // The low bytes: a long loses its upper half, as the representation wants it.
    out.extend(little_first(native).take(external).collect::<Vec<u8>>().iter().rev());
}

fn to_native(number: Number, external: &[u8], native: &mut [u8]) {
    if number == Number::X87 {
        let wide = external.iter().fold(0u128, |bits, &byte| bits << 8 | u128::from(byte));
        native.copy_from_slice(&Wide::decode(wide, &QUAD).encode(&X87).to_ne_bytes());
        return;
    }
    // Longer numbers get copies of the sign.
    let is_negative = number.is_signed() && external.first().is_some_and(|byte| byte & 0x80 != 0);
    let fill = if is_negative { 0xff } else { 0 };
    let bytes = external.iter().rev().copied().chain(std::iter::repeat(fill));
    for (to, byte) in little_first_mut(native).zip(bytes) {
        *to = byte;
    }
}

fn bits(native: &[u8]) -> u128 {
    little_first(native).enumerate().fold(0, |bits, (index, byte)| bits | u128::from(byte) << (8 * index))
}

/// The bytes of a native number, the one of least weight first.
fn little_first(native: &[u8]) -> impl Iterator<Item = u8> {
    let len = native.len();
    (0..len).map(move |index| native[if cfg!(target_endian = "little") { index } else { len - 1 - index }])
}

fn little_first_mut(native: &mut [u8]) -> Box<dyn Iterator<Item = &mut u8> + '_> {
    if cfg!(target_endian = "little") { Box::new(native.iter_mut()) } else { Box::new(native.iter_mut().rev()) }
}
