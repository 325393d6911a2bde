//! The roll-call: a node that has come (back) is asked which attempts it has. What it has and should not is ended, what it should have and
//! has not is lost, and orders that may have been lost on the way are given again. Called when a node is seen and when it answers.

use crate::controller::{Controller, Effect};
use crate::state::Job;
use pulc_base::{JobId, NodeId};
use pulc_control::StopKind;
use pulc_control::queue::{JobState, Used};

impl Controller {
    /// A node has come (back): what does it know of?
    pub(crate) fn ask_roll(&mut self, to: NodeId) {
        let first = |job: &&Job| job.placed.first().is_some_and(|part| part.node == to);
        let expected = self.state.placed_jobs().filter(first).filter_map(|job| job.instance).collect();
        self.rolls.insert(to, expected);
        self.effect(Effect::AskRoll { to });
    }

    pub(crate) fn roll(&mut self, from: NodeId, jobs: &[JobId]) {
        let Some(expected) = self.rolls.remove(&from) else { return };
        self.owe_roll.remove(&from);
        for instance in jobs.iter().filter(|instance| self.state.by_instance(**instance).is_none()) {
            // Ended ones are acknowledged when their report comes.
            self.out.effects.push(Effect::Stop {
                to: from,
                job: *instance,
                kind: StopKind::AtOnce,
                code: 143,
                text: "the controller has given this attempt up".to_owned(),
            });
        }
        for instance in expected.into_iter().filter(|instance| !jobs.contains(instance)) {
            let Some(job) = self.state.by_instance(instance) else { continue };
            let number = job.number;
            let verdict = match (&job.verdict, job.state) {
                (Some(verdict), _) => verdict.clone(),
                // The order never came there, or what it had started died with the daemon before anybody was told.
                (None, JobState::Starting) => {
                    self.verdict_of_loss(job, "its order to start was lost with a daemon".to_owned())
                }
                (None, _) => {
                    let text = format!("node {} was started anew and knows nothing of it", job.placed[0].name);
                    self.verdict_of_loss(job, text)
                }
            };
            self.finished(number, verdict, None, Used::default());
        }
        // Orders that may have been lost on the way are given again.
        let again: Vec<Effect> = self
            .state
            .placed_jobs()
            .filter(|job| job.placed[0].node == from && job.instance.is_some_and(|instance| jobs.contains(&instance)))
            .filter_map(|job| {
                let instance = job.instance?;
                match job.state {
                    JobState::Ending => {
                        let text = job.verdict.as_ref().map(|verdict| verdict.text.clone()).unwrap_or_default();
                        Some(Effect::Stop { to: from, job: instance, kind: StopKind::Gently, code: 143, text })
                    }
                    JobState::Suspending | JobState::Suspended => {
                        Some(Effect::Freeze { to: from, job: instance, still: true })
                    }
                    JobState::Running => Some(Effect::Freeze { to: from, job: instance, still: false }),
                    _ => None,
                }
            })
            .collect();
        self.out.effects.extend(again);
    }
}
