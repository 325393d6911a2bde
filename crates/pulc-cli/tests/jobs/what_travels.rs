//! What the ranks find: directory, environment, umask, limits, cores; and what cannot be started.

use crate::harness::{Job, TempDir, command, script, tag, write_file};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

#[test]
fn directory_and_environment_travel() {
    let directory = TempDir::new();
    let here = std::fs::canonicalize(&directory.0).unwrap();
    for (nodes, count) in [("1", 1), ("2", 2)] {
        let tag = tag();
        let print = "echo $PULC_NODE $(pwd) $SPECIAL $PULC_LOCAL_RANK/$PULC_LOCAL_SIZE";
        let mut command = command(&tag, &["-n", nodes, "--nodes", nodes, "sh", "-c", print]);
        let ended = Job::of(command.current_dir(&directory.0).env("SPECIAL", "a=b c"), tag.clone()).finish();
        let text = ended.text();
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        let expected = ["0", "1"].map(|node| format!("{node} {} a=b c 0/1", here.display()));
        assert_eq!(lines, expected[..count], "{}", ended.stderr);
    }
}

#[test]
fn umask_and_limits_travel() {
    let pulc = env!("CARGO_BIN_EXE_pulc");
    for nodes in ["1", "2"] {
        let run = format!("{pulc} run --alone -n 2 --nodes {nodes} sh -c 'umask; ulimit -Sn'");
        let shell = format!("umask 027; ulimit -Sn 333; ulimit -Sc 0; exec {run}");
        let output = std::process::Command::new("sh").args(["-c", &shell]).output().unwrap();
        // Lines of two ranks may mix.
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["0027", "0027", "333", "333"], "{output:?}");
    }
}

#[test]
fn ranks_are_pinned_unless_told_otherwise() {
    let allowed = "grep Cpus_allowed_list /proc/self/status";
    let own = std::fs::read_to_string("/proc/self/status").unwrap();
    let own = own.lines().find(|line| line.starts_with("Cpus_allowed_list")).unwrap();
    let cores = std::thread::available_parallelism().unwrap().get();
    let free = script(&["-n", "2", "--no-pin"], allowed);
    assert!(free.text().lines().all(|line| line == own), "{}", free.text());
    if cores < 2 {
        pulc_testkit::skipped(
            "ranks are pinned unless told otherwise, in part",
            "pinning is not to be seen on one core",
        );
        return;
    }
    // Where ranks of other jobs crowd one core, both of these belong on the other: looked at again when those have ended.
    let patience = Instant::now() + Duration::from_secs(300);
    loop {
        let pinned = script(&["-n", "2"], allowed);
        let lines: Vec<String> = pinned.text().lines().map(str::to_owned).collect();
        assert_eq!(lines.len(), 2);
        if lines[0] != lines[1] {
            break;
        }
        assert!(Instant::now() < patience, "two ranks on the same core though another is free: {lines:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn the_callers_own_affinity_is_respected() {
    let pulc = env!("CARGO_BIN_EXE_pulc");
    let command = ["-c", "0", pulc, "run", "--alone", "-n", "3", "grep", "Cpus_allowed_list", "/proc/self/status"];
    match std::process::Command::new("taskset").args(command).output() {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!(text, "Cpus_allowed_list:\t0\n".repeat(3));
        }
        Err(error) => pulc_testkit::skipped("the caller's own affinity", &format!("taskset cannot be run ({error})")),
    }
}

#[test]
fn a_missing_program_is_named_with_its_node() {
    let ended = Job::start(&["-n", "3", "/no/such/program"]).finish();
    assert_eq!(ended.code(), 127);
    assert!(ended.stderr.contains("node "), "{}", ended.stderr);
    assert!(ended.stderr.contains("cannot execute /no/such/program: no such file or directory"), "{}", ended.stderr);
    let ended = Job::start(&["no-such-program-in-path"]).finish();
    assert_eq!(ended.code(), 127);
    assert!(ended.stderr.contains("cannot find the program no-such-program-in-path in PATH"), "{}", ended.stderr);
}

#[test]
fn a_program_that_may_not_be_executed_is_named() {
    let directory = TempDir::new();
    let path = directory.path("plain");
    write_file(&path, b"#!/bin/sh\n");
    let ended = Job::start(&[&path]).finish();
    assert_eq!(ended.code(), 127);
    assert!(ended.stderr.contains(&format!("cannot execute {path}: permission denied")), "{}", ended.stderr);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(Job::start(&[&path]).finish().code(), 0);
    write_file(&path, b"\x7fELFnonsense");
    let ended = Job::start(&["-n", "2", &path]).finish();
    assert_eq!(ended.code(), 127);
    assert!(ended.stderr.contains("Exec format error"), "{}", ended.stderr);
}

#[test]
fn a_missing_directory_is_named() {
    let ended = Job::start(&["--wdir", "/no/such/directory", "true"]).finish();
    assert_eq!(ended.code(), 127);
    assert!(ended.stderr.contains("/no/such/directory: no such file"), "{}", ended.stderr);
}

#[test]
fn too_few_descriptors_are_an_error_and_not_a_hang() {
    let tag = tag();
    let pulc = env!("CARGO_BIN_EXE_pulc");
    let shell = format!("{tag}; export PULC_TEST_TAG; ulimit -n 40; exec {pulc} run --alone -n 64 sleep 1000");
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &shell]).stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let ended = Job::of(&mut command, tag.clone()).finish();
    assert_ne!(ended.code(), 0);
    assert!(
        ended.stderr.contains("cannot be started: ") && ended.stderr.contains("Too many open files"),
        "{}",
        ended.stderr
    );
}

#[test]
fn descriptors_of_the_caller_do_not_leak_into_ranks() {
    let pulc = env!("CARGO_BIN_EXE_pulc");
    let shell = format!("exec 7</dev/null; exec {pulc} run --alone ls /proc/self/fd");
    let output = std::process::Command::new("sh").args(["-c", &shell]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0\n1\n2\n3\n", "3 is the directory that ls reads");
}

#[test]
fn sixty_four_ranks_start_on_whatever_cores_there_are() {
    let ended = script(&["-n", "64"], "echo $PULC_RANK");
    assert_eq!(ended.code(), 0, "{}", ended.stderr);
    let mut ranks: Vec<u32> = ended.text().lines().map(|line| line.parse().unwrap()).collect();
    ranks.sort_unstable();
    assert_eq!(ranks, (0..64).collect::<Vec<_>>());
}

#[test]
fn nonsense_on_the_command_line_is_refused() {
    for arguments in [&["-n", "0", "true"][..], &["--timeout", "soon", "true"], &["-n", "2"], &["--nodes", "0", "true"]]
    {
        assert_eq!(Job::start(arguments).finish().code(), 2, "{arguments:?}");
    }
    let ended = Job::start(&["-n", "2", "--nodes", "3", "true"]).finish();
    assert!(ended.stderr.contains("3 nodes asked for, but the job has only 2 ranks"), "{}", ended.stderr);
}
