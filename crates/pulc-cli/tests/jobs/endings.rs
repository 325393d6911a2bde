//! How jobs end: exit status and its line, signals, timeouts, and violence against every kind of process.

use crate::harness::{GUARD, Job, Kind, TempDir, command, script, tag};
use rustix::process::Signal;

#[test]
fn the_first_failure_is_the_jobs_status_and_is_named() {
    let ended = script(&["-n", "3"], "test $PULC_RANK != 2 || exit 7; sleep 1000");
    assert_eq!(ended.code(), 7);
    assert!(ended.stderr.starts_with("pulc: rank 2 on node "), "{}", ended.stderr);
    assert!(ended.stderr.ends_with("exited with status 7\n"), "{}", ended.stderr);
    assert_eq!(ended.stderr.lines().count(), 1);
}

#[test]
fn a_rank_that_ends_with_zero_early_does_not_end_the_job() {
    let ended = script(&["-n", "3"], "test $PULC_RANK = 0 || { sleep 0.3; echo late; }");
    assert_eq!(ended.code(), 0);
    assert_eq!(ended.text(), "late\nlate\n");
}

#[test]
fn death_by_a_signal_is_128_and_the_signal() {
    let ended = script(&["-n", "2"], "test $PULC_RANK != 1 || kill -SEGV $$; sleep 1000");
    assert_eq!(ended.code(), 139);
    assert!(ended.stderr.contains("rank 1 on node") && ended.stderr.contains("signal 11 (SIGSEGV"), "{}", ended.stderr);
}

#[test]
fn a_killed_rank_ends_the_job() {
    let mut job = Job::start(&["-n", "4", "sleep", "1000"]);
    job.wait_for_ranks(4);
    job.ranks()[2].kill();
    let ended = job.finish();
    assert_eq!(ended.code(), 137);
    assert!(ended.stderr.contains("was killed by signal 9 (SIGKILL"), "{}", ended.stderr);
}

#[test]
fn a_killed_keeper_ends_the_job_and_everything_it_left() {
    let escape = "setsid sh -c 'trap \"\" TERM HUP; while :; do sleep 1; done' & env -i sleep 1000 & sleep 1000";
    let mut job = Job::start(&["-n", "2", "sh", "-c", escape]);
    job.wait_for_ranks(6);
    job.keepers()[0].kill();
    let ended = job.finish();
    assert_eq!(ended.code(), 127);
    assert!(ended.stderr.contains("the keeper of the job died"), "{}", ended.stderr);
}

#[test]
fn a_killed_pulc_run_leaves_nothing() {
    let escape = "trap '' TERM; (setsid sh -c 'while :; do sleep 1; done' &) & sleep 1000";
    let mut job = Job::start(&["-n", "3", "sh", "-c", escape]);
    job.wait_for_ranks(6);
    job.signal(Signal::KILL);
    assert!(job.wait().code().is_none());
    job.assert_nothing_left();
}

#[test]
fn ranks_that_hide_are_found_with_and_without_a_cgroup() {
    // Double fork, own session, no descriptors, deaf to SIGTERM.
    let hide = "trap '' TERM HUP; (setsid sh -c 'exec <&- >&- 2>&-; sleep 1000' &); exit 3";
    for without_cgroup in [false, true] {
        let tag = tag();
        let mut command = command(&tag, &["-n", "2", "--kill-delay", "1", "sh", "-c", hide]);
        if without_cgroup {
            command.env("PULC_NO_CGROUP", "1");
        }
        let ended = Job::of(&mut command, tag.clone()).finish();
        assert_eq!(ended.code(), 3, "{}", ended.stderr);
    }
}

#[test]
fn what_ranks_leave_behind_ends_with_the_job() {
    let ended = script(&["-n", "2"], "sleep 1000 & (setsid sleep 1000 >/dev/null 2>&1 &) ; echo started");
    assert_eq!(ended.code(), 0, "{}", ended.stderr);
    assert_eq!(ended.text(), "started\nstarted\n");
}

