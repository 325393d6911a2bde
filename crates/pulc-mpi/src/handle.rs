//! Handles: one newtype per kind of object, numbers laid out like those of the MPICH ABI, so that its door maps nothing. Used by
//! every room and by the doors; never looks anything up.
//!
//! ```text
//!  31 30 | 29 ... 26 | 25 ............ 0
//!  how   | kind      | index
//! ```
//! `how` is 0 for null handles, 1 for predefined objects, 2 for those made by the program.

/// Bits of the index.
const INDEX_BITS: u32 = 26;
const INDEX_MASK: i32 = (1 << INDEX_BITS) - 1;
const MADE: u32 = 2 << 30;

/// What a handle names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Kind {
    Comm = 1,
    Group = 2,
    Datatype = 3,
    File = 4,
    Errhandler = 5,
    Op = 6,
    Info = 7,
    Win = 8,
    Keyval = 9,
    Request = 0xb,
    Session = 0xe,
}

/// Most objects of one kind.
pub const INDEX_MAX: usize = INDEX_MASK as usize;

/// The handle of an object made by the program.
#[inline]
pub const fn made(kind: Kind, index: u32) -> i32 {
    (MADE | (kind as u32) << INDEX_BITS | index & INDEX_MASK as u32) as i32
}

/// The index of an object made by the program; `None` for null, predefined and foreign handles.
#[inline]
pub const fn made_index(kind: Kind, handle: i32) -> Option<usize> {
    if (handle as u32) >> INDEX_BITS == (MADE >> INDEX_BITS) | kind as u32 {
        Some((handle & INDEX_MASK) as usize)
    } else {
        None
    }
}

macro_rules! handles {
    ($($(#[$text:meta])* $name:ident, null $null:expr;)*) => {$(
        $(#[$text])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(transparent)]
        pub struct $name(pub i32);

        impl $name {
            pub const NULL: $name = $name($null);

            #[inline]
            pub fn is_null(self) -> bool {
                self == Self::NULL
            }
        }
    )*};
}

handles! {
    /// A communicator.
    Comm, null 0x0400_0000;
    /// A group of processes.
    Group, null 0x0800_0000;
    /// A datatype.
    Datatype, null 0x0c00_0000;
    /// A reduction.
    Op, null 0x1800_0000;
    /// An operation under way, or a persistent one.
    Request, null 0x2c00_0000;
    /// A message that was matched by a probe.
    Message, null 0x2c00_0000;
    /// What happens on errors.
    Errhandler, null 0x1400_0000;
    /// Hints.
    Info, null 0x1c00_0000;
    /// Key of an attribute.
    Keyval, null 0x2400_0000;
    /// A window of one-sided communication.
    Win, null 0x2000_0000;
    /// A file.
    File, null 0;
    /// A session.
    Session, null 0x3800_0000;
}

impl Comm {
    pub const WORLD: Comm = Comm(0x4400_0000);
    pub const SELF: Comm = Comm(0x4400_0001);
}

impl Datatype {
    pub const BYTE: Datatype = Datatype(0x4c00_010d);
    pub const UINT64_T: Datatype = Datatype(0x4c00_083e);
}

impl Op {
    pub const MIN: Op = Op(0x5800_0002);
    pub const BAND: Op = Op(0x5800_0006);
}

impl Group {
    pub const EMPTY: Group = Group(0x4800_0000);
}

impl Message {
    /// What a probe of `PROC_NULL` gives.
    pub const NO_PROC: Message = Message(0x6c00_0000);
}

impl Request {
    /// A send that was complete when it began: nothing is kept about it.
    pub const SENT: Request = Request(0x6c00_0001);
}

impl Errhandler {
    pub const ERRORS_ARE_FATAL: Errhandler = Errhandler(0x5400_0000);
    pub const ERRORS_RETURN: Errhandler = Errhandler(0x5400_0001);
    pub const ERRORS_ABORT: Errhandler = Errhandler(0x5400_0003);
}

impl Info {
    pub const ENV: Info = Info(0x5c00_0001);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_handles_are_never_null_predefined_or_of_another_kind() {
        let handle = made(Kind::Comm, 5);
        assert_eq!(made_index(Kind::Comm, handle), Some(5));
        assert_eq!(made_index(Kind::Group, handle), None);
        assert_eq!(made_index(Kind::Comm, Comm::WORLD.0), None);
        assert_eq!(made_index(Kind::Request, Request::NULL.0), None);
        assert_eq!(made(Kind::Request, 3) as u32, 0xac00_0003);
    }
}
