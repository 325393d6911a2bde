//! Jobs over the daemons of a cluster, each host in a network namespace of its own: from any node, seen and killed from any
//! node, and ended everywhere whatever dies.

use pulc_testkit::cluster::HANG;
use pulc_testkit::{Cluster, Finished, Host, leftovers, run_within, skipped, token_in, wait_until};
use rustix::process::Signal;
use std::io::Read;
use std::process::{Child, Stdio};

const PULC: &str = env!("CARGO_BIN_EXE_pulc");

/// A started cluster of so many hosts, or none and the reason counted.
fn cluster(test: &str, hosts: usize) -> Option<Cluster> {
    let cluster = Cluster::new(hosts, PULC)
        .map_err(|why| skipped(test, &format!("network namespaces cannot be made: {why}")))
        .ok()?;
    cluster.start();
    Some(cluster)
}

/// A long job on so many nodes, with a mark in its ranks' environment; returns when all its ranks run.
fn long_job(cluster: &Cluster, host: usize, nodes: usize, mark: &str) -> Child {
    let mut command = cluster.host(host).command();
    command.args(["run", "--kill-delay", "1", "-n", &(2 * nodes).to_string(), "--nodes", &nodes.to_string()]);
    command.args(["sh", "-c", "trap '' TERM HUP; (setsid sleep 1000 &); sleep 1000"]).env("PULC_TEST_MARK", mark);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("pulc can be started");
    let running = || Some(()).filter(|()| ranks(mark).len() >= 6 * nodes);
    wait_until(running).unwrap_or_else(|| panic!("the ranks did not come up: {:?}", ranks(mark)));
    child
}

/// Processes with the mark that are neither keepers nor `pulc run`.
fn ranks(mark: &str) -> Vec<String> {
    let all = leftovers::processes("PULC_TEST_MARK", mark);
    all.into_iter().filter(|process| !process.contains("pulc")).collect()
}

fn expect_no_ranks(mark: &str) {
    let gone = || Some(()).filter(|()| leftovers::processes("PULC_TEST_MARK", mark).is_empty());
    if wait_until(gone).is_none() {
        let left = leftovers::processes("PULC_TEST_MARK", mark);
        leftovers::kill("PULC_TEST_MARK", mark);
        panic!("left after {HANG:?}: {left:?}");
    }
}

/// Exit status and what it wrote to standard error.
fn end_of(mut child: Child) -> (Option<i32>, String) {
    let ended = wait_until(|| child.try_wait().expect("it is our child"));
    if ended.is_none() {
        let _ = child.kill();
    }
    let mut text = String::new();
    child.stderr.take().expect("it is a pipe").read_to_string(&mut text).expect("it is text");
    (ended.unwrap_or_else(|| panic!("pulc run did not end: {text}")).code(), text)
}

#[test]
fn a_job_started_on_any_node_runs_on_all_of_them() {
    let Some(cluster) = cluster("a_job_started_on_any_node_runs_on_all_of_them", 3) else { return };
    for host in [0, 2] {
        let script = "echo $PULC_RANK on $PULC_NODE; ip -4 -o addr show | grep -o '10\\.77\\.0\\.[0-9]*' | head -1";
        let ended = cluster.host(host).pulc(&["run", "-n", "6", "--nodes", "3", "sh", "-c", script]).expect_success();
        let mut addresses: Vec<&str> = ended.stdout.lines().filter(|line| line.starts_with("10.77.")).collect();
        addresses.sort_unstable();
        addresses.dedup();
        assert_eq!(addresses.len(), 3, "{}", ended.stdout);
        assert_eq!(ended.stdout.lines().filter(|line| line.contains(" on ")).count(), 6, "{}", ended.stdout);
    }
    let refused = cluster.host(1).pulc(&["run", "-n", "8", "--nodes", "4", "true"]);
    assert!(refused.stderr.contains("4 nodes asked for, but only 3 are up"), "{}", refused.stderr);
    cluster.host(1).pulc(&["down", "--all"]).expect_success();
    cluster.expect_nothing_left();
}

