//! Jobs that bring files along: looked at where they are asked for, fetched by each node before its keeper is started, while those who
//! wait for that node hear that something goes on. Part of the job room; the work is done by [`crate::stage`].

use super::connection::ClientId;
use super::local::LocalJob;
use super::message::{JobBody, JobOrder};
use super::origin::CODE_NOT_STARTED;
use super::{Event, Room};
use crate::queue::order::ENV_ALLOCATION;
use crate::stage::{Made, Staging, Ticker, Wanted};
use pulc_base::{JobId, NodeId};
use pulc_control::network;
use pulc_control::owner::Owner;
use pulc_control::queue::{JobSpec, QueueRequest};
use pulc_control::stage::Stage;
use pulc_control::{LaunchSpec, Reply, StopKind};
use std::path::Path;
use std::time::Duration;
use tokio::time::Instant;

/// Between two words of a node to the one above it.
const PAUSE: Duration = Duration::from_millis(400);

impl Room {
    /// Looks at the files that a job brings along, if it does, and gives its launch order.
    pub(super) fn dispatch(&mut self, id: JobId, mut order: JobOrder) {
        if let Err(why) = self.decide_networks(&order.nodes, &mut order.launch) {
            return self.not_dispatched(id, &why);
        }
        if let Some(job) = self.origin.get_mut(&id) {
            job.networks = network::decided(&order.launch);
        }
        let here = order.nodes.iter().all(|node| node.id == self.me);
        let (staging, stage) = match self.stage_of(&order.launch) {
            Ok(Some((staging, stage))) if stage.directory || !here => (staging, stage),
            Ok(_) => {
                Stage::take_out(&mut order.launch);
                return self.give_order(id, order);
            }
            Err(why) => return self.not_dispatched(id, &why),
        };
        let (events, ticker, owner) = (self.events.clone(), self.ticker(id), Owner::of(&order.launch));
        tokio::spawn(async move {
            let surveyed = staging.survey(stage, owner, false, ticker).await;
            let _ = events.send(Event::Surveyed(id, Box::new(order), surveyed)).await;
        });
    }

    pub(super) fn surveyed(&mut self, id: JobId, mut order: JobOrder, stage: Result<Stage, String>) {
        match stage {
            Ok(stage) => {
                stage.put(&mut order.launch);
                self.give_order(id, order);
            }
            Err(why) => self.not_dispatched(id, &why),
        }
    }

    fn give_order(&mut self, id: JobId, order: JobOrder) {
        // It may have been stopped meanwhile.
        let Some(job) = self.origin.get_mut(&id).filter(|job| !job.stopping) else { return };
        let root = order.nodes[0].id;
        // A root elsewhere has its own patience with those below it; ours is for one that says nothing.
        job.started_by = (root != self.me).then(|| self.patience.root_prepared_by());
        self.send(root, id, JobBody::Prepare(Box::new(order)));
    }

    fn not_dispatched(&mut self, id: JobId, why: &str) {
        self.end_job(id, StopKind::AtOnce, CODE_NOT_STARTED, why);
    }

    /// What a launch brings along, and who sees to it.
    fn stage_of(&self, launch: &LaunchSpec) -> Result<Option<(Staging, Stage)>, String> {
        let Some(stage) = Stage::of(launch)? else { return Ok(None) };
        let staging =
            self.config.stage.clone().ok_or("nothing can travel with a job here: this psid has no place for it")?;
        Ok(Some((staging, stage)))
    }

    /// Something goes on with the files of a job here.
    fn ticker(&self, id: JobId) -> Ticker {
        let events = self.events.clone();
        // With a full queue the next word will do.
        Ticker::new(move || _ = events.try_send(Event::Staging(id)))
    }

    /// What this node's part of a job brings along: wanted from now on, so that those below us in the tree can ask us for it.
    pub(super) fn wanted(&self, part: &LocalJob) -> Result<Option<(Staging, Wanted)>, String> {
        let Some((staging, stage)) = self.stage_of(&part.order.launch)? else { return Ok(None) };
        let wanted = staging.want(stage, Owner::of(&part.order.launch));
        Ok(Some((staging, wanted)))
    }

