//! The way to the daemons for the commands about jobs: the local one, and those inside of `pulc run`s of this user on this
//! machine. Never starts one.

use pulc_control::place::{Place, PlaceError};
use pulc_control::{Client, FrameError, embedded_names};

/// A line to the daemon that this environment means, if it runs.
pub fn connect() -> Result<Option<Client>, FrameError> {
    match Place::of_client() {
        Ok(place) => Client::connect(&place.socket),
        // Without a home there is no place for a daemon, so none runs.
        Err(PlaceError::NoHome) => Ok(None),
        Err(error) => Err(std::io::Error::other(error).into()),
    }
}

/// Lines to all daemons that are inside of a `pulc run`. Those that end meanwhile, or are not this user's, are left out.
pub fn connect_embedded() -> Vec<Client> {
    let names = embedded_names(rustix::process::geteuid().as_raw()).unwrap_or_else(|error| {
        pulc_base::log!(Warn, "pulc", "jobs of `pulc run` without a daemon cannot be looked for: {error}");
        Vec::new()
    });
    names.iter().filter_map(|name| Client::connect(name).ok().flatten()).collect()
}