/// Runs `pulc` on a host as a shell does that has set its umask, its limit of open files and its directory.
fn pulc_under(host: &Host, umask: &str, open_files: &str, directory: &str, arguments: &[&str]) -> Finished {
    let mut command = host.program_command("sh");
    let settings = "umask $1 && ulimit -Sn $2 && cd \"$3\" && shift 3 && exec \"$0\" \"$@\"";
    command.args(["-c", settings, PULC, umask, open_files, directory]).args(arguments);
    run_within(command, HANG)
}

#[test]
fn directory_umask_and_limits_of_the_caller_rule_on_every_node() {
    let test = "directory_umask_and_limits_of_the_caller_rule_on_every_node";
    let Ok(cluster) = Cluster::new(2, PULC) else { return skipped(test, "network namespaces cannot be made") };
    let up = pulc_under(cluster.host(0), "022", "500", "/", &["up"]).expect_success();
    let join = ["join", &token_in(&up.stdout)];
    pulc_under(cluster.host(1), "077", "600", "/usr", &join).expect_success();
    cluster.hosts().iter().for_each(|host| host.wait_for_states("up", 2));
    let place = cluster.directory().join("a place");
    std::fs::create_dir(&place).expect("the cluster has a directory");
    let place = std::fs::canonicalize(place).expect("it was just made");
    let place = place.to_str().expect("it is text");
    let print = "echo $PULC_RANK: $PULC_LOCAL_RANK/$PULC_LOCAL_SIZE $(umask) $(ulimit -Sn) $(pwd)";
    let run = ["run", "-n", "4", "--nodes", "2", "sh", "-c", print];
    for host in cluster.hosts() {
        let ended = pulc_under(host, "027", "333", place, &run).expect_success();
        let mut lines: Vec<&str> = ended.stdout.lines().collect();
        lines.sort_unstable();
        let expected = ["0: 0/2", "1: 1/2", "2: 0/2", "3: 1/2"].map(|rank| format!("{rank} 0027 333 {place}"));
        assert_eq!(lines, expected, "{ended:?}");
    }
    cluster.host(1).pulc(&["down", "--all"]).expect_success();
    cluster.expect_nothing_left();
}

#[test]
fn jobs_are_seen_and_killed_from_any_node() {
    let Some(cluster) = cluster("jobs_are_seen_and_killed_from_any_node", 3) else { return };
    let mark = format!("seen-{}", std::process::id());
    let job = long_job(&cluster, 0, 2, &mark);
    for host in cluster.hosts() {
        let table = host.pulc(&["ps"]).expect_success().stdout;
        assert_eq!(table.lines().filter(|line| line.starts_with("job ")).count(), 1, "{table}");
        assert_eq!(table.lines().filter(|line| line.contains(" pid ")).count(), 4, "{table}");
    }
    let table = cluster.host(2).pulc(&["ps"]).expect_success().stdout;
    let number = table.split_whitespace().nth(1).expect("the job's number stands behind the word job").to_owned();
    let wrong = cluster.host(1).pulc(&["kill", "1234"]);
    assert!(wrong.stderr.contains("no node knows a running job"), "{}", wrong.stderr);
    cluster.host(2).pulc(&["kill", &number]).expect_success();
    let (code, text) = end_of(job);
    assert_eq!(code, Some(143), "{text}");
    assert!(text.contains("stopped by `pulc kill` on node"), "{text}");
    expect_no_ranks(&mark);
    assert_eq!(cluster.host(1).pulc(&["ps"]).expect_success().stdout, "no jobs\n");
}

#[test]
fn a_killed_daemon_ends_its_part_and_the_others_end_theirs() {
    let Some(cluster) = cluster("a_killed_daemon_ends_its_part_and_the_others_end_theirs", 3) else { return };
    let mark = format!("worker-{}", std::process::id());
    // The node list starts with the local node, then goes by name: host 1 is among the first two whoever they are called.
    let job = long_job(&cluster, 0, 3, &mark);
    cluster.host(1).signal_daemon(Signal::KILL);
    let (code, text) = end_of(job);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("was lost (closed) with ranks"), "{text}");
    expect_no_ranks(&mark);
}