    /// Whether this node looks at itself before it starts a job.
    pub(super) fn checks(&self, part: &LocalJob) -> bool {
        // What begins inside of a job that runs is no new work.
        let is_step = part.order.launch.env.iter().any(|(name, _)| name == ENV_ALLOCATION.as_bytes());
        self.config.health.is_some() && (part.order.queued.is_some() || !is_step)
    }

    /// Sees whether this node is fit, and gets what the job needs from the node above this one, at the root of the tree from its home.
    pub(super) fn begin_staging(&mut self, job: JobId, part: &mut LocalJob, wanted: Option<(Staging, Wanted)>) {
        let (events, ticker) = (self.events.clone(), self.ticker(job));
        let home = wanted.as_ref().and_then(|(_, wanted)| wanted.home());
        let from = home.filter(|_| part.index == 0).unwrap_or_else(|| part.parent());
        let health = self.config.health.clone().filter(|_| self.checks(part));
        let work = async move {
            if let Some(health) = health
                && let Err(why) = health.before_a_job(&ticker).await
            {
                let _ = events.send(Event::Unfit(job, why)).await;
                return;
            }
            let made = match wanted {
                Some((staging, wanted)) => staging.stage(job, wanted, from, ticker).await,
                None => Ok(Made::nothing()),
            };
            let _ = events.send(Event::Staged(job, made)).await;
        };
        part.staging = Some(tokio::spawn(work).abort_handle());
    }

    pub(super) fn staged(&mut self, job: JobId, made: Result<Made, String>) {
        // Of a part that has ended meanwhile everything goes again.
        let Some(part) = self.local.get_mut(&job).filter(|part| part.staging.is_some()) else { return };
        part.staging = None;
        part.prepared_by = Some(self.patience.prepared_by(part.depth()));
        match made {
            Ok(made) => {
                part.placed = made.take();
                let part = self.local.remove(&job).expect("it was just there");
                self.begin_keeper(job, part);
            }
            Err(why) => {
                let (origin, name) = (part.origin(), part.name().to_owned());
                self.send(origin, job, JobBody::Failed { text: format!("node {name}: {why}") });
                self.cleared(job);
            }
        }
    }

    pub(super) fn unfit(&mut self, job: JobId, why: &str) {
        let Some(part) = self.local.get_mut(&job).filter(|part| part.staging.is_some()) else { return };
        part.staging = None;
        let (origin, text) = (part.origin(), format!("node {}: {why}", part.name()));
        self.send(origin, job, JobBody::Unfit { text });
        self.cleared(job);
    }

    /// Something goes on here, or with a node below this one.
    pub(super) fn staging_goes_on(&mut self, job: JobId) {
        let patience = self.patience;
        if let Some(part) = self.local.get_mut(&job).filter(|part| part.prepared_by.is_some()) {
            part.prepared_by = Some(patience.prepared_by(part.depth()));
            let now = Instant::now();
            if part.told_at.is_none_or(|at| now.saturating_duration_since(at) >= PAUSE) {
                part.told_at = Some(now);
                let parent = part.parent();
                self.send(parent, job, JobBody::Staging);
            }
        } else if let Some(client) = self.origin.get(&job).and_then(|origin| origin.client) {
            // The files are being looked at.
            self.reply(client, Reply::Staging);
        }
    }

    /// A node that we wait for says that it is at it.
    pub(super) fn child_stages(&mut self, from: NodeId, job: JobId) {
        if let Some(own) = self.origin.get_mut(&job).filter(|own| own.nodes[0].id == from) {
            if own.started_by.is_some() {
                own.started_by = Some(self.patience.root_prepared_by());
            }
            let client = own.client;
            return client.into_iter().for_each(|client| self.reply(client, Reply::Staging));
        }
        let below = |part: &&LocalJob| part.children().any(|child| part.order.nodes[child as usize].id == from);
        if self.local.get(&job).filter(below).is_some() {
            self.staging_goes_on(job);
        }
    }

