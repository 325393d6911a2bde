//! What jobs bring along: programs, libraries and inputs that a node lacks come from its parent in the launch tree, into a cache, and are
//! given to the job; and what jobs give back. Called by the job room, which is never kept waiting: all work is done by tasks and on threads that may block.
//! `known` hashes of files of this machine, `store` the cache, `fetch` asking others, `serve` answering them, `place` directories of jobs, `give_back`
//! what comes home, `deliver` how it is put there; where there are several users, `users` has their files opened by `clerk`s.
//! Never hands out a file to whoever does not know what is in it, and believes nothing that comes but its hash.

pub mod clerk;
mod deliver;
mod fetch;
mod give_back;
mod known;
mod message;
mod place;
mod serve;
mod store;
#[cfg(test)]
pub(crate) mod tests;
mod ticker;
mod users;

pub use message::StageMsg;
pub use place::{Held, Placed, hold, passing, remove, sweep_passing};
pub use ticker::Ticker;
pub use users::Several;

use crate::mesh::Mesh;
use fetch::Incoming;
use give_back::{Offer, Word};
use known::Whose;
use pulc_base::param::Param;
use pulc_base::{JobId, NodeId};
use pulc_control::owner::Owner;
use pulc_control::stage::{Content, Role, Stage, StageFile, as_path};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use store::Store;
use tokio::sync::{mpsc, watch};
use users::{Clerk, blocking};

static MAX_MIB: Param = Param {
    name: "stage_max_mib",
    default: 8192,
    min: 1,
    max: 1 << 30,
    text: "room on a node for files that jobs bring along; what was used longest ago is thrown away for more",
};

static KEPT_DAYS: Param = Param {
    name: "stage_kept_days",
    default: 30,
    min: 1,
    max: 36_500,
    text: "time after which what a job was to give back and could not be delivered is removed from its node, in days",
};

pub static PARAMS: &[&Param] = &[&MAX_MIB, &KEPT_DAYS];

/// Between two looks for what was kept long enough.
const KEPT_LOOK: Duration = Duration::from_secs(6 * 3600);

const CHANGED: &str = "it was changed or removed since the job was asked for";

/// Between two words that something goes on.
const TICK: Duration = Duration::from_millis(500);

/// Handle on the room; clones share it.
#[derive(Clone)]
pub struct Staging {
    inner: Arc<Inner>,
}

struct Inner {
    mesh: Mesh,
    store: Arc<Store>,
    /// Whose files are whose, if not all are the daemon's user's.
    several: Option<Several>,
    /// What is being made available here, so that it comes once, and so that others can have of it what is there already.
    pending: Mutex<HashMap<Content, watch::Receiver<Avail>>>,
    /// Where answers go.
    incoming: Mutex<HashMap<[u8; 32], Answers>>,
    askers: Mutex<HashMap<NodeId, mpsc::Sender<serve::Get>>>,
    /// What was offered to the homes of jobs and is not there yet.
    offers: give_back::Offers,
}

/// Who was asked for a file, and who waits for the answers.
struct Answers {
    from: NodeId,
    waiting: mpsc::UnboundedSender<Incoming>,
}

/// How far a file is.
#[derive(Clone, Debug)]
enum Avail {
    /// `have` bytes of it are at `path`, or it is still being looked for.
    Coming {
        path: Option<PathBuf>,
        have: u64,
    },
    Here(PathBuf),
    Failed(String),
}

/// This one makes a file available, or another one does.
enum Claim {
    Ours(Claimed),
    Others(watch::Receiver<Avail>),
}

/// Whoever holds this makes a file available; when it goes, nobody does.
struct Claimed {
    staging: Staging,
    content: Content,
    avail: watch::Sender<Avail>,
}

impl Drop for Claimed {
    fn drop(&mut self) {
        lock(&self.staging.inner.pending).remove(&self.content);
    }
}

