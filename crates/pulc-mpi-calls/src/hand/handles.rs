//! Handles as Fortran's integers and back. In the MPICH ABI a handle is that integer; in the standard one predefined handles are their
//! constants and made ones their numbers. Source: MPI-5.0, 19.3.4 and 20.4.

use crate::abi::Abi;
use crate::mpich::Mpich;
use crate::standard::Standard;
use std::ffi::c_int;

/// Handles that can be integers.
pub trait Integer: Copy {
    fn to_int(self) -> c_int;
    fn from_int(int: c_int) -> Self;
}

impl Integer for c_int {
    fn to_int(self) -> c_int {
        self
    }

    fn from_int(int: c_int) -> c_int {
        int
    }
}

/// A binary interface all of whose handles can be integers.
pub trait Integers:
    Abi<
        Comm: Integer,
        Datatype: Integer,
        Errhandler: Integer,
        File: Integer,
        Group: Integer,
        Info: Integer,
        Message: Integer,
        Op: Integer,
        Request: Integer,
        Session: Integer,
        Win: Integer,
    >
{
}

impl Integers for Mpich {}
impl Integers for Standard {}

macro_rules! conversions {
    ($($kind:ident, $toint:ident, $fromint:ident, $c2f:ident, $f2c:ident;)*) => {$(
        /// # Safety
        /// None is needed.
        pub unsafe fn $toint<A: Integers>(handle: A::$kind) -> c_int {
            handle.to_int()
        }

        /// # Safety
        /// None is needed.
        pub unsafe fn $fromint<A: Integers>(int: c_int) -> A::$kind {
            Integer::from_int(int)
        }

        /// # Safety
        /// None is needed.
        pub unsafe fn $c2f<A: Integers>(handle: A::$kind) -> c_int {
            handle.to_int()
        }

        /// # Safety
        /// None is needed.
        pub unsafe fn $f2c<A: Integers>(int: c_int) -> A::$kind {
            Integer::from_int(int)
        }
    )*};
}

conversions! {
    Comm, comm_toint, comm_fromint, comm_c2f, comm_f2c;
    Errhandler, errhandler_toint, errhandler_fromint, errhandler_c2f, errhandler_f2c;
    File, file_toint, file_fromint, file_c2f, file_f2c;
    Group, group_toint, group_fromint, group_c2f, group_f2c;
    Info, info_toint, info_fromint, info_c2f, info_f2c;
    Message, message_toint, message_fromint, message_c2f, message_f2c;
    Op, op_toint, op_fromint, op_c2f, op_f2c;
    Request, request_toint, request_fromint, request_c2f, request_f2c;
    Session, session_toint, session_fromint, session_c2f, session_f2c;
    Datatype, type_toint, type_fromint, type_c2f, type_f2c;
    Win, win_toint, win_fromint, win_c2f, win_f2c;
}
