//! The daemons of a cluster, each in a network namespace of its own: start, join, refusals, loss and return of nodes.

use pulc_testkit::cluster::HANG;
use pulc_testkit::{Cluster, finish_within, leftovers, run_within, skipped, start, token_in, wait_until};
use rustix::process::Signal;
use std::process::Command;

const PULC: &str = env!("CARGO_BIN_EXE_pulc");

/// A cluster of so many hosts, or none and the reason counted.
fn cluster(test: &str, hosts: usize) -> Option<Cluster> {
    Cluster::new(hosts, PULC).map_err(|why| skipped(test, &format!("network namespaces cannot be made: {why}"))).ok()
}

#[test]
fn two_commands_make_a_cluster_and_one_takes_it_down_without_a_trace() {
    let Some(cluster) = cluster("two_commands_make_a_cluster_and_one_takes_it_down_without_a_trace", 3) else { return };
    cluster.start();
    for host in cluster.hosts() {
        let table = host.pulc(&["nodes"]).expect_success().stdout;
        for other in cluster.hosts() {
            assert!(table.contains(&format!("{}:7852", other.address)), "{table}");
        }
    }
    // From any node, not only from the founder.
    cluster.host(2).pulc(&["down", "--all"]).expect_success();
    cluster.expect_nothing_left();
    assert_eq!(leftovers::files(), Vec::<String>::new());
    cluster.host(0).pulc(&["nodes"]).expect_refusal(11, "no daemon is up");
}

#[test]
fn what_cannot_be_started_is_refused_with_a_clear_word() {
    let Some(cluster) = cluster("what_cannot_be_started_is_refused_with_a_clear_word", 2) else { return };
    let (first, second) = (cluster.host(0), cluster.host(1));
    let token = token_in(&first.pulc(&["up"]).expect_success().stdout);
    first.pulc(&["up"]).expect_refusal(10, "is up here already");
    first.pulc(&["join", &token]).expect_refusal(10, "is up here already");

    second.pulc(&["join", "nonsense"]).expect_refusal(13, "does not begin with pulc1-");
    second.pulc(&["join", &token[..40]]).expect_refusal(13, "cut short");
    second.pulc(&["down"]).expect_refusal(11, "no daemon is up");
    second.pulc(&["token"]).expect_refusal(16, "did not found");

    // The address of another daemon on the same host.
    let listen = format!("{}:7852", first.address);
    let mut other = first.command();
    other.args(["up", "--listen", &listen]).env("PULC_STATE_DIR", cluster.directory().join("another"));
    run_within(other, HANG).expect_refusal(12, "is in use");
    // What failed has founded nothing that would keep this node from joining.
    let mut joins = first.command();
    joins.args(["join", &token]).env("PULC_STATE_DIR", cluster.directory().join("another"));
    run_within(joins, HANG).expect_success();
    first.wait_for_states("up", 2);
    first.pulc(&["down", "--all"]).expect_success();
    first.pulc(&["up"]).expect_success();
    let mut foreign = first.command();
    foreign.args(["up", "--listen", "192.0.2.1:7852"]).env("PULC_STATE_DIR", cluster.directory().join("foreign"));
    run_within(foreign, HANG).expect_refusal(1, "cannot listen on 192.0.2.1:7852");

    // Nobody home.
    first.pulc(&["down"]).expect_success();
    second.pulc(&["join", &token]).expect_refusal(15, "can't be reached");
    // Nothing of the failed attempts is left running, and the node can still join.
    first.pulc(&["up"]).expect_success();
    second.pulc(&["join", &token]).expect_success();
    first.pulc(&["down", "--all"]).expect_success();
    cluster.expect_nothing_left();
}

