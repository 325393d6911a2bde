//! Where a daemon serves several users: their files are opened by clerks, processes that are the user. What a clerk says is that user's word:
//! what comes is counted and hashed here, in the cache, before anybody believes it. At home each file that travels is copied into the cache; on
//! other nodes jobs get copies of their own, in directories of their users'. Blocks, for the most part: called on threads for that.

use super::clerk::{Answer, Ask, MESSAGE_BYTES_MAX};
use super::place::{self, Placed, Step};
use super::store::Store;
use super::{Staging, lock};
use crate::error::shortage;
use pulc_base::{JobId, boot, log};
use pulc_control::owner::Owner;
use pulc_control::stage::{Content, FILES_MAX, Stage, StageFile, as_path};
use pulc_hal::os::account;
use pulc_hal::os::fdpass::Seqpacket;
use pulc_helper::{Helped, Line, Part};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::pipe::{PipeFlags, pipe_with};
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A clerk that says nothing for so long is given up: its user can stop it.
const PATIENCE: Duration = Duration::from_secs(20);
/// Clerks of one user at once. Whoever stops theirs keeps so many threads waiting, and no more.
const CLERKS_OF_ONE_MAX: usize = 8;
/// In the directory of all jobs' directories: what could not be delivered to a user.
const KEPT: &str = "kept-";

/// What a daemon for several users has for their files.
pub struct Several {
    pub helper: Arc<Line>,
    /// Where users make directories of jobs: root's, and everybody may write there.
    pub rooms: PathBuf,
    clerks: Mutex<HashMap<u32, Arc<Semaphore>>>,
}

/// The one that serves a user, for as long as it is wanted.
pub struct Clerk {
    line: Mutex<Seqpacket>,
    helped: Helped,
    helper: Arc<Line>,
    _permit: OwnedSemaphorePermit,
}

impl Several {
    pub fn new(helper: Arc<Line>, rooms: PathBuf) -> Several {
        Several { helper, rooms, clerks: Mutex::default() }
    }

    /// # Errors
    /// One line: the user may have no processes here, or is somebody else.
    pub async fn clerk(&self, owner: &Owner) -> Result<Arc<Clerk>, String> {
        let most = || Arc::new(Semaphore::new(CLERKS_OF_ONE_MAX));
        let room = {
            let mut clerks = lock(&self.clerks);
            // Of users who have none at the moment nothing has to be known.
            clerks.retain(|_, room| Arc::strong_count(room) > 1);
            clerks.entry(owner.uid).or_insert_with(most).clone()
        };
        let permit = room.acquire_owned().await.map_err(|error| error.to_string())?;
        let (helper, uid, name) = (self.helper.clone(), owner.uid, owner.name.clone());
        blocking(move || Clerk::start(helper, uid, &name, permit).map(Arc::new)).await
    }

    /// What an earlier life of the daemon has left, and what was kept longer than `age`.
    pub async fn sweep(&self, names: Vec<PathBuf>, age: Duration) {
        for path in names {
            let kept = is_kept(&path);
            let Ok(data) = fs::symlink_metadata(&path) else { continue };
            let old = data.modified().ok().and_then(|at| at.elapsed().ok()).is_some_and(|old| old >= age);
            if !data.is_dir() || data.uid() == 0 || (kept && !old) {
                continue;
            }
            let room = path.as_os_str().as_encoded_bytes().to_vec();
            let ask = if kept { Ask::Remove { room } } else { Ask::Sweep { room } };
            let swept = async {
                let uid = data.uid();
                let found = blocking(move || account::by_number(uid).map_err(|error| error.to_string())).await?;
                let name = found.map(|account| account.name).ok_or("its owner is not known any more")?;
                let clerk = self.clerk(&Owner { uid, name, groups: Vec::new() }).await?;
                blocking(move || clerk.done(&ask, None, &|| ())).await
            };
            if let Err(why) = swept.await {
                log!(Warn, "stage", "{} cannot be removed: {why}", path.display());
            }
        }
    }

    /// Directories that are there now.
    pub fn rooms_there(&self) -> Vec<PathBuf> {
        fs::read_dir(&self.rooms).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
    }

    /// Where what can't be delivered is kept.
    pub fn kept(&self, job: JobId, name: &[u8]) -> PathBuf {
        self.rooms.join(format!("{KEPT}{job}")).join(as_path(name))
    }
}

