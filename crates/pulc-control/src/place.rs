//! Where the daemon of this user lives: its state directory and its socket. Clients and the daemon ask here, so that they agree.
//! Several daemons of one user on one machine are told apart by `PULC_INSTANCE` or by `PULC_STATE_DIR`. Creates nothing.

use crate::client::{ENV_INSTANCE, socket_name};
use std::path::{Path, PathBuf};

/// State directory of the daemon, instead of the one in the home directory.
pub const ENV_STATE_DIR: &str = "PULC_STATE_DIR";

const INSTANCE_MAX: usize = 32;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlaceError {
    #[error("PULC_INSTANCE={0:?}: use 1 to {INSTANCE_MAX} letters, digits, '-' or '_'")]
    BadInstance(String),
    #[error("PULC_STATE_DIR={0:?} is not an absolute path")]
    Relative(PathBuf),
    #[error("there is no home directory to keep the state in; set PULC_STATE_DIR")]
    NoHome,
}

/// One daemon's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub state_dir: PathBuf,
    /// Abstract address (without the leading NUL byte) on which it listens for clients.
    pub socket: String,
    pub instance: Option<String>,
}

impl Place {
    /// The place this environment points to.
    ///
    /// # Errors
    /// If the environment names none that can be used.
    pub fn of_environment() -> Result<Place, PlaceError> {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let instance = variable(ENV_INSTANCE).map(|value| value.to_string_lossy().into_owned());
        let uid = rustix::process::getuid().as_raw();
        let given = variable(ENV_STATE_DIR).map(PathBuf::from);
        let state_home = variable("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        let home = || variable("HOME").map(|home| Path::new(&home).join(".local/state"));
        Place::new(uid, instance, given, state_home.or_else(home))
    }

    fn new(
        uid: u32,
        instance: Option<String>,
        given: Option<PathBuf>,
        state_home: Option<PathBuf>,
    ) -> Result<Place, PlaceError> {
        if let Some(name) = &instance {
            let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
            if name.is_empty() || name.len() > INSTANCE_MAX || !name.chars().all(allowed) {
                return Err(PlaceError::BadInstance(name.clone()));
            }
        }
        // A daemon in a directory of its own is another daemon, whatever it is called.
        let mut key = instance.clone();
        let mut state_dir = match given {
            Some(path) if !path.is_absolute() => return Err(PlaceError::Relative(path)),
            Some(path) => {
                let name =
                    format!("{}{:016x}", instance.as_deref().unwrap_or(""), fnv1a(path.as_os_str().as_encoded_bytes()));
                key = Some(name);
                path
            }
            None => state_home.ok_or(PlaceError::NoHome)?.join("pulc"),
        };
        if let Some(name) = &instance {
            state_dir = state_dir.join(format!("instance-{name}"));
        }
        Ok(Place { state_dir, socket: socket_name(uid, key.as_deref()), instance })
    }
}

/// A name for a path; collisions would only make two daemons of one user refuse each other.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_and_directories_make_different_places() {
        let home = Some(PathBuf::from("/home/u/.local/state"));
        let plain = Place::new(7, None, None, home.clone()).unwrap();
        assert_eq!(plain.state_dir, Path::new("/home/u/.local/state/pulc"));
        assert_eq!(plain.socket, "pulc-psid-7");
        let named = Place::new(7, Some("b".into()), None, home.clone()).unwrap();
        let given = Place::new(7, None, Some("/tmp/x".into()), home.clone()).unwrap();
        let both = Place::new(7, Some("b".into()), Some("/tmp/x".into()), home).unwrap();
        let places = [&plain, &named, &given, &both];
        for (n, a) in places.iter().enumerate() {
            for b in &places[..n] {
                assert_ne!(a.socket, b.socket);
                assert_ne!(a.state_dir, b.state_dir);
            }
        }
    }

    #[test]
    fn a_name_that_is_a_path_is_refused() {
        for name in ["", "../x", "a/b", "a b", &"x".repeat(33)] {
            assert!(Place::new(7, Some(name.into()), None, Some("/h".into())).is_err(), "{name:?} was accepted");
        }
        assert!(Place::new(7, None, Some("relative".into()), None).is_err());
        assert!(Place::new(7, None, None, None).is_err());
    }
}
