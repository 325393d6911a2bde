//! A rank that is like any other, with an engine of its own and honest messages, but something in it has gone mad and writes
//! over all shared memory of the process whenever it is not inside of PULC: what a call maps anew or unmaps lies still meanwhile.

use super::memory::Mappings;
use super::{Chance, honest, sockets};
use pulc::{Address, Error, From, Match, Pulc, Rank};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A guard against hanging.
const HANG: Duration = Duration::from_secs(120);

/// Until the honest ranks have ended.
pub fn attack() {
    let pulc = Pulc::attach().expect("this is a rank");
    let port = pulc.open_port("main").expect("the name is free");
    let seed = std::env::var(super::ENV_SEED).ok().and_then(|seed| seed.parse::<u64>().ok()).unwrap_or(1);
    let mut random = Chance(seed ^ u64::from(pulc.rank().0) << 32 | 1);
    let (_window, memory) = (pulc.open_channel(Rank(honest::ranks()[0]), 9), pulc::alloc(1 << 20));
    let (stop, begin) = (AtomicBool::new(false), Instant::now());
    let mut mappings = Mappings::new();
    let said = std::thread::scope(|scope| {
        let (other, stop) = (Chance(random.word() | 1), &stop);
        let keeper = std::env::var("PULC_KEEPER").unwrap_or_default();
        let talker = scope.spawn(move || sockets::garbage(&keeper, other, stop));
        let mut alive = honest::ranks();
        super::tell_that_it_has_begun(pulc.rank().0);
        while !alive.is_empty() && begin.elapsed() < HANG {
            mappings.look_again();
            (0..2000).for_each(|_| mappings.scribble(&mut random));
            std::thread::yield_now();
            // Talks to all as long as they listen, so that there are channels to be spoilt.
            alive.retain(|rank| {
                let address = Address::new(Rank(*rank), "main");
                let sent = port.send_timeout(&address, random.word(), &[0x5a; 300], Duration::from_millis(5));
                !matches!(sent, Err(Error::PeerGone { .. }))
            });
            let _ = port.try_recv(From::Any, Match::Any, &mut [0; 100]);
        }
        stop.store(true, Ordering::Relaxed);
        talker.join().expect("the talker does not panic")
    });
    drop(memory);
    assert!(mappings.written > 0, "nothing was written: this process maps nothing of PULC's");
    println!(
        "rank {} attacked: {} places written, {} refused by the kernel, {said} words to the keeper",
        pulc.rank(),
        mappings.written,
        mappings.refused
    );
}