#[test]
fn a_rank_that_forks_without_end_is_ended() {
    // Each process starts its successor and ends, so nobody is to be found for long. Bounded, should all else fail.
    let body = "test $1 -gt 0 && (setsid sh -c \"$BODY\" sh $(($1-1)) &)";
    for without_cgroup in [false, true] {
        let tag = tag();
        let start = "sh -c \"$BODY\" sh 3000; sleep 0.3; exit 4";
        let mut command = command(&tag, &["-n", "1", "--kill-delay", "0.2", "sh", "-c", start]);
        command.env("BODY", body);
        if without_cgroup {
            command.env("PULC_NO_CGROUP", "1");
        }
        let ended = Job::of(&mut command, tag.clone()).finish();
        assert_eq!(ended.code(), 4, "{}", ended.stderr);
    }
}

#[test]
fn a_timeout_ends_the_job_with_124() {
    let ended = Job::start(&["-n", "2", "--timeout", "0.5", "sleep", "1000"]).finish();
    assert_eq!(ended.code(), 124);
    assert!(ended.stderr.contains("did not end within 0.5 s"), "{}", ended.stderr);
}

#[test]
fn ranks_deaf_to_sigterm_are_killed_after_the_kill_delay() {
    let deaf = "trap '' TERM; echo up; while :; do sleep 0.1; done";
    let ended = Job::start(&["-n", "2", "--timeout", "0.5", "--kill-delay", "0.5", "sh", "-c", deaf]).finish();
    assert_eq!(ended.code(), 124);
}

#[test]
fn one_interrupt_lets_ranks_clean_up() {
    let directory = TempDir::new();
    let program = format!(
        "trap 'touch {}/$PULC_RANK; exit 0' TERM; echo up; while :; do sleep 0.05; done",
        directory.path("seen")
    );
    std::fs::create_dir(directory.path("seen")).unwrap();
    let mut job = Job::start(&["-n", "2", "sh", "-c", &program]);
    job.wait_for_ranks(2);
    std::thread::sleep(std::time::Duration::from_millis(300));
    job.signal(Signal::INT);
    let ended = job.finish();
    assert_eq!(ended.code(), 130);
    assert!(ended.stderr.contains("stopped by SIGINT"), "{}", ended.stderr);
    assert_eq!(std::fs::read_dir(directory.path("seen")).unwrap().count(), 2);
}

#[test]
fn one_interrupt_ends_ranks_deaf_to_sigterm_after_the_kill_delay() {
    for nodes in ["1", "2"] {
        let directory = TempDir::new();
        let program = format!("trap '' TERM; touch {}/$PULC_RANK; while :; do sleep 0.1; done", directory.0.display());
        let mut job = Job::start(&["-n", "2", "--nodes", nodes, "--kill-delay", "0.5", "sh", "-c", &program]);
        let begin = std::time::Instant::now();
        while std::fs::read_dir(&directory.0).unwrap().count() < 2 {
            assert!(job.child.try_wait().unwrap().is_none() && begin.elapsed() < GUARD, "no rank became deaf");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        job.signal(Signal::INT);
        let ended = job.finish();
        assert_eq!(ended.code(), 130, "{}", ended.stderr);
        assert!(ended.stderr.contains("stopped by SIGINT"), "{}", ended.stderr);
    }
}

#[test]
fn a_second_interrupt_kills_at_once() {
    let mut job =
        Job::start(&["-n", "2", "--kill-delay", "1000", "sh", "-c", "trap '' TERM; while :; do sleep 0.1; done"]);
    job.wait_for_ranks(2);
    std::thread::sleep(std::time::Duration::from_millis(300));
    job.signal(Signal::INT);
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(job.child.try_wait().unwrap().is_none(), "deaf ranks outlive one interrupt");
    job.signal(Signal::INT);
    assert_eq!(job.finish().code(), 130);
}

#[test]
fn a_second_interrupt_ends_pulc_run_even_if_nobody_reads_its_output() {
    let tag = tag();
    let mut child = command(&tag, &["-n", "2", "sh", "-c", "while :; do echo y; done"]).spawn().unwrap();
    // Held open and never read.
    let (_stdout, _stderr) = (child.stdout.take(), child.stderr.take());
    let mut job = Job { child, ..Job::of(&mut std::process::Command::new("true"), tag) };
    job.wait_for_ranks(2);
    job.signal(Signal::INT);
    std::thread::sleep(std::time::Duration::from_millis(300));
    job.signal(Signal::INT);
    assert_eq!(job.finish().code(), 130);
}

#[test]
fn sigterm_and_hang_up_end_the_job_too() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129)] {
        let mut job = Job::start(&["-n", "2", "sleep", "1000"]);
        job.wait_for_ranks(2);
        job.signal(signal);
        assert_eq!(job.finish().code(), code);
    }
}

