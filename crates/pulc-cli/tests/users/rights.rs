//! Whose processes are whose, and who may do what with whose jobs.

use crate::{ALICE, BOB, DAEMON, DAVE, MALLORY, OLGA, Several, User, owner};
use pulc_testkit::{run_within, wait_until};
use std::process::Stdio;
use std::time::Duration;

/// Numbers, groups, a limit, and that nobody can become more: the same on both nodes.
const WHO: &str = "echo $(id -u) $(id -g) $(id -G) $(ulimit -Sn) $(grep NoNewPrivs /proc/self/status | cut -f2) $HOME";

#[test]
fn every_users_processes_are_that_users_on_all_nodes() {
    let Some(several) = Several::start("every_users_processes_are_that_users_on_all_nodes") else { return };
    let home = several.path("open").display().to_string();
    for (user, groups, limit) in [(ALICE, "61001 61010", "321"), (BOB, "61002", "123")] {
        let script = format!("ulimit -Sn {limit}; exec \"$0\" \"$@\"");
        let command = several.command_as(0, user);
        // The limit is that of whoever asks: set between becoming the user and `pulc`.
        let arguments: Vec<_> = command.get_args().map(std::ffi::OsStr::to_owned).collect();
        let (pulc, before) = arguments.split_last().expect("pulc is the last");
        let mut limited = several.cluster.host(0).program_command("env");
        let setpriv = before.iter().position(|word| word == "setpriv").expect("it becomes the user");
        limited.args(&before[setpriv..]).args(["sh", "-c", &script]).arg(pulc);
        limited.args(["run", "-n", "2", "--nodes", "2", "sh", "-c", WHO]);
        limited.current_dir(several.path("open")).env("PULC_RUN_DIR", several.path("run-0")).env("HOME", &home);
        let out = run_within(limited, Duration::from_secs(120)).expect_success().stdout;
        let uid = user.uid;
        assert_eq!(out, format!("{uid} {uid} {groups} {limit} 1 {home}\n").repeat(2));
        // Out of the queue, from the other node.
        let file = format!("out-{uid}");
        let number = several.submit(1, user, &["-n", "2", "-N", "2", "-o", &file, "sh", "-c", "id -u"]);
        several.wait_for(user, &number, "COMPLETED");
        let path = several.path("open").join(&file);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{uid}\n").repeat(2));
        assert_eq!(owner(&path), uid);
    }
    // The daemon is neither root nor one of them.
    for host in 0..2 {
        let pid = several.cluster.host(host).daemon_pid().expect("a daemon");
        assert_eq!(owner(std::path::Path::new(&format!("/proc/{pid}"))), DAEMON);
    }
    // One whose number is somebody else's on the other node; one who is not on the list; root.
    let both = ["run", "-n", "2", "--nodes", "2", "true"];
    let dave = several.as_user(0, DAVE, &both);
    assert!(
        dave.code() != Some(0) && dave.stderr.contains("61003 is dave where") && dave.stderr.contains("erin"),
        "{dave:?}"
    );
    let mallory = several.as_user(0, MALLORY, &["run", "-n", "1", "true"]);
    assert!(mallory.code() != Some(0) && mallory.stderr.contains("mallory (61004) is not on the list"), "{mallory:?}");
    let root = several.as_root(0, &["run", "-n", "1", "true"]);
    assert!(root.code() != Some(0) && root.stderr.contains("nothing is run as root"), "{root:?}");
    let root = several.as_root(0, &["submit", "true"]);
    assert!(root.code() != Some(0) && root.stderr.contains("nothing is run as root"), "{root:?}");
    several.end();
}

