//! What jobs bring along: programs, libraries and inputs that a node lacks come from its parent in the launch tree, into a cache, and are
//! given to the job; and what jobs give back. Called by the job room, which is never kept waiting: all work is done by tasks and on threads that may block.
//! `known` hashes of files of this machine, `store` the cache, `fetch` asking others, `serve` answering them, `place` directories of jobs, `give_back`
//! what comes home, `deliver` how it is put there.
//! Never hands out a file to whoever does not know what is in it, and believes nothing that comes but its hash.

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

pub use message::StageMsg;
pub use place::{Held, Placed, hold, passing, remove, sweep_passing};

use crate::mesh::Mesh;
use fetch::Incoming;
use give_back::{Offer, Word};
use known::Whose;
use pulc_base::param::Param;
use pulc_base::{JobId, NodeId};
use pulc_control::stage::{Content, Role, Stage, StageFile, as_path};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use store::Store;
use tokio::sync::{mpsc, watch};

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
}

impl Wanted {
    /// The node whose files they are.
    pub fn home(&self) -> Option<NodeId> {
        self.stage.home
    }
}

/// What was made for a job; gone again when nobody takes it.
pub struct Made(Placed);

impl Made {
    /// For a job that brings nothing along.
    pub fn nothing() -> Made {
        Made(Placed::default())
    }

    pub fn take(mut self) -> Placed {
        std::mem::take(&mut self.0)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        if let Some(room) = &self.0.room {
            remove(room);
        }
    }
}

/// Says that something goes on, at most every [`TICK`].
#[derive(Clone)]
pub struct Ticker {
    last: Arc<Mutex<Instant>>,
    say: Arc<dyn Fn() + Send + Sync>,
}

impl Ticker {
    pub fn new(say: impl Fn() + Send + Sync + 'static) -> Ticker {
        Ticker { last: Arc::new(Mutex::new(Instant::now())), say: Arc::new(say) }
    }

    pub fn tick(&self) {
        let mut last = lock(&self.last);
        if last.elapsed() >= TICK {
            *last = Instant::now();
            (self.say)();
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
            let kept = self.inner.store.root().join(give_back::KEPT);
            let _ = tokio::task::spawn_blocking(move || give_back::forget(&kept, age)).await;
            tokio::time::sleep(KEPT_LOOK).await;
        }
    }

    /// `root` is made when something is put there. What an earlier life has left in it is swept away.
    pub fn new(mesh: Mesh, root: PathBuf) -> Staging {
        place::sweep(&root);
        let store = Store::new(root, MAX_MIB.read().value << 20);
        let inner = Inner {
            mesh,
            store,
            pending: Mutex::default(),
            incoming: Mutex::default(),
            askers: Mutex::default(),
            offers: give_back::Offers::default(),
        };
        Staging { inner: Arc::new(inner) }
    }

    /// Looks at the files of a job that is asked for here. With `keep` they stay available when they are changed or removed.
    ///
    /// # Errors
    /// One line that names the file.
    pub async fn survey(&self, mut stage: Stage, keep: bool, ticker: Ticker) -> Result<Stage, String> {
        stage.check()?;
        let staging = self.clone();
        let work = move || {
            let (store, tick) = (&staging.inner.store, &|| ticker.tick());
            for file in &mut stage.files {
                let path = as_path(&file.path);
                let failed = |why: String| format!("{} cannot travel with the job: {why}", path.display());
                (file.content, file.mode) = store.known().look(path, Whose::Users, tick).map_err(failed)?;
                if keep && let Err(why) = store.keep(file.content, path, tick) {
                    // It is had from where it is, as long as it is what it was.
                    pulc_base::log!(Info, "stage", "no copy of {} is kept: {why}", path.display());
                }
            }
            stage.home = Some(staging.inner.mesh.me());
            Ok(stage)
        };
        tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(error.to_string()))
    }

    /// What the job needs is wanted from now on: who asks for it is answered when it is here. Does nothing yet.
    pub fn want(&self, stage: Stage) -> Wanted {
        let claims = stage.files.iter().map(|file| self.claim(file.content)).collect();
        Wanted { stage, claims }
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
        let Wanted { stage, claims } = wanted;
        let mut found = Vec::with_capacity(claims.len());
        for (file, claim) in stage.files.iter().zip(claims) {
            let path = self.ensure(file, claim, from, &ticker).await;
            found.push(path.map_err(|why| format!("{} is not to be had: {why}", as_path(&file.path).display()))?);
        }
        let staging = self.clone();
        let work = move || {
            let me = staging.inner.mesh.me();
            place::place(staging.inner.store.root(), job, me, &stage, &found).map(Made)
        };
        tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(error.to_string()))
    }

    /// Where a file is on this node, once it is.
    async fn ensure(
        &self,
        file: &StageFile,
        mut claim: Claim,
        from: NodeId,
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
        let outcome = match self.find(file, ticker).await {
            Some(path) => Ok(path),
            None if from == self.inner.mesh.me() => Err(CHANGED.to_owned()),
            None => self.fetch(file, from, &claimed.avail, ticker).await,
        };
        claimed.avail.send_replace(match &outcome {
            Ok(path) => Avail::Here(path.clone()),
            Err(why) => Avail::Failed(why.clone()),
        });
        outcome
    }

    /// On this machine already: where it is at home, or in the cache.
    async fn find(&self, file: &StageFile, ticker: &Ticker) -> Option<PathBuf> {
        let (staging, ticker) = (self.clone(), ticker.clone());
        let (path, content, mode, role) = (as_path(&file.path).to_owned(), file.content, file.mode, file.role);
        let work = move || {
            let (store, tick) = (&staging.inner.store, &|| ticker.tick());
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
        let room = place::room_of(self.inner.store.root(), job, self.inner.mesh.me());
        Placed { room: Some(room).filter(|room| room.exists()), ..Placed::default() }
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
                self.offered(from, Offer { ticket, content, path, mode, target });
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

fn executable(path: &std::path::Path) -> bool {
    rustix::fs::accessat(rustix::fs::CWD, path, rustix::fs::Access::EXEC_OK, rustix::fs::AtFlags::EACCESS).is_ok()
}
