//! How a helper begins: it takes the places of a daemon of several users, starts the daemon as its account, and serves it. Said by
//! `pulc up --system` and by the system's service manager. All of this is done as root, before anything of the network is read.

use crate::forgotten;
use crate::places::{CLIENTS_SOCKET, KEEPERS_SOCKET, is_roots_alone, rooms};
use crate::serve::{Helper, Places};
use pulc_base::log;
use pulc_hal::os::account::{self, Account};
use pulc_hal::os::process::User;
use rustix::fs::{FlockOperation, Mode, flock};
use std::ffi::{CString, OsString};
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What a helper is told at its start, by root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arguments {
    /// As whom the daemon runs.
    pub account: String,
    /// Where its sockets are.
    pub run_dir: PathBuf,
    /// Where it keeps what it must remember; the account's own.
    pub state_dir: PathBuf,
    /// Who may have processes here.
    pub users: PathBuf,
}

impl Arguments {
    /// As words of a command line.
    pub fn words(&self) -> [OsString; 4] {
        let path = |path: &Path| path.as_os_str().to_owned();
        [self.account.clone().into(), path(&self.run_dir), path(&self.state_dir), path(&self.users)]
    }

    /// None if they are not those four.
    pub fn of_words(mut words: impl Iterator<Item = OsString>) -> Option<Arguments> {
        let account = words.next()?.into_string().ok()?;
        let mut path = || words.next().map(PathBuf::from).filter(|path| path.is_absolute());
        let (run_dir, state_dir, users) = (path()?, path()?, path()?);
        words.next().is_none().then_some(Arguments { account, run_dir, state_dir, users })
    }
}

/// The whole life of a helper. Its standard output is handed to the daemon, which says there that it is ready.
pub fn main(words: impl Iterator<Item = OsString>) -> ExitCode {
    let Some(arguments) = Arguments::of_words(words) else {
        let usage = "pulc: usage: pulc helper ACCOUNT RUN_DIR STATE_DIR USERS_FILE, the last three as absolute paths; \
                     `pulc up --system` says it for you";
        eprintln!("{usage}");
        return ExitCode::from(2);
    };
    // Away from the terminal of whoever started us. Fails only for a process-group leader: a service manager made us one.
    let _ = rustix::process::setsid();
    let _ = rustix::thread::set_name(c"pulc-helper");
    match begin(&arguments) {
        Ok(mut helper) => helper.run(),
        Err(why) => {
            log!(Error, "helper", "{why}");
            // Whoever starts us may have gone.
            let _ = writeln!(io::stdout(), "{why}");
            ExitCode::FAILURE
        }
    }
}

fn begin(arguments: &Arguments) -> Result<Helper, String> {
    if !rustix::process::geteuid().is_root() {
        return Err("the helper of a daemon for several users must be started by root".to_owned());
    }
    let Arguments { account, run_dir, state_dir, users } = arguments;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    std::env::set_current_dir("/").map_err(|error| format!("cannot enter /: {error}"))?;
    let account = account_of(account)?;
    let lock = take(run_dir)?;
    make_rooms(&rooms(state_dir))?;
    forgotten::clear(run_dir, account.uid);
    let listen = |name: &str| listen(&run_dir.join(name));
    let places = Places {
        clients: listen(CLIENTS_SOCKET)?,
        keepers: listen(KEEPERS_SOCKET)?,
        run_dir: run_dir.clone(),
        _lock: lock,
    };
    let argv = ["pulc", "daemon", "--system"].map(|word| CString::new(word).expect("these have no NUL byte"));
    let mut argv = argv.to_vec();
    argv.push(c_string(users.as_os_str().as_bytes())?);
    let user = User { uid: account.uid, gid: account.gid, groups: vec![account.gid] };
    let env = environment_of_daemon(&account, run_dir, state_dir);
    Helper::begin(places, user, argv, env, users.clone()).map_err(|error| format!("cannot start the helper: {error}"))
}

/// # Errors
/// When there is none, or it is root.
fn account_of(name: &str) -> Result<Account, String> {
    let found = account::by_name(name).map_err(|error| format!("user {name} cannot be looked up: {error}"))?;
    match found {
        Some(account) if account.uid != 0 => Ok(account),
        Some(_) => Err(format!("the daemon must not run as {name}: give it an account of its own (--as)")),
        None => Err(format!(
            "there is no user {name:?} as whom the daemon could run; make one \
             (useradd --system --no-create-home {name}) or name another (--as)"
        )),
    }
}

