//! `pulc bench layers`: every floor of the house beside what the kernel offers, in one run. Rounds are interleaved (every
//! row once, then every row again), so that a disturbance hits all rows alike; what is shown is the median of the rounds.

use crate::job::Job;
use crate::net::tag_price_ns;
use crate::pair::{Pair, Seat};
use crate::row::{self, Layer, Place, Row};
use crate::{Error, wire};
use pulc_base::clock::Nanos;
use pulc_hal::os::cpu;
use pulc_hal::os::signals::{SIGHUP, SIGINT, SIGTERM, SignalFd, describe};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    /// One JSON object per line instead of a table
    #[arg(long)]
    json: bool,
    /// Message sizes in bytes, at least 8
    #[arg(long, value_delimiter = ',', default_values_t = [8, 64, 1 << 10, 64 << 10, 1 << 20],
          value_parser = parse_bytes)]
    bytes: Vec<usize>,
    /// Only these layers
    #[arg(long, value_enum, value_delimiter = ',')]
    layers: Vec<Layer>,
    /// Only these places
    #[arg(long, value_enum, value_delimiter = ',')]
    places: Vec<Place>,
    /// Interleaved rounds, of which the median is shown
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// One short round: does it all work
    #[arg(long)]
    quick: bool,
}

const BYTES_MAX: usize = 64 << 20;
const BUDGET: Nanos = Nanos::from_ms(30);
/// Start and end of a job.
const JOB_LIMIT: Nanos = Nanos::from_ms(60_000);
const BUDGET_QUICK: Nanos = Nanos::from_ms(10);

/// What is measured where, in the order of the table.
const PLAN: &[(Place, &[Layer])] = &[
    (
        Place::Node,
        &[
            Layer::Hardware,
            Layer::Device,
            Layer::Rawdata,
            Layer::Shared,
            Layer::Port,
            Layer::Am,
            Layer::Pipe,
            Layer::Unix,
            Layer::Tcp,
            Layer::Udp,
        ],
    ),
    (
        Place::Core,
        &[
            Layer::Hardware,
            Layer::Device,
            Layer::Rawdata,
            Layer::Port,
            Layer::Am,
            Layer::Pipe,
            Layer::Unix,
            Layer::Tcp,
            Layer::Udp,
        ],
    ),
    (
        Place::Net,
        &[Layer::Device, Layer::Link, Layer::Encrypted, Layer::Rawdata, Layer::Port, Layer::Am, Layer::Tcp, Layer::Udp],
    ),
];

