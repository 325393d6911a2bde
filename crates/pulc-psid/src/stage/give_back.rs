//! What a job gives back: files out of its directory on a node, to the node where it was asked for. The node that has one offers it, by what
//! is in it, and its home fetches it as any file, checks it, and puts it where the job's user has said. Only when it is on disk there the
//! node is told so, and only then the job is over. What can't be delivered is kept on the node and said. A node that comes back offers
//! again, and a home that has it already takes it once more.

use super::clerk::Ask;
use super::deliver::deliver;
use super::known::Whose;
use super::users::{Clerk, blocking, bytes};
use super::{StageMsg, Staging, Ticker, lock};
use crate::mesh::WITH_USERS_FILES;
use crate::peer_message::PeerMsg;
use pulc_base::{JobId, NodeId, log};
use pulc_control::owner::Owner;
use pulc_control::stage::{Content, FILES_MAX, Output, Role, StageFile, as_path};
use pulc_control::{NodeInfo, NodeState};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// How long the home may say nothing about a file that it was offered.
const PATIENCE: Duration = Duration::from_secs(60);
/// Under the store's directory: what could not be delivered, by job.
pub(super) const KEPT: &str = "kept";
/// Between two words of the home.
const WORD: Duration = Duration::from_secs(5);
/// How long the home of a queued job's files may be away, and between two looks for it.
const AWAY: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(200);
/// Directories that are walked into, one in the other.
const DEPTH_MAX: usize = 32;

/// A file for its home.
#[derive(Clone, Debug)]
pub struct Offer {
    pub ticket: u64,
    pub content: Content,
    pub path: Vec<u8>,
    pub mode: u32,
    pub target: Vec<u8>,
    /// As whom it is put there, where there are several users.
    pub owner: Option<Owner>,
}

/// What a home says about an offer.
#[derive(Debug, PartialEq, Eq)]
pub enum Word {
    Taking,
    Taken(Result<(), String>),
}

/// Offers that were not answered, by their numbers.
#[derive(Default)]
pub struct Offers {
    next: AtomicU64,
    open: Mutex<HashMap<u64, (NodeId, mpsc::UnboundedSender<Word>)>>,
}

impl Offers {
    fn add(&self, home: NodeId) -> (u64, mpsc::UnboundedReceiver<Word>) {
        let (sender, words) = mpsc::unbounded_channel();
        let ticket = self.next.fetch_add(1, Ordering::Relaxed);
        lock(&self.open).insert(ticket, (home, sender));
        (ticket, words)
    }

    fn remove(&self, ticket: u64) {
        lock(&self.open).remove(&ticket);
    }

    /// Believed only from the node that was offered it.
    pub fn say(&self, from: NodeId, ticket: u64, word: Word) {
        if let Some((_, sender)) = lock(&self.open).get(&ticket).filter(|(home, _)| *home == from) {
            let _ = sender.send(word);
        }
    }

    /// Who waits for this node waits no longer.
    pub fn lost(&self, node: NodeId) {
        lock(&self.open).retain(|_, (home, _)| *home != node);
    }
}

impl Staging {
    /// Gives back what a job has left in `work` of its room. With `patient` a home that is away is waited for.
    ///
    /// # Errors
    /// One line that names what was not there, or could not be delivered and where it is kept.
    pub async fn give_back(
        &self,
        job: JobId,
        room: PathBuf,
        outputs: Vec<Output>,
        owner: Option<Owner>,
        (home, patient): (NodeId, bool),
    ) -> Result<(), String> {
        let owner = owner.filter(|_| self.inner.several.is_some());
        let mut failures = Vec::new();
        for output in outputs {
            let path = room.join("work").join(as_path(&output.name));
            if let Err(why) = self.give(&path, as_path(&output.path), owner.as_ref(), (home, patient)).await {
                let kept = self.keep_back(job, path, &output.name, owner.as_ref()).await;
                let kept = kept.map(|place| format!("; it is kept as {}", place.display())).unwrap_or_default();
                failures.push(format!("{} does not come back: {why}{kept}", as_path(&output.name).display()));
            }
        }
        if failures.is_empty() { Ok(()) } else { Err(failures.join("; ")) }
    }

    /// A file, or all that is in a directory.
    async fn give(&self, path: &Path, target: &Path, owner: Option<&Owner>, to: (NodeId, bool)) -> Result<(), String> {
        let (path, target) = (path.to_owned(), target.to_owned());
        let clerk = self.clerk(owner).await?;
        let lists = clerk.clone();
        let files = blocking(move || {
            let mut files = Vec::new();
            match lists {
                Some(clerk) => clerk.list(&path, &target),
                None => list(&mut files, &path, &target, 0).map(|()| files),
            }
        });
        for (path, target) in files.await? {
            self.give_one(&path, &target, owner.zip(clerk.clone()), to).await?;
        }
        Ok(())
    }

