//! Datatypes: what a type was made from, and the constructors that the standard removed. Source: MPI-5.0, 5.1.13 and chapter 17.

use crate::abi::{Abi, Handle};
use crate::convert::{fill, handles_in, poke, slice_in};
use crate::guard::{self, On};
use crate::lengths;
use crate::maps::Set;
use pulc_mpi::call;
use pulc_mpi::error::Result;
use pulc_mpi::handle::Datatype;
use pulc_mpi::memory::Ints;
use std::ffi::c_int;

/// `MPI_Type_get_envelope`
///
/// # Safety
/// The pointers are null or point to ints.
pub unsafe fn type_get_envelope<A: Abi>(
    datatype: A::Datatype,
    integers: *mut c_int,
    addresses: *mut c_int,
    types: *mut c_int,
    combiner: *mut c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    guard::run::<A>(&"MPI_Type_get_envelope", On::None, || unsafe {
        let envelope = call::type_get_envelope(datatype.inward(), false)?;
        poke(integers, envelope.integers as c_int)?;
        poke(addresses, envelope.addresses as c_int)?;
        poke(types, envelope.types as c_int)?;
        poke(combiner, A::constant_out(Set::Combiner, envelope.combiner))
    })
}

/// `MPI_Type_get_envelope_c`
///
/// # Safety
/// The pointers are null or point to numbers.
pub unsafe fn type_get_envelope_c<A: Abi>(
    datatype: A::Datatype,
    integers: *mut i64,
    addresses: *mut i64,
    large_counts: *mut i64,
    types: *mut i64,
    combiner: *mut c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    guard::run::<A>(&"MPI_Type_get_envelope_c", On::None, || unsafe {
        let envelope = call::type_get_envelope(datatype.inward(), true)?;
        poke(integers, envelope.integers)?;
        poke(addresses, envelope.addresses)?;
        poke(large_counts, envelope.large_counts)?;
        poke(types, envelope.types)?;
        poke(combiner, A::constant_out(Set::Combiner, envelope.combiner))
    })
}

/// Room of the program for the arguments of a constructor.
struct Room<A: Abi> {
    integers: (*mut c_int, i64),
    addresses: (*mut i64, i64),
    large_counts: (*mut i64, i64),
    types: (*mut A::Datatype, i64),
}

/// # Safety
/// Each array has as much room as is said.
unsafe fn contents<A: Abi>(datatype: Datatype, room: &Room<A>, large: bool) -> Result<()> {
    let sizes = [room.integers.1, room.addresses.1, room.large_counts.1, room.types.1];
    let mut found = call::type_get_contents(datatype, sizes, large)?;
    integers_out::<A>(datatype, large, &mut found.integers)?;
    let types: Vec<A::Datatype> = found.types.iter().map(|one| Handle::outward(*one)).collect();
    // SAFETY: the caller's promise.
    unsafe {
        fill(room.integers.0, lengths::of(room.integers.1)?, &found.integers)?;
        fill(room.addresses.0, lengths::of(room.addresses.1)?, &found.addresses)?;
        fill(room.large_counts.0, lengths::of(room.large_counts.1)?, &found.large_counts)?;
        fill(room.types.0, lengths::of(room.types.1)?, &types)
    }
}

/// Subarrays and distributed arrays have constants among their integers: the order, the kinds of distribution.
fn integers_out<A: Abi>(datatype: Datatype, large: bool, integers: &mut [i32]) -> Result<()> {
    const SUBARRAY: i32 = 13;
    const DARRAY: i32 = 14;
    let combiner = call::type_get_envelope(datatype, large)?.combiner;
    let last = integers.len().wrapping_sub(1);
    if [SUBARRAY, DARRAY].contains(&combiner)
        && let Some(order) = integers.get_mut(last)
    {
        *order = A::constant_out(Set::Order, *order);
    }
    if combiner == DARRAY {
        // Size, rank, dimensions, sizes (elsewhere in the large form), distributions, arguments, processes, order.
        let dimensions = integers.get(2).map_or(0, |&count| count as usize);
        let first = if large { 3 } else { 3 + dimensions };
        let place = |integers: &mut [i32], from: usize, set: Set| {
            for one in integers.iter_mut().skip(from).take(dimensions) {
                *one = A::constant_out(set, *one);
            }
        };
        place(integers, first, Set::Distribution);
        place(integers, first + dimensions, Set::DistributionArgument);
    }
    Ok(())
}

