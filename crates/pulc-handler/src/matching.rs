//! The matching queue: receives that wait for a message, and messages that wait for a receive, matched by source and tag
//! with wildcards on the receive's side, always the earliest first. Used by the port interface and by every other
//! interface that matches; one queue per port, communicator or the like.
//!
//! All entries are in one list, which is searched in order: most programs receive in the order in which they are sent to, and then
//! the first one is it, however many there are. Once a search has gone past some, each entry is also entered in a chain per class of
//! wildcard, until the queue is empty: matching costs the same for ten thousand entries as for one. Never communicates.

mod store;

pub use crate::pattern::Pattern;
use store::{EXACT, SRC, Store, TAG, class_of};

/// A posted receive or a kept message. Never mistaken for a later one in the same place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    place: u32,
    seq: u64,
}

impl Entry {
    /// A number unique in this queue for its lifetime.
    pub fn number(self) -> u64 {
        self.seq
    }
}

/// Receives of type `P` and messages of type `K` that have not met yet.
pub struct Matching<P, K> {
    posted: Store<P>,
    kept: Store<K>,
}

impl<P, K> Default for Matching<P, K> {
    fn default() -> Self {
        Matching { posted: Store::new(), kept: Store::new() }
    }
}

impl<P, K> Matching<P, K> {
    /// Adds a receive behind all earlier ones.
    #[inline]
    pub fn post(&mut self, pattern: Pattern, receive: P) -> Entry {
        let class = class_of(pattern);
        self.posted.insert(pattern.src.unwrap_or(0), pattern.tag.unwrap_or(0), class, 1 << class, receive)
    }

    /// Takes a receive back; `None` when it has matched already.
    pub fn unpost(&mut self, entry: Entry) -> Option<P> {
        self.posted.holds(entry).then(|| self.posted.remove(entry.place))
    }

    /// The earliest receive, if it takes messages of one sender with one tag only: these, and what it is.
    #[inline]
    pub fn first_exact(&self) -> Option<(u32, u64, &P)> {
        let node = self.posted.first_node()?;
        let value = node.value.as_ref().filter(|_| usize::from(node.class) == EXACT)?;
        Some((node.src, node.tag, value))
    }

    /// Takes the earliest receive out, whatever it takes.
    #[inline]
    pub fn unpost_first(&mut self) -> Option<P> {
        self.posted.remove_first()
    }

    pub fn posted_mut(&mut self, entry: Entry) -> Option<&mut P> {
        self.posted.holds(entry).then(|| self.posted.value_mut(entry.place))
    }

    pub fn posted_pattern(&self, entry: Entry) -> Option<Pattern> {
        self.posted.holds(entry).then(|| {
            let node = &self.posted.nodes[entry.place as usize];
            let class = usize::from(node.class);
            Pattern {
                src: matches!(class, EXACT | SRC).then_some(node.src),
                tag: matches!(class, EXACT | TAG).then_some(node.tag),
            }
        })
    }

    /// The earliest receive that accepts a message from `src` with `tag`; it leaves the queue.
    #[inline]
    pub fn arrive(&mut self, src: u32, tag: u64) -> Option<(Entry, P)> {
        if self.posted.len == 0 {
            return None;
        }
        let place = self.posted.earliest_accepting(src, tag)?;
        let entry = Entry { place, seq: self.posted.nodes[place as usize].seq };
        Some((entry, self.posted.remove(place)))
    }

    /// Adds a message that no receive waits for, behind all earlier ones.
    pub fn keep(&mut self, src: u32, tag: u64, message: K) -> Entry {
        const SETS: u8 = 1 << EXACT | 1 << SRC | 1 << TAG;
        self.kept.insert(src, tag, EXACT, SETS, message)
    }

    /// The earliest kept message that `pattern` accepts.
    #[inline]
    pub fn find(&mut self, pattern: Pattern) -> Option<Entry> {
        if self.kept.len == 0 {
            return None;
        }
        let place = self.kept.earliest_accepted(pattern)?;
        Some(Entry { place, seq: self.kept.nodes[place as usize].seq })
    }

    /// Takes a kept message out.
    pub fn take(&mut self, entry: Entry) -> Option<K> {
        self.kept.holds(entry).then(|| self.kept.remove(entry.place))
    }

    pub fn kept_mut(&mut self, entry: Entry) -> Option<&mut K> {
        self.kept.holds(entry).then(|| self.kept.value_mut(entry.place))
    }

    pub fn kept(&self, entry: Entry) -> Option<&K> {
        self.kept.holds(entry).then(|| self.kept.value(entry.place))
    }

