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

/// Exactly the agreed fields, and a figure in each that applies.
fn expect_fields(row: &serde_json::Value) {
    let mut names: Vec<_> = row.as_object().expect("an object").keys().map(String::as_str).collect();
    names.sort_unstable();
    let agreed =
        ["bandwidth_bytes_per_s", "bytes", "latency_ns_p50", "latency_ns_p99", "layer", "messages_per_s", "place"];
    assert_eq!(names, agreed, "{row}");
    // A cache line has no bandwidth, memcpy no latency, and neither is a message.
    let (hardware, bytes) = (row["layer"] == "hardware", row["bytes"].as_u64());
    let has = |name: &str| row[name].as_f64().map(|figure| figure > 0.0);
    let applies = |applies: bool| applies.then_some(true);
    assert_eq!(has("latency_ns_p50"), applies(!hardware || bytes <= Some(64)), "{row}");
    assert_eq!(has("latency_ns_p99"), applies(!hardware || bytes <= Some(64)), "{row}");
    assert!(row["latency_ns_p99"].as_f64() >= row["latency_ns_p50"].as_f64(), "{row}");
    assert_eq!(has("bandwidth_bytes_per_s"), applies(!hardware || bytes >= Some(1024)), "{row}");
    assert_eq!(has("messages_per_s"), applies(!hardware), "{row}");
}

#[test]
fn layers_on_one_node_gives_every_row_with_exactly_the_agreed_fields() {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let places: &[&str] = if cores > 1 { &["core", "node"] } else { &["core"] };
    let arguments = ["layers", "--quick", "--json", "--places", &places.join(","), "--bytes", "8,4k"];
    let finished = bench(&arguments).expect_success();
    let rows = rows(&finished.stdout);
    rows.iter().for_each(expect_fields);
    for (place, bytes) in places.iter().flat_map(|place| [(place, 8), (place, 4096)]) {
        let floors = ["hardware", "device", "rawdata", "port", "am", "mpi", "socket", "threads"];
        for layer in floors.into_iter().chain(["pipe", "unix", "tcp", "udp"]) {
            let is_it =
                |row: &&serde_json::Value| row["layer"] == layer && row["place"] == *place && row["bytes"] == bytes;
            assert_eq!(rows.iter().filter(is_it).count(), 1, "{layer} on {place} with {bytes}: {finished:?}");
        }
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
        "device,link,encrypted,rawdata,port,am,mpi,tcp,udp,gso",
        "--bytes",
        "8,100000",
    ];
    let finished = bench(&arguments).expect_success();
    assert!(finished.stderr.contains("two network namespaces"), "{finished:?}");
    let rows = rows(&finished.stdout);
    let layers: Vec<_> = rows.iter().filter_map(|row| row["layer"].as_str()).collect();
    let wanted = ["device", "link", "encrypted", "rawdata", "port", "am", "mpi", "tcp", "udp", "gso"];
    assert_eq!(layers, [wanted, wanted].concat());
    rows.iter().for_each(expect_fields);
    assert!(rows.iter().all(|row| row["place"] == "net"), "{finished:?}");
}

#[test]
fn other_mpis_are_compared_with_the_tree_that_dist_makes_and_nothing_else() {
    bench(&["peers", "--pulc", "/nowhere", "--quick"]).expect_refusal(1, "cargo xtask dist");
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
fn a_million_small_messages_between_processes_that_are_awake_make_no_system_call() {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return skipped("a_million_small_messages", "two processes that are both awake need two cores");
    }
    let finished = bench(&["calls", "--messages", "1000000", "--json"]);
    if finished.stderr.contains("look at system calls") {
        return skipped("a_million_small_messages", &finished.stderr);
    }
    let finished = finished.expect_success();
    let rows = rows(&finished.stdout);
    assert_eq!(rows.len(), 6, "{finished:?}");
    for layer in ["port", "rawdata", "am"] {
        // How often a process that waits gives its core away depends on who else wants it; a process that asks never does.
        let row = rows.iter().find(|row| row["layer"] == layer && row["polls"] == true);
        assert_eq!(row.map(|row| row["calls"].as_u64()), Some(Some(0)), "{layer}: {finished:?}");
    }
}

