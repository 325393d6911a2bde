//! Answering other nodes: a piece of a file that is here, or that is coming here, as soon as that piece is. One task for each node that
//! asks, so that answers have the order of the questions and a slow node keeps no other waiting. Hands out only what the asker can name
//! by its hash: no path of this machine can be read that way without knowing what is in it.

use super::fetch::{PIECE, WINDOW};
use super::known::Whose;
use super::{Avail, StageMsg, Staging, lock};
use crate::peer_message::PeerMsg;
use pulc_base::{NodeId, log};
use pulc_control::stage::{Content, as_path};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::mpsc;

/// Questions of one node that may wait: those of many transfers at once.
const QUESTIONS_MAX: usize = 64 * (WINDOW / PIECE as u64) as usize;
/// A node that asks nothing for so long needs no task.
const IDLE: Duration = Duration::from_secs(30);
/// Who waits for a piece that is coming here is told so again and again: its patience is with a node that says nothing.
const WORD: Duration = Duration::from_secs(5);

pub struct Get {
    pub content: Content,
    pub path: Vec<u8>,
    pub at: u64,
    pub len: u32,
}

impl Staging {
    pub(super) fn asked(&self, from: NodeId, get: Get) {
        let mut askers = lock(&self.inner.askers);
        let unsent = match askers.get(&from) {
            None => get,
            Some(asker) => match asker.try_send(get) {
                Ok(()) => return,
                // Its task has ended.
                Err(mpsc::error::TrySendError::Closed(get)) => get,
                Err(mpsc::error::TrySendError::Full(_)) => {
                    log!(Warn, "stage", "node {from} asks for more than {QUESTIONS_MAX} pieces at once: no answer");
                    return;
                }
            },
        };
        askers.retain(|_, asker| !asker.is_closed());
        askers.insert(from, self.start_answering(from, unsent));
    }

    fn start_answering(&self, from: NodeId, first: Get) -> mpsc::Sender<Get> {
        let (sender, mut questions) = mpsc::channel(QUESTIONS_MAX);
        let _ = sender.try_send(first);
        let staging = self.clone();
        tokio::spawn(async move {
            while let Ok(Some(get)) = tokio::time::timeout(IDLE, questions.recv()).await {
                let hash = get.content.hash;
                let answer = match staging.answer_to(from, &get).await {
                    Ok(bytes) => StageMsg::Data { hash, at: get.at, bytes },
                    Err(why) => StageMsg::Not { hash, why },
                };
                if staging.inner.mesh.send_wait(from, PeerMsg::Stage(answer)).await.is_err() {
                    return;
                }
            }
        });
        sender
    }

    pub(super) async fn answer_to(&self, from: NodeId, get: &Get) -> Result<Vec<u8>, String> {
        let end = get.at.checked_add(u64::from(get.len)).filter(|end| *end <= get.content.bytes);
        let Some(end) = end.filter(|_| get.len <= PIECE) else {
            return Err("a piece that the file does not have was asked for".to_owned());
        };
        // Not behind what a job here waits for, who may wait for the asker.
        if let Some(path) = self.cached(get.content).await
            && let Ok(bytes) = read(path, get.at, get.len).await
        {
            return Ok(bytes);
        }
        let pending = lock(&self.inner.pending).get(&get.content).cloned();
        if let Some(mut avail) = pending {
            let enough = |avail: &Avail| match avail {
                Avail::Coming { path, have } => path.is_some() && *have >= end,
                Avail::Here(_) | Avail::Failed(_) => true,
            };
            let avail = loop {
                let outcome = tokio::time::timeout(WORD, avail.wait_for(enough)).await;
                if let Ok(over) = outcome.map(|over| over.ok().map(|avail| avail.clone())) {
                    break over;
                }
                let wait = PeerMsg::Stage(StageMsg::Wait { hash: get.content.hash });
                self.inner.mesh.send_wait(from, wait).await.map_err(|error| error.to_string())?;
            };
            let place = match avail {
                Some(Avail::Coming { path, .. }) => path,
                Some(Avail::Here(path)) => Some(path),
                Some(Avail::Failed(why)) => return Err(why),
                None => None,
            };
            // It may have moved into the cache meanwhile; then it is found below.
            if let Some(path) = place
                && let Ok(bytes) = read(path, get.at, get.len).await
            {
                return Ok(bytes);
            }
        }
        let path = self.locate(get.content, &get.path).await;
        let path = path.ok_or_else(|| {
            let name = as_path(&get.path).display();
            format!("{name} was changed or removed since the job was asked for")
        })?;
        read(path, get.at, get.len).await
    }

    async fn cached(&self, content: Content) -> Option<PathBuf> {
        let staging = self.clone();
        let work = move || staging.inner.store.find(&content, &|| ());
        tokio::task::spawn_blocking(work).await.ok().flatten()
    }

    /// Where exactly this is on this machine.
    async fn locate(&self, content: Content, hint: &[u8]) -> Option<PathBuf> {
        let (staging, hint) = (self.clone(), as_path(hint).to_owned());
        let work = move || {
            let store = &staging.inner.store;
            if staging.inner.several.is_some() {
                // No file of a user's is read by this process.
                return store.find(&content, &|| ());
            }
            let holds = |path: &PathBuf| store.known().holds(path, &content, Whose::Users, &|| ());
            // What a submitter has changed since is in the cache as it was.
            let seen = store.known().place_of(&content);
            seen.filter(|path| holds(path))
                .or_else(|| store.find(&content, &|| ()))
                .or_else(|| Some(hint).filter(|path| path.is_absolute() && holds(path)))
        };
        tokio::task::spawn_blocking(work).await.ok().flatten()
    }
}

async fn read(path: PathBuf, at: u64, len: u32) -> Result<Vec<u8>, String> {
    let work = move || read_piece(&path, at, len).map_err(|error| format!("cannot read {}: {error}", path.display()));
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(error.to_string()))
}

fn read_piece(path: &Path, at: u64, len: u32) -> std::io::Result<Vec<u8>> {
    let file = std::fs::File::open(path)?;
    let mut bytes = vec![0; len as usize];
    file.read_exact_at(&mut bytes, at)?;
    Ok(bytes)
}
