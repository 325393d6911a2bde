//! What a network between nodes may do to a job: filter UDP, listen, and attack. Hosts are network namespaces; ranks, listeners and
//! attackers are copies of this test binary, started where they belong.

mod attacker;
mod choice;
mod ranks;

use pulc_testkit::cluster::{HANG, Host};
use pulc_testkit::finished::run_within;
use pulc_testkit::{Cluster, Finished, skipped};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

const PULC: &str = env!("CARGO_BIN_EXE_pulc");
/// Which part a copy of this binary plays.
const ENV_PART: &str = "PULC_TEST_PART";

/// Not a test: where the copies begin. Does nothing when no part is named.
#[test]
fn as_a_copy() {
    match std::env::var(ENV_PART).as_deref() {
        Ok("chatter") => ranks::chatter(),
        Ok("under_attack") => ranks::under_attack(),
        Ok("stay") => ranks::stay(),
        Ok("listen") => attacker::listen(),
        Ok("attack") => attacker::attack(),
        Ok(other) => panic!("no part {other}"),
        Err(_) => {}
    }
}

/// Words that start a copy in a part of its own.
fn copy() -> Vec<String> {
    let program = std::env::current_exe().expect("this program has a path");
    let program = program.to_str().expect("a path in UTF-8");
    [program, "as_a_copy", "--exact", "--nocapture", "--quiet"].map(str::to_owned).to_vec()
}

fn cluster(test: &str) -> Option<Cluster> {
    let cluster = Cluster::new(2, PULC)
        .map_err(|why| skipped(test, &format!("network namespaces cannot be made: {why}")))
        .ok()?;
    cluster.start();
    Some(cluster)
}

/// Two ranks on two nodes that play `part`.
fn job(host: &Host, flags: &[&str], part: &str) -> Finished {
    job_within("110", host, flags, part)
}

fn job_within(seconds: &str, host: &Host, flags: &[&str], part: &str) -> Finished {
    let mut command = host.command();
    command.args(["run", "-n", "2", "--nodes", "2", "--timeout", seconds]).args(flags).arg("--").args(copy());
    command.env(ENV_PART, part);
    run_within(command, 3 * HANG)
}

/// A copy that stays on a host until its standard input ends, and then writes what it found.
struct Bystander(Child);

impl Bystander {
    /// Returns when it has begun.
    fn start(host: &Host, part: &str) -> Bystander {
        let words = copy();
        let mut command: Command = host.program_command("env");
        command.args(&words).env(ENV_PART, part);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("a copy of this program can be started");
        let mut lines = BufReader::new(child.stdout.as_mut().expect("it is a pipe"));
        let mut line = String::new();
        while !line.contains("begun") {
            line.clear();
            let bytes = lines.read_line(&mut line).expect("it writes text");
            assert!(bytes > 0, "the copy that should {part} ended at once");
        }
        Bystander(child)
    }

    /// What it wrote in the end.
    fn stop(mut self) -> String {
        drop(self.0.stdin.take());
        let mut text = String::new();
        self.0.stdout.take().expect("it is a pipe").read_to_string(&mut text).expect("it writes text");
        assert!(self.0.wait().expect("it is our child").success(), "{text}");
        text
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn where_udp_is_filtered_a_job_runs_over_tcp() {
    let test = "where_udp_is_filtered_a_job_runs_over_tcp";
    let Some(cluster) = cluster(test) else { return };
    for host in cluster.hosts() {
        let mut filter = host.program_command("ip");
        filter.args(["rule", "add", "priority", "100", "ipproto", "udp", "blackhole"]);
        match filter.output() {
            Ok(output) if output.status.success() => {}
            _ => return skipped(test, "rules for routes by protocol cannot be made here"),
        }
    }
    // However long it took: nothing gets through.
    let stuck = job_within("3", cluster.host(0), &["--rail", "udp"], "chatter");
    assert!(!stuck.stdout.contains("heard it all"), "UDP is not filtered: {}", stuck.stdout);
    // Alone, and beside a rail on which nothing gets through.
    for rails in ["tcp", "udp,tcp"] {
        let ended = job(cluster.host(0), &["--rail", rails], "chatter").expect_success();
        assert_eq!(ended.stdout.matches("heard it all").count(), 2, "{rails}: {}", ended.stdout);
    }
    cluster.host(0).pulc(&["down", "--all"]).expect_success();
    cluster.expect_nothing_left();
}

#[test]
fn who_listens_reads_messages_only_where_nobody_asked_for_encryption() {
    let Some(cluster) = cluster("who_listens_reads_messages_only_where_nobody_asked_for_encryption") else { return };
    for (flags, readable) in [
        (&["--rail", "udp"][..], true),
        (&["--rail", "udp", "--encrypt"], false),
        (&["--rail", "tcp"], true),
        (&["--rail", "tcp", "--encrypt"], false),
    ] {
        let listener = Bystander::start(cluster.host(1), "listen");
        let ended = job(cluster.host(0), flags, "chatter").expect_success();
        assert_eq!(ended.stdout.matches("heard it all").count(), 2, "{flags:?}: {}", ended.stdout);
        let heard = listener.stop();
        assert_eq!(heard.contains("and read it"), readable, "{flags:?}: {heard}");
        assert!(heard.contains("heard much"), "the listener heard nothing to read: {heard}");
    }
    cluster.host(0).pulc(&["down", "--all"]).expect_success();
    cluster.expect_nothing_left();
}

#[test]
fn forged_replayed_cut_and_foreign_frames_at_full_rate_change_nothing_and_are_told() {
    let test = "forged_replayed_cut_and_foreign_frames_at_full_rate_change_nothing_and_are_told";
    let Some(cluster) = cluster(test) else { return };
    // What leaves the attacker's host carries whatever source it likes.
    let attackers = [0, 1, 0, 1].map(|host| Bystander::start(cluster.host(host), "attack"));
    // On a machine with other work the attackers take most of what is left.
    let ended = job_within("150", cluster.host(0), &[], "under_attack").expect_success();
    assert_eq!(ended.stdout.matches("stood it").count(), 2, "{}", ended.stdout);
    assert!(ended.stderr.contains("frames from the network refused so far"), "{}", ended.stderr);
    for attacker in attackers {
        let told = attacker.stop();
        assert!(told.contains("attacked"), "{told}");
        println!("{}; {}", told.trim(), ended.stdout.trim());
    }
    cluster.host(0).pulc(&["down", "--all"]).expect_success();
    cluster.expect_nothing_left();
}
