//! Ports that move from rank to rank: what the ranks do.

use super::groups::{Stage, pattern, say};
use pulc::{Address, Error, From, Match, Mode, Port, Rank};
use std::time::Duration;

const HANG: Duration = Duration::from_secs(180);

impl Stage {
    /// The number that sender `rank` gives its message `turn`.
    fn word(rank: u32, turn: u64) -> [u8; 16] {
        let mut word = [0; 16];
        word[..8].copy_from_slice(&u64::from(rank).to_le_bytes());
        word[8..].copy_from_slice(&turn.to_le_bytes());
        word
    }

    /// Sends numbered messages of many sizes to the port "ball", wherever that is, then an empty one.
    fn throw(&self, turns: u64) {
        let ball = Address::new(Rank(0), "ball");
        for turn in 0..turns {
            let len = [16, 16, 16, 500, 3000, 20_000][(turn % 6) as usize];
            let mut bytes = pattern(turn, len);
            bytes[..16].copy_from_slice(&Self::word(self.me.0, turn));
            self.port.send(&ball, turn, &bytes).unwrap();
        }
        self.port.send(&ball, u64::MAX, &[]).unwrap();
    }

    /// Receives from `ball` until `stop` says so; checks that every sender's messages come complete and in order.
    fn catch(&self, ball: &Port, next: &mut [u64], mut stop: impl FnMut(&[u64]) -> bool) {
        let mut buffer = vec![0; 20_000];
        while !stop(next) {
            let got = ball.recv_timeout(From::Any, Match::Any, &mut buffer, HANG).unwrap();
            let src = got.src.0 as usize;
            if got.len == 0 {
                next[src] = u64::MAX;
                continue;
            }
            assert_eq!(got.tag, next[src], "from rank {src}");
            let mut expected = pattern(got.tag, got.len);
            expected[..16].copy_from_slice(&Self::word(got.src.0, got.tag));
            assert!(buffer[..got.len] == expected, "message {} of rank {src} was changed", got.tag);
            next[src] += 1;
        }
    }

    fn encode(next: &[u64]) -> Vec<u8> {
        next.iter().flat_map(|turn| turn.to_le_bytes()).collect()
    }

    fn decode(bytes: &[u8]) -> Vec<u64> {
        bytes.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect()
    }

    /// All ranks but the first two throw, from the beginning; the ball goes to and fro between these two many times.
    pub fn moves_under_traffic(&self) {
        const MOVES: u64 = 12;
        const TURNS: u64 = 600;
        if self.me.0 >= 2 {
            self.throw(TURNS);
            return self.barrier();
        }
        let partner = 1 - self.me.0;
        let mut next = vec![0; self.size as usize];
        next[..2].fill(u64::MAX);
        let mut ball = (self.me.0 == 0).then(|| self.pulc.open_port("ball").unwrap());
        for turn in 0..MOVES {
            if let Some(mine) = ball.take() {
                // Something of everything is taken, and the rest is left for the other one.
                let before: u64 = next.iter().filter(|turn| **turn != u64::MAX).sum();
                let share = before + TURNS / MOVES;
                self.catch(&mine, &mut next, |next| {
                    let open = next.iter().filter(|turn| **turn != u64::MAX);
                    open.clone().count() == 0 || open.sum::<u64>() >= share
                });
                mine.transfer(Rank(partner), Some(HANG)).map_err(|(_, error)| error).unwrap();
                self.port.send(&self.to(partner), turn, &Self::encode(&next)).unwrap();
            } else {
                ball = Some(self.pulc.adopt_port(Rank(partner), "ball", Some(HANG)).unwrap());
                let (_, bytes) = self.port.recv_vec_timeout(From::Rank(Rank(partner)), Match::Tag(turn), HANG).unwrap();
                next = Self::decode(&bytes);
            }
        }
        if let Some(ball) = ball {
            self.catch(&ball, &mut next, |next| next.iter().all(|turn| *turn == u64::MAX));
        }
        self.barrier();
    }

