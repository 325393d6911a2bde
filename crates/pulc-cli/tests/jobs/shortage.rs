//! Too few descriptors, too few processes: whatever the limit is, `pulc run` and `pulc up` either work or say which limit it was,
//! and leave nothing. Swept over all small limits, so that every place where the last one can be missing is met.

use crate::harness::{Ended, Job, TempDir, tag};
use crate::user::Other;
use pulc_testkit::skipped;
use std::process::{Command, Stdio};

/// A command under a limit of prlimit(1), with a tag.
fn limited(limit: &str, program: Command, tag: &str) -> Job {
    let mut command = Command::new("prlimit");
    command.arg(limit).arg(program.get_program()).args(program.get_args());
    let variables = program.get_envs().filter_map(|(name, value)| Some((name, value?)));
    command.envs(variables);
    let (name, value) = tag.split_once('=').unwrap();
    command.env(name, value).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Job::of(&mut command, tag.to_owned())
}

/// Either it worked, or it says in its own words what was short. Returns how many refusals of PULC that was, one or none:
/// a sweep without any tests nothing.
fn expect_clear_word(ended: &Ended, limit: &str, hint: &str) -> u32 {
    let text = &ended.stderr;
    assert!(!text.contains("panicked"), "{limit}: {text}");
    match ended.code() {
        0 => {}
        1 | 127 => assert!(text.contains(hint), "{limit}: {text}"),
        // The program itself could not be loaded.
        _ => assert!(!text.contains("pulc: "), "{limit}: {} {text}", ended.code()),
    }
    u32::from(ended.code() == 1 && text.contains("pulc: "))
}

#[test]
fn however_few_files_may_be_open_the_job_runs_or_says_so() {
    for nodes in ["1", "2"] {
        let mut refusals = 0;
        for limit in 4..48 {
            let mut pulc = Command::new(env!("CARGO_BIN_EXE_pulc"));
            pulc.args(["run", "--alone", "-n", "4", "--nodes", nodes, "true"]);
            let limit = format!("--nofile={limit}:{limit}");
            let ended = limited(&limit, pulc, &tag()).finish();
            refusals += expect_clear_word(&ended, &limit, "ulimit -n");
        }
        assert!(refusals > 0, "no limit was too low for PULC: this is no test");
    }
}

#[test]
fn however_few_files_may_be_open_the_daemon_comes_up_or_says_so() {
    let directory = TempDir::new();
    let mut refusals = 0;
    for limit in 4..32 {
        let pulc = |word: &[&str]| {
            let mut pulc = Command::new(env!("CARGO_BIN_EXE_pulc"));
            pulc.args(word).env("PULC_STATE_DIR", directory.path("state"));
            pulc.env("PULC_ENDS_WITH", std::process::id().to_string());
            pulc
        };
        let limit = format!("--nofile={limit}:{limit}");
        let tag = tag();
        let mut up = limited(&limit, pulc(&["up", "--listen", "127.0.0.1:0"]), &tag);
        let status = up.wait();
        let down = pulc(&["down"]).stderr(Stdio::null()).status().unwrap();
        assert_eq!(status.success(), down.success(), "{limit}: a daemon is there exactly when `pulc up` says so");
        let ended = up.finish();
        refusals += expect_clear_word(&ended, &limit, "ulimit -n");
    }
    assert!(refusals > 0, "no limit was too low for PULC: this is no test");
}

#[test]
fn however_few_processes_a_user_may_have_the_job_runs_or_says_so() {
    // Root is not bound by this limit, and a user who runs other things has unknown many.
    let Some(user) = Other::user(61_977) else {
        return skipped(
            "however_few_processes_a_user_may_have_the_job_runs_or_says_so",
            "needs root and setpriv, to become a user without processes",
        );
    };
    for nodes in ["1", "2"] {
        let mut refusals = 0;
        for limit in 1..40 {
            let pulc = user.pulc(&["run", "--alone", "-n", "8", "--nodes", nodes, "true"]);
            let limit = format!("--nproc={limit}:{limit}");
            let ended = limited(&limit, pulc, &tag()).finish();
            refusals += expect_clear_word(&ended, &limit, "ulimit -u");
        }
        assert!(refusals > 0, "no limit was too low for PULC: this is no test");
    }
}
