//! A client must not talk to a stranger who took its daemon's name.

use pulc_control::Client;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// Listens on the abstract name in its argument until its input ends.
const SQUATTER: &str = "import socket, sys
s = socket.socket(socket.AF_UNIX)
s.bind('\\0' + sys.argv[1])
s.listen()
print('ready', flush=True)
sys.stdin.read()";

#[test]
fn a_name_taken_by_another_user_is_refused_before_anything_is_sent() {
    const TEST: &str = "a_name_taken_by_another_user_is_refused_before_anything_is_sent";
    if !rustix::process::geteuid().is_root() {
        return pulc_testkit::skipped(TEST, "only root can start a process of another user");
    }
    let name = format!("pulc-test-stranger-{}", std::process::id());
    let squatter = Command::new("/usr/bin/env")
        .args(["python3", "-c", SQUATTER, &name])
        .uid(65534)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut squatter) = squatter else {
        return pulc_testkit::skipped(TEST, "python3 cannot be started as another user");
    };
    let mut line = String::new();
    BufReader::new(squatter.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let answer = if line == "ready\n" { Some(Client::connect(&name).map(|_| ())) } else { None };
    drop(squatter.stdin.take());
    squatter.wait().unwrap();
    match answer {
        // The interpreter may lie where only root can read.
        None => pulc_testkit::skipped(TEST, "python3 does not run as another user here"),
        Some(answer) => {
            let text = answer.unwrap_err().to_string();
            assert!(text.contains("user 65534"), "{text}");
        }
    }
}
