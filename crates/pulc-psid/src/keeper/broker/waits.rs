//! What ranks say on the board that they wait for, for somebody who asks. Read, never believed: it goes to a person's eyes.

use super::{Broker, Seat};
use pulc_control::WaitInfo;
use pulc_hal::board::{Notice, machine_time};

impl Broker {
    /// What the ranks here say that they wait for.
    pub fn waits(&self) -> Vec<WaitInfo> {
        let now = machine_time();
        let places = self.seats.iter().enumerate().filter(|(_, seat)| seat.conn.is_some() && !seat.gone);
        let wait = |(local, seat): (usize, &Seat)| {
            let (since, notice) = self.board.slot(local as u32).notice()?;
            let waited_ms = now.since(since).0 / 1_000_000;
            let Notice { call, place, ranks, count, any, tag, meeting } = notice;
            Some(WaitInfo { rank: seat.rank, call, place, waited_ms, stamp: since.0, ranks, count, any, tag, meeting })
        };
        places.filter_map(wait).collect()
    }
}
