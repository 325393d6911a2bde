//! The matching queue: receives that wait for a message, and messages that wait for a receive, matched by source and tag
//! with wildcards on the receive's side, always the earliest first. Used by the port interface and by every other
//! interface that matches; one queue per port, communicator or the like.
//!
//! All entries are in one list, which is searched in order: most programs receive in the order in which they are sent to, and then
//! the first one is it, however many there are. Once a search has gone past some, each entry is also entered in a chain per class of
//! wildcard, until the queue is empty: matching costs the same for ten thousand entries as for one. Never communicates.

pub use crate::pattern::Pattern;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

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
    pub fn post(&mut self, pattern: Pattern, receive: P) -> Entry {
        let class = class_of(pattern);
        self.posted.insert(pattern.src.unwrap_or(0), pattern.tag.unwrap_or(0), class, 1 << class, receive)
    }

    /// Takes a receive back; `None` when it has matched already.
    pub fn unpost(&mut self, entry: Entry) -> Option<P> {
        self.posted.holds(entry).then(|| self.posted.remove(entry.place))
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

    pub fn posted_len(&self) -> usize {
        self.posted.len
    }

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

const NIL: u32 = u32::MAX;
/// Entries that a search passes before the chains per class are worth their upkeep.
const PASSED_MAX: usize = 16;

/// Sets of chains an entry can be in. `ALL` is one chain in order of arrival; the others have one per key.
const ALL: usize = 0;
const EXACT: usize = 1;
const SRC: usize = 2;
const TAG: usize = 3;
const ANY: usize = 4;
const SETS: usize = 5;

fn class_of(pattern: Pattern) -> usize {
    match (pattern.src, pattern.tag) {
        (Some(_), Some(_)) => EXACT,
        (Some(_), None) => SRC,
        (None, Some(_)) => TAG,
        (None, None) => ANY,
    }
}

fn key(set: usize, src: u32, tag: u64) -> (u32, u64) {
    match set {
        EXACT => (src, tag),
        SRC => (src, 0),
        TAG => (0, tag),
        _ => (0, 0),
    }
}

#[derive(Clone, Copy)]
struct Link {
    before: u32,
    after: u32,
}

#[derive(Clone, Copy)]
struct Chain {
    head: u32,
    tail: u32,
}

const EMPTY: Chain = Chain { head: NIL, tail: NIL };
const UNLINKED: Link = Link { before: NIL, after: NIL };

struct Node<V> {
    src: u32,
    /// The class of a receive's pattern; `EXACT` for messages.
    class: u8,
    /// Bit set of the chains this entry belongs to when there are indexes.
    sets: u8,
    tag: u64,
    seq: u64,
    /// `None`: a free place; its next free one is `links[ALL].after`.
    value: Option<V>,
    links: [Link; SETS],
}

struct Store<V> {
    nodes: Vec<Node<V>>,
    free: u32,
    len: usize,
    next_seq: u64,
    all: Chain,
    indexed: bool,
    chains: HashMap<(u8, u32, u64), Chain, BuildHasherDefault<Mix>>,
}

impl<V> Store<V> {
    fn new() -> Store<V> {
        Store {
            nodes: Vec::new(),
            free: NIL,
            len: 0,
            next_seq: 0,
            all: EMPTY,
            indexed: false,
            chains: HashMap::default(),
        }
    }

    fn insert(&mut self, src: u32, tag: u64, class: usize, sets: u8, value: V) -> Entry {
        let seq = self.next_seq;
        self.next_seq += 1;
        let node = Node { src, class: class as u8, sets, tag, seq, value: Some(value), links: [UNLINKED; SETS] };
        let place = if self.free == NIL {
            self.nodes.push(node);
            u32::try_from(self.nodes.len() - 1).expect("fewer than 2^32 entries: each takes more than 64 bytes")
        } else {
            let place = self.free;
            self.free = self.nodes[place as usize].links[ALL].after;
            self.nodes[place as usize] = node;
            place
        };
        self.len += 1;
        let mut all = self.all;
        self.append(&mut all, ALL, place);
        self.all = all;
        if self.indexed {
            self.enter(place);
        }
        Entry { place, seq }
    }

    /// Enters all entries in their chains.
    #[cold]
    fn index(&mut self) {
        self.indexed = true;
        let mut at = self.all.head;
        while at != NIL {
            self.enter(at);
            at = self.nodes[at as usize].links[ALL].after;
        }
    }

    fn remove(&mut self, place: u32) -> V {
        let mut all = self.all;
        self.unlink(&mut all, ALL, place);
        self.all = all;
        if self.indexed {
            self.leave(place);
        }
        let node = &mut self.nodes[place as usize];
        let value = node.value.take().expect("only linked places are removed, and these hold a value");
        node.links[ALL].after = self.free;
        self.free = place;
        self.len -= 1;
        if self.len == 0 {
            self.indexed = false;
            self.chains.clear();
        }
        value
    }

    fn holds(&self, entry: Entry) -> bool {
        self.nodes.get(entry.place as usize).is_some_and(|node| node.value.is_some() && node.seq == entry.seq)
    }

    fn value(&self, place: u32) -> &V {
        self.nodes[place as usize].value.as_ref().expect("the caller has checked with `holds`")
    }

    fn value_mut(&mut self, place: u32) -> &mut V {
        self.nodes[place as usize].value.as_mut().expect("the caller has checked with `holds`")
    }

    fn entries(&self) -> Vec<Entry> {
        let mut entries = Vec::with_capacity(self.len);
        let mut at = self.all.head;
        while at != NIL {
            entries.push(Entry { place: at, seq: self.nodes[at as usize].seq });
            at = self.nodes[at as usize].links[ALL].after;
        }
        entries
    }

    /// For receives: the earliest one whose pattern accepts the message.
    #[inline]
    fn earliest_accepting(&mut self, src: u32, tag: u64) -> Option<u32> {
        let searched = self.first(|node| match node.class as usize {
            EXACT => node.src == src && node.tag == tag,
            SRC => node.src == src,
            TAG => node.tag == tag,
            _ => true,
        });
        searched.unwrap_or_else(|| {
            let heads = [EXACT, SRC, TAG, ANY].map(|set| self.head(set, src, tag));
            heads.into_iter().filter(|head| *head != NIL).min_by_key(|head| self.nodes[*head as usize].seq)
        })
    }

    /// For messages: the earliest one that the pattern accepts.
    #[inline]
    fn earliest_accepted(&mut self, pattern: Pattern) -> Option<u32> {
        let searched = self.first(|node| pattern.accepts(node.src, node.tag));
        searched.unwrap_or_else(|| {
            let head = self.head(class_of(pattern), pattern.src.unwrap_or(0), pattern.tag.unwrap_or(0));
            (head != NIL).then_some(head)
        })
    }

    /// The first entry in order; `None`: that would take long, and there are chains to look in. Where there are, only one is looked at.
    #[inline]
    fn first(&mut self, accepts: impl Fn(&Node<V>) -> bool) -> Option<Option<u32>> {
        let passed_max = if self.indexed { 1 } else { PASSED_MAX };
        let mut at = self.all.head;
        for _ in 0..passed_max {
            let Some(node) = self.nodes.get(at as usize) else { return Some(None) };
            if accepts(node) {
                return Some(Some(at));
            }
            at = node.links[ALL].after;
        }
        if at == NIL {
            return Some(None);
        }
        if !self.indexed {
            self.index();
        }
        None
    }

    fn head(&self, set: usize, src: u32, tag: u64) -> u32 {
        let (src, tag) = key(set, src, tag);
        self.chains.get(&(set as u8, src, tag)).map_or(NIL, |chain| chain.head)
    }

    /// Enters an entry in the chains of its sets.
    fn enter(&mut self, place: u32) {
        for set in EXACT..SETS {
            let node = &self.nodes[place as usize];
            if node.sets & 1 << set != 0 {
                let (src, tag) = key(set, node.src, node.tag);
                let mut chain = *self.chains.entry((set as u8, src, tag)).or_insert(EMPTY);
                self.append(&mut chain, set, place);
                self.chains.insert((set as u8, src, tag), chain);
            }
        }
    }

    fn leave(&mut self, place: u32) {
        for set in EXACT..SETS {
            let node = &self.nodes[place as usize];
            if node.sets & 1 << set != 0 {
                let (src, tag) = key(set, node.src, node.tag);
                let key = (set as u8, src, tag);
                let mut chain = self.chains.get(&key).copied().expect("every linked entry's chain is in the table");
                self.unlink(&mut chain, set, place);
                if chain.head == NIL {
                    self.chains.remove(&key);
                } else {
                    self.chains.insert(key, chain);
                }
            }
        }
    }

    fn append(&mut self, chain: &mut Chain, set: usize, place: u32) {
        self.nodes[place as usize].links[set] = Link { before: chain.tail, after: NIL };
        match chain.tail {
            NIL => chain.head = place,
            tail => self.nodes[tail as usize].links[set].after = place,
        }
        chain.tail = place;
    }

    fn unlink(&mut self, chain: &mut Chain, set: usize, place: u32) {
        let Link { before, after } = self.nodes[place as usize].links[set];
        match before {
            NIL => chain.head = after,
            before => self.nodes[before as usize].links[set].after = after,
        }
        match after {
            NIL => chain.tail = before,
            after => self.nodes[after as usize].links[set].before = before,
        }
    }
}

/// A quick hash for keys that only job-mates choose.
#[derive(Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(u64::from(value));
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
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
                assert_eq!(queue.arrive(src, tag).map(|(_, value)| value), expected, "seed {seed} step {step}");
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