    /// A job for the queue: its files are looked at before it goes to the controller, and copies of them kept.
    pub(super) fn submit(&mut self, client: ClientId, mut spec: Box<JobSpec>) {
        if let Err(why) = self.own_launch(client, &mut spec.launch) {
            return self.reply(client, Reply::Refused { why });
        }
        match self.stage_of(&spec.launch) {
            Ok(Some((staging, stage))) => {
                let Some(sender) = self.clients.get(&client).map(|client| client.sender.clone()) else { return };
                let (events, owner) = (self.events.clone(), Owner::of(&spec.launch));
                tokio::spawn(async move {
                    let ticker = Ticker::new(move || _ = sender.send(Reply::Staging));
                    let surveyed = staging.survey(stage, owner, true, ticker).await;
                    let _ = events.send(Event::Submitted(client, spec, surveyed)).await;
                });
            }
            Ok(None) => {
                Stage::take_out(&mut spec.launch);
                self.ask_queue(client, QueueRequest::Submit(spec));
            }
            Err(why) => self.reply(client, Reply::Refused { why }),
        }
    }

    pub(super) fn submitted(&mut self, client: ClientId, mut spec: Box<JobSpec>, stage: Result<Stage, String>) {
        match stage {
            Ok(stage) => {
                stage.put(&mut spec.launch);
                self.ask_queue(client, QueueRequest::Submit(spec));
            }
            Err(why) => self.reply(client, Reply::Refused { why }),
        }
    }
}

/// What a job finds instead of what its launch says: libraries of its own, a directory of its own.
pub(super) fn with_placed(mut launch: LaunchSpec, placed: &crate::stage::Placed) -> LaunchSpec {
    Stage::take_out(&mut launch);
    let bytes = |path: &Path| path.as_os_str().as_encoded_bytes().to_vec();
    let mut set = |name: &[u8], value: &dyn Fn(Option<&[u8]>) -> Vec<u8>| {
        let old = launch.env.iter().rposition(|(known, _)| known == name).map(|at| launch.env.remove(at).1);
        launch.env.retain(|(known, _)| known != name);
        launch.env.push((name.to_vec(), value(old.as_deref())));
    };
    if let Some(libraries) = &placed.libraries {
        set(b"LD_LIBRARY_PATH", &|old| match old {
            Some(old) if !old.is_empty() => [&bytes(libraries)[..], b":", old].concat(),
            _ => bytes(libraries),
        });
    }
    if let Some(directory) = &placed.directory {
        set(b"PWD", &|_| bytes(directory));
        launch.cwd = bytes(directory);
    }
    launch
}

/// The path of a program that the keeper is to start instead of the one that the launch names.
pub(super) fn program_of(placed: &crate::stage::Placed) -> Option<Vec<u8>> {
    placed.program.as_ref().map(|path| path.as_os_str().as_encoded_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::Placed;
    use pulc_control::stage::as_path;

    #[test]
    fn a_job_finds_its_own_libraries_first_and_its_own_directory() {
        let env = [("LD_LIBRARY_PATH", "/theirs"), ("PULC_STAGE", "00"), ("PWD", "/home")];
        let launch = LaunchSpec {
            argv: Vec::new(),
            env: env.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
            cwd: b"/home".to_vec(),
            umask: 0,
            limits: Vec::new(),
            pin: false,
            kill_delay_ms: 0,
        };
        let placed = Placed { libraries: Some("/l".into()), directory: Some("/w".into()), ..Placed::default() };
        let changed = with_placed(launch.clone(), &placed);
        let text = |name: &[u8], value: &[u8]| (name.to_vec(), value.to_vec());
        assert_eq!(changed.env, [text(b"LD_LIBRARY_PATH", b"/l:/theirs"), text(b"PWD", b"/w")]);
        assert_eq!(changed.cwd, b"/w");
        let same = with_placed(launch, &Placed::default());
        assert_eq!(same.env, [text(b"LD_LIBRARY_PATH", b"/theirs"), text(b"PWD", b"/home")]);
        assert_eq!(
            as_path(&program_of(&Placed { program: Some("/b/x".into()), ..placed }).unwrap()),
            Path::new("/b/x")
        );
    }
}
