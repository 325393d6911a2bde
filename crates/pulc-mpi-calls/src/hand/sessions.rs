//! Sessions: names of process sets, and error handlers. Source: MPI-5.0, 11.3 and 9.3.4.

use crate::abi::{Abi, Handle};
use crate::convert::{NOWHERE, peek, poke, text_cut};
use crate::guard::{self, On};
use crate::lengths;
use crate::maps::Set;
use pulc_mpi::call;
use pulc_mpi::callback::{ErrorOn, UserErrhandler};
use pulc_mpi::error::{Class, Error};
use pulc_mpi::handle::Session;
use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

/// `MPI_Session_get_nth_pset`: `pset_len` is the room, and becomes the room that the whole name needs.
///
/// # Safety
/// `pset_name` has room for `pset_len` bytes.
pub unsafe fn session_get_nth_pset<A: Abi>(
    session: A::Session,
    info: A::Info,
    n: c_int,
    pset_len: *mut c_int,
    pset_name: *mut c_char,
) -> c_int {
    let session = session.inward();
    // SAFETY: the caller's promise.
    guard::run::<A>(&"MPI_Session_get_nth_pset", On::Session(session), || unsafe {
        let name = call::session_get_nth_pset(session, info.inward(), n)?;
        let room = lengths::of(peek(pset_len.cast_const())?.into())?;
        if room > 0 {
            text_cut(pset_name, room, NOWHERE, &name)?;
        }
        poke(pset_len, name.len() as c_int + 1)
    })
}

type ErrorFunction<A> = unsafe extern "C" fn(*mut <A as Abi>::Session, *mut c_int, ...);

/// An error handler of sessions.
struct SessionErrors<A: Abi>(ErrorFunction<A>);

impl<A: Abi> UserErrhandler for SessionErrors<A> {
    fn handle(&self, on: ErrorOn, class: i32) {
        let session = match on {
            ErrorOn::Session(session) => session,
            _ => Session::NULL,
        };
        let mut handle = A::Session::outward(session);
        let mut code = A::constant_out(Set::ErrorClass, class);
        // SAFETY: the program gave this function for sessions of this interface; both pointers live through the call.
        unsafe { (self.0)(&raw mut handle, &raw mut code) }
    }
}

/// `MPI_Session_create_errhandler`
///
/// # Safety
/// The function has the type that the standard gives it.
pub unsafe fn session_create_errhandler<A: Abi>(function: *mut c_void, errhandler: *mut A::Errhandler) -> c_int {
    // SAFETY: the caller's promise; a function and a pointer have one size.
    guard::run::<A>(&"MPI_Session_create_errhandler", On::None, || unsafe {
        let function: Option<ErrorFunction<A>> = std::mem::transmute(function);
        let function = function.ok_or_else(|| Error::new(Class::ARG, "the error handler is a null pointer"))?;
        let made = call::session_create_errhandler(Arc::new(SessionErrors::<A>(function)))?;
        poke(errhandler, Handle::outward(made))
    })
}
