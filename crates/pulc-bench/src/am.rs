//! Active messages as a measured layer: rank 0 asks, the handlers of rank 1 answer. A round trip is a request and its reply;
//! the stream is requests that are not replied to. Called by `rank`.
//!
//! Up to 64 bytes travel as arguments, with leaf handlers if wanted, up to 8 KiB as a medium payload, more as a long one that lands in
//! the segment.

use crate::Error;
use crate::measure::{Channel, LAST};
use pulc::am::{
    Bundle, Bytes, Data, Endpoint, LeafMessage, MEDIUM_MAX, Message, Mode, Opcode, Peer, Status, WORDS_MAX, Words,
};
use pulc::{Pulc, Rank};
use pulc_hal::os::cpu;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const NAME: &str = "bench";
const TAG: u64 = 1;
const CREDITS: u16 = 64;
/// One handler for each kind of request and reply.
const SHORT: u8 = 1;
const MEDIUM: u8 = 2;
const LONG: u8 = 3;
const BACK: u8 = 4;
const MEDIUM_BACK: u8 = 5;
const LONG_BACK: u8 = 6;

/// Bytes that travel as arguments.
pub const SHORT_MAX: usize = WORDS_MAX * 8;

/// One side.
pub struct Am {
    bundle: Bundle,
    _endpoint: Endpoint,
    peer: Peer,
    /// Replies that have come, and those that were waited for.
    replies: Arc<AtomicU64>,
    taken: u64,
    /// How far the answering side is with one size.
    phase: Arc<AtomicU64>,
    /// Looks again and again instead of waiting.
    pub polls: bool,
}

/// What the handlers of the answering side have seen of one size: ping-pong until the first last word, then a stream.
const PING_PONG: u64 = 0;
const DONE: u64 = 2;

impl Am {
    /// Both sides call this. With `leaves` only messages of up to [`SHORT_MAX`] bytes may be sent.
    pub fn open(pulc: &Pulc, largest: usize, leaves: bool) -> Result<Am, Error> {
        let bundle = Bundle::new(pulc, Mode::Sequential).map_err(failed)?;
        let endpoint = bundle.endpoint(NAME, TAG).map_err(failed)?;
        endpoint.set_segment(vec![0_u8; largest]);
        let replies = Arc::new(AtomicU64::new(0));
        let phase = Arc::new(AtomicU64::new(PING_PONG));
        let kinds = [(BACK, Opcode::Reply), (MEDIUM_BACK, Opcode::MediumReply), (LONG_BACK, Opcode::LongReply)];
        for (index, kind) in kinds.into_iter().filter(|_| !leaves) {
            let replies = Arc::clone(&replies);
            let count = move |message: Message<'_>| {
                if message.opcode != kind {
                    return Err(Status::BadHandler);
                }
                replies.fetch_add(1, Ordering::Relaxed);
                Ok(())
            };
            endpoint.on_message(index, count).map_err(failed)?;
        }
        if leaves {
            serve_by_leaves(&endpoint, &phase, &replies)?;
        } else {
            serve(&endpoint, &phase, largest)?;
        }
        let peer = Rank(1 - pulc.rank().0.min(1));
        let peer = endpoint.map(&bundle, peer, NAME, TAG, CREDITS).map_err(failed)?;
        Ok(Am { bundle, _endpoint: endpoint, peer, replies, taken: 0, phase, polls: false })
    }

    /// The answering side: its handlers work until the asker has done with one size.
    pub fn answer(&mut self) -> Result<(), Error> {
        while self.phase.load(Ordering::Relaxed) < DONE {
            self.look()?;
        }
        self.phase.store(PING_PONG, Ordering::Relaxed);
        Ok(())
    }
}

impl Am {
    /// Lets handlers run.
    fn look(&self) -> Result<(), Error> {
        let ran = if self.polls { self.bundle.poll() } else { self.bundle.wait(None) };
        if self.polls && ran.as_ref().is_ok_and(|count| *count == 0) {
            cpu::pause();
        }
        ran.map(|_| ()).map_err(failed)
    }
}

