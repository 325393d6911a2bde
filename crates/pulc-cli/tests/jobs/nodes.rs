//! Jobs on several nodes of a local cluster: real mesh, own keepers, nothing shared.

use crate::harness::{Job, script};
use crate::output::{assert_numbered_lines, stall_two_ranks_on};
use rustix::process::Signal;

#[test]
fn ranks_are_dealt_in_blocks_over_the_nodes() {
    let ended =
        script(&["-n", "5", "--nodes", "2", "--label"], "echo node $PULC_NODE local $PULC_LOCAL_RANK/$PULC_LOCAL_SIZE");
    assert_eq!(ended.code(), 0, "{}", ended.stderr);
    let mut lines: Vec<String> = ended.text().lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(
        lines,
        [
            "[0] node 0 local 0/3",
            "[1] node 0 local 1/3",
            "[2] node 0 local 2/3",
            "[3] node 1 local 0/2",
            "[4] node 1 local 1/2"
        ]
    );
}

#[test]
fn a_deep_launch_tree_starts_all_its_nodes() {
    // More nodes than one parent has children.
    let ended = script(&["-n", "20", "--nodes", "20"], "echo $PULC_NODE");
    assert_eq!(ended.code(), 0, "{}", ended.stderr);
    let mut nodes: Vec<u32> = ended.text().lines().map(|line| line.parse().unwrap()).collect();
    nodes.sort_unstable();
    assert_eq!(nodes, (0..20).collect::<Vec<_>>());
}

#[test]
fn a_failure_on_one_node_ends_the_ranks_of_the_others() {
    let ended = script(&["-n", "4", "--nodes", "2"], "test $PULC_RANK != 3 || exit 9; sleep 1000");
    assert_eq!(ended.code(), 9);
    assert!(ended.stderr.contains("rank 3 on node local-1 exited with status 9"), "{}", ended.stderr);
}

#[test]
fn a_program_missing_on_the_nodes_starts_nothing_anywhere() {
    let ended = Job::start(&["-n", "4", "--nodes", "2", "/no/such/program"]).finish();
    assert_eq!(ended.code(), 127);
    assert!(ended.stderr.contains("node local-"), "{}", ended.stderr);
}

#[test]
fn a_killed_keeper_of_one_node_ends_the_other_nodes_part() {
    let mut job = Job::start(&["-n", "4", "--nodes", "2", "sleep", "1000"]);
    job.wait_for_ranks(4);
    job.keepers()[1].kill();
    let ended = job.finish();
    assert_eq!(ended.code(), 127);
    assert!(ended.stderr.contains("the keeper of the job died"), "{}", ended.stderr);
}

#[test]
fn a_killed_pulc_run_ends_all_nodes() {
    let mut job = Job::start(&["-n", "4", "--nodes", "2", "sh", "-c", "trap '' TERM; sleep 1000"]);
    job.wait_for_ranks(4);
    job.signal(Signal::KILL);
    job.wait();
    job.assert_nothing_left();
}

#[test]
fn output_of_all_nodes_comes_in_whole_lines_in_order_and_complete() {
    let print = "for i in $(seq 3000); do echo $PULC_RANK$PULC_RANK$PULC_RANK $i; done";
    let ended = script(&["-n", "4", "--nodes", "2"], print);
    assert_numbered_lines(&ended.text(), 4, 3000, |rank| rank.to_string().repeat(3));
}

#[test]
fn a_stalled_reader_stalls_the_ranks_of_all_nodes_and_loses_nothing() {
    stall_two_ranks_on("2");
}
