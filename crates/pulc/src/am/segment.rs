//! The memory of an endpoint that long messages land in. It belongs to the engine while nobody looks at it and is lent to one
//! thread at a time, so that no byte is ever written under the eyes of a reader; what arrives meanwhile is kept aside and put
//! in place when the memory comes back. Used by the table (engine locked) and lent through `endpoint`.

use pulc_handler::Body;
use std::sync::atomic::{AtomicU64, Ordering};

/// What arrives while the memory is lent, at most.
pub(crate) const STAGED_MAX_BYTES: usize = 64 << 20;

/// Memory of any owner, who is not asked for it any more.
pub(crate) type Memory = Box<dyn AsMut<[u8]> + Send>;

/// A segment's memory in the hands of a thread.
pub(crate) struct Loan {
    pub memory: Memory,
    generation: u64,
}

pub(crate) struct Segment {
    /// No other segment has it: memory that comes back may belong to one that was replaced meanwhile.
    generation: u64,
    /// `None` while it is lent.
    memory: Option<Memory>,
    len: usize,
    staged: Vec<(usize, Vec<u8>)>,
    staged_bytes: usize,
}

impl Segment {
    pub fn new(mut memory: Memory) -> Segment {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let (len, generation) = ((*memory).as_mut().len(), MADE.fetch_add(1, Ordering::Relaxed));
        Segment { generation, memory: Some(memory), len, staged: Vec::new(), staged_bytes: 0 }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Puts bytes where they belong; false when the memory is lent and there is no room to keep them.
    pub fn place(&mut self, offset: usize, body: Body<'_>) -> bool {
        if body.is_empty() {
            return true;
        }
        match &mut self.memory {
            Some(memory) => {
                let Some(place) = (**memory).as_mut().get_mut(offset..offset + body.len()) else { return false };
                body.copy_to(place);
            }
            None => {
                let mut bytes = Vec::new();
                if self.staged_bytes + body.len() > STAGED_MAX_BYTES || bytes.try_reserve_exact(body.len()).is_err() {
                    return false;
                }
                body.append_to(&mut bytes);
                self.staged_bytes += bytes.len();
                self.staged.push((offset, bytes));
            }
        }
        true
    }

    pub fn lend(&mut self) -> Option<Loan> {
        Some(Loan { memory: self.memory.take()?, generation: self.generation })
    }

    /// Takes its own memory back; that of another segment stays where it is.
    pub fn take_back(&mut self, loan: &mut Option<Loan>) {
        let Some(Loan { mut memory, .. }) = loan.take_if(|loan| loan.generation == self.generation) else { return };
        let bytes = (*memory).as_mut();
        for (offset, staged) in self.staged.drain(..) {
            if let Some(place) = bytes.get_mut(offset..offset + staged.len()) {
                place.copy_from_slice(&staged);
            }
        }
        self.staged_bytes = 0;
        self.memory = Some(memory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(loan: &mut Option<Loan>) -> &[u8] {
        (*loan.as_mut().unwrap().memory).as_mut()
    }

    #[test]
    fn the_memory_of_a_segment_that_was_replaced_is_not_taken_by_the_new_one() {
        let mut old = Segment::new(Box::new(vec![1_u8; 8]));
        let mut lent = old.lend();
        let mut new = Segment::new(Box::new(vec![2_u8; 4]));
        new.take_back(&mut lent);
        assert_eq!(seen(&mut lent), [1; 8]);
        assert_eq!(seen(&mut new.lend()), [2; 4]);
    }

    #[test]
    fn what_arrives_while_the_memory_is_lent_is_there_when_it_comes_back() {
        let mut segment = Segment::new(Box::new(vec![0_u8; 8]));
        assert!(segment.place(0, Body::private(&[1, 2], 0)));
        let mut lent = segment.lend();
        assert_eq!(seen(&mut lent), [1, 2, 0, 0, 0, 0, 0, 0]);
        assert!(segment.lend().is_none());
        assert!(segment.place(6, Body::private(&[7, 8], 0)) && segment.place(0, Body::private(&[9], 0)));
        assert_eq!(seen(&mut lent), [1, 2, 0, 0, 0, 0, 0, 0]);
        segment.take_back(&mut lent);
        assert!(lent.is_none());
        assert_eq!(seen(&mut segment.lend()), [9, 2, 0, 0, 0, 0, 7, 8]);
    }

    #[test]
    fn more_than_can_be_kept_aside_is_refused() {
        let mut segment = Segment::new(Box::new(vec![0_u8; 8]));
        let _lent = segment.lend().unwrap();
        let bytes = vec![0; STAGED_MAX_BYTES / 2 + 1];
        assert!(segment.place(0, Body::private(&bytes, 0)));
        assert!(!segment.place(0, Body::private(&bytes, 0)));
    }
}