#[test]
fn the_death_of_the_jobs_own_daemon_ends_it_everywhere() {
    let Some(cluster) = cluster("the_death_of_the_jobs_own_daemon_ends_it_everywhere", 2) else { return };
    let mark = format!("origin-{}", std::process::id());
    let job = long_job(&cluster, 0, 2, &mark);
    cluster.host(0).signal_daemon(Signal::KILL);
    let (code, text) = end_of(job);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("psid is gone"), "{text}");
    expect_no_ranks(&mark);
}

#[test]
fn a_cut_link_ends_the_job_on_both_sides() {
    let Some(cluster) = cluster("a_cut_link_ends_the_job_on_both_sides", 2) else { return };
    let mark = format!("cut-{}", std::process::id());
    let job = long_job(&cluster, 0, 2, &mark);
    cluster.cut(1).expect("the link can be cut");
    let (code, text) = end_of(job);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("was lost (silent) with ranks 2 to 3"), "{text}");
    expect_no_ranks(&mark);
}

#[test]
fn a_killed_client_takes_its_job_along() {
    let Some(cluster) = cluster("a_killed_client_takes_its_job_along", 2) else { return };
    let mark = format!("client-{}", std::process::id());
    let mut job = long_job(&cluster, 1, 2, &mark);
    job.kill().expect("it is our child");
    job.wait().expect("it is our child");
    expect_no_ranks(&mark);
    assert_eq!(cluster.host(0).pulc(&["ps"]).expect_success().stdout, "no jobs\n");
}

#[test]
fn taking_the_cluster_down_ends_its_jobs() {
    let Some(cluster) = cluster("taking_the_cluster_down_ends_its_jobs", 2) else { return };
    let mark = format!("down-{}", std::process::id());
    let job = long_job(&cluster, 0, 2, &mark);
    cluster.host(1).pulc(&["down", "--all"]).expect_success();
    let (code, text) = end_of(job);
    assert!(code == Some(143) || code == Some(1), "{code:?} {text}");
    expect_no_ranks(&mark);
    cluster.expect_nothing_left();
}

#[test]
fn a_node_that_stalls_while_a_job_is_prepared_fails_it_by_name() {
    let Some(cluster) = stalling_cluster("a_node_that_stalls_while_a_job_is_prepared_fails_it_by_name") else { return };
    cluster.host(1).signal_daemon(Signal::STOP);
    let ended = cluster.host(0).pulc(&["run", "-n", "4", "--nodes", "2", "sleep", "1000"]);
    cluster.host(1).signal_daemon(Signal::CONT);
    assert_eq!(ended.code(), Some(127), "{ended:?}");
    assert!(ended.stderr.contains("did not get ready within 1 s; is its daemon stopped"), "{ended:?}");
    assert!(ended.stderr.contains("does not answer, what it has of the job ends when it comes back"), "{ended:?}");
    cluster.wait_for_processes("sleep 1000", 0);
    cluster.host(0).wait_for_states("up", 2);
    cluster.host(0).pulc(&["run", "-n", "4", "--nodes", "2", "true"]).expect_success();
}

#[test]
fn a_job_ends_though_one_of_its_daemons_is_stopped() {
    let Some(cluster) = stalling_cluster("a_job_ends_though_one_of_its_daemons_is_stopped") else { return };
    let mark = format!("stalled-{}", std::process::id());
    let job = long_job(&cluster, 0, 2, &mark);
    cluster.host(1).signal_daemon(Signal::STOP);
    let table = cluster.host(0).pulc(&["ps"]).expect_success().stdout;
    let number = table.split_whitespace().nth(1).expect("the job's number stands behind the word job").to_owned();
    cluster.host(0).pulc(&["kill", &number]).expect_success();
    let (code, text) = end_of(job);
    assert_eq!(code, Some(143), "{text}");
    assert!(text.contains("does not answer"), "{text}");
    cluster.host(1).signal_daemon(Signal::CONT);
    expect_no_ranks(&mark);
}

