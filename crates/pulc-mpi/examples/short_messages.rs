//! Times of short messages and collectives among the ranks of a job, and so many ping-pongs of eight bytes and nothing else to count the
//! instructions of one message: `pulc run -n 2 valgrind --tool=callgrind --dump-instr=yes short_messages count 20000`, or of one
//! `barrier`, `allreduce` or `alltoall` with that word behind the number.

use pulc_mpi::call;
use pulc_mpi::error::Result;
use pulc_mpi::handle::{Comm, Datatype, Op};
use pulc_mpi::memory::Room;

const WORLD: Comm = Comm::WORLD;
const INT: Datatype = Datatype(0x4c00_0405);
const SUM: Op = Op(0x5800_0003);
/// Bytes of a block.
const BLOCK: usize = 1 << 10;

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let only_count = words.next().is_some_and(|word| word == "count");
    let rounds: u32 = words.next().and_then(|word| word.parse().ok()).unwrap_or(20_000);
    call::init()?;
    let me = call::comm_rank(WORLD)?;
    if only_count {
        count(&words.next().unwrap_or_default(), me, rounds)?;
        return call::finalize();
    }
    let mut rows = Vec::new();
    for _ in 0..7 {
        if call::comm_size(WORLD)? > 1 {
            let some = || if me < 2 { ping_pong(me, rounds) } else { Ok(()) };
            rows.push(("8 B one way", time(rounds, some)? / 2.0));
        }
        let few = rounds / 20;
        rows.push(("barrier", time(few, || (0..few).try_for_each(|_| call::barrier(WORLD)))?));
        let (mut out, mut into) = (Room::new(8), Room::new(8));
        let (from, to) = (out.addr(), into.addr());
        let sum = || (0..few).try_for_each(|_| call::allreduce(from, to, 2, INT, SUM, WORLD));
        rows.push(("allreduce 8 B", time(few, sum)?));
    }
    if me == 0 {
        for what in ["8 B one way", "barrier", "allreduce 8 B"] {
            let mut times: Vec<f64> = rows.iter().filter(|row| row.0 == what).map(|row| row.1).collect();
            times.sort_by(f64::total_cmp);
            if let Some(median) = times.get(times.len() / 2) {
                println!("{what:16} {median:9.3} us   best {:9.3} us", times[0]);
            }
        }
    }
    call::finalize()
}

/// So many of one thing and nothing else.
fn count(what: &str, me: i32, rounds: u32) -> Result<()> {
    let len = BLOCK * call::comm_size(WORLD)? as usize;
    let (mut out, mut into) = (Room::new(len), Room::new(len));
    let (from, to) = (out.addr(), into.addr());
    let each = || match what {
        "barrier" => call::barrier(WORLD),
        "allreduce" => call::allreduce(from, to, 2, INT, SUM, WORLD),
        _ => call::alltoall(from, BLOCK as i64, Datatype::BYTE, to, BLOCK as i64, Datatype::BYTE, WORLD),
    };
    if what.is_empty() { ping_pong(me, rounds) } else { (0..rounds).try_for_each(|_| each()) }
}

/// Microseconds of one of `rounds`.
fn time(rounds: u32, run: impl FnOnce() -> Result<()>) -> Result<f64> {
    call::barrier(WORLD)?;
    let begin = call::wtime();
    run()?;
    Ok((call::wtime() - begin) * 1e6 / f64::from(rounds))
}

fn ping_pong(me: i32, rounds: u32) -> Result<()> {
    let mut room = Room::new(8);
    let at = room.addr();
    for _ in 0..rounds {
        if me == 0 {
            call::send(at, 2, INT, 1, 0, WORLD)?;
        }
        call::recv(at, 2, INT, 1 - me, 0, WORLD)?;
        if me == 1 {
            call::send(at, 2, INT, 0, 0, WORLD)?;
        }
    }
    Ok(())
}
