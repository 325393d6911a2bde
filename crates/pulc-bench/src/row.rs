//! One line of the result: what was measured, and how lines become JSON and a table. Called by the drivers; pure.

use crate::am::SHORT_MAX;
use crate::measure::Figures;
use serde::{Deserialize, Serialize};

/// What carries the messages, from the ground up, then what the kernel offers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Layer {
    /// A cache line handed from core to core (or core to itself), and memcpy
    Hardware,
    /// A device of pulc-hal: shm on a node, udp between nodes
    Device,
    /// A reliable link over the udp device
    Link,
    /// The same with everything encrypted
    Encrypted,
    /// Rawdata channels, the crate `pulc`
    Rawdata,
    /// The same, sent out of memory that the receiver reads
    Shared,
    /// Ordered ports, the crate `pulc`
    Port,
    /// Active messages, the crate `pulc`
    Am,
    /// The same with leaf handlers, up to 64 bytes
    Leaf,
    /// MPI, through the library that programs of the MPICH ABI load
    Mpi,
    /// TCP of an unmodified program, through the sockets bypass
    Socket,
    /// The same between two threads of one process
    Threads,
    Pipe,
    Unix,
    Tcp,
    Udp,
    /// UDP with segmentation offload, what moves most between nodes
    Gso,
}

/// Where the two processes are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// Two cores of one node
    Node,
    /// Both on one core
    Core,
    /// Two nodes
    Net,
}

/// The figures of one layer at one place with one message size. Null where a figure does not apply.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Row {
    pub layer: Layer,
    pub place: Place,
    pub bytes: usize,
    pub latency_ns_p50: Option<f64>,
    pub latency_ns_p99: Option<f64>,
    pub bandwidth_bytes_per_s: Option<f64>,
    pub messages_per_s: Option<f64>,
    /// Times the yardstick of the place: see [`median_ratio`]. For the table only.
    #[serde(skip)]
    pub latency_x: Option<f64>,
    #[serde(skip)]
    pub bandwidth_x: Option<f64>,
    /// Times the row of the device; for interfaces only.
    #[serde(skip)]
    pub latency_of_device: Option<f64>,
    #[serde(skip)]
    pub bandwidth_of_device: Option<f64>,
}

impl Row {
    /// What one round has found.
    pub fn new(layer: Layer, place: Place, bytes: usize, figures: Figures) -> Row {
        Row {
            layer,
            place,
            bytes,
            latency_ns_p50: figures.latency_ns_p50,
            latency_ns_p99: figures.latency_ns_p99,
            bandwidth_bytes_per_s: figures.bandwidth_bytes_per_s,
            messages_per_s: figures.messages_per_s,
            latency_x: None,
            bandwidth_x: None,
            latency_of_device: None,
            bandwidth_of_device: None,
        }
    }
}

impl Layer {
    /// Whether it carries messages of this length.
    pub fn carries(self, bytes: usize) -> bool {
        self != Layer::Leaf || bytes <= SHORT_MAX
    }

    /// Whether its processes are ranks of a job, started by the launcher.
    pub fn is_of_a_job(self) -> bool {
        matches!(self, Layer::Rawdata | Layer::Shared | Layer::Port | Layer::Am | Layer::Leaf | Layer::Mpi)
    }

    /// Whether it is an unmodified program's socket, started with the bypass before it.
    pub fn is_bypassed(self) -> bool {
        matches!(self, Layer::Socket | Layer::Threads)
    }

    pub fn name(self) -> &'static str {
        match self {
            Layer::Hardware => "hardware",
            Layer::Device => "device",
            Layer::Link => "link",
            Layer::Encrypted => "encrypted",
            Layer::Rawdata => "rawdata",
            Layer::Shared => "shared",
            Layer::Port => "port",
            Layer::Am => "am",
            Layer::Leaf => "leaf",
            Layer::Mpi => "mpi",
            Layer::Socket => "socket",
            Layer::Threads => "threads",
            Layer::Pipe => "pipe",
            Layer::Unix => "unix",
            Layer::Tcp => "tcp",
            Layer::Udp => "udp",
            Layer::Gso => "gso",
        }
    }
}

