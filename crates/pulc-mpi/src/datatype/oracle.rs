//! What datatypes are compared with in tests: random types in the words of a program, and their type maps written out, entry by
//! entry, as the standard defines them. Slow and obvious.

use super::arrays::subarray;
use super::basic::{Basic, Form, named};
use super::build;
use super::typemap::Typemap;
use crate::consts::{ORDER_C, ORDER_FORTRAN};
use crate::error::Result;
use proptest::prelude::*;
use std::sync::Arc;

/// A datatype in the words of a program.
#[derive(Clone, Debug)]
pub enum Spec {
    Basic(&'static str),
    Contiguous(i64, Box<Spec>),
    Vector(i64, i64, i64, Box<Spec>),
    Hvector(i64, i64, i64, Box<Spec>),
    Indexed(Vec<(i64, i64)>, Box<Spec>),
    Hindexed(Vec<(i64, i64)>, Box<Spec>),
    IndexedBlock(i64, Vec<i64>, Box<Spec>),
    Struct(Vec<(i64, i64, Spec)>),
    Resized(i64, i64, Box<Spec>),
    Subarray(Vec<(i64, i64, i64)>, bool, Box<Spec>),
    Dup(Box<Spec>),
}

/// The type map: every entry with its place. Markers are entries without bytes, and so is the end of a part whose extent was
/// rounded up.
#[derive(Clone, Copy, Debug)]
pub enum Entry {
    Data(i64, u64, u64),
    End(i64),
    Lb(i64),
    Ub(i64),
}

impl Entry {
    fn moved(self, by: i64) -> Entry {
        match self {
            Entry::Data(at, size, align) => Entry::Data(at + by, size, align),
            Entry::End(at) => Entry::End(at + by),
            Entry::Lb(at) => Entry::Lb(at + by),
            Entry::Ub(at) => Entry::Ub(at + by),
        }
    }
}

/// Lower bound and extent by the formulas of section 5.1.6.
pub fn bounds(map: &[Entry]) -> (i64, i64) {
    let lbs: Vec<i64> =
        map.iter().filter_map(|entry| if let Entry::Lb(at) = entry { Some(*at) } else { None }).collect();
    let ubs: Vec<i64> =
        map.iter().filter_map(|entry| if let Entry::Ub(at) = entry { Some(*at) } else { None }).collect();
    let data: Vec<(i64, i64, i64)> = map
        .iter()
        .filter_map(|entry| match entry {
            Entry::Data(at, size, align) => Some((*at, at + *size as i64, *align as i64)),
            _ => None,
        })
        .collect();
    let lb = lbs.iter().min().copied().or(data.iter().map(|entry| entry.0).min()).unwrap_or(0);
    let ub = match ubs.iter().max() {
        Some(&ub) => ub,
        None => {
            let rounded = map.iter().filter_map(|entry| if let Entry::End(at) = entry { Some(*at) } else { None });
            let end = data.iter().map(|entry| entry.1).chain(rounded).max().unwrap_or(0);
            let align = data.iter().map(|entry| entry.2).max().unwrap_or(1);
            lb + (end - lb).div_euclid(align) * align + if (end - lb).rem_euclid(align) == 0 { 0 } else { align }
        }
    };
    (lb, ub - lb)
}

fn basic_map(basic: &Basic) -> Vec<Entry> {
    match basic.form {
        Form::Pair(value, place) => vec![
            Entry::Data(0, value.bytes(), value.bytes()),
            Entry::Data(basic.place_offset() as i64, place.bytes(), place.bytes()),
        ],
        Form::LowerBound => vec![Entry::Lb(0)],
        Form::UpperBound => vec![Entry::Ub(0)],
        _ => vec![Entry::Data(0, basic.size(), basic.align())],
    }
}

/// Blocks of (length, place in bytes).
fn blocks(map: &[Entry], blocks: &[(i64, i64)]) -> Vec<Entry> {
    let (lb, extent) = bounds(map);
    let mut part = map.to_vec();
    let has_data = map.iter().any(|entry| matches!(entry, Entry::Data(_, size, _) if *size > 0));
    if has_data && !map.iter().any(|entry| matches!(entry, Entry::Ub(_))) {
        part.push(Entry::End(lb + extent));
    }
    let mut out = Vec::new();
    for &(len, at) in blocks {
        for index in 0..len {
            out.extend(part.iter().map(|entry| entry.moved(at + index * extent)));
        }
    }
    out
}

impl Spec {
    pub fn map(&self) -> Vec<Entry> {
        let strided = |map: &[Entry], count, len, stride: i64| {
            let list: Vec<_> = (0..count).map(|index| (len, index * stride)).collect();
            blocks(map, &list)
        };
        match self {
            Spec::Basic(name) => basic_map(named(name)),
            Spec::Contiguous(count, old) => blocks(&old.map(), &[(*count, 0)]),
            Spec::Vector(count, len, stride, old) => {
                let map = old.map();
                strided(&map, *count, *len, stride * bounds(&map).1)
            }
            Spec::Hvector(count, len, stride, old) => strided(&old.map(), *count, *len, *stride),
            Spec::Indexed(list, old) => {
                let map = old.map();
                let extent = bounds(&map).1;
                blocks(&map, &list.iter().map(|&(len, at)| (len, at * extent)).collect::<Vec<_>>())
            }
            Spec::Hindexed(list, old) => blocks(&old.map(), list),
            Spec::IndexedBlock(len, places, old) => {
                let map = old.map();
                let extent = bounds(&map).1;
                blocks(&map, &places.iter().map(|at| (*len, at * extent)).collect::<Vec<_>>())
            }
            Spec::Struct(fields) => {
                fields.iter().flat_map(|(len, at, old)| blocks(&old.map(), &[(*len, *at)])).collect()
            }
            Spec::Resized(lb, extent, old) => {
                let mut map: Vec<Entry> =
                    old.map().into_iter().filter(|entry| matches!(entry, Entry::Data(..))).collect();
                map.extend([Entry::Lb(*lb), Entry::Ub(lb + extent)]);
                map
            }
            Spec::Subarray(dims, c_order, old) => subarray_map(dims, *c_order, &old.map()),
            Spec::Dup(old) => old.map(),
        }
    }

