//! The list behind a matching queue, with the chains per class of wildcard that it has while it is long. Used by `matching` alone, which
//! says what the entries mean. Never communicates.

use super::Entry;
use crate::pattern::Pattern;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

const NIL: u32 = u32::MAX;
/// Entries that a search passes before the chains per class are worth their upkeep.
const PASSED_MAX: usize = 16;

/// Sets of chains an entry can be in. `ALL` is one chain in order of arrival; the others have one per key.
const ALL: usize = 0;
pub(super) const EXACT: usize = 1;
pub(super) const SRC: usize = 2;
pub(super) const TAG: usize = 3;
const ANY: usize = 4;
const SETS: usize = 5;

#[inline]
pub(super) fn class_of(pattern: Pattern) -> usize {
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

pub(super) struct Node<V> {
    pub src: u32,
    /// The class of a receive's pattern; `EXACT` for messages.
    pub class: u8,
    /// Bit set of the chains this entry belongs to when there are indexes.
    sets: u8,
    pub tag: u64,
    pub seq: u64,
    /// `None`: a free place; its next free one is `links[ALL].after`.
    pub value: Option<V>,
    links: [Link; SETS],
}

pub(super) struct Store<V> {
    pub nodes: Vec<Node<V>>,
    free: u32,
    pub len: usize,
    next_seq: u64,
    all: Chain,
    indexed: bool,
    chains: HashMap<(u8, u32, u64), Chain, BuildHasherDefault<Mix>>,
}

impl<V> Store<V> {
    pub fn new() -> Store<V> {
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

    #[inline]
    pub fn insert(&mut self, src: u32, tag: u64, class: usize, sets: u8, value: V) -> Entry {
        let seq = self.next_seq;
        self.next_seq += 1;
        let class = class as u8;
        let place = if self.free == NIL {
            self.nodes.push(Node { src, class, sets, tag, seq, value: Some(value), links: [UNLINKED; SETS] });
            u32::try_from(self.nodes.len() - 1).expect("fewer than 2^32 entries: each takes more than 64 bytes")
        } else {
            let place = self.free;
            let node = &mut self.nodes[place as usize];
            self.free = node.links[ALL].after;
            // Links are written when it is entered.
            (node.src, node.class, node.sets, node.tag, node.seq) = (src, class, sets, tag, seq);
            node.value = Some(value);
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

    pub fn remove(&mut self, place: u32) -> V {
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

    /// The first entry in order.
    #[inline]
    pub fn first_node(&self) -> Option<&Node<V>> {
        self.nodes.get(self.all.head as usize)
    }

    /// Takes the first entry in order out.
    #[inline]
    pub fn remove_first(&mut self) -> Option<V> {
        let head = self.all.head;
        if self.indexed {
            return (head != NIL).then(|| self.remove(head));
        }
        let node = self.nodes.get_mut(head as usize)?;
        let value = node.value.take()?;
        self.all.head = std::mem::replace(&mut node.links[ALL].after, self.free);
        self.free = head;
        self.len -= 1;
        match self.nodes.get_mut(self.all.head as usize) {
            Some(next) => next.links[ALL].before = NIL,
            None => self.all.tail = NIL,
        }
        Some(value)
    }

    pub fn holds(&self, entry: Entry) -> bool {
        self.nodes.get(entry.place as usize).is_some_and(|node| node.value.is_some() && node.seq == entry.seq)
    }

    pub fn value(&self, place: u32) -> &V {
        self.nodes[place as usize].value.as_ref().expect("the caller has checked with `holds`")
    }

    pub fn value_mut(&mut self, place: u32) -> &mut V {
        self.nodes[place as usize].value.as_mut().expect("the caller has checked with `holds`")
    }

    pub fn entries(&self) -> Vec<Entry> {
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
    pub fn earliest_accepting(&mut self, src: u32, tag: u64) -> Option<u32> {
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
    pub fn earliest_accepted(&mut self, pattern: Pattern) -> Option<u32> {
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

    #[inline]
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
