//! Length-framed postcard: 4 bytes little endian length, then the message. Used between client and psid, psid and keeper,
//! and psid and psid. Never allocates more than the limit, never panics on bytes from outside.

use serde::{Deserialize, Serialize};
use std::io::{self, Read};

/// Largest frame between client and psid: arguments and environment of a program at their kernel limit fit.
pub const FRAME_MAX: usize = 8 << 20;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    #[error("the other side closed the connection")]
    Closed,
    #[error("a frame of {len} bytes exceeds the limit of {max} bytes")]
    TooLong { len: usize, max: usize },
    #[error("malformed frame of {len} bytes")]
    Malformed { len: usize },
    #[error("connection failed: {0}")]
    Io(#[from] io::Error),
}

/// The bytes to write for `message`, length first.
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, FrameError> {
    let bytes = postcard::to_extend(message, vec![0u8; 4])
        .expect("postcard encodes every message type: no maps, no unsized sequences");
    set_length(bytes, FRAME_MAX)
}

fn set_length(mut bytes: Vec<u8>, max: usize) -> Result<Vec<u8>, FrameError> {
    let len = bytes.len() - 4;
    let field = u32::try_from(len).ok().filter(|_| len <= max).ok_or(FrameError::TooLong { len, max })?;
    bytes[..4].copy_from_slice(&field.to_le_bytes());
    Ok(bytes)
}

/// Decodes the inside of one frame; trailing bytes are an error.
pub fn decode<T: for<'a> Deserialize<'a>>(bytes: &[u8]) -> Result<T, FrameError> {
    match postcard::take_from_bytes(bytes) {
        Ok((message, [])) => Ok(message),
        _ => Err(FrameError::Malformed { len: bytes.len() }),
    }
}

/// Length of the frame whose first four bytes are given.
pub fn length(head: [u8; 4]) -> Result<usize, FrameError> {
    let len = u32::from_le_bytes(head) as usize;
    if len > FRAME_MAX { Err(FrameError::TooLong { len, max: FRAME_MAX }) } else { Ok(len) }
}

/// Reads one message, blocking. [`FrameError::Closed`] when the stream ends between two frames.
pub fn read<T: for<'a> Deserialize<'a>>(stream: &mut impl Read) -> Result<T, FrameError> {
    let mut head = [0u8; 4];
    let mut have = 0;
    while have < 4 {
        match stream.read(&mut head[have..]) {
            Ok(0) if have == 0 => return Err(FrameError::Closed),
            Ok(0) => return Err(FrameError::Malformed { len: have }),
            Ok(n) => have += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    let len = length(head)?;
    // Grows with what arrives: a peer that only announces much makes nothing big.
    let mut body = Vec::with_capacity(len.min(64 << 10));
    stream.by_ref().take(len as u64).read_to_end(&mut body)?;
    if body.len() < len {
        return Err(FrameError::Malformed { len: body.len() });
    }
    decode(&body)
}

/// Collects frames from a non-blocking stream: feed what came, take what is complete.
#[derive(Default)]
pub struct Deframer {
    buffer: Vec<u8>,
    start: usize,
}

impl Deframer {
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.start > 0 && (self.start == self.buffer.len() || self.start >= 64 << 10) {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next complete message, or none until more is fed.
    pub fn take<T: for<'a> Deserialize<'a>>(&mut self) -> Result<Option<T>, FrameError> {
        let rest = &self.buffer[self.start..];
        let Some((head, body)) = rest.split_first_chunk::<4>() else { return Ok(None) };
        let len = length(*head)?;
        let Some(body) = body.get(..len) else { return Ok(None) };
        let message = decode(body)?;
        self.start += 4 + len;
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Reply, Request};

    #[test]
    fn frames_survive_any_cutting() {
        let frames = [Request::Hello { version: 1 }, Request::Input { bytes: vec![7; 1000] }, Request::InputEnd];
        let wire: Vec<u8> = frames.iter().flat_map(|frame| encode(frame).unwrap()).collect();
        for step in [1, 2, 3, 5, 64, 2000] {
            let mut deframer = Deframer::default();
            let mut seen = Vec::new();
            for piece in wire.chunks(step) {
                deframer.feed(piece);
                while let Some(frame) = deframer.take::<Request>().unwrap() {
                    seen.push(frame);
                }
            }
            assert_eq!(seen, frames);
        }
    }

    #[test]
    fn oversized_and_malformed_frames_are_refused() {
        let mut deframer = Deframer::default();
        deframer.feed(&u32::MAX.to_le_bytes());
        assert!(matches!(deframer.take::<Request>(), Err(FrameError::TooLong { .. })));
        let mut deframer = Deframer::default();
        deframer.feed(&[2, 0, 0, 0, 0xff, 0xff]);
        assert!(matches!(deframer.take::<Request>(), Err(FrameError::Malformed { .. })));
        assert!(matches!(read::<Reply>(&mut &[1u8, 0][..]), Err(FrameError::Malformed { .. })));
        assert!(matches!(read::<Reply>(&mut &[][..]), Err(FrameError::Closed)));
        assert!(matches!(read::<Reply>(&mut &[9u8, 0, 0, 0, 1][..]), Err(FrameError::Malformed { .. })));
    }

    #[test]
    fn random_bytes_never_panic() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..2000 {
            let bytes: Vec<u8> = (0..(state % 64) as usize)
                .map(|_| {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    state as u8
                })
                .collect();
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
            let _ = decode::<Request>(&bytes);
            let _ = decode::<Reply>(&bytes);
        }
    }
}
