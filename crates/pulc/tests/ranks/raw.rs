//! Rawdata between processes: what the tests ask for and what the ranks do.

use crate::keeper::{Job, Keeper};
use pulc::rawdata::{Buffer, Channel, select};
use pulc::{Error, Pulc, Rank};
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

const HANG: Duration = Duration::from_secs(180);

#[test]
fn rawdata_of_every_size_lands_whole_in_a_waiting_and_in_a_posted_buffer() {
    Job::on_one_node("raw_sizes", 2).succeeds();
    Job::on_nodes("raw_sizes", &[1, 1]).succeeds();
}

#[test]
fn long_messages_from_another_node_land_in_the_buffer_that_waits() {
    Job::on_nodes("raw_lands", &[1, 1]).succeeds();
    // Encrypted ones are opened elsewhere first.
    Job::on_nodes("raw_lands", &[1, 1]).with("PULC_LINK_ENCRYPT", "1").succeeds();
}

#[test]
fn posted_buffers_come_back_in_order_however_their_messages_travel() {
    Job::on_one_node("raw_posts", 2).succeeds();
    Job::on_nodes("raw_posts", &[1, 1]).succeeds();
}

#[test]
fn rawdata_that_nobody_waits_for_pushes_back_and_nothing_is_lost() {
    Job::on_one_node("raw_slow", 2).with("PULC_UNEXPECTED_MAX_BYTES", "1m").succeeds();
    Job::on_nodes("raw_slow", &[1, 1]).with("PULC_UNEXPECTED_MAX_BYTES", "1m").succeeds();
}

#[test]
fn a_message_longer_than_its_buffer_is_an_error_and_is_kept() {
    Job::on_one_node("raw_too_long", 2).succeeds();
}

#[test]
fn channels_are_selected_timed_out_reopened_and_given_up() {
    Job::on_one_node("raw_select", 3).succeeds();
    Job::on_nodes("raw_select", &[2, 1]).succeeds();
}

#[test]
fn threads_share_channels_between_two_ranks() {
    Job::on_one_node("raw_threads", 2).succeeds();
    Job::on_nodes("raw_threads", &[1, 1]).succeeds();
}

#[test]
fn receives_and_posts_from_a_killed_rank_end_with_peer_gone() {
    let keeper = Keeper::start(Job::on_one_node("raw_killed", 3));
    keeper.hear(0);
    keeper.hear(1);
    keeper.kill(2);
    let ended = keeper.wait();
    assert!(ended[0].success() && ended[1].success(), "{ended:?}");
    assert_eq!(ended[2].signal(), Some(9));
}

pub fn play(scene: &str) {
    let pulc = Pulc::attach().unwrap();
    let (me, size) = (pulc.rank().0, pulc.size());
    let other = Rank(if size == 2 { 1 - me } else { (me + 1) % size });
    let channel = pulc.open_channel(other, 7).unwrap();
    let stage = Stage { pulc, me, channel };
    match scene {
        "raw_sizes" => stage.sizes(),
        "raw_lands" => stage.lands(),
        "raw_posts" => stage.posts(),
        "raw_slow" => stage.slow(),
        "raw_too_long" => stage.too_long(),
        "raw_select" => stage.select(),
        "raw_threads" => stage.threads(),
        "raw_killed" => stage.killed(),
        "raw_pingpong" => stage.pingpong(),
        other => panic!("no scene {other}"),
    }
}

fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(31) ^ i >> 8 ^ seed) as u8).collect()
}

const SIZES: [usize; 22] = [
    0,
    1,
    8,
    39,
    40,
    41,
    55,
    56,
    57,
    200,
    888,
    889,
    1472,
    4096,
    16_384,
    16_385,
    65_536,
    65_537,
    200_000,
    1 << 20,
    3,
    (5 << 20) + 3,
];

struct Stage {
    pulc: Pulc,
    me: u32,
    channel: Channel,
}

impl Stage {
    /// Both have come this far.
    fn meet(&self) {
        self.channel.send(b"here").unwrap();
        assert_eq!(self.channel.recv_timeout(&mut [0; 8], HANG).unwrap(), 4);
    }