impl Clerk {
    fn start(helper: Arc<Line>, uid: u32, name: &str, permit: OwnedSemaphorePermit) -> Result<Clerk, String> {
        let short = |error: std::io::Error| shortage(&error);
        let (ours, theirs) = Seqpacket::pair().map_err(short)?;
        for which in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(ours.as_fd(), which, Some(PATIENCE)).map_err(|error| short(error.into()))?;
        }
        let helped = helper.start_as(uid, name, Part::Clerk, theirs.as_fd())?;
        Ok(Clerk { line: Mutex::new(ours), helped, helper, _permit: permit })
    }

    /// Asks, lets `hear` have what comes before the last answer, and returns that.
    fn ask(
        &self,
        ask: &Ask,
        file: Option<OwnedFd>,
        hear: &mut dyn FnMut(Answer) -> Result<(), String>,
    ) -> Result<Answer, String> {
        let line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = self.ask_on(&line, ask, file, hear);
        if outcome.is_err() {
            // What comes later would be taken for the answer to something else; and it may stand still.
            let _ = self.helper.end(self.helped.pid);
        }
        match outcome? {
            Answer::Failed(why) => Err(why),
            answer => Ok(answer),
        }
    }

    fn ask_on(
        &self,
        line: &Seqpacket,
        ask: &Ask,
        file: Option<OwnedFd>,
        hear: &mut dyn FnMut(Answer) -> Result<(), String>,
    ) -> Result<Answer, String> {
        let gone = || "the process that opens the user's files has ended".to_owned();
        let failed = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::WouldBlock => SILENT.to_owned(),
            _ => format!("{}: {error}", gone()),
        };
        let message = boot::encode(ask);
        if message.len() > MESSAGE_BYTES_MAX {
            return Ok(Answer::Failed("its path is too long".to_owned()));
        }
        let fds: Vec<BorrowedFd<'_>> = file.iter().map(AsFd::as_fd).collect();
        line.send(&message, &fds).map_err(failed)?;
        // Were ours still open, the end of what comes through a pipe would never be seen.
        drop(fds);
        drop(file);
        let mut buffer = vec![0; MESSAGE_BYTES_MAX];
        loop {
            let received = line.recv(&mut buffer).map_err(failed)?.ok_or_else(gone)?;
            let answer = boot::decode::<Answer>(&buffer[..received.bytes]).map_err(|_| gone())?;
            match answer {
                Answer::Busy | Answer::Reading { .. } | Answer::Listed { .. } => hear(answer)?,
                Answer::Done | Answer::No | Answer::Failed(_) => return Ok(answer),
            }
        }
    }

    /// # Errors
    /// One line: what the user may not, or that the clerk has ended.
    pub fn done(&self, ask: &Ask, file: Option<OwnedFd>, tick: &dyn Fn()) -> Result<(), String> {
        self.ask(ask, file, &mut |answer| {
            tick();
            if answer == Answer::Busy { Ok(()) } else { Err(UNASKED.to_owned()) }
        })
        .map(drop)
    }

    /// Whether the user finds exactly this there.
    pub fn holds(&self, path: &Path, content: Content, program: bool, tick: &dyn Fn()) -> Result<bool, String> {
        let ask = Ask::Holds { path: bytes(path), content, program };
        let answer = self.ask(&ask, None, &mut |_| {
            tick();
            Ok(())
        })?;
        Ok(answer == Answer::Done)
    }

    /// Copies a file of the user's into the cache; returns what is in it, and its permission bits.
    ///
    /// # Errors
    /// One line without its path.
    pub fn take(&self, store: &Arc<Store>, path: &Path, tick: &dyn Fn()) -> Result<(Content, u32), String> {
        let (reader, writer) =
            pipe_with(PipeFlags::CLOEXEC).map_err(|error| format!("no pipe: {}", shortage(&error.into())))?;
        let (mut pipe, mut taken) = (Some(File::from(reader)), None);
        let ask = Ask::Read { path: bytes(path) };
        let over = self.ask(&ask, Some(writer), &mut |answer| match (answer, pipe.take()) {
            (Answer::Reading { bytes, mode }, Some(mut pipe)) => {
                // With the pipe gone the clerk stops writing, however much there is.
                taken = Some(filled(store, &mut pipe, bytes, tick).map(|content| (content, mode)));
                Ok(())
            }
            _ => Err(UNASKED.to_owned()),
        });
        match taken {
            Some(Ok(taken)) => over.map(|_| taken),
            Some(Err(why)) => Err(why),
            None => Err(over.err().unwrap_or_else(|| UNASKED.to_owned())),
        }
    }

    /// # Errors
    /// One line.
    pub fn list(&self, path: &Path, target: &Path) -> Result<Vec<(PathBuf, PathBuf)>, String> {
        let mut files = Vec::new();
        let ask = Ask::List { path: bytes(path), target: bytes(target) };
        self.ask(&ask, None, &mut |answer| match answer {
            Answer::Listed { path, target } if files.len() < FILES_MAX => {
                files.push((as_path(&path).to_owned(), as_path(&target).to_owned()));
                Ok(())
            }
            Answer::Busy => Ok(()),
            _ => Err(UNASKED.to_owned()),
        })?;
        Ok(files)
    }

    /// Puts a file of the cache where the user wants it.
    ///
    /// # Errors
    /// One line.
    pub fn deliver(&self, cached: &Path, target: &Path, mode: u32) -> Result<(), String> {
        let file = File::open(cached).map_err(|error| shortage(&error))?;
        self.done(&Ask::Deliver { target: bytes(target), mode }, Some(file.into()), &|| ())
    }

    /// Makes the directory of a job. `root`: of the cache.
    ///
    /// # Errors
    /// One line; nothing is left then.
    pub fn place(
        &self,
        root: &Path,
        room: &Path,
        stage: &Stage,
        found: &[PathBuf],
        tick: &dyn Fn(),
    ) -> Result<Placed, String> {
        let (placed, steps) = place::plan(room, stage, found);
        if placed.room.is_none() {
            return Ok(placed);
        }
        self.done(&Ask::Room { path: bytes(room) }, None, tick)?;
        let fill = |step: Step| {
            let cached = step.source().filter(|from| from.starts_with(root)).map(File::open).transpose();
            let cached = cached.map_err(|error| shortage(&error))?;
            self.done(&Ask::Fill(step), cached.map(OwnedFd::from), tick)
        };
        if let Err(why) = steps.into_iter().try_for_each(fill) {
            let _ = self.done(&Ask::Remove { room: bytes(room) }, None, tick);
            return Err(why);
        }
        Ok(placed)
    }
}