impl Place {
    pub fn name(self) -> &'static str {
        match self {
            Place::Node => "node",
            Place::Core => "core",
            Place::Net => "net",
        }
    }

    /// What stands above this place's part of the table.
    pub fn title(self) -> &'static str {
        match self {
            Place::Node => "two cores of one node",
            Place::Core => "both processes on one core",
            Place::Net => "two nodes",
        }
    }

    /// The row that the others' latency is compared with: there is no raw memory between nodes, so bare UDP stands in.
    pub fn yardstick(self) -> Layer {
        if self == Place::Net { Layer::Udp } else { Layer::Hardware }
    }

    /// The same for bandwidth: between nodes UDP with segmentation offload, which moves several times as much.
    pub fn yardstick_of_bandwidth(self) -> Layer {
        if self == Place::Net { Layer::Gso } else { Layer::Hardware }
    }

    /// What the columns `x` are times of.
    fn yardsticks(self) -> &'static str {
        match self {
            Place::Net => "x = times udp, of bandwidth times gso",
            Place::Node | Place::Core => "x = times hardware",
        }
    }
}

/// Puts together what several rounds measured of the same thing: the median of each figure.
pub fn median_of(rounds: &[Row]) -> Option<Row> {
    let first = rounds.first()?;
    let median = |figure: fn(&Row) -> Option<f64>| {
        let mut found: Vec<f64> = rounds.iter().filter_map(figure).collect();
        found.sort_by(f64::total_cmp);
        found.get(found.len() / 2).copied()
    };
    let figures = Figures {
        latency_ns_p50: median(|row| row.latency_ns_p50),
        latency_ns_p99: median(|row| row.latency_ns_p99),
        bandwidth_bytes_per_s: median(|row| row.bandwidth_bytes_per_s),
        messages_per_s: median(|row| row.messages_per_s),
    };
    Some(Row::new(first.layer, first.place, first.bytes, figures))
}

/// How many times the yardstick a figure is: the median over rounds of the ratio *within* a round. The host of a virtual
/// machine moves its cores about, so that the hop between them changes by the second; a ratio of two medians would compare
/// moments that never were together.
pub fn median_ratio(rounds: &[Row], yard: &[Row], figure: fn(&Row) -> Option<f64>) -> Option<f64> {
    let mut ratios: Vec<f64> = rounds
        .iter()
        .zip(yard)
        .filter_map(|(row, yard)| Some(figure(row)? / figure(yard).filter(|yard| *yard > 0.0)?))
        .collect();
    ratios.sort_by(f64::total_cmp);
    ratios.get(ratios.len() / 2).copied()
}

/// One JSON object a line, figures rounded to what they are worth.
pub fn json_lines(rows: &[Row]) -> String {
    let mut text = String::new();
    for row in rows {
        let mut row = row.clone();
        for figure in [&mut row.latency_ns_p50, &mut row.latency_ns_p99] {
            *figure = figure.map(|ns| (ns * 10.0).round() / 10.0);
        }
        for figure in [&mut row.bandwidth_bytes_per_s, &mut row.messages_per_s] {
            *figure = figure.map(f64::round);
        }
        text += &serde_json::to_string(&row).expect("a row has only names and finite numbers");
        text.push('\n');
    }
    text
}

/// A table for people, one part a place, each figure beside its ratio to the yardstick of that place.
pub fn table(rows: &[Row]) -> String {
    let mut text = String::new();
    for place in [Place::Node, Place::Core, Place::Net] {
        let here: Vec<&Row> = rows.iter().filter(|row| row.place == place).collect();
        if here.is_empty() {
            continue;
        }
        text += &format!("\n{} ({}); {}\n", place.title(), place.name(), place.yardsticks());
        text += &format!(
            "{:>9}  {:<9} {:>10} {:>7} {:>7} {:>10} {:>12} {:>7} {:>7} {:>12}\n",
            "bytes", "layer", "p50", "x", "/device", "p99", "bandwidth", "x", "/device", "messages/s"
        );
        let mut previous = None;
        for row in here.iter().copied() {
            let bytes = if previous == Some(row.bytes) { String::new() } else { size(row.bytes) };
            previous = Some(row.bytes);
            text += &format!(
                "{:>9}  {:<9} {:>10} {:>7} {:>7} {:>10} {:>12} {:>7} {:>7} {:>12}\n",
                bytes,
                row.layer.name(),
                shown(row.latency_ns_p50, time),
                ratio(row.latency_x),
                ratio(row.latency_of_device),
                shown(row.latency_ns_p99, time),
                shown(row.bandwidth_bytes_per_s, rate),
                ratio(row.bandwidth_x),
                ratio(row.bandwidth_of_device),
                shown(row.messages_per_s, count),
            );
        }
    }
    text
}

