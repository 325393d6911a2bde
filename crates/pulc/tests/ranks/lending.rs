//! Memory that job-mates read: messages by reference, and loans. What the tests ask for and what the ranks do.

use crate::keeper::{Job, Keeper};
use pulc::rawdata::{Channel, Loan};
use pulc::{Address, Error, From, Match, Pulc, Rank};
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

const HANG: Duration = Duration::from_secs(180);

#[test]
fn messages_out_of_shared_memory_arrive_whole_and_are_not_copied_by_their_sender() {
    Job::on_one_node("lend_messages", 2).succeeds();
    Job::on_nodes("lend_messages", &[1, 1]).succeeds();
}

#[test]
fn loans_of_every_size_move_by_reference_and_come_back() {
    Job::on_one_node("lend_loans", 2).with("PULC_ARENA_BYTES", "64m").succeeds();
    Job::on_nodes("lend_loans", &[1, 1]).with("PULC_ARENA_BYTES", "64m").succeeds();
}

#[test]
fn a_full_arena_is_an_error_and_usable_again_when_loans_come_back() {
    Job::on_one_node("lend_full", 2).with("PULC_ARENA_BYTES", "8m").succeeds();
}

#[test]
fn a_peer_that_dies_with_a_loan_gives_it_back_and_a_dead_lenders_loan_stays_readable() {
    let keeper = Keeper::start(Job::on_one_node("lend_killed", 3));
    keeper.hear(0);
    keeper.hear(1);
    keeper.hear(2);
    keeper.kill(1);
    let ended = keeper.wait();
    assert!(ended[0].success() && ended[2].success(), "{ended:?}");
    assert_eq!(ended[1].signal(), Some(9));
}

#[test]
fn a_loan_that_nobody_has_received_yet_outlives_its_lender() {
    Job::on_one_node("lend_left", 2).succeeds();
}

#[test]
fn two_ranks_that_both_send_out_of_shared_memory_first_do_not_block_each_other() {
    Job::on_one_node("lend_both", 2).succeeds();
}

#[test]
fn a_receiver_without_descriptors_gets_the_bytes_in_another_way() {
    Job::on_one_node("lend_no_descriptors", 2).succeeds();
}

#[test]
fn a_long_message_out_of_a_programs_own_allocation_is_copied_once_where_its_allocator_is_preloaded() {
    let deps = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let library = deps.with_file_name("libpulc_alloc.so");
    if !library.exists() {
        let why =
            "libpulc_alloc.so is not built: `cargo build -p pulc-alloc-preload` first, as `cargo xtask test` does";
        return pulc_testkit::skipped("a_long_message_out_of_a_programs_own_allocation", why);
    }
    Job::on_one_node("lend_preloaded", 2).with("LD_PRELOAD", library.to_str().unwrap()).succeeds();
}

#[test]
fn messages_read_in_their_senders_memory_arrive_whole_and_a_sender_that_dies_meanwhile_is_told() {
    Job::on_one_node("lend_memory", 2).with("PULC_MEMORY_READ_MIN_BYTES", "64k").succeeds();
    let keeper = Keeper::start(Job::on_one_node("lend_memory_killed", 2).with("PULC_MEMORY_READ_MIN_BYTES", "64k"));
    keeper.hear(1);
    keeper.kill(0);
    let ended = keeper.wait();
    assert_eq!(ended[0].signal(), Some(9));
    assert!(ended[1].success(), "{ended:?}");
}

pub fn play(scene: &str) {
    let pulc = Pulc::attach().unwrap();
    let (me, size) = (pulc.rank().0, pulc.size());
    let other = Rank(if size == 2 { 1 - me } else { (me + 1) % size });
    let channel = pulc.open_channel(other, 7).unwrap();
    let stage = Stage { pulc, me, channel };
    match scene {
        "lend_messages" => stage.messages(),
        "lend_loans" => stage.loans(),
        "lend_full" => stage.full(),
        "lend_left" => stage.left(),
        "lend_killed" => stage.killed(),
        "lend_preloaded" => stage.preloaded(),
        "lend_memory" => stage.memory(),
        "lend_memory_killed" => stage.memory_killed(),
        "lend_both" => stage.both(),
        "lend_no_descriptors" => stage.no_descriptors(),
        other => panic!("no scene {other}"),
    }
}

