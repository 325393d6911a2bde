//! Bytes of another daemon, made of an input: what `crate::fuzz` offers of this room. They are taken apart as every kind of
//! message, and what they say of members goes through the state machine of the membership.

use super::wire::{Answer, Frame, FrameReader, Opening};
use crate::membership::{Event, Member, Membership, Timing};
use pulc_base::NodeId;
use pulc_base::boot::decode;
use pulc_base::clock::Nanos;

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
            Frame::Beat { load_milli } => step(Event::Load { conn: 1, load_milli }),
            Frame::Members(members) => {
                let (first, session) = (members.first().cloned(), members.len() as u64);
                step(Event::Learned { members, at_once: session % 2 == 0 });
                if let Some(member) = first {
                    step(Event::Incoming { conn: session, member, session });
                }
            }
            Frame::Goodbye | Frame::Peer(_) => {}
        }
    }
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
    }
}
