//! Rawdata: point-to-point channels with nothing on top of them: ordered, exactly once, no names and no matching. A message lands
//! straight in the buffer that waits for it, in a blocked receive or posted before; what nobody waits for is kept as far as the
//! sender's credit goes, and then pushes back. Between nodes, too, the system puts what is longer than one datagram into that buffer
//! itself, unless frames are encrypted; so while a receive is under way or a buffer is posted, anything may be written to any of it, and
//! only the bytes of the message that it returned with mean something. Called by programs and the C door. Must never use ports or active messages.
//! Source: Warschko, Blum, Tichy, "On the Design and Semantics of User-Space Communication Subsystems" (rawdata protocol).

mod batch;
mod buffer;
mod channel;
mod kept;
mod loan;
mod parts;
mod receive;
mod state;
mod table;
#[cfg(test)]
mod tests;
mod wire;

pub use buffer::{Buffer, Landed};
pub(crate) use channel::has_something;
pub use channel::{Channel, select};
pub use loan::{Loan, View};
pub(crate) use table::RawTable;