#[test]
fn nobody_sees_or_touches_another_users_job_but_operators() {
    let Some(several) = Several::start("nobody_sees_or_touches_another_users_job_but_operators") else { return };
    let mut steps = several.command_as(0, ALICE);
    steps.args(["run", "-n", "2", "--nodes", "2", "sleep", "1000"]).stdin(Stdio::null()).stderr(Stdio::null());
    let mut steps = steps.spawn().unwrap();
    let table = wait_until(|| {
        let table = several.as_user(1, ALICE, &["ps"]).stdout;
        (table.matches(" pid ").count() == 2).then_some(table)
    });
    let table = table.expect("alice sees her job on the other node");
    let id = table.split_whitespace().nth(1).unwrap().to_owned();
    let queued = several.submit(0, ALICE, &["-J", "hers", "-o", "secret.out", "sleep", "1000"]);
    several.wait_for(ALICE, &queued, "RUNNING");
    let held = several.submit(0, ALICE, &["-H", "true"]);
    let attempt = several.as_user(0, ALICE, &["job", &queued, "--json"]).stdout;
    let attempt = attempt
        .split("\"attempt_id\":")
        .nth(1)
        .map(|rest| rest.split(['"', ',']).find(|word| !word.trim().is_empty()).unwrap().to_owned());
    let refused = |user: User, host: usize, arguments: &[&str]| {
        let finished = several.as_user(host, user, arguments);
        assert!(finished.code() != Some(0), "{arguments:?} by {}: {finished:?}", user.uid);
        finished.stderr
    };
    for host in 0..2 {
        assert_eq!(several.as_user(host, BOB, &["ps"]).expect_success().stdout, "no jobs\n");
        assert!(refused(BOB, host, &["kill", &id]).contains("of yours"));
        let why = several.as_user(host, BOB, &["why", &id]);
        assert!(!why.stdout.contains("rank"), "{why:?}");
        for verb in ["cancel", "suspend", "resume", "requeue"] {
            let why = refused(BOB, host, &[verb, &queued]);
            assert!(why.contains("not yours"), "{verb}: {why}");
        }
        for arguments in
            [&["hold", &held][..], &["release", &held], &["alter", &held, "--class", "high"], &["cancel", &held]]
        {
            let why = refused(BOB, host, arguments);
            assert!(why.contains("not yours") || why.contains("unexpected"), "{arguments:?}: {why}");
        }
        refused(BOB, host, &["attach", &queued]);
        let seen = several.as_user(host, BOB, &["job", &queued, "--json"]).stdout;
        assert!(!seen.contains("secret.out") && !seen.contains("sleep"), "{seen}");
        for arguments in [
            &["token"][..],
            &["down"],
            &["down", "--all"],
            &["reserve", "mine", "--for", "1h"],
            &["config", "health.interval=5m"],
        ] {
            let why = refused(BOB, host, arguments);
            assert!(why.contains("operators"), "{arguments:?}: {why}");
        }
    }
    let name = several.as_user(0, BOB, &["nodes", "--json"]).expect_success().stdout;
    let name = name.split("\"name\":").nth(1).and_then(|rest| rest.split('"').nth(1)).unwrap().to_owned();
    assert!(refused(BOB, 0, &["drain", &name, "-r", "spite"]).contains("operators"));
    // Slots of somebody else's job: the daemon of its first node knows whose they are.
    let attempt = attempt.expect("a job that runs has an attempt");
    let inside = |host: usize| {
        let mut inside = several.command_as(host, BOB);
        inside.env("PULC_ALLOCATION", &attempt).args(["run", "-n", "1", "true"]);
        run_within(inside, Duration::from_secs(120)).stderr
    };
    let said = inside(0) + &inside(1);
    assert!(said.contains("the slots are another user's"), "{attempt}: {said}");
    let log = several.log(0) + &several.log(1);
    for text in [
        "user 61002 was refused to stop job",
        "user 61002 was refused: job",
        "user 61002 was refused a token",
        "user 61002 was refused taking the daemon down",
    ] {
        assert!(log.contains(text), "{text:?} is not in\n{log}");
    }
    // All of it is still there, and an operator may end it.
    several.wait_for(ALICE, &queued, "RUNNING");
    assert!(several.as_user(0, OLGA, &["ps"]).expect_success().stdout.contains(&id));
    several.as_user(1, OLGA, &["cancel", &queued, &held]).expect_success();
    several.wait_for(ALICE, &queued, "CANCELLED");
    several.as_user(1, OLGA, &["kill", &id]).expect_success();
    assert!(!steps.wait().unwrap().success());
    several.end();
}

#[test]
fn nodes_and_reservations_are_for_groups_too() {
    let Some(several) = Several::start("nodes_and_reservations_are_for_groups_too") else { return };
    let nodes = several.as_user(0, BOB, &["nodes", "--json"]).expect_success().stdout;
    let name =
        |nth: usize| nodes.split("\"name\":").nth(nth).and_then(|rest| rest.split('"').nth(1)).unwrap().to_owned();
    let (first, second) = (name(1), name(2));
    // Alice is in that group.
    several.as_user(1, OLGA, &["node", &second, "--users", "@61010,61005"]).expect_success();
    let seen = several.as_user(0, BOB, &["nodes", "--queue", "--json"]).expect_success().stdout;
    assert!(seen.contains("[\"@61010\",61005]"), "{seen}");
    let there = ["-w", &second, "-D", "/", "-o", "/dev/null", "true"];
    for host in 0..2 {
        let number = several.submit(host, ALICE, &there);
        several.wait_for(ALICE, &number, "COMPLETED");
        let refused = several.as_user(host, BOB, &[&["submit"][..], &there].concat());
        assert!(refused.code() != Some(0) && refused.stderr.contains("users"), "{refused:?}");
    }
    // Without a wish it runs where its user may.
    let number = several.submit(1, BOB, &["-D", "/", "-o", "/dev/null", "true"]);
    several.wait_for(BOB, &number, "COMPLETED");
    assert!(several.as_user(0, BOB, &["job", &number]).stdout.contains(&first));
    several.as_user(0, OLGA, &["node", &second, "--users", ""]).expect_success();
    let number = several.submit(0, BOB, &there);
    several.wait_for(BOB, &number, "COMPLETED");
    let words = ["reserve", "hers", "-w", &second, "--for", "1h", "--users", "@61010"];
    several.as_user(0, OLGA, &words).expect_success();
    let shown = several.as_user(1, BOB, &["reserve"]).expect_success().stdout;
    assert!(shown.contains("@61010"), "{shown}");
    let inside = [&["--reservation", "hers"][..], &there].concat();
    let refused = several.as_user(1, BOB, &[&["submit"][..], &inside].concat());
    assert!(refused.code() != Some(0) && refused.stderr.contains("is not for user 61002"), "{refused:?}");
    let number = several.submit(1, ALICE, &inside);
    several.wait_for(ALICE, &number, "COMPLETED");
    let wrong = several.as_user(0, OLGA, &["node", &second, "--users", "@no-such-group"]);
    assert!(wrong.code() != Some(0) && wrong.stderr.contains("there is no group"), "{wrong:?}");
    several.end();
}
