//! Completion of several requests. Where handles look like the neutral ones the program's array is used as it is, else it goes through
//! a copy. A status' error is written only if the call says that there is one (`MPI_ERR_IN_STATUS`).
//! Source: MPI-5.0, 3.7.5 and 3.7.6.

use crate::abi::{Abi, Handle};
use crate::convert::{handles_in, poke, slice_in_out};
use crate::guard::{self, On};
use crate::lengths;
use crate::maps::Set;
use pulc_mpi::call;
use pulc_mpi::consts::UNDEFINED;
use pulc_mpi::error::{Class, Result};
use pulc_mpi::handle::Request;
use pulc_mpi::status::Status;
use std::ffi::c_int;

/// As many requests go through the stack; more need memory.
const ON_STACK: usize = 32;

/// Lets `use_them` work on the program's array of requests.
///
/// # Safety
/// The array has `count` requests that are left to this call.
unsafe fn with_requests<A: Abi, T>(
    array: *mut A::Request,
    count: c_int,
    use_them: impl FnOnce(&mut [Request]) -> Result<T>,
) -> Result<T> {
    let count = lengths::of(i64::from(count))?;
    // SAFETY: the caller's promise; neutral handles are transparent ints.
    unsafe {
        if A::Request::IS_NEUTRAL {
            return use_them(slice_in_out(array.cast::<Request>(), count)?);
        }
        let array = slice_in_out(array, count)?;
        let (mut few, mut many) = ([Request::NULL; ON_STACK], Vec::new());
        let copies = if count <= ON_STACK {
            &mut few[..count]
        } else {
            many.resize(count, Request::NULL);
            &mut many[..]
        };
        for (copy, handle) in copies.iter_mut().zip(array.iter()) {
            *copy = handle.inward();
        }
        let outcome = use_them(copies);
        for (copy, handle) in copies.iter().zip(array) {
            *handle = Handle::outward(*copy);
        }
        outcome
    }
}

/// The program's array of statuses, and which of them hold an error.
struct Statuses<A: Abi> {
    array: *mut A::Status,
    failed: Vec<(usize, c_int)>,
}

impl<A: Abi> Statuses<A> {
    fn new(array: *mut A::Status) -> Statuses<A> {
        Statuses { array, failed: Vec::new() }
    }

    /// # Safety
    /// The array is ignored or has a status at `at`.
    unsafe fn write(&mut self, at: usize, status: &Status) {
        if status.error != 0 {
            self.failed.push((at, A::constant_out(Set::ErrorClass, status.error)));
        }
        if !A::ignores(self.array) {
            // SAFETY: the caller's promise.
            unsafe { A::status_out(status, self.array.add(at), false) };
        }
    }

    /// Where the call says that an error is in a status, every one of `count` says whether it is there.
    ///
    /// # Safety
    /// The array is ignored or has `count` statuses.
    unsafe fn errors<T>(self, count: usize, outcome: &Result<T>) {
        let in_status = outcome.as_ref().err().is_some_and(|error| error.class == Class::IN_STATUS);
        if !in_status || A::ignores(self.array) {
            return;
        }
        for at in 0..count {
            let error = self.failed.iter().find(|(failed, _)| *failed == at).map_or(0, |(_, error)| *error);
            // SAFETY: the caller's promise.
            A::set_error(unsafe { &mut *self.array.add(at) }, error);
        }
    }
}

/// `MPI_Waitall`
///
/// # Safety
/// The arrays have `count` elements; that of statuses may be ignored.
#[inline]
pub unsafe fn waitall<A: Abi>(count: c_int, requests: *mut A::Request, statuses: *mut A::Status) -> c_int {
    // SAFETY: the caller's promise.
    guard::run::<A>(&"MPI_Waitall", On::None, || unsafe {
        let mut statuses = Statuses::<A>::new(statuses);
        let outcome = with_requests::<A, _>(requests, count, |requests| {
            call::waitall(requests, &mut |at, status| statuses.write(at, status))
        });
        statuses.errors(lengths::of(i64::from(count))?, &outcome);
        outcome
    })
}

