//! Unmodified programs whose connections are promoted: each must do exactly what it does on the kernel. Every test runs in a network and
//! process namespace of its own, with a broker of its own, and nothing of it outlives its end.

use pulc_testkit::{rounds, skipped};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const PULC: &str = env!("CARGO_BIN_EXE_pulc");

fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../pulc-sockets-preload/tests/programs")
}

/// Runs a shell line where no network is up; at most 200 s.
fn alone(line: &str, variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new("timeout");
    command.args([
        "-k",
        "5",
        "200",
        "unshare",
        "--user",
        "--map-root-user",
        "--net",
        "--pid",
        "--fork",
        "--kill-child",
    ]);
    command.args(["sh", "-c", line]);
    command.env_remove("LD_PRELOAD").env("PULC", PULC).envs(variables.iter().copied());
    command.output().unwrap()
}

/// The same where only loopback is. All of the line comes after that, also what it starts in the background.
fn isolated(line: &str, variables: &[(&str, &str)]) -> Output {
    alone(&format!("ip link set lo up || exit 1; {line}"), variables)
}

fn cannot_isolate(name: &str) -> bool {
    let works = isolated("true", &[]).status.success();
    if !works {
        skipped(name, "no namespaces can be made here");
    }
    !works
}

fn text(output: &Output) -> (String, String) {
    (String::from_utf8_lossy(&output.stdout).into_owned(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn streams_through_rings_are_those_of_the_kernel() {
    if cannot_isolate("streams_through_rings_are_those_of_the_kernel") {
        return;
    }
    let script = programs().join("streams.py").display().to_string();
    for seed in 1..=rounds(2, 30) {
        let (kernel, _) = text(&isolated(&format!("python3 {script} {seed}"), &[]));
        for after in ["1", "6"] {
            let output = isolated(&format!("$PULC bypass python3 {script} {seed}"), &[("PULC_SOCKETS_AFTER", after)]);
            let (ring, words) = text(&output);
            assert!(output.status.success(), "seed {seed}, after {after}: {ring}{words}");
            assert_eq!(ring, kernel, "seed {seed}, after {after}: {words}");
        }
    }
}

/// A server, and a client that ends it. Whatever the client says comes before the list.
fn pair(server: &str, client: &str, what: &str) -> String {
    let script = programs().join("echo.py").display().to_string();
    format!(
        "{server} python3 {script} server & SERVER=$!; {client} python3 {script} {what}; $PULC sockets; kill $SERVER; wait $SERVER || true"
    )
}

#[test]
fn two_processes_are_promoted_listed_and_sent_back() {
    if cannot_isolate("two_processes_are_promoted_listed_and_sent_back") {
        return;
    }
    let (said, words) = text(&isolated(&pair("$PULC bypass", "$PULC bypass", "client"), &[]));
    assert!(said.contains("client: all echoes were right"), "{said}{words}");
    // While it ran: once on the ring, later on the kernel.
    assert!(said.contains("ring,ring"), "nothing was promoted: {said}{words}");
    assert!(said.contains("kernel,kernel"), "nothing was sent back: {said}{words}");
}

#[test]
fn a_broker_that_was_there_before_the_network_promotes_once_there_is_one() {
    if cannot_isolate("a_broker_that_was_there_before_the_network_promotes_once_there_is_one") {
        return;
    }
    let line = format!(
        "$PULC bypass $PULC sockets; ip link set lo up || exit 1; {}",
        pair("$PULC bypass", "$PULC bypass", "client")
    );
    let (said, words) = text(&alone(&line, &[]));
    assert!(said.starts_with("nothing is promoted just now"), "the list does not say why: {said}{words}");
    assert!(said.contains("client: all echoes were right"), "{said}{words}");
}

#[test]
fn an_end_that_takes_no_part_never_notices() {
    if cannot_isolate("an_end_that_takes_no_part_never_notices") {
        return;
    }
    for (server, client) in
        [("$PULC bypass", ""), ("", "$PULC bypass"), ("PULC_SOCKETS=off $PULC bypass", "$PULC bypass")]
    {
        let line = pair(server, client, "plain");
        let (said, words) = text(&isolated(&line, &[]));
        assert!(said.contains("client: all echoes were right"), "{said}{words}");
        assert!(!said.contains("ring,ring"), "one end alone was promoted: {said}{words}");
    }
}
