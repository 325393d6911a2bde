//! What the two ranks of these tests do.

use pulc::{Address, From, Match, Pulc, Rank};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

/// File at whose sight [`stay`] ends.
pub const ENV_UNTIL: &str = "PULC_TEST_UNTIL";
const HANG: Duration = Duration::from_secs(120);
/// What a listener looks for.
pub const SECRET: &str = "the enemy listens, so not a word of this must be readable. ";
/// Frames that each rank or its kernel has to refuse before it believes that it was attacked.
const REFUSED_MIN: u64 = 20_000;
const ROUNDS_MIN: u64 = 300;

fn join() -> (Pulc, pulc::Port, Address) {
    let pulc = Pulc::attach().expect("this is a rank");
    let port = pulc.open_port("main").expect("the name is free");
    let other = Address::new(Rank(1 - pulc.rank().0), "main");
    (pulc, port, other)
}

fn text(round: u64, len: usize) -> Vec<u8> {
    let mut text = SECRET.repeat(len / SECRET.len() + 1).into_bytes();
    text.truncate(len);
    let number = round.to_le_bytes();
    let at = text.len() - number.len();
    text[at..].copy_from_slice(&number);
    text
}

/// Messages of all sizes there and back.
pub fn chatter() {
    let (pulc, port, other) = join();
    for round in 0..120 {
        let len = [100, 1_000, 20_000, 200_000][round as usize % 4];
        if pulc.rank().0 == 0 {
            port.send(&other, round, &text(round, len)).expect("the other rank lives");
        }
        let (_, came) = port.recv_vec_timeout(From::Any, Match::Tag(round), HANG).expect("the other rank answers");
        assert!(came == text(round, len), "{len} bytes changed");
        if pulc.rank().0 == 1 {
            port.send(&other, round, &came).expect("the other rank lives");
        }
    }
    println!("rank {} heard it all", pulc.rank());
}

/// Addresses to which UDP sockets of this host are bound; daemons have none.
fn bound() -> Vec<Ipv4Addr> {
    let table = std::fs::read_to_string("/proc/self/net/udp").expect("there is IPv4");
    let address = |line: &str| {
        let hex = line.split_ascii_whitespace().nth(1)?.split(':').next()?;
        u32::from_str_radix(hex, 16).ok().map(|bits| Ipv4Addr::from(bits.to_ne_bytes()))
    };
    let mut bound: Vec<Ipv4Addr> = table.lines().skip(1).filter_map(address).collect();
    bound.sort_unstable();
    bound.dedup();
    bound
}

/// Messages there and back until a file is there, and before them a word about the networks that are used.
pub fn stay() {
    let until = std::env::var_os(ENV_UNTIL).expect("it is named");
    let (pulc, port, other) = join();
    let me = pulc.rank().0;
    for round in 0.. {
        let last = me == 0 && std::path::Path::new(&until).exists();
        if me == 0 {
            port.send(&other, u64::from(last), &text(round, 1000)).expect("the other rank lives");
        }
        let (envelope, came) = port.recv_vec_timeout(From::Any, Match::Any, HANG).expect("the other rank answers");
        assert!(came == text(round, 1000), "a message changed");
        if me == 1 {
            port.send(&other, envelope.tag, &came).expect("the other rank lives");
        }
        if round == 20 {
            println!("rank {me} over {:?}", bound());
        }
        if envelope.tag == 1 && round > 20 {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    println!("rank {me} done");
}

fn refused(pulc: &Pulc) -> u64 {
    pulc.counters().iter().map(|device| device.frames.frames_refused + device.frames.frames_dropped).sum()
}

/// Numbered messages there and back until both ranks have refused many frames; none may come that was not sent, twice, or
/// changed.
pub fn under_attack() {
    let (pulc, port, other) = join();
    let (me, start, mut round) = (pulc.rank().0, Instant::now(), 0);
    let mut attacked = [false; 2];
    // Long rawdata lands in this buffer before anybody knows whose it is.
    let raw = pulc.open_channel(Rank(1 - me), 1).expect("nobody else has opened it");
    let (sent, mut landing) = (vec![0x5A; 60_000], vec![0; 60_000]);
    while round < ROUNDS_MIN || attacked != [true; 2] {
        assert!(start.elapsed() < 3 * HANG, "round {round}, refused here {}", refused(&pulc));
        let len = [64, 1_000, 50_000][round as usize % 3];
        attacked[me as usize] = refused(&pulc) >= REFUSED_MIN;
        // The tag tells the other rank whether this one has seen enough.
        let send = |attacked: bool| port.send(&other, round * 2 + u64::from(attacked), &text(round, len));
        if me == 0 {
            send(attacked[0]).expect("the other rank lives");
        }
        let (envelope, came) = port.recv_vec_timeout(From::Any, Match::Any, 2 * HANG).expect("the other rank answers");
        assert_eq!((envelope.src, envelope.tag / 2), (Rank(1 - me), round), "a message that nobody sent now");
        assert!(came == text(round, len), "{len} bytes changed");
        attacked[1 - me as usize] = envelope.tag % 2 == 1;
        if me == 1 {
            send(attacked[1]).expect("the other rank lives");
        }
        if me == 0 {
            raw.send(&sent).expect("the other rank lives");
        }
        landing.fill(0);
        assert_eq!(raw.recv_timeout(&mut landing, 2 * HANG), Ok(sent.len()));
        assert!(landing == sent, "rawdata changed");
        if me == 1 {
            raw.send(&sent).expect("the other rank lives");
        }
        round += 1;
    }
    // The other rank may have ended by now.
    let more = port.try_recv(From::Any, Match::Any, &mut [0; 100]);
    assert!(!matches!(more, Ok(Some(_))), "one too many: {more:?}");
    println!("rank {me} stood it: {round} rounds, {} frames refused", refused(&pulc));
}