    fn sizes(&self) {
        for (turn, size) in SIZES.into_iter().enumerate() {
            let turn = turn as u64;
            let mut around = vec![0xEE; size + 50];
            // What the buffer has behind the message may change; nothing beyond the buffer does.
            let buffer = &mut around[..size + 3];
            if self.me == 0 {
                self.channel.send(&pattern(turn, size)).unwrap();
                assert_eq!(self.channel.recv_timeout(buffer, HANG).unwrap(), size);
            } else {
                assert_eq!(self.channel.recv_timeout(buffer, HANG).unwrap(), size);
                self.channel.send(&buffer[..size]).unwrap();
            }
            assert!(buffer[..size] == pattern(turn, size), "{size} bytes arrived wrong");
            assert!(around[size + 3..].iter().all(|byte| *byte == 0xEE), "{size} bytes overran");
        }
    }

    /// Messages of one train, of a train and a bit, and of many, to a blocked receive and to a posted buffer, until all kinds were seen
    /// to land: a socket of its own, and nothing else on the way, are needed for that.
    fn lands(&self) {
        const SIZES: [usize; 4] = [60_000, 65_536, 200_000, 1 << 20];
        let is_encrypted = std::env::var("PULC_LINK_ENCRYPT").is_ok();
        let landed = || self.pulc.counters().iter().map(|counters| counters.frames_landed).sum::<u64>();
        for (kind, size) in (0..).zip(SIZES).flat_map(|(kind, size)| [(2 * kind, size), (2 * kind + 1, size)]) {
            let mut buffer = vec![0; size];
            for turn in 0u64.. {
                if self.me == 0 {
                    self.channel.send(&pattern(turn, size)).unwrap();
                    self.channel.recv_timeout(&mut buffer[..1], HANG).unwrap();
                    if buffer[0] == 1 {
                        break;
                    }
                    continue;
                }
                let before = landed();
                if kind % 2 == 0 {
                    buffer.fill(0xEE);
                    assert_eq!(self.channel.recv_timeout(&mut buffer, HANG), Ok(size));
                } else {
                    self.channel.post(vec![0xEE; size + 5], turn).unwrap();
                    let landed = self.channel.landed_timeout(HANG).unwrap();
                    let Buffer::Owned(bytes) = landed.buffer else { panic!("it was a vector") };
                    assert_eq!(landed.result, Ok(size));
                    buffer.copy_from_slice(&bytes[..size]);
                }
                assert!(buffer == pattern(turn, size), "{size} bytes arrived wrong");
                let came = landed() - before;
                assert!(!is_encrypted || came == 0);
                let is_done = came > 0 || turn == 5000 || is_encrypted;
                self.channel.send(&[u8::from(is_done)]).unwrap();
                assert!(came > 0 || is_encrypted || !is_done, "kind {kind}: none of 5000 messages landed");
                if is_done {
                    break;
                }
            }
        }
    }

    fn posts(&self) {
        if self.me == 0 {
            for round in 0..3 {
                for (turn, size) in SIZES.into_iter().enumerate() {
                    self.channel.send(&pattern(turn as u64 + round, size)).unwrap();
                }
            }
            return self.meet();
        }
        // The first round is posted before anything comes, the second while it comes, the third when it was kept.
        let post = |turn: usize, size: usize| self.channel.post(vec![0; size], turn as u64).unwrap();
        let take = |turn: usize, round: u64| {
            let landed = self.channel.landed_timeout(HANG).unwrap();
            assert_eq!((landed.token, landed.result), (turn as u64, Ok(SIZES[turn])));
            assert!(landed.buffer[..] == pattern(turn as u64 + round, SIZES[turn]), "round {round}, {}", SIZES[turn]);
        };
        SIZES.into_iter().enumerate().for_each(|(turn, size)| post(turn, size));
        (0..SIZES.len()).for_each(|turn| take(turn, 0));
        for (turn, size) in SIZES.into_iter().enumerate() {
            post(turn, size);
            take(turn, 1);
        }
        for (turn, size) in SIZES.into_iter().enumerate() {
            assert!(self.channel.try_landed().unwrap().is_none());
            post(turn, size);
            take(turn, 2);
        }
        // What is not used comes back.
        let quiet = self.pulc.open_channel(Rank(0), 9).unwrap();
        quiet.post(vec![1, 2, 3], 9).unwrap();
        assert!(matches!(quiet.unpost(), Some(Buffer::Owned(bytes)) if bytes == [1, 2, 3]));
        assert!(quiet.unpost().is_none());
        self.meet();
    }

