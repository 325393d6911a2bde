//! What daemons write on a TLS connection. First both sides send a preamble that will never change, so that different versions can
//! name each other; then frames: length, then a postcard message. Called by `dial`, `accept`, `connection`. Never trusts a length:
//! memory grows with the bytes that really came.
//!
//! ```text
//!   0       4         8
//!   | PULC  | version | preamble, once, little endian
//!   0       4         4+n
//!   | n     | message | frame
//! ```

use super::config::{OLDEST_SPOKEN, VERSIONS_OF_A_KIND};
use crate::membership::{Member, Refusal};
use crate::peer_message::PeerMsg;
use pulc_base::NodeId;
use serde::{Deserialize, Serialize};
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

const MAGIC: [u8; 4] = *b"PULC";

/// Largest frame before the other side is admitted.
pub(crate) const OPENING_MAX: usize = 64 << 10;

/// First frame of whoever connected.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Opening {
    /// A member with a certificate.
    Mesh { session: u64, member: Member },
    /// A host with a token and no certificate yet. `proof` signs this connection's keying material with the private half of
    /// `public_key`.
    Join { secret: [u8; 16], public_key: [u8; 32], proof: Vec<u8>, member: Member },
}

/// First frame of whoever was called.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    Welcome { session: u64, member: Member },
    Refused(Refusal),
    Joined { certificate: Vec<u8>, name: String, members: Vec<Member> },
}

/// Everything after that, in both directions.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Frame {
    Beat {
        load_milli: u32,
        /// A beat in return is wanted.
        answer: bool,
    },
    Members(Vec<Member>),
    /// The sender ends on purpose.
    Goodbye,
    Peer(PeerMsg),
    /// Nodes that the sender has not heard of for a while.
    Missed(Vec<NodeId>),
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum WireError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("what answers there is no PULC daemon")]
    NotPulc,
    #[error("it speaks protocol version {theirs}, this one {ours}; use versions of PULC that go together on both")]
    Version { theirs: u32, ours: u32 },
    #[error("a frame of {len} bytes exceeds the limit of {limit}")]
    TooLong { len: usize, limit: usize },
    #[error("a malformed frame of {len} bytes")]
    Malformed { len: usize },
}

impl WireError {
    /// Whether the other side has gone without a word.
    pub(crate) fn is_silence(&self) -> bool {
        use io::ErrorKind::{ConnectionReset, UnexpectedEof};
        matches!(self, WireError::Io(error) if matches!(error.kind(), ConnectionReset | UnexpectedEof))
    }
}

pub(crate) fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    pulc_base::boot::encode(message)
}

/// Appends a frame that holds `body`.
pub(crate) fn put_frame(out: &mut Vec<u8>, body: &[u8]) {
    out.extend_from_slice(&(body.len() as u32).to_le_bytes());
    out.extend_from_slice(body);
}

/// Our preamble followed by our first frame.
pub(crate) fn preamble_and(version: u32, first: &impl Serialize) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&version.to_le_bytes());
    put_frame(&mut out, &encode(first));
    out
}

/// Our preamble alone: what a peer of another version gets before the connection is closed.
pub(crate) async fn write_preamble(to: &mut (impl AsyncWrite + Unpin), version: u32) -> io::Result<()> {
    to.write_all(&[MAGIC, version.to_le_bytes()].concat()).await?;
    to.flush().await
}

pub(crate) async fn read_preamble(from: &mut (impl AsyncRead + Unpin), ours: u32) -> Result<(), WireError> {
    let mut magic = [0; 4];
    from.read_exact(&mut magic).await?;
    if magic != MAGIC {
        return Err(WireError::NotPulc);
    }
    let theirs = from.read_u32_le().await?;
    spoken(ours, theirs).map(drop).ok_or(WireError::Version { theirs, ours })
}

/// What two daemons speak with each other: the version of the older one, if the newer one still can. The older one can't judge that and
/// leaves it to the other, who sees the same two numbers; of another hundred nobody is understood.
pub(crate) fn spoken(ours: u32, theirs: u32) -> Option<u32> {
    let older = ours.min(theirs);
    let is_near = ours / VERSIONS_OF_A_KIND == theirs / VERSIONS_OF_A_KIND;
    (is_near && (older == ours || older >= OLDEST_SPOKEN)).then_some(older)
}

/// Reads one frame whole. Cancelling it loses the bytes read so far: only for the first frame of a connection.
pub(crate) async fn read_first<T: for<'a> Deserialize<'a>>(
    from: &mut (impl AsyncRead + Unpin),
) -> Result<T, WireError> {
    let len = from.read_u32_le().await? as usize;
    if len > OPENING_MAX {
        return Err(WireError::TooLong { len, limit: OPENING_MAX });
    }
    let mut body = Vec::new();
    from.take(len as u64).read_to_end(&mut body).await?;
    pulc_base::boot::decode(&body).map_err(|_| WireError::Malformed { len })
}

/// Buffer that an idle connection keeps.
const READ_MIN: usize = 1 << 10;
const READ_MAX: usize = 16 << 10;