pub fn run(args: &Args) -> Result<ExitCode, Error> {
    let cores = cpu::allowed_cores()?;
    let (rounds, budget) = if args.quick { (1, BUDGET_QUICK) } else { (args.rounds, BUDGET) };
    let mut notes = Vec::new();
    let mut run = Run { args, budget, pairs: BTreeMap::new(), found: BTreeMap::new(), given_up: BTreeMap::new() };
    for &(place, layers) in PLAN.iter().filter(|(place, _)| args.places.is_empty() || args.places.contains(place)) {
        let wanted = |layer: &&Layer| args.layers.is_empty() || args.layers.contains(layer);
        if !layers.iter().any(|layer| wanted(&layer)) {
            continue;
        }
        if place == Place::Node && cores.len() < 2 {
            notes.push("node is left out: this process may use one core only".to_string());
            continue;
        }
        run.sit_down(place, &cores, &mut notes)?;
    }
    let tell_rounds = rounds > 1 && std::io::stderr().is_terminal();
    // An interrupt is looked at between rows, so that namespaces and daemons are taken down.
    let signals = SignalFd::new(&[SIGINT, SIGTERM, SIGHUP], true).map_err(Error::system("watch signals"))?;
    for round in 0..rounds {
        for &(place, layers) in PLAN {
            for &layer in layers.iter().filter(|layer| args.layers.is_empty() || args.layers.contains(layer)) {
                if let Ok(signal) = signals.read() {
                    return Err(Error::Interrupted(describe(signal)));
                }
                if layer.is_of_a_job() {
                    run.job(place, layer);
                    continue;
                }
                for &bytes in &args.bytes {
                    run.one(place, layer, bytes);
                }
            }
        }
        if tell_rounds {
            eprint!("\rround {} of {rounds}", round + 1);
        }
    }
    if tell_rounds {
        eprintln!();
    }
    let failed = !run.given_up.is_empty();
    notes.extend(run.given_up.values().cloned());
    let rows = run.rows();
    if args.json {
        print!("{}", row::json_lines(&rows));
        notes.iter().for_each(|note| eprintln!("pulc: {note}"));
    } else {
        print!("{}", row::table(&rows));
        println!(
            "\nOne way; medians of {rounds} interleaved rounds, x of the ratios within each. p50 and p99 are over round trips, over blocks of"
        );
        println!("2 us where one is shorter. pipe, unix, tcp and udp poll without sleeping, on one core they block.");
        println!(
            "hardware: a cache line handed over, on one core the core itself by yielding; its bandwidth is memcpy."
        );
        notes.iter().for_each(|note| println!("{note}"));
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

struct Run<'a> {
    args: &'a Args,
    budget: Nanos,
    pairs: BTreeMap<Place, Bench>,
    found: BTreeMap<(Place, usize, Layer), Vec<Row>>,
    given_up: BTreeMap<(Place, Layer), String>,
}

/// The two processes at one place, and what has to live as long as they do.
struct Bench {
    seats: [Seat; 2],
    pair: Option<Pair>,
    wire: Option<wire::Wire>,
}

impl Run<'_> {
    /// Finds out where the two processes of a place run.
    fn sit_down(&mut self, place: Place, cores: &[u32], notes: &mut Vec<String>) -> Result<(), Error> {
        let first = *cores.first().ok_or_else(|| Error::Nonsense("no core to run on".into()))?;
        let second = if place == Place::Core { first } else { cores.get(1).copied().unwrap_or(first) };
        let here = |core| Seat { core, ip: std::net::Ipv4Addr::LOCALHOST.into(), enter: Vec::new() };
        let mut seats = [here(first), here(second)];
        let mut held = None;
        if place == Place::Net {
            match wire::Wire::lay() {
                Ok(wire) => {
                    for (seat, end) in seats.iter_mut().zip(wire.ends()) {
                        (seat.ip, seat.enter) = end;
                    }
                    notes.push("net: two network namespaces joined by a veth pair".into());
                    notes.push(prices());
                    held = Some(wire);
                }
                Err(error) => notes.push(format!("net: over the loopback of this machine ({error})")),
            }
        }
        self.pairs.insert(place, Bench { seats, pair: None, wire: held });
        Ok(())
    }

    /// Measures one row once. A row that fails is given up and told; the processes are made anew for the next one.
    fn one(&mut self, place: Place, layer: Layer, bytes: usize) {
        let Some(bench) = self.pairs.get_mut(&place) else { return };
        if self.given_up.contains_key(&(place, layer)) {
            return;
        }
        let figures = bench.pair(place).and_then(|pair| pair.measure(layer, bytes, self.budget));
        match figures {
            Ok(figures) => {
                let row = Row {
                    layer,
                    place,
                    bytes,
                    latency_ns_p50: figures.latency_ns_p50,
                    latency_ns_p99: figures.latency_ns_p99,
                    bandwidth_bytes_per_s: figures.bandwidth_bytes_per_s,
                    messages_per_s: figures.messages_per_s,
                    latency_x: None,
                    bandwidth_x: None,
                };
                self.found.entry((place, bytes, layer)).or_default().push(row);
            }
            Err(error) => {
                bench.pair = None;
                let text = format!("{} on {} with {}: {error}", layer.name(), place.name(), row::size(bytes));
                self.given_up.insert((place, layer), text);
            }
        }
    }

    /// Measures all sizes of an interface once, in a job of two ranks.
    fn job(&mut self, place: Place, layer: Layer) {
        let Some(bench) = self.pairs.get_mut(&place) else { return };
        if self.given_up.contains_key(&(place, layer)) {
            return;
        }
        match bench.job(place, layer, &self.args.bytes, self.budget) {
            Ok(rows) => {
                for row in rows {
                    self.found.entry((place, row.bytes, layer)).or_default().push(row);
                }
            }
            Err(error) => {
                let text = format!("{} on {}: {error}", layer.name(), place.name());
                self.given_up.insert((place, layer), text);
            }
        }
    }

    fn rows(&self) -> Vec<Row> {
        let rows = self.found.iter().filter_map(|(&(place, bytes, _), rounds)| {
            let mut row = row::median_of(rounds)?;
            if let Some(yard) = self.found.get(&(place, bytes, place.yardstick())) {
                row.latency_x = row::median_ratio(rounds, yard, |row| row.latency_ns_p50);
                row.bandwidth_x = row::median_ratio(rounds, yard, |row| row.bandwidth_bytes_per_s);
            }
            Some(row)
        });
        let has_figure = |row: &Row| row.latency_ns_p50.is_some() || row.bandwidth_bytes_per_s.is_some();
        rows.filter(|row| has_figure(row) && self.args.bytes.contains(&row.bytes)).collect()
    }
}

