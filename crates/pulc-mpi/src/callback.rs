//! Functions of the program that this crate calls. The doors implement these traits for the function pointers of their ABI. No lock
//! of this crate is held while one of them runs.

use crate::handle::{Comm, Datatype, File, Keyval, Session, Win};
use crate::memory::Addr;
use crate::status::Status;

/// The object that an error is raised on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorOn {
    Comm(Comm),
    Win(Win),
    File(File),
    Session(Session),
    /// No object: the handler of `MPI_COMM_SELF` is asked, or before the beginning the initial one.
    None,
}

/// A reduction of the program.
pub trait UserOp: Send + Sync {
    /// `inout[i] = input[i] op inout[i]`.
    fn apply(&self, input: Addr, inout: Addr, len: i64, datatype: Datatype);
}

/// An error handler of the program.
pub trait UserErrhandler: Send + Sync {
    fn handle(&self, on: ErrorOn, class: i32);
}

/// What happens to an attribute when its object is duplicated or freed. `object` is the handle's number.
pub trait AttrCallbacks: Send + Sync {
    /// The value for the copy; `None`: the copy has no such attribute. `Err`: the code of the program.
    fn copy(&self, object: i32, keyval: Keyval, value: usize) -> Result<Option<usize>, i32>;
    fn delete(&self, object: i32, keyval: Keyval, value: usize) -> Result<(), i32>;
}

/// An operation of the program that looks like a request. Codes are the program's; zero is success.
pub trait GeneralizedRequest: Send + Sync {
    fn query(&self, status: &mut Status) -> i32;
    fn free(&self) -> i32;
    fn cancel(&self, complete: bool) -> i32;
}
