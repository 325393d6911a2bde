//! What is refused at the door: requests that make no sense, and jobs that could not run even on an empty cluster. Every refusal
//! says which value, why, and what to do.

use crate::controller::Controller;
use crate::fit::{Room, place};
use crate::plan::in_networks_of;
use crate::state::HISTORY_MAX;
use pulc_base::param::Fixed;
use pulc_control::network;
use pulc_control::owner::Owner;
use pulc_control::queue::JobSpec;
use pulc_control::who::Who;

/// Jobs that have not ended.
pub const JOBS_MAX: usize = 100_000;
pub const TASKS_MAX: usize = 10_000;
/// Processes of one job.
const RANKS_MAX: u32 = 100_000;
/// Arguments, environment and script together.
const SPEC_BYTES_MAX: usize = 2 << 20;
const WORDS_MAX: usize = 1000;

/// What nobody sets.
pub const FIXED: &[Fixed] = &[
    Fixed {
        name: "queue_jobs_max",
        value: JOBS_MAX as u64,
        text: "jobs in the queue that have not ended, each task of an array counted",
    },
    Fixed { name: "queue_tasks_max", value: TASKS_MAX as u64, text: "tasks of one array" },
    Fixed { name: "queue_ranks_max", value: RANKS_MAX as u64, text: "processes of one queued job" },
    Fixed {
        name: "queue_spec_max_bytes",
        value: SPEC_BYTES_MAX as u64,
        text: "arguments, environment and script of one job together",
    },
    Fixed { name: "queue_history_max", value: HISTORY_MAX as u64, text: "ended jobs that the controller remembers" },
];

impl Controller {
    /// # Errors
    /// One line for the user.
    pub(crate) fn admit(&self, user: u32, spec: &JobSpec) -> Result<(), String> {
        shape(spec)?;
        let tasks = spec.array.as_ref().map_or(1, |array| array.indices.len());
        let live = self.state.waiting.len() + self.state.placed.len();
        if live + tasks > JOBS_MAX {
            return Err(format!(
                "{live} jobs have not ended yet, the limit is {JOBS_MAX}; submit again when some have"
            ));
        }
        for dependency in &spec.after {
            if self.targets(dependency.on).is_empty() {
                return Err(format!("there is no job {}; see `pulc queue` and `pulc history`", dependency.on));
            }
        }
        if let Some(name) = &spec.reservation {
            let Some(reservation) = self.state.reservations.get(name) else {
                return Err(format!("there is no reservation {name:?}; see `pulc reserve`"));
            };
            if !Who::any(&reservation.users, user, || Owner::groups_of(&spec.launch)) {
                return Err(format!("reservation {name:?} is not for user {user}"));
            }
        }
        self.possible(user, spec)
    }

    /// Whether all the nodes ever seen could run it if nothing else did.
    fn possible(&self, user: u32, spec: &JobSpec) -> Result<(), String> {
        let known: Vec<&str> = self.seen.values().map(|seen| seen.now.name.as_str()).collect();
        if let Some(name) = spec.on.iter().chain(&spec.not_on).find(|name| !known.contains(&name.as_str())) {
            return Err(format!("there is no node {name:?}; `pulc nodes` shows those there are"));
        }
        let rooms: Vec<Room> = self.empty_rooms();
        let rooms = in_networks_of(spec, &rooms);
        if place(spec, user, &rooms).is_some() {
            return Ok(());
        }
        let suiting: Vec<&Room> = rooms.iter().filter(|room| room.suits(spec, user)).collect();
        let slots: u32 = suiting.iter().map(|room| room.slots).sum();
        let wanted = u64::from(spec.ranks) * u64::from(spec.threads);
        Err(match suiting.len() {
            0 => {
                "no node of this cluster fits what was asked for (names, features, memory, cores, networks, users); `pulc nodes` shows \
                 what there is"
                    .to_owned()
            }
            count if spec.nodes.is_some_and(|nodes| nodes as usize > count) => {
                format!("{} nodes asked for, but only {count} fit; `pulc nodes` shows them", spec.nodes.unwrap_or_default())
            }
            count => format!(
                "{wanted} slots asked for, but the {count} nodes that fit have {slots} in all; ask for fewer, or use --overbook"
            ),
        })
    }

    /// All nodes ever seen as if nothing ran there and all were up.
    pub(crate) fn empty_rooms(&self) -> Vec<Room> {
        self.seen.values().map(|seen| Room { load_milli: 0, ..self.room_of(seen) }).collect()
    }
}

/// What makes no sense whatever the cluster is.
fn shape(spec: &JobSpec) -> Result<(), String> {
    if spec.launch.argv.is_empty() {
        return Err("no program given".to_owned());
    }
    if spec.ranks == 0 || spec.ranks > RANKS_MAX {
        return Err(format!("{} processes asked for; from 1 to {RANKS_MAX} are possible (-n)", spec.ranks));
    }
    if spec.threads == 0 || spec.threads > 10_000 {
        return Err(format!("{} slots for each process asked for; use -c 1 or more", spec.threads));
    }
    match spec.nodes {
        Some(0) => return Err("a job needs at least one node; use -N 1 or more".to_owned()),
        Some(nodes) if nodes > spec.ranks => {
            return Err(format!(
                "{nodes} nodes asked for, but the job has only {} processes; use -n {nodes}",
                spec.ranks
            ));
        }
        _ => {}
    }
    if spec.limit_ms == Some(0) {
        return Err("a time limit of 0 ends a job before it starts; leave it out for none".to_owned());
    }
    if let Some(array) = &spec.array {
        let mut sorted = array.indices.clone();
        sorted.sort_unstable();
        sorted.dedup();
        if array.indices.is_empty() || array.indices.len() > TASKS_MAX || sorted.len() != array.indices.len() {
            return Err(format!("an array has from 1 to {TASKS_MAX} tasks with different indices"));
        }
        if array.at_most_at_once == Some(0) {
            return Err("at most 0 tasks at once would never start; use %1 or more".to_owned());
        }
    }
    let words = [spec.on.len(), spec.not_on.len(), spec.features.len(), spec.after.len()];
    if let Some(count) = words.into_iter().find(|count| *count > WORDS_MAX) {
        return Err(format!("a list of {count} names is longer than the limit of {WORDS_MAX}"));
    }
    network::wanted(&spec.launch)?;
    let environment: usize = spec.launch.env.iter().map(|(name, value)| name.len() + value.len()).sum();
    let arguments: usize = spec.launch.argv.iter().map(Vec::len).sum();
    let bytes = environment + arguments + spec.text.as_ref().map_or(0, Vec::len) + spec.name.len();
    if bytes > SPEC_BYTES_MAX {
        return Err(format!(
            "script, arguments and environment have {bytes} bytes, the limit is {SPEC_BYTES_MAX}; put what is big into a file"
        ));
    }
    Ok(())
}
