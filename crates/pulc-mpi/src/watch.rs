//! What a process says of itself while it waits for long: in which function of MPI it is and whom it waits for (`pulc why`). Asked by the
//! handler's wait, with the engine locked, after a sleep that nothing has ended; before that it costs one store a call. Must never wait.

use crate::handle::{Comm, Request};
use crate::matcher::{Matcher, Recv, Work, matcher};
use crate::request::Known;
use pulc_hal::board::Notice;
use pulc_hal::os::label::Label;
use pulc_handler::Engine;
use pulc_handler::matching::Pattern;

static CALL: Label = Label::new();

/// The program has called this function. With several threads: one of them has.
#[inline(always)]
pub fn entered(function: &'static &'static str) {
    CALL.set(function);
}

/// The function that was called last; to be asked by the thread that did.
#[inline]
pub(crate) fn call() -> &'static str {
    CALL.get().unwrap_or("MPI")
}

/// What a thread waits for.
#[derive(Clone, Copy)]
pub(crate) enum For<'a> {
    /// Places of requests, all of them.
    Places(&'a [u32]),
    All(&'a [Request]),
    Any(&'a [Request]),
    /// A message that a probe looks for.
    Message(Comm, Pattern),
    /// Everything sent has to leave.
    Sends,
    /// Nothing that anybody need know of: the thread that makes progress.
    Own,
}

/// Ranks that are waited for, and what else is known.
#[derive(Default)]
struct Found {
    ranks: Vec<u32>,
    /// Requests that one of several ranks can complete.
    open: Vec<u32>,
    comm: Option<Comm>,
    tag: Option<i32>,
    requests: u32,
}

/// Nothing: it is not to be told.
pub(crate) fn notice(engine: &mut Engine, call: &str, what: For<'_>) -> Option<Notice> {
    let me = engine.rank().0;
    let table = matcher(engine);
    let mut found = Found::default();
    match what {
        For::Places(places) => places.iter().for_each(|place| found.place(table, *place, me)),
        For::All(requests) | For::Any(requests) => {
            for request in requests {
                if let Ok(Known::Active(place)) = table.look_up(*request) {
                    found.place(table, place, me);
                }
            }
        }
        For::Message(comm, pattern) => found.pattern(table, comm, pattern, me),
        For::Sends => {
            let pending = table.pending.clone();
            pending.iter().for_each(|place| found.place(table, *place, me));
        }
        For::Own => return None,
    }
    Some(found.told(table, call, matches!(what, For::Any(_))))
}

impl Found {
    fn place(&mut self, table: &mut Matcher, place: u32, me: u32) {
        let comm = table.requests.place(place).comm;
        let waited_for = match &table.requests.place(place).work {
            Work::Recv(Recv { context, entry: Some(entry), .. }) => Err((*context, *entry)),
            // Its message has begun to come.
            Work::Recv(recv) => Ok((vec![recv.src.0], Some(recv.tag))),
            Work::Send(out) => Ok((vec![out.dst.0], None)),
            Work::Schedule(schedule) => {
                for place in schedule.waits_for() {
                    self.place(table, place, me);
                }
                return;
            }
            Work::None => Ok((Vec::new(), None)),
        };
        match waited_for {
            Ok((ranks, tag)) => {
                self.requests += 1;
                self.ranks.extend(ranks);
                (self.comm, self.tag) = (Some(comm), tag);
            }
            Err((context, entry)) => match table.lane(context).queue.posted_pattern(entry) {
                Some(pattern) => self.pattern(table, comm, pattern, me),
                // Matched by now.
                None => self.requests += 1,
            },
        }
    }

    fn pattern(&mut self, table: &Matcher, comm: Comm, pattern: Pattern, me: u32) {
        self.requests += 1;
        self.comm = Some(comm);
        self.tag = pattern.tag.map(|tag| tag as u32 as i32);
        match pattern.src {
            Some(src) => self.ranks.push(src),
            None => {
                let peers = table.comm(comm).map(|comm| comm.peers().to_vec()).unwrap_or_default();
                self.open.extend(peers.into_iter().filter(|rank| *rank != me));
            }
        }
    }

    /// Of several requests those that anybody can complete are left out: the others are certain.
    fn told(mut self, table: &Matcher, call: &str, any: bool) -> Notice {
        let any = if any || self.ranks.is_empty() {
            let is_open = !self.open.is_empty();
            self.ranks.append(&mut self.open);
            any || is_open
        } else {
            false
        };
        self.ranks.sort_unstable();
        self.ranks.dedup();
        let comm = self.comm.and_then(|comm| table.comm(comm).ok());
        Notice {
            call: call.to_owned(),
            place: comm.map(|comm| comm.display_name()).unwrap_or_default(),
            count: self.ranks.len() as u32,
            ranks: self.ranks,
            any,
            tag: self.tag.filter(|_| self.requests == 1),
            meeting: None,
        }
    }
}