/// Takes a stream of bytes apart into frames.
pub(crate) struct FrameReader {
    buffer: Vec<u8>,
    /// Bytes before this one have been handed out.
    start: usize,
    limit: usize,
    /// Room for the next read: much where much comes, little on the many connections on which signs of life are all.
    room: usize,
}

impl FrameReader {
    pub(crate) fn new(limit: usize) -> FrameReader {
        FrameReader::holding(Vec::new(), limit)
    }

    /// With bytes that have come already.
    pub(crate) fn holding(buffer: Vec<u8>, limit: usize) -> FrameReader {
        FrameReader { buffer, start: 0, limit, room: READ_MIN }
    }

    /// Takes more bytes in. Cancel safe. `Ok(0)` is the end of the stream.
    pub(crate) async fn fill(&mut self, from: &mut (impl AsyncRead + Unpin)) -> io::Result<usize> {
        if self.start == self.buffer.len() {
            self.buffer.clear();
            self.start = 0;
            self.buffer.shrink_to(self.room);
        } else if self.start > self.buffer.len() / 2 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.reserve(self.room);
        let room = self.buffer.capacity() - self.buffer.len();
        let came = from.read_buf(&mut self.buffer).await?;
        if came == room {
            self.room = (self.room * 2).min(READ_MAX);
        } else if came < self.room / 4 {
            self.room = READ_MIN;
        }
        Ok(came)
    }

    /// The next whole frame, if it is there.
    pub(crate) fn next(&mut self) -> Result<Option<Frame>, WireError> {
        let bytes = &self.buffer[self.start..];
        let Some((head, rest)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
        let len = u32::from_le_bytes(*head) as usize;
        if len > self.limit {
            return Err(WireError::TooLong { len, limit: self.limit });
        }
        let Some(body) = rest.get(..len) else { return Ok(None) };
        let frame = pulc_base::boot::decode(body).map_err(|_| WireError::Malformed { len })?;
        self.start += 4 + len;
        Ok(Some(frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader_of(bytes: &[u8]) -> FrameReader {
        FrameReader::holding(bytes.to_vec(), 1000)
    }

    #[test]
    fn frames_come_out_one_by_one_and_only_whole() {
        let mut bytes = Vec::new();
        for n in 0..3 {
            put_frame(&mut bytes, &encode(&Frame::Peer(PeerMsg::Probe(n))));
        }
        for cut in 0..bytes.len() {
            let mut reader = reader_of(&bytes[..cut]);
            let mut seen = 0;
            while let Some(frame) = reader.next().unwrap() {
                assert!(matches!(frame, Frame::Peer(PeerMsg::Probe(n)) if n == seen));
                seen += 1;
            }
            assert!(seen < 3);
        }
    }

    #[test]
    fn a_frame_that_claims_too_much_is_refused_before_it_is_stored() {
        let mut reader = reader_of(&u32::MAX.to_le_bytes());
        assert!(matches!(reader.next(), Err(WireError::TooLong { .. })));
    }

    #[tokio::test]
    async fn a_connection_on_which_little_is_said_keeps_little() {
        let ids: Vec<pulc_base::NodeId> = (0..2000).map(|n| pulc_base::NodeId([n as u8; 16])).collect();
        let mut bytes = Vec::new();
        put_frame(&mut bytes, &encode(&Frame::Missed(ids.clone())));
        let mut reader = FrameReader::new(1 << 20);
        let mut large = &bytes[..];
        let (mut most, mut room) = (0, 0);
        // The end of the stream is little, too.
        while reader.fill(&mut large).await.unwrap() > 0 {
            (most, room) = (most.max(reader.buffer.capacity()), room.max(reader.room));
        }
        assert!(most >= bytes.len() && room == READ_MAX, "{most} {room}");
        assert!(matches!(reader.next(), Ok(Some(Frame::Missed(got))) if got == ids));
        let mut small = Vec::new();
        put_frame(&mut small, &encode(&Frame::Peer(PeerMsg::Probe(7))));
        for _ in 0..2 {
            reader.fill(&mut &small[..]).await.unwrap();
            assert!(matches!(reader.next(), Ok(Some(Frame::Peer(PeerMsg::Probe(7))))));
        }
        reader.fill(&mut &[][..]).await.unwrap();
        assert!(reader.buffer.capacity() <= 2 * READ_MIN, "{}", reader.buffer.capacity());
    }

    #[test]
    fn garbage_never_panics() {
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..20_000 {
            let bytes: Vec<u8> = (0..seed % 64)
                .map(|_| {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (seed >> 56) as u8
                })
                .collect();
            let mut framed = Vec::new();
            put_frame(&mut framed, &bytes);
            let _ = reader_of(&framed).next();
            let _ = reader_of(&bytes).next();
            let _ = pulc_base::boot::decode::<Opening>(&bytes);
            let _ = pulc_base::boot::decode::<Answer>(&bytes);
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(bytes.len() as u64 + 1);
        }
    }
}
