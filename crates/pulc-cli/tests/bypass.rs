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

#[test]
fn sets_of_descriptors_whose_changes_are_postponed_are_those_of_the_kernel() {
    if cannot_isolate("sets_of_descriptors_whose_changes_are_postponed_are_those_of_the_kernel") {
        return;
    }
    let script = programs().join("sets.py").display().to_string();
    for seed in 1..=rounds(2, 30) {
        let (kernel, _) = text(&isolated(&format!("python3 {script} {seed}"), &[]));
        let line = format!("$PULC bypass python3 {script} {seed} && $PULC sockets >&2");
        let output = isolated(&line, &[("PULC_SOCKETS_AFTER", "1")]);
        let (ring, words) = text(&output);
        assert!(output.status.success(), "seed {seed}: {ring}{words}");
        assert_eq!(ring, kernel, "seed {seed}: {words}");
        assert!(words.contains("so far ") && !words.contains("so far 0 "), "nothing was promoted: {words}");
    }
}

#[test]
fn datagrams_through_rings_are_those_of_the_kernel() {
    if cannot_isolate("datagrams_through_rings_are_those_of_the_kernel") {
        return;
    }
    let script = programs().join("datagrams.py").display().to_string();
    for seed in 1..=rounds(2, 30) {
        let (kernel, _) = text(&isolated(&format!("python3 {script} {seed}"), &[]));
        for after in ["1", "6"] {
            let line = format!("$PULC bypass python3 {script} {seed} && $PULC sockets >&2");
            let (ring, words) = text(&isolated(&line, &[("PULC_SOCKETS_AFTER", after)]));
            assert!(ring.contains("all datagrams were right"), "seed {seed}, after {after}: {ring}{words}");
            assert_eq!(ring, kernel, "seed {seed}, after {after}: {words}");
            assert!(words.contains("so far ") && !words.contains("so far 0 "), "nothing was promoted: {words}");
        }
    }
}

/// Starts a broker whose number is known, and waits until it can be asked.
const BROKER: &str =
    "$PULC sockets-broker >/dev/null & BROKER=$!; until $PULC sockets | grep -q WHY; do sleep 0.05; done";

/// A server for one client, and that client.
fn pair(client: &str) -> String {
    let script = programs().join("echo.py").display().to_string();
    format!(
        "$PULC bypass python3 {script} server & SERVER=$!; $PULC bypass python3 {script} {client}; $PULC sockets; wait $SERVER"
    )
}

#[test]
fn two_processes_are_promoted_listed_and_sent_back() {
    if cannot_isolate("two_processes_are_promoted_listed_and_sent_back") {
        return;
    }
    let (said, words) = text(&isolated(&pair("client"), &[]));
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
    let line = format!("$PULC bypass $PULC sockets; ip link set lo up || exit 1; {}", pair("client"));
    let (said, words) = text(&alone(&line, &[]));
    assert!(said.starts_with("nothing is promoted just now"), "the list does not say why: {said}{words}");
    assert!(said.contains("client: all echoes were right"), "{said}{words}");
}

#[test]
fn a_broker_that_does_not_answer_is_asked_again() {
    if cannot_isolate("a_broker_that_does_not_answer_is_asked_again") {
        return;
    }
    let line = format!("{BROKER}; export BROKER; kill -STOP $BROKER; {}", pair("awake"));
    let (said, words) = text(&isolated(&line, &[]));
    assert!(said.contains("client: all echoes were right"), "{said}{words}");
}

#[test]
fn connections_that_stay_on_the_kernel_are_listed_with_the_reason() {
    if cannot_isolate("connections_that_stay_on_the_kernel_are_listed_with_the_reason") {
        return;
    }
    let excluded = "until 'its port is not among those of --only'";
    for (client, only) in [(excluded, "1-9"), ("forked", "7007")] {
        let (said, words) = text(&isolated(&pair(client), &[("PULC_SOCKETS_ONLY", only)]));
        assert!(said.contains("client: all echoes were right"), "{said}{words}");
    }
}

#[test]
fn a_killed_broker_hangs_nobody_neither_open_rings_nor_new_connections() {
    if cannot_isolate("a_killed_broker_hangs_nobody_neither_open_rings_nor_new_connections") {
        return;
    }
    let script = programs().join("echo.py").display().to_string();
    let client = format!("$PULC bypass python3 {script}");
    // The server has a slot of the first broker's board, the second client one of the second broker's.
    let line = format!(
        "{BROKER}; export BROKER; $PULC bypass python3 {script} server 2 & SERVER=$!; {client} orphan; wait $BROKER; \
         {client} until 'began with a broker that is gone'; wait $SERVER"
    );
    let (said, words) = text(&isolated(&line, &[]));
    assert_eq!(said.matches("client: all echoes were right").count(), 2, "{said}{words}");
}

/// Two users; the second must not be the first's.
const USERS: [&str; 2] = ["50701", "50702"];

