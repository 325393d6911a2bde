//! Jobs that live only as long as a client: `pulc alloc` holds slots for a person, and whoever has gone needs none. That a job is tied is on
//! record, who holds the other end is not: after a restart of the controller, or of the daemon in between, the client says it again.

use crate::controller::{Controller, GRACE_MS, label};
use crate::state::Change;
use pulc_control::StopKind;
use pulc_control::queue::{JobNumber, Millis, QueueReply, Target};

/// The other end of a job's line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tie {
    /// A client that waits, by its ticket.
    Held(u64),
    /// Nobody knows since then.
    Loose(Millis),
}

impl Controller {
    /// Ties a job to a client, which is answered when it has ended.
    pub(crate) fn tie(&mut self, ticket: u64, user: u32, target: Target) -> Result<Option<QueueReply>, String> {
        let jobs: Vec<JobNumber> = self.targets(target).into_iter().map(|job| job.number).collect();
        let foreign =
            jobs.iter().filter_map(|number| self.state.job(*number)).find(|job| job.user != user && user != 0);
        if let Some(job) = foreign {
            return Err(format!("job {} is not yours but user {}'s", label(job), job.user));
        }
        let reply = self.wait(ticket, target)?;
        if reply.is_none() {
            for number in jobs {
                if !self.state.tied.contains(&number) {
                    self.record(Change::Tied { job: number });
                }
                // One of several tasks may have ended.
                if self.state.tied.contains(&number) {
                    self.ties.insert(number, Tie::Held(ticket));
                }
            }
        }
        Ok(reply)
    }

    /// The client has gone, and its jobs go too.
    pub(crate) fn cut(&mut self, ticket: u64) {
        self.forget_client(ticket);
        for number in self.held_by(ticket) {
            self.ties.remove(&number);
            self.cancel_tied(number, "whoever it was for has gone");
        }
    }

    /// The client may come back.
    pub(crate) fn loosen(&mut self, ticket: u64) {
        self.forget_client(ticket);
        for number in self.held_by(ticket) {
            self.ties.insert(number, Tie::Loose(self.now));
        }
    }

    fn forget_client(&mut self, ticket: u64) {
        self.followers.retain(|follower| *follower != ticket);
        self.waits.retain(|(waiter, _)| *waiter != ticket);
    }

    fn held_by(&self, ticket: u64) -> Vec<JobNumber> {
        self.ties.iter().filter(|(_, tie)| **tie == Tie::Held(ticket)).map(|(number, _)| *number).collect()
    }

    /// When the first of those that nobody holds has to go.
    pub(crate) fn loose_until(&self) -> impl Iterator<Item = Millis> {
        self.ties.values().filter_map(|tie| match tie {
            Tie::Held(_) => None,
            Tie::Loose(since) => Some(since + GRACE_MS),
        })
    }

    pub(crate) fn end_loose(&mut self) {
        let tied = &self.state.tied;
        self.ties.retain(|number, _| tied.contains(number));
        let over = |tie: &Tie| matches!(tie, Tie::Loose(since) if self.now >= since + GRACE_MS);
        let due: Vec<JobNumber> = self.ties.iter().filter(|(_, tie)| over(tie)).map(|(number, _)| *number).collect();
        for number in due {
            self.ties.remove(&number);
            self.cancel_tied(number, "whoever it was for has not come back");
        }
    }

    fn cancel_tied(&mut self, number: JobNumber, why: &str) {
        if self.state.tied.contains(&number) {
            self.cancel(number, StopKind::Gently, why.to_owned());
        }
    }
}