/// `MPI_Type_get_contents`
///
/// # Safety
/// Each array has as much room as is said.
pub unsafe fn type_get_contents<A: Abi>(
    datatype: A::Datatype,
    max_integers: c_int,
    max_addresses: c_int,
    max_datatypes: c_int,
    integers: *mut c_int,
    addresses: *mut i64,
    types: *mut A::Datatype,
) -> c_int {
    // SAFETY: the caller's promise.
    guard::run::<A>(&"MPI_Type_get_contents", On::None, || unsafe {
        let room = Room::<A> {
            integers: (integers, max_integers.into()),
            addresses: (addresses, max_addresses.into()),
            large_counts: (std::ptr::null_mut(), 0),
            types: (types, max_datatypes.into()),
        };
        contents::<A>(datatype.inward(), &room, false)
    })
}

/// `MPI_Type_get_contents_c`
///
/// # Safety
/// Each array has as much room as is said.
#[expect(clippy::too_many_arguments, reason = "the standard has them")]
pub unsafe fn type_get_contents_c<A: Abi>(
    datatype: A::Datatype,
    max_integers: i64,
    max_addresses: i64,
    max_large_counts: i64,
    max_datatypes: i64,
    integers: *mut c_int,
    addresses: *mut i64,
    large_counts: *mut i64,
    types: *mut A::Datatype,
) -> c_int {
    // SAFETY: the caller's promise.
    guard::run::<A>(&"MPI_Type_get_contents_c", On::None, || unsafe {
        let room = Room::<A> {
            integers: (integers, max_integers),
            addresses: (addresses, max_addresses),
            large_counts: (large_counts, max_large_counts),
            types: (types, max_datatypes),
        };
        contents::<A>(datatype.inward(), &room, true)
    })
}

macro_rules! bounds {
    ($($name:ident, $text:literal, $pick:expr;)*) => {$(
        #[doc = concat!("`", $text, "`\n\n# Safety\nThe pointer is null or points to an address.")]
        pub unsafe fn $name<A: Abi>(datatype: A::Datatype, value: *mut i64) -> c_int {
            // SAFETY: the caller's promise.
            guard::run::<A>(&$text, On::None, || unsafe {
                let pick: fn((i64, i64)) -> i64 = $pick;
                poke(value, pick(call::type_get_extent(datatype.inward())?))
            })
        }
    )*};
}

bounds! {
    type_extent, "MPI_Type_extent", |(_, extent)| extent;
    type_lb, "MPI_Type_lb", |(lb, _)| lb;
    type_ub, "MPI_Type_ub", |(lb, extent)| lb + extent;
}

/// `MPI_Type_hvector`, the name of `MPI_Type_create_hvector` before MPI-2.
///
/// # Safety
/// `new` is null or points to a handle.
pub unsafe fn type_hvector<A: Abi>(
    count: c_int,
    blocklength: c_int,
    stride: i64,
    old: A::Datatype,
    new: *mut A::Datatype,
) -> c_int {
    // SAFETY: the caller's promise.
    guard::run::<A>(&"MPI_Type_hvector", On::None, || unsafe {
        let made = call::type_create_hvector(count.into(), blocklength.into(), stride, old.inward(), false)?;
        poke(new, Handle::outward(made))
    })
}

/// `MPI_Type_hindexed`, the name of `MPI_Type_create_hindexed` before MPI-2.
///
/// # Safety
/// The arrays have `count` elements; `new` is null or points to a handle.
pub unsafe fn type_hindexed<A: Abi>(
    count: c_int,
    lengths: *mut c_int,
    displacements: *mut i64,
    old: A::Datatype,
    new: *mut A::Datatype,
) -> c_int {
    // SAFETY: the caller's promise.
    guard::run::<A>(&"MPI_Type_hindexed", On::None, || unsafe {
        let count = lengths::of(count.into())?;
        let lengths = Ints::Small(slice_in(lengths.cast_const(), count)?);
        let displacements = Ints::Large(slice_in(displacements.cast_const(), count)?);
        poke(new, Handle::outward(call::type_create_hindexed(lengths, displacements, old.inward(), false)?))
    })
}

/// `MPI_Type_struct`, the name of `MPI_Type_create_struct` before MPI-2.
///
/// # Safety
/// The arrays have `count` elements; `new` is null or points to a handle.
pub unsafe fn type_struct<A: Abi>(
    count: c_int,
    lengths: *mut c_int,
    displacements: *mut i64,
    types: *mut A::Datatype,
    new: *mut A::Datatype,
) -> c_int {
    // SAFETY: the caller's promise.
    guard::run::<A>(&"MPI_Type_struct", On::None, || unsafe {
        let count = lengths::of(count.into())?;
        let lengths = Ints::Small(slice_in(lengths.cast_const(), count)?);
        let displacements = Ints::Large(slice_in(displacements.cast_const(), count)?);
        let types = handles_in(types.cast_const(), count)?;
        poke(new, Handle::outward(call::type_create_struct(lengths, displacements, &types, false)?))
    })
}
