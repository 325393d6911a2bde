//! A long packet of which only parts are here so far. Called by `arrivals` with parts that verified and lie inside the packet.

/// The bytes so far, and which of them they are.
pub(crate) struct Partial {
    bytes: Box<[u8]>,
    /// Stretches that are here, from and to, ascending, apart from each other.
    here: Vec<(usize, usize)>,
}

impl Partial {
    pub fn new(len: usize) -> Partial {
        Partial { bytes: vec![0; len].into_boxed_slice(), here: Vec::new() }
    }

    /// Of the whole packet.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Adds bytes that begin at `offset`; whether all are here now. What does not lie inside the packet is left out.
    pub fn fill(&mut self, offset: usize, part: &[u8]) -> bool {
        let Some(room) = self.bytes.get_mut(offset..offset + part.len()) else { return false };
        room.copy_from_slice(part);
        let (mut from, mut to) = (offset, offset + part.len());
        // Those that touch it become one with it.
        let first = self.here.partition_point(|stretch| stretch.1 < from);
        let end = self.here.partition_point(|stretch| stretch.0 <= to);
        if let Some(touching) = self.here.get(first..end)
            && let (Some(low), Some(high)) = (touching.first(), touching.last())
        {
            (from, to) = (from.min(low.0), to.max(high.1));
        }
        self.here.splice(first..end.max(first), [(from, to)]);
        self.here[0] == (0, self.bytes.len())
    }

    pub fn into_bytes(self) -> Box<[u8]> {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_of_overlapping_parts_ends_with_the_whole() {
        let whole: Vec<u8> = (0..60).collect();
        let parts = [(0, 20), (10, 35), (35, 40), (39, 50), (50, 60)];
        let mut order = [0, 1, 2, 3, 4];
        for turn in 0..120 {
            let mut partial = Partial::new(60);
            for (number, &index) in order.iter().enumerate() {
                let (from, to) = parts[index];
                assert_eq!(partial.fill(from, &whole[from..to]), number == 4, "turn {turn}: {order:?}");
            }
            assert!(partial.fill(5, &whole[5..9]), "what is there already changes nothing");
            assert_eq!(*partial.into_bytes(), *whole);
            next_permutation(&mut order);
        }
    }

    fn next_permutation(order: &mut [usize; 5]) {
        if let Some(at) = (0..4).rev().find(|&at| order[at] < order[at + 1]) {
            let with = (at + 1..5).rev().find(|&with| order[with] > order[at]).expect("the neighbour is larger");
            order.swap(at, with);
            order[at + 1..].reverse();
        } else {
            order.reverse();
        }
    }
}
