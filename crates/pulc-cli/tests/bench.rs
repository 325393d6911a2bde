//! `pulc bench` as typed: every row is there and has its figures, nothing stays behind. Figures themselves are not judged here.

use pulc_testkit::{Finished, run_within, skipped};
use std::process::Command;
use std::time::Duration;

/// Only ends what hangs.
const HANG: Duration = Duration::from_secs(300);

fn bench(arguments: &[&str]) -> Finished {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pulc"));
    command.arg("bench").args(arguments);
    run_within(command, HANG)
}

fn rows(text: &str) -> Vec<serde_json::Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("one JSON object a line")).collect()
}

#[test]
fn layers_on_one_node_gives_every_row_with_exactly_the_agreed_fields() {
    let finished = bench(&["layers", "--quick", "--json", "--places", "core", "--bytes", "8,4k"]).expect_success();
    let rows = rows(&finished.stdout);
    for layer in ["hardware", "device", "rawdata", "port", "am", "pipe", "unix", "tcp", "udp"] {
        let row = rows.iter().find(|row| row["layer"] == layer && row["bytes"] == 8);
        let row = row.unwrap_or_else(|| panic!("no row of {layer}: {finished:?}"));
        assert_eq!(row["place"], "core");
        assert!(row["latency_ns_p50"].as_f64() > Some(0.0), "{row}");
        assert!(row["latency_ns_p99"].as_f64() >= row["latency_ns_p50"].as_f64(), "{row}");
        let names: Vec<_> = row.as_object().expect("an object").keys().map(String::as_str).collect();
        assert_eq!(names.len(), 7, "{names:?}");
        assert_eq!(row["messages_per_s"].is_null(), layer == "hardware", "{row}");
    }
}

#[test]
fn layers_between_two_nodes_measures_device_link_and_port_over_real_daemons() {
    if let Err(why) = pulc_testkit::netns::Netns::new() {
        return skipped("layers_between_two_nodes", &why.to_string());
    }
    let arguments = [
        "layers",
        "--quick",
        "--json",
        "--places",
        "net",
        "--layers",
        "device,link,encrypted,rawdata,port,am",
        "--bytes",
        "8",
    ];
    let finished = bench(&arguments).expect_success();
    assert!(finished.stderr.contains("two network namespaces"), "{finished:?}");
    let rows = rows(&finished.stdout);
    let layers: Vec<_> = rows.iter().filter_map(|row| row["layer"].as_str()).collect();
    assert_eq!(layers, ["device", "link", "encrypted", "rawdata", "port", "am"]);
}

#[test]
fn start_idle_and_memory_tell_their_figures() {
    let finished = bench(&["start", "-n", "4", "--rounds", "1", "--json"]).expect_success();
    assert!(rows(&finished.stdout).len() >= 2, "{finished:?}");
    let finished = bench(&["memory", "-n", "3", "--bytes", "8,20000", "--json"]).expect_success();
    assert_eq!(rows(&finished.stdout).len(), 3, "{finished:?}");
    assert!(rows(&finished.stdout).iter().all(|row| row["mean_bytes"].as_u64() > Some(0)), "{finished:?}");
    let finished = bench(&["idle", "--seconds", "1", "--json"]).expect_success();
    assert!(rows(&finished.stdout)[0]["burnt_s"].as_f64() < Some(1.0), "{finished:?}");
}

#[test]
fn sizes_that_make_no_sense_are_refused_with_the_limits() {
    bench(&["layers", "--bytes", "7"]).expect_refusal(2, "from 8 B to 64 MiB");
}
