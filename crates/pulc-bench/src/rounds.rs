//! Interleaved rounds of many rows: every row once, then every row again, so that a disturbance hits all rows alike. Called by
//! `layers` and `shares`; decides nothing about how results are shown.

use crate::job::Job;
use crate::net::tag_price_ns;
use crate::pair::{Pair, Seat};
use crate::row::{self, Layer, Place, Row};
use crate::{Error, mpi_door, socket_layer, wire};
use pulc_base::clock::Nanos;
use pulc_hal::os::cpu;
use pulc_hal::os::signals::{SIGHUP, SIGINT, SIGTERM, SignalFd, describe};
use pulc_link::OVERHEAD;
use std::collections::{BTreeMap, BTreeSet};
use std::io::IsTerminal;

/// Time of each of ping-pong and stream of one row in one round.
pub const BUDGET: Nanos = Nanos::from_ms(30);
pub const BUDGET_QUICK: Nanos = Nanos::from_ms(10);
/// Start and end of a job.
const JOB_LIMIT: Nanos = Nanos::from_ms(60_000);

/// What is to be measured. Empty layers and places: all of them.
pub struct Wanted {
    pub bytes: Vec<usize>,
    pub layers: Vec<Layer>,
    pub places: Vec<Place>,
    pub rounds: u32,
    pub budget: Nanos,
    /// What is sent rests: every side receives into another buffer.
    pub apart: bool,
}

/// The same, as the two ends of a layer are told that are programs of their own.
#[derive(clap::Args, Clone)]
pub struct OfBoth {
    #[arg(long, value_enum)]
    pub place: Place,
    #[arg(long)]
    pub budget_us: u64,
    #[arg(long, value_delimiter = ',')]
    pub bytes: Vec<usize>,
    /// Core of each end
    #[arg(long, value_delimiter = ',')]
    pub cores: Vec<u32>,
    /// Receive into another buffer than what is sent
    #[arg(long)]
    pub apart: bool,
}

/// What was measured.
pub struct Found {
    rounds: BTreeMap<(Place, usize, Layer), Vec<Row>>,
    /// What the reader of the figures must know.
    pub notes: Vec<String>,
    /// A row could not be measured.
    pub failed: bool,
}

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
            Layer::Leaf,
            Layer::Mpi,
            Layer::Socket,
            Layer::Threads,
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
            Layer::Leaf,
            Layer::Mpi,
            Layer::Socket,
            Layer::Threads,
            Layer::Pipe,
            Layer::Unix,
            Layer::Tcp,
            Layer::Udp,
        ],
    ),
    (
        Place::Net,
        &[
            Layer::Device,
            Layer::Link,
            Layer::Encrypted,
            Layer::Rawdata,
            Layer::Port,
            Layer::Am,
            Layer::Leaf,
            Layer::Mpi,
            Layer::Tcp,
            Layer::Udp,
            Layer::Gso,
        ],
    ),
];

/// Measures everything that is wanted.
pub fn measure(wanted: &Wanted) -> Result<Found, Error> {
    let cores = cpu::allowed_cores()?;
    let mut notes = Vec::new();
    let mut run = Run {
        wanted,
        pairs: BTreeMap::new(),
        found: BTreeMap::new(),
        given_up: BTreeMap::new(),
        left_out: BTreeSet::new(),
    };
    for &(place, layers) in PLAN {
        if !wanted.has_place(place) || !layers.iter().any(|layer| wanted.has_layer(*layer)) {
            continue;
        }
        if place == Place::Node && cores.len() < 2 {
            notes.push("node is left out: this process may use one core only".to_string());
            continue;
        }
        run.sit_down(place, &cores, &mut notes)?;
    }
    if wanted.has_layer(Layer::Mpi) && mpi_door::library().is_none() {
        notes.push("mpi is left out: its library lies neither in lib beside this program's bin nor beside it".into());
        run.left_out.insert(Layer::Mpi);
    }
    let tell_rounds = wanted.rounds > 1 && std::io::stderr().is_terminal();
    // An interrupt is looked at between rows, so that namespaces and daemons are taken down.
    let signals = SignalFd::new(&[SIGINT, SIGTERM, SIGHUP], true).map_err(Error::system("watch signals"))?;
    for round in 0..wanted.rounds {
        run.round(&signals)?;
        if tell_rounds {
            eprint!("\rround {} of {}", round + 1, wanted.rounds);
        }
    }
    if tell_rounds {
        eprintln!();
    }
    let failed = !run.given_up.is_empty();
    notes.extend(run.given_up.into_values());
    Ok(Found { rounds: run.found, notes, failed })
}