    pub fn build(&self) -> Result<Arc<Typemap>> {
        let unzip = |list: &[(i64, i64)]| -> (Vec<i64>, Vec<i64>) { list.iter().copied().unzip() };
        Ok(Arc::new(match self {
            Spec::Basic(name) => Typemap::basic(named(name)),
            Spec::Contiguous(count, old) => build::contiguous(*count, &old.build()?, false)?,
            Spec::Vector(count, len, stride, old) => build::vector(*count, *len, *stride, &old.build()?, false)?,
            Spec::Hvector(count, len, stride, old) => build::hvector(*count, *len, *stride, &old.build()?, true)?,
            Spec::Indexed(list, old) => {
                let (lens, places) = unzip(list);
                build::indexed(&lens, &places, &old.build()?, false)?
            }
            Spec::Hindexed(list, old) => {
                let (lens, places) = unzip(list);
                build::hindexed(&lens, &places, &old.build()?, false)?
            }
            Spec::IndexedBlock(len, places, old) => build::indexed_block(*len, places, &old.build()?, false)?,
            Spec::Struct(fields) => {
                let maps = fields.iter().map(|field| field.2.build()).collect::<Result<Vec<_>>>()?;
                let lens: Vec<i64> = fields.iter().map(|field| field.0).collect();
                let places: Vec<i64> = fields.iter().map(|field| field.1).collect();
                build::structure(&lens, &places, &maps, false)?
            }
            Spec::Resized(lb, extent, old) => build::resized(&old.build()?, *lb, *extent, false)?,
            Spec::Subarray(dims, c_order, old) => {
                let list = |which: fn(&(i64, i64, i64)) -> i64| dims.iter().map(which).collect::<Vec<_>>();
                let order = if *c_order { ORDER_C } else { ORDER_FORTRAN };
                subarray(&list(|d| d.0), &list(|d| d.1), &list(|d| d.2), order, &old.build()?, false)?
            }
            Spec::Dup(old) => build::dup(&old.build()?),
        }))
    }
}

/// The elements of a box by their indexes, in memory order; bounds are those of the whole array.
fn subarray_map(dims: &[(i64, i64, i64)], c_order: bool, old: &[Entry]) -> Vec<Entry> {
    let extent = bounds(old).1;
    let dims: Vec<_> = if c_order { dims.to_vec() } else { dims.iter().rev().copied().collect() };
    let mut places = vec![0];
    for &(size, subsize, start) in &dims {
        places = places.iter().flat_map(|place| (0..subsize).map(move |index| place * size + start + index)).collect();
    }
    let mut map: Vec<Entry> = places
        .iter()
        .flat_map(|place| old.iter().map(move |entry| entry.moved(place * extent)))
        .filter(|entry| matches!(entry, Entry::Data(..)))
        .collect();
    let whole: i64 = dims.iter().map(|dim| dim.0).product();
    map.extend([Entry::Lb(0), Entry::Ub(whole * extent)]);
    map
}

pub fn specs() -> impl Strategy<Value = Spec> {
    let basics = vec![
        "MPI_CHAR",
        "MPI_BYTE",
        "MPI_SHORT",
        "MPI_INT",
        "MPI_DOUBLE",
        "MPI_LONG_DOUBLE",
        "MPI_SHORT_INT",
        "MPI_DOUBLE_INT",
        "MPI_LB",
        "MPI_UB",
        "MPI_C_DOUBLE_COMPLEX",
    ];
    let leaf = prop::sample::select(basics).prop_map(Spec::Basic);
    leaf.prop_recursive(3, 12, 3, |inner| {
        let old = || inner.clone().prop_map(Box::new);
        let list = || prop::collection::vec((0i64..4, -6i64..7), 0..6);
        prop_oneof![
            (0i64..5, old()).prop_map(|(count, old)| Spec::Contiguous(count, old)),
            (0i64..5, 0i64..4, -5i64..6, old()).prop_map(|(c, l, s, old)| Spec::Vector(c, l, s, old)),
            (0i64..5, 0i64..4, -70i64..70, old()).prop_map(|(c, l, s, old)| Spec::Hvector(c, l, s, old)),
            (list(), old()).prop_map(|(list, old)| Spec::Indexed(list, old)),
            (prop::collection::vec((0i64..4, -90i64..90), 0..8), old())
                .prop_map(|(list, old)| Spec::Hindexed(list, old)),
            (0i64..4, prop::collection::vec(-8i64..9, 0..8), old())
                .prop_map(|(l, list, old)| Spec::IndexedBlock(l, list, old)),
            prop::collection::vec((0i64..3, -60i64..60, inner.clone()), 0..4).prop_map(Spec::Struct),
            (-20i64..20, -30i64..60, old()).prop_map(|(lb, extent, old)| Spec::Resized(lb, extent, old)),
            (prop::collection::vec((1i64..5, 0i64..4, 0i64..4), 1..4), any::<bool>(), old()).prop_map(
                |(dims, c_order, old)| {
                    let fits = |(size, subsize, start): (i64, i64, i64)| {
                        let subsize = 1 + subsize % size;
                        (size, subsize, start % (size - subsize + 1))
                    };
                    Spec::Subarray(dims.into_iter().map(fits).collect(), c_order, old)
                }
            ),
            old().prop_map(Spec::Dup),
        ]
    })
}

/// Places of the bytes of the packed stream.
pub fn stream(map: &[Entry], count: i64) -> Vec<i64> {
    let extent = bounds(map).1;
    let mut places = Vec::new();
    for index in 0..count {
        for entry in map {
            if let Entry::Data(at, size, _) = entry {
                places.extend((0..*size as i64).map(|byte| index * extent + at + byte));
            }
        }
    }
    places
}
