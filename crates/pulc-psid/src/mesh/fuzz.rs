//! Bytes of another daemon, made of an input: what `crate::fuzz` offers of this room. They are taken apart as every kind of
//! message, and what they say of members goes through the state machine of the membership. And certificates that are bent, at both
//! ends of a handshake.

use super::tls::Verifiers;
use super::wire::{Answer, Frame, FrameReader, Opening};
use crate::identity::{ClusterCa, NodeIdentity};
use crate::membership::{Event, Member, Membership, Timing};
use crate::peer_message::PeerMsg;
use pulc_base::NodeId;
use pulc_base::boot::{decode, encode};
use pulc_base::clock::Nanos;
use rustls::pki_types::CertificateDer;
use std::sync::OnceLock;

const LIMIT: usize = 64 << 10;
const MEMBERS_MAX: usize = 8;

pub(crate) fn frames(bytes: &[u8]) {
    let me = Member { id: NodeId([9; 16]), name: "me".to_owned(), addresses: Vec::new(), cores: 1, version: 1 };
    let mut membership = Membership::new(me, timing());
    let mut now = Nanos(1);
    let mut step = |event| {
        now = now + Nanos::from_ms(100);
        for event in [event, Event::Tick] {
            membership.step(now, event);
        }
        assert!(membership.others().count() <= MEMBERS_MAX);
    };
    match decode::<Opening>(bytes) {
        Ok(Opening::Mesh { session, member }) => step(Event::Incoming { conn: 1, member, session }),
        Ok(Opening::Join { member, .. }) => step(Event::Learned { members: vec![member], at_once: true }),
        Err(_) => {}
    }
    let _ = decode::<Answer>(bytes);
    let mut reader = FrameReader::holding(bytes.to_vec(), LIMIT);
    while let Ok(Some(frame)) = reader.next() {
        match frame {
            Frame::Beat { load_milli, answer } => step(Event::Beat { conn: 1, load_milli, answer }),
            Frame::Missed(ids) => step(Event::Missed { ids }),
            Frame::Members(members) => {
                let (first, session) = (members.first().cloned(), members.len() as u64);
                step(Event::Learned { members, at_once: session % 2 == 0 });
                if let Some(member) = first {
                    step(Event::Incoming { conn: session, member, session });
                }
            }
            // What was understood can be said again.
            Frame::Peer(message) => assert_eq!(decode::<PeerMsg>(&encode(&message)).ok().as_ref(), Some(&message)),
            Frame::Goodbye => {}
        }
    }
}

/// A certificate of this cluster, changed: at a place in two bytes, the third is written. After the first change that makes another one of
/// it nobody accepts it; what is behind the first eight changes stands there as it is, as a certificate of a stranger.
pub(crate) fn certificates(bytes: &[u8]) {
    static CLUSTER: OnceLock<(Verifiers, NodeIdentity)> = OnceLock::new();
    let (verifiers, member) = CLUSTER.get_or_init(|| {
        let member = ClusterCa::new().and_then(|ca| ca.new_node()).expect("there is randomness");
        (Verifiers::of(&member).expect("its own authority is usable"), member)
    });
    let mut bent = member.certificate().to_vec();
    for change in bytes.chunks_exact(3).take(8) {
        let at = usize::from(u16::from_le_bytes([change[0], change[1]])) % bent.len();
        bent[at] = change[2];
        let bent = CertificateDer::from(bent.clone());
        let is_own = bent == *member.certificate();
        assert_eq!(verifiers.accept(&bent, member.ca()), [is_own; 3], "after byte {at} of a certificate was changed");
    }
    let stranger = CertificateDer::from(bytes.get(24..).unwrap_or_default().to_vec());
    assert_eq!(verifiers.accept(&stranger, &stranger), [false; 3], "a stranger is accepted");
}

fn timing() -> Timing {
    Timing {
        beat: Nanos::from_ms(1000),
        tick: Nanos::from_ms(250),
        torpid_after: Nanos::from_ms(3000),
        dead_after: Nanos::from_ms(5000),
        stopped_after: Nanos::from_ms(60_000),
        redial_min: Nanos::from_ms(100),
        redial_max: Nanos::from_ms(5000),
        members_max: MEMBERS_MAX,
        watch: 2,
        round_max: Nanos::from_ms(30_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_corpus_has_of_networks_and_health_is_understood_to_its_end() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/mesh_frames/networks");
        let mut reader = FrameReader::holding(std::fs::read(path).unwrap(), LIMIT);
        let all: Vec<Frame> = std::iter::from_fn(|| reader.next().unwrap()).collect();
        let told = format!("{all:?}");
        for word in ["PreparedBut", "NetworkLost", "Config", "Noted", "Checked", "NotReturned", "Unfit"] {
            assert!(told.contains(word), "{word} is not in {told}");
        }
    }
}
