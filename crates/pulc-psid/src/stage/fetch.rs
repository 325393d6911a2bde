//! Asking another node for a file, piece by piece. So many pieces are asked for at a time that a link is kept busy, and no more, so that
//! signs of life and orders of jobs, which take the same connection, never wait for long. What came can be passed on at once.

use super::store::Coming;
use super::{Answers, Avail, StageMsg, Staging, Ticker, lock};
use crate::peer_message::PeerMsg;
use pulc_base::NodeId;
use pulc_control::stage::StageFile;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// Bytes of one answer, and of all that were asked for and have not come.
pub const PIECE: u32 = 128 << 10;
pub const WINDOW: u64 = 4 * PIECE as u64;
/// A source that sends nothing for so long is given up. Shorter than the time that a job's parent waits without a word.
const PATIENCE: Duration = Duration::from_secs(20);

/// An answer, from whom it was asked.
pub enum Incoming {
    Data { at: u64, bytes: Vec<u8> },
    Wait,
    Not(String),
}

/// Nobody waits for answers any more when this goes.
struct Registered<'a> {
    staging: &'a Staging,
    hash: [u8; 32],
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        lock(&self.staging.inner.incoming).remove(&self.hash);
    }
}

impl Staging {
    pub(super) fn answered(&self, from: NodeId, hash: [u8; 32], answer: Incoming) {
        let incoming = lock(&self.inner.incoming);
        // Answers of a transfer that was given up come late.
        if let Some(answers) = incoming.get(&hash).filter(|answers| answers.from == from) {
            let _ = answers.waiting.send(answer);
        }
    }

    /// Brings a file into the cache.
    pub(super) async fn fetch(
        &self,
        file: &StageFile,
        from: NodeId,
        avail: &watch::Sender<Avail>,
        ticker: &Ticker,
    ) -> Result<PathBuf, String> {
        let content = file.content;
        let (waiting, mut answers) = mpsc::unbounded_channel();
        // Only one claims a file at a time.
        lock(&self.inner.incoming).insert(content.hash, Answers { from, waiting });
        let _registered = Registered { staging: self, hash: content.hash };
        let mut coming = self.begin(content).await?;
        let mut asked = 0;
        while coming.have() < content.bytes {
            while asked < content.bytes && asked - coming.have() < WINDOW {
                let len = u64::from(PIECE).min(content.bytes - asked) as u32;
                let get = StageMsg::Get { content, path: file.path.clone(), at: asked, len };
                let sent = self.inner.mesh.send_wait(from, PeerMsg::Stage(get)).await;
                sent.map_err(|error| format!("its source is lost: {error}"))?;
                asked += u64::from(len);
            }
            let (at, bytes) = match tokio::time::timeout(PATIENCE, answers.recv()).await {
                Ok(Some(Incoming::Data { at, bytes })) => (at, bytes),
                Ok(Some(Incoming::Wait)) => {
                    ticker.tick();
                    continue;
                }
                Ok(Some(Incoming::Not(why))) => return Err(why),
                Ok(None) => return Err("the node goes down".to_owned()),
                Err(_) => return Err(format!("node {from} has sent nothing for {} s", PATIENCE.as_secs())),
            };
            let expected = u64::from(PIECE).min(content.bytes - coming.have());
            if at != coming.have() || bytes.len() as u64 != expected {
                return Err(format!("node {from} has sent what was not asked for"));
            }
            coming = self.append(coming, bytes).await?;
            avail.send_replace(Avail::Coming { path: Some(coming.path.clone()), have: coming.have() });
            ticker.tick();
        }
        tokio::task::spawn_blocking(move || coming.finish()).await.unwrap_or_else(|error| Err(error.to_string()))
    }

    async fn begin(&self, content: pulc_control::stage::Content) -> Result<Coming, String> {
        let staging = self.clone();
        let work = move || staging.inner.store.begin(content);
        tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(error.to_string()))
    }

    async fn append(&self, mut coming: Coming, bytes: Vec<u8>) -> Result<Coming, String> {
        let work = move || coming.write(&bytes).map(|()| coming);
        tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(error.to_string()))
    }
}
