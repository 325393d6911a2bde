//! The standard ABI: handles are pointers, predefined ones are numbers below 4096, made ones are the neutral number zero-extended (all
//! of them are larger). Source: MPI-5.0, chapter 20.

use crate::abi::{Abi, Handle};
use crate::maps::{self, Limit, PREDEFINED, Set, limits, pairs};
use pulc_mpi::handle;
use pulc_mpi::memory::Addr;
use pulc_mpi::status::Status;
use std::ffi::{c_int, c_void};

/// `libmpi_abi.so.1`.
pub struct Standard;

/// A handle of any kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct Pointer(*mut c_void);

impl Pointer {
    #[inline]
    fn number(int: c_int) -> Pointer {
        Pointer(std::ptr::without_provenance_mut(int as u32 as usize))
    }

    /// The number of a handle; 0, which no handle has, where it is none of ours.
    #[inline]
    fn to_number(self) -> c_int {
        u32::try_from(self.0.addr()).map_or(0, |number| number as c_int)
    }

    #[inline(always)]
    fn neutral(self) -> i32 {
        match PREDEFINED.get(self.0.addr()) {
            Some(&neutral) => neutral,
            None => self.to_number(),
        }
    }

    fn of(neutral: i32, predefined: &[(i32, i32)]) -> Pointer {
        match predefined.binary_search_by_key(&neutral, |(number, _)| *number) {
            Ok(at) => Pointer::number(predefined[at].1),
            Err(_) => Pointer::number(neutral),
        }
    }
}

impl crate::hand::Integer for Pointer {
    fn to_int(self) -> c_int {
        self.to_number()
    }

    fn from_int(int: c_int) -> Pointer {
        Pointer::number(int)
    }
}

macro_rules! pointers {
    ($($name:ident $map:ident;)*) => {$(
        impl Handle<handle::$name> for Pointer {
            const IS_NEUTRAL: bool = false;

            #[inline(always)]
            fn inward(self) -> handle::$name {
                handle::$name(self.neutral())
            }

            #[inline]
            fn outward(neutral: handle::$name) -> Pointer {
                Pointer::of(neutral.0, maps::$map)
            }
        }
    )*};
}

pointers! {
    Comm COMM;
    Datatype DATATYPE;
    Errhandler ERRHANDLER;
    File FILE;
    Group GROUP;
    Info INFO;
    Message MESSAGE;
    Op OP;
    Request REQUEST;
    Session SESSION;
    Win WIN;
}

/// `MPI_Status`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct StandardStatus {
    source: c_int,
    tag: c_int,
    error: c_int,
    bytes_low: c_int,
    bytes_high: c_int,
    cancelled: c_int,
    unused: [c_int; 2],
}

const _: () = assert!(size_of::<StandardStatus>() == 32);

impl Abi for Standard {
    type Comm = Pointer;
    type Datatype = Pointer;
    type Errhandler = Pointer;
    type File = Pointer;
    type Group = Pointer;
    type Info = Pointer;
    type Message = Pointer;
    type Op = Pointer;
    type Request = Pointer;
    type Session = Pointer;
    type Win = Pointer;
    type Status = StandardStatus;

    const ABI_VERSION: (c_int, c_int) = (1, 0);
    const LAST_CODE: c_int = 0x3fff;

    #[inline]
    fn constant_in(set: Set, value: c_int) -> c_int {
        // Ranks and tags on the way of every message: only sentinels are negative.
        if matches!(set, Set::Rank | Set::Tag) && value >= 0 {
            return value;
        }
        pairs(set).iter().find(|(standard, _)| *standard == value).map_or(value, |(_, neutral)| *neutral)
    }

    #[inline]
    fn constant_out(set: Set, value: c_int) -> c_int {
        if matches!(set, Set::Rank | Set::Tag) && value >= 0 {
            return value;
        }
        pairs(set).iter().find(|(_, neutral)| *neutral == value).map_or(value, |(standard, _)| *standard)
    }