impl Wanted {
    fn has_layer(&self, layer: Layer) -> bool {
        self.layers.is_empty() || self.layers.contains(&layer)
    }

    fn has_place(&self, place: Place) -> bool {
        self.places.is_empty() || self.places.contains(&place)
    }
}

impl Found {
    /// One row for each layer, place and size: the medians of the rounds, and their ratios to the yardstick of the place and to
    /// the device.
    pub fn rows(&self) -> Vec<Row> {
        let rows = self.rounds.iter().filter_map(|(&(place, bytes, layer), rounds)| {
            let mut row = row::median_of(rounds)?;
            let latency = |row: &Row| row.latency_ns_p50;
            let bandwidth = |row: &Row| row.bandwidth_bytes_per_s;
            if let Some(yard) = self.rounds.get(&(place, bytes, place.yardstick())) {
                row.latency_x = row::median_ratio(rounds, yard, latency);
            }
            if let Some(yard) = self.rounds.get(&(place, bytes, place.yardstick_of_bandwidth())) {
                row.bandwidth_x = row::median_ratio(rounds, yard, bandwidth);
            }
            if let Some(device) =
                self.rounds.get(&(place, bytes, Layer::Device)).filter(|_| layer.is_of_a_job() || layer.is_bypassed())
            {
                row.latency_of_device = row::median_ratio(rounds, device, latency);
                row.bandwidth_of_device = row::median_ratio(rounds, device, bandwidth);
            }
            Some(row)
        });
        rows.filter(|row| row.latency_ns_p50.is_some() || row.bandwidth_bytes_per_s.is_some()).collect()
    }
}

impl Found {
    /// What MPI adds to rawdata, which is the floor below all messages of any order: by place and size, in nanoseconds one way and as a
    /// ratio, the medians of the differences and ratios within each round.
    pub fn taxes(&self) -> Vec<String> {
        let of_place = |place: Place| {
            let sizes = self.rounds.iter().filter(|((at, _, layer), _)| *at == place && *layer == Layer::Mpi);
            let words: Vec<String> = sizes.filter_map(|((_, bytes, _), mpi)| self.tax(place, *bytes, mpi)).collect();
            (!words.is_empty()).then(|| format!("mpi over rawdata, {}: {}", place.name(), words.join("; ")))
        };
        [Place::Node, Place::Core, Place::Net].into_iter().filter_map(of_place).collect()
    }

    fn tax(&self, place: Place, bytes: usize, mpi: &[Row]) -> Option<String> {
        let rawdata = self.rounds.get(&(place, bytes, Layer::Rawdata))?;
        let latency = |row: &Row| row.latency_ns_p50;
        let ratio = row::median_ratio(mpi, rawdata, latency)?;
        let mut added: Vec<f64> =
            mpi.iter().zip(rawdata).filter_map(|(mpi, rawdata)| Some(latency(mpi)? - latency(rawdata)?)).collect();
        added.sort_by(f64::total_cmp);
        let added = added.get(added.len() / 2)?;
        let sign = if *added < 0.0 { "-" } else { "+" };
        Some(format!("{} {sign}{} ({ratio:.2} x)", row::size(bytes), row::time(added.abs())))
    }
}

struct Run<'a> {
    wanted: &'a Wanted,
    pairs: BTreeMap<Place, Bench>,
    found: BTreeMap<(Place, usize, Layer), Vec<Row>>,
    given_up: BTreeMap<(Place, Layer), String>,
    left_out: BTreeSet<Layer>,
}

/// The two processes at one place, and what has to live as long as they do.
struct Bench {
    seats: [Seat; 2],
    pair: Option<Pair>,
    wire: Option<wire::Wire>,
}

