//! What a call that failed says: the class that the standard gives it, and a text with the value, the limit and what to do next.
//! Made everywhere in this crate; error handlers are called by the doors, never here.

use crate::handle::Comm;
use std::borrow::Cow;

/// Why a call failed, in the standard's words. Also the code that the call returns.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Class(pub i32);

macro_rules! classes {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        impl Class {
            $(pub const $name: Class = Class($number);)*

            /// What the class means; `None` for numbers that are no class of the standard.
            pub fn text(self) -> Option<&'static str> {
                match self.0 {
                    $($number => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

classes! {
    SUCCESS = 0, "no error";
    BUFFER = 1, "invalid buffer pointer";
    COUNT = 2, "invalid count argument";
    TYPE = 3, "invalid datatype argument";
    TAG = 4, "invalid tag argument";
    COMM = 5, "invalid communicator";
    RANK = 6, "invalid rank";
    ROOT = 7, "invalid root";
    GROUP = 8, "invalid group";
    OP = 9, "invalid operation";
    TOPOLOGY = 10, "invalid topology";
    DIMS = 11, "invalid dimension argument";
    ARG = 12, "invalid argument of some other kind";
    UNKNOWN = 13, "unknown error";
    TRUNCATE = 14, "message truncated on receive";
    OTHER = 15, "known error not in this list";
    INTERN = 16, "internal error";
    IN_STATUS = 17, "error code is in status";
    PENDING = 18, "pending request";
    REQUEST = 19, "invalid request";
    ACCESS = 20, "permission denied";
    AMODE = 21, "error related to the access mode";
    BAD_FILE = 22, "invalid file name";
    CONVERSION = 23, "an error occurred in a user-supplied data conversion function";
    DUP_DATAREP = 24, "this data representation is already defined";
    FILE_EXISTS = 25, "file exists";
    FILE_IN_USE = 26, "file operation could not be completed, as the file is currently open";
    FILE = 27, "invalid file handle";
    INFO = 28, "invalid info argument";
    INFO_KEY = 29, "info key is longer than allowed";
    INFO_VALUE = 30, "info value is longer than allowed";
    INFO_NOKEY = 31, "invalid key passed to info delete";
    IO = 32, "other input or output error";
    NAME = 33, "service name is not published";
    NO_MEM = 34, "no memory left";
    NOT_SAME = 35, "collective argument not identical on all processes";
    NO_SPACE = 36, "not enough space";
    NO_SUCH_FILE = 37, "file does not exist";
    PORT = 38, "invalid port name";
    QUOTA = 39, "quota exceeded";
    READ_ONLY = 40, "read-only file or file system";
    SERVICE = 41, "invalid service name";
    SPAWN = 42, "error in spawning processes";
    UNSUPPORTED_DATAREP = 43, "unsupported data representation";
    UNSUPPORTED_OPERATION = 44, "unsupported operation";
    WIN = 45, "invalid window";
    BASE = 46, "invalid base address";
    LOCKTYPE = 47, "invalid lock type";
    KEYVAL = 48, "invalid attribute key";
    RMA_CONFLICT = 49, "conflicting accesses to window";
    RMA_SYNC = 50, "wrong synchronization of one-sided calls";
    SIZE = 51, "invalid size argument";
    DISP = 52, "invalid displacement argument";
    ASSERT = 53, "invalid assert argument";
    RMA_RANGE = 55, "target memory is not part of the window";
    RMA_ATTACH = 56, "memory cannot be attached";
    RMA_SHARED = 57, "memory cannot be shared";
    RMA_FLAVOR = 58, "passed window has the wrong flavor";
    SESSION = 75, "invalid session";
    PROC_ABORTED = 76, "trying to communicate with aborted processes";
    VALUE_TOO_LARGE = 77, "value is too large to store";
    ERRHANDLER = 80, "invalid error handler";
    ABI = 81, "the ABI of Fortran is set already";
}

impl Class {
    /// Codes and classes that programs add are larger.
    pub const LAST: i32 = 0x3fff_ffff;
}

/// A failed call.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{text}")]
pub struct Error {
    pub class: Class,
    pub text: Cow<'static, str>,
    /// The communicator of the request that failed.
    pub on: Option<Comm>,
}

/// What every call returns.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    #[cold]
    pub fn new(class: Class, text: impl Into<Cow<'static, str>>) -> Error {
        Error { class, text: text.into(), on: None }
    }

    /// For functions of the standard that are not there yet.
    #[cold]
    pub fn unsupported(function: &str) -> Error {
        Error::new(Class::UNSUPPORTED_OPERATION, format!("{function} is not there yet; see CAVEATS.md"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_its_text_and_keeps_its_class() {
        let error = Error::new(Class::RANK, format!("rank {} of a communicator with {} processes", 7, 4));
        assert_eq!(error.to_string(), "rank 7 of a communicator with 4 processes");
        assert_eq!(error.class, Class(6));
        assert_eq!(Class::TRUNCATE.text(), Some("message truncated on receive"));
        assert_eq!(Class(1000).text(), None);
    }
}