    fn slow(&self) {
        const COUNT: u64 = 3000;
        let size = |turn: u64| if turn.is_multiple_of(50) { 100_000 } else { 2000 };
        if self.me == 0 {
            (0..COUNT).for_each(|turn| self.channel.send(&pattern(turn, size(turn))).unwrap());
        } else {
            let idle = self.pulc.open_channel(Rank(0), 8).unwrap();
            assert_eq!(select(&[&idle], Some(Duration::from_millis(300))), Err(Error::Timeout));
            let mut buffer = vec![0; 100_000];
            for turn in 0..COUNT {
                let len = self.channel.recv_timeout(&mut buffer, HANG).unwrap();
                assert!(buffer[..len] == pattern(turn, size(turn)), "message {turn}");
            }
        }
        self.meet();
    }

    fn too_long(&self) {
        for size in [9, 100, 30_000, 300_000] {
            if self.me == 0 {
                self.channel.send(&pattern(1, size)).unwrap();
                self.channel.send(b"next").unwrap();
            } else {
                let mut buffer = vec![0; size];
                let needed = Error::BufferTooSmall { needed: size, len: 8 };
                assert_eq!(self.channel.recv_timeout(&mut buffer[..8], HANG), Err(needed.clone()));
                self.channel.post(vec![0; 8], 1).unwrap();
                assert_eq!(self.channel.landed_timeout(HANG).unwrap().result, Err(needed));
                // It is still the next message.
                assert_eq!(self.channel.recv_timeout(&mut buffer, HANG), Ok(size));
                assert!(buffer == pattern(1, size));
                assert_eq!(self.channel.recv_timeout(&mut buffer, HANG), Ok(4));
            }
            self.meet();
        }
    }

    /// Three ranks in a ring.
    fn select(&self) {
        let before = Rank((self.me + 2) % 3);
        let from = self.pulc.open_channel(before, 7).unwrap();
        let taken = self.pulc.open_channel(before, 7).map(|_| ()).unwrap_err();
        assert_eq!(taken, Error::ChannelTaken { rank: before, number: 7 });
        assert_eq!(self.pulc.open_channel(Rank(3), 7).map(|_| ()), Err(Error::NoSuchRank { rank: Rank(3), size: 3 }));
        let mut buffer = [0; 8];
        let quiet = self.pulc.open_channel(before, 8).unwrap();
        assert_eq!(quiet.try_recv(&mut buffer), Ok(None));
        assert_eq!(quiet.recv_timeout(&mut buffer, Duration::from_millis(20)), Err(Error::Timeout));
        for turn in 0..50_u64 {
            self.channel.send(&turn.to_le_bytes()).unwrap();
            assert_eq!(select(&[&quiet, &from], Some(HANG)), Ok(1));
            assert_eq!(from.recv(&mut buffer), Ok(8));
            assert_eq!(buffer, turn.to_le_bytes());
        }
        // To oneself, closed and opened again.
        for turn in 0..3 {
            let own = self.pulc.open_channel(Rank(self.me), 1).unwrap();
            own.send(&[turn; 5]).unwrap();
            own.send(&[turn; 5]).unwrap();
            assert_eq!(own.recv(&mut buffer), Ok(5));
            assert_eq!(buffer[..5], [turn; 5]);
        }
        // A long message that nobody takes can be given up.
        if self.me == 0 {
            let error = self.channel.send_timeout(&vec![1; 3 << 20], Duration::from_millis(50)).unwrap_err();
            assert_eq!(error, Error::Timeout);
            self.pulc.open_channel(Rank(1), 8).unwrap().send(b"given up").unwrap();
        } else if self.me == 1 {
            quiet.recv_timeout(&mut buffer, HANG).unwrap();
        }
        self.channel.send(b"end").unwrap();
        assert_eq!(from.recv_timeout(&mut buffer, HANG), Ok(3));
        // Nobody leaves before the last one has been round.
        for _ in 0..2 {
            self.channel.send(b"bye").unwrap();
            assert_eq!(from.recv_timeout(&mut buffer, HANG), Ok(3));
        }
    }

