//! How long trains may be at present: as long as they arrive, the longest; when one is lost, shorter ones, then none for a
//! while. A network that tears trains apart, or loses parts of them, gets single frames, which lose less at a time. Called by
//! the engine; knows no rails.

use pulc_base::clock::Nanos;

/// Trains that must arrive in a row until longer ones are tried.
const GROW_AFTER: u32 = 64;
/// With fewer datagrams than this a train gains nothing.
const FRAMES_MIN: usize = 4;
/// After the loss of a shortest one there is none for so long, then for twice as long, and so on,
const REST_FIRST: Nanos = Nanos::from_ms(10);
/// up to this.
const REST_MAX: Nanos = Nanos::from_ms(5_000);

pub(crate) struct Trains {
    frames_max: usize,
    /// Datagrams of a train at present; zero: no trains.
    frames: usize,
    arrived: u32,
    rest: Nanos,
    pub resume_at: Option<Nanos>,
}

impl Trains {
    pub fn new(frames_max: usize) -> Trains {
        let frames = if frames_max < 2 { 0 } else { frames_max };
        Trains { frames_max, frames, arrived: 0, rest: REST_FIRST, resume_at: None }
    }

    /// Datagrams of the longest train allowed now; zero: none.
    pub fn frames(&self) -> usize {
        self.frames
    }

    pub fn arrived(&mut self) {
        self.arrived += 1;
        if self.arrived >= GROW_AFTER && self.frames > 0 {
            self.arrived = 0;
            self.frames = (self.frames * 2).min(self.frames_max);
            if self.frames == self.frames_max {
                self.rest = REST_FIRST;
            }
        }
    }

    pub fn lost(&mut self, now: Nanos) {
        self.arrived = 0;
        if self.frames == 0 {
            return;
        }
        self.frames /= 2;
        if self.frames < FRAMES_MIN {
            self.frames = 0;
            self.resume_at = Some(now + self.rest);
            self.rest = Nanos(self.rest.0 * 2).min(REST_MAX);
        }
    }

    /// The rest is over: short ones are tried.
    pub fn tick(&mut self, now: Nanos) {
        if self.resume_at.is_some_and(|at| at <= now) {
            self.resume_at = None;
            self.frames = FRAMES_MIN.min(self.frames_max);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_make_trains_shorter_and_then_rarer_and_arrivals_bring_them_back() {
        let mut trains = Trains::new(44);
        (0..4).for_each(|_| trains.lost(Nanos(0)));
        assert_eq!((trains.frames(), trains.resume_at), (0, Some(REST_FIRST)));
        trains.lost(Nanos(0));
        assert_eq!(trains.resume_at, Some(REST_FIRST), "one that was still under way changes nothing");
        trains.tick(Nanos(1));
        assert_eq!(trains.frames(), 0);
        trains.tick(REST_FIRST);
        assert_eq!(trains.frames(), FRAMES_MIN);
        trains.lost(REST_FIRST);
        assert_eq!(trains.resume_at, Some(REST_FIRST + REST_FIRST + REST_FIRST), "patience grows");
        trains.tick(Nanos::MAX);
        (0..GROW_AFTER * 4).for_each(|_| trains.arrived());
        assert_eq!(trains.frames(), 44);
    }

    #[test]
    fn without_room_for_two_datagrams_there_are_no_trains() {
        let mut trains = Trains::new(1);
        assert_eq!(trains.frames(), 0);
        (0..GROW_AFTER * 4).for_each(|_| trains.arrived());
        trains.lost(Nanos(0));
        assert_eq!((trains.frames(), trains.resume_at), (0, None));
    }
}