    /// Source and tag of a kept message.
    pub fn envelope(&self, entry: Entry) -> Option<(u32, u64)> {
        self.kept.holds(entry).then(|| {
            let node = &self.kept.nodes[entry.place as usize];
            (node.src, node.tag)
        })
    }

    #[inline]
    pub fn posted_len(&self) -> usize {
        self.posted.len
    }

    #[inline]
    pub fn kept_len(&self) -> usize {
        self.kept.len
    }

    /// All posted receives with their patterns' sources, in order; for looking at them when a rank ends.
    pub fn posted_entries(&self) -> Vec<Entry> {
        self.posted.entries()
    }

    /// All kept messages in order.
    pub fn kept_entries(&self) -> Vec<Entry> {
        self.kept.entries()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The obvious way to do it, to compare with.
    #[derive(Default)]
    struct Plain {
        posted: Vec<(Pattern, u32)>,
        kept: Vec<(u32, u64, u32)>,
    }

    fn accepts(pattern: Pattern, src: u32, tag: u64) -> bool {
        pattern.src.is_none_or(|s| s == src) && pattern.tag.is_none_or(|t| t == tag)
    }

    impl Plain {
        fn arrive(&mut self, src: u32, tag: u64) -> Option<u32> {
            let at = self.posted.iter().position(|(pattern, _)| accepts(*pattern, src, tag))?;
            Some(self.posted.remove(at).1)
        }

        fn receive(&mut self, pattern: Pattern) -> Option<u32> {
            let at = self.kept.iter().position(|(src, tag, _)| accepts(pattern, *src, *tag))?;
            Some(self.kept.remove(at).2)
        }
    }

    /// Steps through a random history of receives and messages; `bias` of 16 events are messages.
    fn compare(seed: u64, bias: u64, steps: u32) {
        let mut random = seed;
        let mut next = move |below: u64| {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (random >> 33) % below
        };
        let mut plain = Plain::default();
        let mut queue: Matching<u32, u32> = Matching::default();
        let mut posted = Vec::new();
        for step in 0..steps {
            if next(16) < bias {
                let (src, tag) = (next(4) as u32, next(4));
                let expected = plain.arrive(src, tag);
                let is_first =
                    queue.first_exact().is_some_and(|(its_src, its_tag, _)| (its_src, its_tag) == (src, tag));
                let matched =
                    if is_first { queue.unpost_first() } else { queue.arrive(src, tag).map(|(_, value)| value) };
                assert_eq!(matched, expected, "seed {seed} step {step}");
                if expected.is_none() {
                    plain.kept.push((src, tag, step));
                    queue.keep(src, tag, step);
                }
            } else if next(8) == 0 && !posted.is_empty() {
                let (entry, value) = posted.swap_remove(next(posted.len() as u64) as usize);
                let expected = plain.posted.iter().position(|(_, other)| *other == value);
                assert_eq!(queue.unpost(entry).is_some(), expected.is_some(), "seed {seed} step {step}");
                expected.map(|at| plain.posted.remove(at));
            } else {
                let pattern =
                    Pattern { src: (next(3) != 0).then(|| next(4) as u32), tag: (next(3) != 0).then(|| next(4)) };
                let expected = plain.receive(pattern);
                let found = queue.find(pattern);
                assert_eq!(found.and_then(|entry| queue.take(entry)), expected, "seed {seed} step {step}");
                if expected.is_none() {
                    plain.posted.push((pattern, step));
                    posted.push((queue.post(pattern, step), step));
                }
            }
            assert_eq!((queue.posted_len(), queue.kept_len()), (plain.posted.len(), plain.kept.len()));
        }
    }

    #[test]
    fn matching_equals_a_search_in_order_for_any_history() {
        for seed in 1..40 {
            for bias in [4, 8, 12] {
                compare(seed, bias, 600);
            }
        }
    }

    #[test]
    fn a_taken_entry_is_not_mistaken_for_a_later_one_in_its_place() {
        let mut queue: Matching<(), char> = Matching::default();
        let first = queue.keep(1, 1, 'a');
        assert_eq!(queue.take(first), Some('a'));
        let second = queue.keep(1, 1, 'b');
        assert_eq!(queue.take(first), None);
        assert_eq!(queue.kept(second), Some(&'b'));
    }

    #[test]
    fn many_kept_messages_are_found_without_a_search() {
        let mut queue: Matching<(), u64> = Matching::default();
        for tag in 0..20_000 {
            queue.keep(3, tag, tag);
        }
        // Backwards, the worst order for a search: 200 million steps if it were one.
        for tag in (0..20_000).rev() {
            let entry = queue.find(Pattern { src: Some(3), tag: Some(tag) }).unwrap();
            assert_eq!(queue.take(entry), Some(tag));
        }
        assert_eq!(queue.kept_len(), 0);
    }
}
