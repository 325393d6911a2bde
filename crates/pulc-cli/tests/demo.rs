//! `pulc demo` and the heat application under `pulc run`, as a stranger would type them, without a terminal.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

fn pulc(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pulc"));
    command.args(arguments).stdin(Stdio::null()).env_remove("PULC_TERMINAL");
    command.output().expect("the program pulc was built with this test")
}

/// A heat run as ranks of a job: (exit status, standard output, standard error).
fn heat(ranks: &str, nodes: &str, flags: &str) -> (Option<i32>, String, String) {
    let run =
        ["run", "--alone", "-n", ranks, "--nodes", nodes, "--timeout", "120", "--", env!("CARGO_BIN_EXE_pulc"), "heat"];
    let arguments: Vec<&str> = run.into_iter().chain(flags.split_whitespace()).collect();
    let output = pulc(&arguments);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// The hash out of a report in words.
fn field(output: &str) -> &str {
    output.lines().find_map(|line| line.strip_prefix("field ")).unwrap_or_else(|| panic!("no field in {output:?}"))
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("pulc-demo-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What was gained and what it cost: speed-up, efficiency, and what each device has carried.
fn expect_table(text: &str) {
    let line = |begin: &str, word: &str| {
        let found = text.lines().find(|line| line.starts_with(begin) && line.contains(word));
        found.unwrap_or_else(|| panic!("no line that begins with {begin:?} and has {word:?} in {text}"))
    };
    let heading = line("  ", "speed-up");
    let columns = ["ranks", "time", "speed-up", "efficiency", "shared memory", "network"];
    assert!(columns.map(|column| heading.find(column)).iter().is_sorted_by(|a, b| a < b && a.is_some()), "{heading:?}");
    line("  ", "(messages / bytes that all ranks sent)");
    // The yardstick itself sends nothing.
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(line("alone", " %"))[4..], ["1.00", "100", "%", "-", "-"], "{text}");
    // `1.23  61 %  1234 / 5.6 MB`: messages and bytes stand in the column of the device that carried them.
    let (shared, network) = (heading.find("efficiency").unwrap() + 10, heading.find("shared memory").unwrap() + 13);
    for (name, from, to) in [("one node", shared, network), ("two nodes", network, heading.len())] {
        let row = line(name, " %");
        let (messages, bytes) =
            row[from..to].split_once(" / ").unwrap_or_else(|| panic!("{name} sent nothing: {text}"));
        assert!(messages.trim().parse::<u64>().is_ok_and(|messages| messages > 0), "{row}");
        assert!(bytes.ends_with('B') && !bytes.starts_with("0 "), "{row}");
        let figures = words(&row[..shared]);
        let [.., gain, efficiency, "%"] = figures.iter().map(String::as_str).collect::<Vec<_>>()[..] else {
            panic!("{row}")
        };
        assert!(gain.parse::<f64>().is_ok() && efficiency.parse::<f64>().is_ok(), "{row}");
    }
}

#[test]
fn the_quick_demo_compares_three_runs_and_writes_the_picture() {
    let folder = Folder::new("quick");
    let output = pulc(&["demo", "--quick", "--out", folder.0.to_str().unwrap()]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(!output.stdout.contains(&0x1b), "escape codes without a terminal: {text}");
    for expected in
        ["one process, alone", "two nodes of a local cluster", "identical    all 3 fields", "exact decay", "conserved"]
    {
        assert!(text.contains(expected), "{expected:?} is missing in {text}");
    }
    expect_table(&text);
    let picture = std::fs::read(folder.0.join("heat.png")).unwrap();
    assert!(picture.starts_with(b"\x89PNG"));
    assert!(text.contains(folder.0.join("heat.png").to_str().unwrap()));
}

#[test]
fn a_demo_that_cannot_write_its_picture_says_so() {
    let output = pulc(&["demo", "--quick", "--out", "/dev/null/folder"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot make the folder /dev/null/folder"), "{output:?}");
}

#[test]
fn heat_gives_the_same_bits_on_any_ranks_and_nodes() {
    let common = "--size 61x47 --steps 150 --verify --boundary insulated";
    let (status, alone, errors) = heat("1", "1", common);
    assert_eq!(status, Some(0), "{alone}{errors}");
    for (ranks, nodes, shape) in [
        ("2", "1", "rows"),
        ("3", "1", "1x3"),
        ("4", "1", "blocks"),
        ("6", "1", "3x2"),
        ("2", "2", "rows"),
        ("6", "2", "2x3"),
    ] {
        let (status, output, errors) = heat(ranks, nodes, &format!("{common} --decomposition {shape}"));
        assert_eq!(status, Some(0), "{ranks} ranks on {nodes} nodes: {output}{errors}");
        assert_eq!(field(&output), field(&alone), "{ranks} ranks on {nodes} nodes as {shape}");
        assert!(output.contains("verification passed"), "{output}");
        assert_eq!(output.contains("udp:"), nodes == "2", "{output}");
    }
}

#[test]
fn long_edges_cross_without_a_deadlock() {
    // Edges of 128 KiB, far beyond what is sent eagerly, in both directions at once.
    for nodes in ["1", "2"] {
        let (status, output, errors) = heat("2", nodes, "--size 16384x8 --steps 40 --gather-every 10 --verify");
        assert_eq!(status, Some(0), "{output}{errors}");
    }
}

#[test]
fn what_rank_0_finds_wrong_is_said_once_and_ends_the_job() {
    for (flags, expected) in
        [("--size 9x2", "3 ranks cannot share 2 rows"), ("--size never", "neither N nor WIDTHxHEIGHT")]
    {
        let (status, _, errors) = heat("3", "1", flags);
        assert_eq!(status, Some(2), "{errors}");
        assert_eq!(errors.matches(expected).count(), 1, "{errors}");
    }
}
