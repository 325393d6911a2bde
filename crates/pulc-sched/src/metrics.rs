//! Numbers for monitoring, in the text format that Prometheus reads. Changes nothing.

use crate::controller::Controller;
use pulc_control::queue::{JobState, QueueNode};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Name, meaning and value of what is told of each node.
type Gauge = (&'static str, &'static str, fn(&QueueNode) -> f64);

impl Controller {
    pub(crate) fn metrics(&self) -> String {
        let mut text = String::new();
        let mut states = BTreeMap::<&str, u64>::new();
        for word in ["PENDING", "STARTING", "RUNNING", "SUSPENDED", "COMPLETING"] {
            states.insert(word, 0);
        }
        for job in self.state.jobs().filter(|job| !matches!(job.state, JobState::Ended(_))) {
            *states.entry(job.state.word()).or_default() += 1;
        }
        head(&mut text, "pulc_jobs", "jobs that have not ended, by state");
        for (state, count) in states {
            line(&mut text, "pulc_jobs", &[("state", &state.to_lowercase())], count as f64);
        }
        let ended = self.state.jobs().filter(|job| job.state.has_ended());
        let mut outcomes = BTreeMap::<&str, u64>::new();
        ended.for_each(|job| *outcomes.entry(job.state.word()).or_default() += 1);
        head(&mut text, "pulc_jobs_ended", "jobs in the history, by outcome");
        for (outcome, count) in outcomes {
            line(&mut text, "pulc_jobs_ended", &[("outcome", &outcome.to_lowercase())], count as f64);
        }
        let nodes = self.queue_nodes();
        let gauges: [Gauge; 4] = [
            ("pulc_node_up", "1 if the node takes work", |node| f64::from(u8::from(node.state == "up"))),
            ("pulc_node_slots", "processes that the queue may start there", |node| node.slots.into()),
            ("pulc_node_slots_used", "slots held by jobs", |node| node.used.into()),
            ("pulc_node_load", "load average over one minute", |node| f64::from(node.load_milli) / 1000.0),
        ];
        for (name, what, value) in gauges {
            head(&mut text, name, what);
            nodes.iter().for_each(|node| line(&mut text, name, &[("node", &node.name)], value(node)));
        }
        head(&mut text, "pulc_user_slot_seconds", "recent usage by user, less and less worth with time");
        for (user, usage) in &self.state.usage {
            line(&mut text, "pulc_user_slot_seconds", &[("user", &user.to_string())], usage.decayed(self.now) / 1000.0);
        }
        text
    }
}

fn head(text: &mut String, name: &str, what: &str) {
    let _ = writeln!(text, "# HELP {name} {what}\n# TYPE {name} gauge");
}

fn line(text: &mut String, name: &str, labels: &[(&str, &str)], value: f64) {
    let escape = |value: &str| value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escape(value))).collect();
    let _ = writeln!(text, "{name}{{{}}} {value}", labels.join(","));
}
