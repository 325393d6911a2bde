//! The state directory of a node: key, certificates, tokens, known members, settings. Used by the command line and the daemon of one
//! user; mode 0700. Files are replaced by rename, so a reader sees the old or the new text and never half of one. Never
//! written by anyone else, still every file is checked when read: a damaged one is named, not ignored.

use super::token::TOKENS_MAX;
use super::{ClusterCa, Fingerprint, NodeIdentity, Token, TokenEntry};
use crate::error::Error;
use crate::membership::Member;
use pulc_base::boot::{decode, encode};
use rustix::fs::{FlockOperation, Mode, OFlags};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

const FILE_MAX_BYTES: u64 = 4 << 20;

#[derive(Clone, Debug)]
pub struct StateDir(PathBuf);

/// What a daemon is started with again after it was stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    pub name: String,
    pub listen: SocketAddr,
    /// Whether the user chose `listen`; if not, another port is taken when it is in use.
    pub listen_chosen: bool,
}

/// Held as long as the daemon of this directory runs.
#[derive(Debug)]
pub struct DaemonLock(#[allow(unused, reason = "held for its lock, never read")] OwnedFd);

impl StateDir {
    /// Opens or makes the directory.
    ///
    /// # Errors
    /// If it can't be made or is not private to this user.
    pub fn open(path: &Path) -> Result<StateDir, Error> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(Error::io(format!("cannot make the state directory {}", path.display())))?;
        let stat =
            rustix::fs::stat(path).map_err(|e| Error::io(format!("cannot look at {}", path.display()))(e.into()))?;
        if stat.st_uid != rustix::process::geteuid().as_raw() || stat.st_mode & 0o077 != 0 {
            return Err(Error::BadState {
                path: path.to_owned(),
                why: format!(
                    "it must belong to you with mode 700, not to user {} with mode {:o}",
                    stat.st_uid,
                    stat.st_mode & 0o777
                ),
            });
        }
        Ok(StateDir(path.to_owned()))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Where the daemon writes what it has to say.
    pub fn log_path(&self) -> PathBuf {
        self.0.join("daemon.log")
    }

    /// Makes this process the only daemon of the directory; `None` if there is one already.
    pub fn lock(&self) -> Result<Option<DaemonLock>, Error> {
        self.flock("lock", FlockOperation::NonBlockingLockExclusive).map(|fd| fd.map(DaemonLock))
    }

    /// Whether a daemon runs on this directory right now.
    pub fn is_locked(&self) -> Result<bool, Error> {
        Ok(self.lock()?.is_none())
    }

    /// Writes down which process is the daemon, for people; the lock is what counts.
    pub(crate) fn keep_daemon_pid(&self) -> Result<(), Error> {
        self.write("pid", std::process::id().to_string().as_bytes())
    }

    /// The process that runs or last ran as the daemon of this directory; 0 if unknown.
    pub fn daemon_pid(&self) -> u32 {
        let text = self.read("pid").ok().flatten().unwrap_or_default();
        String::from_utf8_lossy(&text).parse().unwrap_or(0)
    }

    fn flock(&self, name: &str, how: FlockOperation) -> Result<Option<OwnedFd>, Error> {
        let path = self.0.join(name);
        let failed = |e: rustix::io::Errno| Error::io(format!("cannot lock {}", path.display()))(e.into());
        let fd = rustix::fs::open(&path, OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC, Mode::from_raw_mode(0o600))
            .map_err(failed)?;
        match rustix::fs::flock(&fd, how) {
            Ok(()) => Ok(Some(fd)),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(e) => Err(failed(e)),
        }
    }

    /// The identity kept here, if this node belongs to a cluster.
    pub fn identity(&self) -> Result<Option<NodeIdentity>, Error> {
        let (Some(key), Some(certificate), Some(ca)) =
            (self.read("node.key")?, self.read("node.crt")?, self.read("ca.crt")?)
        else {
            return Ok(None);
        };
        NodeIdentity::from_der(&key, &certificate, &ca).map(Some).map_err(|e| self.damaged("node.key", &e.to_string()))
    }

    /// The CA, if this node founded its cluster.
    pub fn ca(&self) -> Result<Option<ClusterCa>, Error> {
        let (Some(key), Some(certificate)) = (self.read("ca.key")?, self.read("ca.crt")?) else { return Ok(None) };
        ClusterCa::from_der(&key, &certificate).map(Some).map_err(|e| self.damaged("ca.key", &e.to_string()))
    }

    /// Founds a cluster here: CA and own identity.
    pub fn found(&self) -> Result<NodeIdentity, Error> {
        let ca = ClusterCa::new()?;
        let identity = ca.new_node()?;
        self.write("ca.key", ca.key_der())?;
        self.keep_identity(&identity)?;
        Ok(identity)
    }

    /// The key goes last: a directory without it is taken for an empty one.
    pub fn keep_identity(&self, identity: &NodeIdentity) -> Result<(), Error> {
        self.write("ca.crt", identity.ca())?;
        self.write("node.crt", identity.certificate())?;
        self.write("node.key", identity.key_der())
    }

    /// Forgets cluster, tokens and members, so that this node can join another cluster.
    pub fn forget(&self) -> Result<(), Error> {
        for name in ["node.key", "node.crt", "ca.crt", "ca.key", "tokens", "members", "settings", "queue.log"] {
            let path = self.0.join(name);
            match fs::remove_file(&path) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Error::io(format!("cannot remove {}", path.display()))(e));
                }
                _ => {}
            }
        }
        Ok(())
    }

    pub fn settings(&self) -> Result<Option<Settings>, Error> {
        self.read_as("settings")
    }

    pub fn keep_settings(&self, settings: &Settings) -> Result<(), Error> {
        self.write("settings", &encode(settings))
    }

    pub fn members(&self) -> Result<Vec<Member>, Error> {
        Ok(self.read_as("members")?.unwrap_or_default())
    }

    pub fn keep_members(&self, members: &[Member]) -> Result<(), Error> {
        self.write("members", &encode(&members))
    }

    /// All tokens that still live.
    pub fn tokens(&self) -> Result<Vec<TokenEntry>, Error> {
        let mut tokens: Vec<TokenEntry> = self.read_as("tokens")?.unwrap_or_default();
        tokens.retain(TokenEntry::is_live);
        Ok(tokens)
    }

    /// Makes a token of this cluster.
    pub fn new_token(
        &self,
        addresses: Vec<SocketAddr>,
        ca: Fingerprint,
        life: Duration,
    ) -> Result<(Token, TokenEntry), Error> {
        let _one_at_a_time = self.flock("tokens.lock", FlockOperation::LockExclusive)?;
        let mut tokens = self.tokens()?;
        if tokens.len() >= TOKENS_MAX {
            return Err(Error::TooManyTokens { limit: TOKENS_MAX });
        }
        let (token, entry) = Token::new(addresses, ca, life)?;
        tokens.push(entry.clone());
        self.write("tokens", &encode(&tokens))?;
        Ok((token, entry))
    }

    /// Revokes the token with this id, or all of them; returns how many.
    pub fn revoke_tokens(&self, id: Option<&str>) -> Result<usize, Error> {
        let _one_at_a_time = self.flock("tokens.lock", FlockOperation::LockExclusive)?;
        let mut tokens = self.tokens()?;
        let before = tokens.len();
        tokens.retain(|token| id.is_some_and(|id| token.id != id));
        self.write("tokens", &encode(&tokens))?;
        Ok(before - tokens.len())
    }

    fn read_as<T: for<'a> Deserialize<'a>>(&self, name: &str) -> Result<Option<T>, Error> {
        let Some(bytes) = self.read(name)? else { return Ok(None) };
        decode(&bytes).map(Some).map_err(|e| self.damaged(name, &e.to_string()))
    }

    fn damaged(&self, name: &str, why: &str) -> Error {
        Error::BadState {
            path: self.0.join(name),
            why: format!("{why}; restore it or remove the directory and join again"),
        }
    }

    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        let path = self.0.join(name);
        let file = match fs::File::open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Error::io(format!("cannot open {}", path.display()))(e)),
        };
        let mut bytes = Vec::new();
        file.take(FILE_MAX_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(Error::io(format!("cannot read {}", path.display())))?;
        if bytes.len() as u64 > FILE_MAX_BYTES {
            return Err(self.damaged(name, &format!("it is larger than {FILE_MAX_BYTES} bytes")));
        }
        Ok(Some(bytes))
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        let path = self.0.join(name);
        let temporary = self.0.join(format!("{name}.{}.new", std::process::id()));
        let written =
            fs::OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&temporary).and_then(
                |mut file| {
                    file.write_all(bytes)?;
                    file.sync_all()
                },
            );
        let replaced = written.and_then(|()| fs::rename(&temporary, &path));
        if replaced.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        replaced.map_err(Error::io(format!("cannot write {}", path.display())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            Scratch(std::env::temp_dir().join(format!("pulc-store-{name}-{}", std::process::id())))
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_founded_cluster_is_found_again_and_forgotten_on_request() {
        let scratch = Scratch::new("found");
        let state = StateDir::open(&scratch.0).unwrap();
        assert!(state.identity().unwrap().is_none());
        let id = state.found().unwrap().id();
        let again = StateDir::open(&scratch.0).unwrap();
        assert_eq!(again.identity().unwrap().unwrap().id(), id);
        assert!(again.ca().unwrap().is_some());
        again.forget().unwrap();
        assert!(again.identity().unwrap().is_none());
    }

    #[test]
    fn a_damaged_file_is_named() {
        let scratch = Scratch::new("damaged");
        let state = StateDir::open(&scratch.0).unwrap();
        state.found().unwrap();
        fs::write(scratch.0.join("settings"), [0xff; 3]).unwrap();
        let text = state.settings().unwrap_err().to_string();
        assert!(text.contains("settings"), "{text}");
        fs::write(scratch.0.join("node.key"), b"nonsense").unwrap();
        assert!(matches!(state.identity(), Err(Error::BadState { .. })));
    }

    #[test]
    fn a_directory_that_others_can_read_is_refused() {
        let scratch = Scratch::new("mode");
        fs::DirBuilder::new().mode(0o755).create(&scratch.0).unwrap();
        assert!(matches!(StateDir::open(&scratch.0), Err(Error::BadState { .. })));
    }

    #[test]
    fn only_one_daemon_holds_the_lock() {
        let scratch = Scratch::new("lock");
        let state = StateDir::open(&scratch.0).unwrap();
        let held = state.lock().unwrap();
        assert!(held.is_some());
        assert!(state.is_locked().unwrap());
        drop(held);
        assert!(!state.is_locked().unwrap());
    }

    #[test]
    fn a_revoked_token_is_gone_and_others_stay() {
        let scratch = Scratch::new("revoke");
        let state = StateDir::open(&scratch.0).unwrap();
        let cluster = state.found().unwrap().cluster();
        let at = vec!["10.0.0.1:1".parse().unwrap()];
        let (_, first) = state.new_token(at.clone(), cluster, Duration::from_secs(60)).unwrap();
        let (_, second) = state.new_token(at, cluster, Duration::from_secs(60)).unwrap();
        assert_eq!(state.revoke_tokens(Some(&first.id)).unwrap(), 1);
        assert_eq!(state.tokens().unwrap(), vec![second]);
        assert_eq!(state.revoke_tokens(None).unwrap(), 1);
        assert!(state.tokens().unwrap().is_empty());
    }
}