#[test]
fn pulc_run_does_not_wait_for_ever_for_its_own_daemon() {
    let Some(cluster) = stalling_cluster("pulc_run_does_not_wait_for_ever_for_its_own_daemon") else { return };
    cluster.host(0).signal_daemon(Signal::STOP);
    let ended = cluster.host(0).pulc(&["run", "-n", "1", "true"]);
    cluster.host(0).signal_daemon(Signal::CONT);
    assert_eq!(ended.code(), Some(1), "{ended:?}");
    assert!(ended.stderr.contains("the daemon does not answer"), "{ended:?}");
}

/// Two nodes with little patience.
fn stalling_cluster(test: &str) -> Option<Cluster> {
    let cluster = Cluster::new(2, PULC)
        .map_err(|why| skipped(test, &format!("network namespaces cannot be made: {why}")))
        .ok()?
        .with_environment(&[("PULC_LAUNCH_TIMEOUT_MS", "1000"), ("PULC_END_TIMEOUT_MS", "500")]);
    cluster.start();
    Some(cluster)
}

/// A process that stands for a test, a benchmark or a demo.
fn purpose() -> Child {
    let mut command = std::process::Command::new("sleep");
    command.arg("1000").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("sleep can be started")
}

#[test]
fn what_was_started_for_a_process_does_not_outlive_it() {
    let test = "what_was_started_for_a_process_does_not_outlive_it";
    let mut owner = purpose();
    let number = owner.id().to_string();
    let Ok(cluster) = Cluster::new(2, PULC) else {
        let _ = owner.kill();
        let _ = owner.wait();
        return skipped(test, "network namespaces cannot be made");
    };
    let cluster = cluster.with_environment(&[("PULC_ENDS_WITH", &number)]);
    cluster.start();
    let mark = format!("owned-{}", std::process::id());
    let over_daemons = long_job(&cluster, 0, 2, &mark);
    let mut alone = cluster.host(1).command();
    alone.args(["run", "--alone", "-n", "2", "sh", "-c", "trap '' TERM; sleep 1000"]).env("PULC_TEST_MARK", &mark);
    let alone = alone.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("pulc can be started");
    assert!(wait_until(|| Some(()).filter(|()| ranks(&mark).len() >= 16)).is_some(), "{:?}", ranks(&mark));
    owner.kill().expect("it is our child");
    owner.wait().expect("it is our child");
    assert_eq!(end_of(alone).0, Some(143));
    end_of(over_daemons);
    expect_no_ranks(&mark);
    cluster.expect_nothing_left();
    let late = cluster.host(0).pulc(&["up"]);
    assert!(late.stderr.contains("the process is gone"), "{late:?}");
}

#[test]
fn jobs_without_a_daemon_are_seen_and_killed_too() {
    let Ok(cluster) = Cluster::new(1, PULC) else {
        return skipped("jobs_without_a_daemon_are_seen_and_killed_too", "network namespaces cannot be made");
    };
    let host = cluster.host(0);
    assert_eq!(host.pulc(&["ps"]).expect_success().stdout, "no jobs\n");
    let mark = format!("alone-{}", std::process::id());
    let start = |nodes: &str| {
        let mut command = host.command();
        command.args(["run", "--alone", "-n", "2", "--nodes", nodes, "sleep", "1000"]).env("PULC_TEST_MARK", &mark);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().expect("pulc can be started")
    };
    let jobs = [start("1"), start("2")];
    let table = || Some(host.pulc(&["ps"]).expect_success().stdout).filter(|table| table.matches(" pid ").count() == 4);
    let table = wait_until(table).expect("both jobs are seen with their processes");
    let numbers: Vec<&str> =
        table.lines().filter_map(|line| line.strip_prefix("job ")?.split_whitespace().next()).collect();
    assert_eq!(numbers.len(), 2, "{table}");
    host.pulc(&["kill", "1234"]).expect_refusal(1, "no running job");
    for number in numbers {
        host.pulc(&["kill", number]).expect_success();
    }
    for job in jobs {
        let (code, text) = end_of(job);
        assert_eq!(code, Some(143), "{text}");
        assert!(text.contains("was stopped by `pulc kill`"), "{text}");
    }
    assert_eq!(host.pulc(&["ps"]).expect_success().stdout, "no jobs\n");
    cluster.expect_nothing_left();
}
