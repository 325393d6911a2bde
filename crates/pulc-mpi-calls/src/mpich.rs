//! The MPICH ABI: handles are ints with the neutral numbers, so nothing is mapped. Source: the public headers of MPICH 4 and 5 and of
//! Intel MPI 2021, whose layouts agree.

use crate::abi::{Abi, Handle};
use crate::maps::{Limit, Set, limits};
use pulc_mpi::handle;
use pulc_mpi::memory::Addr;
use pulc_mpi::status::Status;
use std::ffi::{c_int, c_void};

/// `libmpi.so.12`.
pub struct Mpich;

macro_rules! ints {
    ($($name:ident)*) => {$(
        impl Handle<handle::$name> for c_int {
            const IS_NEUTRAL: bool = true;

            #[inline(always)]
            fn inward(self) -> handle::$name {
                handle::$name(self)
            }

            #[inline(always)]
            fn outward(neutral: handle::$name) -> c_int {
                neutral.0
            }
        }
    )*};
}

ints!(Comm Datatype Errhandler Group Info Message Op Request Session Win);

/// A file is a pointer also here.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct FilePointer(*mut c_void);

impl Handle<handle::File> for FilePointer {
    const IS_NEUTRAL: bool = false;

    #[inline]
    fn inward(self) -> handle::File {
        handle::File(i32::try_from(self.0.addr()).unwrap_or(-1))
    }

    #[inline]
    fn outward(neutral: handle::File) -> FilePointer {
        FilePointer(std::ptr::without_provenance_mut(neutral.0 as u32 as usize))
    }
}

impl crate::hand::Integer for FilePointer {
    fn to_int(self) -> c_int {
        <FilePointer as Handle<handle::File>>::inward(self).0
    }

    fn from_int(int: c_int) -> FilePointer {
        FilePointer::outward(handle::File(int))
    }
}

/// `MPI_Status`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct MpichStatus {
    /// Bytes, low half.
    count_lo: c_int,
    /// Bytes, high half, shifted by one; the lowest bit says cancelled.
    count_hi_and_cancelled: c_int,
    source: c_int,
    tag: c_int,
    error: c_int,
}

const _: () = assert!(size_of::<MpichStatus>() == 20);

impl Abi for Mpich {
    type Comm = c_int;
    type Datatype = c_int;
    type Errhandler = c_int;
    type File = FilePointer;
    type Group = c_int;
    type Info = c_int;
    type Message = c_int;
    type Op = c_int;
    type Request = c_int;
    type Session = c_int;
    type Win = c_int;
    type Status = MpichStatus;

    const ABI_VERSION: (c_int, c_int) = (-1, -1);
    const LAST_CODE: c_int = 0x3fff_ffff;

    #[inline(always)]
    fn constant_in(_: Set, value: c_int) -> c_int {
        value
    }

    #[inline(always)]
    fn constant_out(_: Set, value: c_int) -> c_int {
        value
    }

    fn limit(limit: Limit) -> usize {
        limits(limit).0
    }

    #[inline(always)]
    unsafe fn buffer_in(buffer: *mut c_void) -> Addr {
        // SAFETY: the caller's promise. IN_PLACE is the neutral one.
        unsafe { Addr::new(buffer.cast()) }
    }

    #[inline(always)]
    fn is_in_place(buffer: *const c_void) -> bool {
        buffer.addr() == usize::MAX
    }

    #[inline(always)]
    fn ignores(status: *const MpichStatus) -> bool {
        status.addr() <= 1
    }

    #[inline]
    fn status_in(status: &MpichStatus) -> Status {
        let high = (status.count_hi_and_cancelled as u32 >> 1) as u64;
        Status {
            source: status.source,
            tag: status.tag,
            error: status.error,
            bytes: high << 32 | u64::from(status.count_lo as u32),
            cancelled: status.count_hi_and_cancelled & 1 != 0,
        }
    }

    fn new_status(from: &Status) -> MpichStatus {
        let mut status = MpichStatus::default();
        Self::fill_status(&mut status, from);
        Self::set_error(&mut status, Self::constant_out(Set::ErrorClass, from.error));
        status
    }

    #[inline]
    fn fill_status(status: &mut MpichStatus, from: &Status) {
        status.count_lo = from.bytes as u32 as c_int;
        status.count_hi_and_cancelled = ((from.bytes >> 32) as u32 as c_int) << 1 | c_int::from(from.cancelled);
        status.source = from.source;
        status.tag = from.tag;
    }

    #[inline]
    fn set_error(status: &mut MpichStatus, class: c_int) {
        status.error = class;
    }
}