/// What comes through the pipe, in the cache.
fn filled(store: &Arc<Store>, pipe: &mut File, expected: u64, tick: &dyn Fn()) -> Result<Content, String> {
    let mut coming = store.begin(Content { hash: [0; 32], bytes: expected })?;
    let mut buffer = vec![0; 1 << 20];
    let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    while coming.have() < expected {
        match poll(&mut [PollFd::new(&*pipe, PollFlags::IN)], Some(&patience)) {
            Ok(0) => return Err(SILENT.to_owned()),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(shortage(&error.into())),
        }
        let most = buffer.len().min(usize::try_from(expected - coming.have()).unwrap_or(usize::MAX));
        match pipe.read(&mut buffer[..most]).map_err(|error| shortage(&error))? {
            0 => return Err("it is being written".to_owned()),
            count => coming.write(&buffer[..count])?,
        }
        tick();
    }
    coming.finish_as_it_is()
}

impl Staging {
    /// Where there are several users, the clerk of the one whose job it is.
    pub(super) async fn clerk(&self, owner: Option<&Owner>) -> Result<Option<Arc<Clerk>>, String> {
        match (&self.inner.several, owner) {
            (None, _) => Ok(None),
            (Some(several), Some(owner)) => several.clerk(owner).await.map(Some),
            (Some(_), None) => Err("it is not said whose the files are".to_owned()),
        }
    }

    /// The files of a job that is asked for here, by its user's rights; copies of all of them are kept.
    pub(super) fn survey_as_user(&self, stage: &mut Stage, clerk: &Clerk, tick: &dyn Fn()) -> Result<(), String> {
        for StageFile { path, content, mode, .. } in &mut stage.files {
            let failed = |why: String| format!("{} cannot travel with the job: {why}", as_path(path).display());
            (*content, *mode) = clerk.take(&self.inner.store, as_path(path), tick).map_err(failed)?;
        }
        Ok(())
    }

    /// Removes the directory of a job, as its user where that is another one.
    pub async fn remove(&self, room: PathBuf, owner: Option<Owner>) {
        if self.inner.several.is_none() {
            let _ = tokio::task::spawn_blocking(move || place::remove(&room)).await;
            return;
        }
        // Most keepers do it themselves.
        if !room.exists() {
            return;
        }
        let removed = match self.clerk(owner.as_ref()).await {
            Ok(Some(clerk)) => {
                let ask = Ask::Remove { room: bytes(&room) };
                blocking(move || clerk.done(&ask, None, &|| ())).await
            }
            Ok(None) => Ok(()),
            Err(why) => Err(why),
        };
        if let Err(why) = removed {
            log!(Warn, "stage", "{} cannot be removed: {why}", room.display());
        }
    }
}

/// Whether a user's directory there holds what could not be delivered.
pub fn is_kept(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(KEPT.as_bytes()))
}

pub fn bytes(path: &Path) -> Vec<u8> {
    path.as_os_str().as_encoded_bytes().to_vec()
}

pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(error.to_string()))
}

const SILENT: &str = "the process that opens the user's files says nothing any more";
const UNASKED: &str = "the process that opens the user's files says what was not asked for";
