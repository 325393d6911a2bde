//! What handlers want sent or granted, until a poll finds room for it: short messages in a queue for each destination, so that a
//! peer that takes nothing holds up nobody else, parcels that leave bit by bit, and answers of a few words that leave right behind
//! the poll. Filled by receive handlers through [`crate::Here`], emptied by the engine's progress; must never keep more for one
//! peer than the limit.

use crate::switch::TransferId;
use crate::uncounted::{HEADER_WORDS, Parcel};
use pulc_base::{Proto, Rank};
use std::collections::{HashMap, VecDeque};

/// What handlers want sent or granted.
#[derive(Default)]
pub struct Outbox {
    /// By destination. A queue that was used once stays, so that the next answer takes no new memory.
    queues: HashMap<Rank, VecDeque<Post>>,
    /// Destinations with something in their queue, each once.
    waiting: VecDeque<Rank>,
    /// Answers to frames of the poll under way, in order.
    pub(crate) answers: Vec<Answer>,
    /// Protocols whose handlers are called behind that poll, a bit for each.
    pub(crate) after_poll: u32,
    /// Messages of any length under way.
    pub(crate) parcels: VecDeque<Box<Parcel>>,
    /// Kept messages that were passed on: whose they were and what they cost.
    releases: Vec<(Rank, u64)>,
    /// Answers that may wait for one peer; zero: as many as come.
    answers_max: usize,
    /// Peers for which more came.
    overfull: Vec<Rank>,
}

/// A message that is nothing but the first words of a header.
pub(crate) struct Answer {
    pub dst: Rank,
    pub proto: Proto,
    pub words: [u64; HEADER_WORDS],
    pub count: usize,
}

const _: () = assert!(Proto::COUNT <= u32::BITS as usize, "each protocol has its bit in `after_poll`");

pub(crate) enum Post {
    /// A short message of a protocol, not counted against credit.
    Message {
        proto: Proto,
        header: Vec<u8>,
        body: Vec<u8>,
    },
    /// A message that comes in parts may do so.
    Grant {
        id: u32,
    },
    Credit {
        units: u32,
    },
    /// A message in parts will not come.
    Withdraw {
        id: u32,
    },
}

impl Outbox {
    /// At most `answers_max` messages wait for one peer.
    pub(crate) fn new(answers_max: usize) -> Outbox {
        Outbox { answers_max, ..Outbox::default() }
    }

    /// Sends a short message after the present poll. Header and body must fit the shortest frame of any device: at most
    /// 512 bytes together.
    pub fn post(&mut self, dst: Rank, proto: Proto, header: &[u8], body: &[u8]) {
        self.push(dst, Post::Message { proto, header: header.to_vec(), body: body.to_vec() });
    }

    /// Sends a message that is nothing but the first `count` words of `words` right behind the poll under way: the quickest that a
    /// frame can be answered. Without room it waits like a short message.
    ///
    /// # Panics
    /// With more words than there are.
    #[inline(always)]
    pub fn answer(&mut self, dst: Rank, proto: Proto, words: [u64; HEADER_WORDS], count: usize) {
        assert!(count <= HEADER_WORDS, "{count} words; a header has at most {HEADER_WORDS}");
        self.answers.push(Answer { dst, proto, words, count });
    }

    /// [`crate::ReceiveHandler::after_poll`] of this protocol is called behind the poll under way.
    #[inline]
    pub fn call_after_poll(&mut self, proto: Proto) {
        self.after_poll |= 1 << proto.0;
    }

    /// Whether anything is to be done behind the poll.
    #[inline(always)]
    pub(crate) fn is_pressed(&self) -> bool {
        !self.answers.is_empty() || self.after_poll != 0
    }

    /// Sends a message of any length bit by bit, as polls find room for it.
    pub fn send(&mut self, parcel: Box<Parcel>) {
        self.parcels.push_back(parcel);
    }

    /// Gives back the room of a kept message, for handlers that pass it on.
    pub fn release(&mut self, src: Rank, cost: u64) {
        self.releases.push((src, cost));
    }

