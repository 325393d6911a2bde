//! Active messages from Rust: everybody adds to a sum that rank 0 keeps and draws numbers there, long messages land in a neighbour's
//! memory, and a helper thread runs the handlers while the program does something else. Alone, a process asks itself.
//! `cargo build -p pulc --examples && pulc run -n 3 target/debug/examples/active`

use pulc::am::{Bundle, Endpoint, Long, Mode, Reply, Short};
use pulc::{Error, Pulc, Rank};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const NAME: &str = "sum";
const TAG: u64 = 7;
/// Requests of one process that may be under way to another at a time.
const CREDITS: u16 = 8;
const ADDS: u64 = 100;
const BYTES: usize = 100_000;

const ADD: Short<(u64,)> = Short::new(1);
const SUM: Reply<(u64,)> = Reply::new(2);
const PUT: Long<(u64,)> = Long::new(3);
const THERE: Reply<(u64,)> = Reply::new(4);
const DRAW: Short<()> = Short::new(5);
const DRAWN: Reply<(u64,)> = Reply::new(6);

/// What the handlers of this process have seen.
#[derive(Default)]
struct Seen {
    sum: AtomicU64,
    adds: AtomicU64,
    answers: AtomicU64,
    landed: AtomicU64,
    told: AtomicU64,
    next: AtomicU64,
    drawn: AtomicU64,
    highest: AtomicU64,
}

fn main() -> Result<(), Error> {
    let pulc = Pulc::attach()?;
    let bundle = Bundle::new(&pulc, Mode::Sequential)?;
    let endpoint = bundle.endpoint(NAME, TAG)?;
    endpoint.set_segment(vec![0_u8; BYTES]);
    let seen = Arc::new(Seen::default());
    handle(&endpoint, &seen)?;
    add(&pulc, &bundle, &endpoint, &seen)?;
    draw(&pulc, &bundle, &endpoint, &seen)?;
    put(&pulc, &bundle, &endpoint, &seen)?;
    println!("rank {}: {} answers, {BYTES} bytes landed", pulc.rank(), seen.answers.load(Ordering::Relaxed));
    Ok(())
}

/// A handler of a request may answer once, by its token: that is a matter of types.
fn handle(endpoint: &Endpoint, seen: &Arc<Seen>) -> Result<(), Error> {
    let here = Arc::clone(seen);
    endpoint.on(ADD, move |token, (number,)| {
        let sum = here.sum.fetch_add(number, Ordering::Relaxed) + number;
        here.adds.fetch_add(1, Ordering::Relaxed);
        token.reply(SUM, (sum,));
    })?;
    let here = Arc::clone(seen);
    endpoint.on_reply(SUM, move |_from, (sum,)| {
        assert!(sum > 0, "it holds at least what was added");
        here.answers.fetch_add(1, Ordering::Relaxed);
    })?;
    let here = Arc::clone(seen);
    endpoint.on_long(PUT, move |token, (mark,), landed| {
        assert!(landed.with(|bytes| bytes.len() == BYTES && bytes.iter().all(|byte| *byte == mark as u8)));
        here.landed.fetch_add(1, Ordering::Relaxed);
        token.reply(THERE, (mark,));
    })?;
    let here = Arc::clone(seen);
    endpoint.on_reply(THERE, move |_from, (_mark,)| {
        here.told.fetch_add(1, Ordering::Relaxed);
    })?;
    // These two call nothing of PULC, so they may run where their messages are found, which takes half the time.
    let here = Arc::clone(seen);
    endpoint.on_leaf(DRAW, move |token, ()| token.reply(DRAWN, (here.next.fetch_add(1, Ordering::Relaxed),)))?;
    let here = Arc::clone(seen);
    endpoint.on_leaf_reply(DRAWN, move |_from, (number,)| {
        here.highest.fetch_max(number, Ordering::Relaxed);
        here.drawn.fetch_add(1, Ordering::Relaxed);
    })
}

/// Numbers that are each given out once, by rank 0.
fn draw(pulc: &Pulc, bundle: &Bundle, endpoint: &Endpoint, seen: &Seen) -> Result<(), Error> {
    let first = endpoint.map(bundle, Rank(0), NAME, TAG, CREDITS)?;
    for _ in 0..ADDS {
        first.request(bundle, DRAW, ())?;
    }
    bundle.wait_until(None, || seen.drawn.load(Ordering::Relaxed) == ADDS)?;
    let given = u64::from(pulc.size()) * ADDS;
    assert!(
        (ADDS - 1..given).contains(&seen.highest.load(Ordering::Relaxed)),
        "numbers are given out one after another"
    );
    if pulc.rank() == Rank(0) {
        bundle.wait_until(None, || seen.next.load(Ordering::Relaxed) == given)?;
    }
    Ok(())
}

/// Handlers run while their bundle is waited on, also while a request waits for credit.
fn add(pulc: &Pulc, bundle: &Bundle, endpoint: &Endpoint, seen: &Seen) -> Result<(), Error> {
    let first = endpoint.map(bundle, Rank(0), NAME, TAG, CREDITS)?;
    for number in 1..=ADDS {
        first.request(bundle, ADD, (number,))?;
    }
    bundle.wait_until(None, || seen.answers.load(Ordering::Relaxed) == ADDS)?;
    if pulc.rank() == Rank(0) {
        let size = u64::from(pulc.size());
        bundle.wait_until(None, || seen.adds.load(Ordering::Relaxed) == ADDS * size)?;
        assert_eq!(seen.sum.load(Ordering::Relaxed), size * ADDS * (ADDS + 1) / 2);
    }
    Ok(())
}

/// From here on a thread of the bundle's own runs the handlers; this one only looks at what they leave.
fn put(pulc: &Pulc, bundle: &Bundle, endpoint: &Endpoint, seen: &Seen) -> Result<(), Error> {
    let server = bundle.serve()?;
    let next = endpoint.map(bundle, Rank((pulc.rank().0 + 1) % pulc.size()), NAME, TAG, CREDITS)?;
    let mark = u64::from(pulc.rank().0) + 1;
    next.request_long(bundle, PUT, (mark,), 0, &[mark as u8; BYTES])?;
    while seen.landed.load(Ordering::Relaxed) == 0 || seen.told.load(Ordering::Relaxed) == 0 {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    server.stop();
    Ok(())
}
