//! Posting a receive: what was kept goes to it at once, otherwise it waits in its context's queue. And taking it back. With the engine
//! locked; never blocks.

use super::{Goal, Kept, Lane, Matcher, Probed, Recv, Work};
use crate::group::Group;
use crate::handle::Comm;
use crate::memory::Addr;
use crate::status::Status;
use pulc_base::Rank;
use pulc_handler::Outbox;
use pulc_handler::matching::Pattern;
use std::sync::Arc;

impl Matcher {
    /// Posts a receive; its request.
    #[inline]
    pub fn post(&mut self, recv: Recv, pattern: Pattern, comm: Comm, outbox: &mut Outbox) -> u32 {
        let context = recv.context;
        let request = self.requests.add(Work::Recv(recv), comm);
        let queue = &mut self.lane(context).queue;
        match queue.find(pattern) {
            Some(entry) => {
                let (src, tag) = queue.envelope(entry).expect("just found");
                let kept = queue.take(entry).expect("just found");
                self.hand_over(request, Rank(src), tag as u32 as i32, kept, outbox);
            }
            None => {
                let entry = queue.post(pattern, request);
                if let Some(recv) = self.requests.recv(request) {
                    recv.entry = Some(entry);
                }
                self.fail_if_hopeless(request, pattern);
            }
        }
        request
    }

    /// Posts a receive into one piece of memory where no message waits, nobody is gone, and a place of an earlier request is free: its
    /// request. `None`: nothing has happened.
    #[inline(always)]
    pub fn post_first(
        &mut self,
        at: Addr,
        len: usize,
        context: u32,
        senders: Option<Arc<Group>>,
        pattern: Pattern,
        comm: Comm,
    ) -> Option<u32> {
        let Lane { queue } = self.lanes.get_mut(context as usize)?;
        if queue.kept_len() > 0 || !self.gone.is_empty() {
            return None;
        }
        let request = self.requests.next_free()?;
        let entry = queue.post(pattern, request);
        self.requests.add_recv(at, len, context, senders, entry, comm);
        Some(request)
    }

    /// A receive from somebody who is gone.
    fn fail_if_hopeless(&mut self, request: u32, pattern: Pattern) {
        if self.gone.is_empty() {
            return;
        }
        if let Some(src) = pattern.src
            && let Some(end) = self.end_of(Rank(src))
        {
            self.unpost(request);
            self.requests.fail(request, super::peer_gone(Rank(src), end));
        }
    }

    /// Takes a receive out of its queue; false when a message has matched it already.
    pub fn unpost(&mut self, request: u32) -> bool {
        let Some(Recv { context, entry: Some(entry), .. }) = self.requests.recv(request) else { return false };
        let (context, entry) = (*context, *entry);
        self.lane(context).queue.unpost(entry).is_some()
    }

    /// Gives a kept message to a receive.
    pub fn hand_over(&mut self, request: u32, src: Rank, tag: i32, kept: Kept, outbox: &mut Outbox) {
        let Some(recv) = self.requests.recv(request) else { return };
        (recv.src, recv.tag, recv.total) = (src, tag, kept.len());
        match kept {
            Kept::Small { bytes, len, cost } => {
                recv.data.put(0, &bytes[..usize::from(len)]);
                self.to_release.push((src, cost));
                self.requests.received(request);
            }
            Kept::Whole { bytes, cost } | Kept::Coming { bytes, cost, done: true, .. } => {
                recv.data.put(0, &bytes);
                self.spare.give(bytes);
                self.to_release.push((src, cost));
                self.requests.received(request);
            }
            Kept::Coming { bytes, transfer, .. } => {
                recv.data.put(0, &bytes);
                recv.arrived = bytes.len();
                self.spare.give(bytes);
                self.transfers.redirect(transfer, Goal::Request(request));
            }
            Kept::Asked { transfer, id, .. } => {
                self.transfers.redirect(transfer, Goal::Request(request));
                outbox.grant(id);
            }
            Kept::Own { send, .. } => self.deliver_own(send, request),
        }
    }

    /// Takes a message out of its queue for a matched probe; its place.
    pub fn take_probed(&mut self, context: u32, pattern: Pattern, comm: Comm) -> Option<(u32, Status)> {
        let status = self.peek(context, pattern)?;
        let queue = &mut self.lane(context).queue;
        let entry = queue.find(pattern)?;
        let (src, tag) = queue.envelope(entry)?;
        let kept = queue.take(entry)?;
        let place = self.probed.iter().position(Option::is_none).unwrap_or_else(|| {
            self.probed.push(None);
            self.probed.len() - 1
        });
        if let Kept::Coming { transfer, done: false, .. } | Kept::Asked { transfer, .. } = &kept {
            self.transfers.redirect(*transfer, Goal::Probed(place as u32));
        }
        self.probed[place] = Some(Probed { kept, src: Rank(src), tag: tag as u32 as i32, comm });
        Some((place as u32, status))
    }

    /// What a probe tells of the first kept message that the pattern accepts; its source is the rank in the job.
    pub fn peek(&mut self, context: u32, pattern: Pattern) -> Option<Status> {
        let queue = &mut self.lane(context).queue;
        let entry = queue.find(pattern)?;
        let (src, tag) = queue.envelope(entry)?;
        let bytes = queue.kept(entry)?.len() as u64;
        Some(Status { source: src as i32, tag: tag as u32 as i32, error: 0, bytes, cancelled: false })
    }
}