/// Makes the directory in which every user may make some, and remove nobody else's.
fn make_rooms(directory: &Path) -> Result<(), String> {
    let failed = |error: io::Error| format!("cannot make {}: {error}", directory.display());
    match DirBuilder::new().mode(0o700).create(directory) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(failed(error)),
    }
    let data = std::fs::symlink_metadata(directory).map_err(failed)?;
    if !data.is_dir() || data.uid() != 0 {
        return Err(format!("{} must be a directory of root's", directory.display()));
    }
    std::fs::set_permissions(directory, Permissions::from_mode(0o1777)).map_err(failed)
}

/// Makes the directory and locks it: one daemon is found there.
fn take(directory: &Path) -> Result<File, String> {
    let failed = |error: io::Error| format!("cannot use {}: {error}", directory.display());
    match DirBuilder::new().mode(0o755).create(directory) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(failed(error)),
    }
    let data = std::fs::symlink_metadata(directory).map_err(failed)?;
    if !data.is_dir() || !is_roots_alone(&data) {
        return Err(format!("{} must be a directory of root's that nobody else may write to", directory.display()));
    }
    let path = directory.join("lock");
    let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path).map_err(failed)?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(lock),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            Err(format!("a daemon for several users runs already with its sockets in {}", directory.display()))
        }
        Err(error) => Err(failed(error.into())),
    }
}

fn listen(path: &Path) -> Result<UnixListener, String> {
    let failed = |error: io::Error| format!("cannot listen at {}: {error}", path.display());
    match std::fs::remove_file(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    std::fs::set_permissions(path, Permissions::from_mode(0o666)).map_err(failed)?;
    Ok(listener)
}

fn c_string(bytes: &[u8]) -> Result<CString, String> {
    CString::new(bytes).map_err(|_| "a path has a NUL byte in it".to_owned())
}

fn environment_of_daemon(account: &Account, run_dir: &Path, state_dir: &Path) -> Vec<CString> {
    let mut env = own_settings();
    env.retain(|entry| {
        !entry.as_bytes().starts_with(b"PULC_STATE_DIR=") && !entry.as_bytes().starts_with(b"PULC_RUN_DIR=")
    });
    let path = |path: &Path| path.as_os_str().as_bytes().to_vec();
    env.extend(entry("PULC_STATE_DIR", path(state_dir)));
    env.extend(entry("PULC_RUN_DIR", path(run_dir)));
    env.extend(entry("HOME", path(state_dir)));
    env.extend(entry("USER", account.name.clone().into_bytes()));
    env
}

/// What a keeper finds: nothing of the daemon's choice.
pub(crate) fn environment_of_user(account: &Account) -> Vec<CString> {
    let mut env = own_settings();
    env.extend(entry("HOME", account.home.to_bytes().to_vec()));
    env.extend(entry("SHELL", account.shell.to_bytes().to_vec()));
    for name in ["USER", "LOGNAME"] {
        env.extend(entry(name, account.name.clone().into_bytes()));
    }
    env
}

/// What root has set for PULC, and where programs are.
fn own_settings() -> Vec<CString> {
    let own = std::env::vars_os()
        .filter(|(name, _)| name.as_bytes().starts_with(b"PULC_") && name != pulc_base::boot::ENV_JOBID);
    let mut env: Vec<CString> = own.filter_map(|(name, value)| entry(name.to_str()?, value.into_vec())).collect();
    env.extend(entry("PATH", b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_vec()));
    env
}

fn entry(name: &str, value: Vec<u8>) -> Option<CString> {
    CString::new([name.as_bytes(), b"=", &value].concat()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_command_line_are_read_as_they_were_written() {
        let arguments = Arguments {
            account: "pulc".to_owned(),
            run_dir: "/run/pulc".into(),
            state_dir: "/var/lib/pulc/daemon".into(),
            users: "/etc/pulc/users".into(),
        };
        assert_eq!(Arguments::of_words(arguments.words().into_iter()), Some(arguments.clone()));
        for wrong in [&["a"][..], &["a", "/b", "/c"], &["a", "/b", "c", "/d"], &["a", "/b", "/c", "/d", "e"]] {
            assert_eq!(Arguments::of_words(wrong.iter().map(OsString::from)), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_directory_that_others_may_write_to_is_not_taken() {
        let directory = std::env::temp_dir().join(format!("pulc-helper-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        std::fs::set_permissions(&directory, Permissions::from_mode(0o777)).unwrap();
        let why = take(&directory).unwrap_err();
        assert!(why.contains("root's"), "{why}");
        std::fs::set_permissions(&directory, Permissions::from_mode(0o755)).unwrap();
        if rustix::process::geteuid().is_root() {
            let _lock = take(&directory).unwrap();
            assert!(take(&directory).unwrap_err().contains("runs already"));
        }
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