/// `MPI_Testall`
///
/// # Safety
/// The arrays have `count` elements; that of statuses may be ignored.
pub unsafe fn testall<A: Abi>(
    count: c_int,
    requests: *mut A::Request,
    flag: *mut c_int,
    statuses: *mut A::Status,
) -> c_int {
    // SAFETY: the caller's promise.
    guard::run::<A>(&"MPI_Testall", On::None, || unsafe {
        let mut statuses = Statuses::<A>::new(statuses);
        let outcome = with_requests::<A, _>(requests, count, |requests| {
            call::testall(requests, &mut |at, status| statuses.write(at, status))
        });
        statuses.errors(lengths::of(i64::from(count))?, &outcome);
        poke(flag, c_int::from(*outcome.as_ref().unwrap_or(&true)))?;
        outcome.map(|_| ())
    })
}

/// `MPI_Waitany`
///
/// # Safety
/// The array has `count` requests; `index` and `status` point to one each, or the status is ignored.
pub unsafe fn waitany<A: Abi>(
    count: c_int,
    requests: *mut A::Request,
    index: *mut c_int,
    status: *mut A::Status,
) -> c_int {
    // SAFETY: the caller's promise.
    guard::run::<A>(&"MPI_Waitany", On::None, || unsafe {
        let (found, known) = with_requests::<A, _>(requests, count, call::waitany)?;
        A::status_out(&known, status, false);
        poke(index, found)
    })
}

/// `MPI_Testany`
///
/// # Safety
/// As [`waitany`].
pub unsafe fn testany<A: Abi>(
    count: c_int,
    requests: *mut A::Request,
    index: *mut c_int,
    flag: *mut c_int,
    status: *mut A::Status,
) -> c_int {
    // SAFETY: the caller's promise.
    guard::run::<A>(&"MPI_Testany", On::None, || unsafe {
        let found = with_requests::<A, _>(requests, count, call::testany)?;
        poke(flag, c_int::from(found.is_some()))?;
        if let Some((_, known)) = &found {
            A::status_out(known, status, false);
        }
        poke(index, found.map_or(UNDEFINED, |(index, _)| index))
    })
}

type Some<'a> = &'a mut dyn FnMut(usize, usize, &Status);

