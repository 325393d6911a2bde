//! `pulc bench layers`: every floor of the house beside what the kernel offers, in one run. Rounds are interleaved (`rounds`);
//! what is shown is the median of the rounds, as a table, as JSON, and as a plot if wanted.

use crate::rounds::{BUDGET, BUDGET_QUICK, Wanted, measure};
use crate::row::{self, Layer, Place};
use crate::{Error, plot};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    /// One JSON object per line instead of a table
    #[arg(long)]
    json: bool,
    /// Message sizes in bytes, at least 8 [default: 8,64,1k,64k,1M; with a plot from 8 B to 16 MiB]
    #[arg(long, value_delimiter = ',', value_parser = parse_bytes)]
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
    /// Receive into another buffer than what is sent, which then rests, as benchmarks of MPI do
    #[arg(long)]
    apart: bool,
    /// Draw latency and bandwidth against message size into this folder, as SVG and PNG
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,
}

const BYTES_MAX: usize = 64 << 20;
const SIZES: [usize; 5] = [8, 64, 1 << 10, 64 << 10, 1 << 20];
/// Sizes of a plot: from 8 B to 16 MiB by factors of four or eight.
const SIZES_OF_A_PLOT: [usize; 12] =
    [8, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 8 << 20, 16 << 20];

pub fn run(args: &Args) -> Result<ExitCode, Error> {
    let (rounds, budget) = if args.quick { (1, BUDGET_QUICK) } else { (args.rounds, BUDGET) };
    let bytes = match (&args.bytes[..], &args.plot) {
        ([], None) => SIZES.to_vec(),
        ([], Some(_)) => SIZES_OF_A_PLOT.to_vec(),
        (bytes, _) => bytes.to_vec(),
    };
    let (layers, places) = (args.layers.clone(), args.places.clone());
    let wanted = Wanted { bytes, layers, places, rounds, budget, apart: args.apart };
    let mut found = measure(&wanted)?;
    let rows = found.rows();
    if let Some(directory) = &args.plot {
        let files = plot::draw(&rows, directory)?;
        found.notes.extend(files.iter().map(|file| format!("drawn: {}", file.display())));
    }
    if args.json {
        print!("{}", row::json_lines(&rows));
        found.notes.iter().for_each(|note| eprintln!("pulc: {note}"));
    } else {
        print!("{}", row::table(&rows));
        println!(
            "\nOne way; medians of {rounds} interleaved rounds, x and /device of the ratios within each. p50 and p99 are over round trips, over"
        );
        println!(
            "blocks of 2 us where one is shorter. pipe, unix, tcp and udp poll without sleeping, on one core they block; gso polls, then sleeps."
        );
        println!(
            "hardware: a cache line handed over, on one core the core itself by yielding; its bandwidth is memcpy."
        );
        println!("socket, threads: blocking calls through the bypass, between two processes and two threads of one.");
        found.taxes().iter().for_each(|tax| println!("{tax}"));
        found.notes.iter().for_each(|note| println!("{note}"));
    }
    Ok(if found.failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// `8`, `64k`, `1M`; at least a word, at most [`BYTES_MAX`].
pub fn parse_bytes(text: &str) -> Result<usize, String> {
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
