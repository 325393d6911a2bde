//! What is set for the whole cluster, and what the health checks of nodes say: one that fails keeps its node from new work, and one that
//! succeeds again gives back only what a check has taken. What an operator has drained stays drained. Also nodes that get nothing new since
//! processes on them do not end.

use crate::controller::{Controller, Effect, label};
use crate::state::Change;
use pulc_base::NodeId;
use pulc_control::queue::{HealthAction, JobNumber, QueueReply, Setting};

/// What is kept of a check's word, in characters.
const WORD_MAX: usize = 200;

impl Controller {
    pub(crate) fn configure(&mut self, settings: &[Setting]) -> Result<QueueReply, String> {
        settings.iter().try_for_each(Setting::check)?;
        let mut config = self.state.config.clone();
        settings.iter().for_each(|setting| config.set(setting));
        if config != self.state.config {
            config.version += 1;
            self.tell(format!("the cluster's configuration was changed (version {})", config.version));
            let drains = config.health.wanted().is_some() && config.health.action == HealthAction::Drain;
            self.record(Change::Set(config.clone()));
            if !drains {
                // Nobody is left who would give them back.
                let unfit: Vec<NodeId> = self.state.unfit.keys().copied().collect();
                unfit.into_iter().for_each(|node| self.fit_again(node));
                self.failing.clear();
            }
            self.tell_drained();
            self.effect(Effect::Configured(config));
        }
        Ok(QueueReply::Config(self.state.config.clone()))
    }

    /// What the health check of a node has said.
    pub(crate) fn checked(&mut self, node: NodeId, failure: Option<String>) {
        let Some(name) = self.seen.get(&node).map(|seen| seen.now.name.clone()) else { return };
        let plain = |c: char| if c.is_control() { ' ' } else { c };
        let failure = failure.map(|why| why.chars().map(plain).take(WORD_MAX).collect::<String>());
        match self.state.config.health.action {
            // A word from before the last change.
            _ if self.state.config.health.wanted().is_none() => {}
            HealthAction::Drain => match failure {
                Some(why) if !self.state.unfit.contains_key(&node) => {
                    self.tell(format!("node {name} gets nothing new: its health check fails: {why}"));
                    self.record(Change::Checked { node, failure: Some(why) });
                    self.tell_drained();
                }
                None if self.state.unfit.contains_key(&node) => {
                    self.tell(format!("the health check of node {name} succeeds again"));
                    self.fit_again(node);
                    self.tell_drained();
                }
                _ => {}
            },
            HealthAction::Events => match failure {
                Some(why) if self.failing.insert(node) => {
                    self.tell(format!("the health check of node {name} fails: {why}"))
                }
                None if self.failing.remove(&node) => {
                    self.tell(format!("the health check of node {name} succeeds again"));
                }
                _ => {}
            },
            HealthAction::None => {}
        }
    }

    /// A disk or a server does not answer there: what is started next would wait for it as well.
    pub(crate) fn told_stuck(&mut self, number: JobNumber, node: NodeId, text: &str) {
        let Some(job) = self.state.job(number).filter(|job| job.placed.iter().any(|part| part.node == node)) else {
            return;
        };
        if self.state.stuck.contains_key(&(number, node)) {
            return;
        }
        let (label, place) = (label(job), job.placed.iter().find(|part| part.node == node));
        let name = place.map(|part| part.name.clone()).unwrap_or_default();
        self.tell(format!("node {name} gets nothing new: job {label}: {text}"));
        self.record(Change::Stuck { job: number, node, text: Some(text.to_owned()) });
        self.tell_drained();
    }

    /// An operator knows better.
    pub(crate) fn unstuck(&mut self, node: NodeId) {
        let jobs: Vec<JobNumber> = self.state.stuck.keys().filter(|(_, at)| *at == node).map(|(job, _)| *job).collect();
        jobs.into_iter().for_each(|job| self.record(Change::Stuck { job, node, text: None }));
    }

    pub(crate) fn fit_again(&mut self, node: NodeId) {
        if self.state.unfit.contains_key(&node) {
            self.record(Change::Checked { node, failure: None });
        }
    }

    /// Everybody has to know which nodes get nothing new.
    pub(crate) fn tell_drained(&mut self) {
        let said = self.state.nodes.iter().filter(|(_, settings)| settings.drained.is_some()).map(|(node, _)| *node);
        let stuck = self.state.stuck.keys().map(|(_, node)| *node);
        let mut drained: Vec<NodeId> = said.chain(self.state.unfit.keys().copied()).chain(stuck).collect();
        drained.sort_unstable();
        drained.dedup();
        self.effect(Effect::Drained(drained));
    }
}

#[cfg(test)]
mod tests {
    use crate::controller::{Controller, Effect, Event, Step};
    use crate::report::{Cause, Health, NodeSeen, Report};
    use crate::state::State;
    use pulc_base::NodeId;
    use pulc_control::queue::{HealthAction, NodePatch, QueueReply, QueueRequest, Setting, Used};

    const NODE: NodeId = NodeId([1; 16]);

    fn ask(controller: &mut Controller, request: QueueRequest) -> Step {
        controller.step(1, Event::Ask { ticket: 1, user: 0, request })
    }

    fn controller(action: HealthAction) -> Controller {
        let mut controller = Controller::recover(State::default(), 1, 1);
        let (name, health) = ("n1".to_owned(), Health::Up);
        let (memory_mib, memory_free_mib, load_milli) = (0, 0, 0);
        let node = NodeSeen {
            node: NODE,
            name,
            health,
            cores: 2,
            memory_mib,
            memory_free_mib,
            load_milli,
            addresses: Vec::new(),
        };
        controller.step(1, Event::Node(node));
        let settings = vec![Setting::HealthProgram(Some("/check".into())), Setting::HealthAction(action)];
        let step = ask(&mut controller, QueueRequest::Config(settings));
        assert!(step.effects.iter().any(|effect| matches!(effect, Effect::Configured(config) if config.version == 1)));
        controller
    }

