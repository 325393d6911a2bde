//! Several rawdata messages with one call, between processes: what the tests ask for and what the ranks do.

use crate::keeper::{Job, Keeper};
use pulc::rawdata::Channel;
use pulc::{Error, Pulc, Rank};
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

const HANG: Duration = Duration::from_secs(180);

#[test]
fn batches_arrive_in_order_beside_single_messages_of_every_size() {
    Job::on_one_node("batch_mixed", 2).succeeds();
    Job::on_nodes("batch_mixed", &[1, 1]).succeeds();
    Job::on_one_node("batch_mixed", 2).with("PULC_UNEXPECTED_MAX_BYTES", "1m").succeeds();
}

#[test]
fn a_batch_leaves_posted_and_kept_messages_their_turn_and_says_what_has_no_room() {
    Job::on_one_node("batch_turns", 2).succeeds();
    Job::on_nodes("batch_turns", &[1, 1]).succeeds();
}

#[test]
fn whoever_only_takes_batches_still_hears_the_other_ranks() {
    Job::on_one_node("batch_others", 3).succeeds();
}

#[test]
fn a_batch_to_or_from_a_killed_rank_ends_with_peer_gone() {
    let keeper = Keeper::start(Job::on_one_node("batch_killed", 2));
    keeper.hear(0);
    keeper.kill(1);
    let ended = keeper.wait();
    assert!(ended[0].success(), "{ended:?}");
    assert_eq!(ended[1].signal(), Some(9));
}

pub fn play(scene: &str) {
    let pulc = Pulc::attach().unwrap();
    let me = pulc.rank().0;
    match scene {
        "mixed" => mixed(me, &pulc.open_channel(Rank(1 - me), 7).unwrap()),
        "turns" => {
            let open = |number| pulc.open_channel(Rank(1 - me), number).unwrap();
            turns(me, &open(7), &open(8));
        }
        "others" => others(&pulc),
        "killed" => killed(me, &pulc.open_channel(Rank(1 - me), 7).unwrap()),
        other => panic!("no scene {other}"),
    }
}

/// Both have come this far.
fn meet(channel: &Channel) {
    channel.send(b"here").unwrap();
    assert_eq!(channel.recv_timeout(&mut [0; 8], HANG).unwrap(), 4);
}

fn message(number: u64) -> Vec<u8> {
    let len = match number % 97 {
        0 => 100_000,
        1..=3 => 5000,
        4..=10 => 41 + number as usize % 20,
        11..=14 => 0,
        _ => number as usize * 7 % 41,
    };
    (0..len as u64).map(|at| (number.wrapping_mul(31) ^ at) as u8).collect()
}

/// Rank 0 sends in batches of every length and singly, rank 1 receives in batches and singly.
fn mixed(me: u32, channel: &Channel) {
    const COUNT: u64 = 20_000;
    let messages: Vec<Vec<u8>> = (0..97 * 41).map(message).collect();
    let expected = |number: u64| &messages[number as usize % messages.len()][..];
    if me == 0 {
        let mut next = 0;
        for turn in 0.. {
            let until = COUNT.min(next + turn % 150);
            let batch: Vec<&[u8]> = (next..until).map(expected).collect();
            let mut left = &batch[..];
            while !left.is_empty() {
                left = &left[channel.send_batch_timeout(left, HANG).unwrap()..];
            }
            if until == COUNT {
                break;
            }
            channel.send(expected(until)).unwrap();
            next = until + 1;
        }
        return meet(channel);
    }
    let mut buffer = vec![0; 120_000];
    let (mut next, mut turn) = (0, 0_usize);
    while next < COUNT {
        turn += 1;
        // Not the word behind the last one.
        let mut lens = vec![usize::MAX; (COUNT - next).min(turn as u64 % 80) as usize];
        let room = [120_000, 100_000][turn % 2];
        let received = channel.recv_batch_timeout(&mut buffer[..room], &mut lens, HANG).unwrap();
        assert!(received <= lens.len() && (received > 0 || lens.is_empty()));
        let mut at = 0;
        for len in &lens[..received] {
            assert!(buffer[at..at + len] == *expected(next), "message {next} of {len} bytes");
            at += len;
            next += 1;
        }
        if turn.is_multiple_of(5) && next < COUNT {
            let len = channel.recv_timeout(&mut buffer, HANG).unwrap();
            assert!(buffer[..len] == *expected(next), "message {next}");
            next += 1;
        }
    }
    meet(channel);
}

