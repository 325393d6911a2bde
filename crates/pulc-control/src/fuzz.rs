//! What is done with bytes from a client or a daemon, for fuzz targets (`fuzz/`) and for the replay of their corpora. Not for
//! programs.

use crate::frame::{self, Deframer, FRAME_MAX};
use crate::message::{Reply, Request};
use serde::{Deserialize, Serialize};

/// The bytes come in pieces whose length the first one says, and are looked at as requests and as replies.
pub fn frames(bytes: &[u8]) {
    let [piece, bytes @ ..] = bytes else { return };
    take_apart::<Request>(bytes, usize::from(*piece) + 1);
    take_apart::<Reply>(bytes, usize::from(*piece) + 1);
}

/// Frames of any kind of message.
pub fn take_apart<T>(bytes: &[u8], piece: usize)
where
    T: Serialize + for<'a> Deserialize<'a> + PartialEq + std::fmt::Debug,
{
    let mut frames = Deframer::default();
    for piece in bytes.chunks(piece) {
        frames.feed(piece);
        loop {
            match frames.take::<T>() {
                Ok(Some(message)) => same_again(&message),
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
    if let Ok(message) = frame::decode::<T>(bytes) {
        same_again(&message);
    }
    let _ = frame::read::<T>(&mut &bytes[..]);
}

fn same_again<T>(message: &T)
where
    T: Serialize + for<'a> Deserialize<'a> + PartialEq + std::fmt::Debug,
{
    let bytes = frame::encode(message).expect("it came out of a frame");
    assert!(bytes.len() <= FRAME_MAX + 4);
    assert_eq!(&frame::decode::<T>(&bytes[4..]).expect("it was just encoded"), message);
}
