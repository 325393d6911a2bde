//! What the protocol needs of the kernel connection beside the ring. The door implements it by system calls, tests by a model. Nothing
//! here may sleep.

use std::io::IoSliceMut;

/// Error numbers are the C library's.
pub trait Kernel {
    /// Bytes given to the kernel so far, by whatever call of whatever process; bells included.
    fn sent(&self) -> Result<u64, i32>;
    /// Bytes taken from the kernel so far.
    fn taken(&self) -> Result<u64, i32>;
    /// Takes bytes that have arrived, or looks at them.
    fn recv(&self, to: &mut [IoSliceMut<'_>], peek: bool) -> Result<usize, i32>;
    /// Sends one byte.
    fn ring(&self) -> Result<(), i32>;
    /// Tells the other end's kernel at once what has arrived. It waits for bytes that go back otherwise, and where these go by a ring it
    /// waits in vain, until the sender may not send a bell more.
    fn acknowledge(&self);
    /// Whether the kernel surely takes so many bytes without waiting.
    fn has_room(&self, bytes: usize) -> bool;
    /// The calling thread; never zero.
    fn me(&self) -> u32;
    /// The core that the thread is on.
    fn cpu(&self) -> u32;
    fn is_alive(&self, thread: u32) -> bool;
}

/// Error numbers that the protocol itself distinguishes.
pub mod errno {
    use rustix::io::Errno;
    pub const AGAIN: i32 = Errno::AGAIN.raw_os_error();
    pub const INTR: i32 = Errno::INTR.raw_os_error();
    pub const CONNRESET: i32 = Errno::CONNRESET.raw_os_error();
}

/// What somebody who is about to wait finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// There is something to take already.
    No,
    /// The kernel will say when there is.
    Yes,
}