    /// Rank 0 gives the port to 1, which gives it to 2 at once, while 3 and 4 send; the first owner's address stays good.
    pub fn moves_on(&self) {
        const TURNS: u64 = 300;
        match self.me.0 {
            0 => {
                let ball = self.pulc.open_port("ball").unwrap();
                let mut next = vec![0; self.size as usize];
                self.catch(&ball, &mut next, |next| next.iter().sum::<u64>() >= 10);
                ball.transfer(Rank(1), Some(HANG)).map_err(|(_, error)| error).unwrap();
                self.port.send(&self.to(2), 5, &Self::encode(&next)).unwrap();
            }
            1 => {
                let ball = self.pulc.adopt_port(Rank(0), "ball", Some(HANG)).unwrap();
                ball.transfer(Rank(2), Some(HANG)).map_err(|(_, error)| error).unwrap();
            }
            2 => {
                let ball = self.pulc.adopt_port(Rank(1), "ball", Some(HANG)).unwrap();
                let (_, bytes) = self.port.recv_vec_timeout(From::Rank(Rank(0)), Match::Tag(5), HANG).unwrap();
                let mut next = Self::decode(&bytes);
                next[..3].fill(u64::MAX);
                self.catch(&ball, &mut next, |next| next.iter().all(|turn| *turn == u64::MAX));
                // Who has never heard of it before finds it by its first address, and by its new one.
                self.barrier();
                for _ in 0..2 * (self.size - 1) {
                    ball.recv_timeout(From::Any, Match::Tag(9), &mut [0; 8], HANG).unwrap();
                }
                return self.barrier();
            }
            _ => self.throw(TURNS),
        }
        self.barrier();
        self.port.send(&Address::new(Rank(0), "ball"), 9, b"old").unwrap();
        self.port.send(&Address::new(Rank(2), "ball"), 9, b"new").unwrap();
        self.barrier();
    }

    /// Nobody takes the port: it stays, and what came meanwhile is in it. And what is wrong with a name or rank is said.
    pub fn taken_back(&self) {
        if self.me.0 == 0 {
            let ball = self.pulc.open_port("ball").unwrap();
            let (ball, error) = ball.transfer(Rank(1), Some(Duration::from_millis(30))).unwrap_err();
            assert_eq!(error, Error::Timeout);
            let (ball, error) = ball.transfer(Rank(9), None).unwrap_err();
            assert_eq!(error, Error::NoSuchRank { rank: Rank(9), size: 2 });
            let (ball, error) = ball.transfer(Rank(0), None).unwrap_err();
            assert!(matches!(error, Error::NotTaken { .. }), "{error}");
            ball.recv_timeout(From::Any, Match::Tag(1), &mut [0; 8], HANG).unwrap();
            self.barrier();
            // Now the other side is there. Its own port of that name is in the way at first.
            ball.transfer(Rank(1), Some(HANG)).map_err(|(_, error)| error).unwrap();
            self.pulc.open_port("ball").expect("the name is free again");
        } else {
            self.port.send(&Address::new(Rank(0), "ball"), 1, b"x").unwrap();
            self.barrier();
            let error = self.pulc.adopt_port(Rank(0), "nothing", Some(Duration::from_millis(30))).err().unwrap();
            assert_eq!(error, Error::Timeout);
            let in_the_way = self.pulc.open_port("ball").unwrap();
            let error = self.pulc.adopt_port(Rank(0), "ball", Some(HANG)).err().unwrap();
            assert_eq!(error, Error::NameTaken { name: "ball".into() });
            drop(in_the_way);
            let ball = self.pulc.adopt_port(Rank(0), "ball", Some(HANG)).unwrap();
            assert_eq!((ball.name(), ball.mode()), ("ball", Mode::Ordered));
            ball.send(&Address::new(Rank(1), "ball"), 4, b"mine").unwrap();
            ball.recv_timeout(From::Any, Match::Tag(4), &mut [0; 8], HANG).unwrap();
        }
        self.barrier();
    }