/// An echo server of the one user and its client of the other, beside a psid of root that has been told `between`; what was said.
fn two_users(between: &str, client: &str) -> String {
    let script = programs().join("echo.py").display().to_string();
    let [one, other] =
        USERS.map(|user| format!("setpriv --reuid={user} --regid={user} --clear-groups env HOME=/tmp $PULC bypass"));
    let line = format!(
        "ip link set lo up && mount -t tmpfs none /tmp && mkdir -m 700 /tmp/psid && $PULC up --listen 127.0.0.1:7999 >&2 && \
         {{ {one} python3 {script} server & SERVER=$!; {other} python3 {script} {client}; wait $SERVER; $PULC down >&2; }}"
    );
    let mut command = Command::new("timeout");
    command.args([
        "-k",
        "5",
        "200",
        "unshare",
        "--net",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "sh",
        "-c",
        &line,
    ]);
    command.env_remove("LD_PRELOAD").env("PULC", PULC).env("PULC_STATE_DIR", "/tmp/psid");
    if !between.is_empty() {
        command.env("PULC_SOCKETS_BETWEEN", between);
    }
    let (said, words) = text(&command.output().unwrap());
    format!("{said}{words}")
}

#[test]
fn users_meet_only_where_a_psid_of_root_allows_it() {
    if !rustix::process::geteuid().is_root() {
        skipped("users_meet_only_where_a_psid_of_root_allows_it", "nobody but root can be two users");
        return;
    }
    let [one, other] = USERS;
    let said = two_users(&format!("1:2,{one}:{other}"), "client");
    assert!(said.contains("client: all echoes were right"), "{said}");
    assert!(said.contains("ring,ring") && said.contains("kernel,kernel"), "{said}");
    for between in ["", "1:2"] {
        let said = two_users(between, "until 'belongs to another user'");
        assert!(said.contains("client: all echoes were right"), "{between:?}: {said}");
        assert!(!said.contains("ring,ring"), "{between:?}: {said}");
    }
}

#[test]
fn the_benchmark_tells_every_figure() {
    if cannot_isolate("the_benchmark_tells_every_figure") {
        return;
    }
    let output = isolated("$PULC bench sockets --quick --json", &[]);
    let (said, words) = text(&output);
    assert!(output.status.success(), "{said}{words}");
    for contest in [
        "64 bytes one way, ns",
        "64 bytes one way by UDP, ns",
        "requests of 1 ",
        "requests of 50 ",
        "stream",
        "connections",
    ] {
        assert!(said.contains(&format!("\"what\":\"{contest}")), "{contest}: {said}{words}");
    }
}

/// A number in what was said: what stands before `unit`.
fn number_before(said: &str, unit: &str) -> f64 {
    let (before, _) = said.split_once(unit).unwrap_or_default();
    before.rsplit(char::is_whitespace).next().and_then(|word| word.parse().ok()).unwrap_or(f64::NAN)
}

#[test]
fn connections_that_are_idle_cost_little_memory_and_no_time() {
    if cannot_isolate("connections_that_are_idle_cost_little_memory_and_no_time") {
        return;
    }
    let script = programs().join("idle.py").display().to_string();
    let count = rounds(400, 10_000);
    // Of /proc only this namespace's processes are to be seen.
    let line = format!("mount -t proc none /proc && $PULC bypass python3 {script} {count}");
    let mut command = Command::new("timeout");
    let alone = ["-k", "5", "200", "unshare", "--user", "--map-root-user", "--net", "--pid", "--mount", "--fork"];
    command.args(alone).args(["--kill-child", "sh", "-c", &format!("ip link set lo up || exit 1; {line}")]);
    command.env_remove("LD_PRELOAD").env("PULC", PULC).env("PULC_SOCKETS_AFTER", "1");
    let (said, words) = text(&command.output().unwrap());
    // Where a broker on a busy machine did not answer in time, a connection that says no more stays on the kernel.
    let promoted = said.lines().find_map(|line| line.strip_prefix("promoted ")?.split(' ').next()?.parse().ok());
    assert!(promoted.is_some_and(|promoted: u32| promoted > count / 2), "{said}{words}");
    let memory = number_before(&said, " KiB a connection");
    // 16 when nothing else is counted; what programs keep for themselves makes some difference where there are few.
    assert!((1.0..20.0).contains(&memory), "{memory} KiB: {said}{words}");
    // Nobody polls: of 300 ticks.
    let ticks = number_before(&said, " ticks");
    assert!(ticks < 30.0, "{ticks} ticks: {said}{words}");
}

#[test]
fn a_bypassed_program_has_no_children_but_its_own() {
    if cannot_isolate("a_bypassed_program_has_no_children_but_its_own") {
        return;
    }
    // A broker is started first; a program that waits for all of its children must not wait for that one.
    let line = "$PULC bypass python3 -c 'import os; os.wait()' 2>&1; $PULC sockets";
    let (said, words) = text(&isolated(line, &[]));
    assert!(said.contains("ChildProcessError"), "{said}{words}");
    assert!(said.contains("WHY NOT"), "there is no broker: {said}{words}");
}

#[test]
fn an_end_that_takes_no_part_never_notices() {
    if cannot_isolate("an_end_that_takes_no_part_never_notices") {
        return;
    }
    let script = programs().join("echo.py").display().to_string();
    for (server, client) in
        [("$PULC bypass", ""), ("", "$PULC bypass"), ("PULC_SOCKETS=off $PULC bypass", "$PULC bypass")]
    {
        let line = format!("{server} python3 {script} server & {client} python3 {script} plain; $PULC sockets; wait");
        let (said, words) = text(&isolated(&line, &[]));
        assert!(said.contains("client: all echoes were right"), "{said}{words}");
        assert!(!said.contains("ring,ring"), "one end alone was promoted: {said}{words}");
    }
}
