//! Messages of a process to itself: never on a device. They match like all others; a copy is kept only of short ones that need not wait
//! for their receive. With the engine locked; never blocks.

use super::{Bytes, Kept, Matcher, Out, Work};
use crate::envelope::Envelope;
use crate::error::Result;
use crate::handle::{Comm, Request};
use crate::matcher::Requests;
use crate::status::Status;
use pulc_base::Rank;

impl Matcher {
    /// Sends to this process itself. `keep`: a copy may be kept where no receive waits.
    pub fn send_own(&mut self, me: Rank, envelope: Envelope, bytes: Bytes, keep: bool, comm: Comm) -> Result<Request> {
        let Envelope { context, tag } = envelope;
        let wire_tag = u64::from(tag as u32);
        let matched = self.lane(context).queue.arrive(me.0, wire_tag);
        if let Some((_, receive)) = matched {
            self.land(receive, me, tag, bytes.as_slice());
            return Ok(Request::SENT);
        }
        if keep {
            let kept = match bytes {
                Bytes::Own(bytes) => Kept::of_own(bytes),
                user @ Bytes::User(_) => Kept::of_own(user.as_slice().to_vec()),
            };
            self.lane(context).queue.keep(me.0, wire_tag, kept);
            return Ok(Request::SENT);
        }
        let total = bytes.as_slice().len();
        let out = Out { dst: me, header: envelope.encode(), bytes, progress: None, synchronous: true };
        let send = self.requests.add(Work::Send(Box::new(out)), comm);
        self.lane(context).queue.keep(me.0, wire_tag, Kept::Own { total, send });
        Ok(Requests::handle(send))
    }

    /// A receive has found a send of this process.
    pub fn deliver_own(&mut self, send: u32, receive: u32) {
        let Work::Send(out) = std::mem::replace(&mut self.requests.place(send).work, Work::None) else { return };
        if let Some(Envelope { tag, .. }) = Envelope::decode(&out.header) {
            self.land(receive, out.dst, tag, out.bytes.as_slice());
        }
        self.requests.complete(send, Status::EMPTY, None);
    }

    /// Takes back a send of this process that nobody has received; whether it was there.
    pub fn unsend_own(&mut self, send: u32) -> bool {
        let Work::Send(out) = &self.requests.place(send).work else { return false };
        let Some(Envelope { context, .. }) = Envelope::decode(&out.header) else { return false };
        let queue = &mut self.lane(context).queue;
        let found = queue
            .kept_entries()
            .into_iter()
            .find(|entry| matches!(queue.kept(*entry), Some(Kept::Own { send: other, .. }) if *other == send));
        found.is_some_and(|entry| queue.take(entry).is_some())
    }

    fn land(&mut self, receive: u32, src: Rank, tag: i32, bytes: &[u8]) {
        if let Some(recv) = self.requests.recv(receive) {
            (recv.src, recv.tag, recv.total, recv.arrived) = (src, tag, bytes.len(), bytes.len());
            recv.data.put(0, bytes);
            self.requests.received(receive);
        }
    }
}
