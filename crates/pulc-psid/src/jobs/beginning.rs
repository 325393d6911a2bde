//! What the keeper of a job's part on this node is started with: the order as far as it concerns this node, what the job finds here, and, of
//! a queued job, how the keeper finds a later daemon. Part of the job room.

use super::local::LocalJob;
use super::message::Queued;
use super::rights::sealed;
use super::staging::{program_of, with_placed};
use super::{Event, Room, connection, keepers, own_user};
use crate::error::shortage;
use crate::keeper::message::{Order, Prepare, Stay};
use pulc_base::JobId;
use pulc_control::LaunchSpec;
use pulc_control::client::ENV_INSTANCE;
use pulc_control::network;
use pulc_control::owner::Owner;
use pulc_control::place::{ENV_RUN_DIR, ENV_STATE_DIR};
use pulc_control::queue::Files;
use std::os::unix::net::UnixStream;
use std::path::Path;
use tokio::sync::mpsc;

/// `1` or `0`: somebody works at this node, or nobody, whatever is set for the cluster.
const ENV_DESK: &str = "PULC_DESK";

/// A keeper and the way to it.
type Keeper = (keepers::KeeperProcess, mpsc::UnboundedSender<Order>);

impl Room {
    /// Everything that the job needs is here.
    pub(super) fn begin_keeper(&mut self, job: JobId, mut part: LocalJob) {
        let user = part.order.user;
        let started = match &self.config.system {
            Some(system) => {
                let owner = Owner::of(&part.order.launch).filter(|owner| owner.uid == user);
                match owner {
                    Some(owner) => {
                        let (events, helper) = (self.events.clone(), system.helper.clone());
                        let stays = part.order.queued.is_some();
                        let work = async move {
                            let keeper = keepers::start_as_user(helper, owner.uid, owner.name, stays).await;
                            let _ = events.send(Event::Became(job, keeper)).await;
                        };
                        // What nobody takes ends with its line.
                        part.staging = Some(tokio::spawn(work).abort_handle());
                        self.local.insert(job, part);
                        return;
                    }
                    None => {
                        Err("the job does not say whose it is; are all nodes of this cluster for several users?"
                            .to_owned())
                    }
                }
            }
            None if user == own_user() => {
                self.start_keeper(job, &part).map_err(|error| format!("cannot start a keeper: {error}"))
            }
            None => Err(format!("the job is of user {user}, this psid serves user {}", own_user())),
        };
        self.begun(job, part, started);
    }

    /// The helper has started a keeper, or says why not.
    pub(super) fn became(&mut self, job: JobId, keeper: Result<(keepers::KeeperProcess, UnixStream), String>) {
        // Of a part that has ended meanwhile the line is closed here.
        let Some(mut part) = self.local.remove(&job) else { return };
        if part.staging.take().is_none() {
            self.local.insert(job, part);
            return;
        }
        let begun = keeper
            .map_err(|why| format!("cannot start a keeper: {why}"))
            .and_then(|(process, line)| self.equip(job, &part, process, line));
        self.begun(job, part, begun);
    }

    fn begun(&mut self, job: JobId, mut part: LocalJob, keeper: Result<Keeper, String>) {
        match keeper {
            Ok(keeper) => {
                part.keeper = Some(keeper);
                self.local.insert(job, part);
            }
            Err(text) => self.not_begun(job, part, &text),
        }
    }

    fn start_keeper(&mut self, job: JobId, part: &LocalJob) -> Result<Keeper, String> {
        let (process, line) = keepers::start(&self.config.keeper_program, part.order.queued.is_some())?;
        self.equip(job, part, process, line)
    }

    /// Gives a keeper that has been started its order.
    fn equip(
        &mut self,
        job: JobId,
        part: &LocalJob,
        process: keepers::KeeperProcess,
        line: UnixStream,
    ) -> Result<Keeper, String> {
        let stays = self.stay_of(job, part)?;
        let rails = self.own_rails(part)?;
        let line = line.set_nonblocking(true).and_then(|()| tokio::net::UnixStream::from_std(line));
        let line = line.map_err(|error| shortage(&error))?;
        let sender = connection::keeper(line, job, self.events.clone());
        let (before, from_me_on) = part.order.nodes.split_at(part.index as usize);
        let me = &from_me_on[0];
        let _ = sender.send(Order::Prepare(Box::new(Prepare {
            job,
            node: self.me,
            node_name: me.name.clone(),
            first: before.iter().map(|node| node.ranks).sum(),
            count: me.ranks,
            total: part.order.nodes.iter().map(|node| node.ranks).sum(),
            launch: with_placed(at_home(part), &part.placed),
            rails,
            stays,
            program: program_of(&part.placed),
            returns: part.returns(),
            lowly: self.lowly(&me.name),
            room: part.placed.room.as_ref().map(|room| room.as_os_str().as_encoded_bytes().to_vec()),
        })));
        Ok((process, sender))
    }

    /// Whether jobs come last on this node: by its own environment, else as it is set for the cluster.
    fn lowly(&self, name: &str) -> bool {
        match std::env::var(ENV_DESK).as_deref() {
            Ok("1") => true,
            Ok("0") => false,
            _ => self.desks.has(name),
        }
    }

    /// How the keeper of a queued job finds us again.
    fn stay_of(&self, job: JobId, part: &LocalJob) -> Result<Option<Stay>, String> {
        let Some(queued) = &part.order.queued else { return Ok(None) };
        let Some(link) = &self.config.queue else { return Err("this daemon has no queue".to_owned()) };
        let first = part.index == 0;
        Ok(Some(Stay {
            socket: link.keepers_socket.clone(),
            memo: sealed(pulc_base::boot::encode(&(&part.order, part.index)), job, self.config.system.as_ref()),
            files: first.then(|| self.files_of(part, queued)),
            append: queued.append,
            script: queued.script.clone().filter(|_| first),
        }))
    }

    /// Where the job's streams lie: not in a directory that goes with the job.
    fn files_of(&self, part: &LocalJob, queued: &Queued) -> Files {
        let mut files = queued.files.clone();
        if let (true, Ok(cwd)) = (part.placed.directory.is_some(), std::str::from_utf8(&part.order.launch.cwd)) {
            let streams = [&mut files.output, &mut files.error, &mut files.input];
            streams.into_iter().flatten().for_each(|name| *name = format!("{}", Path::new(cwd).join(&*name).display()));
        }
        files
    }
}

/// What a queued job is started with here: `pulc run` inside of it has to find this daemon, not one that its submitter had.
fn at_home(part: &LocalJob) -> LaunchSpec {
    let mut launch = part.order.launch.clone();
    network::take_out(&mut launch);
    Owner::take_out(&mut launch);
    // Where there are several users it also tells the helper whose every process is.
    if part.order.queued.is_some() || std::env::var_os(ENV_RUN_DIR).is_some() {
        for name in [ENV_INSTANCE, ENV_STATE_DIR, ENV_RUN_DIR] {
            launch.env.retain(|(known, _)| known != name.as_bytes());
            if let Some(value) = std::env::var_os(name) {
                launch.env.push((name.as_bytes().to_vec(), value.into_encoded_bytes()));
            }
        }
    }
    launch
}
