//! The constructors of datatypes that repeat others at regular or listed places. Pure: from types to a type. Called by
//! `datatype::calls`, which turns handles into types.
//!
//! Source: MPI-5.0, sections 5.1.2, 5.1.7 and 5.1.10. `large` tells the `_c` calls apart: their arguments come back in another
//! list (`origin`), nothing else differs.

use crate::datatype::bounds::times;
use crate::datatype::origin::{Combiner, Origin, Recorder};
use crate::datatype::typemap::{Blocks, Field, Layout, Typemap};
use crate::error::{Class, Error, Result};
use std::sync::Arc;

type Made = Result<Typemap>;

pub fn contiguous(count: i64, old: &Arc<Typemap>, large: bool) -> Made {
    let origin = Recorder::new(Combiner::Contiguous, large).counts([count]).types([old]).done();
    Typemap::new(row(old, 0, natural("count", count)?), origin)
}

/// `stride` in elements of the old type.
pub fn vector(count: i64, blocklength: i64, stride: i64, old: &Arc<Typemap>, large: bool) -> Made {
    let origin = Recorder::new(Combiner::Vector, large).counts([count, blocklength, stride]).types([old]).done();
    let (count, len) = (natural("count", count)?, natural("blocklength", blocklength)?);
    // A stride that nobody walks is not an error.
    let stride = if count > 1 { times(stride, old.bounds.extent())? } else { 0 };
    Typemap::new(Layout::Blocks(old.clone(), Blocks::Strided { at: 0, count, len, stride }), origin)
}

/// `stride` in bytes.
pub fn hvector(count: i64, blocklength: i64, stride: i64, old: &Arc<Typemap>, large: bool) -> Made {
    let recorder = Recorder::new(Combiner::Hvector, large).counts([count, blocklength]);
    let origin = recorder.addresses([stride]).types([old]).done();
    let (count, len) = (natural("count", count)?, natural("blocklength", blocklength)?);
    Typemap::new(Layout::Blocks(old.clone(), Blocks::Strided { at: 0, count, len, stride }), origin)
}

/// `displacements` in elements of the old type.
pub fn indexed(blocklengths: &[i64], displacements: &[i64], old: &Arc<Typemap>, large: bool) -> Made {
    let recorder = Recorder::new(Combiner::Indexed, large).counts([blocklengths.len() as i64]);
    let origin = recorder.counts(blocklengths.iter().copied()).counts(displacements.iter().copied());
    let places = in_bytes(displacements, old)?;
    Typemap::new(uneven(blocklengths, &places, old)?, origin.types([old]).done())
}

/// `displacements` in bytes.
pub fn hindexed(blocklengths: &[i64], displacements: &[i64], old: &Arc<Typemap>, large: bool) -> Made {
    let recorder = Recorder::new(Combiner::Hindexed, large).counts([blocklengths.len() as i64]);
    let origin = recorder.counts(blocklengths.iter().copied()).addresses(displacements.iter().copied());
    Typemap::new(uneven(blocklengths, displacements, old)?, origin.types([old]).done())
}

/// `displacements` in elements of the old type.
pub fn indexed_block(blocklength: i64, displacements: &[i64], old: &Arc<Typemap>, large: bool) -> Made {
    let recorder = Recorder::new(Combiner::IndexedBlock, large).counts([displacements.len() as i64, blocklength]);
    let origin = recorder.counts(displacements.iter().copied()).types([old]).done();
    let places = in_bytes(displacements, old)?;
    even(blocklength, &places, old, origin)
}

/// `displacements` in bytes.
pub fn hindexed_block(blocklength: i64, displacements: &[i64], old: &Arc<Typemap>, large: bool) -> Made {
    let recorder = Recorder::new(Combiner::HindexedBlock, large).counts([displacements.len() as i64, blocklength]);
    let origin = recorder.addresses(displacements.iter().copied()).types([old]).done();
    even(blocklength, displacements, old, origin)
}

/// `displacements` in bytes; the three lists are of equal length.
pub fn structure(blocklengths: &[i64], displacements: &[i64], types: &[Arc<Typemap>], large: bool) -> Made {
    let recorder = Recorder::new(Combiner::Struct, large).counts([blocklengths.len() as i64]);
    let recorder = recorder.counts(blocklengths.iter().copied()).addresses(displacements.iter().copied());
    let mut fields = Vec::with_capacity(types.len());
    for ((&len, &at), part) in blocklengths.iter().zip(displacements).zip(types) {
        fields.push(Field { at, count: natural("blocklength", len)?, part: part.clone() });
    }
    Typemap::new(Layout::Fields(fields.into()), recorder.types(types).done())
}

pub fn resized(old: &Arc<Typemap>, lb: i64, extent: i64, large: bool) -> Made {
    let origin = Recorder::new(Combiner::Resized, large).addresses([lb, extent]).types([old]).done();
    Typemap::resized(old, lb, extent, origin)
}

pub fn dup(old: &Arc<Typemap>) -> Typemap {
    Typemap::renamed(old, Recorder::new(Combiner::Dup, false).types([old]).done())
}

/// `count` elements side by side, the first one at `at`.
pub(crate) fn row(old: &Arc<Typemap>, at: i64, count: u64) -> Layout {
    Layout::Blocks(old.clone(), Blocks::Strided { at, count: u64::from(count > 0), len: count, stride: 0 })
}

/// A count that came from a program.
pub(crate) fn natural(what: &str, value: i64) -> Result<u64> {
    u64::try_from(value).map_err(|_| {
        Error::new(Class::ARG, format!("{what} {value} is negative: it counts something, so it is 0 or more"))
    })
}

fn in_bytes(displacements: &[i64], old: &Arc<Typemap>) -> Result<Vec<i64>> {
    displacements.iter().map(|&at| times(at, old.bounds.extent())).collect()
}

fn uneven(blocklengths: &[i64], places: &[i64], old: &Arc<Typemap>) -> Result<Layout> {
    let mut blocks = Vec::with_capacity(places.len());
    for (&len, &at) in blocklengths.iter().zip(places) {
        match natural("blocklength", len)? {
            // Nothing is there, so it may be anywhere.
            0 => continue,
            len => blocks.push((at, len)),
        }
    }
    Ok(Layout::Blocks(old.clone(), Blocks::Uneven(blocks.into())))
}

fn even(blocklength: i64, places: &[i64], old: &Arc<Typemap>, origin: Origin) -> Made {
    let len = natural("blocklength", blocklength)?;
    Typemap::new(Layout::Blocks(old.clone(), Blocks::Even { at: places.into(), len }), origin)
}
