//! Where a daemon of several users is found: sockets in a directory that only root may write to. Whoever connects believes the place, since
//! anybody may take an abstract name, and who answers there is nobody in particular.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// In the directory: for clients, and for keepers that look for a daemon that was started again.
pub const CLIENTS_SOCKET: &str = "psid";
pub const KEEPERS_SOCKET: &str = "keepers";

/// Where users make the directories of their jobs: beside the directory of the daemon's account, which nobody else may enter.
pub fn rooms(state_dir: &Path) -> PathBuf {
    state_dir.with_extension("jobs")
}

/// Whether only root may write there.
pub fn is_roots_alone(data: &Metadata) -> bool {
    data.uid() == 0 && data.mode() & 0o022 == 0
}