    pub(crate) fn take_releases(&mut self) -> Vec<(Rank, u64)> {
        std::mem::take(&mut self.releases)
    }

    /// Lets a held message come.
    pub fn grant(&mut self, id: TransferId) {
        self.push(id.src, Post::Grant { id: id.id });
    }

    /// A peer that asks and never takes an answer is given up when the limit is reached; until then nothing is lost.
    pub(crate) fn push(&mut self, dst: Rank, post: Post) {
        let queue = self.queues.entry(dst).or_default();
        if self.answers_max > 0 && queue.len() >= self.answers_max {
            if !self.overfull.contains(&dst) {
                self.overfull.push(dst);
            }
            return;
        }
        queue.push_back(post);
        if queue.len() == 1 {
            self.waiting.push_back(dst);
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.parcels.is_empty() && self.releases.is_empty() && !self.is_pressed()
    }

    /// Destinations that something waits for.
    pub(crate) fn destinations(&self) -> usize {
        self.waiting.len()
    }

    /// The next destination and all that waits for it; what is not sent goes back by [`Outbox::put_back`].
    pub(crate) fn take_first(&mut self) -> Option<(Rank, VecDeque<Post>)> {
        let dst = self.waiting.pop_front()?;
        Some((dst, self.queues.get_mut(&dst).map(std::mem::take).unwrap_or_default()))
    }

    /// Puts the rest back, in front of what has come meanwhile.
    pub(crate) fn put_back(&mut self, dst: Rank, mut rest: VecDeque<Post>) {
        let queue = self.queues.entry(dst).or_default();
        let was_waiting = !queue.is_empty();
        rest.append(queue);
        *queue = rest;
        if !queue.is_empty() && !was_waiting {
            self.waiting.push_back(dst);
        }
    }

    /// Peers that were given more than they take; told once.
    pub(crate) fn take_overfull(&mut self) -> Vec<Rank> {
        std::mem::take(&mut self.overfull)
    }

    /// The peer is gone. Parcels are told by their next step.
    pub(crate) fn forget(&mut self, dst: Rank) {
        self.queues.remove(&dst);
        self.waiting.retain(|waiting| *waiting != dst);
        self.overfull.retain(|overfull| *overfull != dst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(queue: &VecDeque<Post>) -> Vec<u32> {
        queue.iter().map(|post| if let Post::Grant { id } = post { *id } else { u32::MAX }).collect()
    }

    #[test]
    fn what_could_not_be_sent_stays_in_front_of_what_comes_later() {
        let mut outbox = Outbox::new(10);
        (0..3).for_each(|id| outbox.push(Rank(1), Post::Grant { id }));
        outbox.push(Rank(2), Post::Grant { id: 9 });
        let (dst, mut queue) = outbox.take_first().unwrap();
        assert_eq!((dst, ids(&queue)), (Rank(1), vec![0, 1, 2]));
        queue.pop_front();
        outbox.push(Rank(1), Post::Grant { id: 3 });
        outbox.put_back(dst, queue);
        assert_eq!(outbox.take_first().unwrap().0, Rank(2));
        let (dst, queue) = outbox.take_first().unwrap();
        assert_eq!((dst, ids(&queue)), (Rank(1), vec![1, 2, 3]));
        outbox.put_back(dst, VecDeque::new());
        assert!(outbox.is_empty());
        assert!(outbox.take_first().is_none());
    }

    #[test]
    fn a_peer_that_takes_nothing_is_told_of_once_and_holds_no_more_than_the_limit() {
        let mut outbox = Outbox::new(5);
        (0..20).for_each(|id| outbox.push(Rank(1), Post::Grant { id }));
        outbox.push(Rank(2), Post::Grant { id: 1 });
        assert_eq!(outbox.take_overfull(), [Rank(1)]);
        assert_eq!(outbox.take_overfull(), []);
        assert_eq!(ids(&outbox.queues[&Rank(1)]), [0, 1, 2, 3, 4]);
        outbox.forget(Rank(1));
        assert_eq!(outbox.take_first().unwrap().0, Rank(2));
        assert!(outbox.is_empty());
    }
}