    /// The old owner is killed while a sender's messages are still on their way by it: the new owner is told once, after what came.
    pub fn owner_killed(&self) {
        match self.me.0 {
            0 => {
                let ball = self.pulc.open_port("ball").unwrap();
                // One of the senders says nothing any more, so that the move cannot be finished.
                ball.recv_timeout(From::Rank(Rank(2)), Match::Any, &mut [0; 8], HANG).unwrap();
                ball.transfer(Rank(1), None).map_err(|(_, error)| error).unwrap();
            }
            1 => {
                let ball = self.pulc.adopt_port(Rank(0), "ball", Some(HANG)).unwrap();
                ball.recv_timeout(From::Rank(Rank(2)), Match::Tag(2), &mut [0; 8], HANG).unwrap();
                say("has it");
                let error = ball.recv_timeout(From::Any, Match::Any, &mut [0; 8], HANG).unwrap_err();
                assert!(
                    matches!(&error, Error::PeerGone { rank: Rank(0), how } if how.contains("handed over")),
                    "{error}"
                );
                // From now on it is a port like any other.
                self.port.send(&self.to(2), 1, &[]).unwrap();
                let got = ball.recv_timeout(From::Any, Match::Any, &mut [0; 8], HANG).unwrap();
                assert_eq!((got.src, got.tag), (Rank(2), 4));
            }
            _ => {
                let ball = Address::new(Rank(0), "ball");
                self.port.send(&ball, 1, b"one").unwrap();
                self.port.send(&ball, 2, b"two").unwrap();
                // Not in a call while the port moves: its old owner hears nothing of this one.
                std::thread::sleep(Duration::from_millis(300));
                let error = self.port.recv_timeout(From::Rank(Rank(0)), Match::Any, &mut [], HANG).unwrap_err();
                assert!(matches!(error, Error::PeerGone { .. }), "{error}");
                assert!(error.to_string().contains("rank 0 is gone"), "{error}");
                let error = self.port.send(&ball, 3, b"three").unwrap_err();
                assert!(matches!(error, Error::PeerGone { rank: Rank(0), .. }), "{error}");
                self.port.recv_timeout(From::Rank(Rank(1)), Match::Tag(1), &mut [], HANG).unwrap();
                self.port.send(&Address::new(Rank(1), "ball"), 4, b"four").unwrap();
            }
        }
    }

    /// The new owner is killed before it takes the port, then another one after it has: the first time the port stays.
    pub fn taker_killed(&self) {
        match self.me.0 {
            0 => {
                let ball = self.pulc.open_port("ball").unwrap();
                say("offers");
                let (ball, error) = ball.transfer(Rank(1), None).unwrap_err();
                assert!(matches!(error, Error::PeerGone { rank: Rank(1), .. }), "{error}");
                ball.recv_timeout(From::Any, Match::Tag(1), &mut [0; 8], HANG).unwrap();
                self.port.send(&self.to(2), 7, &[]).unwrap();
                ball.transfer(Rank(2), Some(HANG)).map_err(|(_, error)| error).unwrap();
                say("moved");
                let error = loop {
                    match self.port.send(&Address::new(Rank(0), "ball"), 2, b"x") {
                        Ok(()) => std::thread::sleep(Duration::from_millis(1)),
                        Err(error) => break error,
                    }
                };
                assert!(matches!(error, Error::PeerGone { rank: Rank(2), .. }), "{error}");
            }
            1 => {
                say("attached");
                std::thread::sleep(HANG);
            }
            _ => {
                self.port.send(&Address::new(Rank(0), "ball"), 1, b"x").unwrap();
                self.port.recv_timeout(From::Any, Match::Tag(7), &mut [], HANG).unwrap();
                let _ball = self.pulc.adopt_port(Rank(0), "ball", Some(HANG)).unwrap();
                std::thread::sleep(HANG);
            }
        }
    }

    /// Long messages whose senders wait for room go to the new owner, and what is longer than any room for kept messages.
    pub fn long_messages_follow(&self) {
        let sizes = [3 << 20, 100, 70_000, 5 << 20];
        match self.me.0 {
            0 => {
                let ball = self.pulc.open_port("ball").unwrap();
                ball.recv_timeout(From::Any, Match::Tag(100), &mut [0; 8], HANG).unwrap();
                // The first long message waits for its room here by now, or is about to.
                std::thread::sleep(Duration::from_millis(50));
                ball.transfer(Rank(1), Some(HANG)).map_err(|(_, error)| error).unwrap();
            }
            1 => {
                let ball = self.pulc.adopt_port(Rank(0), "ball", Some(HANG)).unwrap();
                for (turn, size) in sizes.into_iter().enumerate() {
                    for rank in 2..self.size {
                        let from = From::Rank(Rank(rank));
                        let (got, bytes) = ball.recv_vec_timeout(from, Match::Any, HANG).unwrap();
                        assert_eq!((got.tag, got.len), (turn as u64, size));
                        assert!(bytes == pattern(u64::from(rank), size), "{size} bytes of {rank}");
                    }
                }
            }
            _ => {
                let ball = Address::new(Rank(0), "ball");
                if self.me.0 == 2 {
                    self.port.send(&ball, 100, b"begin").unwrap();
                }
                for (turn, size) in sizes.into_iter().enumerate() {
                    self.port.send(&ball, turn as u64, &pattern(u64::from(self.me.0), size)).unwrap();
                }
            }
        }
        self.barrier();
    }
}
