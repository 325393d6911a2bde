//! MPI's calls about datatypes, from handles to handles. Re-exported by `call`. Everything that is not a lookup is done by
//! the rooms beside this one.
//!
//! `large` is set for the calls whose name ends in `_c`: they differ in what `MPI_Type_get_contents` gives back, in nothing else.
//!
//! Source: MPI-5.0, sections 5.1, 7.7.4, 7.8 and 19.1.9.

use crate::attribute::{self, KeyvalOf};
use crate::callback::AttrCallbacks;
use crate::consts::{MAX_OBJECT_NAME, UNDEFINED};
use crate::datatype::arrays::{self, Deal};
use crate::datatype::basic::{BASICS, index_of};
use crate::datatype::fortran::{self, Kind};
use crate::datatype::origin::Combiner;
use crate::datatype::typemap::Typemap;
use crate::datatype::{TypeRef, build, get, insert, remove};
use crate::error::{Class, Error, Result};
use crate::handle::{Datatype, Keyval};
use crate::memory::Ints;
use crate::status::Status;
use std::sync::Arc;

/// Bytes of data in one element.
pub fn type_size(datatype: Datatype) -> Result<i64> {
    Ok(get(datatype)?.size() as i64)
}

/// Lower bound and extent.
pub fn type_get_extent(datatype: Datatype) -> Result<(i64, i64)> {
    let found = get(datatype)?;
    Ok((found.lb(), found.extent()))
}

/// Lower bound and extent of the data alone.
pub fn type_get_true_extent(datatype: Datatype) -> Result<(i64, i64)> {
    let found = get(datatype)?;
    Ok((found.true_lb(), found.true_extent()))
}

pub fn type_contiguous(count: i64, old: Datatype, large: bool) -> Result<Datatype> {
    made(build::contiguous(counted(count)?, get(old)?.map(), large))
}

pub fn type_vector(count: i64, blocklength: i64, stride: i64, old: Datatype, large: bool) -> Result<Datatype> {
    made(build::vector(counted(count)?, blocklength, stride, get(old)?.map(), large))
}

pub fn type_create_hvector(count: i64, blocklength: i64, stride: i64, old: Datatype, large: bool) -> Result<Datatype> {
    made(build::hvector(counted(count)?, blocklength, stride, get(old)?.map(), large))
}

pub fn type_indexed(blocklengths: Ints, displacements: Ints, old: Datatype, large: bool) -> Result<Datatype> {
    equal_lengths(&[blocklengths.len(), displacements.len()])?;
    made(build::indexed(&blocklengths.to_vec(), &displacements.to_vec(), get(old)?.map(), large))
}

pub fn type_create_hindexed(blocklengths: Ints, displacements: Ints, old: Datatype, large: bool) -> Result<Datatype> {
    equal_lengths(&[blocklengths.len(), displacements.len()])?;
    made(build::hindexed(&blocklengths.to_vec(), &displacements.to_vec(), get(old)?.map(), large))
}

pub fn type_create_indexed_block(
    blocklength: i64,
    displacements: Ints,
    old: Datatype,
    large: bool,
) -> Result<Datatype> {
    made(build::indexed_block(blocklength, &displacements.to_vec(), get(old)?.map(), large))
}

pub fn type_create_hindexed_block(
    blocklength: i64,
    displacements: Ints,
    old: Datatype,
    large: bool,
) -> Result<Datatype> {
    made(build::hindexed_block(blocklength, &displacements.to_vec(), get(old)?.map(), large))
}

pub fn type_create_struct(
    blocklengths: Ints,
    displacements: Ints,
    types: &[Datatype],
    large: bool,
) -> Result<Datatype> {
    equal_lengths(&[blocklengths.len(), displacements.len(), types.len()])?;
    let maps = types.iter().map(|&part| get(part).map(|found| found.map().clone())).collect::<Result<Vec<_>>>()?;
    made(build::structure(&blocklengths.to_vec(), &displacements.to_vec(), &maps, large))
}

pub fn type_create_subarray(
    sizes: Ints,
    subsizes: Ints,
    starts: Ints,
    order: i32,
    old: Datatype,
    large: bool,
) -> Result<Datatype> {
    equal_lengths(&[sizes.len(), subsizes.len(), starts.len()])?;
    let old = get(old)?;
    made(arrays::subarray(&sizes.to_vec(), &subsizes.to_vec(), &starts.to_vec(), order, old.map(), large))
}

