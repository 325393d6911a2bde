//! The controller's words and those of the nodes, put into each other. Pure.

use super::message::{QueueMsg, QueueStart};
use crate::jobs::message::{OrderNode, Queued};
use pulc_base::NodeId;
use pulc_control::queue::{FileNames, Files, Placed, QueueReply};
use pulc_sched::{Effect, StartOrder};

/// Set for the processes of a queued job.
pub const ENV_ALLOCATION: &str = "PULC_ALLOCATION";
const ENV_NUMBER: &str = "PULC_QUEUE_JOB";
pub const ENV_ARRAY: &str = "PULC_ARRAY_JOB";
pub const ENV_INDEX: &str = "PULC_ARRAY_INDEX";
const ENV_ATTEMPT: &str = "PULC_ATTEMPT";
const ENV_NODES: &str = "PULC_NODE_LIST";

/// Whether only the controller says such things.
pub fn is_one(message: &QueueMsg) -> bool {
    use QueueMsg::{AskRoll, Config, Drained, Freeze, Seen, Start, Stop};
    matches!(message, Start(_) | Stop { .. } | Freeze { .. } | Seen(_) | AskRoll | Drained(_) | Config(_))
}

/// An effect that is an order to a node; replies are none.
pub fn of(effect: Effect) -> Option<(NodeId, QueueMsg)> {
    Some(match effect {
        Effect::Start { to, order } => (to, QueueMsg::Start(Box::new(start(*order)))),
        Effect::Stop { to, job, kind, code, text } => (to, QueueMsg::Stop { job, kind, code, text }),
        Effect::Freeze { to, job, still } => (to, QueueMsg::Freeze { job, still }),
        Effect::Seen { to, job } => (to, QueueMsg::Seen(job)),
        Effect::AskRoll { to } => (to, QueueMsg::AskRoll),
        Effect::Reply { .. } | Effect::Drained(_) | Effect::Configured(_) => return None,
    })
}

/// Others' jobs without what they run, where, and what they print to.
pub fn veiled(mut reply: QueueReply, sees: u32) -> QueueReply {
    if let QueueReply::Jobs(jobs) = &mut reply {
        for job in jobs.iter_mut().filter(|job| sees != 0 && job.user != sees) {
            (job.command, job.directory) = ("-".to_owned(), "-".to_owned());
            (job.files, job.attempt_id) = (Files::default(), None);
        }
    }
    reply
}

fn start(order: StartOrder) -> QueueStart {
    let StartOrder { job, number, task, attempt, user, nodes, mut spec } = order;
    let node = |part: &Placed, ranks: u32| OrderNode { id: part.node, name: part.name.clone(), ranks };
    let allocation: Vec<OrderNode> = nodes.iter().map(|part| node(part, part.slots)).collect();
    let started = if spec.script {
        nodes.iter().take(1).map(|part| node(part, 1)).collect()
    } else {
        nodes.iter().map(|part| node(part, part.ranks)).collect()
    };
    let label = task.map_or_else(|| number.to_string(), |(array, index)| format!("{array}_{index}"));
    let list = nodes.iter().map(|part| format!("{}:{}", part.name, part.ranks)).collect::<Vec<_>>().join(",");
    let mut set = |name: &str, value: String| {
        spec.launch.env.retain(|(known, _)| known != name.as_bytes());
        spec.launch.env.push((name.as_bytes().to_vec(), value.into_bytes()));
    };
    set(ENV_ALLOCATION, job.to_string());
    set(ENV_NUMBER, label);
    set(ENV_ATTEMPT, attempt.to_string());
    set(ENV_NODES, list);
    if let Some((array, index)) = task {
        set(ENV_ARRAY, array.to_string());
        set(ENV_INDEX, index.to_string());
    }
    if spec.script {
        // Scripts written for other systems look here. The full set would make some MPIs take this for a Slurm step.
        set("SLURM_JOB_ID", number.to_string());
        set("SLURM_NTASKS", spec.ranks.to_string());
        if let Some((array, index)) = task {
            set("SLURM_ARRAY_JOB_ID", array.to_string());
            set("SLURM_ARRAY_TASK_ID", index.to_string());
        }
    }
    let (array, index) = task.map_or((number, String::new()), |(array, index)| (array, index.to_string()));
    let (job_text, array, user) = (number.to_string(), array.to_string(), user.to_string());
    let node = nodes.first().map(|part| part.name.as_str()).unwrap_or_default();
    let names = FileNames { job: &job_text, array: &array, index: &index, name: &spec.name, node, user: &user };
    let files = Files {
        output: spec.files.output.as_deref().map(|pattern| names.fill(pattern)),
        error: spec.files.error.as_deref().map(|pattern| names.fill(pattern)),
        input: spec.files.input.as_deref().map(|pattern| names.fill(pattern)),
        append: spec.files.append,
    };
    let append = files.append || attempt > 0;
    let queued = Queued { number, allocation, files, append, script: spec.text };
    QueueStart { job, queued, nodes: started, launch: spec.launch }
}
