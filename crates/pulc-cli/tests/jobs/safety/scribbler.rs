//! A rank that is like any other, with an engine of its own and honest messages, but something in it has gone mad and writes
//! over all shared memory of the process.

use super::memory::Mappings;
use super::{ENV_HONEST, Random, honest, sockets};
use pulc::{Address, Error, From, Match, Pulc, Rank};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A guard against hanging: longer than the honest ranks wait for anything.
const HANG: Duration = Duration::from_secs(120);

/// Until the honest ranks have ended.
pub fn attack() {
    let pulc = Pulc::attach().expect("this is a rank");
    let port = pulc.open_port("main").expect("the name is free");
    let seed = std::env::var(super::ENV_SEED).ok().and_then(|seed| seed.parse::<u64>().ok()).unwrap_or(1);
    let mut random = Random(seed ^ u64::from(pulc.rank().0) << 32 | 1);
    let (_window, memory) = (pulc.open_channel(Rank(honest::ranks()[0]), 9), pulc::alloc(1 << 20));
    let stop = AtomicBool::new(false);
    let begin = Instant::now();
    let (written, refused, said) = std::thread::scope(|scope| {
        let (other, stop) = (Random(random.next() | 1), &stop);
        let keeper = std::env::var("PULC_KEEPER").unwrap_or_default();
        let talker = scope.spawn(move || sockets::garbage(&keeper, other, stop));
        let writer = Random(random.next() | 1);
        let scribbler = scope.spawn(move || scribble(writer, stop));
        let mut alive = honest::ranks();
        while !alive.is_empty() && begin.elapsed() < HANG {
            // Talks to all as long as they listen, so that there are channels to be spoilt.
            alive.retain(|rank| {
                let address = Address::new(Rank(*rank), "main");
                let sent = port.send_timeout(&address, random.next(), &[0x5a; 300], Duration::from_millis(50));
                !matches!(sent, Err(Error::PeerGone { .. }))
            });
            let _ = port.try_recv(From::Any, Match::Any, &mut [0; 100]);
        }
        stop.store(true, Ordering::Relaxed);
        let (written, refused) = scribbler.join().expect("the scribbler does not panic");
        (written, refused, talker.join().expect("nor does the talker"))
    });
    drop(memory);
    assert!(written > 0, "nothing was written: {ENV_HONEST} ended too soon");
    println!(
        "rank {} attacked: {written} places written, {refused} refused by the kernel, {said} words to the keeper",
        pulc.rank()
    );
}

fn scribble(mut random: Random, stop: &AtomicBool) -> (u64, u64) {
    let mut mappings = Mappings::new();
    while !stop.load(Ordering::Relaxed) {
        mappings.look_again();
        for _ in 0..2000 {
            mappings.scribble(&mut random);
        }
        std::thread::yield_now();
    }
    (mappings.written, mappings.refused)
}
