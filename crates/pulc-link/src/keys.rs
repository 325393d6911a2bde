//! Keys of one link and what is done with them: the tag of every frame, and encryption. Called by the engine for every frame
//! that leaves or arrives; keeps no counter itself. Why AEGIS-128L: ADR 0004.
//!
//! Each direction of each pair has a key of its own, so a frame sent back, or to another rank, or of another job, does not
//! verify. The nonce is the frame counter, which the link never uses twice (a repeated packet gets a new one): hence one
//! `Link` per pair, direction and job key, and never one that went on in two processes after a fork.
//!
//! Frames of long packets use AEGIS-128X2, which is quicker for many bytes and dearer for few, under keys of their own. Trains that
//! are not encrypted use its MAC, which takes bytes as they come: the sender's while they are copied, the receiver's from where they
//! have landed. Its nonce may stay the same, since nothing is encrypted with it; the frame counter is among what it covers.
//!
//! Source: RFC 5869 (HKDF); draft-irtf-cfrg-aegis-aead (AEGIS-128L, AEGIS-128X2, AEGISMAC-128X2).

use crate::wire::{HEADER_BYTES, TAG_BYTES};
use aegis::aegis128l::Aegis128L;
use aegis::aegis128x2::{Aegis128X2, Aegis128X2Mac};
use pulc_base::{JobId, Rank};
use ring::hkdf;

const KEY_BYTES: usize = 16;
type Key = [u8; KEY_BYTES];
type Tag = [u8; TAG_BYTES];

/// What a key is for; each purpose has keys of its own.
const FRAMES: &[u8] = b"version 1";
const PARTS: &[u8] = b"version 1, parts";
const TRAINS: &[u8] = b"version 1, trains";

/// What a frame is sealed with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seal {
    /// What lies behind the header is secret.
    pub encrypt: bool,
    /// It carries a part of a long packet, or
    pub part: bool,
    /// all of one, for everybody to read.
    pub train: bool,
}

/// The tag of a train in the making, or on arrival: what lies behind the header piece by piece, then the header.
#[derive(Clone)]
pub(crate) struct TrainTag(Aegis128X2Mac<TAG_BYTES>);

impl TrainTag {
    /// The next bytes.
    pub fn over(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Copies the next bytes, while they are near: a long copy followed by a long look fetches everything twice.
    pub fn over_copy(&mut self, to: &mut [u8], from: &[u8]) {
        const NEAR_BYTES: usize = 4096;
        for (to, from) in to.chunks_mut(NEAR_BYTES).zip(from.chunks(NEAR_BYTES)) {
            to.copy_from_slice(from);
            self.0.update(to);
        }
    }

    pub fn end(mut self, header: &[u8]) -> Tag {
        self.0.update(header);
        self.0.finalize()
    }

    /// Whether it ends with this tag, compared in constant time.
    pub fn ends_with(mut self, header: &[u8], tag: &Tag) -> bool {
        self.0.update(header);
        self.0.verify(tag).is_ok()
    }
}

/// The keys of the two directions between this rank and a peer.
pub struct LinkKeys {
    pub(crate) here: Rank,
    pub(crate) peer: Rank,
    to_peer: Key,
    from_peer: Key,
    parts_to_peer: Key,
    parts_from_peer: Key,
    train_to_peer: TrainTag,
    train_from_peer: TrainTag,
}

impl LinkKeys {
    /// Derives the keys of the link between `here` (this process) and `peer` from what only these two know. The same call with
    /// the ranks exchanged gives the peer its half.
    pub fn derive(secret: &[u8], job: JobId, here: Rank, peer: Rank) -> LinkKeys {
        LinkKeys {
            here,
            peer,
            to_peer: derive(secret, FRAMES, job, here, peer),
            from_peer: derive(secret, FRAMES, job, peer, here),
            parts_to_peer: derive(secret, PARTS, job, here, peer),
            parts_from_peer: derive(secret, PARTS, job, peer, here),
            train_to_peer: TrainTag(Aegis128X2Mac::new(&derive(secret, TRAINS, job, here, peer))),
            train_from_peer: TrainTag(Aegis128X2Mac::new(&derive(secret, TRAINS, job, peer, here))),
        }
    }

    /// What streams between the two begin with, to the peer and from it: who knows them is one of the two, or has listened.
    pub fn stream_tokens(&self) -> [[u8; 16]; 2] {
        [token(&self.to_peer), token(&self.from_peer)]
    }