#[test]
fn a_plot_has_two_pictures_of_each_kind_and_can_be_drawn_again_from_the_rows() {
    let directory = std::env::temp_dir().join(format!("pulc-plot-{}", std::process::id()));
    let path = directory.to_str().expect("a path of this test");
    let arguments = [
        "layers",
        "--quick",
        "--json",
        "--places",
        "core",
        "--layers",
        "device,port,pipe",
        "--bytes",
        "8,4k",
        "--plot",
        path,
    ];
    let finished = bench(&arguments).expect_success();
    assert_eq!(rows(&finished.stdout).len(), 6, "{finished:?}");
    let files = ["latency-core.svg", "latency-core.png", "bandwidth-core.svg", "bandwidth-core.png"];
    let sizes = || files.map(|file| std::fs::metadata(directory.join(file)).map_or(0, |meta| meta.len()));
    assert!(sizes().iter().all(|size| *size > 1000), "{:?}", sizes());
    let kept = directory.join("rows");
    std::fs::write(&kept, format!("# a record\n{}", finished.stdout)).expect("the folder is there");
    files.iter().for_each(|file| std::fs::remove_file(directory.join(file)).expect("it was there"));
    bench(&["plot", kept.to_str().expect("a path of this test"), path]).expect_success();
    assert!(sizes().iter().all(|size| *size > 1000), "{:?}", sizes());
    std::fs::write(&kept, "# nothing\n").expect("the folder is there");
    bench(&["plot", kept.to_str().expect("a path of this test"), path]).expect_refusal(1, "no rows to draw");
    std::fs::remove_dir_all(&directory).expect("only this test writes there");
}

#[test]
fn ring_and_attach_tell_every_figure() {
    let finished = bench(&["ring", "-n", "6", "--rounds", "1", "--turns", "5", "--json"]).expect_success();
    let found = rows(&finished.stdout);
    let names: Vec<_> = found.iter().filter_map(|row| row["what"].as_str()).collect();
    assert_eq!(names, ["futex", "port", "rawdata"]);
    assert!(found.iter().all(|row| row["hop_ns"].as_f64() > Some(0.0)), "{finished:?}");
    assert_eq!(found[0]["x_futex"].as_f64(), Some(1.0));
    let finished = bench(&["attach", "-n", "3", "--rounds", "1", "--json"]).expect_success();
    let steps: Vec<_> = rows(&finished.stdout).iter().filter_map(|row| row["median_ns"].as_f64()).collect();
    assert!(steps.len() == 3 && steps.is_sorted() && steps[0] > 0.0, "{finished:?}");
}

#[test]
fn switch_tells_what_handing_a_core_over_takes_and_what_a_port_takes_there() {
    let finished = bench(&["switch", "--quick", "--json"]).expect_success();
    let found = rows(&finished.stdout);
    for (who, way) in [("processes", "yield"), ("processes", "futex"), ("threads", "yield"), ("threads", "futex")] {
        let is_it = |row: &&serde_json::Value| row["who"] == who && row["way"] == way && row["policy"] == "usual";
        assert!(found.iter().any(|row| is_it(&row)), "no row of {who} that {way}: {finished:?}");
    }
    assert_eq!(found.last().map(|row| row["who"] == "port"), Some(true), "{finished:?}");
    for row in &found {
        assert!(row["best_ns"].as_f64() > Some(0.0) && row["median_ns"].as_f64() >= row["best_ns"].as_f64(), "{row}");
    }
}