impl Bench {
    fn pair(&mut self, place: Place) -> Result<&mut Pair, Error> {
        let pair = match self.pair.take() {
            Some(pair) => pair,
            None => Pair::start(place, self.seats.clone())?,
        };
        Ok(self.pair.insert(pair))
    }

    fn job(&mut self, place: Place, layer: Layer, sizes: &[usize], budget: Nanos) -> Result<Vec<Row>, Error> {
        let limit = JOB_LIMIT + Nanos(budget.0.saturating_mul(20 * sizes.len() as u64));
        if let Some(wire) = &mut self.wire {
            wire.start_daemons()?;
        }
        let nodes = (place == Place::Net).then_some(2);
        let job = Job { enter: &self.seats[0].enter, ranks: 2, nodes, limit };
        let list = |words: Vec<String>| words.join(",");
        let text = job.run_ranks(&[
            "messages",
            "--layer",
            layer.name(),
            "--place",
            place.name(),
            "--budget-us",
            &(budget.0 / 1000).to_string(),
            "--bytes",
            &list(sizes.iter().map(usize::to_string).collect()),
            "--cores",
            &list(self.seats.iter().map(|seat| seat.core.to_string()).collect()),
        ])?;
        let rows = text.lines().map(|line| serde_json::from_str(line).map_err(|_| Error::Nonsense(line.to_string())));
        rows.collect()
    }
}

/// What authentication and encryption cost, apart from everything else.
fn prices() -> String {
    let [small, full] =
        [8, 1472 - pulc_link::OVERHEAD].map(|bytes| [false, true].map(|secret| tag_price_ns(bytes, secret)));
    format!(
        "net: the tag of a frame costs {:.0} ns at either end around 8 bytes and {:.0} ns in a full frame of 1472; encrypted {:.0}\n\
         and {:.0} ns",
        small[0], full[0], small[1], full[1]
    )
}

/// `8`, `64k`, `1M`; at least a word, at most [`BYTES_MAX`].
fn parse_bytes(text: &str) -> Result<usize, String> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 20),
        _ => (text, 0),
    };
    let bytes = digits.parse::<usize>().ok().and_then(|number| number.checked_mul(1 << shift));
    match bytes {
        Some(bytes) if (crate::measure::BYTES_MIN..=BYTES_MAX).contains(&bytes) => Ok(bytes),
        _ => Err(format!("not a size from {} to {}", row::size(crate::measure::BYTES_MIN), row::size(BYTES_MAX))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_suffixes_and_within_limits() {
        assert_eq!(parse_bytes("64"), Ok(64));
        assert_eq!(parse_bytes("64k"), Ok(64 << 10));
        assert_eq!(parse_bytes("1M"), Ok(1 << 20));
        for wrong in ["", "k", "7", "-8", "65M", "99999999999999999999", "18446744073709551615M"] {
            assert!(parse_bytes(wrong).is_err(), "{wrong} was accepted");
        }
    }
}
