//! Tests of `process`: what the started program finds.

use super::*;
use rustix::process::{WaitOptions, waitpid};
use std::io::Read;
use std::os::fd::AsFd;

fn c(text: &str) -> CString {
    CString::new(text).unwrap()
}

fn shell<'a>(argv: &'a [CString], env: &'a [&'a [CString]], out: BorrowedFd<'a>) -> Start<'a> {
    Start {
        program: c"/bin/sh",
        argv,
        env,
        cwd: None,
        umask: None,
        limits: &[],
        cores: &[],
        lowly: false,
        group: Group::NewGroup,
        parent_death_signal: Some(libc::SIGKILL),
        stdio: [None, Some(out), None],
        extra_fds: &[],
        cgroup: None,
        user: None,
    }
}

fn output_of(script: &str, change: impl FnOnce(&mut Start<'_>)) -> String {
    let argv = [c("sh"), c("-c"), c(script)];
    let (mut reader, writer) = std::io::pipe().unwrap();
    let base = [c("A=1"), c("PATH=/usr/bin:/bin")];
    let own = [c("B=2")];
    let env: &[&[CString]] = &[&base, &own];
    let mut start = shell(&argv, env, writer.as_fd());
    change(&mut start);
    let child = Starter::default().start(&start).unwrap();
    drop(writer);
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    waitpid(Some(child.pid), WaitOptions::empty()).unwrap();
    text
}

#[test]
fn the_program_finds_its_environment_directory_umask_and_limits() {
    let text = output_of("echo $A $B; pwd; umask; ulimit -Sn; ulimit -Hn", |start| {
        start.cwd = Some(c"/usr");
        start.umask = Some(0o027);
        start.limits = &[ResourceLimit { resource: libc::RLIMIT_NOFILE, soft: 77, hard: 99 }];
    });
    assert_eq!(text, "1 2\n/usr\n0027\n77\n99\n");
}

#[test]
fn a_child_that_becomes_a_user_has_only_its_groups_no_way_back_and_the_tie_to_its_parent() {
    let user = User { uid: 12_345, gid: 12_346, groups: vec![12_347, 12_348] };
    let script = "id -u; id -g; id -G; grep -E '^(CapEff|CapPrm|CapAmb|NoNewPrivs):' /proc/self/status | tr -d '\t\n'";
    if !rustix::process::geteuid().is_root() {
        // Who is not root is told so, and nothing runs.
        let argv = [c("sh"), c("-c"), c(script)];
        let null = std::fs::File::open("/dev/null").unwrap();
        let mut start = shell(&argv, &[], null.as_fd());
        start.user = Some(&user);
        return assert_eq!(Starter::default().start(&start).unwrap_err().step, Step::User);
    }
    let text = output_of(script, |start| {
        start.cwd = Some(c"/");
        start.user = Some(Box::leak(Box::new(user)));
    });
    let none = "0000000000000000";
    assert_eq!(text, format!("12345\n12346\n12346 12347 12348\nCapPrm:{none}CapEff:{none}CapAmb:{none}NoNewPrivs:1"));
    // The tie is there: the child is told when the thread that started it ends.
    let (mut reader, writer) = std::io::pipe().unwrap();
    let starter = std::thread::spawn(move || {
        let user = User { uid: 12_345, gid: 12_345, groups: Vec::new() };
        let argv = [c("sh"), c("-c"), c("sleep 1000")];
        let mut start = shell(&argv, &[], writer.as_fd());
        (start.cwd, start.user) = (Some(c"/"), Some(&user));
        Starter::default().start(&start).unwrap()
    });
    let child = starter.join().unwrap();
    let (_, status) = waitpid(Some(child.pid), WaitOptions::empty()).unwrap().unwrap();
    assert_eq!(status.terminating_signal(), Some(libc::SIGKILL));
    // What it started goes by itself, or is gone.
    let _ = rustix::process::kill_process_group(child.pid, rustix::process::Signal::KILL);
    let mut nothing = Vec::new();
    reader.read_to_end(&mut nothing).unwrap();
}

#[test]
fn no_other_descriptor_leaks_and_extra_ones_stand_at_three() {
    let (mut reader, writer) = std::io::pipe().unwrap();
    let leaky = rustix::io::dup(&writer).unwrap();
    let text = output_of("echo three >&3; ls /proc/self/fd | wc -l", |start| {
        start.extra_fds =
            Vec::leak(vec![leaky.try_clone().unwrap()]).iter().map(AsFd::as_fd).collect::<Vec<_>>().leak();
    });
    assert_eq!(text.trim(), "5", "0, 1, 2, 3 and the one with which ls reads the directory");
    let mut three = [0; 6];
    reader.read_exact(&mut three).unwrap();
    assert_eq!(&three, b"three\n");
}

#[test]
fn a_missing_program_and_a_missing_directory_are_told_apart() {
    let argv = [c("x")];
    let null = std::fs::File::open("/dev/null").unwrap();
    let mut start = shell(&argv, &[], null.as_fd());
    start.program = c"/nonexistent/program";
    let error = Starter::default().start(&start).unwrap_err();
    assert_eq!((error.step, error.source.raw_os_error()), (Step::Exec, Some(libc::ENOENT)));
    start.program = c"/etc/passwd";
    let error = Starter::default().start(&start).unwrap_err();
    assert_eq!((error.step, error.source.raw_os_error()), (Step::Exec, Some(libc::EACCES)));
    start.cwd = Some(c"/nonexistent");
    assert_eq!(Starter::default().start(&start).unwrap_err().step, Step::Directory);
}

#[test]
fn affinity_is_set_before_the_program_runs() {
    let text = output_of("grep Cpus_allowed_list /proc/self/status", |start| {
        start.cores = &[0];
    });
    assert!(text.contains("Cpus_allowed_list:\t0\n"), "{text}");
}

#[test]
fn a_child_ends_with_the_thread_that_started_it() {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let argv = [c("sleep"), c("1000")];
        let null = std::fs::File::open("/dev/null").unwrap();
        let mut start = shell(&argv, &[], null.as_fd());
        start.program = c"/bin/sleep";
        sender.send(Starter::default().start(&start).unwrap()).unwrap();
    })
    .join()
    .unwrap();
    let child = receiver.recv().unwrap();
    let (_, status) = waitpid(Some(child.pid), WaitOptions::empty()).unwrap().unwrap();
    assert_eq!(status.terminating_signal(), Some(libc::SIGKILL));
}

#[test]
fn a_child_can_be_born_in_a_cgroup() {
    let path = format!("/sys/fs/cgroup/unified/pulc-test-{}", std::process::id());
    if std::fs::create_dir(&path).is_err() {
        eprintln!("skipped: no writable cgroup version 2 at /sys/fs/cgroup/unified");
        return;
    }
    let directory = std::fs::File::open(&path).unwrap();
    let directory: &'static std::fs::File = Box::leak(Box::new(directory));
    let text = output_of("cat /proc/self/cgroup", |start| start.cgroup = Some(directory.as_fd()));
    std::fs::remove_dir(&path).unwrap();
    assert!(text.contains("/pulc-test-"), "{text}");
}

#[test]
fn a_lowly_program_and_what_it_starts_get_only_what_nobody_else_wants() {
    // Policy, in the last but few fields of stat behind the name: 5 is SCHED_IDLE.
    let script = "sed 's/.*) //' /proc/self/stat | cut -d' ' -f39; cut -d' ' -f1 /proc/self/autogroup >/dev/null; :";
    assert_eq!(output_of(script, |start| start.lowly = true), "5\n");
    assert_eq!(output_of(script, |_| ()), "0\n");
}