/// What process `rank` of `size` owns of an array of `sizes` that is dealt out to a grid of `processes`.
#[expect(clippy::too_many_arguments, reason = "the standard's call has ten")]
pub fn type_create_darray(
    size: i32,
    rank: i32,
    sizes: Ints,
    distributions: &[i32],
    arguments: &[i32],
    processes: &[i32],
    order: i32,
    old: Datatype,
    large: bool,
) -> Result<Datatype> {
    equal_lengths(&[sizes.len(), distributions.len(), arguments.len(), processes.len()])?;
    let deal = |at: usize| Deal {
        size: sizes.get(at),
        distribution: distributions[at],
        argument: arguments[at],
        processes: processes[at],
    };
    let deals: Vec<Deal> = (0..sizes.len()).map(deal).collect();
    made(arrays::darray(size, rank, &deals, order, get(old)?.map(), large))
}

pub fn type_create_resized(old: Datatype, lb: i64, extent: i64, large: bool) -> Result<Datatype> {
    made(build::resized(get(old)?.map(), lb, extent, large))
}

/// A copy, with those attributes whose callbacks copy them.
pub fn type_dup(old: Datatype) -> Result<Datatype> {
    let found = get(old)?;
    let copies = found.attributes.copied(old.0)?;
    let new = insert(Arc::new(build::dup(found.map())));
    if let TypeRef::Made(new) = get(new)? {
        new.attributes.fill(copies);
    }
    Ok(new)
}

pub fn type_commit(datatype: Datatype) -> Result<()> {
    get(datatype)?.map().commit();
    Ok(())
}

/// Frees the handle, which becomes null.
pub fn type_free(datatype: &mut Datatype) -> Result<()> {
    if fortran::is_kind(datatype.0) {
        return Err(Error::new(Class::TYPE, "a Fortran 90 type is predefined and can't be freed"));
    }
    if let TypeRef::Made(found) = get(*datatype)? {
        found.attributes.clear(datatype.0)?;
    }
    remove(*datatype)?;
    *datatype = Datatype::NULL;
    Ok(())
}

/// How many arguments of each sort the call had that made a type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Envelope {
    pub integers: i64,
    pub addresses: i64,
    pub large_counts: i64,
    pub types: i64,
    pub combiner: i32,
}

pub fn type_get_envelope(datatype: Datatype, large: bool) -> Result<Envelope> {
    let found = get(datatype)?;
    let origin = &found.map().origin;
    let Some(call) = origin.call() else {
        return Ok(Envelope { integers: 0, addresses: 0, large_counts: 0, types: 0, combiner: Combiner::Named as i32 });
    };
    if !large && !call.counts.is_empty() {
        return Err(Error::new(Class::TYPE, "the type was made with large counts: ask with MPI_Type_get_envelope_c"));
    }
    Ok(Envelope {
        integers: call.integers.len() as i64,
        addresses: call.addresses.len() as i64,
        large_counts: call.counts.len() as i64,
        types: call.types.len() as i64,
        combiner: call.combiner as i32,
    })
}

/// The arguments of the call that made a type. Handles of types that are not predefined are new: they must be freed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Contents {
    pub integers: Vec<i32>,
    pub addresses: Vec<i64>,
    pub large_counts: Vec<i64>,
    pub types: Vec<Datatype>,
}

/// `room`: how many integers, addresses, large counts and types the program has room for.
pub fn type_get_contents(datatype: Datatype, room: [i64; 4], large: bool) -> Result<Contents> {
    let found = get(datatype)?;
    let Some(call) = found.map().origin.call() else {
        return Err(Error::new(Class::TYPE, format!("{} is predefined: it was made by no call", found.name())));
    };
    if !large && !call.counts.is_empty() {
        return Err(Error::new(Class::TYPE, "the type was made with large counts: ask with MPI_Type_get_contents_c"));
    }
    let needed = [call.integers.len(), call.addresses.len(), call.counts.len(), call.types.len()];
    if needed.iter().zip(room).any(|(&needed, room)| room < needed as i64) {
        let text = format!("room for {room:?} integers, addresses, large counts, types: {needed:?} are needed");
        return Err(Error::new(Class::ARG, text));
    }
    Ok(Contents {
        integers: call.integers.clone(),
        addresses: call.addresses.clone(),
        large_counts: call.counts.clone(),
        types: call.types.iter().map(handle_of).collect(),
    })
}

fn handle_of(map: &Arc<Typemap>) -> Datatype {
    match map.as_basic() {
        Some(basic) => Datatype(basic.mpich as i32),
        None => insert(map.clone()),
    }
}

pub fn type_create_f90_real(digits: i32, range: i32) -> Result<Datatype> {
    fortran_kind(Kind::Real { digits, range })
}

