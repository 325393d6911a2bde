//! Where the daemon of this user lives: its state directory and its socket. Clients and the daemon ask here, so that they agree.
//! Several daemons of one user on one machine are told apart by `PULC_INSTANCE` or by `PULC_STATE_DIR`. Creates nothing.

use crate::client::{ENV_INSTANCE, socket_name};
use std::ffi::OsString;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::{Path, PathBuf};

/// State directory of the daemon, instead of the one in the home directory.
pub const ENV_STATE_DIR: &str = "PULC_STATE_DIR";
/// Directory of the sockets of a daemon that serves several users, which only root may write to.
pub const ENV_RUN_DIR: &str = "PULC_RUN_DIR";

/// The same, and where that daemon keeps what it must remember, unless the environment says otherwise.
const RUN_DIR: &str = "/run/pulc";
const SYSTEM_STATE_DIR: &str = "/var/lib/pulc/daemon";
/// Its sockets, for clients and for keepers.
const CLIENTS_SOCKET: &str = "psid";
const KEEPERS_SOCKET: &str = "keepers";

const INSTANCE_MAX: usize = 32;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlaceError {
    #[error("PULC_INSTANCE={0:?}: use 1 to {INSTANCE_MAX} letters, digits, '-' or '_'")]
    BadInstance(String),
    #[error("PULC_STATE_DIR={0:?} is not an absolute path")]
    Relative(PathBuf),
    #[error("PULC_RUN_DIR={0:?} is not an absolute path")]
    RelativeRunDir(PathBuf),
    #[error("there is no home directory to keep the state in; set PULC_STATE_DIR")]
    NoHome,
}

/// One daemon's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub state_dir: PathBuf,
    /// Where it listens for clients: an abstract address (without the leading NUL byte), or, of a daemon for several users, a path.
    pub socket: String,
    pub instance: Option<String>,
}

impl Place {
    /// The place this environment points to.
    ///
    /// # Errors
    /// If the environment names none that can be used.
    pub fn of_environment() -> Result<Place, PlaceError> {
        if variable(ENV_RUN_DIR).is_some() {
            return Place::system();
        }
        let instance = variable(ENV_INSTANCE).map(|value| value.to_string_lossy().into_owned());
        let uid = rustix::process::getuid().as_raw();
        let given = variable(ENV_STATE_DIR).map(PathBuf::from);
        let state_home = variable("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        let home = || variable("HOME").map(|home| Path::new(&home).join(".local/state"));
        Place::new(uid, instance, given, state_home.or_else(home))
    }

    /// The place of this machine's daemon for several users, whether there is one or not.
    ///
    /// # Errors
    /// If the environment names one that can't be used.
    pub fn system() -> Result<Place, PlaceError> {
        let run_dir = variable(ENV_RUN_DIR).map_or_else(|| PathBuf::from(RUN_DIR), PathBuf::from);
        let state_dir = variable(ENV_STATE_DIR).map_or_else(|| PathBuf::from(SYSTEM_STATE_DIR), PathBuf::from);
        if !run_dir.is_absolute() {
            return Err(PlaceError::RelativeRunDir(run_dir));
        }
        if !state_dir.is_absolute() {
            return Err(PlaceError::Relative(state_dir));
        }
        Ok(Place { state_dir, socket: run_dir.join(CLIENTS_SOCKET).to_string_lossy().into_owned(), instance: None })
    }

    /// Where a client finds its daemon: the user's own, if it is named or runs, else the machine's for several users, if there is one.
    ///
    /// # Errors
    /// As [`Place::of_environment`].
    pub fn of_client() -> Result<Place, PlaceError> {
        let own = Place::of_environment();
        let named = [ENV_RUN_DIR, ENV_STATE_DIR, ENV_INSTANCE].iter().any(|name| variable(name).is_some());
        let runs = || own.as_ref().is_ok_and(|place| UnixStream::connect_addr(&abstract_address(place)).is_ok());
        if !named && Path::new(RUN_DIR).join(CLIENTS_SOCKET).exists() && !runs() {
            return Place::system();
        }
        own
    }

    /// Whether it serves several users.
    pub fn is_system(&self) -> bool {
        self.socket.starts_with('/')
    }

    /// Where keepers of queued jobs find the daemon of this place; an abstract address or a path, as that for clients.
    pub fn keepers_socket(&self) -> String {
        match self.run_dir() {
            Some(directory) => directory.join(KEEPERS_SOCKET).to_string_lossy().into_owned(),
            None => format!("{}-keepers", self.socket),
        }
    }

    /// The directory of its sockets, if it serves several users.
    pub fn run_dir(&self) -> Option<&Path> {
        Path::new(&self.socket).parent().filter(|_| self.is_system())
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

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

fn abstract_address(place: &Place) -> SocketAddr {
    // Names made here are never too long.
    SocketAddr::from_abstract_name(&place.socket).unwrap_or_else(|_| unreachable!("{:?} is no name", place.socket))
}

/// A name for a path; collisions would only make two daemons of one user refuse each other.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_for_several_users_has_its_sockets_in_one_directory() {
        let place = Place { state_dir: "/s".into(), socket: "/run/pulc/psid".to_owned(), instance: None };
        assert_eq!((place.is_system(), place.run_dir()), (true, Some(Path::new("/run/pulc"))));
        assert_eq!(place.keepers_socket(), "/run/pulc/keepers");
        let own = Place::new(7, None, None, Some("/h".into())).unwrap();
        assert_eq!((own.is_system(), own.run_dir(), own.keepers_socket()), (false, None, "pulc-psid-7-keepers".into()));
    }

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
