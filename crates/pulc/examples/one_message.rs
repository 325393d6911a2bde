//! So many ping-pongs of eight bytes between two ranks and nothing else, to count the instructions of one message:
//! `pulc run -n 2 valgrind --tool=callgrind --dump-instr=yes one_message port 20000` (or `raw`, `am`, `leaf`). Instructions that ran about
//! once a message are its path; those that ran more often are waiting. With a third word `stream` the messages go one way only,
//! and the receiver writes how many came in a second.

use pulc::am::{Bundle, Mode, Reply, Short};
use pulc::{Address, Error, From, Match, Pulc, Rank};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const PING: Short<(u64,)> = Short::new(1);
const PONG: Reply<(u64,)> = Reply::new(2);

fn main() -> Result<(), Error> {
    let mut words = std::env::args().skip(1);
    let layer = words.next().unwrap_or_else(|| "port".into());
    let count = words.next().and_then(|word| word.parse().ok()).unwrap_or(20_000);
    let pulc = Pulc::attach()?;
    let first = pulc.rank() == Rank(0);
    let peer = Rank(u32::from(first));
    let mut bytes = [0u8; 8];
    if layer == "am" || layer == "leaf" {
        return active(&pulc, first, peer, count, layer == "leaf");
    }
    let run = if words.next().is_some_and(|word| word == "stream") { stream } else { ping_pong };
    if layer == "raw" {
        let channel = pulc.open_channel(peer, 1)?;
        return run(first, count, &mut bytes, &|bytes| channel.send(bytes), &|bytes| channel.recv(bytes).map(|_| ()));
    }
    let port = pulc.open_port("count")?;
    let to = Address::new(peer, "count");
    let (from, tag) = (From::Rank(peer), 1);
    run(first, count, &mut bytes, &|bytes| port.send(&to, tag, bytes), &|bytes| {
        port.recv(from, Match::Tag(tag), bytes).map(|_| ())
    })
}

/// Requests and their replies; one of each is two messages.
fn active(pulc: &Pulc, first: bool, peer: Rank, count: u64, leaves: bool) -> Result<(), Error> {
    let bundle = Bundle::new(pulc, Mode::Sequential)?;
    let endpoint = bundle.endpoint("count", 1)?;
    let seen = Arc::new(AtomicU64::new(0));
    let counter = || Arc::clone(&seen);
    let (pings, pongs) = (counter(), counter());
    if leaves {
        endpoint.on_leaf(PING, move |token, (n,)| {
            pings.store(n, Ordering::Relaxed);
            token.reply(PONG, (n,));
        })?;
        endpoint.on_leaf_reply(PONG, move |_, (n,)| pongs.store(n, Ordering::Relaxed))?;
    } else {
        endpoint.on(PING, move |token, (n,)| {
            pings.store(n, Ordering::Relaxed);
            token.reply(PONG, (n,));
        })?;
        endpoint.on_reply(PONG, move |_, (n,)| pongs.store(n, Ordering::Relaxed))?;
    }
    let to = endpoint.map(&bundle, peer, "count", 1, 16)?;
    for n in 1..=count {
        if first {
            to.request(&bundle, PING, (n,))?;
        }
        while seen.load(Ordering::Relaxed) < n {
            bundle.wait(None)?;
        }
    }
    Ok(())
}

type Send<'a> = &'a dyn Fn(&[u8]) -> Result<(), Error>;
type Recv<'a> = &'a dyn Fn(&mut [u8]) -> Result<(), Error>;

/// All messages one way, then one back.
fn stream(first: bool, count: u64, bytes: &mut [u8], send: Send<'_>, recv: Recv<'_>) -> Result<(), Error> {
    if first {
        for _ in 0..count {
            send(bytes)?;
        }
        return recv(bytes);
    }
    recv(bytes)?;
    let started = std::time::Instant::now();
    for _ in 1..count {
        recv(bytes)?;
    }
    println!("{:.2} M/s", count as f64 / started.elapsed().as_secs_f64() / 1e6);
    send(bytes)
}

fn ping_pong(first: bool, count: u64, bytes: &mut [u8], send: Send<'_>, recv: Recv<'_>) -> Result<(), Error> {
    for _ in 0..count {
        if first {
            send(bytes)?;
        }
        recv(bytes)?;
        if !first {
            send(bytes)?;
        }
    }
    Ok(())
}
