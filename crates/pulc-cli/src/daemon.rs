//! The way to the local daemon for the commands about jobs. Never starts one.

use pulc_control::place::{Place, PlaceError};
use pulc_control::{Client, FrameError};

/// A line to the daemon that this environment means, if it runs.
pub fn connect() -> Result<Option<Client>, FrameError> {
    match Place::of_environment() {
        Ok(place) => Client::connect(&place.socket),
        // Without a home there is no place for a daemon, so none runs.
        Err(PlaceError::NoHome) => Ok(None),
        Err(error) => Err(std::io::Error::other(error).into()),
    }
}