    /// The beginning of the tag of a train to the peer,
    pub(crate) fn train_to_peer(&self) -> TrainTag {
        self.train_to_peer.clone()
    }

    /// and of one from it.
    pub(crate) fn train_from_peer(&self) -> TrainTag {
        self.train_from_peer.clone()
    }

    /// Completes a frame that is about to leave: its last 16 bytes become the tag over all before them; with `encrypt` what
    /// lies behind the header becomes secret.
    pub(crate) fn seal(&self, counter: u64, frame: &mut [u8], seal: Seal) {
        let (body, tag) = frame.split_last_chunk_mut::<TAG_BYTES>().expect("every frame has room for its tag");
        if seal.train {
            let (header, inside) = body.split_at(HEADER_BYTES);
            let mut train = self.train_to_peer();
            train.over(inside);
            *tag = train.end(header);
            return;
        }
        let (header, packet) = body.split_at_mut(if seal.encrypt { HEADER_BYTES } else { body.len() });
        *tag = if seal.part {
            Aegis128X2::<TAG_BYTES>::new(&self.parts_to_peer, &nonce(counter)).encrypt_in_place(packet, header)
        } else {
            Aegis128L::<TAG_BYTES>::new(&self.to_peer, &nonce(counter)).encrypt_in_place(packet, header)
        };
    }

    /// What a frame costs at both ends, for those who measure: seals it and opens it again, which succeeds with keys of a rank for
    /// itself. `train`: as a long packet that leaves as a whole.
    pub fn seal_and_open(&self, counter: u64, frame: &mut [u8], encrypt: bool, train: bool) -> bool {
        let seal = Seal { encrypt, part: train, train: train && !encrypt };
        self.seal(counter, frame, seal);
        self.open(counter, frame, seal)
    }