/// Opens leaf handlers of short requests and of their replies.
fn serve_by_leaves(endpoint: &Endpoint, phase: &Arc<AtomicU64>, replies: &Arc<AtomicU64>) -> Result<(), Error> {
    let (phase, replies) = (Arc::clone(phase), Arc::clone(replies));
    let count = move |_: LeafMessage<'_>| {
        replies.fetch_add(1, Ordering::Relaxed);
        Ok(())
    };
    endpoint.on_leaf_message(BACK, count).map_err(failed)?;
    let run = move |message: LeafMessage<'_>| {
        let (token, words) = (message.token.ok_or(Status::BadHandler)?, message.words);
        let is_last = words.all().first().is_some_and(|word| *word as u8 == LAST);
        let answers = phase.load(Ordering::Relaxed) == PING_PONG || is_last;
        if is_last {
            phase.fetch_add(1, Ordering::Relaxed);
        }
        if answers {
            token.reply_words(BACK, words);
        }
        Ok(())
    };
    endpoint.on_leaf_message(SHORT, run).map_err(failed)
}

/// Opens the handlers of requests.
fn serve(endpoint: &Endpoint, phase: &Arc<AtomicU64>, largest: usize) -> Result<(), Error> {
    let long: Bytes = Arc::new(vec![0_u8; largest]);
    for index in [SHORT, MEDIUM, LONG] {
        let (phase, long) = (Arc::clone(phase), Arc::clone(&long));
        let run = move |message: Message<'_>| {
            let (token, words) = (message.token.ok_or(Status::BadHandler)?, message.words);
            let is_last = words.all().first().is_some_and(|word| *word as u8 == LAST);
            let answers = phase.load(Ordering::Relaxed) == PING_PONG || is_last;
            if is_last {
                phase.fetch_add(1, Ordering::Relaxed);
            }
            match message.data {
                _ if !answers => {}
                Data::Bytes(bytes) => {
                    // Not longer than what came.
                    let _ = token.reply_medium_words(MEDIUM_BACK, *words, bytes);
                }
                Data::Landed(landed) => {
                    let part = Part(Arc::clone(&long), landed.len);
                    token.reply_long_words(LONG_BACK, *words, 0, Arc::new(part));
                }
                _ => token.reply_words(BACK, *words),
            }
            Ok(())
        };
        endpoint.on_message(index, run).map_err(failed)?;
    }
    Ok(())
}

/// The first bytes of a message that is kept.
struct Part(Bytes, usize);

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        let bytes: &[u8] = (*self.0).as_ref();
        &bytes[..self.1.min(bytes.len())]
    }
}

impl Channel for Am {
    fn send(&mut self, message: &[u8]) -> Result<(), Error> {
        let (bundle, peer) = (&self.bundle, &self.peer);
        let mut words = [0; WORDS_MAX];
        if message.len() <= SHORT_MAX {
            let count = message.len().div_ceil(8);
            for (word, bytes) in words.iter_mut().zip(message.chunks(8)) {
                let mut whole = [0; 8];
                whole[..bytes.len()].copy_from_slice(bytes);
                *word = u64::from_le_bytes(whole);
            }
            let words = Words::new(words, count);
            return peer
                .request_words(Some(bundle), Opcode::Short, SHORT, &words, None, &[])
                .map(|_| ())
                .map_err(failed);
        }
        words[0] = u64::from(message[0]);
        let words = Words::new(words, 1);
        if message.len() <= MEDIUM_MAX {
            let sent = peer.request_words(Some(bundle), Opcode::Medium, MEDIUM, &words, None, message);
            return sent.map(|_| ()).map_err(failed);
        }
        peer.request_long_words(bundle, LONG, &words, 0, None, message).map_err(failed)
    }

    /// The reply to the oldest request that has one.
    fn recv(&mut self, _message: &mut [u8]) -> Result<(), Error> {
        self.taken += 1;
        while self.replies.load(Ordering::Relaxed) < self.taken {
            self.look()?;
        }
        Ok(())
    }
}

fn failed(error: pulc::Error) -> Error {
    Error::Worker(error.to_string())
}
