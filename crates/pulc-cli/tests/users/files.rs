//! Files that travel, where the daemon is nobody's user: they are read and written with the rights of the job's user, whatever a client says.

use crate::{ALICE, BOB, OLGA, Several, User, owner};
use pulc_testkit::{Finished, run_within, wait_until};
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A file of this user's that nobody else may read.
fn private(several: &Several, user: User, name: &str, text: &str, mode: u32) -> PathBuf {
    let directory = several.path("apart").join(user.uid.to_string());
    fs::create_dir_all(&directory).unwrap();
    let path = directory.join(name);
    fs::write(&path, text).unwrap();
    for (path, mode) in [(&path, mode), (&directory, 0o700)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        chown(path, Some(user.uid), Some(user.uid)).unwrap();
    }
    path
}

/// What is left of jobs on a host.
fn rooms(several: &Several, host: usize) -> Vec<String> {
    let entries = fs::read_dir(several.path(&format!("host-{host}.jobs"))).unwrap().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn expect_no_rooms(several: &Several) {
    let none = || (0..2).all(|host| rooms(several, host).is_empty()).then_some(());
    assert!(wait_until(none).is_some(), "{:?} {:?}", rooms(several, 0), rooms(several, 1));
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a temporary path is text")
}

#[test]
fn a_users_files_travel_as_that_user() {
    let Some(several) = Several::start("a_users_files_travel_as_that_user") else { return };
    // The second host sees nothing of this.
    let program = private(&several, ALICE, "program", "#!/bin/sh\ncat input; id -u; stat -c %u .; id -u > r\n", 0o700);
    let input = private(&several, ALICE, "input", "hers\n", 0o600);
    let got = several.path("apart").join(ALICE.uid.to_string()).join("got");
    let out = format!("r:{}-%N", text(&got));
    let words = ["run", "--wdir", "/", "-n", "2", "--nodes", "2", "--stage-in", text(&input), "--stage-out", &out];
    for _ in 0..2 {
        let ended = several.as_user(0, ALICE, &[&words[..], &[text(&program)]].concat()).expect_success();
        let mut lines: Vec<&str> = ended.stdout.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["61001", "61001", "61001", "61001", "hers", "hers"]);
        let results: Vec<PathBuf> = fs::read_dir(got.parent().unwrap())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| text(path).starts_with(&format!("{}-", text(&got))))
            .collect();
        assert_eq!(results.len(), 2, "{results:?}");
        for path in results {
            assert_eq!(fs::read_to_string(&path).unwrap(), format!("{}\n", ALICE.uid));
            assert_eq!(owner(&path), ALICE.uid);
            fs::remove_file(path).unwrap();
        }
    }
    expect_no_rooms(&several);
    // The same content as somebody else's.
    let same = private(&several, BOB, "program", "#!/bin/sh\ncat input; id -u; stat -c %u .; id -u > r\n", 0o700);
    let refused = several.as_user(0, BOB, &[&words[..], &[text(&same)]].concat());
    assert!(refused.code() != Some(0) && refused.stderr.contains("Permission denied"), "{refused:?}");
    let words = ["run", "--wdir", "/", "-n", "2", "--nodes", "2", "--stage", "dir", text(&same)];
    let ended = several.as_user(0, BOB, &words);
    assert!(ended.stdout.contains(&format!("{0}\n{0}\n", BOB.uid)), "{ended:?}");
    // Out of the queue, from the host that has nothing, with what was submitted gone meanwhile.
    let first = several.as_user(0, ALICE, &["nodes", "--json"]).stdout;
    let name =
        |nth: usize| first.split("\"name\":").nth(nth).and_then(|rest| rest.split('"').nth(1)).unwrap().to_owned();
    let out = format!("r:{}", text(&got));
    let number = several.submit(
        0,
        ALICE,
        &[
            "-H",
            "-w",
            &name(2),
            "-D",
            "/",
            "-o",
            "/dev/null",
            "--stage-in",
            text(&input),
            "--stage-out",
            &out,
            text(&program),
        ],
    );
    fs::remove_file(&input).unwrap();
    several.as_user(0, ALICE, &["release", &number]).expect_success();
    several.wait_for(ALICE, &number, "COMPLETED");
    assert_eq!((fs::read_to_string(&got).unwrap(), owner(&got)), (format!("{}\n", ALICE.uid), ALICE.uid));
    expect_no_rooms(&several);
    several.end();
}

/// `pulc run` by a user who makes it believe that `mine` is at `path`.
fn deceived(several: &Several, user: User, (mine, path): (&Path, &Path), words: &[&str]) -> Finished {
    let own = several.command_as(0, user);
    let mut command = several.cluster.host(0).program_command("unshare");
    let script = "mount --bind \"$1\" \"$2\" && shift 2 && exec \"$@\"";
    command.args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"]).args([mine, path]);
    let arguments: Vec<_> = own.get_args().collect();
    let program = arguments.iter().position(|word| *word == "setpriv");
    match program {
        Some(at) => command.args(&arguments[at..]),
        None => command.arg(own.get_program()).args(&arguments),
    };
    for (name, value) in own.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    command.args(["run", "--wdir", "/", "-n", "2", "--nodes", "2"]).args(words);
    run_within(command, Duration::from_secs(120))
}