    fn checked(controller: &mut Controller, failure: Option<&str>) -> Vec<Vec<NodeId>> {
        drained(controller.step(1, Event::Checked { from: NODE, failure: failure.map(str::to_owned) }))
    }

    /// Which nodes everybody is told of.
    fn drained(step: Step) -> Vec<Vec<NodeId>> {
        let drained = |effect| if let Effect::Drained(nodes) = effect { Some(nodes) } else { None };
        step.effects.into_iter().filter_map(drained).collect()
    }

    fn drain(controller: &mut Controller, why: Option<&str>) {
        let patch = NodePatch { drained: Some(why.map(str::to_owned)), ..NodePatch::default() };
        ask(controller, QueueRequest::Node { name: "n1".into(), patch });
    }

    #[test]
    fn a_check_that_fails_drains_its_node_and_one_that_succeeds_gives_back_only_that() {
        let mut controller = controller(HealthAction::Drain);
        assert!(checked(&mut controller, None).is_empty());
        assert_eq!(checked(&mut controller, Some("no\ndisk")), [vec![NODE]]);
        assert_eq!(controller.state().drained(NODE).unwrap(), "its health check fails: no disk");
        assert!(checked(&mut controller, Some("no disk")).is_empty(), "said once");
        assert!(controller.rooms().is_empty());
        assert_eq!(checked(&mut controller, None), [vec![]]);
        assert!(controller.state().drained(NODE).is_none() && controller.rooms().len() == 1);
        // What the operator has drained stays so.
        drain(&mut controller, Some("maintenance"));
        assert_eq!(checked(&mut controller, Some("no disk")), [vec![NODE]]);
        assert_eq!(checked(&mut controller, None), [vec![NODE]]);
        assert_eq!(controller.state().drained(NODE).unwrap(), "maintenance");
        // The operator's word counts until the check fails the next time.
        checked(&mut controller, Some("no disk"));
        drain(&mut controller, None);
        assert!(controller.state().drained(NODE).is_none());
        assert_eq!(checked(&mut controller, Some("no disk")), [vec![NODE]]);
        // It is in the log.
        let mut again = State::default();
        controller.state().snapshot().iter().for_each(|record| again.apply(record));
        assert_eq!(again.drained(NODE), controller.state().drained(NODE));
        // Nobody is drained by a check that is not made any more.
        ask(&mut controller, QueueRequest::Config(vec![Setting::HealthProgram(None)]));
        assert!(controller.state().drained(NODE).is_none());
        assert!(checked(&mut controller, Some("late")).is_empty());
    }

    #[test]
    fn a_check_that_is_only_told_drains_nobody() {
        let mut controller = controller(HealthAction::Events);
        assert!(checked(&mut controller, Some("hot")).is_empty());
        let step = ask(&mut controller, QueueRequest::Events { at_most: 1, follow: false });
        let told = |effect: &Effect| match effect {
            Effect::Reply { reply: QueueReply::Events(events), .. } => events[0].text.clone(),
            _ => String::new(),
        };
        assert_eq!(step.effects.iter().map(told).collect::<String>(), "the health check of node n1 fails: hot");
        assert!(controller.state().drained(NODE).is_none());
    }

    #[test]
    fn processes_that_do_not_end_keep_their_node_from_new_work_until_they_have() {
        let mut controller = controller(HealthAction::None);
        controller.step(1, Event::Roll { from: NODE, jobs: Vec::new() });
        ask(&mut controller, QueueRequest::Submit(Box::new(crate::state::tests::spec(1))));
        controller.settle(1);
        let job = controller.state().jobs().next().unwrap();
        let (number, instance) = (job.number, job.instance.expect("it was started"));
        let mut report = |report| drained(controller.step(1, Event::Report { from: NODE, job: instance, report }));
        let stuck = || Report::Stuck { node: NODE, text: "SIGKILL has not\nended 4711".into() };
        assert!(report(Report::Started).is_empty());
        let elsewhere = NodeId([2; 16]);
        assert!(report(Report::Stuck { node: elsewhere, text: "not its node".into() }).is_empty());
        assert_eq!(report(stuck()), [vec![NODE]]);
        assert!(report(stuck()).is_empty(), "said once");
        assert_eq!(controller.state().drained(NODE).unwrap(), format!("job {number}: SIGKILL has not ended 4711"));
        let mut again = State::default();
        controller.state().snapshot().iter().for_each(|record| again.apply(record));
        assert_eq!(again.drained(NODE), controller.state().drained(NODE));
        // An operator may know better.
        drain(&mut controller, None);
        assert!(controller.state().drained(NODE).is_none());
        let mut report = |report| drained(controller.step(1, Event::Report { from: NODE, job: instance, report }));
        assert_eq!(report(stuck()), [vec![NODE]]);
        let ended = Report::Ended { cause: Cause::Exited, code: 0, text: None, used: Used::default() };
        assert_eq!(report(ended), [vec![]]);
        assert!(controller.state().drained(NODE).is_none() && controller.rooms().len() == 1);
    }

    #[test]
    fn settings_that_make_no_sense_change_nothing() {
        let mut controller = controller(HealthAction::Drain);
        let settings = vec![Setting::HealthIntervalMs(5_000), Setting::HealthTimeoutMs(1)];
        let step = ask(&mut controller, QueueRequest::Config(settings));
        assert!(step.records.is_empty());
        assert_eq!(controller.state().config().health.interval_ms, 60_000);
    }
}
