//! One message to many ports: what the ranks do; ports that move are in `moves`.

use pulc::{Address, Error, From, Match, Members, Mode, Port, Pulc, Rank};
use std::io::Write;
use std::time::Duration;

const HANG: Duration = Duration::from_secs(180);

pub fn play(scene: &str) {
    let pulc = Pulc::attach().unwrap();
    let port = pulc.open_port("main").unwrap();
    let stage = Stage { me: pulc.rank(), size: pulc.size(), pulc, port };
    match scene {
        "many_sizes" => stage.sizes(),
        "many_slow" => stage.slow(),
        "many_dead" => stage.dead(),
        "many_datagrams" => stage.datagrams(),
        "move_traffic" => stage.moves_under_traffic(),
        "move_on" => stage.moves_on(),
        "move_back" => stage.taken_back(),
        "move_owner_killed" => stage.owner_killed(),
        "move_taker_killed" => stage.taker_killed(),
        "move_long" => stage.long_messages_follow(),
        other => panic!("no scene {other}"),
    }
}

pub struct Stage {
    pub pulc: Pulc,
    pub port: Port,
    pub me: Rank,
    pub size: u32,
}

pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(31) ^ i >> 8 ^ seed) as u8).collect()
}

pub fn say(word: &str) {
    println!("@ {word}");
    std::io::stdout().flush().unwrap();
}

impl Stage {
    pub fn to(&self, rank: u32) -> Address {
        Address::new(Rank(rank), "main")
    }

    fn members(&self, ranks: impl IntoIterator<Item = u32>) -> Members {
        Members::new(ranks.into_iter().map(|rank| self.to(rank))).unwrap()
    }

    pub fn barrier(&self) {
        const TAG: u64 = u64::MAX;
        if self.me.0 == 0 {
            (1..self.size).for_each(|rank| {
                self.port.recv_timeout(From::Rank(Rank(rank)), Match::Tag(TAG), &mut [], HANG).unwrap();
            });
            self.port.send_many(&mut self.members(1..self.size), TAG, &[]).unwrap();
        } else {
            self.port.send(&self.to(0), TAG, &[]).unwrap();
            self.port.recv_timeout(From::Rank(Rank(0)), Match::Tag(TAG), &mut [], HANG).unwrap();
        }
    }

    /// Everyone sends to everyone, itself among them, whatever the size.
    fn sizes(&self) {
        let mut members = self.members(0..self.size);
        for (turn, size) in [0, 1, 8, 56, 57, 900, 5000, 40_000, 65_536, 300_000, 2 << 20].into_iter().enumerate() {
            let tag = turn as u64;
            // To oneself only what fits the room for messages that nobody waits for.
            let sent = self.port.send_many(&mut members, tag, &pattern(tag + u64::from(self.me.0), size));
            assert_eq!(sent, Ok(()), "{size} bytes");
            assert_eq!(members.outcomes().filter(|(_, outcome)| outcome.is_ok()).count(), self.size as usize);
            for rank in 0..self.size {
                let (got, bytes) = self.port.recv_vec_timeout(From::Rank(Rank(rank)), Match::Tag(tag), HANG).unwrap();
                assert!(got.len == size && bytes == pattern(tag + u64::from(rank), size), "{size} bytes from {rank}");
            }
        }
        // Twice the same member gets it twice.
        let mut twice = self.members([self.me.0, self.me.0]);
        self.port.send_many(&mut twice, 77, b"two").unwrap();
        for _ in 0..2 {
            self.port.recv_timeout(From::Any, Match::Tag(77), &mut [0; 3], HANG).unwrap();
        }
        self.barrier();
    }

