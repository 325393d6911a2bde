//! `pulc bench shares`: what the interfaces leave of the bandwidth that the device moves and of memcpy, between two cores of one node,
//! in interleaved rounds. Called by the command line.

use crate::Error;
use crate::layers::parse_bytes;
use crate::rounds::{BUDGET, BUDGET_QUICK, Wanted, measure};
use crate::row::{self, Layer, Place};
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    /// Message sizes in bytes
    #[arg(long, value_delimiter = ',', default_value = "64k,1M,16M", value_parser = parse_bytes)]
    bytes: Vec<usize>,
    /// Interleaved rounds, of which the median ratio is shown
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// One short round: does it all work
    #[arg(long)]
    quick: bool,
    /// One JSON object per line instead of a table
    #[arg(long)]
    json: bool,
}

/// memcpy is the bandwidth of the hardware's row.
const LAYERS: [Layer; 6] = [Layer::Hardware, Layer::Device, Layer::Rawdata, Layer::Shared, Layer::Port, Layer::Am];

pub fn run(args: &Args) -> Result<ExitCode, Error> {
    let (rounds, budget) = if args.quick { (1, BUDGET_QUICK) } else { (args.rounds, BUDGET) };
    let (bytes, layers, places) = (args.bytes.clone(), LAYERS.to_vec(), vec![Place::Node]);
    let wanted = Wanted { bytes, layers, places, rounds, budget, apart: false };
    let found = measure(&wanted)?;
    if !args.json {
        println!("bandwidth between two cores of one node; shares are medians of the ratios within {rounds} rounds\n");
        println!("{:>9}  {:<9} {:>12} {:>9} {:>9}", "bytes", "layer", "bandwidth", "/memcpy", "/device");
    }
    for row in found.rows() {
        if args.json {
            let line = serde_json::json!({
                "layer": row.layer, "bytes": row.bytes, "bandwidth_bytes_per_s": row.bandwidth_bytes_per_s,
                "of_memcpy": row.bandwidth_x, "of_device": row.bandwidth_of_device,
            });
            println!("{line}");
        } else {
            let bandwidth = row::shown(row.bandwidth_bytes_per_s, row::rate);
            let (memcpy, device) = (row::ratio(row.bandwidth_x), row::ratio(row.bandwidth_of_device));
            println!("{:>9}  {:<9} {bandwidth:>12} {memcpy:>9} {device:>9}", row::size(row.bytes), row.layer.name());
        }
    }
    found.notes.iter().for_each(|note| eprintln!("pulc: {note}"));
    Ok(if found.failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
