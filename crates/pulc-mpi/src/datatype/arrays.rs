//! Datatypes that are a part of an array of several dimensions: a box of it, or what one process of a grid owns.
//!
//! Source: MPI-5.0, sections 5.1.3 and 5.1.4.

use crate::consts::{
    DISTRIBUTE_BLOCK, DISTRIBUTE_CYCLIC, DISTRIBUTE_DFLT_DARG, DISTRIBUTE_NONE, ORDER_C, ORDER_FORTRAN,
};
use crate::datatype::bounds::{plus, times};
use crate::datatype::build::row;
use crate::datatype::origin::{Combiner, Origin, Recorder};
use crate::datatype::typemap::{Blocks, Field, Layout, Typemap};
use crate::error::{Class, Error, Result};
use std::sync::Arc;

/// A box of an array.
pub fn subarray(
    sizes: &[i64],
    subsizes: &[i64],
    starts: &[i64],
    order: i32,
    old: &Arc<Typemap>,
    large: bool,
) -> Result<Typemap> {
    let recorder = Recorder::new(Combiner::Subarray, large).integer(sizes.len() as i32);
    let lists = sizes.iter().chain(subsizes).chain(starts).copied();
    let origin = recorder.counts(lists).integer(order).types([old]).done();
    for (dimension, ((&size, &subsize), &start)) in sizes.iter().zip(subsizes).zip(starts).enumerate() {
        let fits = size >= 1 && subsize >= 1 && subsize <= size && start >= 0 && start <= size - subsize;
        if !fits {
            return Err(wrong(format!(
                "dimension {dimension}: {subsize} elements from {start} on are no part of {size} elements"
            )));
        }
    }
    let mut grown = Grown::new(old)?;
    for dimension in fastest_first(sizes.len(), order)? {
        grown.take(
            sizes[dimension],
            &[Span { start: starts[dimension], len: subsizes[dimension], count: 1, step: 0 }],
        )?;
    }
    grown.finish(origin)
}

/// How one dimension of an array is dealt out.
#[derive(Clone, Copy, Debug)]
pub struct Deal {
    pub size: i64,
    pub distribution: i32,
    pub argument: i32,
    pub processes: i32,
}

/// What process `rank` of a grid of `size` processes owns of an array.
pub fn darray(size: i32, rank: i32, deals: &[Deal], order: i32, old: &Arc<Typemap>, large: bool) -> Result<Typemap> {
    let origin = darray_origin(size, rank, deals, order, old, large);
    let processes = deals.iter().try_fold(1i64, |product, deal| match deal.processes {
        1.. => times(product, i64::from(deal.processes)),
        other => Err(wrong(format!("{other} processes in a dimension: at least 1"))),
    })?;
    if processes != i64::from(size) {
        return Err(wrong(format!("a grid of {processes} processes for a group of {size}: both must be equal")));
    }
    if !(0..size).contains(&rank) {
        return Err(wrong(format!("rank {rank} of a grid of {size} processes: 0 to {}", size - 1)));
    }
    // The grid is in C order whatever the order of the array.
    let mut coordinates = vec![0; deals.len()];
    let mut rest = i64::from(rank);
    for (coordinate, deal) in coordinates.iter_mut().zip(deals).rev() {
        *coordinate = rest % i64::from(deal.processes);
        rest /= i64::from(deal.processes);
    }
    let mut grown = Grown::new(old)?;
    for dimension in fastest_first(deals.len(), order)? {
        grown.take(deals[dimension].size, &share(&deals[dimension], coordinates[dimension])?)?;
    }
    grown.finish(origin)
}

fn darray_origin(size: i32, rank: i32, deals: &[Deal], order: i32, old: &Arc<Typemap>, large: bool) -> Origin {
    let mut recorder = Recorder::new(Combiner::Darray, large).integer(size).integer(rank).integer(deals.len() as i32);
    recorder = recorder.counts(deals.iter().map(|deal| deal.size));
    for deal in deals {
        recorder = recorder.integer(deal.distribution);
    }
    for deal in deals {
        recorder = recorder.integer(deal.argument);
    }
    for deal in deals {
        recorder = recorder.integer(deal.processes);
    }
    recorder.integer(order).types([old]).done()
}

