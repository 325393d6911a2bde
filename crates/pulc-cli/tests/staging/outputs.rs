//! What jobs give back (`--stage-out`): it is at its home when they have ended, whole; what can't come back is said before the start, or kept
//! where it is.

use crate::{Apart, PULC};
use pulc_testkit::{Cluster, Finished, run_within, skipped, wait_until};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

#[test]
fn what_a_job_leaves_comes_back_whole_and_the_job_ends_when_it_is_there() {
    let test = "what_a_job_leaves_comes_back_whole_and_the_job_ends_when_it_is_there";
    let Some(apart) = Apart::new(test, 2, "64m") else { return };
    let (result, logs) = (apart.home.join("result"), apart.home.join("logs"));
    fs::create_dir(&logs).expect("home can be written to");
    let outs = [format!("out/r:{}", result.display()), format!("log:{}/log-%N", logs.display())];
    let out_words = ["--stage-out", &outs[0], "--stage-out", &outs[1]];
    let run = |script: &str| {
        let words = ["-n", "2", "--nodes", "2"];
        apart.run(&[&words[..], &out_words, &["sh", "-c", script]].concat())
    };
    let texts = || {
        let entries = fs::read_dir(&logs).expect("it is there").map(|entry| entry.expect("it can be read").path());
        let mut texts: Vec<String> = entries.map(|path| fs::read_to_string(path).expect("it is text")).collect();
        texts.sort();
        texts
    };
    let all = "mkdir out; head -c 300000 /dev/zero | tr '\\0' $PULC_RANK > out/r; echo rank $PULC_RANK > log";
    run(all).expect_success();
    assert!(fs::read(&result).expect("it came back") == [b'0'; 300_000], "not whole");
    assert_eq!(texts(), ["rank 0\n", "rank 1\n"], "one from each node");
    // The next one replaces it; of a job that fails comes back what is there, and its own failure is what is told.
    let failed = run("mkdir out; echo again > out/r; [ $PULC_RANK = 1 ] || exit 7");
    assert_eq!(failed.code(), Some(7), "{failed:?}");
    assert!(failed.stderr.contains("exited with status 7"), "{failed:?}");
    assert_eq!(fs::read_to_string(&result).expect("it is there"), "again\n");
    // What is not there fails a job that has ended well.
    let missing = run("mkdir out; echo third > log");
    assert_eq!(missing.code(), Some(1), "{missing:?}");
    assert!(missing.stderr.contains("out/r does not come back: No such file"), "{missing:?}");
    assert_eq!(texts(), ["third\n", "third\n"]);
    // A directory, without a daemon and from one node.
    let there = format!("out:{}/all", apart.home.display());
    let words = [
        "run",
        "--alone",
        "-n",
        "1",
        "--stage-out",
        &there,
        "sh",
        "-c",
        "mkdir -p out/a; echo 1 > out/a/b; echo 2 > out/c",
    ];
    apart.cluster.host(0).pulc(&words).expect_success();
    let text = |name: &str| fs::read_to_string(apart.home.join("all").join(name)).expect("it came back");
    assert_eq!([text("a/b"), text("c")], ["1\n", "2\n"]);
    apart.expect_no_rooms();
    // Out of the queue, from another node, to one that is not the first of the job; tasks of an array have names of their own.
    let host = apart.cluster.host(0);
    let node = host.states().into_iter().map(|(name, _)| name).nth(1).expect("there are two nodes");
    let script = ["sh", "-c", "mkdir out; echo queued $PULC_ARRAY_INDEX > out/r"];
    let submit = |more: &[&str]| {
        let words = ["submit", "-W", "-w", &node, "-D", "/", "-o", "/dev/null"];
        host.pulc(&[&words[..], more, &script].concat())
    };
    submit(&["--stage-out", &outs[0]]).expect_success();
    assert_eq!(fs::read_to_string(&result).expect("it came back before the job was over"), "queued\n");
    let refused = submit(&["-a", "1-2", "--stage-out", &outs[0]]);
    assert!(refused.stderr.contains("all tasks of the array would come back as"), "{refused:?}");
    submit(&["-a", "1-2", "--stage-out", &format!("{}-%a", outs[0])]).expect_success();
    for index in ["1", "2"] {
        let text = fs::read_to_string(format!("{}-{index}", result.display())).expect("it came back");
        assert_eq!(text, format!("queued {index}\n"));
    }
    apart.expect_no_rooms();
    host.pulc(&["down", "--all"]).expect_success();
    apart.cluster.expect_nothing_left();
}

