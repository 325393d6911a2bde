//! How the comparison is shown: a table with a column for each MPI, JSON, and plots. Pure, but for the plots' files.

use super::Found;
use super::find::Mpi;
use super::tasks::Task;
use crate::Error;
use crate::plot::{Corner, Line, draw_lines};
use crate::row::{self, Place};
use std::path::{Path, PathBuf};

/// Whether less is better, and how values are written.
struct Figure {
    name: &'static str,
    text: &'static str,
    less_is_better: bool,
    shown: fn(f64) -> String,
}

/// The run whose messages are compared with the hardware.
const NEAR: Task = Task::Pair(Place::Node);
/// Latencies are judged in rounds whose raw hand-over, in nanoseconds, is at most this: in others the cores lie far from each other.
const NEAR_HOP: f64 = 70.0;
/// Places that are drawn, and how their files end.
const PLOTTED: [(Place, &str, &str); 2] =
    [(Place::Node, "two cores of one node", ""), (Place::Net, "two nodes", "-net")];

const FIGURES: [Figure; 16] = [
    Figure { name: "latency", text: "one way", less_is_better: true, shown: row::time },
    Figure { name: "rate", text: "messages/s", less_is_better: false, shown: millions },
    Figure { name: "stream", text: "stream", less_is_better: false, shown: row::rate },
    Figure { name: "blocked", text: "cpu while blocked", less_is_better: true, shown: share },
    Figure { name: "idle", text: "share idle", less_is_better: true, shown: memory },
    Figure { name: "share", text: "after all-to-all", less_is_better: true, shown: memory },
    Figure { name: "barrier", text: "barrier", less_is_better: true, shown: row::time },
    Figure { name: "allreduce", text: "allreduce", less_is_better: true, shown: row::time },
    Figure { name: "bcast", text: "bcast", less_is_better: true, shown: row::time },
    Figure { name: "start", text: "start and end", less_is_better: true, shown: row::time },
    Figure { name: "alltoall", text: "alltoall", less_is_better: true, shown: row::time },
    Figure { name: "alltoallv", text: "alltoallv", less_is_better: true, shown: row::time },
    Figure { name: "allgatherv", text: "allgatherv", less_is_better: true, shown: row::time },
    Figure { name: "gatherv", text: "gatherv", less_is_better: true, shown: row::time },
    Figure { name: "scan", text: "scan", less_is_better: true, shown: row::time },
    Figure { name: "reduce_scatter", text: "reduce_scatter", less_is_better: true, shown: row::time },
];

fn millions(rate: f64) -> String {
    format!("{:.2} M", rate / 1e6)
}

fn memory(bytes: f64) -> String {
    format!("{:.2} MiB", bytes / f64::from(1 << 20))
}

fn share(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// One line of the result: the medians of all MPIs, PULC's first.
struct Compared<'a> {
    task: Task,
    figure: &'a Figure,
    bytes: usize,
    medians: Vec<Option<f64>>,
    /// Ours as a part of the best other's.
    ratio: Option<f64>,
    /// The same of the runs whose two cores were near, where that was looked at.
    near: Option<f64>,
}

fn compared(found: &Found) -> Vec<Compared<'_>> {
    let mut all = Vec::new();
    for figure in &FIGURES {
        for ((task, _, bytes), rounds) in found.values.iter().filter(|((_, name, _), _)| name == figure.name) {
            let medians: Vec<Option<f64>> = rounds.iter().map(|values| median(values.iter().flatten())).collect();
            let ratio = ratio(&medians, figure.less_is_better);
            let near =
                (*task == NEAR).then(|| near(found, rounds)).and_then(|near| self::ratio(&near, figure.less_is_better));
            all.push(Compared { task: *task, figure, bytes: *bytes, medians, ratio, near });
        }
    }
    all.sort_by_key(|line| line.task);
    all
}

/// The first one, ours, as a part of the best other.
fn ratio(medians: &[Option<f64>], less_is_better: bool) -> Option<f64> {
    let others = medians[1..].iter().flatten().copied();
    let best = if less_is_better { others.reduce(f64::min) } else { others.reduce(f64::max) };
    medians[0].zip(best).map(|(ours, best)| ours / best).filter(|ratio| ratio.is_finite())
}

/// The medians of the runs whose two cores were near.
fn near(found: &Found, rounds: &[Vec<Option<f64>>]) -> Vec<Option<f64>> {
    let of = |(index, values): (usize, &Vec<Option<f64>>)| {
        let near = |(value, hop): (&Option<f64>, &Option<f64>)| hop.filter(|hop| *hop <= NEAR_HOP).and(*value);
        let hops = found.hops.get(index).map_or(&[][..], Vec::as_slice);
        median(values.iter().zip(hops).filter_map(near).collect::<Vec<f64>>().iter())
    };
    rounds.iter().enumerate().map(of).collect()
}

fn median<'a>(values: impl Iterator<Item = &'a f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.copied().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

