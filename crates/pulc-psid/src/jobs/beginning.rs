//! What the keeper of a job's part on this node is started with: the order as far as it concerns this node, what the job finds here, and, of
//! a queued job, how the keeper finds a later daemon. Part of the job room.

use super::local::LocalJob;
use super::message::Queued;
use super::staging::{program_of, with_placed};
use super::{Room, connection, keepers};
use crate::error::shortage;
use crate::keeper::message::{Order, Prepare, Stay};
use pulc_base::JobId;
use pulc_control::LaunchSpec;
use pulc_control::client::ENV_INSTANCE;
use pulc_control::network;
use pulc_control::place::ENV_STATE_DIR;
use pulc_control::queue::Files;
use std::path::Path;
use tokio::sync::mpsc;

/// `1` or `0`: somebody works at this node, or nobody, whatever is set for the cluster.
const ENV_DESK: &str = "PULC_DESK";

impl Room {
    pub(super) fn start_keeper(
        &mut self,
        job: JobId,
        part: &LocalJob,
    ) -> Result<(keepers::KeeperProcess, mpsc::UnboundedSender<Order>), String> {
        let stays = self.stay_of(part)?;
        let rails = self.own_rails(part)?;
        let (process, line) = keepers::start(&self.config.keeper_program, stays.is_some())?;
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
    fn stay_of(&self, part: &LocalJob) -> Result<Option<Stay>, String> {
        let Some(queued) = &part.order.queued else { return Ok(None) };
        let Some(link) = &self.config.queue else { return Err("this daemon has no queue".to_owned()) };
        let first = part.index == 0;
        Ok(Some(Stay {
            socket: link.keepers_socket.clone(),
            memo: pulc_base::boot::encode(&(&part.order, part.index)),
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
    if part.order.queued.is_some() {
        for name in [ENV_INSTANCE, ENV_STATE_DIR] {
            launch.env.retain(|(known, _)| known != name.as_bytes());
            if let Some(value) = std::env::var_os(name) {
                launch.env.push((name.as_bytes().to_vec(), value.into_encoded_bytes()));
            }
        }
    }
    launch
}
