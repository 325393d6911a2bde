//! Standard streams: whole lines, labels, back-pressure without loss, standard input.

use crate::harness::{GUARD, Job, command, script, tag};
use std::io::{Read, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

#[test]
fn every_rank_runs_and_the_job_ends_with_zero() {
    let ended = script(&["-n", "5"], "echo rank $PULC_RANK of $PULC_SIZE");
    assert_eq!(ended.code(), 0, "{}", ended.stderr);
    let mut lines: Vec<String> = ended.text().lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["rank 0 of 5", "rank 1 of 5", "rank 2 of 5", "rank 3 of 5", "rank 4 of 5"]);
    assert_eq!(ended.stderr, "");
}

#[test]
fn labels_name_the_rank_on_both_streams() {
    let ended = script(&["-n", "2", "--label"], "echo out; echo err >&2");
    let mut lines: Vec<String> = ended.text().lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["[0] out", "[1] out"]);
    assert!(ended.stderr.contains("[0] err\n") && ended.stderr.contains("[1] err\n"), "{}", ended.stderr);
}

#[test]
fn lines_of_different_ranks_are_never_mixed() {
    let piece = "for i in 1 2 3 4 5 6 7 8 9 10; do printf \"$PULC_RANK\"; done";
    let ended = script(&["-n", "6"], &format!("for line in $(seq 200); do {piece}; echo \" $line\"; done"));
    assert_eq!(ended.code(), 0);
    assert_numbered_lines(&ended.text(), 6, 200, |rank| rank.to_string().repeat(10));
}

/// All ranks have printed their words and 1, their words and 2 and so on to `lines`: nothing is mixed, missing, twice or too early.
pub fn assert_numbered_lines(text: &str, ranks: usize, lines: usize, words: impl Fn(usize) -> String) {
    let mut seen = vec![0; ranks];
    for line in text.lines() {
        let rank = seen.iter().enumerate().position(|(rank, last)| line == format!("{} {}", words(rank), last + 1));
        let rank = rank.unwrap_or_else(|| panic!("{line:?} is nobody's next line, last seen are {seen:?}"));
        seen[rank] += 1;
    }
    assert_eq!(seen, vec![lines; ranks]);
}

#[test]
fn lines_far_longer_than_every_buffer_are_not_mixed_either() {
    let ended = script(&["-n", "3"], "head -c 700000 /dev/zero | tr '\\0' $PULC_RANK; echo");
    let text = ended.text();
    let mut lengths: Vec<(u8, usize)> = text.lines().map(|line| (line.as_bytes()[0], line.len())).collect();
    lengths.sort_unstable();
    assert_eq!(lengths, [(b'0', 700_000), (b'1', 700_000), (b'2', 700_000)]);
    assert!(text.lines().all(|line| line.bytes().all(|byte| byte == line.as_bytes()[0])));
}

#[test]
fn a_last_line_without_line_feed_is_delivered() {
    assert_eq!(script(&[], "printf unfinished").text(), "unfinished");
    let ended = script(&["-n", "2"], "test $PULC_RANK = 1 && exit; printf unfinished");
    assert_eq!(ended.text(), "unfinished");
}

#[test]
fn bytes_of_every_value_come_through_unchanged() {
    let tag = tag();
    let bytes: Vec<u8> = (0..1_000_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let mut job = Job::of(command(&tag, &["cat"]).stdin(Stdio::piped()), tag.clone());
    let mut stdin = job.stdin();
    let sent = bytes.clone();
    let writer = std::thread::spawn(move || stdin.write_all(&sent).unwrap());
    let ended = job.finish();
    writer.join().unwrap();
    assert_eq!(ended.code(), 0);
    assert!(ended.stdout == bytes, "{} bytes came back of {}", ended.stdout.len(), bytes.len());
}

#[test]
fn only_rank_0_has_the_standard_input() {
    let tag = tag();
    let mut job =
        Job::of(command(&tag, &["-n", "3", "sh", "-c", "echo $PULC_RANK:$(cat)"]).stdin(Stdio::piped()), tag.clone());
    job.stdin().write_all(b"for zero").unwrap();
    let ended = job.finish();
    let mut lines: Vec<String> = ended.text().lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["0:for zero", "1:", "2:"]);
}