#[test]
fn a_revoked_token_and_one_of_another_cluster_do_not_join() {
    let Some(cluster) = cluster("a_revoked_token_and_one_of_another_cluster_do_not_join", 3) else { return };
    let (first, second, third) = (cluster.host(0), cluster.host(1), cluster.host(2));
    let token = token_in(&first.pulc(&["up"]).expect_success().stdout);
    let foreign = token_in(&third.pulc(&["up"]).expect_success().stdout);
    first.pulc(&["token", "--revoke", "all"]).expect_success();
    second.pulc(&["join", &token]).expect_refusal(13, "revoked");
    let fresh = token_in(&first.pulc(&["token"]).expect_success().stdout);
    second.pulc(&["join", &fresh]).expect_success();
    second.wait_for_states("up", 2);
    second.pulc(&["down"]).expect_success();
    second.pulc(&["join", &foreign]).expect_refusal(16, "another one");
    second.pulc(&["join", "--replace", &foreign]).expect_success();
    second.wait_for_states("up", 2);
    third.wait_for_states("up", 2);
    first.wait_for_states("left", 1);
}

#[test]
fn a_killed_daemon_is_noticed_at_once_and_returns_by_itself() {
    let Some(cluster) = cluster("a_killed_daemon_is_noticed_at_once_and_returns_by_itself", 3) else { return };
    cluster.start();
    cluster.host(1).signal_daemon(Signal::KILL);
    cluster.host(0).wait_for_states("down", 1);
    cluster.host(2).wait_for_states("down", 1);
    cluster.host(1).pulc(&["up"]).expect_success();
    cluster.hosts().iter().for_each(|host| host.wait_for_states("up", 3));
    // The founder too: it remembers who belongs to its cluster.
    cluster.host(0).signal_daemon(Signal::KILL);
    cluster.host(1).wait_for_states("down", 1);
    cluster.host(0).pulc(&["up"]).expect_success();
    cluster.hosts().iter().for_each(|host| host.wait_for_states("up", 3));
}

#[test]
fn a_cut_link_is_noticed_on_both_sides_and_heals() {
    let Some(cluster) = cluster("a_cut_link_is_noticed_on_both_sides_and_heals", 3) else { return };
    cluster.start();
    cluster.cut(2).expect("the link can be cut");
    cluster.host(0).wait_for_states("down", 1);
    cluster.host(1).wait_for_states("down", 1);
    cluster.host(2).wait_for_states("down", 2);
    cluster.host(0).wait_for_states("up", 2);
    cluster.heal(2).expect("the link can be healed");
    cluster.hosts().iter().for_each(|host| host.wait_for_states("up", 3));
}

