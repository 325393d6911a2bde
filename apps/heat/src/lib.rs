#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod decomposition;
pub mod error;
pub mod exchange;
pub mod gather;
pub mod image_files;
pub mod kernel;
pub mod options;
pub mod palette;
pub mod report;
pub mod resample;
pub mod run;
pub mod solver;
pub mod start;
pub mod terminal;
pub mod verify;
pub mod viewer;

use clap::Parser;
use error::HeatError;
use exchange::ports::PortExchange;
use options::Options;
use std::ffi::OsString;
use std::process::ExitCode;

/// The program `heat`: everything but `std::env::args`. Rank 0 speaks for all.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let pulc = match pulc::Pulc::attach() {
        Ok(pulc) => pulc,
        Err(error) => {
            eprintln!("heat: {error}");
            return ExitCode::FAILURE;
        }
    };
    let speaks = pulc.rank().0 == 0;
    let options = match Options::try_parse_from(arguments) {
        Ok(options) => options,
        Err(error) => {
            if speaks {
                let _ = error.print();
            } else if let Ok(mut exchange) = PortExchange::open(&pulc) {
                exchange::outlive_rank_0(&mut exchange);
            }
            return ExitCode::from(error.exit_code() as u8);
        }
    };
    let result = PortExchange::open(&pulc)
        .map_err(|error| HeatError::Exchange(exchange::ExchangeError::Other(error.to_string())))
        .and_then(|mut exchange| run::run(&options, pulc.nodes().len(), &mut exchange));
    match result {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(report)) => finish(&options, &report),
        Err(error) => {
            if speaks || matches!(error, HeatError::NoMemory { .. }) {
                eprintln!("heat: {error}");
            }
            ExitCode::from(error.exit_code())
        }
    }
}

fn finish(options: &Options, report: &report::Report) -> ExitCode {
    use std::io::Write;
    let text = match (options.json, options.quiet) {
        (true, _) => format!("{}\n", report.to_json()),
        (false, true) => String::new(),
        (false, false) => report.to_text(),
    };
    if std::io::stdout().write_all(text.as_bytes()).is_err() {
        eprintln!("heat: cannot write the result to standard output");
        return ExitCode::FAILURE;
    }
    match report.verification.as_ref().and_then(verify::Verification::failure) {
        None => ExitCode::SUCCESS,
        Some(why) => {
            let error = HeatError::Verification(why);
            eprintln!("heat: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}
