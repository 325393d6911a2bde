//! Messages that come from one rank in parts, by its number for them. Used by `dispatch` for every part. The parts of one message mostly
//! follow each other, so the message that a part came for last stands apart: no sum of its number is made for the next one.

use std::collections::HashMap;

/// A message that comes in parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Incoming {
    pub proto: u8,
    /// The receive handler's own number for it.
    pub number: u64,
    pub total: u64,
    pub arrived: u64,
    /// What it is charged against the sender's credit; nothing for those asked for.
    pub cost: u64,
    pub granted: bool,
}

#[derive(Default)]
pub(crate) struct IncomingList {
    /// The one that was looked for last.
    latest: Option<(u32, Incoming)>,
    others: HashMap<u32, Incoming>,
}

impl IncomingList {
    pub fn len(&self) -> usize {
        self.others.len() + usize::from(self.latest.is_some())
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn contains(&self, id: u32) -> bool {
        matches!(self.latest, Some((latest, _)) if latest == id)
            || (!self.others.is_empty() && self.others.contains_key(&id))
    }

    /// The one that a part came for last, or that has come last.
    #[inline]
    pub fn latest(&self) -> Option<(u32, Incoming)> {
        self.latest
    }

    /// The caller has made sure that there is none of this number.
    pub fn insert(&mut self, id: u32, incoming: Incoming) {
        debug_assert!(!self.contains(id), "two messages in parts of number {id}");
        if let Some((earlier, other)) = self.latest.replace((id, incoming)) {
            self.others.insert(earlier, other);
        }
    }

    #[inline]
    pub fn get_mut(&mut self, id: u32) -> Option<&mut Incoming> {
        if !matches!(self.latest, Some((latest, _)) if latest == id) {
            let found = self.others.remove(&id)?;
            if let Some((earlier, other)) = self.latest.replace((id, found)) {
                self.others.insert(earlier, other);
            }
        }
        self.latest.as_mut().map(|(_, incoming)| incoming)
    }

    #[inline]
    pub fn remove(&mut self, id: u32) -> Option<Incoming> {
        match self.latest {
            Some((latest, incoming)) if latest == id => {
                self.latest = None;
                Some(incoming)
            }
            _ => self.others.remove(&id),
        }
    }

    /// All of them, in the order of their numbers.
    pub fn take_all(&mut self) -> impl Iterator<Item = Incoming> + use<> {
        let mut all: Vec<_> = std::mem::take(&mut self.others).into_iter().chain(self.latest.take()).collect();
        all.sort_unstable_by_key(|(id, _)| *id);
        all.into_iter().map(|(_, incoming)| incoming)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(number: u64) -> Incoming {
        Incoming { proto: 1, number, total: 10, arrived: 0, cost: 0, granted: true }
    }

    #[test]
    fn whichever_came_last_every_message_is_found_until_it_is_removed() {
        let mut list = IncomingList::default();
        (0..5).for_each(|id| list.insert(id, numbered(10 * u64::from(id))));
        for id in [3, 3, 0, 4, 1, 1, 2, 3] {
            list.get_mut(id).expect("it is there").arrived += 1;
            assert_eq!((list.len(), list.contains(id), list.contains(9)), (5, true, false));
        }
        assert_eq!(list.get_mut(9), None);
        assert_eq!(list.get_mut(3).map(|incoming| incoming.arrived), Some(3));
        assert_eq!(list.remove(3).map(|incoming| incoming.number), Some(30));
        assert_eq!(list.remove(0).map(|incoming| (incoming.number, incoming.arrived)), Some((0, 1)));
        assert_eq!((list.remove(3), list.remove(0), list.len()), (None, None, 3));
        assert_eq!(list.take_all().map(|incoming| incoming.number).collect::<Vec<_>>(), [10, 20, 40]);
        assert_eq!(list.len(), 0);
    }
}