#[test]
fn a_stopped_rank_can_be_ended() {
    let mut job = Job::start(&["-n", "2", "--kill-delay", "1", "sh", "-c", "kill -STOP $$; sleep 1000"]);
    job.wait_for_ranks(2);
    job.signal(Signal::TERM);
    assert_eq!(job.finish().code(), 143);
}

#[test]
fn no_cgroup_of_a_job_is_left() {
    let made = script(&["-n", "2"], "grep -o 'pulc-.*' /proc/self/cgroup");
    let names: Vec<String> = made.text().lines().map(str::to_owned).collect();
    let Some(name) = names.first() else {
        pulc_testkit::skipped("no cgroup of a job is left", "no cgroup may be made here");
        return;
    };
    assert_eq!(names, [name.clone(), name.clone()], "all ranks of a node are in one cgroup");
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let root = mounts.lines().find(|line| line.contains(" - cgroup2 ")).unwrap().split(' ').nth(4).unwrap();
    assert!(!std::path::Path::new(root).join(name).exists());
}

/// Stops the first process of this kind as soon as it is there.
fn stop_when_seen(job: &mut Job, kind: Kind) {
    let begin = std::time::Instant::now();
    loop {
        if let Some(found) = job.processes().into_iter().find(|found| found.kind() == kind) {
            found.stop();
            return;
        }
        assert!(job.child.try_wait().unwrap().is_none() && begin.elapsed() < GUARD, "no {kind:?} came up");
    }
}

#[test]
fn a_keeper_that_hangs_while_a_job_is_started_fails_it() {
    // A keeper may be seen too late: then the job runs and is ended by its timeout instead.
    for _ in 0..20 {
        let tag = tag();
        let mut command = command(&tag, &["-n", "2", "--timeout", "2", "--kill-delay", "0.2", "sleep", "1000"]);
        command.env("PULC_LAUNCH_TIMEOUT_MS", "500").env("PULC_END_TIMEOUT_MS", "500");
        let mut job = Job::of(&mut command, tag);
        stop_when_seen(&mut job, Kind::Keeper);
        let ended = job.finish();
        if ended.code() == 127 {
            let first = ended.stderr.contains("the keeper of the job did not get ready within 0.5 s");
            let second = ended.stderr.contains("did not start its ranks within 0.5 s");
            assert!(first || second, "{}", ended.stderr);
            return;
        }
        assert_eq!(ended.code(), 124, "{}", ended.stderr);
    }
    panic!("no keeper could be stopped before it had started its ranks");
}

#[test]
fn a_keeper_that_hangs_cannot_keep_a_job_from_ending() {
    let tag = tag();
    let mut command = command(&tag, &["-n", "2", "--timeout", "1", "--kill-delay", "0.2", "sleep", "1000"]);
    command.env("PULC_END_TIMEOUT_MS", "500");
    let mut job = Job::of(&mut command, tag);
    job.wait_for_ranks(2);
    job.keepers()[0].stop();
    let ended = job.finish();
    assert_eq!(ended.code(), 124, "{}", ended.stderr);
}

#[test]
fn a_guardian_that_hangs_cannot_keep_a_job_from_ending() {
    let tag = tag();
    let mut command = command(&tag, &["-n", "2", "sh", "-c", "sleep 1; exit 3"]);
    command.env("PULC_END_TIMEOUT_MS", "500");
    let mut job = Job::of(&mut command, tag);
    job.wait_for_ranks(2);
    stop_when_seen(&mut job, Kind::Guardian);
    let ended = job.finish();
    assert_eq!(ended.code(), 3, "{}", ended.stderr);
}
