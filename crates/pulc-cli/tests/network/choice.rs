//! Two networks between two hosts, one of which is dead before a job is started, or dies while it runs.

use crate::ranks::ENV_UNTIL;
use crate::{ENV_PART, PULC, copy};
use pulc_testkit::cluster::HANG;
use pulc_testkit::finished::run_within;
use pulc_testkit::{Cluster, Finished, Host, skipped, wait_until};
use serde_json::Value;

const FIRST: &str = "10.77.0.0/24";
const SECOND: &str = "10.79.0.0/24";

fn cluster(test: &str, networks: &str) -> Option<Cluster> {
    let cluster = Cluster::new(2, PULC)
        .and_then(Cluster::with_second_network)
        .map_err(|why| skipped(test, &format!("network namespaces cannot be made: {why}")))
        .ok()?;
    cluster.start();
    let host = cluster.host(0);
    let known = || Some(()).filter(|()| host.pulc(&["nodes", "--queue"]).stdout.matches(" up ").count() == 2);
    wait_until(known).expect("the controller sees both");
    if !networks.is_empty() {
        cluster.host(1).pulc(&["config", &format!("networks={networks}")]).expect_success();
    }
    Some(cluster)
}

/// Two ranks on two nodes that tell over which network they talk, and end at once.
fn run(cluster: &Cluster, flags: &[&str]) -> Finished {
    let until = cluster.directory().join("at-once");
    std::fs::write(&until, "").unwrap();
    let mut command = cluster.host(0).command();
    command.args(["run", "-n", "2", "--nodes", "2", "--timeout", "100"]).args(flags).arg("--").args(copy());
    command.env(ENV_PART, "stay").env(ENV_UNTIL, until);
    run_within(command, HANG)
}

/// Whether both ranks have said that they talk there and nowhere else.
fn talks_over(output: &str, network: &str) -> bool {
    let prefix = network.trim_end_matches("0/24");
    (0..2).all(|rank| {
        let own = format!("rank {rank} over [");
        output.lines().filter_map(|line| line.strip_prefix(&own)).any(|said| {
            said.strip_prefix(prefix)
                .and_then(|rest| rest.strip_suffix(']'))
                .is_some_and(|host| host.parse::<u8>().is_ok())
        })
    })
}

/// The same for the queue; goes on until there is a file. Returns its number, its output, and the file.
fn submit(cluster: &Cluster, name: &str, flags: &[&str]) -> (String, std::path::PathBuf, std::path::PathBuf) {
    let [until, output] = ["until", "out"].map(|end| cluster.directory().join(format!("{name}.{end}")));
    let mut command = cluster.host(0).command();
    let part = format!("{ENV_PART}=stay");
    let file = format!("{ENV_UNTIL}={}", until.display());
    command.args(["submit", "--parsable", "-n", "2", "-N", "2", "--env", &part, "--env", &file, "--kill-delay", "1"]);
    command.arg("-o").arg(&output).arg("-D").arg(cluster.directory()).args(flags).args(copy());
    (run_within(command, HANG).expect_success().stdout.trim().to_owned(), output, until)
}

fn job(host: &Host, number: &str) -> Value {
    match serde_json::from_str(&host.pulc(&["job", number, "--json"]).stdout) {
        Ok(Value::Array(jobs)) => jobs.into_iter().next().unwrap_or(Value::Null),
        _ => Value::Null,
    }
}

fn wait_for_job(host: &Host, number: &str, is_it: impl Fn(&Value) -> bool) -> Value {
    let found = wait_until(|| Some(job(host, number)).filter(|job| is_it(job)));
    found.unwrap_or_else(|| panic!("{}\n{}", job(host, number), host.pulc(&["events", "-n", "50"]).stdout))
}

fn wait_for_talk(cluster: &Cluster, output: &std::path::Path, network: &str) {
    let said = || std::fs::read_to_string(output).unwrap_or_default();
    let talks = wait_until(|| Some(()).filter(|()| talks_over(&said(), network)));
    assert!(talks.is_some(), "{}\n{}", said(), cluster.host(0).pulc(&["events", "-n", "50"]).stdout);
}

fn end(cluster: &Cluster) {
    cluster.host(0).pulc(&["down", "--all"]).expect_success();
    cluster.expect_nothing_left();
}

