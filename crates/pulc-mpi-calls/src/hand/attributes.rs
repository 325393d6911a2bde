//! Attributes: keys with the program's callbacks, and values. A predefined attribute is handed out as a pointer to its number, one of the
//! program as it was put in. Fortran's callbacks take their arguments by address; its library says how to call them.
//! Source: MPI-5.0, 7.7.

use crate::abi::{Abi, Handle};
use crate::convert::poke;
use crate::guard::{self, On};
use crate::maps::Set;
use pulc_mpi::call::{self, Attribute};
use pulc_mpi::callback::AttrCallbacks;
use pulc_mpi::error::Result;
use pulc_mpi::handle::{Comm, Datatype, Keyval};
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Objects that have attributes.
pub trait Holder<A: Abi>: 'static {
    type Raw: Copy;

    fn raw(object: i32) -> Self::Raw;
}

impl<A: Abi> Holder<A> for Comm {
    type Raw = A::Comm;

    fn raw(object: i32) -> A::Comm {
        A::Comm::outward(Comm(object))
    }
}

impl<A: Abi> Holder<A> for Datatype {
    type Raw = A::Datatype;

    fn raw(object: i32) -> A::Datatype {
        A::Datatype::outward(Datatype(object))
    }
}

type Copy_<R> = unsafe extern "C" fn(R, c_int, *mut c_void, *mut c_void, *mut c_void, *mut c_int) -> c_int;
type Delete<R> = unsafe extern "C" fn(R, c_int, *mut c_void, *mut c_void) -> c_int;
/// How MPICH's Fortran libraries have their callbacks called: by a function of theirs that knows how.
pub type CopyProxy =
    unsafe extern "C" fn(*mut c_void, c_int, c_int, *mut c_void, usize, c_int, *mut usize, *mut c_int) -> c_int;
pub type DeleteProxy = unsafe extern "C" fn(*mut c_void, c_int, c_int, usize, c_int, *mut c_void) -> c_int;

/// Said later than the key is made, or never.
type Proxies = Arc<OnceLock<(CopyProxy, DeleteProxy)>>;

/// Kind of a value that Fortran put in: an integer as wide as an address.
const FORTRAN: c_int = 1;

struct Callbacks<A: Abi, H: Holder<A>> {
    copy: usize,
    delete: usize,
    state: usize,
    proxies: Proxies,
    object: PhantomData<fn(A, H)>,
}

/// A copy function that copies the value as it is; the MPICH ABI has a real function for it.
const DUP: usize = 1;

impl<A: Abi, H: Holder<A>> AttrCallbacks for Callbacks<A, H> {
    fn copy(&self, object: i32, keyval: Keyval, value: usize) -> std::result::Result<Option<usize>, i32> {
        let key = A::constant_out(Set::Keyval, keyval.0);
        let (mut new, mut flag) = (0_usize, 0);
        let state = std::ptr::with_exposed_provenance_mut(self.state);
        let code = match (self.copy, self.proxies.get()) {
            (0, _) => return Ok(None),
            (DUP, _) => return Ok(Some(value)),
            // SAFETY: Fortran's library gave this proxy for this function of the program.
            (copy, Some((proxy, _))) => unsafe {
                proxy(pointer(copy), object, key, state, value, FORTRAN, &raw mut new, &raw mut flag)
            },
            // SAFETY: the program gave this function for objects of this kind; the pointers live through the call.
            (copy, None) => unsafe {
                let copy = std::mem::transmute::<*mut c_void, Copy_<H::Raw>>(pointer(copy));
                copy(H::raw(object), key, state, pointer(value), (&raw mut new).cast(), &raw mut flag)
            },
        };
        match (code, flag) {
            (0, 0) => Ok(None),
            (0, _) => Ok(Some(new)),
            (code, _) => Err(A::constant_in(Set::ErrorClass, code)),
        }
    }

    fn delete(&self, object: i32, keyval: Keyval, value: usize) -> std::result::Result<(), i32> {
        let key = A::constant_out(Set::Keyval, keyval.0);
        let state = std::ptr::with_exposed_provenance_mut(self.state);
        let code = match (self.delete, self.proxies.get()) {
            (0, _) => 0,
            // SAFETY: Fortran's library gave this proxy for this function of the program.
            (delete, Some((_, proxy))) => unsafe { proxy(pointer(delete), object, key, value, FORTRAN, state) },
            // SAFETY: the program gave this function for objects of this kind.
            (delete, None) => unsafe {
                let delete = std::mem::transmute::<*mut c_void, Delete<H::Raw>>(pointer(delete));
                delete(H::raw(object), key, pointer(value), state)
            },
        };
        if code == 0 { Ok(()) } else { Err(A::constant_in(Set::ErrorClass, code)) }
    }
}