#[test]
fn nobody_gets_by_a_job_what_they_may_not_read_or_write() {
    let Some(several) = Several::start("nobody_gets_by_a_job_what_they_may_not_read_or_write") else { return };
    let secret = private(&several, ALICE, "secret", "hers alone\n", 0o600);
    let open = several.path("open");
    let (mine, fifo, state) = (open.join("mine"), open.join("fifo"), several.path("host-0"));
    fs::write(&mine, "his").unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::from_raw_mode(0o666)).unwrap();
    // Read as nobody but the user: not as the daemon either, whose own these are.
    let own: Vec<PathBuf> = fs::read_dir(&state).unwrap().map(|entry| entry.unwrap().path()).collect();
    let own: Vec<PathBuf> = own.into_iter().filter(|path| path.is_file()).collect();
    assert!(!own.is_empty());
    for path in own.iter().chain([&secret]) {
        let words = ["--stage-in", &format!("{}:x", text(path)), "sh", "-c", "cat x"];
        // What the client is shown it may read; what the daemon finds there the user may not.
        let refused = deceived(&several, BOB, (&mine, path), &words);
        assert!(refused.code() != Some(0) && refused.stderr.contains("ermission denied"), "{path:?}: {refused:?}");
        assert!(refused.stdout.is_empty(), "{refused:?}");
    }
    for path in [Path::new("/dev/zero"), &fifo] {
        let named = format!("{}:x", text(path));
        let refused = deceived(&several, BOB, (&mine, path), &["--stage-in", &named, "sh", "-c", "cat x"]);
        assert!(refused.code() != Some(0) && refused.stderr.contains("not a regular file"), "{path:?}: {refused:?}");
    }
    // What comes back is read as the user.
    let taken = open.join("taken");
    let out = format!("r:{}", text(&taken));
    let script = format!("ln -s {} r", text(&secret));
    let words = ["run", "--wdir", "/", "-n", "2", "--nodes", "2", "--stage-out", &out, "sh", "-c", &script];
    let refused = several.as_user(0, BOB, &words);
    assert!(refused.code() != Some(0) && refused.stderr.contains("ermission denied"), "{refused:?}");
    assert!(!taken.exists(), "{refused:?}");
    // And written as the user, at home out of the job's directory and from the other node.
    for place in [secret.clone(), secret.with_file_name("new"), state.join("new")] {
        for each in ["", "-%N"] {
            let words = ["--stage-out", &format!("r:{}{each}", text(&place)), "sh", "-c", "echo his > r"];
            let refused = deceived(&several, BOB, (&open, place.parent().unwrap()), &words);
            assert!(refused.code() != Some(0) && refused.stderr.contains("ermission denied"), "{place:?}: {refused:?}");
            assert!(refused.stderr.contains("it is kept as"), "{refused:?}");
        }
    }
    assert_eq!(fs::read_to_string(&secret).unwrap(), "hers alone\n");
    let there = |path: &Path| fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
    assert_eq!(there(secret.parent().unwrap()), ["secret"]);
    assert!(!there(&state).iter().any(|name| text(Path::new(name)).starts_with("new")), "{:?}", there(&state));
    // What was kept is the user's alone.
    for host in 0..2 {
        let kept: Vec<PathBuf> =
            rooms(&several, host).iter().map(|name| several.path(&format!("host-{host}.jobs")).join(name)).collect();
        assert!(!kept.is_empty(), "nothing was kept on host {host}");
        for path in kept {
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!((owner(&path), mode & 0o777), (BOB.uid, 0o700), "{path:?}");
        }
    }
    several.end();
}

#[test]
fn what_a_dead_daemon_has_left_of_a_users_job_goes() {
    let Some(several) = Several::start("what_a_dead_daemon_has_left_of_a_users_job_goes") else { return };
    let number = several.submit(
        0,
        ALICE,
        &["-n", "2", "-N", "2", "-D", "/", "-o", "/dev/null", "--stage", "dir", "sleep", "1000"],
    );
    several.wait_for(ALICE, &number, "RUNNING");
    let room = rooms(&several, 0);
    assert_eq!(room.len(), 1, "{room:?}");
    // As if it had died when it was about to start a job.
    let forgotten = several.path("host-0.jobs").join("7-forgotten");
    fs::create_dir(&forgotten).unwrap();
    fs::write(forgotten.join("x"), "x").unwrap();
    chown(forgotten.join("x"), Some(ALICE.uid), Some(ALICE.uid)).unwrap();
    chown(&forgotten, Some(ALICE.uid), Some(ALICE.uid)).unwrap();
    several.cluster.host(0).signal_daemon(rustix::process::Signal::KILL);
    assert!(wait_until(|| (!forgotten.exists()).then_some(())).is_some(), "{}", several.log(0));
    // The job goes on where it was.
    assert_eq!(rooms(&several, 0), room);
    // Its controller was on that host.
    let cancelled = || Some(()).filter(|()| several.as_user(1, OLGA, &["cancel", &number]).code() == Some(0));
    assert!(wait_until(cancelled).is_some(), "{}", several.log(0));
    several.wait_for(ALICE, &number, "CANCELLED");
    expect_no_rooms(&several);
    several.end();
}
