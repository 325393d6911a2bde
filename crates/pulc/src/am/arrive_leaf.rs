//! Leaf handlers where their messages are found: called by `arrive` with the engine locked, inside of a poll. What they answer leaves
//! right behind that poll, by the outbox; acknowledgements wait for company, and leave with the chores of whoever waits on the bundle or,
//! where nobody does, behind the poll as well.

use super::WORDS_MAX;
use super::args::{FEW, Words};
use super::arrive::lane_of;
use super::endpoint::Entry;
use super::front::{Front, WORD_BYTES, read_words};
use super::leaf::{LeafCall, LeafMessage, LeafToken};
use super::returned::{Opcode, Status};
use super::table::{AmTable, header as header_of};
use super::token::{Source, Verdict};
use super::wire::{Header, Kind, REPLY_COMES, pack_slots};
use pulc_base::{Proto, Rank};
use pulc_handler::{Body, Here, Outbox, leaf};
use std::sync::atomic::Ordering;

/// How a handler ended.
type Ran = Result<Verdict, leaf::Panic>;

impl AmTable {
    /// Runs the handler of a short request that has been admitted, if it is a leaf; whether it is.
    #[inline(always)]
    pub(super) fn leaf_request(&mut self, front: &Front<'_>, body: Body<'_>, here: &mut Here<'_, '_>) -> bool {
        let Front { src, header, .. } = *front;
        let Some(incoming) = self.incoming.get(header.channel) else { return false };
        let Some(endpoint) = incoming.endpoint.as_deref() else { return false };
        let Some(Entry::Leaf(run)) = endpoint.handlers[usize::from(header.handler)].get() else { return false };
        let (bundle, reply_to) = (endpoint.bundle, incoming.reply_to);
        let (words, call, source) = (words_of(front, body), LeafCall::new(), Source { rank: src });
        let token = Some(LeafToken { call: &call, source });
        let ran = leaf::run(|| run(LeafMessage { opcode: Opcode::Short, source, token, words: &words }));
        // Only the answer, which is on its way by then, lets an honest sender use the slot again.
        if let Some(slot) = incoming.slots.get_mut(usize::from(header.slot)) {
            slot.busy = false;
        }
        self.tally.handled += 1;
        let is_watched = here.hand.found(lane_of(bundle), src);
        match (ran, call.handler.get()) {
            (Ok(Ok(())), Some(handler)) => {
                self.tally.replies += 1;
                let words = call.said.count() as u8;
                let reply = Header {
                    kind: Kind::ReplyShort,
                    words,
                    handler,
                    slot: header.slot,
                    ..header_of(Kind::ReplyShort, reply_to)
                };
                match call.said.few() {
                    Some(few) => answer(here.outbox, src, reply, few),
                    None => answer_longer(here.outbox, src, reply, &call.said.all()),
                }
                if header.tell {
                    self.tally.acks += 1;
                    let word = Header { slot: header.slot, handler: REPLY_COMES, ..header_of(Kind::Ack, reply_to) };
                    answer(here.outbox, src, word, [0; FEW]);
                }
            }
            (Ok(Ok(())), None) => self.acknowledge_leaf(&header, is_watched, here.outbox),
            (ran, _) => self.leaf_failed(&header, bundle, ran, here.outbox),
        }
        self.leaf_ran(bundle);
        true
    }

    /// Runs the handler of a short reply that was waited for, if it is a leaf; whether it is.
    #[inline(always)]
    pub(super) fn leaf_reply(&mut self, front: &Front<'_>, body: Body<'_>, here: &mut Here<'_, '_>) -> bool {
        let header = &front.header;
        let Some(outgoing) = self.outgoing.get(header.channel) else { return false };
        let tells = outgoing.busy(header.slot).is_some_and(|slot| slot.tell.is_some());
        let (src, bundle) = (outgoing.dst, outgoing.owner.bundle);
        let owner = &*outgoing.owner;
        let Some(Entry::Leaf(run)) = owner.handlers[usize::from(header.handler)].get() else { return false };
        if owner.closed.load(Ordering::Relaxed) {
            return false;
        }
        let (words, source) = (words_of(front, body), Source { rank: src });
        let ran = leaf::run(|| run(LeafMessage { opcode: Opcode::Reply, source, token: None, words: &words }));
        match ran {
            Ok(Ok(())) => {}
            // Its endpoint's error handler hears of it; the credit comes back with that.
            Ok(Err(why)) => {
                self.reply_lost(front, why, here.hand);
                return true;
            }
            Err(panic) => self.leaf_panicked(bundle, panic),
        }
        self.tally.handled += 1;
        if !tells {
            self.give_back(header.channel, header.slot, true);
            if !self.unmaps.is_empty() {
                here.outbox.call_after_poll(Proto::AM);
            }
        }
        self.leaf_ran(bundle);
        here.hand.found(lane_of(bundle), src);
        true
    }