fn pointer(address: usize) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(address)
}

/// Keys whose callbacks Fortran may still explain.
static PROXIES: Mutex<BTreeMap<i32, Proxies>> = Mutex::new(BTreeMap::new());

/// Says how the callbacks of a key are to be called: `MPII_Keyval_set_proxy` of the MPICH ABI.
pub fn set_proxies(keyval: c_int, copy: CopyProxy, delete: DeleteProxy) {
    let known = PROXIES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(proxies) = known.get(&keyval) {
        // Said twice: the first word holds.
        let _ = proxies.set((copy, delete));
    }
}

fn create<A: Abi, H: Holder<A>>(
    (copy, delete): (*mut c_void, *mut c_void),
    state: *mut c_void,
    make: fn(Arc<dyn AttrCallbacks>) -> Result<Keyval>,
) -> Result<c_int> {
    let proxies = Arc::new(OnceLock::new());
    let callbacks = Callbacks::<A, H> {
        copy: copy.expose_provenance(),
        delete: delete.expose_provenance(),
        state: state.expose_provenance(),
        proxies: proxies.clone(),
        object: PhantomData,
    };
    let keyval = make(Arc::new(callbacks))?;
    PROXIES.lock().unwrap_or_else(PoisonError::into_inner).insert(keyval.0, proxies);
    Ok(A::constant_out(Set::Keyval, keyval.0))
}

/// `MPI_Comm_create_keyval`
///
/// # Safety
/// The functions have the types that the standard gives them.
pub unsafe fn comm_create_keyval<A: Abi>(
    copy: *mut c_void,
    delete: *mut c_void,
    keyval: *mut c_int,
    state: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    guard::run::<A>(&"MPI_Comm_create_keyval", On::None, || unsafe {
        poke(keyval, create::<A, Comm>((copy, delete), state, call::comm_create_keyval)?)
    })
}

/// `MPI_Keyval_create`, its name before MPI-2.
///
/// # Safety
/// As [`comm_create_keyval`].
pub unsafe fn keyval_create<A: Abi>(
    copy: *mut c_void,
    delete: *mut c_void,
    keyval: *mut c_int,
    state: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { comm_create_keyval::<A>(copy, delete, keyval, state) }
}

/// `MPI_Type_create_keyval`
///
/// # Safety
/// As [`comm_create_keyval`].
pub unsafe fn type_create_keyval<A: Abi>(
    copy: *mut c_void,
    delete: *mut c_void,
    keyval: *mut c_int,
    state: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    guard::run::<A>(&"MPI_Type_create_keyval", On::None, || unsafe {
        poke(keyval, create::<A, Datatype>((copy, delete), state, call::type_create_keyval)?)
    })
}

/// Numbers that programs hold pointers to, one for each predefined attribute of communicators.
static NUMBERS: [AtomicI32; 8] = [const { AtomicI32::new(0) }; 8];

/// The number of a predefined attribute in this interface.
fn predefined<A: Abi>(keyval: Keyval, number: i32) -> c_int {
    use pulc_mpi::consts::{HOST, IO, LASTUSEDCODE};
    match keyval.0 {
        HOST | IO => A::constant_out(Set::Rank, number),
        // The last code of the standard is another one in each interface; those that programs add are the same.
        LASTUSEDCODE if number == pulc_mpi::error::Class::LAST => A::LAST_CODE,
        _ => number,
    }
}

fn pointer_to_number<A: Abi>(keyval: Keyval, number: i32) -> usize {
    let place = &NUMBERS[keyval.0 as usize / 2 % NUMBERS.len()];
    place.store(predefined::<A>(keyval, number), Relaxed);
    place.as_ptr().expose_provenance()
}

/// How a value is asked for: C gets pointers to predefined numbers, Fortran the numbers themselves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum View {
    C,
    Fortran,
}

