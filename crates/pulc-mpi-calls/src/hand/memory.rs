//! Memory that the library gives to the program or gets lent from it. Source: MPI-5.0, 3.6 and 9.2.

use crate::abi::{Abi, Handle};
use crate::convert::{OutInts, poke};
use crate::guard::{self, On};
use pulc_mpi::call;
use pulc_mpi::error::{Class, Error, Result};
use std::alloc::Layout;
use std::ffi::{c_int, c_void};

/// Alignment of memory that the library gives, and room before it that holds its size.
const ALIGN: usize = 64;

fn layout(bytes: usize) -> Result<Layout> {
    let whole = bytes.checked_add(ALIGN).and_then(|whole| Layout::from_size_align(whole, ALIGN).ok());
    whole.ok_or_else(|| Error::new(Class::NO_MEM, format!("{bytes} bytes are more than a process can have")))
}

/// `MPI_Alloc_mem`
///
/// # Safety
/// `place` points to a pointer.
pub unsafe fn alloc_mem<A: Abi>(size: i64, _info: A::Info, place: *mut c_void) -> c_int {
    // SAFETY: the caller's promise; the layout is not empty.
    guard::run::<A>(&"MPI_Alloc_mem", On::None, || unsafe {
        let bytes = usize::try_from(size).map_err(|_| Error::new(Class::ARG, format!("a size of {size} bytes")))?;
        let start = std::alloc::alloc(layout(bytes)?);
        if start.is_null() {
            return Err(Error::new(Class::NO_MEM, format!("there is no memory of {bytes} bytes")));
        }
        start.cast::<usize>().write(bytes);
        poke(place.cast::<*mut u8>(), start.add(ALIGN))
    })
}

/// `MPI_Free_mem`
///
/// # Safety
/// `base` comes from [`alloc_mem`] and was not freed.
pub unsafe fn free_mem<A: Abi>(base: *mut c_void) -> c_int {
    // SAFETY: the caller's promise.
    guard::run::<A>(&"MPI_Free_mem", On::None, || unsafe {
        if !base.is_null() {
            let start = base.cast::<u8>().sub(ALIGN);
            let bytes = start.cast::<usize>().read();
            std::alloc::dealloc(start, layout(bytes)?);
        }
        Ok(())
    })
}

macro_rules! detach {
    (on) => { On::None };
    (on $object:ident $kind:ident) => { On::$kind($object) };
    ($($name:ident, $text:literal, $call:path, $($object:ident: $kind:ident)?;)*) => {$(
        #[doc = concat!("`", $text, "`\n\n# Safety\n`place` points to a pointer.")]
        pub unsafe fn $name<A: Abi>($($object: A::$kind,)? place: *mut c_void, size: OutInts) -> c_int {
            $(let $object = $object.inward();)?
            let on = detach!(on $($object $kind)?);
            // SAFETY: the caller's promise.
            guard::run::<A>(&$text, on, || unsafe {
                let (start, bytes) = $call($($object)?)?;
                poke(place.cast::<*mut u8>(), start.as_ptr())?;
                size.put(bytes)
            })
        }
    )*};
}

detach! {
    buffer_detach, "MPI_Buffer_detach", call::buffer_detach,;
    comm_detach_buffer, "MPI_Comm_detach_buffer", call::comm_detach_buffer, comm: Comm;
    session_detach_buffer, "MPI_Session_detach_buffer", call::session_detach_buffer, session: Session;
}