#[test]
fn waiting_tells_latency_and_processor_time_of_every_situation() {
    let finished = bench(&["waiting", "--quick", "--json"]).expect_success();
    let found = rows(&finished.stdout);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut wanted = vec!["one-core", "one-core-hog"];
    if cores > 1 {
        wanted.extend(["pinned", "unpinned", "oversubscribed", "oversubscribed-far", "two-jobs", "hog"]);
    }
    let names: Vec<_> = found.iter().filter_map(|row| row["situation"].as_str()).collect();
    assert_eq!(names, wanted);
    for row in &found {
        assert!(row["latency_ns_p50"].as_f64() > Some(0.0) && row["traffic_cpu_share"].as_f64() > Some(0.0), "{row}");
        assert!(row["latency_ns_p99"].as_f64() >= row["latency_ns_p50"].as_f64(), "{row}");
        assert!(row["blocked_cpu_ms_per_s"].as_f64() >= Some(0.0), "{row}");
    }
}

#[test]
fn sockets_are_drawn_beside_the_kernel() {
    let directory = std::env::temp_dir().join(format!("pulc-bench-sockets-{}", std::process::id()));
    let path = directory.to_str().expect("a temporary path is text");
    bench(&["sockets", "--quick", "--only", "64 bytes one way on one core", "--plots", path]).expect_success();
    let picture = std::fs::read_to_string(directory.join("sockets.svg")).expect("it was drawn");
    assert!(picture.contains("64 bytes one way on one core") && picture.contains("unix sockets"), "{picture}");
    assert!(directory.join("sockets.png").exists());
    std::fs::remove_dir_all(&directory).expect("only this test writes there");
}

#[test]
fn desk_tells_what_a_person_gets_beside_jobs() {
    let finished = bench(&["desk", "--quick", "--json"]).expect_success();
    let found = rows(&finished.stdout);
    let places: Vec<_> = found.iter().filter_map(|row| row["beside"].as_str()).collect();
    let all = ["idle machine", "a job on every core", "the same, where somebody works"];
    assert_eq!(places, [all, all].concat(), "{finished:?}");
    for row in &found {
        assert!(row["median_ns"].as_f64() > Some(0.0) && row["late_ns"].as_f64() >= row["median_ns"].as_f64(), "{row}");
        assert!(row["times_idle"].as_f64() > Some(0.0), "{row}");
    }
}

#[test]
fn shares_compare_every_interface_with_device_and_memcpy() {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return skipped("shares_compare_every_interface", "two cores are needed");
    }
    let finished = bench(&["shares", "--quick", "--bytes", "64k", "--json"]).expect_success();
    let found = rows(&finished.stdout);
    for layer in ["rawdata", "shared", "port", "am"] {
        let row = found.iter().find(|row| row["layer"] == layer).unwrap_or_else(|| panic!("no {layer}: {finished:?}"));
        assert!(row["of_device"].as_f64() > Some(0.0) && row["of_memcpy"].as_f64() > Some(0.0), "{row}");
    }
}

#[test]
fn launchers_tell_what_starting_and_submitting_takes() {
    let words =
        ["launchers", "--nodes", "3", "--per-node", "2", "--rounds", "1", "--losses", "1", "--only", "pulc", "--json"];
    let finished = bench(&words);
    if finished.stderr.contains("make network namespaces") {
        return skipped("launchers_tell_what_starting_and_submitting_takes", &finished.stderr);
    }
    let found = rows(&finished.expect_success().stdout);
    for what in
        ["pulc run: 2 processes", "pulc submit -W:", "pulc submit: from", "pulc submit -H:", "pulc run: from the cut"]
    {
        let row = found.iter().find(|row| row["what"].as_str().is_some_and(|told| told.starts_with(what)));
        assert!(row.is_some_and(|row| row["rounds"].as_u64() >= Some(1)), "no {what:?}: {found:?}");
    }
}

#[test]
fn sizes_that_make_no_sense_are_refused_with_the_limits() {
    bench(&["layers", "--bytes", "7"]).expect_refusal(2, "from 8 B to 64 MiB");
}