/// The value of an attribute of a communicator.
fn comm_value<A: Abi>(comm: Comm, keyval: Keyval, view: View) -> Result<Option<usize>> {
    Ok(call::comm_get_attr(comm, keyval)?.map(|attribute| match (attribute, view) {
        (Attribute::Value(value), _) => value,
        (Attribute::Predefined(number), View::C) => pointer_to_number::<A>(keyval, number),
        (Attribute::Predefined(number), View::Fortran) => predefined::<A>(keyval, number) as isize as usize,
    }))
}

/// # Safety
/// `value` points to a pointer, `flag` to an int.
unsafe fn give(found: Option<usize>, value: *mut c_void, flag: *mut c_int) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe {
        poke(flag, c_int::from(found.is_some()))?;
        match found {
            Some(found) => poke(value.cast::<usize>(), found),
            None => Ok(()),
        }
    }
}

/// `MPI_Comm_get_attr`
///
/// # Safety
/// `value` points to a pointer, `flag` to an int.
pub unsafe fn comm_get_attr<A: Abi>(comm: A::Comm, keyval: c_int, value: *mut c_void, flag: *mut c_int) -> c_int {
    let comm = comm.inward();
    // SAFETY: the caller's promise.
    guard::run::<A>(&"MPI_Comm_get_attr", On::Comm(comm), || unsafe {
        let keyval = Keyval(A::constant_in(Set::Keyval, keyval));
        give(comm_value::<A>(comm, keyval, View::C)?, value, flag)
    })
}

/// The same for Fortran, which gets the numbers of predefined attributes themselves.
///
/// # Safety
/// As [`comm_get_attr`].
pub unsafe fn comm_get_attr_fortran<A: Abi>(
    comm: A::Comm,
    keyval: c_int,
    value: *mut c_void,
    flag: *mut c_int,
) -> c_int {
    let comm = comm.inward();
    // SAFETY: the caller's promise.
    guard::run::<A>(&"MPI_Comm_get_attr", On::Comm(comm), || unsafe {
        let keyval = Keyval(A::constant_in(Set::Keyval, keyval));
        give(comm_value::<A>(comm, keyval, View::Fortran)?, value, flag)
    })
}

/// `MPI_Attr_get`, its name before MPI-2.
///
/// # Safety
/// As [`comm_get_attr`].
pub unsafe fn attr_get<A: Abi>(comm: A::Comm, keyval: c_int, value: *mut c_void, flag: *mut c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { comm_get_attr::<A>(comm, keyval, value, flag) }
}

/// `MPI_Comm_set_attr`
///
/// # Safety
/// None is needed: the value is kept, not followed.
pub unsafe fn comm_set_attr<A: Abi>(comm: A::Comm, keyval: c_int, value: *mut c_void) -> c_int {
    let comm = comm.inward();
    guard::run::<A>(&"MPI_Comm_set_attr", On::Comm(comm), || {
        call::comm_set_attr(comm, Keyval(A::constant_in(Set::Keyval, keyval)), value.expose_provenance())
    })
}

/// `MPI_Attr_put`, its name before MPI-2.
///
/// # Safety
/// As [`comm_set_attr`].
pub unsafe fn attr_put<A: Abi>(comm: A::Comm, keyval: c_int, value: *mut c_void) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { comm_set_attr::<A>(comm, keyval, value) }
}

/// `MPI_Type_get_attr`
///
/// # Safety
/// `value` points to a pointer, `flag` to an int.
pub unsafe fn type_get_attr<A: Abi>(
    datatype: A::Datatype,
    keyval: c_int,
    value: *mut c_void,
    flag: *mut c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    guard::run::<A>(&"MPI_Type_get_attr", On::None, || unsafe {
        give(call::type_get_attr(datatype.inward(), Keyval(A::constant_in(Set::Keyval, keyval)))?, value, flag)
    })
}

/// `MPI_Type_set_attr`
///
/// # Safety
/// None is needed: the value is kept, not followed.
pub unsafe fn type_set_attr<A: Abi>(datatype: A::Datatype, keyval: c_int, value: *mut c_void) -> c_int {
    guard::run::<A>(&"MPI_Type_set_attr", On::None, || {
        let keyval = Keyval(A::constant_in(Set::Keyval, keyval));
        call::type_set_attr(datatype.inward(), keyval, value.expose_provenance())
    })
}
