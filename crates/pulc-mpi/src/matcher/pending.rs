//! Sends that could not leave at once: each goes as far as there is room whenever the engine makes progress, in the order in which they
//! were made where they go to the same process. Called by the engine's progress as MPI's errand, with the engine locked;
//! never blocks.

use super::{Matcher, Out, Work, matcher, peer_gone};
use crate::error::{Class, Error};
use crate::handle::Comm;
use crate::status::Status;
use pulc_base::{Proto, Rank};
use pulc_handler::{Busy, Engine, SendFault, Sending};

impl Matcher {
    /// Adds a send that waits for room; its request. To be followed by [`push_pending`].
    pub fn add_pending(&mut self, out: Out, comm: Comm) -> u32 {
        let request = self.requests.add(Work::Send(Box::new(out)), comm);
        self.pending.push(request);
        self.unstarted += 1;
        request
    }

    /// Whether a message may leave now without overtaking an earlier one.
    #[inline(always)]
    pub fn may_pass(&self) -> bool {
        self.unstarted == 0
    }

    fn take_out(&mut self, request: u32) -> Option<Box<Out>> {
        match std::mem::replace(&mut self.requests.place(request).work, Work::None) {
            Work::Send(out) => Some(out),
            _ => None,
        }
    }

    /// Takes back a send of which nothing has left; whether that was so.
    pub fn unsend(&mut self, request: u32) -> bool {
        let Work::Send(out) = &self.requests.place(request).work else { return false };
        if out.progress.is_some() || !self.pending.contains(&request) {
            return false;
        }
        self.pending.retain(|pending| *pending != request);
        self.unstarted -= 1;
        true
    }
}

/// Goes on with all sends that wait; returns how many have left.
pub(crate) fn push_pending(engine: &mut Engine) -> usize {
    let waiting = std::mem::take(&mut matcher(engine).pending);
    let mut still = Vec::with_capacity(waiting.len());
    let mut blocked: Vec<Rank> = Vec::new();
    let (mut left, mut wants_room) = (0, false);
    for request in waiting {
        let Some(mut out) = matcher(engine).take_out(request) else { continue };
        if blocked.contains(&out.dst) && out.progress.is_none() {
            matcher(engine).requests.place(request).work = Work::Send(out);
            still.push(request);
            continue;
        }
        match step(engine, &mut out) {
            Some(result) => {
                left += 1;
                if out.progress.is_none() {
                    matcher(engine).unstarted -= 1;
                }
                let error = result.err().map(|fault| of_send(engine, fault));
                matcher(engine).requests.complete(request, Status::EMPTY, error);
            }
            None => {
                if out.progress.is_none() {
                    blocked.push(out.dst);
                }
                wants_room |= !out.progress.is_some_and(|progress| progress.waits_for_grant());
                matcher(engine).requests.place(request).work = Work::Send(out);
                still.push(request);
            }
        }
    }
    let table = matcher(engine);
    // Those that were added meanwhile come behind.
    still.append(&mut table.pending);
    table.pending = still;
    let busy = match (table.pending.is_empty(), wants_room) {
        (true, _) => Busy::No,
        (false, false) => Busy::OnNews,
        (false, true) => Busy::Always,
    };
    engine.set_busy(Proto::MPI, busy);
    left
}

/// One step of one send. `progress` stays `None` until something of it has left.
fn step(engine: &mut Engine, out: &mut Out) -> Option<Result<(), SendFault>> {
    let mut sending = Sending::counted(out.dst, Proto::MPI, &out.header, out.bytes.as_slice());
    if out.synchronous {
        sending = sending.asking();
    }
    if let Some(progress) = out.progress {
        sending = sending.resume(progress);
    }
    let result = sending.step(engine);
    if result.is_none() && !sending.untouched() {
        let first = out.progress.is_none();
        out.progress = Some(sending.progress());
        if first {
            matcher(engine).unstarted -= 1;
        }
    }
    result
}

/// What a failed send means to the program.
#[cold]
pub(crate) fn of_send(engine: &mut Engine, fault: SendFault) -> Error {
    match fault {
        SendFault::PeerGone(rank, end) => peer_gone(rank, end),
        SendFault::TooLong { len, max } => Error::new(
            Class::COUNT,
            format!("a message of {len} bytes exceeds the limit of {max}: split it, or raise PULC_MESSAGE_MAX_BYTES"),
        ),
        other => match engine.take_failure() {
            Some(failure) => Error::new(Class::OTHER, failure.to_string()),
            None => Error::new(Class::OTHER, other.to_string()),
        },
    }
}
