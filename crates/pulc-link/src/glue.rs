//! A train that the network did not hand over in one piece: its datagrams, which bear no mark of their own, are put together
//! again in the order they come. Whether they were the right ones is told by the tag of the whole. Called by the engine with
//! what is no frame; believes nothing and holds one train at most.

use crate::link::Rail;

pub(crate) struct Glue {
    pub rail: Rail,
    pub bytes: Vec<u8>,
    whole: usize,
}

impl Glue {
    /// The beginning of a train of `whole` bytes.
    pub fn begin(rail: Rail, whole: usize, beginning: &[u8]) -> Glue {
        let mut bytes = Vec::with_capacity(whole);
        bytes.extend_from_slice(beginning);
        Glue { rail, bytes, whole }
    }

    /// Bytes that are still to come.
    pub fn missing(&self) -> usize {
        self.whole.saturating_sub(self.bytes.len())
    }

    /// Takes the next datagram if it may belong to the train.
    pub fn add(&mut self, rail: Rail, datagram: &[u8]) -> bool {
        let fits = rail == self.rail && datagram.len() <= self.missing();
        if fits {
            self.bytes.extend_from_slice(datagram);
        }
        fits
    }
}
