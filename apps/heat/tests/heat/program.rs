//! The built program: alone, with bad input, and (where a built `pulc` is found beside it) as ranks of a job.

use pulc_heat::report::Report;
use std::process::{Command, Output};

fn heat(flags: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_heat"));
    command
        .args(flags.split_whitespace())
        .env_remove("PULC_KEEPER")
        .env_remove("PULC_TERMINAL")
        .stdin(std::process::Stdio::null());
    command.output().expect("the program heat was built with this test")
}

fn report(output: &Output) -> Report {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().find_map(Report::from_json).unwrap_or_else(|| panic!("no report in {output:?}"))
}

#[test]
fn alone_it_is_rank_0_of_1_and_verifies_itself() {
    let output = heat("--size 48x32 --steps 100 --boundary insulated --verify --json");
    assert!(output.status.success(), "{output:?}");
    let report = report(&output);
    assert_eq!((report.ranks, report.nodes, report.width, report.height), (1, 1, 48, 32));
    assert!(report.verification.is_some_and(|checks| checks.failure().is_none() && checks.sum_drift.is_some()));
}

#[test]
fn without_a_terminal_there_are_no_escape_codes() {
    let output = heat("--size 32 --steps 100");
    assert!(output.status.success(), "{output:?}");
    assert!(!output.stdout.contains(&0x1b), "escape codes in a pipe");
    assert!(String::from_utf8_lossy(&output.stdout).contains("32x32 cells, 100 steps, 1 rank on 1 node"));
}

#[test]
fn drawing_for_a_forced_terminal_ends_every_picture_with_a_newline() {
    let output = heat("--size 32 --steps 200 --terminal 60x20");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("\x1b[?2026h") && text.contains("100 %") && text.ends_with('\n'));
    assert!(!text.contains("\x1b[?25l"), "the cursor must not be hidden");
}

#[test]
fn the_launchers_terminal_is_drawn_on_through_the_pipe() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_heat"));
    command.args(["--size", "32", "--steps", "200"]).env("PULC_TERMINAL", "60x20").env_remove("PULC_KEEPER");
    let output = command.output().expect("the program heat was built with this test");
    assert!(String::from_utf8_lossy(&output.stdout).contains("\x1b[?2026h"), "{output:?}");
}

#[test]
fn bad_input_exits_with_2_and_one_line_that_says_why() {
    for (flags, expected) in [
        ("-r 0.3", "r = 0.3 is unstable"),
        ("--image /nonexistent.png", "cannot read image /nonexistent.png"),
        ("--decomposition 2x2", "makes 4 tiles but 1 ranks"),
        ("--size 0", "neither N nor WIDTHxHEIGHT"),
        ("--decomposition columns", "neither rows nor blocks"),
        ("--image a.png --start spots", "cannot be used with"),
    ] {
        let output = heat(flags);
        assert_eq!(output.status.code(), Some(2), "{flags}: {output:?}");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains(expected), "{flags}: {text}");
    }
}

#[test]
fn a_full_disk_is_reported() {
    let output = heat("--size 16 --steps 1 --png /dev/full");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot write /dev/full"));
}