#[test]
fn a_stopped_daemon_is_torpid_and_not_dead() {
    let Some(cluster) = cluster("a_stopped_daemon_is_torpid_and_not_dead", 2) else { return };
    cluster.start();
    cluster.host(1).signal_daemon(Signal::STOP);
    cluster.host(0).wait_for_states("torpid", 1);
    // Longer than a cut link would live.
    let down = || Some(()).filter(|()| cluster.host(0).states().iter().any(|(_, state)| state == "down"));
    for _ in 0..30 {
        assert!(down().is_none(), "a stopped daemon was declared dead");
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    cluster.host(1).signal_daemon(Signal::CONT);
    cluster.hosts().iter().for_each(|host| host.wait_for_states("up", 2));
}

/// Six hosts of which each watches two others only.
fn cluster_of_few_watchers(test: &str) -> Option<Cluster> {
    Some(cluster(test, 6)?.with_environment(&[("PULC_MESH_WATCH", "2")]))
}

#[test]
fn who_does_not_watch_a_host_notices_its_cut_link_too_and_it_notices_all() {
    let test = "who_does_not_watch_a_host_notices_its_cut_link_too_and_it_notices_all";
    let Some(cluster) = cluster_of_few_watchers(test) else { return };
    cluster.start();
    let mut command = cluster.host(0).command();
    command.args(["run", "-n", "6", "--nodes", "6", "--", "sleep", "98765"]);
    let job = start(command);
    cluster.wait_for_processes(": sleep 98765", 6);
    cluster.cut(3).expect("the link can be cut");
    let ended = finish_within(job, HANG);
    assert!(ended.code().is_some_and(|code| code != 0), "{ended:?}");
    cluster.wait_for_processes(": sleep 98765", 0);
    cluster.host(3).wait_for_states("down", 5);
    let others = || cluster.hosts().iter().filter(|host| host.number != 3);
    others().for_each(|host| host.wait_for_states("down", 1));
    cluster.heal(3).expect("the link can be healed");
    cluster.hosts().iter().for_each(|host| host.wait_for_states("up", 6));
    cluster.host(0).pulc(&["down", "--all"]).expect_success();
    cluster.expect_nothing_left();
}

#[test]
fn where_few_watch_a_stopped_daemon_is_torpid_to_all_and_half_of_all_may_end_at_once() {
    let test = "where_few_watch_a_stopped_daemon_is_torpid_to_all_and_half_of_all_may_end_at_once";
    let Some(cluster) = cluster_of_few_watchers(test) else { return };
    cluster.start();
    cluster.host(2).signal_daemon(Signal::STOP);
    let others = || cluster.hosts().iter().filter(|host| host.number != 2);
    others().for_each(|host| host.wait_for_states("torpid", 1));
    cluster.host(2).signal_daemon(Signal::CONT);
    cluster.hosts().iter().for_each(|host| host.wait_for_states("up", 6));
    // Half of the daemons end at once, and come back.
    cluster.hosts()[3..].iter().for_each(|host| host.signal_daemon(Signal::KILL));
    cluster.hosts()[..3].iter().for_each(|host| host.wait_for_states("down", 3));
    cluster.hosts()[3..].iter().for_each(|host| {
        host.pulc(&["up"]).expect_success();
    });
    cluster.hosts().iter().for_each(|host| host.wait_for_states("up", 6));
}

#[test]
fn several_daemons_of_one_machine_behave_like_several_machines() {
    let Some(cluster) = cluster("several_daemons_of_one_machine_behave_like_several_machines", 1) else { return };
    let host = cluster.host(0);
    let instance = |name: &str, arguments: &[&str]| {
        let mut command: Command = host.command();
        command.args(arguments).env("PULC_INSTANCE", name);
        run_within(command, HANG)
    };
    let token = token_in(&instance("a", &["up"]).expect_success().stdout);
    instance("b", &["join", &token]).expect_success();
    for name in ["a", "b"] {
        let up =
            wait_until(|| Some(instance(name, &["nodes"]).stdout).filter(|table| table.matches(" up ").count() == 2));
        assert!(up.is_some(), "{:?}", instance(name, &["nodes"]));
    }
    // Ranks of one daemon share memory. Those of two never do, as near as they are.
    for (nodes, used, unused) in [("1", "shm: ", "udp: "), ("2", "udp: ", "shm: ")] {
        let heat = ["run", "-n", "2", "--nodes", nodes, "--", PULC, "heat", "--size", "96", "--steps", "200"];
        let ended = instance("b", &heat).expect_success();
        let said = [ended.stdout, ended.stderr].concat();
        assert!(said.contains(used) && !said.contains(unused), "on {nodes} nodes: {said}");
    }
    instance("bad/name", &["up"]).expect_refusal(1, "PULC_INSTANCE");
    instance("a", &["down", "--all"]).expect_success();
    cluster.expect_nothing_left();
}

#[test]
fn a_job_runs_across_the_hosts_from_any_of_them() {
    let Some(cluster) = cluster("a_job_runs_across_the_hosts_from_any_of_them", 3) else { return };
    cluster.start();
    let script = "echo rank $PULC_RANK at $(ip -o -4 address show dev eth0)";
    for host in cluster.hosts() {
        let out = host.pulc(&["run", "-n", "6", "--nodes", "3", "--", "sh", "-c", script]).expect_success().stdout;
        assert_eq!(out.lines().count(), 6, "{out}");
        for other in cluster.hosts() {
            assert_eq!(out.matches(&format!("{}/24", other.address)).count(), 2, "{out}");
        }
    }
    let failed = cluster.host(1).pulc(&["run", "-n", "3", "--nodes", "3", "--", "sh", "-c", "exit $((PULC_RANK * 7))"]);
    assert!(matches!(failed.code(), Some(7 | 14)), "{failed:?}");
    cluster.host(0).pulc(&["down", "--all"]).expect_success();
    cluster.expect_nothing_left();
}

/// Starts a job of one long sleep on each of two hosts, does `harm`, and checks that everything of the job ends everywhere.
fn a_job_ends_everywhere_after(test: &str, harm: impl FnOnce(&Cluster)) -> Option<Cluster> {
    let cluster = cluster(test, 2)?;
    cluster.start();
    let mut command = cluster.host(0).command();
    command.args(["run", "-n", "2", "--nodes", "2", "--", "sleep", "98765"]);
    let job = start(command);
    // The command itself names the program too.
    let sleeping = |count| cluster.wait_for_processes(": sleep 98765", count);
    sleeping(2);
    harm(&cluster);
    let ended = finish_within(job, HANG);
    assert!(ended.code().is_some_and(|code| code != 0), "{ended:?}");
    sleeping(0);
    cluster.wait_for_processes("keeper", 0);
    Some(cluster)
}

#[test]
fn a_cut_link_ends_the_job_on_both_sides() {
    let harm = |cluster: &Cluster| cluster.cut(1).expect("the link can be cut");
    let Some(cluster) = a_job_ends_everywhere_after("a_cut_link_ends_the_job_on_both_sides", harm) else { return };
    cluster.heal(1).expect("the link can be healed");
    cluster.hosts().iter().for_each(|host| host.wait_for_states("up", 2));
    cluster.host(1).pulc(&["run", "-n", "2", "--nodes", "2", "true"]).expect_success();
}

#[test]
fn a_killed_daemon_ends_the_job_on_all_hosts() {
    let harm = |cluster: &Cluster| cluster.host(1).signal_daemon(Signal::KILL);
    let Some(cluster) = a_job_ends_everywhere_after("a_killed_daemon_ends_the_job_on_all_hosts", harm) else { return };
    cluster.host(0).pulc(&["down"]).expect_success();
    cluster.expect_nothing_left();
}

#[test]
fn a_killed_daemon_of_the_client_ends_the_job_on_all_hosts() {
    let test = "a_killed_daemon_of_the_client_ends_the_job_on_all_hosts";
    let harm = |cluster: &Cluster| cluster.host(0).signal_daemon(Signal::KILL);
    let Some(cluster) = a_job_ends_everywhere_after(test, harm) else { return };
    cluster.host(1).pulc(&["down"]).expect_success();
    cluster.expect_nothing_left();
}

#[test]
fn down_ends_the_jobs_first() {
    let harm = |cluster: &Cluster| {
        cluster.host(1).pulc(&["down"]).expect_success();
    };
    let Some(cluster) = a_job_ends_everywhere_after("down_ends_the_jobs_first", harm) else { return };
    cluster.host(0).wait_for_states("left", 1);
    cluster.host(0).pulc(&["down"]).expect_success();
    cluster.expect_nothing_left();
}

#[test]
fn a_program_on_ports_computes_the_same_across_hosts_as_alone() {
    let Some(cluster) = cluster("a_program_on_ports_computes_the_same_across_hosts_as_alone", 2) else { return };
    cluster.start();
    let heat = [PULC, "heat", "--size", "96", "--steps", "200"];
    let field = |ranks: &str, nodes: &str| {
        let arguments = [&["run", "-n", ranks, "--nodes", nodes, "--"][..], &heat[..]].concat();
        let finished = cluster.host(1).pulc(&arguments).expect_success();
        let said = [finished.stdout.as_str(), &finished.stderr].concat();
        let line = said.lines().find(|line| line.starts_with("field ")).map(str::to_owned);
        (line.unwrap_or_else(|| panic!("no field in {said:?}")), said)
    };
    let (alone, _) = field("1", "1");
    let (across, said) = field("4", "2");
    assert_eq!(alone, across);
    assert!(said.contains("udp: "), "nothing went over the network: {said}");
    cluster.host(0).pulc(&["down", "--all"]).expect_success();
    cluster.expect_nothing_left();
}