    fn limit(limit: Limit) -> usize {
        limits(limit).1
    }

    #[inline(always)]
    unsafe fn buffer_in(buffer: *mut c_void) -> Addr {
        if Self::is_in_place(buffer) {
            return Addr::IN_PLACE;
        }
        // SAFETY: the caller's promise.
        unsafe { Addr::new(buffer.cast()) }
    }

    #[inline(always)]
    fn is_in_place(buffer: *const c_void) -> bool {
        buffer.addr() == 1
    }

    #[inline(always)]
    fn ignores(status: *const StandardStatus) -> bool {
        status.is_null()
    }

    #[inline]
    fn status_in(status: &StandardStatus) -> Status {
        Status {
            source: Self::constant_in(Set::Rank, status.source),
            tag: Self::constant_in(Set::Tag, status.tag),
            error: Self::constant_in(Set::ErrorClass, status.error),
            bytes: u64::from(status.bytes_high as u32) << 32 | u64::from(status.bytes_low as u32),
            cancelled: status.cancelled != 0,
        }
    }

    fn new_status(from: &Status) -> StandardStatus {
        let mut status = StandardStatus::default();
        Self::fill_status(&mut status, from);
        Self::set_error(&mut status, Self::constant_out(Set::ErrorClass, from.error));
        status
    }

    #[inline]
    fn fill_status(status: &mut StandardStatus, from: &Status) {
        status.source = Self::constant_out(Set::Rank, from.source);
        status.tag = Self::constant_out(Set::Tag, from.tag);
        status.bytes_low = from.bytes as u32 as c_int;
        status.bytes_high = (from.bytes >> 32) as u32 as c_int;
        status.cancelled = c_int::from(from.cancelled);
        status.unused = [0; 2];
    }

    #[inline]
    fn set_error(status: &mut StandardStatus, class: c_int) {
        status.error = class;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn predefined_handles_and_sentinels_are_mapped_and_made_ones_are_kept() {
        let world: handle::Comm = Pointer::number(0x101).inward();
        assert_eq!(world, handle::Comm::WORLD);
        assert_eq!(<Pointer as Handle<handle::Comm>>::outward(world), Pointer::number(0x101));
        let made = handle::Datatype(0x8c00_0105_u32 as i32);
        let pointer = <Pointer as Handle<handle::Datatype>>::outward(made);
        assert_eq!(<Pointer as Handle<handle::Datatype>>::inward(pointer), made);
        assert_eq!(<Pointer as Handle<handle::Comm>>::inward(Pointer::number(0)), handle::Comm(0));
        // Two kinds share the neutral null.
        assert_eq!(<Pointer as Handle<handle::Message>>::outward(handle::Message::NULL), Pointer::number(0x128));
        assert_eq!(<Pointer as Handle<handle::Request>>::outward(handle::Request::NULL), Pointer::number(0x180));
        for (standard, neutral) in [(-1, -2), (-3, -1), (-4, -3), (7, 7)] {
            assert_eq!(Standard::constant_in(Set::Rank, standard), neutral);
            assert_eq!(Standard::constant_out(Set::Rank, neutral), standard);
        }
    }

    #[test]
    fn a_status_of_more_than_four_gigabytes_survives_both_layouts() {
        let from = Status { source: 3, tag: 9, error: 0, bytes: 0x5_0000_0001, cancelled: true };
        let mut standard =
            StandardStatus { source: 0, tag: 0, error: 0, bytes_low: 0, bytes_high: 0, cancelled: 0, unused: [1; 2] };
        Standard::fill_status(&mut standard, &from);
        assert_eq!(Standard::status_in(&standard), from);
        let mut mpich = crate::mpich::MpichStatus::default();
        crate::Mpich::fill_status(&mut mpich, &from);
        assert_eq!(crate::Mpich::status_in(&mpich), from);
    }
}
