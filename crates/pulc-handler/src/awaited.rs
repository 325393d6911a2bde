//! What a wait of one interface can look at that belongs to another one: a request of MPI beside ports, say. The interface that has it
//! implements this, the one that waits asks; neither knows the other. Must never wait or send in a look.

use crate::engine::Engine;

/// Something of another interface's that a thread waits for.
pub trait Awaited {
    /// Asked with the engine locked whenever something has come.
    fn look(&self, engine: &mut Engine) -> Look;

    /// Does what has to be done for it without the engine locked, and does not wait. Called before every wait, and after a look that
    /// asked for it.
    fn go_on(&self);
}

/// What a look has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look {
    Nothing,
    Ready,
    /// Something came that [`Awaited::go_on`] must see.
    GoOn,
}