#[test]
fn a_job_is_started_on_the_other_network_where_the_best_one_is_dead_and_says_so() {
    let test = "a_job_is_started_on_the_other_network_where_the_best_one_is_dead_and_says_so";
    let Some(cluster) = cluster(test, &format!("{SECOND},{FIRST}")) else { return };
    let host = cluster.host(0);
    let best = run(&cluster, &[]).expect_success();
    assert!(talks_over(&best.stdout, SECOND) && best.stderr.is_empty(), "{best:?}");
    // A user knows better.
    let told = run(&cluster, &["--network", FIRST]).expect_success();
    assert!(talks_over(&told.stdout, FIRST) && told.stderr.is_empty(), "{told:?}");
    cluster.cut_second(1).expect("the link can be cut");
    let other = run(&cluster, &[]).expect_success();
    let said = format!("network {SECOND} does not reach from node ");
    let used = format!("; the job uses {FIRST}");
    assert!(talks_over(&other.stdout, FIRST), "{other:?}");
    assert!(other.stderr.contains(&said) && other.stderr.contains(&used), "{other:?}");
    let refused = run(&cluster, &["--network", SECOND]);
    assert!(refused.code() == Some(127) && refused.stderr.contains(&said), "{refused:?}");
    // The queue's jobs say it where one looks.
    let (number, output, until) = submit(&cluster, "queued", &[]);
    wait_for_talk(&cluster, &output, FIRST);
    let running = wait_for_job(host, &number, |job| job["state"] == "RUNNING");
    assert!(running["text"].as_str().is_some_and(|text| text.contains(&said)), "{running}");
    std::fs::write(until, "").unwrap();
    wait_for_job(host, &number, |job| job["state"] == "COMPLETED");
    let events = host.pulc(&["events", "-n", "50"]).stdout;
    assert!(events.contains(&format!("job {number}: {said}")), "{events}");
    cluster.heal_second(1).expect("the link can be healed");
    let again = run(&cluster, &[]).expect_success();
    assert!(talks_over(&again.stdout, SECOND) && again.stderr.is_empty(), "{again:?}");
    // What makes no sense or is nowhere is refused with a word.
    let nowhere = run(&cluster, &["--network", "10.99.0.0/16"]);
    assert!(nowhere.code() == Some(127) && nowhere.stderr.contains("has no address in 10.99.0.0/16"), "{nowhere:?}");
    let nowhere = host.pulc(&["submit", "--network", "10.99.0.0/16", "true"]);
    assert!(nowhere.code() != Some(0) && nowhere.stderr.contains("no node of this cluster fits"), "{nowhere:?}");
    let nonsense = host.pulc(&["run", "--network", "10.1.0.7/16", "true"]);
    assert!(nonsense.code() != Some(0) && nonsense.stderr.contains("10.1.0.0/16 is one"), "{nonsense:?}");
    end(&cluster);
}

#[test]
fn a_job_whose_network_dies_is_started_again_on_the_other_one_or_fails_if_it_may_not() {
    let test = "a_job_whose_network_dies_is_started_again_on_the_other_one_or_fails_if_it_may_not";
    let Some(cluster) = cluster(test, &format!("{SECOND},{FIRST}")) else { return };
    let host = cluster.host(0);
    let (number, output, until) = submit(&cluster, "again", &[]);
    wait_for_talk(&cluster, &output, SECOND);
    // Nodes talk to each other over the first one, so that none of them is lost.
    cluster.cut_second(1).expect("the link can be cut");
    wait_for_talk(&cluster, &output, FIRST);
    let running = wait_for_job(host, &number, |job| job["state"] == "RUNNING");
    assert_eq!(running["attempt"], 1, "{running}");
    std::fs::write(until, "").unwrap();
    wait_for_job(host, &number, |job| job["state"] == "COMPLETED");
    let events = host.pulc(&["events", "-n", "50"]).stdout;
    assert!(events.contains(&format!("network {SECOND} is dead between nodes ")), "{events}");
    assert!(!events.contains(" is down"), "{events}");
    cluster.heal_second(1).expect("the link can be healed");
    let (number, output, _) = submit(&cluster, "once", &["--no-requeue"]);
    wait_for_talk(&cluster, &output, SECOND);
    // Daemons that were started again watch the networks of what they find running.
    for host in cluster.hosts() {
        host.signal_daemon(rustix::process::Signal::KILL);
        host.pulc(&["up"]).expect_success();
    }
    cluster.hosts().iter().for_each(|host| host.wait_for_states("up", 2));
    wait_for_job(host, &number, |job| job["state"] == "RUNNING");
    cluster.cut_second(1).expect("the link can be cut");
    let failed = wait_for_job(host, &number, |job| job["state"] == "NODE_FAIL");
    assert!(failed["text"].as_str().is_some_and(|text| text.contains("is dead between nodes")), "{failed}");
    end(&cluster);
}

#[test]
fn a_job_goes_on_elsewhere_where_the_network_dies_over_which_nodes_know_each_other() {
    let test = "a_job_goes_on_elsewhere_where_the_network_dies_over_which_nodes_know_each_other";
    // Nothing is set: what nodes have in common is found.
    let Some(cluster) = cluster(test, "") else { return };
    let host = cluster.host(0);
    let (number, output, until) = submit(&cluster, "both", &[]);
    wait_for_talk(&cluster, &output, FIRST);
    cluster.cut(1).expect("the link can be cut");
    // The node is lost, comes back over the other network, and so does the job.
    wait_for_talk(&cluster, &output, SECOND);
    let running = wait_for_job(host, &number, |job| job["state"] == "RUNNING");
    assert_eq!(running["attempt"], 1, "{running}");
    std::fs::write(until, "").unwrap();
    wait_for_job(host, &number, |job| job["state"] == "COMPLETED");
    end(&cluster);
}