    /// Verifies a frame on arrival and decrypts it in place if it is encrypted. False: it was not sealed by the peer for us.
    pub(crate) fn open(&self, counter: u64, frame: &mut [u8], seal: Seal) -> bool {
        let Some((body, tag)) = frame.split_last_chunk_mut::<TAG_BYTES>() else { return false };
        let tag: &Tag = tag;
        if seal.train {
            let Some((header, inside)) = body.split_at_checked(HEADER_BYTES) else { return false };
            let mut train = self.train_from_peer();
            train.over(inside);
            return train.ends_with(header, tag);
        }
        let behind = if seal.encrypt { HEADER_BYTES } else { body.len() };
        let Some((header, packet)) = body.split_at_mut_checked(behind) else { return false };
        if seal.part {
            let cipher = Aegis128X2::<TAG_BYTES>::new(&self.parts_from_peer, &nonce(counter));
            cipher.decrypt_in_place(packet, tag, header).is_ok()
        } else {
            let cipher = Aegis128L::<TAG_BYTES>::new(&self.from_peer, &nonce(counter));
            cipher.decrypt_in_place(packet, tag, header).is_ok()
        }
    }
}

fn nonce(counter: u64) -> [u8; 16] {
    let mut nonce = [0; 16];
    nonce[..8].copy_from_slice(&counter.to_le_bytes());
    nonce
}

/// Tells `ring` how long a key is.
struct KeyLength;

impl hkdf::KeyType for KeyLength {
    fn len(&self) -> usize {
        KEY_BYTES
    }
}

fn derive(secret: &[u8], purpose: &[u8], job: JobId, src: Rank, dst: Rank) -> Key {
    let mut key = [0; KEY_BYTES];
    hkdf::Salt::new(hkdf::HKDF_SHA256, b"pulc link frames")
        .extract(secret)
        .expand(&[purpose, &job.0.to_le_bytes(), &src.0.to_le_bytes(), &dst.0.to_le_bytes()], KeyLength)
        .and_then(|okm| okm.fill(&mut key))
        .expect("one key is shorter than HKDF's limit");
    key
}

/// Derived from a key of frames, and tells nothing about it.
fn token(key: &Key) -> Key {
    let mut token = [0; KEY_BYTES];
    hkdf::Salt::new(hkdf::HKDF_SHA256, b"pulc stream tokens")
        .extract(key)
        .expand(&[b"version 1"], KeyLength)
        .and_then(|okm| okm.fill(&mut token))
        .expect("one token is shorter than HKDF's limit");
    token
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (LinkKeys, LinkKeys) {
        let keys = |here, peer| LinkKeys::derive(&[5; 32], JobId(9), Rank(here), Rank(peer));
        (keys(1, 2), keys(2, 1))
    }

    const SEALS: [Seal; 5] = [
        Seal { encrypt: false, part: false, train: false },
        Seal { encrypt: true, part: false, train: false },
        Seal { encrypt: false, part: true, train: false },
        Seal { encrypt: true, part: true, train: false },
        Seal { encrypt: false, part: true, train: true },
    ];

    fn sealed(keys: &LinkKeys, counter: u64, seal: Seal) -> Vec<u8> {
        let mut frame = vec![0x33; HEADER_BYTES + 100 + TAG_BYTES];
        keys.seal(counter, &mut frame, seal);
        frame
    }

    #[test]
    fn the_peer_opens_what_was_sealed_for_it_and_only_that() {
        let (one, two) = pair();
        for seal in SEALS {
            let frame = sealed(&one, 77, seal);
            let mut opened = frame.clone();
            assert!(two.open(77, &mut opened, seal));
            assert!(opened[..HEADER_BYTES + 100].iter().all(|&byte| byte == 0x33));
            assert_eq!(frame[HEADER_BYTES] != 0x33, seal.encrypt, "secret only when encrypted");
            // Of a train it stands in the header, which the tag covers.
            assert!(seal.train || !two.open(78, &mut frame.clone(), seal), "another counter");
            assert!(!one.open(77, &mut frame.clone(), seal), "reflected to its sender");
            for other in SEALS.into_iter().filter(|other| *other != seal) {
                assert!(!two.open(77, &mut frame.clone(), other), "{seal:?} opened as {other:?}");
            }
        }
    }

    #[test]
    fn a_frame_for_another_rank_or_of_another_job_does_not_verify() {
        let (one, _) = pair();
        for seal in SEALS {
            let frame = sealed(&one, 1, seal);
            let third = LinkKeys::derive(&[5; 32], JobId(9), Rank(3), Rank(1));
            let other_job = LinkKeys::derive(&[5; 32], JobId(8), Rank(2), Rank(1));
            let other_secret = LinkKeys::derive(&[6; 32], JobId(9), Rank(2), Rank(1));
            for keys in [third, other_job, other_secret] {
                assert!(!keys.open(1, &mut frame.clone(), seal));
            }
        }
    }

    #[test]
    fn the_tag_of_a_train_is_the_same_however_its_bytes_come() {
        let (one, two) = pair();
        let bytes: Vec<u8> = (0..20_000u32).map(|byte| byte as u8).collect();
        let header = [7; HEADER_BYTES];
        let mut whole = one.train_to_peer();
        whole.over(&bytes);
        let tag = whole.end(&header);
        let mut copied = vec![0; bytes.len()];
        let mut copying = one.train_to_peer();
        copying.over(&bytes[..16]);
        copying.over_copy(&mut copied[16..], &bytes[16..]);
        assert!(copied[16..] == bytes[16..] && copying.end(&header) == tag);
        for cut in [0, 1, 16, 63, 64, 4097, 19_999, 20_000] {
            let mut pieces = two.train_from_peer();
            pieces.over(&bytes[..cut]);
            pieces.over(&bytes[cut..]);
            assert!(pieces.ends_with(&header, &tag), "cut at {cut}");
        }
        let mut bent = two.train_from_peer();
        bent.over(&bytes);
        assert!(!bent.ends_with(&[8; HEADER_BYTES], &tag), "another header");
        let mut reflected = one.train_from_peer();
        reflected.over(&bytes);
        assert!(!reflected.ends_with(&header, &tag), "sent back to its sender");
    }

    #[test]
    fn both_ends_know_the_same_tokens_and_each_direction_has_its_own() {
        let (one, two) = pair();
        let [to_two, from_two] = one.stream_tokens();
        assert_eq!(two.stream_tokens(), [from_two, to_two]);
        assert_ne!(to_two, from_two);
        assert!(to_two != one.to_peer && to_two != one.from_peer);
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let (one, two) = pair();
        for seal in SEALS {
            let frame = sealed(&one, 5, seal);
            for bit in 0..frame.len() * 8 {
                let mut bent = frame.clone();
                bent[bit / 8] ^= 1 << (bit % 8);
                assert!(!two.open(5, &mut bent, seal), "bit {bit} flipped unnoticed");
            }
        }
    }
}
