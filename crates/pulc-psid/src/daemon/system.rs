//! What `pulc up --system` and `pulc join --system` do: a daemon for several users, which runs as an account of its own and is started by the
//! privileged helper. What concerns the account's state, and what speaks to the network, is done by a process that is the account
//! ([`keep_state`], `pulc system-state`); root makes directories, starts the helper, and waits. Blocking, every wait has a deadline.

use super::start::{
    ANSWER_WITHIN, Admission, GONE_WITHIN, Start, Started, admitted, client, nodes, open_log, settings, spawned,
    without_rank,
};
use crate::error::Error;
use crate::identity::StateDir;
use pulc_base::NodeId;
use pulc_control::place::Place;
use pulc_control::{Reply, Request};
use pulc_hal::os::account::{self, Account};
use pulc_helper::{Arguments, is_roots_alone};
use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How a daemon for several users is started.
#[derive(Clone, Debug)]
pub struct SystemStart {
    /// As whom the daemon runs.
    pub account: String,
    /// Root's file of who may have processes here.
    pub users: PathBuf,
    /// Words of `pulc system-state`: name and address of the node, and whether it forgets its cluster.
    pub state_words: Vec<OsString>,
    /// With which it joins a cluster; else it founds one, if it belongs to none.
    pub token: Option<String>,
}

/// What `pulc system-state` says when it has made a cluster that was not there.
const FOUNDED: &str = "founded";
/// Where a token stands that is not for the eyes of others.
const ENV_TOKEN: &str = "PULC_JOIN_TOKEN";

/// Founds or joins a cluster in the state directory of this place, as its owner, without starting anything. Returns what it has to say.
pub fn keep_state(place: &Place, options: &Start, admission: Option<&Admission>) -> Result<&'static str, Error> {
    let state = super::start::not_running(place)?;
    let kept = match admission {
        Some(admission) => return admitted(place, &state, options, admission).map(|_| ""),
        None if state.identity()?.is_some() => "",
        None => {
            state.found()?;
            FOUNDED
        }
    };
    settings(place, &state, options).and_then(|settings| state.keep_settings(&settings))?;
    Ok(kept)
}

/// Undoes [`keep_state`] where it has founded a cluster that could not be started.
pub fn forget_state(place: &Place) -> Result<(), Error> {
    StateDir::open(&place.state_dir)?.forget()
}

/// Starts the helper, which starts the daemon; returns when that is ready.
pub fn start(place: &Place, start: &SystemStart) -> Result<Started, Error> {
    let refused = |why: String| Error::NotStarted { why, code: 1 };
    if !rustix::process::geteuid().is_root() {
        return Err(refused("a daemon for several users is started by root".to_owned()));
    }
    let Some(run_dir) = place.run_dir() else { return Err(refused("this place has one user".to_owned())) };
    let found = account::by_name(&start.account)
        .map_err(Error::io(format!("user {} cannot be looked up", start.account)))?
        .filter(|account| account.uid != 0);
    let Some(account) = found else {
        let name = &start.account;
        return Err(refused(format!(
            "there is no user {name:?} other than root as whom the daemon could run; make one \
             (useradd --system --no-create-home {name}) or name another (--as)"
        )));
    };
    make_state_dir(&place.state_dir, &account).map_err(refused)?;
    let said = as_account(place, &account, start, &start.state_words)?;
    let arguments = Arguments {
        account: start.account.clone(),
        run_dir: run_dir.to_owned(),
        state_dir: place.state_dir.clone(),
        users: start.users.clone(),
    };
    let log_path = log_path(place);
    let program = std::env::current_exe().map_err(Error::io("cannot find this program again"))?;
    let mut command = Command::new(program);
    command.arg("helper").args(arguments.words()).stderr(open_log(&log_path)?);
    let started = spawned(&mut command, &log_path).and_then(|()| describe(place));
    if started.is_err() && said == FOUNDED {
        // A cluster that never was must not stand in the way of joining another one.
        as_account(place, &account, start, &["--forget".into()])?;
    }
    started
}

/// Stops the daemon and waits until its sockets are gone.
pub(super) fn stop(place: &Place, request: &Request) -> Result<(), Error> {
    match client(place)?.ask(request, ANSWER_WITHIN) {
        Ok(Reply::Done) => {}
        Ok(Reply::Refused { why }) => return Err(Error::DaemonRefused { why }),
        Ok(_) => return Err(Error::DaemonRefused { why: "it gave an answer that does not fit".to_owned() }),
        Err(error) => return Err(Error::DaemonSilent { why: error.to_string() }),
    }
    let deadline = Instant::now() + GONE_WITHIN;
    while Path::new(&place.socket).exists() {
        if Instant::now() > deadline {
            return Err(Error::DaemonStays { pid: 0, seconds: GONE_WITHIN.as_secs() });
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Beside the directory of the account, which must not say where root writes.
fn log_path(place: &Place) -> PathBuf {
    place.state_dir.with_extension("log")
}

/// # Errors
/// One line.
fn make_state_dir(path: &Path, account: &Account) -> Result<(), String> {
    let failed = |path: &Path, error: io::Error| format!("cannot make {}: {error}", path.display());
    let above = path.parent().unwrap_or(path);
    DirBuilder::new().recursive(true).mode(0o755).create(above).map_err(|error| failed(above, error))?;
    let data = fs::symlink_metadata(above).map_err(|error| failed(above, error))?;
    if !data.is_dir() || !is_roots_alone(&data) {
        return Err(format!("{} must be a directory of root's that nobody else may write to", above.display()));
    }
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => return chown(path, Some(account.uid), Some(account.gid)).map_err(|error| failed(path, error)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(failed(path, error)),
    }
    let data = fs::symlink_metadata(path).map_err(|error| failed(path, error))?;
    if !data.is_dir() || data.uid() != account.uid {
        let (path, name) = (path.display(), &account.name);
        return Err(format!("{path} is there already and is no directory of {name}'s; name another (PULC_STATE_DIR)"));
    }
    Ok(())
}

/// Runs `pulc system-state` as the account and returns what it says.
fn as_account(place: &Place, account: &Account, start: &SystemStart, words: &[OsString]) -> Result<String, Error> {
    let mut command = Command::new("/proc/self/exe");
    command.arg("system-state").args(words).current_dir("/").stdin(Stdio::null()).stderr(Stdio::piped());
    without_rank(&mut command);
    command.env("PULC_STATE_DIR", &place.state_dir).env("PULC_RUN_DIR", place.run_dir().unwrap_or(Path::new("/")));
    command.env("HOME", &place.state_dir).env_remove(ENV_TOKEN);
    if let Some(token) = &start.token {
        command.env(ENV_TOKEN, token);
    }
    // The standard library gives up all other groups with this.
    command.uid(account.uid).gid(account.gid);
    let output = command.output().map_err(Error::io(format!("cannot become {}", account.name)))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let why = said.trim().trim_start_matches("pulc: ").to_owned();
    let code = output.status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
    Err(Error::NotStarted { why, code })
}

fn describe(place: &Place) -> Result<Started, Error> {
    let nodes = nodes(place)?;
    let me = nodes.iter().find(|node| node.me);
    let (id, name) = me.map_or((NodeId([0; 16]), String::new()), |me| (me.id, me.name.clone()));
    let token = match client(place)?.ask(&Request::Token, ANSWER_WITHIN) {
        Ok(Reply::Token(token)) => Some(token),
        // It did not found its cluster.
        _ => None,
    };
    Ok(Started { id, name, nodes, token })
}
