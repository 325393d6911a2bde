//! Frames between processes of one node through sealed shared memory. Called by the handler.
