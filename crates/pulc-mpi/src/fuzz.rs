//! Frames of a hostile rank at the receive handler of MPI, for fuzz targets (`fuzz/`) and for the replay of their corpora. Not for
//! programs.

use crate::data::Data;
use crate::envelope::Envelope;
use crate::handle::Comm;
use crate::matcher::{Matcher, Recv};
use crate::memory::Room;
use pulc_base::{Proto, Rank};
use pulc_handler::Outbox;
use pulc_handler::fuzz::Rig;
use pulc_handler::matching::Pattern;

/// The hostile rank is 1; of rank 2 nothing is heard.
const HOSTILE: u32 = 1;
const SILENT: u32 = 2;
/// Receives that the program has posted: context, sender, tag, and bytes of room.
const POSTED: [(u32, Option<u32>, Option<u64>, usize); 7] = [
    (0, Some(HOSTILE), Some(5), 8),
    (0, Some(HOSTILE), None, 1000),
    (0, None, Some(7), 50_000),
    (0, None, None, 10),
    (0, Some(SILENT), None, 100),
    (2, Some(HOSTILE), None, 0),
    (3, Some(SILENT), Some(5), 8),
];
/// For what was kept.
const ROOM: usize = 4096;

fn recv(room: &mut Room, len: usize, context: u32) -> Recv {
    let data = Data::Flat { at: room.addr(), len };
    Recv { data, context, entry: None, senders: None, src: Rank(0), tag: 0, total: 0, arrived: 0 }
}

/// A process with receives that wait, and later ones for what was kept.
pub fn messages(bytes: &[u8]) {
    let (mut matcher, outbox) = (Matcher::default(), &mut Outbox::default());
    let mut rooms = POSTED.map(|(.., len)| Room::new(len));
    let mut posted = [0; POSTED.len()];
    for (at, (context, src, tag, len)) in POSTED.into_iter().enumerate() {
        posted[at] = matcher.post(recv(&mut rooms[at], len, context), Pattern { src, tag }, Comm::NULL, outbox);
    }
    let mut rig = Rig::new(Proto::MPI, Box::new(matcher));
    rig.feed(bytes);
    let matcher = rig.handler::<Matcher>(Proto::MPI).expect("it was registered");
    for (request, (_, src, ..)) in posted.into_iter().zip(POSTED) {
        let is_active = matcher.requests.is_active(request);
        assert!(!is_active || src != Some(HOSTILE), "a receive from a rank that is gone waits for ever");
        assert!(is_active || src != Some(SILENT), "a receive from a rank that sent nothing has ended");
    }
    assert_eq!(matcher.transfers.under_way(), 0, "a message of a rank that is gone is still on its way");
    // In contexts where nothing was posted; elsewhere kept messages are found as well.
    let (mut room, any) = (Room::new(ROOM), Pattern { src: None, tag: None });
    for context in 0..matcher.lanes.len() as u32 {
        while let Some(status) = matcher.peek(context, any) {
            assert_eq!(status.source, HOSTILE as i32, "a message of somebody else");
            let request = matcher.post(recv(&mut room, ROOM, context), any, Comm::NULL, outbox);
            assert!(!matcher.requests.is_active(request), "a kept message is not whole");
            matcher.requests.remove(request);
        }
    }
    if let Some(envelope) = Envelope::decode(&bytes[..bytes.len().min(8)]) {
        assert_eq!(Envelope::decode(&envelope.encode()), Some(envelope));
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn frames_of_mpi_are_received_kept_or_refused() {
        pulc_testkit::replay("mpi_frames", 300, super::messages);
    }
}