    fn threads(&self) {
        const COUNT: u64 = 400;
        // Each thread with its own channel, and two that share one.
        let own: Vec<Channel> = (0..2).map(|n| self.pulc.open_channel(self.channel.peer(), 100 + n).unwrap()).collect();
        std::thread::scope(|scope| {
            for channel in &own {
                scope.spawn(move || {
                    let mut buffer = vec![0; 100_000];
                    for turn in 0..COUNT {
                        let size =
                            [16, 1000, 30_000, 100_000][if turn.is_multiple_of(40) { 3 } else { turn as usize % 3 }];
                        // Long ones wait for their receiver: one side sends first.
                        if self.me == 0 {
                            channel.send(&pattern(turn, size)).unwrap();
                        }
                        assert_eq!(channel.recv_timeout(&mut buffer, HANG).unwrap(), size);
                        assert!(buffer[..size] == pattern(turn, size), "turn {turn}");
                        if self.me == 1 {
                            channel.send(&pattern(turn, size)).unwrap();
                        }
                    }
                });
            }
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut buffer = vec![0; 100_000];
                    for turn in 0..COUNT {
                        let size = if turn.is_multiple_of(20) { 60_000 } else { 32 };
                        self.channel.send(&vec![turn as u8; size]).unwrap();
                        let got = self.channel.recv_timeout(&mut buffer, HANG).unwrap();
                        assert!(buffer[..got].iter().all(|byte| *byte == buffer[0]), "two messages in one");
                    }
                });
            }
        });
        self.meet();
    }

    fn killed(&self) {
        let before = self.pulc.open_channel(Rank((self.me + 2) % 3), 7).unwrap();
        self.channel.send(b"x").unwrap();
        before.send(b"x").unwrap();
        self.channel.recv(&mut [0; 8]).unwrap();
        before.recv(&mut [0; 8]).unwrap();
        if self.me == 2 {
            std::thread::sleep(HANG);
        }
        println!("@ ready");
        std::io::stdout().flush().unwrap();
        let (to_dead, on) = if self.me == 0 { (&before, &self.channel) } else { (&self.channel, &before) };
        if self.me == 0 {
            to_dead.post(vec![0; 8], 1).unwrap();
            let landed = to_dead.landed_timeout(HANG).unwrap();
            assert!(matches!(&landed.result, Err(Error::PeerGone { rank: Rank(2), .. })), "{landed:?}");
        } else {
            let error = to_dead.send(&vec![0; 500_000_000]).unwrap_err();
            assert!(matches!(&error, Error::PeerGone { rank: Rank(2), how } if how.contains("signal 9")), "{error}");
        }
        let error = to_dead.recv_timeout(&mut [0; 8], HANG).unwrap_err();
        assert!(matches!(error, Error::PeerGone { rank: Rank(2), .. }), "{error}");
        assert_eq!(select(&[to_dead], Some(HANG)), Ok(0));
        // The rest of the job goes on.
        on.send(b"on").unwrap();
        assert_eq!(on.recv_timeout(&mut [0; 8], HANG), Ok(2));
    }

    /// Prints the time of one way of a small message, the best of many short rounds; for a look while developing.
    fn pingpong(&self) {
        const ROUNDS: u32 = 2000;
        const COUNT: u32 = 200;
        pulc_hal::os::cpu::pin_to(&[self.me]).unwrap();
        let mut buffer = [0; 8];
        self.meet();
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            let begin = std::time::Instant::now();
            for _ in 0..COUNT {
                if self.me == 0 {
                    self.channel.send(&buffer).unwrap();
                    self.channel.recv(&mut buffer).unwrap();
                } else {
                    self.channel.recv(&mut buffer).unwrap();
                    self.channel.send(&buffer).unwrap();
                }
            }
            times.push(begin.elapsed().as_nanos() as f64 / f64::from(2 * COUNT));
        }
        times.sort_by(f64::total_cmp);
        let at = |part: f64| times[(part * f64::from(ROUNDS - 1)) as usize];
        println!("@ one way ns: best {:.1}, p5 {:.1}, p25 {:.1}, p50 {:.1}", times[0], at(0.05), at(0.25), at(0.5));
    }
}