/// `count` pieces of `len` elements, the first one from `start` on, `step` elements from one to the next.
#[derive(Clone, Copy)]
struct Span {
    start: i64,
    len: i64,
    count: i64,
    step: i64,
}

/// The elements of one dimension that the process with this coordinate owns.
fn share(deal: &Deal, coordinate: i64) -> Result<Vec<Span>> {
    let size = deal.size;
    if size < 1 {
        return Err(wrong(format!("an array of {size} elements in a dimension: at least 1")));
    }
    let processes = i64::from(deal.processes);
    let block = match (deal.distribution, deal.argument) {
        (DISTRIBUTE_NONE, _) if processes != 1 => {
            return Err(wrong(format!("a dimension that is not distributed has 1 process, not {processes}")));
        }
        (DISTRIBUTE_NONE, _) => size,
        (DISTRIBUTE_BLOCK, DISTRIBUTE_DFLT_DARG) => 1 + (size - 1) / processes,
        (DISTRIBUTE_CYCLIC, DISTRIBUTE_DFLT_DARG) => 1,
        (DISTRIBUTE_BLOCK, argument) if times(i64::from(argument), processes)? < size => {
            return Err(wrong(format!("blocks of {argument} for {processes} processes do not cover {size} elements")));
        }
        (DISTRIBUTE_BLOCK | DISTRIBUTE_CYCLIC, argument) => i64::from(argument),
        (other, _) => return Err(wrong(format!("distribution {other}: one of BLOCK, CYCLIC and NONE"))),
    };
    if block < 1 {
        return Err(wrong(format!("distribution argument {block}: at least 1")));
    }
    let (start, step) = (times(coordinate, block)?, times(block, processes)?);
    if start >= size {
        return Ok(Vec::new());
    }
    let full = if size - start >= block { 1 + (size - start - block) / step } else { 0 };
    let mut spans = Vec::with_capacity(2);
    if full > 0 {
        spans.push(Span { start, len: block, count: full, step });
    }
    let next = plus(start, times(full, step)?)?;
    if next < size {
        spans.push(Span { start: next, len: size - next, count: 1, step: 0 });
    }
    Ok(spans)
}

/// A type that grows by one dimension at a time; always as wide as the whole array that far.
struct Grown {
    part: Arc<Typemap>,
    width: i64,
}

impl Grown {
    fn new(old: &Arc<Typemap>) -> Result<Grown> {
        Ok(Grown { part: old.clone(), width: old.bounds.extent() })
    }

    fn take(&mut self, size: i64, spans: &[Span]) -> Result<()> {
        let width = times(self.width, size)?;
        let mut layouts = Vec::with_capacity(spans.len());
        for span in spans {
            let at = times(span.start, self.width)?;
            let blocks = Blocks::Strided {
                at,
                count: span.count as u64,
                len: span.len as u64,
                stride: times(span.step, self.width)?,
            };
            layouts.push(Layout::Blocks(self.part.clone(), blocks));
        }
        let layout = match layouts.len() {
            0 => row(&self.part, 0, 0),
            1 => layouts.swap_remove(0),
            _ => {
                let whole = |layout| Typemap::new(layout, Origin::Named).map(Arc::new);
                let parts = layouts.into_iter().map(whole).collect::<Result<Vec<_>>>()?;
                Layout::Fields(parts.into_iter().map(|part| Field { at: 0, count: 1, part }).collect())
            }
        };
        let part = Arc::new(Typemap::new(layout, Origin::Named)?);
        self.part = Arc::new(Typemap::resized(&part, 0, width, Origin::Named)?);
        self.width = width;
        Ok(())
    }

    fn finish(self, origin: Origin) -> Result<Typemap> {
        Typemap::resized(&self.part, 0, self.width, origin)
    }
}

/// The dimensions, the one whose elements are neighbours in memory first.
fn fastest_first(dimensions: usize, order: i32) -> Result<Vec<usize>> {
    match (dimensions, order) {
        (0, _) => Err(wrong("an array of 0 dimensions: at least 1".to_string())),
        (_, ORDER_C) => Ok((0..dimensions).rev().collect()),
        (_, ORDER_FORTRAN) => Ok((0..dimensions).collect()),
        _ => Err(wrong(format!("order {order}: MPI_ORDER_C or MPI_ORDER_FORTRAN"))),
    }
}

fn wrong(text: String) -> Error {
    Error::new(Class::ARG, text)
}
