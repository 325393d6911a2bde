//! The queue on real daemons, each host in a network namespace of its own: jobs go in, run, give way, end; daemons are killed and come
//! back, the controller's among them; hosts vanish. Nothing is lost, nothing runs twice unasked, nothing is left.

mod commands;
mod desk;
mod faults;
mod frozen;
mod health;
mod life;
mod stuck;

use pulc_testkit::cluster::HANG;
use pulc_testkit::{Cluster, Host, skipped, wait_until};
use serde_json::Value;

const PULC: &str = env!("CARGO_BIN_EXE_pulc");

/// A started cluster of so many hosts whose controller has seen them all, or none and the reason counted.
fn cluster(test: &str, hosts: usize) -> Option<Cluster> {
    let cluster = Cluster::new(hosts, PULC)
        .map_err(|why| skipped(test, &format!("network namespaces cannot be made: {why}")))
        .ok()?;
    cluster.start();
    let seen =
        || Some(()).filter(|()| nodes(cluster.host(0)).iter().filter(|node| node["state"] == "up").count() == hosts);
    wait_until(seen)
        .unwrap_or_else(|| panic!("the controller does not see {hosts} nodes: {:?}", nodes(cluster.host(0))));
    // The tests count slots, not the cores of the machine they run on.
    for node in nodes(cluster.host(0)) {
        cluster.host(0).pulc(&["node", text(&node, "name"), "--slots", "2"]).expect_success();
    }
    Some(cluster)
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn nodes(host: &Host) -> Vec<Value> {
    array(&host.pulc(&["nodes", "--queue", "--json"]).stdout)
}

fn array(json: &str) -> Vec<Value> {
    match serde_json::from_str(json) {
        Ok(Value::Array(values)) => values,
        _ => Vec::new(),
    }
}

/// Submits and returns the number; its files lie in the cluster's directory.
fn submit(cluster: &Cluster, host: usize, arguments: &[&str]) -> String {
    let directory = cluster.directory().to_str().expect("a temporary path is text").to_owned();
    let mut all = vec!["submit", "--parsable", "-D", &directory, "--kill-delay", "1"];
    all.extend(arguments);
    cluster.host(host).pulc(&all).expect_success().stdout.trim().to_owned()
}

/// What is known of a job; null if the daemon does not answer.
fn job(host: &Host, number: &str) -> Value {
    array(&host.pulc(&["job", number, "--json"]).stdout).into_iter().next().unwrap_or(Value::Null)
}

/// Waits until a job is in this state.
fn wait_for(host: &Host, number: &str, state: &str) -> Value {
    let found = wait_until(|| Some(job(host, number)).filter(|job| job["state"] == state));
    found.unwrap_or_else(|| {
        let queue = host.pulc(&["queue"]).stdout;
        let events = host.pulc(&["events", "-n", "100"]).stdout;
        panic!("job {number} is not {state} after {HANG:?}: {}\n{queue}\n{events}", job(host, number))
    })
}

fn output(cluster: &Cluster, name: &str) -> String {
    std::fs::read_to_string(cluster.directory().join(name)).unwrap_or_default()
}

fn end(cluster: &Cluster) {
    cluster.host(0).pulc(&["down", "--all"]).expect_success();
    cluster.expect_nothing_left();
}