    async fn give_one(
        &self,
        path: &Path,
        target: &Path,
        user: Option<(&Owner, Arc<Clerk>)>,
        (home, patient): (NodeId, bool),
    ) -> Result<(), String> {
        let (staging, own, place) = (self.clone(), path.to_owned(), target.to_owned());
        let (owner, clerk) = user.unzip();
        if home == self.inner.mesh.me() {
            return blocking(move || match clerk {
                Some(clerk) => clerk.done(&Ask::DeliverOwn { from: bytes(&own), target: bytes(&place) }, None, &|| ()),
                None => deliver(&own, &place, None),
            })
            .await;
        }
        let looked = move || match clerk {
            Some(clerk) => clerk.take(&staging.inner.store, &own, &|| ()),
            None => staging.inner.store.known().look(&own, Whose::Users, &|| ()),
        };
        let (content, mode) = blocking(looked).await?;
        let too_old = |known: &NodeInfo| known.id == home && known.version < WITH_USERS_FILES;
        if owner.is_some() && self.inner.mesh.nodes().iter().any(too_old) {
            return Err(format!(
                "the daemon of node {home}, where the job was asked for, does not take files of several users yet; upgrade it"
            ));
        }
        let until = Instant::now() + if patient { AWAY } else { Duration::ZERO };
        loop {
            if self.is_up(home)
                && let Some(outcome) = self.offer(home, content, (path, mode), target, owner).await
            {
                return outcome;
            }
            if Instant::now() >= until {
                return Err(format!("node {home}, where the job was asked for, is lost"));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    fn is_up(&self, node: NodeId) -> bool {
        let is_up = |state| matches!(state, NodeState::Up | NodeState::Draining | NodeState::Torpid);
        self.inner.mesh.nodes().iter().any(|known| known.id == node && is_up(known.state))
    }

    /// The home's verdict; none when it is lost.
    async fn offer(
        &self,
        home: NodeId,
        content: Content,
        (path, mode): (&Path, u32),
        target: &Path,
        owner: Option<&Owner>,
    ) -> Option<Result<(), String>> {
        let (ticket, mut words) = self.inner.offers.add(home);
        let (path, target) = (bytes(path), bytes(target));
        let message = match owner {
            Some(Owner { uid, name, .. }) => {
                StageMsg::OfferOf { ticket, content, path, mode, target, uid: *uid, name: name.clone() }
            }
            None => StageMsg::Offer { ticket, content, path, mode, target },
        };
        let outcome = match self.inner.mesh.send_wait(home, PeerMsg::Stage(message)).await {
            Err(_) => None,
            Ok(()) => loop {
                match tokio::time::timeout(PATIENCE, words.recv()).await {
                    Ok(Some(Word::Taking)) => {}
                    Ok(Some(Word::Taken(outcome))) => break Some(outcome),
                    Ok(None) => break None,
                    Err(_) => {
                        break Some(Err(format!(
                            "its home, node {home}, has said nothing for {} s",
                            PATIENCE.as_secs()
                        )));
                    }
                }
            },
        };
        self.inner.offers.remove(ticket);
        outcome
    }

    /// From the node that has a file: fetches it and puts it in its place.
    pub(super) fn offered(&self, from: NodeId, offer: Offer) {
        let staging = self.clone();
        tokio::spawn(async move {
            let ticket = offer.ticket;
            let say = async |word| staging.inner.mesh.send_wait(from, PeerMsg::Stage(word)).await;
            let work = staging.take_back(from, offer);
            tokio::pin!(work);
            let outcome = loop {
                match tokio::time::timeout(WORD, &mut work).await {
                    Ok(outcome) => break outcome,
                    // A node that is lost has nothing to be told, and what it has goes no further.
                    Err(_) if say(StageMsg::Taking { ticket }).await.is_err() => return,
                    Err(_) => {}
                }
            };
            let _ = say(StageMsg::Taken { ticket, outcome }).await;
        });
    }

    async fn take_back(&self, from: NodeId, offer: Offer) -> Result<(), String> {
        let Offer { content, path, mode, target, owner, .. } = offer;
        // Before anything travels: a user who is unknown here gets nothing.
        let clerk = self.clerk(owner.as_ref()).await?;
        let file = StageFile { role: Role::Input, name: b"output".to_vec(), path, mode, content };
        let claim = self.claim(content);
        let cached = self.ensure(&file, claim, (from, None), None, &Ticker::new(|| ())).await?;
        let target = as_path(&target).to_owned();
        blocking(move || match clerk {
            Some(clerk) => clerk.deliver(&cached, &target, mode),
            None => deliver(&cached, &target, Some(mode)),
        })
        .await
    }

    /// What can't be delivered stays on this node, out of the job's directory.
    async fn keep_back(&self, job: JobId, path: PathBuf, name: &[u8], owner: Option<&Owner>) -> Option<PathBuf> {
        if let Some(several) = &self.inner.several {
            let (place, clerk) = (several.kept(job, name), self.clerk(owner).await.ok().flatten()?);
            let ask = Ask::Keep { from: bytes(&path), to: bytes(&place) };
            return blocking(move || clerk.done(&ask, None, &|| ())).await.ok().map(|()| place);
        }
        let place = self.inner.store.root().join(KEPT).join(job.to_string()).join(as_path(name));
        let work = move || {
            fs::symlink_metadata(&path).map_err(|error| error.to_string())?;
            let above = place.parent().map_or(Ok(()), super::store::make_directory);
            above.and_then(|()| fs::rename(&path, &place)).map_err(|error| error.to_string())?;
            Ok(place)
        };
        blocking(work).await.ok()
    }
}

/// Removes what jobs have left there that was not touched for so long. Where the clock makes no sense nothing is.
pub(super) fn forget(kept: &Path, age: Duration) {
    for job in fs::read_dir(kept).into_iter().flatten().flatten() {
        let old = job.metadata().and_then(|data| data.modified()).ok().and_then(|at| at.elapsed().ok());
        if old.is_some_and(|old| old >= age) {
            match fs::remove_dir_all(job.path()) {
                Ok(()) => log!(Info, "stage", "{} was kept long enough and is removed", job.path().display()),
                Err(error) => log!(Warn, "stage", "{} cannot be removed: {error}", job.path().display()),
            }
        }
    }
}

/// The files that come back, each with its place at home. Not through links of the job's into other directories.
pub(super) fn list(
    files: &mut Vec<(PathBuf, PathBuf)>,
    path: &Path,
    target: &Path,
    depth: usize,
) -> Result<(), String> {
    let inside = |error: std::io::Error| match depth {
        0 => error.to_string(),
        _ => format!("{}: {error}", path.file_name().unwrap_or(OsStr::new("?")).display()),
    };
    let data = if depth == 0 { fs::metadata(path) } else { fs::symlink_metadata(path) }.map_err(inside)?;
    if !data.is_dir() {
        if files.len() >= FILES_MAX {
            return Err(format!("it has more than {FILES_MAX} files; pack them into one"));
        }
        files.push((path.to_owned(), target.to_owned()));
        return Ok(());
    }
    if depth >= DEPTH_MAX {
        return Err(format!("directories stand in each other more than {DEPTH_MAX} deep"));
    }
    let entries: Result<Vec<_>, _> = fs::read_dir(path).map_err(inside)?.collect();
    let mut names: Vec<_> = entries.map_err(inside)?.into_iter().map(|entry| entry.file_name()).collect();
    names.sort();
    names.into_iter().try_for_each(|name| list(files, &path.join(&name), &target.join(&name), depth + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::tests::directory;

    #[test]
    fn a_directory_comes_back_with_all_that_is_in_it() {
        let root = directory("give-back");
        fs::create_dir_all(root.join("d/e")).unwrap();
        fs::write(root.join("d/e/x"), "x").unwrap();
        fs::write(root.join("d/y"), "y").unwrap();
        let listed = |name: &str| {
            let mut files = Vec::new();
            list(&mut files, &root.join(name), Path::new("/t"), 0).map(|()| files)
        };
        let files = listed("d").unwrap();
        assert_eq!(files, [(root.join("d/e/x"), "/t/e/x".into()), (root.join("d/y"), "/t/y".into())]);
        assert_eq!(listed("d/y").unwrap(), [(root.join("d/y"), "/t".into())]);
        assert!(listed("none").unwrap_err().contains("No such file"));
        // Round in a circle is no way.
        std::os::unix::fs::symlink(&root, root.join("d/e/up")).unwrap();
        assert_eq!(listed("d").unwrap().len(), 3);
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn what_was_kept_long_enough_is_removed_and_nothing_else() {
        let root = directory("kept");
        let day = Duration::from_secs(24 * 3600);
        let now = std::time::SystemTime::now();
        for (name, at) in [("old", now - 40 * day), ("young", now - 20 * day), ("to-come", now + 400 * day)] {
            fs::create_dir_all(root.join(name).join("d")).unwrap();
            fs::write(root.join(name).join("d/x"), "x").unwrap();
            fs::File::open(root.join(name)).unwrap().set_modified(at).unwrap();
        }
        forget(&root.join("none"), day);
        forget(&root, 30 * day);
        let mut left: Vec<_> = fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["to-come", "young"]);
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn only_the_home_is_believed_and_who_waits_for_a_lost_one_is_told() {
        let offers = Offers::default();
        let (home, other) = (NodeId([1; 16]), NodeId([2; 16]));
        let (ticket, mut words) = offers.add(home);
        offers.say(other, ticket, Word::Taken(Ok(())));
        offers.lost(other);
        offers.say(home, ticket, Word::Taking);
        assert_eq!(words.try_recv(), Ok(Word::Taking));
        offers.lost(home);
        assert_eq!(words.try_recv(), Err(mpsc::error::TryRecvError::Disconnected));
    }
}