/// # Safety
/// The arrays have `count` elements; that of statuses may be ignored.
unsafe fn some<A: Abi>(
    function: &'static &'static str,
    complete: fn(&mut [Request], Some<'_>) -> Result<i32>,
    (count, requests): (c_int, *mut A::Request),
    outcount: *mut c_int,
    (indices, statuses): (*mut c_int, *mut A::Status),
) -> c_int {
    // SAFETY: the caller's promise: as many are told as there are requests, at most.
    guard::run::<A>(function, On::None, || unsafe {
        let (mut statuses, mut told) = (Statuses::<A>::new(statuses), 0);
        let outcome = with_requests::<A, _>(requests, count, |requests| {
            complete(requests, &mut |place, index, status| {
                indices.add(place).write(index as c_int);
                statuses.write(place, status);
                told = told.max(place + 1);
            })
        });
        statuses.errors(told, &outcome);
        poke(outcount, *outcome.as_ref().unwrap_or(&(told as c_int)))?;
        outcome.map(|_| ())
    })
}

/// `MPI_Waitsome`
///
/// # Safety
/// The arrays have `incount` elements; that of statuses may be ignored.
pub unsafe fn waitsome<A: Abi>(
    incount: c_int,
    requests: *mut A::Request,
    outcount: *mut c_int,
    indices: *mut c_int,
    statuses: *mut A::Status,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { some::<A>(&"MPI_Waitsome", call::waitsome, (incount, requests), outcount, (indices, statuses)) }
}

/// `MPI_Testsome`
///
/// # Safety
/// As [`waitsome`].
pub unsafe fn testsome<A: Abi>(
    incount: c_int,
    requests: *mut A::Request,
    outcount: *mut c_int,
    indices: *mut c_int,
    statuses: *mut A::Status,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { some::<A>(&"MPI_Testsome", call::testsome, (incount, requests), outcount, (indices, statuses)) }
}

/// `MPI_Startall`
///
/// # Safety
/// The array has `count` requests.
pub unsafe fn startall<A: Abi>(count: c_int, requests: *mut A::Request) -> c_int {
    // SAFETY: the caller's promise.
    guard::run::<A>(&"MPI_Startall", On::None, || unsafe { with_requests::<A, _>(requests, count, call::startall) })
}

/// Lets `use_them` look at the program's array of requests, which stays as it is.
///
/// # Safety
/// The array has `count` requests.
unsafe fn with_known<A: Abi, T>(
    array: *const A::Request,
    count: c_int,
    use_them: impl FnOnce(&[Request]) -> Result<T>,
) -> Result<T> {
    // SAFETY: the caller's promise.
    use_them(&unsafe { handles_in(array, lengths::of(i64::from(count))?) }?)
}

/// `MPI_Request_get_status_all`
///
/// # Safety
/// The arrays have `count` elements; that of statuses may be ignored.
pub unsafe fn request_get_status_all<A: Abi>(
    count: c_int,
    requests: *const A::Request,
    flag: *mut c_int,
    statuses: *mut A::Status,
) -> c_int {
    // SAFETY: the caller's promise.
    guard::run::<A>(&"MPI_Request_get_status_all", On::None, || unsafe {
        let mut statuses = Statuses::<A>::new(statuses);
        let outcome = with_known::<A, _>(requests, count, |requests| {
            call::request_get_status_all(requests, &mut |at, status| statuses.write(at, status))
        });
        statuses.errors(lengths::of(i64::from(count))?, &outcome);
        poke(flag, c_int::from(*outcome.as_ref().unwrap_or(&true)))?;
        outcome.map(|_| ())
    })
}

/// `MPI_Request_get_status_any`
///
/// # Safety
/// As [`testany`].
pub unsafe fn request_get_status_any<A: Abi>(
    count: c_int,
    requests: *const A::Request,
    index: *mut c_int,
    flag: *mut c_int,
    status: *mut A::Status,
) -> c_int {
    // SAFETY: the caller's promise.
    guard::run::<A>(&"MPI_Request_get_status_any", On::None, || unsafe {
        let found = with_known::<A, _>(requests, count, call::request_get_status_any)?;
        poke(flag, c_int::from(found.is_some()))?;
        if let Some((_, known)) = &found {
            A::status_out(known, status, false);
        }
        poke(index, found.map_or(UNDEFINED, |(index, _)| index))
    })
}

/// `MPI_Request_get_status_some`
///
/// # Safety
/// As [`testsome`].
pub unsafe fn request_get_status_some<A: Abi>(
    incount: c_int,
    requests: *const A::Request,
    outcount: *mut c_int,
    indices: *mut c_int,
    statuses: *mut A::Status,
) -> c_int {
    // SAFETY: the caller's promise: as many are told as there are requests, at most.
    guard::run::<A>(&"MPI_Request_get_status_some", On::None, || unsafe {
        let (mut statuses, mut told) = (Statuses::<A>::new(statuses), 0);
        let outcome = with_known::<A, _>(requests, incount, |requests| {
            call::request_get_status_some(requests, &mut |place, index, status| {
                indices.add(place).write(index as c_int);
                statuses.write(place, status);
                told = told.max(place + 1);
            })
        });
        statuses.errors(told, &outcome);
        poke(outcount, *outcome.as_ref().unwrap_or(&(told as c_int)))?;
        outcome.map(|_| ())
    })
}