pub fn table(mpis: &[&Mpi], found: &Found) {
    for mpi in mpis {
        println!("{:<10} {}", mpi.name, mpi.version);
    }
    let rounds = found.rounds();
    println!("\nmedians of {rounds} interleaved rounds; x: PULC's divided by the best other's;");
    println!(
        "near: the same of the runs before and after which a cache line was handed over in at most {}",
        row::time(NEAR_HOP)
    );
    print!("\n{:>3} {:<4} {:>18} {:>9}", "n", "", "", "bytes");
    mpis.iter().for_each(|mpi| print!(" {:>11}", mpi.name));
    println!(" {:>7} {:>7}", "x", "near");
    let shown = |ratio: Option<f64>| ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
    for line in compared(found) {
        let (ranks, place) = (line.task.ranks(), line.task.place().name());
        print!("{ranks:>3} {place:<4} {:>18} {:>9}", line.figure.text, row::size(line.bytes));
        for median in &line.medians {
            print!(" {:>11}", median.map_or_else(|| "-".to_owned(), line.figure.shown));
        }
        let near = if line.task == NEAR { shown(line.near) } else { String::new() };
        println!("{}", format!(" {:>7} {near:>7}", shown(line.ratio)).trim_end());
    }
    above_hardware(mpis, found);
}

/// Latency less the raw hand-over, and bandwidth as a share of memcpy's.
fn above_hardware(mpis: &[&Mpi], found: &Found) {
    if let Some(rounds) = found.values.get(&(NEAR, "latency".to_owned(), 8)) {
        println!(
            "\nhand-over of a cache line beside it; 8 bytes one way less that, and as a multiple of it; runs, near ones:"
        );
        for ((mpi, values), hops) in mpis.iter().zip(rounds).zip(&found.hops) {
            let both: Vec<(f64, f64)> = values.iter().zip(hops).filter_map(|(value, hop)| value.zip(*hop)).collect();
            let of = |with: fn(&(f64, f64)) -> f64| median(both.iter().map(with).collect::<Vec<f64>>().iter());
            let (Some(hop), Some(above), Some(times)) =
                (of(|(_, hop)| *hop), of(|(value, hop)| value - hop), of(|(value, hop)| value / hop))
            else {
                continue;
            };
            let near = both.iter().filter(|(_, hop)| *hop <= NEAR_HOP).count();
            println!(
                "{:<10} {:>9} {:>9} {times:>6.2} x {:>3} {near:>3}",
                mpi.name,
                row::time(hop),
                row::time(above),
                both.len()
            );
        }
    }
    judged(found);
    for (bytes, copies) in &found.copies {
        let (Some(copy), Some(rounds)) =
            (median(copies.iter()), found.values.get(&(NEAR, "latency".to_owned(), *bytes)))
        else {
            continue;
        };
        print!("{} one way as a share of memcpy's {}:", row::size(*bytes), row::rate(copy));
        for (mpi, values) in mpis.iter().zip(rounds) {
            if let Some(time) = median(values.iter().flatten()) {
                print!("  {} {:.2}", mpi.name, *bytes as f64 / time * 1e9 / copy);
            }
        }
        println!();
    }
}

/// What is added to the hand-over of a cache line, ours as a part of the best other's, in the rounds in which the two cores were near.
fn judged(found: &Found) {
    let Some(rounds) = found.values.get(&(NEAR, "latency".to_owned(), 8)) else { return };
    let ratios: Vec<f64> = (0..found.rounds()).filter_map(|at| added(rounds, &found.hops, at)).collect();
    match median(ratios.iter()) {
        Some(ratio) => println!(
            "8 bytes less the hand-over, PULC's divided by the best other's, median of {} rounds with hand-overs of at most {}: {ratio:.2}",
            ratios.len(),
            row::time(NEAR_HOP)
        ),
        None => println!("no round had a hand-over of at most {}: latencies are not judged", row::time(NEAR_HOP)),
    }
}

/// Ours as a part of the best other's in one round, each less the hand-over beside it; of those whose cores were near.
fn added(rounds: &[Vec<Option<f64>>], hops: &[Vec<Option<f64>>], at: usize) -> Option<f64> {
    let of = |(values, hops): (&Vec<Option<f64>>, &Vec<Option<f64>>)| {
        let (value, hop) = (values.get(at).copied().flatten()?, hops.get(at).copied().flatten()?);
        (hop <= NEAR_HOP && value > hop).then_some(value - hop)
    };
    let mut above = rounds.iter().zip(hops).map(of);
    let ours = above.next().flatten()?;
    above.flatten().reduce(f64::min).map(|best| ours / best)
}

