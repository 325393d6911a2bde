//! What interfaces use that count their own credit: one try to send a message of one frame, outside the handler's credit, and
//! a word to the threads that sleep. Called by interfaces with the engine locked; never blocks.

use crate::engine::{Engine, Outcome};
use crate::error::SendFault;
use crate::process::{Process, Shared};
use crate::wire::FREE;
use pulc_base::{Proto, Rank};

impl Engine {
    /// Longest body of [`Engine::try_uncounted`], whoever it goes to.
    #[inline]
    pub fn uncounted_max(&self) -> usize {
        self.whole_max()
    }

    /// Sends a message of one frame outside all credit; whether the device had room. `body` is at most
    /// [`Engine::uncounted_max`] bytes long.
    #[inline]
    pub fn try_uncounted(&mut self, dst: Rank, proto: Proto, header: &[u8], body: &[u8]) -> Result<bool, SendFault> {
        Ok(self.try_whole(dst, proto, FREE, header, body)? == Outcome::Sent)
    }
}

impl Process {
    /// Something has changed that other threads of this process may wait for: those that sleep look again.
    #[inline]
    pub fn announce(&self, shared: &Shared) {
        self.tell_others(shared);
    }
}