pub fn shown(figure: Option<f64>, how: fn(f64) -> String) -> String {
    figure.map_or_else(|| "-".into(), how)
}

pub fn ratio(ratio: Option<f64>) -> String {
    match ratio {
        Some(ratio) if ratio < 10.0 => format!("{ratio:.2}"),
        Some(ratio) => format!("{ratio:.0}"),
        None => "-".into(),
    }
}

/// `8 B`, `64 KiB`.
pub fn size(bytes: usize) -> String {
    match bytes {
        _ if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes >= 1 << 10 && bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

/// `55 ns`, `1.23 us`, `4.0 ms`.
pub fn time(ns: f64) -> String {
    match ns {
        _ if ns < 1e3 => format!("{ns:.0} ns"),
        _ if ns < 1e6 => format!("{:.2} us", ns / 1e3),
        _ if ns < 1e9 => format!("{:.2} ms", ns / 1e6),
        _ => format!("{:.2} s", ns / 1e9),
    }
}

pub fn rate(bytes_per_s: f64) -> String {
    if bytes_per_s < 1e9 { format!("{:.1} MB/s", bytes_per_s / 1e6) } else { format!("{:.2} GB/s", bytes_per_s / 1e9) }
}

fn count(per_s: f64) -> String {
    if per_s < 1e6 { format!("{:.1} k/s", per_s / 1e3) } else { format!("{:.2} M/s", per_s / 1e6) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(layer: Layer, latency: Option<f64>, bandwidth: Option<f64>) -> Row {
        let figures = Figures {
            latency_ns_p50: latency,
            latency_ns_p99: latency,
            bandwidth_bytes_per_s: bandwidth,
            messages_per_s: None,
        };
        Row::new(layer, Place::Node, 8, figures)
    }

    #[test]
    fn a_json_line_has_exactly_the_agreed_fields() {
        let line = json_lines(&[row(Layer::Hardware, Some(54.26), None)]);
        assert_eq!(
            line,
            "{\"layer\":\"hardware\",\"place\":\"node\",\"bytes\":8,\"latency_ns_p50\":54.3,\"latency_ns_p99\":54.3,\
             \"bandwidth_bytes_per_s\":null,\"messages_per_s\":null}\n"
        );
    }

    #[test]
    fn rounds_give_their_median_and_figures_that_do_not_apply_stay_away() {
        let rounds = [90.0, 10.0, 50.0].map(|ns| row(Layer::Port, Some(ns), None));
        let median = median_of(&rounds).unwrap();
        assert_eq!((median.latency_ns_p50, median.bandwidth_bytes_per_s), (Some(50.0), None));
        assert_eq!(median_of(&[]), None);
    }

    #[test]
    fn the_table_shows_ratios_to_the_hardware_row_of_the_same_round() {
        let hops = [50.0, 200.0, 60.0].map(|ns| row(Layer::Hardware, Some(ns), None));
        let ports = [125.0, 400.0, 180.0].map(|ns| row(Layer::Port, Some(ns), Some(2e9)));
        let mut median = median_of(&ports).unwrap();
        median.latency_x = median_ratio(&ports, &hops, |row| row.latency_ns_p50);
        median.bandwidth_x = median_ratio(&ports, &hops, |row| row.bandwidth_bytes_per_s);
        let text = table(&[median]);
        let port = text.lines().find(|line| line.contains("port")).unwrap();
        assert!(port.contains("180 ns    2.50"), "{text}");
        assert!(port.contains("2.00 GB/s       -"), "{text}");
    }
}
