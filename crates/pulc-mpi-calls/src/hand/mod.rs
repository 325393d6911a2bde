//! Bodies whose arguments do not follow the rules of the made ones.

mod environment;
mod handles;
mod statuses;

pub use environment::*;
pub use handles::*;
pub use statuses::*;