    #[inline(always)]
    fn leaf_ran(&mut self, bundle: u32) {
        if let Some(state) = self.bundles.get(bundle) {
            state.leaves_ran += 1;
        }
    }

    #[cold]
    fn leaf_failed(&mut self, header: &Header, bundle: u32, ran: Ran, outbox: &mut Outbox) {
        let why = match ran {
            Ok(verdict) => verdict.err().unwrap_or(Status::BadHandler),
            Err(panic) => {
                self.leaf_panicked(bundle, panic);
                Status::Panicked
            }
        };
        self.refuse(header.channel, header.slot, why, outbox);
    }

    /// Whoever polls or waits on the bundle next has the panic; of several the first one.
    #[cold]
    fn leaf_panicked(&mut self, bundle: u32, panic: leaf::Panic) {
        match self.bundles.get(bundle) {
            Some(state) if state.panicked.is_none() => state.panicked = Some(panic),
            _ => self.graves.bury(panic),
        }
    }

    #[inline(always)]
    fn acknowledge_leaf(&mut self, header: &Header, is_watched: bool, outbox: &mut Outbox) {
        let channel = header.channel;
        let Some(incoming) = self.incoming.get(channel) else { return };
        let is_full = incoming.acks.add(header.slot);
        if incoming.acks.count() == 1 {
            self.acks_due.push(channel);
        }
        if is_full {
            self.answer_acks(channel, outbox);
        } else if !is_watched && !self.acks_wait {
            outbox.call_after_poll(Proto::AM);
        }
    }

    /// Sends the acknowledgements of a channel behind the poll under way.
    fn answer_acks(&mut self, channel: u32, outbox: &mut Outbox) {
        if self.acks_due.last() == Some(&channel) {
            self.acks_due.pop();
        }
        let Some(incoming) = self.incoming.get(channel) else { return };
        let (dst, reply_to) = (incoming.src, incoming.reply_to);
        let (slots, count) = incoming.acks.take();
        let Some((first, rest)) = slots[..count].split_first() else { return };
        self.tally.acks += 1;
        let (words, used) = pack_slots(rest);
        answer(outbox, dst, Header { slot: *first, words: used as u8, ..header_of(Kind::Ack, reply_to) }, words);
    }

    /// What a poll has left to say.
    pub(super) fn say_the_rest(&mut self, outbox: &mut Outbox) {
        self.flush_unmaps(outbox);
        while let Some(channel) = self.acks_due.pop() {
            self.answer_acks(channel, outbox);
        }
    }
}

/// The arguments of a short message, wherever they stand.
#[inline(always)]
fn words_of(front: &Front<'_>, body: Body<'_>) -> Words {
    let mut words = front.inline.words();
    if !body.is_empty() {
        read_body(&mut words, front, body);
    }
    words
}

#[inline(never)]
fn read_body(words: &mut Words, front: &Front<'_>, body: Body<'_>) {
    let mut bytes = [0; WORDS_MAX * WORD_BYTES];
    // No longer than that: `check_len` has seen it.
    let len = body.copy_to(&mut bytes);
    read_words(words, front.header.kind, &bytes[..len]);
}

#[inline(always)]
fn answer(outbox: &mut Outbox, dst: Rank, header: Header, few: [u64; FEW]) {
    let (words, count) = header.front_of_few(few);
    outbox.answer(dst, Proto::AM, words, count);
}

/// More arguments than stand in a header.
#[inline(never)]
fn answer_longer(outbox: &mut Outbox, dst: Rank, header: Header, words: &Words) {
    let (rest, len) = super::send::rest_of(words, header.kind.words_inline());
    outbox.post(dst, Proto::AM, header.front(words.all()).bytes(), &rest[..len]);
}
