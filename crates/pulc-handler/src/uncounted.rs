//! What interfaces use that count their own credit: one try to send a message of one frame, outside the handler's credit,
//! messages that leave bit by bit while their sender does something else, and a word to the threads that sleep. Called by
//! interfaces with the engine locked; never blocks.

use crate::engine::{Engine, Outcome};
use crate::error::SendFault;
use crate::peers::Route;
use crate::process::{Process, Shared};
use crate::sending::{Progress, Sending};
use crate::wire::{FREE, HEAD_BYTES, HEADER_MAX, Head, Kind};
use pulc_base::{Proto, Rank};
use std::sync::Arc;

/// Words of the longest header of a protocol.
pub const HEADER_WORDS: usize = HEADER_MAX / 8;

impl Engine {
    /// Longest body of [`Engine::try_uncounted`], whoever it goes to.
    #[inline]
    pub fn uncounted_max(&self) -> usize {
        self.whole_max()
    }

    /// Sends a message of one frame outside all credit; whether the device had room. `body` is at most
    /// [`Engine::uncounted_max`] bytes long.
    #[inline]
    pub fn try_uncounted(&mut self, dst: Rank, proto: Proto, header: &[u8], body: &[u8]) -> Result<bool, SendFault> {
        Ok(self.try_whole(dst, proto, FREE, header, body)? == Outcome::Sent)
    }

    /// The same for a message that is nothing but the first `count` words of `header`, which are put into a cell as they are.
    ///
    /// # Panics
    /// With more words than there are.
    #[inline(always)]
    pub fn try_uncounted_words(
        &mut self,
        dst: Rank,
        proto: Proto,
        header: [u64; HEADER_WORDS],
        count: usize,
    ) -> Result<bool, SendFault> {
        assert!(count <= HEADER_WORDS, "{count} words; a header has at most {HEADER_WORDS}");
        let Some(Route::Shm(to)) = self.floor.peers.get(dst.0 as usize).map(|peer| peer.route) else {
            return self.words_elsewhere(dst, proto, &header[..count]);
        };
        let header_len = 8 * count;
        let head =
            Head { proto: proto.0, kind: Kind::Whole, header_len: header_len as u8, flags: FREE, id: 0, total: 0 };
        let [a, b, c, d] = header;
        match self.shm.device.send_cell(to, HEAD_BYTES + header_len, &[head.word().to_le(), a, b, c, d, 0, 0]) {
            Ok(()) => {
                self.shm.tally.messages_sent += 1;
                Ok(true)
            }
            Err(error) => Ok(self.device_error(dst, error)? == Outcome::Sent),
        }
    }

    #[inline(never)]
    fn words_elsewhere(&mut self, dst: Rank, proto: Proto, words: &[u64]) -> Result<bool, SendFault> {
        let bytes: [[u8; 8]; HEADER_WORDS] =
            std::array::from_fn(|at| words.get(at).map_or([0; 8], |word| word.to_ne_bytes()));
        self.try_uncounted(dst, proto, &bytes.as_flattened()[..8 * words.len()], &[])
    }

    /// Sends as much of a parcel as there is room for now; the rest leaves with later polls.
    pub fn send_parcel(&mut self, mut parcel: Box<Parcel>) {
        if !parcel.step(self) {
            self.floor.outbox.send(parcel);
        }
    }
}

/// Who is told that a parcel has left, with the engine locked: must not block and not send.
pub trait Sent: Send + Sync {
    fn sent(&self, result: Result<(), SendFault>);
}

/// A message that the engine owns until it has left, outside all credit.
pub struct Parcel {
    dst: Rank,
    proto: Proto,
    /// A message of one frame that has to arrive before it.
    before: Option<(Vec<u8>, Vec<u8>)>,
    header: Vec<u8>,
    body: Arc<dyn AsRef<[u8]> + Send + Sync>,
    progress: Option<Progress>,
    told: Option<Arc<dyn Sent>>,
    /// It must not overtake an earlier one of its kind to the same rank.
    in_order: bool,
    /// It counts against its receiver's credit.
    counted: bool,
}

impl Parcel {
    pub fn new(dst: Rank, proto: Proto, header: &[u8], body: Arc<dyn AsRef<[u8]> + Send + Sync>) -> Parcel {
        Parcel {
            dst,
            proto,
            before: None,
            header: header.to_vec(),
            body,
            progress: None,
            told: None,
            in_order: false,
            counted: false,
        }
    }

    /// Behind every earlier parcel in order to the same rank. To be posted by [`crate::Outbox::send`].
    pub fn in_order(self) -> Parcel {
        Parcel { in_order: true, ..self }
    }

    /// Counted against its receiver's credit, as a blocking send is.
    pub fn counted(self) -> Parcel {
        Parcel { counted: true, ..self }
    }

    /// Where parcels in order may be held up.
    pub(crate) fn lane(&self) -> Option<Rank> {
        self.in_order.then_some(self.dst)
    }

    /// With a message of one frame that arrives before it.
    pub fn after(self, header: &[u8], body: &[u8]) -> Parcel {
        Parcel { before: Some((header.to_vec(), body.to_vec())), ..self }
    }

    /// With somebody who wants to know when it has left.
    pub fn telling(self, told: Arc<dyn Sent>) -> Parcel {
        Parcel { told: Some(told), ..self }
    }

    /// Goes as far as there is room; whether it is finished, well or not.
    pub(crate) fn step(&mut self, engine: &mut Engine) -> bool {
        if let Some((header, body)) = &self.before {
            match engine.try_uncounted(self.dst, self.proto, header, body) {
                Ok(true) => self.before = None,
                Ok(false) | Err(SendFault::NoChannel(_)) => return false,
                // The message itself meets the same fault.
                Err(_) => {}
            }
        }
        let make = if self.counted { Sending::counted } else { Sending::uncounted };
        let mut sending = make(self.dst, self.proto, &self.header, (*self.body).as_ref());
        if let Some(progress) = self.progress {
            sending = sending.resume(progress);
        }
        let result = match sending.step(engine) {
            // A channel that cannot be made now may be made later.
            None | Some(Err(SendFault::NoChannel(_))) => {
                self.progress = Some(sending.progress());
                return false;
            }
            Some(result) => result,
        };
        if let Some(told) = self.told.take() {
            told.sent(result);
        }
        true
    }
}

impl Process {
    /// Something has changed that other threads of this process may wait for: those that sleep look again.
    #[inline]
    pub fn announce(&self, shared: &Shared) {
        self.tell_others(shared);
    }
}
