//! The library in front of programs that know nothing of it: each must do exactly what it does without.

use pulc_testkit::{rounds, skipped};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The library that belongs to this test binary.
fn library() -> PathBuf {
    let deps = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let places = [deps.parent().unwrap().join("libpulc_sockets.so"), deps.join("libpulc_sockets.so")];
    places
        .into_iter()
        .find(|place| place.exists())
        .expect("the library is built: `cargo build -p pulc-sockets-preload` first, as `cargo xtask test` does")
}

fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs")
}

/// What a program writes, at most 300 s.
fn output(program: &str, arguments: &[&str], preloaded: bool) -> (String, String, bool) {
    let mut command = Command::new("timeout");
    command.arg("300").arg(program).args(arguments).env_remove("LD_PRELOAD");
    if preloaded {
        command.env("LD_PRELOAD", library());
    }
    let output = command.output().unwrap();
    let (text, words) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(!words.contains("cannot be preloaded"), "the library was not loaded: {words}");
    (text.into_owned(), words.into_owned(), output.status.success())
}

#[test]
fn streams_used_in_every_way_give_the_same_results() {
    let script = programs().join("streams.py");
    for seed in 1..=rounds(2, 20) {
        let seed = seed.to_string();
        let arguments = [script.to_str().unwrap(), &seed];
        let (without, _, _) = output("python3", &arguments, false);
        let (with, words, well) = output("python3", &arguments, true);
        assert!(well && with.contains("all streams were right"), "seed {seed}: {with}{words}");
        assert_eq!(with, without, "seed {seed}");
    }
}

/// Modules of CPython's own tests, and those that take longer.
const QUICK: &[&str] = &["test_selectors", "test_epoll", "test_poll", "test_select"];
const LONG: &[&str] =
    &["test_socket", "test_ssl", "test_ftplib", "test_httplib", "test_asyncore", "test_socketserver", "test_asyncio"];

/// The lines that tell how many tests ran and how they went.
fn verdict(text: &str) -> Vec<String> {
    let wanted =
        |line: &&str| line.starts_with("Total tests") || line.starts_with("Result") || line.contains(" failed");
    text.lines().filter(wanted).map(str::to_owned).collect()
}

#[test]
fn cpythons_own_socket_tests_go_as_they_do_without() {
    let name = "cpythons_own_socket_tests_go_as_they_do_without";
    if !output("python3", &["-c", "import test.test_selectors"], false).2 {
        skipped(name, "this python3 comes without its tests");
        return;
    }
    let long = if rounds(0, 1) == 1 { LONG } else { &[] };
    for module in QUICK.iter().chain(long) {
        // Sockets of virtual machines hang where there is no other end.
        let arguments = ["-m", "test", "-u", "network", "-i", "*VSOCK*", module];
        let (without, _, is_well) = output("python3", &arguments, false);
        let (with, words, well) = output("python3", &arguments, true);
        assert_eq!((verdict(&with), well), (verdict(&without), is_well), "{module}: {with}{words}");
    }
}

#[test]
fn programs_that_make_processes_run_as_they_do_without() {
    let script = "echo one | cat; ls / | wc -l; (echo two; echo three) | sort -r; sh -c 'exit 3'; echo $?";
    assert_eq!(output("bash", &["-c", script], true).0, output("bash", &["-c", script], false).0);
}