fn turns(me: u32, channel: &Channel, quiet: &Channel) {
    let numbers: Vec<[u8; 8]> = (0..40_u64).map(u64::to_le_bytes).collect();
    let batch: Vec<&[u8]> = numbers.iter().map(|number| &number[..]).collect();
    let (mut buffer, mut lens) = ([0; 1024], [0; 64]);
    let empty = quiet.try_recv_batch(&mut buffer, &mut lens).unwrap();
    assert!(empty.is_none() && quiet.recv_batch(&mut buffer, &mut []) == Ok(0) && quiet.send_batch(&[]) == Ok(0));
    let waited = quiet.recv_batch_timeout(&mut buffer, &mut lens, Duration::from_millis(5));
    assert_eq!(waited, Err(Error::Timeout));
    if me == 0 {
        assert_eq!(channel.send_batch(&batch), Ok(40));
        channel.recv(&mut buffer).unwrap();
        assert_eq!(channel.send_batch(&[b"much too long for it", b"short"]), Ok(2));
        return meet(channel);
    }
    // The first ten belong to posted buffers, wherever they are by now.
    (0..10).for_each(|token| channel.post(vec![0; 8], token).unwrap());
    let mut there = 10;
    while there < 40 {
        let received = channel.recv_batch_timeout(&mut buffer, &mut lens, HANG).unwrap();
        for (at, len) in lens[..received].iter().enumerate() {
            assert_eq!((*len, &buffer[8 * at..8 * at + 8]), (8, batch[there]));
            there += 1;
        }
    }
    for token in 0..10 {
        let landed = channel.landed_timeout(HANG).unwrap();
        assert_eq!((landed.token, landed.result.clone(), &landed.buffer[..]), (token, Ok(8), batch[token as usize]));
    }
    channel.send(b"go on").unwrap();
    let needed = Error::BufferTooSmall { needed: 20, len: 10 };
    assert_eq!(channel.recv_batch_timeout(&mut buffer[..10], &mut lens, HANG), Err(needed));
    assert_eq!(channel.recv_batch_timeout(&mut buffer, &mut lens[..1], HANG), Ok(1));
    assert_eq!(&buffer[..lens[0]], b"much too long for it");
    assert_eq!(channel.recv_batch_timeout(&mut buffer, &mut lens, HANG), Ok(1));
    assert_eq!(&buffer[..lens[0]], b"short");
    meet(channel);
}

/// Rank 0 does nothing but take what rank 1 sends without end, until rank 2 has got rid of more than its ring to rank 0 holds.
fn others(pulc: &Pulc) {
    const COUNT: u64 = 500;
    let open = |rank: u32, number: u16| pulc.open_channel(Rank(rank), number).unwrap();
    match pulc.rank().0 {
        0 => {
            let (flood, word) = (open(1, 1), open(2, 1));
            let (mut buffer, mut lens) = ([0; 512], [0; 64]);
            loop {
                let received = flood.recv_batch_timeout(&mut buffer, &mut lens, HANG).unwrap();
                if lens[..received].contains(&3) {
                    break;
                }
            }
            for number in 0..COUNT {
                assert_eq!(word.recv_timeout(&mut buffer, HANG), Ok(8));
                assert_eq!(buffer[..8], number.to_le_bytes());
            }
        }
        1 => {
            let (flood, stop) = (open(0, 1), open(2, 2));
            let batch = [&[1_u8; 8][..]; 50];
            while stop.try_recv(&mut [0; 8]).unwrap().is_none() {
                assert_eq!(flood.send_batch_timeout(&batch, HANG), Ok(50));
            }
            flood.send(b"end").unwrap();
        }
        _ => {
            let (word, stop) = (open(0, 1), open(1, 2));
            (0..COUNT).for_each(|number| word.send_timeout(&number.to_le_bytes(), HANG).unwrap());
            stop.send(b"stop").unwrap();
        }
    }
}

fn killed(me: u32, channel: &Channel) {
    meet(channel);
    if me == 1 {
        std::thread::sleep(HANG);
    }
    println!("@ ready");
    std::io::stdout().flush().unwrap();
    let (mut buffer, mut lens) = ([0; 64], [0; 8]);
    let error = channel.recv_batch_timeout(&mut buffer, &mut lens, HANG).unwrap_err();
    assert!(matches!(&error, Error::PeerGone { rank: Rank(1), how } if how.contains("signal 9")), "{error}");
    let error = channel.send_batch_timeout(&[b"x", b"y"], HANG).unwrap_err();
    assert!(matches!(error, Error::PeerGone { rank: Rank(1), .. }), "{error}");
}
