#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod forgotten;
mod life;
mod line;
mod message;
mod permits;
mod places;
mod serve;

pub use life::{Arguments, main};
pub use line::{Helped, Line};
pub use message::{Part, fuzz};
pub use permits::{Permits, USERS_FILE};
pub use places::{CLIENTS_SOCKET, KEEPERS_SOCKET, is_roots_alone, rooms};