#[test]
fn what_cannot_come_back_is_said_before_the_start_or_kept() {
    let test = "what_cannot_come_back_is_said_before_the_start_or_kept";
    let Some(apart) = Apart::new(test, 2, "3m") else { return };
    let (result, started) = (apart.home.join("result"), apart.home.join("started"));
    let out = |path: &Path| format!("r:{}", path.display());
    let node = apart.cluster.host(0).states().into_iter().map(|(name, _)| name).nth(1).expect("there are two nodes");
    let run = |path: &Path, script: &str| {
        apart.run(&["-n", "1", "--hosts", &node, "--stage-out", &out(path), "sh", "-c", script])
    };
    fs::write(&result, "mine").expect("home can be written to");
    fs::set_permissions(&result, fs::Permissions::from_mode(0o444)).expect("it is ours");
    let touch = format!("touch {}; echo > r", started.display());
    let refused = |ended: Finished, said: &str| {
        assert!(ended.code() != Some(0) && ended.stderr.contains(said), "{ended:?}");
        assert!(!started.exists(), "{ended:?}");
    };
    refused(run(&result, &touch), "is not to be written to");
    refused(run(Path::new("/no/such/place"), &touch), "there is no directory for");
    refused(run(Path::new("/dev/null"), &touch), "is not a regular file");
    let (one, other) = (out(&result.with_extension("x")), format!("s{}", &out(&result.with_extension("x"))[1..]));
    refused(
        apart.run(&["--stage-out", &one, "--stage-out", &other, "sh", "-c", &touch]),
        "two files of the job would come back",
    );
    // It was protected while the job ran.
    let mut command = apart.cluster.host(0).command();
    let waits = "head -c 300000 /dev/zero > r; echo ready; cat";
    let words = ["run", "--wdir", "/", "-n", "1", "--hosts", &node, "--stage-out", &out(&result), "sh", "-c", waits];
    fs::set_permissions(&result, fs::Permissions::from_mode(0o644)).expect("it is ours");
    command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut run = command.spawn().expect("it starts");
    let mut line = String::new();
    BufReader::new(run.stdout.take().expect("a pipe")).read_line(&mut line).expect("it can be read");
    fs::set_permissions(&result, fs::Permissions::from_mode(0o444)).expect("it is ours");
    drop(run.stdin.take());
    let ended = run.wait_with_output().expect("it ends");
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    let kept = apart.kept(1, &String::from_utf8_lossy(&ended.stderr), "is not to be written to");
    assert_eq!(fs::metadata(kept).expect("it is kept").len(), 300_000);
    assert_eq!(fs::read_to_string(&result).expect("it is there"), "mine");
    // The disk at home is full.
    let daemon = apart.daemon(1).to_string();
    let mut command = apart.cluster.host(1).program_command("nsenter");
    let first = apart.cluster.host(0).states()[0].0.clone();
    let large = "head -c 5000000 /dev/zero > r";
    let there = out(&apart.cluster.host(1).state_dir.join("r"));
    command.args(["--mount", "--target", &daemon, PULC, "run", "--wdir", "/", "-n", "1", "--hosts", &first]);
    command.args(["--stage-out", &there, "sh", "-c", large]);
    let ended = run_within(command, pulc_testkit::cluster::HANG);
    assert_eq!(ended.code(), Some(1), "{ended:?}");
    let kept = apart.kept(0, &ended.stderr, "make room on that disk");
    assert_eq!(fs::metadata(kept).expect("it is kept").len(), 5_000_000);
    apart.expect_no_rooms();
    apart.cluster.host(0).pulc(&["down", "--all"]).expect_success();
    apart.cluster.expect_nothing_left();
}

impl Apart {
    /// What could not come back from a host, which was said with `why`.
    fn kept(&self, host: usize, stderr: &str, why: &str) -> PathBuf {
        assert!(stderr.contains(why), "{stderr}");
        let kept = stderr.split("it is kept as ").nth(1).and_then(|rest| rest.split_whitespace().next());
        self.seen_by(host, Path::new(kept.unwrap_or_else(|| panic!("{stderr}"))))
    }
}

#[test]
fn a_home_whose_daemon_was_killed_gets_what_a_queued_job_has_left_when_it_is_back() {
    let test = "a_home_whose_daemon_was_killed_gets_what_a_queued_job_has_left_when_it_is_back";
    let cluster = match Cluster::new(2, PULC) {
        Ok(cluster) => cluster,
        Err(why) => return skipped(test, &format!("namespaces cannot be made: {why}")),
    };
    cluster.start();
    let (away, home) = (cluster.host(0), cluster.host(1));
    let node = away.states()[0].0.clone();
    let place = |name: &str| cluster.directory().join(name);
    let out = format!("r:{}", place("result").display());
    let script = format!("echo kept > r; while ! test -e {}; do sleep 0.05; done", place("go").display());
    let words = ["submit", "--parsable", "-w", &node, "-D", "/", "-o", "/dev/null", "--stage-out", &out, "sh", "-c"];
    let number = home.pulc(&[&words[..], &[&script]].concat()).expect_success().stdout.trim().to_owned();
    let state = || away.pulc(&["job", &number]).stdout;
    wait_until(|| Some(()).filter(|()| state().contains("RUNNING"))).expect("the job runs");
    home.signal_daemon(rustix::process::Signal::KILL);
    fs::write(place("go"), "").expect("it can be written");
    cluster.wait_for_processes("while ! test", 0);
    // Its own node's daemon is killed meanwhile, too, and finds what is to be given back.
    away.signal_daemon(rustix::process::Signal::KILL);
    for host in [away, home] {
        let up = wait_until(|| Some(()).filter(|()| host.pulc(&["up"]).code() == Some(0)));
        assert!(up.is_some(), "a daemon does not come back");
    }
    wait_until(|| Some(()).filter(|()| state().contains("COMPLETED"))).unwrap_or_else(|| panic!("{}", state()));
    assert_eq!(fs::read_to_string(place("result")).expect("it came back"), "kept\n");
    home.pulc(&["down", "--all"]).expect_success();
    cluster.expect_nothing_left();
}