impl Run<'_> {
    /// Every row once.
    fn round(&mut self, signals: &SignalFd) -> Result<(), Error> {
        let wanted = self.wanted;
        for &(place, layers) in PLAN {
            for &layer in layers.iter().filter(|layer| wanted.has_layer(**layer)) {
                if self.left_out.contains(&layer) {
                    continue;
                }
                if let Ok(signal) = signals.read() {
                    return Err(Error::Interrupted(describe(signal)));
                }
                if layer.is_of_a_job() || layer.is_bypassed() {
                    self.job(place, layer);
                    continue;
                }
                for &bytes in &wanted.bytes {
                    self.one(place, layer, bytes);
                }
            }
        }
        Ok(())
    }

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
        let figures =
            bench.pair(place).and_then(|pair| pair.measure(layer, bytes, self.wanted.budget, self.wanted.apart));
        match figures {
            Ok(figures) => {
                let row = Row::new(layer, place, bytes, figures);
                self.found.entry((place, bytes, layer)).or_default().push(row);
            }
            Err(error) => {
                bench.pair = None;
                let text = format!("{} on {} with {}: {error}", layer.name(), place.name(), row::size(bytes));
                self.given_up.insert((place, layer), text);
            }
        }
    }

    /// Measures all sizes of an interface once, in a job of two ranks or in two programs.
    fn job(&mut self, place: Place, layer: Layer) {
        let Some(bench) = self.pairs.get_mut(&place) else { return };
        if self.given_up.contains_key(&(place, layer)) {
            return;
        }
        match bench.job(place, layer, self.wanted) {
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
}

impl Bench {
    fn pair(&mut self, place: Place) -> Result<&mut Pair, Error> {
        let pair = match self.pair.take() {
            Some(pair) => pair,
            None => Pair::start(place, self.seats.clone())?,
        };
        Ok(self.pair.insert(pair))
    }

    fn job(&mut self, place: Place, layer: Layer, wanted: &Wanted) -> Result<Vec<Row>, Error> {
        let sizes: Vec<usize> = wanted.bytes.iter().copied().filter(|bytes| layer.carries(*bytes)).collect();
        let budget = wanted.budget;
        if sizes.is_empty() {
            return Ok(Vec::new());
        }
        let limit = JOB_LIMIT + Nanos(budget.0.saturating_mul(20 * sizes.len() as u64));
        let list = |words: Vec<String>| words.join(",");
        let budget = (budget.0 / 1000).to_string();
        let sizes = list(sizes.iter().map(usize::to_string).collect());
        let cores = list(self.seats.iter().map(|seat| seat.core.to_string()).collect());
        let mut words = vec!["--place", place.name(), "--budget-us", &budget, "--bytes", &sizes, "--cores", &cores];
        if wanted.apart {
            words.push("--apart");
        }
        if layer.is_bypassed() {
            return read_rows(&socket_layer::launch(layer, &words)?);
        }
        if let Some(wire) = &mut self.wire {
            wire.start_daemons()?;
        }
        let nodes = (place == Place::Net).then_some(2);
        let job = Job { enter: &self.seats[0].enter, ranks: 2, nodes, limit, options: &[] };
        read_rows(&job.run_ranks(&[&["messages", "--layer", layer.name()], &words[..]].concat())?)
    }
}

/// Rows as the measured processes write them.
fn read_rows(text: &str) -> Result<Vec<Row>, Error> {
    text.lines().map(|line| serde_json::from_str(line).map_err(|_| Error::Nonsense(line.to_string()))).collect()
}

/// What 44 datagrams hold.
const TRAIN_BYTES: usize = 44 * 1472;

/// What authentication and encryption cost, apart from everything else.
fn prices() -> String {
    let [small, full, train] = [8, 1472 - OVERHEAD, TRAIN_BYTES - OVERHEAD]
        .map(|bytes| [false, true].map(|secret| tag_price_ns(bytes, secret)));
    format!(
        "net: the tag of a frame costs {:.0} ns at either end around 8 bytes, {:.0} ns in a full datagram of 1472, {:.0} ns in a train of\n\
         44 of them; encrypted {:.0}, {:.0} and {:.0} ns",
        small[0], full[0], train[0], small[1], full[1], train[1]
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Figures;

    #[test]
    fn the_tax_of_mpi_is_taken_within_rounds() {
        let row =
            |layer, ns| Row::new(layer, Place::Node, 8, Figures { latency_ns_p50: Some(ns), ..Figures::default() });
        let rows = |layer, all: [f64; 3]| all.map(|ns| row(layer, ns)).to_vec();
        let mut found = Found { rounds: BTreeMap::new(), notes: Vec::new(), failed: false };
        assert!(found.taxes().is_empty());
        found.rounds.insert((Place::Node, 8, Layer::Mpi), rows(Layer::Mpi, [150.0, 600.0, 160.0]));
        assert!(found.taxes().is_empty());
        found.rounds.insert((Place::Node, 8, Layer::Rawdata), rows(Layer::Rawdata, [100.0, 400.0, 120.0]));
        assert_eq!(found.taxes(), ["mpi over rawdata, node: 8 B +50 ns (1.50 x)"]);
    }
}
