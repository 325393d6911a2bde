//! A daemon that asks for what it must not have. The keeper that the helper starts is this test program, which finds no test called so and
//! ends.

use super::*;
use crate::line::Line;
use crate::message::{Answer, MESSAGE_BYTES_MAX, Part, Question};
use pulc_base::JobId;
use pulc_hal::os::account;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};

/// A helper that serves the other end of a line, without a daemon; none if this process is not root.
fn helper(list: &str) -> Option<(Helper, Seqpacket)> {
    if !rustix::process::geteuid().is_root() {
        pulc_testkit::skipped("a daemon that asks its helper", "needs root, to become another user");
        return None;
    }
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("pulc-users-{}-{number}", std::process::id()));
    std::fs::write(&path, list).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let uid = number_of("daemon");
    let user = User { uid, gid: uid, groups: vec![uid] };
    let mut helper = Helper::without_daemon(user, Vec::new(), Vec::new(), path).unwrap();
    let (ours, theirs) = Seqpacket::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    helper.line = Some(ours);
    Some((helper, theirs))
}

/// Of a user whom every Linux has.
fn number_of(name: &str) -> u32 {
    account::by_name(name).unwrap().unwrap_or_else(|| panic!("there is no user {name}")).uid
}

fn asked(helper: &mut Helper, daemon: &Seqpacket, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> (Answer, Vec<OwnedFd>) {
    daemon.send(bytes, fds).unwrap();
    helper.hear();
    let mut buffer = [0; MESSAGE_BYTES_MAX];
    let received = daemon.recv(&mut buffer).unwrap().expect("the helper still listens");
    (Answer::decode(&buffer[..received.bytes]).expect("an answer"), received.fds)
}

fn why(answer: &Answer) -> &str {
    match answer {
        Answer::Refused { why } => why,
        other => panic!("not refused: {other:?}"),
    }
}

fn become_(uid: u32, name: &str) -> Vec<u8> {
    Question::Become { uid, part: Part::Keeper, name: name.to_owned() }.encode()
}

#[test]
fn root_unknown_and_unpermitted_users_and_garbage_are_refused_and_nothing_is_started() {
    let Some((mut helper, daemon)) = helper("from 1\nbin\n") else { return };
    let (line, _other) = UnixStream::pair().unwrap();
    let line = line.as_fd();
    // Root, whatever it is called; the daemon's own account; nobody; one who is somebody else here; one who is not on the list.
    let cases = [
        (0, "root", "as root"),
        (0, "bin", "as root"),
        (number_of("daemon"), "daemon", "own account"),
        (0x7fff_0000, "x", "no user"),
        (number_of("bin"), "alice", "is alice where"),
        (65_534, "nobody", "the system's own"),
        (number_of("games"), "games", "not on the list"),
    ];
    for (uid, name, expected) in cases {
        let (answer, fds) = asked(&mut helper, &daemon, &become_(uid, name), &[line]);
        assert!(why(&answer).contains(expected) && fds.is_empty(), "{uid} {name}: {answer:?}");
    }
    let good = become_(number_of("bin"), "bin");
    let long = [&good[..], &[b'a'; MESSAGE_BYTES_MAX]].concat();
    for bytes in [&b"\0"[..], b"BECOME root", &good[..3], &long] {
        let (answer, _) = asked(&mut helper, &daemon, bytes, &[line]);
        assert!(why(&answer).contains("no question"), "{answer:?}");
    }
    // Too few descriptors, and too many.
    for fds in [&[][..], &[line, line]] {
        assert!(why(&asked(&mut helper, &daemon, &good, fds).0).contains("no question"));
    }
    // Nobody is killed who is no keeper: not this process, not init.
    for pid in [0, 1, std::process::id(), u32::MAX] {
        let (answer, _) = asked(&mut helper, &daemon, &Question::End { pid }.encode(), &[]);
        assert!(why(&answer).contains("no keeper"), "{answer:?}");
    }
    assert!(helper.keepers.is_empty());
    std::fs::remove_file(&helper.users).unwrap();
}

#[test]
fn a_list_that_others_may_write_to_or_that_makes_no_sense_permits_nobody() {
    let Some((mut helper, daemon)) = helper("bin games\n") else { return };
    let (line, _other) = UnixStream::pair().unwrap();
    let ask = |helper: &mut Helper| asked(helper, &daemon, &become_(number_of("bin"), "bin"), &[line.as_fd()]).0;
    assert!(why(&ask(&mut helper)).contains("line 1"));
    std::fs::write(&helper.users, "from 1\n").unwrap();
    std::fs::set_permissions(&helper.users, std::fs::Permissions::from_mode(0o666)).unwrap();
    assert!(why(&ask(&mut helper)).contains("nobody else may write"));
    std::fs::remove_file(&helper.users).unwrap();
}

#[test]
fn a_permitted_user_gets_the_keeper_program_and_it_can_be_ended_and_waited_for() {
    let Some((mut helper, daemon)) = helper("from 1\n@bin\n") else { return };
    let (line, _other) = UnixStream::pair().unwrap();
    let (answer, fds) = asked(&mut helper, &daemon, &become_(number_of("bin"), "bin"), &[line.as_fd()]);
    let Answer::Started { pid } = answer else { panic!("{answer:?}") };
    assert_eq!((fds.len(), helper.keepers.len()), (1, 1));
    assert_eq!(asked(&mut helper, &daemon, &Question::End { pid }.encode(), &[]).0, Answer::Done);
    let pid = *helper.keepers.keys().next().unwrap();
    let (pid, status) = waitpid(Some(pid), WaitOptions::empty()).unwrap().unwrap();
    helper.ended(pid, status);
    assert!(helper.keepers.is_empty());
    std::fs::remove_file(&helper.users).unwrap();
}

#[test]
fn the_line_tells_what_was_refused_and_when_the_helper_is_gone() {
    let Some((mut helper, daemon)) = helper("root\n") else { return };
    let line = Line::new(OwnedFd::from(daemon)).unwrap();
    let (fd, _other) = UnixStream::pair().unwrap();
    let answered = std::thread::scope(|scope| {
        let asking = scope.spawn(|| line.start_as(number_of("games"), "games", Part::Keeper, fd.as_fd()).unwrap_err());
        let begin = Instant::now();
        while !asking.is_finished() && begin.elapsed() < Duration::from_secs(60) {
            helper.hear();
            std::thread::sleep(Duration::from_millis(1));
        }
        asking.join().unwrap()
    });
    assert!(answered.contains("the system's own"), "{answered}");
    std::fs::remove_file(&helper.users).unwrap();
    drop(helper);
    line.wait_for_its_end();
    assert!(line.clear(JobId(7), 0).unwrap_err().contains("does not answer"));
}