/// The files of one job on this node, from the moment on when the job's order came.
pub struct Wanted {
    stage: Stage,
    claims: Vec<Claim>,
    owner: Option<Owner>,
}

impl Wanted {
    /// The node whose files they are.
    pub fn home(&self) -> Option<NodeId> {
        self.stage.home
    }
}

/// What was made for a job; gone again when nobody takes it.
pub struct Made {
    placed: Placed,
    /// Where it is another user's.
    owner: Option<(Staging, Owner)>,
}

impl Made {
    /// For a job that brings nothing along.
    pub fn nothing() -> Made {
        Made { placed: Placed::default(), owner: None }
    }

    pub fn take(mut self) -> Placed {
        std::mem::take(&mut self.placed)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        let Some(room) = self.placed.room.take() else { return };
        match (self.owner.take(), tokio::runtime::Handle::try_current()) {
            (None, _) => remove(&room),
            (Some((staging, owner)), Ok(runtime)) => {
                runtime.spawn(async move { staging.remove(room, Some(owner)).await });
            }
            // The next daemon's.
            (Some(_), Err(_)) => {}
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Staging {
    /// Removes what was kept long enough, again and again.
    pub async fn forget_kept(self) {
        let age = Duration::from_secs(KEPT_DAYS.read().value * 24 * 3600);
        loop {
            if let Some(several) = &self.inner.several {
                let is_kept = |path: &PathBuf| users::is_kept(path);
                several.sweep(several.rooms_there().into_iter().filter(is_kept).collect(), age).await;
            }
            let kept = self.inner.store.root().join(give_back::KEPT);
            let _ = tokio::task::spawn_blocking(move || give_back::forget(&kept, age)).await;
            tokio::time::sleep(KEPT_LOOK).await;
        }
    }

    /// `root` is made when something is put there. What an earlier life has left in it is swept away.
    pub fn new(mesh: Mesh, root: PathBuf, several: Option<Several>) -> Staging {
        place::sweep(&root);
        let store = Store::new(root, MAX_MIB.read().value << 20);
        let inner = Inner {
            mesh,
            store,
            several,
            pending: Mutex::default(),
            incoming: Mutex::default(),
            askers: Mutex::default(),
            offers: give_back::Offers::default(),
        };
        Staging { inner: Arc::new(inner) }
    }

    /// Sweeps away what an earlier life has left that is other users'.
    pub fn sweep_users(&self) {
        let Some(several) = &self.inner.several else { return };
        // What this life makes is not among them.
        let left: Vec<PathBuf> = several.rooms_there().into_iter().filter(|path| !users::is_kept(path)).collect();
        let staging = self.clone();
        tokio::spawn(async move {
            if let Some(several) = &staging.inner.several {
                several.sweep(left, Duration::ZERO).await;
            }
        });
    }

    /// Where the directory of a job on this node is.
    fn room(&self, job: JobId) -> PathBuf {
        let me = self.inner.mesh.me();
        match &self.inner.several {
            Some(several) => place::room_of(&several.rooms, job, me),
            None => place::room_of(&self.inner.store.root().join(place::ROOMS), job, me),
        }
    }

    /// Looks at the files of a job that is asked for here. With `keep` they stay available when they are changed or removed.
    /// `owner`: whose job it is, where there are several users.
    ///
    /// # Errors
    /// One line that names the file.
    pub async fn survey(
        &self,
        mut stage: Stage,
        owner: Option<Owner>,
        keep: bool,
        ticker: Ticker,
    ) -> Result<Stage, String> {
        stage.check()?;
        let staging = self.clone();
        let clerk = self.clerk(owner.as_ref()).await?;
        blocking(move || {
            let (store, tick) = (&staging.inner.store, &|| ticker.tick());
            stage.home = Some(staging.inner.mesh.me());
            if let Some(clerk) = clerk {
                return staging.survey_as_user(&mut stage, &clerk, tick).map(|()| stage);
            }
            for file in &mut stage.files {
                let path = as_path(&file.path);
                let failed = |why: String| format!("{} cannot travel with the job: {why}", path.display());
                (file.content, file.mode) = store.known().look(path, Whose::Users, tick).map_err(failed)?;
                if keep && let Err(why) = store.keep(file.content, path, tick) {
                    // It is had from where it is, as long as it is what it was.
                    pulc_base::log!(Info, "stage", "no copy of {} is kept: {why}", path.display());
                }
            }
            Ok(stage)
        })
        .await
    }

    /// What the job needs is wanted from now on: who asks for it is answered when it is here. Does nothing yet.
    pub fn want(&self, stage: Stage, owner: Option<Owner>) -> Wanted {
        let claims = stage.files.iter().map(|file| self.claim(file.content)).collect();
        Wanted { stage, claims, owner }
    }

    fn claim(&self, content: Content) -> Claim {
        let mut pending = lock(&self.inner.pending);
        if let Some(avail) = pending.get(&content) {
            return Claim::Others(avail.clone());
        }
        let (avail, others) = watch::channel(Avail::Coming { path: None, have: 0 });
        pending.insert(content, others);
        Claim::Ours(Claimed { staging: self.clone(), content, avail })
    }

    /// Gets what a job lacks here from its parent in the launch tree, and makes its directory.
    ///
    /// # Errors
    /// One line.
    pub async fn stage(&self, job: JobId, wanted: Wanted, from: NodeId, ticker: Ticker) -> Result<Made, String> {
        let Wanted { stage, claims, owner } = wanted;
        let clerk = self.clerk(owner.as_ref()).await?;
        let mut found = Vec::with_capacity(claims.len());
        for (file, claim) in stage.files.iter().zip(claims) {
            let path = self.ensure(file, claim, (from, stage.home), clerk.as_ref(), &ticker).await;
            found.push(path.map_err(|why| format!("{} is not to be had: {why}", as_path(&file.path).display()))?);
        }
        let staging = self.clone();
        blocking(move || {
            let (root, me) = (staging.inner.store.root(), staging.inner.mesh.me());
            let placed = match clerk {
                None => place::place(root, job, me, &stage, &found)?,
                Some(clerk) => clerk.place(root, &staging.room(job), &stage, &found, &|| ticker.tick())?,
            };
            let owner = owner.map(|owner| (staging.clone(), owner));
            Ok(Made { placed, owner: owner.filter(|_| staging.inner.several.is_some()) })
        })
        .await
    }

    /// Where a file is on this node, once it is. `from`: the node that is asked for it, and its home, if that is another one.
    async fn ensure(
        &self,
        file: &StageFile,
        mut claim: Claim,
        (from, home): (NodeId, Option<NodeId>),
        clerk: Option<&Arc<Clerk>>,
        ticker: &Ticker,
    ) -> Result<PathBuf, String> {
        let claimed = loop {
            match claim {
                Claim::Ours(claimed) => break claimed,
                Claim::Others(mut avail) => {
                    if let Some(path) = until_over(&mut avail, ticker).await {
                        return Ok(path);
                    }
                    // Who was at it has failed or was stopped; it may have asked somebody else.
                    claim = self.claim(file.content);
                }
            }
        };
        let outcome = match self.find(file, clerk, ticker).await {
            Some(path) => Ok(path),
            None if from == self.inner.mesh.me() => Err(CHANGED.to_owned()),
            None => {
                let fetched = self.fetch(file, from, &claimed.avail, ticker).await;
                // Who has it as a user's own file gives it to nobody; its home has a copy.
                match home.filter(|home| fetched.is_err() && clerk.is_some() && *home != from) {
                    Some(home) => self.fetch(file, home, &claimed.avail, ticker).await,
                    None => fetched,
                }
            }
        };
        let is_ours = |path: &Path| self.inner.several.is_none() || path.starts_with(self.inner.store.root());
        claimed.avail.send_replace(match &outcome {
            Ok(path) if is_ours(path) => Avail::Here(path.clone()),
            Ok(_) => Avail::Failed("it is there as its user's own file".to_owned()),
            Err(why) => Avail::Failed(why.clone()),
        });
        outcome
    }

    /// On this machine already: where it is at home, or in the cache.
    async fn find(&self, file: &StageFile, clerk: Option<&Arc<Clerk>>, ticker: &Ticker) -> Option<PathBuf> {
        let (staging, clerk, ticker) = (self.clone(), clerk.cloned(), ticker.clone());
        let (path, content, mode, role) = (as_path(&file.path).to_owned(), file.content, file.mode, file.role);
        let work = move || {
            let (store, tick) = (&staging.inner.store, &|| ticker.tick());
            if staging.inner.several.is_some() {
                let holds = |clerk: Arc<Clerk>| clerk.holds(&path, content, role == Role::Program, tick);
                // A clerk that fails here fails again where it is needed, and says why.
                let is_there = clerk.is_some_and(|clerk| holds(clerk).unwrap_or(false));
                return if is_there { Some(path) } else { store.find(&content, tick) };
            }
            // A program that may not be executed here is none.
            let fits = || role != Role::Program || executable(&path) || mode & 0o111 == 0;
            if store.known().holds(&path, &content, Whose::Users, tick) && fits() {
                return Some(path);
            }
            store.find(&content, tick)
        };
        tokio::task::spawn_blocking(work).await.ok().flatten()
    }

    /// What an earlier life of this daemon has made for a job that goes on.
    pub fn room_of(&self, job: JobId) -> Placed {
        let room = Some(self.room(job)).filter(|room| room.exists());
        Placed { room, ..Placed::default() }
    }

    /// Nothing more comes from this node.
    pub fn lost(&self, node: NodeId) {
        self.inner.offers.lost(node);
    }

    /// From the daemon of another node.
    pub fn peer(&self, from: NodeId, message: StageMsg) {
        match message {
            StageMsg::Get { content, path, at, len } => self.asked(from, serve::Get { content, path, at, len }),
            StageMsg::Data { hash, at, bytes } => self.answered(from, hash, Incoming::Data { at, bytes }),
            StageMsg::Wait { hash } => self.answered(from, hash, Incoming::Wait),
            StageMsg::Not { hash, why } => self.answered(from, hash, Incoming::Not(why)),
            StageMsg::Offer { ticket, content, path, mode, target } => {
                self.offered(from, Offer { ticket, content, path, mode, target, owner: None });
            }
            StageMsg::OfferOf { ticket, content, path, mode, target, uid, name } => {
                let owner = Some(Owner { uid, name, groups: Vec::new() });
                self.offered(from, Offer { ticket, content, path, mode, target, owner });
            }
            StageMsg::Taking { ticket } => self.inner.offers.say(from, ticket, Word::Taking),
            StageMsg::Taken { ticket, outcome } => self.inner.offers.say(from, ticket, Word::Taken(outcome)),
        }
    }
}

/// Waits until a file is available, or is not made so any more.
async fn until_over(avail: &mut watch::Receiver<Avail>, ticker: &Ticker) -> Option<PathBuf> {
    loop {
        ticker.tick();
        let over = avail.wait_for(|avail| !matches!(avail, Avail::Coming { .. }));
        match tokio::time::timeout(TICK, over).await {
            Ok(Ok(avail)) => return if let Avail::Here(path) = &*avail { Some(path.clone()) } else { None },
            Ok(Err(_)) => return None,
            Err(_) => {}
        }
    }
}

fn executable(path: &Path) -> bool {
    rustix::fs::accessat(rustix::fs::CWD, path, rustix::fs::Access::EXEC_OK, rustix::fs::AtFlags::EACCESS).is_ok()
}
