//! Questions for endpoints and their answers, which make mappings: ours to others, and theirs to ours, which wait until the
//! endpoint is open. Called by `arrive` and the interface with the engine locked; never blocks. What a rank may have here is
//! counted for it alone (`allowance`).

use super::args::Words;
use super::channels::{Incoming, MapState, SlotIn};
use super::endpoint::Shared;
use super::returned::Status;
use super::table::{AmTable, header};
use super::wire::{Header, Kind};
use pulc_base::{Proto, Rank};
use pulc_handler::Outbox;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A question that waits.
pub(crate) struct Lookup {
    pub src: Rank,
    reply_to: u32,
    tag: u64,
    credits: u16,
    name: String,
    asker: Arc<str>,
}

impl AmTable {
    /// Someone asks for a channel to one of our endpoints.
    pub fn asked_for(&mut self, src: Rank, reply_to: u32, words: &Words, names: &[u8], outbox: &mut Outbox) {
        let names = std::str::from_utf8(names).ok().and_then(|names| names.split_once('\0'));
        let (&[tag, credits], Some((name, asker))) = (words.all(), names) else {
            self.tally.strays += 1;
            return;
        };
        let credits = credits.clamp(1, u64::from(self.credits_max)) as u16;
        let lookup = Lookup { src, reply_to, tag, credits, name: name.to_owned(), asker: asker.into() };
        match self.names.get(name).copied().filter(|endpoint| self.has_tag(*endpoint)) {
            Some(endpoint) => self.accept(endpoint, &lookup, outbox),
            None if self.allowance.take_lookup(src) => self.lookups.push(lookup),
            None => answer(&lookup, 0, Err(Status::NoRoom), outbox),
        }
    }

    /// Questions of this rank that wait.
    #[cfg(test)]
    pub fn waiting(&self, src: Rank) -> usize {
        self.lookups.iter().filter(|lookup| lookup.src == src).count()
    }

    /// An endpoint without a tag is not found yet.
    fn has_tag(&mut self, endpoint: u32) -> bool {
        self.endpoints.get(endpoint).is_some_and(|state| state.shared.tag.load(Ordering::Relaxed) != super::TAG_NONE)
    }

    fn accept(&mut self, endpoint: u32, lookup: &Lookup, outbox: &mut Outbox) {
        let Some(state) = self.endpoints.get(endpoint) else { return };
        if !state.shared.admits(lookup.tag) {
            return answer(lookup, 0, Err(Status::BadTag), outbox);
        }
        let shared = Arc::clone(&state.shared);
        let credits = self.allowance.take_credits(lookup.src, lookup.credits);
        if credits == 0 {
            return answer(lookup, 0, Err(Status::NoRoom), outbox);
        }
        let slots: Vec<SlotIn> = (0..credits).map(|_| SlotIn::default()).collect();
        if let Some(bundle) = self.bundles.get(shared.bundle) {
            bundle.inbox.reserve(slots.len());
        }
        let &Lookup { src, reply_to, tag, .. } = lookup;
        let (src_name, endpoint) = (Arc::clone(&lookup.asker), Some(shared));
        let incoming = Incoming { src, src_name, reply_to, tag, endpoint, slots, acks: Default::default() };
        match self.incoming.add(|_| incoming) {
            Some(number) => answer(lookup, number, Ok(credits), outbox),
            None => {
                self.allowance.give_credits(src, usize::from(credits));
                answer(lookup, 0, Err(Status::NoRoom), outbox);
            }
        }
    }

    /// A mapping of this rank is not needed any more.
    pub fn unmapped(&mut self, src: Rank, channel: u32) {
        if self.incoming.get(channel).is_some_and(|incoming| incoming.src == src)
            && let Some(incoming) = self.incoming.remove(channel)
        {
            self.allowance.give_credits(src, incoming.slots.len());
        }
    }

    /// The other side has answered a question for a channel.
    pub fn mapped(&mut self, src: Rank, channel: u32, words: &Words, outbox: &mut Outbox) {
        let (Some(outgoing), &[remote, granted]) = (self.outgoing.get(channel), words.all()) else {
            // Given up meanwhile.
            if let [remote, _] = words.all() {
                let header = header(Kind::Unmap, *remote as u32);
                outbox.post(src, Proto::AM, header.front(&[]).bytes(), &[]);
            }
            return;
        };
        if outgoing.dst != src || outgoing.state != MapState::Asked {
            self.tally.strays += 1;
            return;
        }
        let (status, credits) = (granted as u8, (granted >> 8).clamp(0, u64::from(self.credits_max)) as u16);
        match Status::from(status) {
            Some(why) => outgoing.state = MapState::Refused(why),
            None => {
                outgoing.open(remote as u32, credits);
                let bundle = outgoing.owner.bundle;
                if let Some(bundle) = self.bundles.get(bundle) {
                    bundle.inbox.reserve(usize::from(credits));
                }
            }
        }
    }

    /// An endpoint is open and may have a tag: those who have asked for it are answered.
    pub fn found(&mut self, shared: &Arc<Shared>, outbox: &mut Outbox) {
        if !self.has_tag(shared.number) {
            return;
        }
        let (asked, rest) = std::mem::take(&mut self.lookups).into_iter().partition(|asked| asked.name == shared.name);
        self.lookups = rest;
        for lookup in &asked {
            self.allowance.give_lookup(lookup.src);
            self.accept(shared.number, lookup, outbox);
        }
    }
}

fn answer(lookup: &Lookup, number: u32, granted: Result<u16, Status>, outbox: &mut Outbox) {
    let granted = match granted {
        Ok(credits) => u64::from(credits) << 8,
        Err(why) => why as u64,
    };
    let header = Header { words: 2, ..header(Kind::Mapped, lookup.reply_to) };
    outbox.post(lookup.src, Proto::AM, header.front(&[u64::from(number), granted]).bytes(), &[]);
}