pub fn type_create_f90_complex(digits: i32, range: i32) -> Result<Datatype> {
    fortran_kind(Kind::Complex { digits, range })
}

pub fn type_create_f90_integer(range: i32) -> Result<Datatype> {
    fortran_kind(Kind::Integer { range })
}

fn fortran_kind(kind: Kind) -> Result<Datatype> {
    fortran::handle_of(kind, |map| insert(Arc::new(map)).0).map(Datatype)
}

pub fn type_match_size(class: i32, bytes: i32) -> Result<Datatype> {
    fortran::of_size(class, bytes).map(|basic| Datatype(basic.mpich as i32))
}

/// The pair of a value and a place for `MPI_MINLOC` and `MPI_MAXLOC`; null where none is predefined.
pub fn type_get_value_index(value: Datatype, place: Datatype) -> Result<Datatype> {
    let part = |datatype: Datatype| get(datatype).map(|found| found.map().as_basic());
    let (value, place) = (part(value)?, part(place)?);
    let pair = value.zip(place).and_then(|(value, place)| fortran::pair_of(value, place));
    Ok(pair.map_or(Datatype::NULL, |basic| Datatype(basic.mpich as i32)))
}

pub fn type_get_name(datatype: Datatype) -> Result<String> {
    match datatype {
        Datatype::NULL => Ok("MPI_DATATYPE_NULL".into()),
        _ => Ok(get(datatype)?.name()),
    }
}

pub fn type_set_name(datatype: Datatype, name: &str) -> Result<()> {
    if name.len() >= MAX_OBJECT_NAME {
        let text = format!("a name of {} bytes: at most {}", name.len(), MAX_OBJECT_NAME - 1);
        return Err(Error::new(Class::ARG, text));
    }
    get(datatype)?.set_name(name);
    Ok(())
}

pub fn type_create_keyval(callbacks: Arc<dyn AttrCallbacks>) -> Result<Keyval> {
    Ok(attribute::create_keyval(KeyvalOf::Type, callbacks))
}

pub fn type_free_keyval(keyval: &mut Keyval) -> Result<()> {
    attribute::free_keyval(KeyvalOf::Type, keyval)
}

pub fn type_set_attr(datatype: Datatype, keyval: Keyval, value: usize) -> Result<()> {
    get(datatype)?.attributes.set(KeyvalOf::Type, datatype.0, keyval, value)
}

pub fn type_get_attr(datatype: Datatype, keyval: Keyval) -> Result<Option<usize>> {
    get(datatype)?.attributes.value(KeyvalOf::Type, keyval)
}

pub fn type_delete_attr(datatype: Datatype, keyval: Keyval) -> Result<()> {
    get(datatype)?.attributes.delete(KeyvalOf::Type, datatype.0, keyval)
}

/// Elements of `datatype` in what was received; `UNDEFINED` if they are not a whole number.
pub fn get_count(status: &Status, datatype: Datatype) -> Result<i64> {
    Ok(get(datatype)?.count(status.bytes).unwrap_or(i64::from(UNDEFINED)))
}

/// Basic elements in what was received; `UNDEFINED` if they are not a whole number.
pub fn get_elements(status: &Status, datatype: Datatype) -> Result<i64> {
    Ok(get(datatype)?.elements(status.bytes).unwrap_or(i64::from(UNDEFINED)))
}

pub fn status_set_elements(status: &mut Status, datatype: Datatype, count: i64) -> Result<()> {
    let text = || Error::new(Class::ARG, format!("{count} basic elements are no part of a message of this type"));
    status.bytes = get(datatype)?.bytes_of_elements(count).ok_or_else(text)?;
    Ok(())
}

/// Whether a number is the handle of a predefined type.
pub fn is_predefined(datatype: Datatype) -> bool {
    index_of(datatype.0).is_some_and(|index| BASICS[index].mpich == datatype.0 as u32)
}

fn made(map: Result<Typemap>) -> Result<Datatype> {
    map.map(|map| insert(Arc::new(map)))
}

fn counted(count: i64) -> Result<i64> {
    if count < 0 {
        return Err(Error::new(Class::COUNT, format!("count {count} is negative: it must be 0 or more")));
    }
    Ok(count)
}

fn equal_lengths(lengths: &[usize]) -> Result<()> {
    if lengths.windows(2).any(|pair| pair[0] != pair[1]) {
        return Err(Error::new(Class::ARG, format!("lists of different lengths {lengths:?}: all must be equal")));
    }
    Ok(())
}
