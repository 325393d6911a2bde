//! Functions of the program that the library calls: error handlers, reductions, generalized requests. Each is kept with the binary
//! interface that it was given in, and called with that one's handles. A C++ exception must not leave one of them.
//! Source: MPI-5.0, 6.9.5, 9.3 and 13.2.

use crate::abi::{Abi, Handle};
use crate::convert::poke;
use crate::guard::{self, On};
use crate::maps::Set;
use pulc_mpi::call;
use pulc_mpi::callback::{ErrorOn, GeneralizedRequest, UserErrhandler, UserOp};
use pulc_mpi::error::{Class, Error, Result};
use pulc_mpi::handle::{Comm, Datatype};
use pulc_mpi::memory::Addr;
use pulc_mpi::status::Status;
use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::sync::Arc;

fn null(what: &str) -> Error {
    Error::new(Class::ARG, format!("{what} is a null pointer; give a function"))
}

type ErrorFunction<A> = unsafe extern "C" fn(*mut <A as Abi>::Comm, *mut c_int, ...);

/// An error handler of communicators.
struct CommErrors<A: Abi>(ErrorFunction<A>);

impl<A: Abi> UserErrhandler for CommErrors<A> {
    fn handle(&self, on: ErrorOn, class: i32) {
        let comm = match on {
            ErrorOn::Comm(comm) => comm,
            _ => Comm::SELF,
        };
        let mut handle = A::Comm::outward(comm);
        let mut code = A::constant_out(Set::ErrorClass, class);
        // SAFETY: the program gave this function for communicators of this interface; both pointers live through the call.
        unsafe { (self.0)(&raw mut handle, &raw mut code) }
    }
}

/// `MPI_Comm_create_errhandler`
///
/// # Safety
/// The function has the type that the standard gives it.
pub unsafe fn comm_create_errhandler<A: Abi>(function: *mut c_void, errhandler: *mut A::Errhandler) -> c_int {
    // SAFETY: the caller's promise; a function and a pointer have one size.
    guard::run::<A>(&"MPI_Comm_create_errhandler", On::None, || unsafe {
        let function: Option<ErrorFunction<A>> = std::mem::transmute(function);
        let function = function.ok_or_else(|| null("the error handler"))?;
        let made = call::comm_create_errhandler(Arc::new(CommErrors::<A>(function)))?;
        poke(errhandler, Handle::outward(made))
    })
}

/// `MPI_Errhandler_create`, its name before MPI-2.
///
/// # Safety
/// As [`comm_create_errhandler`].
pub unsafe fn errhandler_create<A: Abi>(function: *mut c_void, errhandler: *mut A::Errhandler) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { comm_create_errhandler::<A>(function, errhandler) }
}

type SmallOp<A> = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_int, *mut <A as Abi>::Datatype);
type LargeOp<A> = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut i64, *mut <A as Abi>::Datatype);

/// A reduction of the program, in either form.
enum Reduction<A: Abi> {
    Small(SmallOp<A>),
    Large(LargeOp<A>),
}

impl<A: Abi> UserOp for Reduction<A> {
    fn apply(&self, input: Addr, inout: Addr, len: i64, datatype: Datatype) {
        let mut handle = A::Datatype::outward(datatype);
        let (input, inout) = (input.as_ptr().cast(), inout.as_ptr().cast());
        // SAFETY: the program gave this function for `len` elements of this type at both addresses; the other two live through
        // the call. The core cuts what is longer than an int.
        unsafe {
            match self {
                Reduction::Small(function) => {
                    let mut len = c_int::try_from(len).unwrap_or(c_int::MAX);
                    function(input, inout, &raw mut len, &raw mut handle);
                }
                Reduction::Large(function) => {
                    let mut len = len;
                    function(input, inout, &raw mut len, &raw mut handle);
                }
            }
        }
    }
}

/// `MPI_Op_create`
///
/// # Safety
/// The function has the type that the standard gives it for this form.
pub unsafe fn op_create<A: Abi>(function: *mut c_void, commute: c_int, op: *mut A::Op, large: bool) -> c_int {
    // SAFETY: the caller's promise; a function and a pointer have one size.
    guard::run::<A>(&"MPI_Op_create", On::None, || unsafe {
        if function.is_null() {
            return Err(null("the reduction"));
        }
        let reduction = match large {
            true => Reduction::<A>::Large(std::mem::transmute::<*mut c_void, LargeOp<A>>(function)),
            false => Reduction::<A>::Small(std::mem::transmute::<*mut c_void, SmallOp<A>>(function)),
        };
        poke(op, Handle::outward(call::op_create(Arc::new(reduction), commute != 0)?))
    })
}

type Query<A> = unsafe extern "C" fn(*mut c_void, *mut <A as Abi>::Status) -> c_int;
type Free = unsafe extern "C" fn(*mut c_void) -> c_int;
type Cancel = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;

struct Generalized<A: Abi> {
    query: Option<Query<A>>,
    free: Option<Free>,
    cancel: Option<Cancel>,
    state: *mut c_void,
    interface: PhantomData<fn(A)>,
}

// SAFETY: the state belongs to the program, which is told in the standard that its functions run in whatever thread completes the
// request.
unsafe impl<A: Abi> Send for Generalized<A> {}
// SAFETY: as above.
unsafe impl<A: Abi> Sync for Generalized<A> {}

impl<A: Abi> GeneralizedRequest for Generalized<A> {
    fn query(&self, status: &mut Status) -> i32 {
        let Some(query) = self.query else { return 0 };
        let mut given = A::new_status(status);
        // SAFETY: the program gave this function with this state; the status lives through the call.
        let code = unsafe { query(self.state, &raw mut given) };
        *status = A::status_in(&given);
        A::constant_in(Set::ErrorClass, code)
    }

    fn free(&self) -> i32 {
        // SAFETY: the program gave this function with this state.
        self.free.map_or(0, |free| A::constant_in(Set::ErrorClass, unsafe { free(self.state) }))
    }

    fn cancel(&self, complete: bool) -> i32 {
        // SAFETY: the program gave this function with this state.
        let cancelled = self.cancel.map(|cancel| unsafe { cancel(self.state, c_int::from(complete)) });
        cancelled.map_or(0, |code| A::constant_in(Set::ErrorClass, code))
    }
}

/// `MPI_Grequest_start`
///
/// # Safety
/// The functions have the types that the standard gives them.
pub unsafe fn grequest_start<A: Abi>(
    query: *mut c_void,
    free: *mut c_void,
    cancel: *mut c_void,
    state: *mut c_void,
    request: *mut A::Request,
) -> c_int {
    // SAFETY: the caller's promise; a function and a pointer have one size.
    guard::run::<A>(&"MPI_Grequest_start", On::None, || unsafe {
        let operation = Generalized::<A> {
            query: std::mem::transmute::<*mut c_void, Option<Query<A>>>(query),
            free: std::mem::transmute::<*mut c_void, Option<Free>>(free),
            cancel: std::mem::transmute::<*mut c_void, Option<Cancel>>(cancel),
            state,
            interface: PhantomData,
        };
        let started: Result<_> = call::grequest_start(Arc::new(operation));
        poke(request, Handle::outward(started?))
    })
}
