//! Bodies whose arguments do not follow the rules of the made ones.

mod attributes;
mod callbacks;
mod completions;
mod environment;
mod graphs;
mod handles;
mod infos;
mod memory;
mod sessions;
mod statuses;
mod types;

pub use attributes::*;
pub use callbacks::*;
pub use completions::*;
pub use environment::*;
pub use graphs::*;
pub use handles::*;
pub use infos::*;
pub use memory::*;
pub use sessions::*;
pub use statuses::*;
pub use types::*;
