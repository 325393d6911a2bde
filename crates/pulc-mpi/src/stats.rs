//! What `pulc run --stats` shows: for every process how many messages it has sent and received on each device, how many turns its
//! collectives took in shared memory, and how long it waited. Counted by the devices anyway; the clock is read only where somebody asked.
//! Called by `world` at the beginning and at the end, and around every wait.

use crate::collective;
use crate::error::Result;
use crate::handle::{Comm, Datatype};
use crate::memory::Room;
use crate::trace;
use pulc_base::clock::{self, Nanos};
use pulc_handler::Process;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Set for the ranks by the launcher.
const VARIABLE: &str = "PULC_STATS";

static IS_ON: AtomicBool = AtomicBool::new(false);
static WAITED_NS: AtomicU64 = AtomicU64::new(0);
static TURNS: AtomicU64 = AtomicU64::new(0);

/// Messages within the process, on its node, and between nodes.
const DEVICES: [&str; 3] = ["self", "shm", "net"];
/// Sent and received: messages, bytes.
const FIGURES: usize = 4;
const NUMBERS: usize = 3 + DEVICES.len() * FIGURES;

pub(crate) fn begin() {
    IS_ON.store(std::env::var_os(VARIABLE).is_some_and(|word| word == "1"), Ordering::Relaxed);
}

#[inline(always)]
fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// When a wait began; nothing where nobody asked.
#[inline(always)]
pub(crate) fn start() -> Option<Nanos> {
    if is_on() || trace::is_on() { Some(clock::now()) } else { None }
}

#[inline(always)]
pub(crate) fn end(began: Option<Nanos>) {
    if let Some(began) = began {
        let time = clock::now().since(began);
        WAITED_NS.fetch_add(time.0, Ordering::Relaxed);
        trace::waited(time);
    }
}

/// A turn of a collective in shared memory.
#[inline(always)]
pub(crate) fn turn() {
    if is_on() {
        TURNS.fetch_add(1, Ordering::Relaxed);
    }
}

/// Brings everybody's numbers to the first rank, which shows them. All processes of the job take part.
pub(crate) fn tell(process: &'static Process) -> Result<()> {
    if !is_on() {
        return Ok(());
    }
    let own = numbers(process);
    let (mut out, len) = (Room::new(NUMBERS * 8), NUMBERS as i64 * 8);
    own.iter().enumerate().for_each(|(at, number)| out.addr().write(at as i64 * 8, &number.to_ne_bytes()));
    let size = process.boot().tasks.len();
    let is_first = process.rank().0 == 0;
    let mut all = Room::new(if is_first { size * NUMBERS * 8 } else { 8 });
    collective::gather(out.addr(), len, Datatype::BYTE, all.addr(), len, Datatype::BYTE, 0, Comm::WORLD)?;
    if is_first {
        let mut bytes = [0; 8];
        let base = all.addr();
        let mut number = |at: usize| {
            base.read(at as i64 * 8, &mut bytes);
            u64::from_ne_bytes(bytes)
        };
        let rows: Vec<[u64; NUMBERS]> =
            (0..size).map(|rank| std::array::from_fn(|at| number(rank * NUMBERS + at))).collect();
        eprint!("{}", table(&rows));
    }
    Ok(())
}

fn numbers(process: &Process) -> [u64; NUMBERS] {
    let mut numbers = [0; NUMBERS];
    numbers[0] = u64::from(process.node().0);
    numbers[1] = WAITED_NS.load(Ordering::Relaxed);
    numbers[2] = TURNS.load(Ordering::Relaxed);
    for report in process.lock().engine.report() {
        // Whatever carries messages between nodes is one row.
        let device = DEVICES.iter().position(|name| *name == report.device).unwrap_or(DEVICES.len() - 1);
        let tally = report.tally;
        let figures = [tally.messages_sent, tally.bytes_sent, tally.messages_received, tally.bytes_received];
        numbers[3 + device * FIGURES..][..FIGURES].copy_from_slice(&figures);
    }
    numbers
}

/// A line for each rank, with those devices that have moved anything.
fn table(rows: &[[u64; NUMBERS]]) -> String {
    let used: Vec<usize> = (0..DEVICES.len())
        .filter(|device| rows.iter().any(|row| row[3 + device * FIGURES..][..FIGURES].iter().any(|number| *number > 0)))
        .collect();
    let mut text = format!("{:>5} {:>4} {:>10} {:>8}", "rank", "node", "waited", "turns");
    for device in &used {
        let name = DEVICES[*device];
        let _ = write!(text, " {:>10} {:>10} {:>10} {:>10}", format!("{name} sent"), "bytes", "received", "bytes");
    }
    text.push('\n');
    for (rank, row) in rows.iter().enumerate() {
        let waited = format!("{:.3} s", row[1] as f64 / 1e9);
        let _ = write!(text, "{rank:>5} {:>4} {waited:>10} {:>8}", row[0], row[2]);
        for device in &used {
            for number in &row[3 + device * FIGURES..][..FIGURES] {
                let _ = write!(text, " {number:>10}");
            }
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_a_line_for_each_rank_and_columns_for_devices_that_were_used() {
        let mut rows = [[0; NUMBERS]; 2];
        rows[1] = std::array::from_fn(|at| at as u64);
        rows.iter_mut().for_each(|row| row[3..7].fill(0));
        let text = table(&rows);
        assert_eq!(text.lines().count(), 3);
        assert!(text.contains("shm sent") && text.contains("net sent") && !text.contains("self sent"), "{text}");
        assert!(
            text.lines().nth(2).is_some_and(|line| line.starts_with("    1    0    0.000 s        2          7")),
            "{text}"
        );
    }
}