    /// One member does not receive: it pushes back and is named, the others go on; and each gets what it got by the sender's account,
    /// in order, and nothing of what was given up.
    fn slow(&self) {
        const TURNS: u64 = 120;
        const ROLL: u64 = u64::MAX - 1;
        const WAKE: u64 = u64::MAX - 2;
        let bytes = pattern(1, 60_000);
        self.barrier();
        if self.me.0 != 0 {
            if self.me.0 == 2 {
                self.port.recv_timeout(From::Any, Match::Tag(WAKE), &mut [], HANG).unwrap();
            }
            let (mut got, mut buffer) = (Vec::new(), vec![0; 60_000]);
            loop {
                let one = self.port.recv_timeout(From::Rank(Rank(0)), Match::Any, &mut buffer, HANG).unwrap();
                if one.tag == ROLL {
                    let roll: Vec<u64> =
                        buffer[..one.len].as_chunks::<8>().0.iter().map(|turn| u64::from_le_bytes(*turn)).collect();
                    assert_eq!(got, roll);
                    break self.barrier();
                }
                assert!(buffer == bytes, "turn {}", one.tag);
                got.push(one.tag);
                if self.me.0 != 2 {
                    self.port.send(&self.to(0), one.tag, &[]).unwrap();
                }
            }
            return;
        }
        let mut members = self.members([1, 2, 3]);
        let mut rolls = [const { Vec::new() }; 3];
        for turn in 0..TURNS {
            match self.port.send_many_timeout(&mut members, turn, &bytes, Duration::from_millis(50)) {
                Ok(()) | Err(Error::SomeFailed { of: 3, .. }) => {}
                Err(other) => panic!("{other}"),
            }
            for (index, (address, outcome)) in members.outcomes().enumerate() {
                match outcome {
                    Ok(()) => rolls[index].extend(turn.to_le_bytes()),
                    Err(error) => assert_eq!(*error, Error::Timeout),
                }
                // Those that receive are waited for, so that only the one that does not is slow.
                if index != 1 && outcome.is_ok() {
                    let from = From::Rank(address.rank());
                    self.port.recv_timeout(from, Match::Tag(turn), &mut [], HANG).unwrap();
                }
            }
        }
        assert!(rolls[1].len() < 8 * TURNS as usize, "room for 5 MiB cannot hold {TURNS} messages of 60,000 bytes");
        self.port.send(&self.to(2), WAKE, &[]).unwrap();
        (1..).zip(rolls).for_each(|(rank, roll)| self.port.send(&self.to(rank), ROLL, &roll).unwrap());
        self.barrier();
    }

    /// A member that has been killed, one that never opened its port, one that does not exist: the others get it.
    fn dead(&self) {
        if self.me.0 == 2 {
            say("ready");
            std::thread::sleep(HANG);
        } else if self.me.0 == 0 {
            self.port.recv_timeout(From::Any, Match::Tag(1), &mut [], HANG).unwrap();
            let addresses = [self.to(1), self.to(2), Address::new(Rank(1), "nobody"), self.to(99), self.to(1)];
            let mut members = Members::new(addresses).unwrap();
            for bytes in [pattern(3, 10), pattern(4, 200_000)] {
                let error = self.port.send_many(&mut members, 2, &bytes).unwrap_err();
                assert!(matches!(error, Error::SomeFailed { failed: 3, of: 5, .. }), "{error}");
                let outcomes: Vec<_> = members.outcomes().map(|(_, outcome)| outcome.err().cloned()).collect();
                assert!(matches!(outcomes[1], Some(Error::PeerGone { rank: Rank(2), .. })), "{outcomes:?}");
                assert!(matches!(outcomes[2], Some(Error::UnknownPort { .. })), "{outcomes:?}");
                assert!(matches!(outcomes[3], Some(Error::NoSuchRank { rank: Rank(99), .. })), "{outcomes:?}");
                assert!(outcomes[0].is_none() && outcomes[4].is_none());
            }
            self.port.send(&self.to(1), 3, &[]).unwrap();
        } else {
            say("ready");
            // The third rank is killed now.
            while !matches!(
                self.port.recv_timeout(From::Rank(Rank(2)), Match::Any, &mut [], HANG),
                Err(Error::PeerGone { .. })
            ) {}
            // It may not have opened its port yet.
            while let Err(error) = self.port.send(&self.to(0), 1, &[]) {
                assert!(matches!(error, Error::UnknownPort { .. }), "{error}");
            }
            for bytes in [pattern(3, 10), pattern(4, 200_000)] {
                for _ in 0..2 {
                    let (_, got) = self.port.recv_vec_timeout(From::Any, Match::Tag(2), HANG).unwrap();
                    assert!(got == bytes);
                }
            }
            self.port.recv_timeout(From::Any, Match::Tag(3), &mut [], HANG).unwrap();
        }
    }

    fn datagrams(&self) {
        const COUNT: u64 = 200;
        if self.me.0 == 0 {
            let sender = self.pulc.open_port_with("datagrams", Mode::Datagram).unwrap();
            let mut members = self.members(1..self.size);
            (0..COUNT).for_each(|tag| sender.send_many(&mut members, tag, &[7; 100]).unwrap());
            self.port.send_many(&mut members, u64::MAX - 1, &sender.dropped().to_le_bytes()).unwrap();
        } else {
            let (mut got, mut dropped) = (0, [0; 8]);
            self.port.recv_timeout(From::Any, Match::Tag(u64::MAX - 1), &mut dropped, HANG).unwrap();
            while self.port.try_recv(From::Rank(Rank(0)), Match::Any, &mut [0; 100]).unwrap().is_some() {
                got += 1;
            }
            // What was dropped on the way was so for one member or the other.
            assert!(got + self.port.dropped() + u64::from_le_bytes(dropped) >= COUNT && got <= COUNT, "{got}");
        }
        self.barrier();
    }
}