#[test]
fn a_rank_that_ends_without_reading_its_input_does_not_hang_the_job() {
    let tag = tag();
    let mut job = Job::of(command(&tag, &["true"]).stdin(Stdio::piped()), tag.clone());
    let mut stdin = job.stdin();
    // Far more than all windows; the write fails or succeeds, but the job ends.
    let writer = std::thread::spawn(move || {
        let _ = stdin.write_all(&vec![b'x'; 4 << 20]);
    });
    assert_eq!(job.finish().code(), 0);
    writer.join().unwrap();
}

#[test]
fn a_stalled_reader_stalls_the_ranks_and_loses_nothing() {
    stall_two_ranks_on("1");
}

/// Two ranks on so many nodes print while nobody reads; then all they have printed is read.
pub fn stall_two_ranks_on(nodes: &str) {
    let tag = tag();
    let words = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde";
    let lines = 40_000;
    let print = format!("i=$((i+1)); echo $PULC_RANK {words} $i");
    let program = format!("i=0; while [ $i -lt {lines} ]; do {print}; done; echo done >&2");
    let mut child = command(&tag, &["-n", "2", "--nodes", nodes, "sh", "-c", &program]).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut stderr = child.stderr.take().unwrap();
    let done = std::thread::spawn(move || {
        let mut text = String::new();
        stderr.read_to_string(&mut text).unwrap();
        text
    });
    let job = Job::of(&mut std::process::Command::new("true"), tag);
    // Each prints more than 2.5 MB; all buffers on the way hold far less.
    let begin = Instant::now();
    let mut before = Vec::new();
    loop {
        std::thread::sleep(Duration::from_millis(300));
        let written: Vec<u64> = job.ranks().iter().map(|rank| written_bytes(rank.pid)).collect();
        if written == before && written.len() == 2 && written.iter().all(|bytes| *bytes > 0) {
            break;
        }
        before = written;
        assert!(begin.elapsed() < GUARD, "the ranks were never held back");
    }
    let mut text = String::new();
    stdout.read_to_string(&mut text).unwrap();
    assert_numbered_lines(&text, 2, lines, |rank| format!("{rank} {words}"));
    let each = text.len() as u64 / 2;
    assert!(before.iter().all(|bytes| *bytes < each), "{before:?} of {each} bytes were printed though nobody read");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(done.join().unwrap(), "done\ndone\n");
    job.assert_nothing_left();
}

fn written_bytes(pid: i32) -> u64 {
    let io = std::fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    let line = io.lines().find_map(|line| line.strip_prefix("wchar: "));
    line.and_then(|count| count.parse().ok()).unwrap_or(0)
}

#[test]
fn a_closed_standard_output_ends_the_job() {
    let tag = tag();
    let mut child =
        command(&tag, &["-n", "2", "--kill-delay", "1", "sh", "-c", "while :; do echo y; done"]).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 100]).unwrap();
    drop(stdout);
    let job = Job { child, ..Job::of(&mut std::process::Command::new("true"), tag) };
    let ended = job.finish();
    assert_eq!(ended.code(), 141, "{}", ended.stderr);
}

#[test]
fn a_full_disk_is_named() {
    let tag = tag();
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = command(&tag, &["--kill-delay", "1", "sh", "-c", "echo text; sleep 1000"]);
    let ended = Job::of(command.stdout(full), tag.clone()).finish();
    assert_eq!(ended.code(), 1);
    assert!(ended.stderr.contains("No space left on device"), "{}", ended.stderr);
}
