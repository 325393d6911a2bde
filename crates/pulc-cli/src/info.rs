//! `pulc info`: what this build is, what it found on this machine, and every parameter, switch and limit with the source of its value.

mod machine;
mod switches;

use pulc_base::param::{Fixed, Param, Source};
use pulc_control::Client;
use pulc_control::place::Place;
use pulc_hal::calibration;
use pulc_hal::os::cpu;
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    /// One JSON object per parameter, switch and limit
    #[arg(long)]
    json: bool,
    /// Measure this machine's thresholds again first
    #[arg(long)]
    measure: bool,
}

/// The tables of all floors, from the ground up.
fn tables() -> [(&'static str, &'static [&'static Param]); 9] {
    [
        ("shm", pulc_hal::device::shm::PARAMS),
        ("link", pulc_link::PARAMS),
        ("fault", pulc_hal::device::fault::PARAMS),
        ("handler", pulc_handler::params::PARAMS),
        ("port", pulc::params::PARAMS),
        ("mpi", pulc_handler::mpi_params::PARAMS),
        ("mesh", pulc_psid::mesh::PARAMS),
        ("jobs", pulc_psid::jobs::patience::PARAMS),
        ("stage", pulc_psid::stage::PARAMS),
    ]
}

/// What no setting changes, in the same order.
fn fixed() -> [(&'static str, &'static [Fixed]); 7] {
    [
        ("shm", pulc_hal::device::shm::FIXED),
        ("net", pulc_hal::device::net::FIXED),
        ("link", pulc_link::FIXED),
        ("handler", pulc_handler::params::FIXED),
        ("port", pulc::params::FIXED),
        ("jobs", pulc_psid::jobs::patience::FIXED),
        ("queue", pulc_psid::queue::FIXED),
    ]
}

pub fn run(args: &Args) -> ExitCode {
    if args.measure {
        // A file of earlier makes no difference: what was just measured is what counts.
        pulc_base::param::set_calibrated(calibration::measure_again());
    } else {
        calibration::load();
    }
    if args.json {
        print_json();
        return ExitCode::SUCCESS;
    }
    println!("pulc {}, protocol version {}", env!("CARGO_PKG_VERSION"), pulc_base::PROTOCOL_VERSION);
    let caches = cpu::caches();
    match cpu::allowed_cores() {
        Ok(cores) => print!("{} cores may be used", cores.len()),
        Err(error) => print!("cores unknown ({error})"),
    }
    println!(", L2 {} KiB, L3 {} KiB", caches.l2_bytes >> 10, caches.l3_bytes >> 10);
    match calibration::file_and_state() {
        Some((path, true)) => println!("calibration in {}", path.display()),
        Some((path, false)) => {
            println!("not calibrated yet; the next `pulc run` does it first, into {}", path.display())
        }
        None => println!("no calibration: no cache folder, or switched off by PULC_CALIBRATION"),
    }
    print_daemon();
    println!("{:<32} {:>12} {:>12} {:>24}  meaning", "environment variable", "value", "source", "limits");
    parameters(|_, param, value, source| {
        let limits = format!("{}..={}", param.min, param.max);
        println!("{:<32} {value:>12} {source:>12} {limits:>24}  {}", param.variable(), param.text);
    });
    println!("\n{:<32} {:>12} {:>12} {:>24}  meaning", "switch", "value", "source", "");
    for switch in switches::SWITCHES {
        let (value, source) = switch.read();
        println!("{:<32} {value:>12} {source:>12} {:>24}  {}", switch.variable, "", switch.text);
    }
    println!("\n{:<32} {:>12} {:>12} {:>24}  meaning", "limit", "value", "source", "");
    for (_, limits) in fixed() {
        for limit in limits {
            println!("{:<32} {:>12} {:>12} {:>24}  {}", limit.name, limit.value, "built in", "", limit.text);
        }
    }
    for limit in machine::limits() {
        println!("{:<32} {:>12} {:>12} {:>24}  {}", limit.name, limit.value, "machine", "", limit.text);
    }
    ExitCode::SUCCESS
}

/// One object a line; what a row does not have is null.
fn print_json() {
    parameters(|floor, param, value, source| {
        let line = serde_json::json!({
            "floor": floor, "name": param.name, "variable": param.variable(), "value": value, "source": source,
            "default": param.default, "min": param.min, "max": param.max,
        });
        println!("{line}");
    });
    for switch in switches::SWITCHES {
        let (value, source) = switch.read();
        let line = serde_json::json!({
            "floor": "switch", "name": switch.name(), "variable": switch.variable, "value": value, "source": source,
            "default": switch.default, "min": null, "max": null,
        });
        println!("{line}");
    }
    let built_in =
        fixed().into_iter().flat_map(|(floor, limits)| limits.iter().map(move |limit| (floor, "built in", limit)));
    let found = machine::limits();
    for (floor, source, limit) in built_in.chain(found.iter().map(|limit| ("machine", "machine", limit))) {
        let line = serde_json::json!({
            "floor": floor, "name": limit.name, "variable": null, "value": limit.value, "source": source,
            "default": null, "min": null, "max": null,
        });
        println!("{line}");
    }
}

fn print_daemon() {
    match Place::of_client() {
        Ok(place) => {
            let up = match Client::connect(&place.socket) {
                Ok(Some(client)) => format!("up as node {}", client.node()),
                Ok(None) => "not up".to_owned(),
                Err(error) => format!("not usable: {error}"),
            };
            let at = if place.is_system() { "" } else { "@" };
            println!("daemon {up}; socket {at}{}, state in {}\n", place.socket, place.state_dir.display());
        }
        Err(error) => println!("daemon not usable: {error}\n"),
    }
}

fn parameters(mut row: impl FnMut(&str, &Param, u64, &str)) {
    for (floor, params) in tables() {
        for param in params {
            let value = param.read();
            let source = match value.source {
                Source::Default => "default",
                Source::Environment => "environment",
                Source::Calibration => "calibration",
            };
            row(floor, param, value.value, source);
        }
    }
}
