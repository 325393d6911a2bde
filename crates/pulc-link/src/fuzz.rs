//! Frames from the network and from a peer that breaks the rules, at a link: for fuzz targets (`fuzz/`) and for the replay of
//! their corpora. Not for programs.

use crate::keys::{LinkKeys, Seal};
use crate::link::{Link, Rail};
use crate::{Config, OVERHEAD};
use pulc_base::clock::Nanos;
use pulc_base::{JobId, Rank};

const FRAME_MAX: usize = 1400;
const WINDOW: u32 = 1 << 20;

/// A row of frames, each behind its length in two bytes, whose highest bit says that it is authentic: then the ranks and the tag
/// are put right and it gets a fresh counter, so that what stands in it is looked at.
pub fn frames(mut bytes: &[u8]) {
    let keys = |here, peer| LinkKeys::derive(&[7; 32], JobId(1), Rank(here), Rank(peer));
    let theirs = keys(1, 0);
    let config = Config::from_params(FRAME_MAX, 2, WINDOW);
    let mut link = Link::new(config, keys(0, 1), Nanos(0));
    for word in 0..4_u64 {
        link.send(Nanos(word), [&word.to_le_bytes(), &[]]).expect("an idle link has room");
    }
    let mut out = [0; FRAME_MAX];
    let (mut now, mut counter) = (Nanos(10), 0_u64);
    while let Some((len, rest)) = bytes.split_first_chunk::<2>() {
        let len = u16::from_le_bytes(*len);
        let (frame, behind) = rest.split_at(usize::from(len & 0x7fff).min(rest.len()));
        bytes = behind;
        let mut frame = frame.to_vec();
        if len & 0x8000 != 0 && frame.len() >= OVERHEAD {
            frame[0] = crate::wire::MAGIC_VERSION;
            frame[4..8].copy_from_slice(&1_u32.to_le_bytes());
            frame[8..12].copy_from_slice(&0_u32.to_le_bytes());
            counter += 1 + u64::from(frame[16] % 4);
            let counter_and_len = counter | (frame.len() as u64) << 48;
            frame[16..24].copy_from_slice(&counter_and_len.to_le_bytes());
            let part = frame[1] & crate::wire::PART != 0;
            let train = part && !config.encrypt && crate::wire::is_whole(&frame, frame.len());
            theirs.seal(counter, &mut frame, Seal { encrypt: config.encrypt, part, train });
        }
        let rail = Rail(frame.len() as u8 % 3);
        // As if what lies behind the front had landed elsewhere, as much of it as the frame itself says.
        let (front, rest) = frame.split_at(frame.len().min(OVERHEAD));
        let cut = frame.last().map_or(0, |last| rest.len().saturating_sub(usize::from(*last)));
        if !link.receive_landed(now, rail, front, [&rest[..cut], &rest[cut..]]) {
            let _ = link.receive(now, rail, &mut frame);
        }
        while link.next_packet().is_some() {}
        now = now + Nanos::from_us(50 + u64::from(len));
        while link.transmit(now, &mut out).is_some() {}
        if link.deadline().is_some_and(|deadline| deadline <= now) {
            link.tick(now);
        }
        assert!(link.memory_bytes() <= 16 * WINDOW as usize, "{} bytes held", link.memory_bytes());
    }
    let _ = crate::peek(bytes);
}