pub fn json(mpis: &[&Mpi], found: &Found) {
    let hardware = serde_json::json!({ "hop_ns_by_mpi": found.hops, "memcpy_bytes_per_s": found.copies });
    let versions: Vec<_> =
        mpis.iter().map(|mpi| serde_json::json!({ "name": mpi.name, "version": mpi.version })).collect();
    println!("{}", serde_json::json!({ "mpis": versions, "hardware": hardware }));
    for ((task, name, bytes), rounds) in &found.values {
        for (mpi, values) in mpis.iter().zip(rounds) {
            let line = serde_json::json!({
                "ranks": task.ranks(), "place": task.place(), "figure": name, "bytes": bytes, "mpi": mpi.name,
                "median": median(values.iter().flatten()), "rounds": values,
            });
            println!("{line}");
        }
    }
}

/// Latency and bandwidth against message size, one line an MPI.
pub fn plots(mpis: &[&Mpi], found: &Found, directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let lines = |place: Place, of: fn(usize, f64) -> f64| -> Vec<Line> {
        let mut lines: Vec<Line> = mpis.iter().enumerate().map(|(at, mpi)| Line::numbered(at, &mpi.name)).collect();
        for ((task, name, bytes), rounds) in &found.values {
            if (*task, name.as_str()) != (Task::Pair(place), "latency") || *bytes == 0 {
                continue;
            }
            for (line, values) in lines.iter_mut().zip(rounds) {
                line.points.extend(median(values.iter().flatten()).map(|time| (*bytes as f64, of(*bytes, time))));
            }
        }
        lines.retain(|line| !line.points.is_empty());
        lines
    };
    let mut files = Vec::new();
    for (place, place_text, suffix) in PLOTTED {
        let times = lines(place, |_, time| time);
        if times.is_empty() {
            continue;
        }
        let rates = lines(place, |bytes, time| bytes as f64 / time * 1e9);
        let name = |name: &str| directory.join(format!("peers-{name}{suffix}"));
        let (one_way, bandwidth) = (format!("MPI, one way, {place_text}"), format!("MPI, bandwidth, {place_text}"));
        files.extend(draw_lines(&one_way, times, row::time, Corner::LowerRight, &name("latency"))?);
        files.extend(draw_lines(&bandwidth, rates, row::rate, Corner::UpperLeft, &name("bandwidth"))?);
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_is_compared_with_the_best_other_in_the_right_direction() {
        let mut found = Found::default();
        for (index, text) in
            ["latency 8 100\nrate 8 3e7\n", "latency 8 200\nrate 8 1e7\n", "latency 8 150\nrate 8 2e7\n"]
                .into_iter()
                .enumerate()
        {
            found.take(text, NEAR, index, 3, 0);
        }
        let lines = compared(&found);
        assert_eq!(lines[0].ratio.map(|ratio| (ratio * 300.0).round()), Some(200.0));
        assert_eq!(lines[1].ratio, Some(1.5));
    }

    #[test]
    fn a_round_without_a_value_is_no_value() {
        let mut found = Found::default();
        found.take("barrier 0 5\nnot a figure\nbarrier 0 x\n", Task::Many(4), 1, 2, 2);
        assert_eq!(found.values[&(Task::Many(4), "barrier".to_owned(), 0)], [vec![], vec![None, None, Some(5.0)]]);
        assert_eq!(compared(&found)[0].ratio, None);
    }

    #[test]
    fn latencies_are_judged_in_rounds_whose_cores_were_near_and_against_the_best_of_that_round() {
        let rounds = [vec![Some(100.0), Some(300.0)], vec![Some(150.0), Some(200.0)], vec![Some(260.0), None]];
        let hops = [vec![Some(50.0), Some(60.0)], vec![Some(50.0), Some(60.0)], vec![Some(50.0), Some(60.0)]];
        assert_eq!(added(&rounds, &hops, 0), Some(0.5));
        assert_eq!(added(&rounds, &hops, 1).map(|ratio| (ratio * 140.0).round()), Some(240.0));
        assert_eq!(added(&rounds, &hops, 2), None);
        // Who ran while the cores were apart is not compared with; ours apart: no round to judge by.
        let apart = [hops[0].clone(), vec![Some(71.0); 2], hops[2].clone()];
        assert_eq!(added(&rounds, &apart, 0).map(|ratio| (ratio * 210.0).round()), Some(50.0));
        assert_eq!(added(&rounds, &[vec![Some(71.0); 2], vec![], vec![]], 0), None);
    }

    #[test]
    fn near_runs_are_compared_by_themselves() {
        let mut found =
            Found { hops: vec![vec![Some(50.0), Some(200.0)], vec![Some(200.0), Some(50.0)]], ..Found::default() };
        for (index, round, text) in
            [(0, 0, "latency 8 100"), (0, 1, "latency 8 900"), (1, 0, "latency 8 800"), (1, 1, "latency 8 200")]
        {
            found.take(text, NEAR, index, 2, round);
        }
        let lines = compared(&found);
        assert_eq!((lines[0].near, lines[0].ratio), (Some(0.5), Some(900.0 / 800.0)));
    }
}