fn fill(bytes: &mut [u8], seed: u64) {
    bytes.iter_mut().zip(0_u64..).for_each(|(byte, i)| *byte = (i.wrapping_mul(31) ^ i >> 8 ^ seed) as u8);
}

fn is_filled(bytes: &[u8], seed: u64) -> bool {
    bytes.iter().zip(0_u64..).all(|(byte, i)| *byte == (i.wrapping_mul(31) ^ i >> 8 ^ seed) as u8)
}

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

    /// Nothing here asks for shared memory: the vectors come from the allocator.
    fn preloaded(&self) {
        const BYTES: usize = 1 << 20;
        const ROUNDS: u64 = 20;
        let port = self.pulc.open_port("lend").unwrap();
        let address = Address::new(self.channel.peer(), "lend");
        self.meet();
        let mut bytes = vec![0_u8; BYTES];
        let mut frames = 0;
        for round in 0..ROUNDS {
            if self.me == 0 {
                let before = self.frames_sent();
                fill(&mut bytes, round);
                self.channel.send(&bytes).unwrap();
                fill(&mut bytes, !round);
                port.send(&address, round, &bytes).unwrap();
                frames = self.frames_sent() - before;
            } else {
                assert_eq!(self.channel.recv_timeout(&mut bytes, HANG).unwrap(), BYTES);
                assert!(is_filled(&bytes, round));
                port.recv_timeout(From::Any, Match::Tag(round), &mut bytes, HANG).unwrap();
                assert!(is_filled(&bytes, !round));
            }
        }
        // A question and a reference each, and now and then a word about credit; in pieces it would be more than a hundred.
        assert!(self.me != 0 || frames <= 8, "{frames} frames for two messages: they were cut and copied");
        self.meet();
    }

    /// Ordinary memory. Where the system forbids to read it the messages go through the pool, and are as whole.
    fn memory(&self) {
        const SIZES: [usize; 6] = [65_535, 65_536, 131_072, 131_073, 1 << 20, (5 << 20) + 3];
        let port = self.pulc.open_port("lend").unwrap();
        let address = Address::new(self.channel.peer(), "lend");
        self.meet();
        let mut frames = 0;
        for round in 0..6_u64 {
            for size in SIZES {
                let mut bytes = vec![0_u8; size];
                if self.me == 0 {
                    fill(&mut bytes, round);
                    let before = self.frames_sent();
                    self.channel.send(&bytes).unwrap();
                    frames = self.frames_sent() - before;
                    // The receiver has them, so they may change.
                    bytes.fill(0xEE);
                    fill(&mut bytes, !round);
                    port.send(&address, round, &bytes).unwrap();
                } else {
                    assert_eq!(self.channel.recv_timeout(&mut bytes, HANG).unwrap(), size);
                    assert!(is_filled(&bytes, round), "{size} bytes in round {round}");
                    port.recv_timeout(From::Any, Match::Tag(round), &mut bytes, HANG).unwrap();
                    assert!(is_filled(&bytes, !round), "{size} bytes in round {round}");
                }
            }
        }
        if self.me == 0 && frames > 60 {
            pulc_testkit::skipped("memory is read where it lies", &format!("not allowed here ({frames} frames)"));
        }
        self.meet();
    }

    /// The receiver reads until its sender is gone, and then gets an error.
    fn memory_killed(&self) {
        self.meet();
        let mut bytes = vec![0_u8; 8 << 20];
        if self.me == 0 {
            loop {
                self.channel.send(&bytes).unwrap();
            }
        }
        for round in 0.. {
            match self.channel.recv_timeout(&mut bytes, HANG) {
                Ok(len) => assert_eq!(len, bytes.len()),
                Err(Error::PeerGone { .. }) => return,
                Err(other) => panic!("{other}"),
            }
            if round == 3 {
                println!("@ reading");
                std::io::stdout().flush().unwrap();
            }
        }
    }

    fn frames_sent(&self) -> u64 {
        self.pulc.counters().iter().find(|device| device.device == "shm").unwrap().frames.frames_sent
    }

    fn messages(&self) {
        const SIZES: [usize; 7] = [100, 60_000, 65_536, 65_537, 200_000, 1 << 20, (3 << 20) + 5];
        let port = self.pulc.open_port("lend").unwrap();
        let address = Address::new(self.channel.peer(), "lend");
        self.meet();
        for round in 0..4_u64 {
            for size in SIZES {
                let mut block = pulc::alloc(size).unwrap();
                if self.me == 0 {
                    fill(&mut block, round);
                    self.channel.send(&block).unwrap();
                    // The receiver has them, so they may change.
                    block.fill(0xEE);
                    fill(&mut block, !round);
                    port.send(&address, round, &block).unwrap();
                    block.fill(0xEE);
                } else {
                    if round == 1 {
                        // Comes before anyone waits.
                        std::thread::sleep(Duration::from_millis(20));
                    }
                    if round == 2 {
                        self.channel.post(block, 5).unwrap();
                        let landed = self.channel.landed_timeout(HANG).unwrap();
                        assert!(landed.result == Ok(size) && is_filled(&landed.buffer, round), "{size} posted");
                    } else {
                        assert_eq!(self.channel.recv_timeout(&mut block, HANG), Ok(size));
                        assert!(is_filled(&block, round), "{size} bytes in round {round}");
                    }
                    let (got, bytes) = port.recv_vec_timeout(From::Any, Match::Tag(round), HANG).unwrap();
                    assert!(got.len == size && is_filled(&bytes, !round), "{size} bytes to the port in round {round}");
                }
            }
        }
        self.meet();
    }

    fn loans(&self) {
        let same_node = self.pulc.tasks()[0].node == self.pulc.tasks()[1].node;
        for (turn, size) in [0, 1, 100, 5000, 65_536, 1 << 20, 30 << 20].into_iter().enumerate() {
            let seed = turn as u64;
            if self.me == 0 {
                for _ in 0..3 {
                    let mut loan = self.channel.loan(size).unwrap();
                    fill(&mut loan, seed);
                    self.channel.send_loan(loan).unwrap();
                    // A whole arena full of loans comes back as they are read.
                    assert_eq!(self.channel.recv_timeout(&mut [0; 8], HANG), Ok(4));
                }
                continue;
            }
            let view = self.channel.recv_view_timeout(HANG).unwrap();
            assert_eq!((view.len(), view.is_lent()), (size, same_node), "{size} bytes");
            assert!(is_filled(&view.to_vec(), seed), "{size} bytes in a view");
            drop(view);
            self.channel.send(b"next").unwrap();
            let mut buffer = vec![0; size];
            assert_eq!(self.channel.recv_timeout(&mut buffer, HANG), Ok(size));
            assert!(is_filled(&buffer, seed), "{size} bytes received from a loan");
            self.channel.send(b"next").unwrap();
            self.channel.post(vec![0; size], 1).unwrap();
            let landed = self.channel.landed_timeout(HANG).unwrap();
            assert!(landed.result == Ok(size) && is_filled(&landed.buffer, seed), "{size} bytes landed from a loan");
            self.channel.send(b"next").unwrap();
        }
        // An ordinary message can be viewed, a loan can be too long for a buffer.
        if self.me == 0 {
            self.channel.send(&[7; 3000]).unwrap();
            let mut loan = self.channel.loan(3000).unwrap();
            loan.fill(8);
            self.channel.send_loan(loan).unwrap();
        } else {
            let view = self.channel.recv_view_timeout(HANG).unwrap();
            assert!(!view.is_lent() && view.to_vec() == [7; 3000]);
            let error = self.channel.recv_timeout(&mut [0; 8], HANG).unwrap_err();
            assert_eq!(error, Error::BufferTooSmall { needed: 3000, len: 8 });
            assert_eq!(self.channel.recv_view_timeout(HANG).unwrap().to_vec(), [8; 3000]);
        }
        self.meet();
    }

    fn full(&self) {
        const SIZE: usize = 1 << 20;
        if self.me == 0 {
            let mut loans: Vec<Loan> = Vec::new();
            let error = loop {
                match self.channel.loan(SIZE) {
                    Ok(loan) => loans.push(loan),
                    Err(error) => break error,
                }
            };
            assert!(matches!(&error, Error::NoMemory(text) if text.contains("PULC_ARENA_BYTES")), "{error}");
            assert_eq!(loans.len(), 8);
            for (mut loan, seed) in loans.into_iter().zip(0..) {
                fill(&mut loan, seed);
                self.channel.send_loan(loan).unwrap();
            }
            assert!(pulc::alloc(SIZE).is_err(), "they are all lent");
            self.meet();
            // The word that they are back came before.
            self.channel.loan(8 * SIZE).unwrap();
        } else {
            let views: Vec<_> = (0..8).map(|_| self.channel.recv_view_timeout(HANG).unwrap()).collect();
            assert!(views.iter().zip(0..).all(|(view, seed)| is_filled(&view.to_vec(), seed)));
            drop(views);
            self.meet();
        }
        self.meet();
    }

    /// Rank 1 is killed while it holds a loan of rank 0 and rank 2 holds one of its.
    fn killed(&self) {
        const SIZE: usize = 1 << 20;
        let tell = || {
            println!("@ ready");
            std::io::stdout().flush().unwrap();
        };
        match self.me {
            0 => {
                let mut loan = self.channel.loan(3 << 30).unwrap();
                fill(&mut loan[..SIZE], 1);
                self.channel.send_loan(loan).unwrap();
                assert!(pulc::alloc(3 << 30).is_err(), "most of the arena is lent");
                tell();
                let error = self.channel.recv_timeout(&mut [0; 8], HANG).unwrap_err();
                assert!(matches!(error, Error::PeerGone { rank: Rank(1), .. }), "{error}");
                pulc::alloc(3 << 30).unwrap();
            }
            1 => {
                let from = self.pulc.open_channel(Rank(0), 7).unwrap();
                let _view = from.recv_view_timeout(HANG).unwrap();
                let mut loan = self.channel.loan(SIZE).unwrap();
                fill(&mut loan, 2);
                self.channel.send_loan(loan).unwrap();
                tell();
                std::thread::sleep(HANG);
            }
            _ => {
                let from = self.pulc.open_channel(Rank(1), 7).unwrap();
                let view = from.recv_view_timeout(HANG).unwrap();
                tell();
                let error = from.recv_timeout(&mut [0; 8], HANG).unwrap_err();
                assert!(matches!(error, Error::PeerGone { rank: Rank(1), .. }), "{error}");
                assert!(is_filled(&view.to_vec(), 2));
            }
        }
    }

    /// Rank 0 lends and ends; rank 1 looks for the loan only when it knows that.
    fn left(&self) {
        if self.me == 0 {
            let mut loan = self.channel.loan(1 << 20).unwrap();
            fill(&mut loan, 4);
            return self.channel.send_loan(loan).unwrap();
        }
        let port = self.pulc.open_port("left").unwrap();
        let error = port.recv_timeout(From::Rank(Rank(0)), Match::Any, &mut [], HANG).unwrap_err();
        assert!(matches!(error, Error::PeerGone { .. }), "{error}");
        assert!(is_filled(&self.channel.recv_view_timeout(HANG).unwrap().to_vec(), 4));
        assert!(matches!(self.channel.recv_timeout(&mut [0; 8], HANG), Err(Error::PeerGone { .. })));
    }

    fn both(&self) {
        for turn in 0..20 {
            // Up to the eager limit, so that what nobody waits for is kept.
            let mut block = pulc::alloc(65_536).unwrap();
            fill(&mut block, turn);
            self.channel.send(&block).unwrap();
            assert_eq!(self.channel.recv_timeout(&mut block, HANG), Ok(65_536));
            assert!(is_filled(&block, turn));
        }
    }

    fn no_descriptors(&self) {
        self.meet();
        if self.me == 1 {
            let mut hoard = Vec::new();
            while let Ok(file) = std::fs::File::open("/dev/null") {
                hoard.push(file);
            }
            self.channel.send(b"full").unwrap();
            let view = self.channel.recv_view_timeout(HANG).unwrap();
            assert!(is_filled(&view.to_vec(), 3));
        } else {
            self.channel.recv_timeout(&mut [0; 8], HANG).unwrap();
            let mut loan = self.channel.loan(100_000).unwrap();
            fill(&mut loan, 3);
            self.channel.send_loan(loan).unwrap();
        }
        self.meet();
    }
}
