//! Frames of a hostile rank at the receive handlers of ports, rawdata and active messages, for fuzz targets (`fuzz/`) and for the
//! replay of their corpora. Not for programs.

use crate::am;
use crate::header::Header;
use crate::rawdata::{Buffer, RawTable};
use crate::table::PortTable;
use pulc_base::{Proto, Rank};
use pulc_handler::Outbox;
use pulc_handler::fuzz::Rig;

/// A process with two open ports.
pub fn ports(bytes: &[u8]) {
    let mut table = PortTable::default();
    (table.budget, table.backlog_max, table.ports_max, table.others_alive) = (1 << 20, 64 << 10, 16, 2);
    let outbox = &mut Outbox::default();
    let opened = ["main", "side"].map(|name| table.open(name, outbox).ok());
    let mut rig = Rig::new(Proto::PORT, Box::new(table));
    rig.feed(bytes);
    let table = rig.handler::<PortTable>(Proto::PORT).expect("it was registered");
    assert_eq!(table.others_alive, 1, "one rank has ended, once");
    for number in opened.into_iter().flatten() {
        table.close(number, outbox);
    }
    assert_eq!(table.budget, 1 << 20, "all memory for messages that were asked for is back");
    if let Some(header) = Header::decode(&bytes[..bytes.len().min(16)]) {
        assert_eq!(Header::decode(&header.encode()), Some(header));
    }
}

/// A process with an open channel to the hostile rank, and buffers posted there.
pub fn rawdata(bytes: &[u8]) {
    let mut table = RawTable::new(3);
    let outbox = &mut Outbox::default();
    let Ok(place) = table.open(Rank(1), 7) else { return };
    for (token, len) in (0..).zip([0, 10, 1000, 50_000]) {
        table.post(place, Buffer::Owned(vec![0; len]), token, outbox);
    }
    let mut rig = Rig::new(Proto::RAWDATA, Box::new(table));
    rig.feed(bytes);
    let table = rig.handler::<RawTable>(Proto::RAWDATA).expect("it was registered");
    let landed = std::iter::from_fn(|| table.take_posted(place)).count();
    assert_eq!(landed, 4, "every posted buffer comes back when its peer has ended");
    table.close(place, outbox);
}

/// A process with an endpoint, a segment and a mapping; the frames come from itself, as the only rank of its job.
pub fn active_messages(bytes: &[u8]) {
    am::fuzz::frames(bytes);
}
