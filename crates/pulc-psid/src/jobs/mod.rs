//! Jobs of this node: launch tree, keepers, stdio to the client, exits, clean-up.

pub mod message;
