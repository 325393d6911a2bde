//! `mpiexec` as people's scripts call it: every flag of the dialects does what it says for the ranks of a real job.
//! Source: MPI-5.0, 11.5; the manuals of MPICH's Hydra and of Open MPI.

use crate::harness::{Ended, Job, TempDir, tag, write_file};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// A job as this binary starts it under the name of `mpiexec`, without any daemon, with more variables.
fn started(name: &str, words: &[&str], variables: &[(&str, &str)]) -> Ended {
    let tag = tag();
    let (tag_name, tag_value) = tag.split_once('=').unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_pulc"));
    command.arg0(name).args(words).envs(variables.iter().copied()).env(tag_name, tag_value);
    // No daemon has this name.
    command.env("PULC_INSTANCE", format!("no-{}", std::process::id())).env_remove("PULC_STATE_DIR");
    command.env("PULC_ENDS_WITH", std::process::id().to_string());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Job::of(&mut command, tag.clone()).finish()
}

fn mpiexec(words: &[&str]) -> Ended {
    started("/usr/bin/mpiexec", words, &[])
}

/// The lines of a job that ends well, in order.
fn lines(words: &[&str]) -> Vec<String> {
    sorted(&mpiexec(words))
}

fn sorted(ended: &Ended) -> Vec<String> {
    assert_eq!(ended.code(), 0, "{}", ended.stderr);
    let mut lines: Vec<String> = ended.text().lines().map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

const WHO: [&str; 3] = ["sh", "-c", "echo $PULC_RANK/$PULC_SIZE"];
const WHERE: [&str; 3] = ["sh", "-c", "echo $PULC_RANK on $PULC_NODE"];

fn with(flags: &[&str], program: &[&str]) -> Vec<String> {
    lines(&[flags, program].concat())
}

#[test]
fn every_name_and_every_way_to_say_how_many_starts_so_many() {
    for flags in [&["-n", "2"][..], &["-np", "2"], &["--np", "2"], &["-c", "2"], &["--n=2"]] {
        assert_eq!(with(flags, &WHO), ["0/2", "1/2"], "{flags:?}");
    }
    assert_eq!(sorted(&started("mpirun", &[&["-n", "2"][..], &WHO].concat(), &[])), ["0/2", "1/2"]);
    assert_eq!(with(&[], &WHO), ["0/1"]);
}

#[test]
fn ranks_on_each_node_are_as_many_as_was_said() {
    let two_each = ["0 on 0", "1 on 0", "2 on 1", "3 on 1"];
    for flag in ["-ppn", "-perhost", "-N", "--npernode"] {
        assert_eq!(with(&["-n", "4", flag, "2"], &WHERE), two_each, "{flag}");
    }
    assert_eq!(with(&["-n", "2", "-ppn", "4"], &WHERE), ["0 on 0", "1 on 0"]);
}

#[test]
fn nodes_are_named_by_a_flag_or_in_a_file() {
    for flag in ["-host", "-hosts", "--host", "-H"] {
        assert_eq!(with(&["-n", "2", flag, "localhost"], &WHERE), ["0 on 0", "1 on 0"], "{flag}");
    }
    let folder = TempDir::new();
    let file = folder.path("hosts");
    write_file(&file, b"# ours\nlocalhost slots=1\nlocalhost:1 # again\n");
    for flag in ["-f", "-hostfile", "--hostfile", "-machinefile"] {
        assert_eq!(with(&["-n", "2", flag, &file], &WHERE), ["0 on 0", "1 on 0"], "{flag}");
    }
    for (flags, why) in [
        (&["-n", "3", "-hostfile", &file][..], "the nodes named take 1 fewer"),
        (&["-n", "2", "-hosts", "nowhere"], "no node \"nowhere\" is up"),
        (&["-n", "2", "-hostfile", "/no/such/file"], "cannot read the host file"),
    ] {
        let ended = mpiexec(&[flags, &WHERE].concat());
        assert!(ended.code() != 0 && ended.stderr.contains(why), "{flags:?}: {}", ended.stderr);
    }
}

#[test]
fn variables_reach_the_ranks_in_every_dialect() {
    let show = ["sh", "-c", "echo $ONE$TWO"];
    assert_eq!(with(&["-n", "2", "-env", "ONE", "a b", "-genv", "TWO", "c"], &show), ["a bc", "a bc"]);
    assert_eq!(with(&["-x", "ONE=1=1", "--x", "TWO=2"], &show), ["1=12"]);
    // A variable without a value is the one that is set here.
    let ended = started("mpiexec", &[&["-x", "ONE"][..], &show].concat(), &[("ONE", "here")]);
    assert_eq!(sorted(&ended), ["here"]);
    // What is said for one program is stronger than what is said for all.
    assert_eq!(with(&["-genv", "ONE", "all", "-env", "ONE", "own"], &show), ["own"]);
}

#[test]
fn the_working_directory_is_the_one_named() {
    let folder = TempDir::new();
    let at = std::fs::canonicalize(&folder.0).unwrap().to_str().unwrap().to_owned();
    for flag in ["-wdir", "--wdir", "-wd"] {
        assert_eq!(with(&["-n", "2", flag, &at], &["pwd"]), [at.clone(), at.clone()], "{flag}");
    }
    let ended = mpiexec(&["-wdir", "/no/such/folder", "pwd"]);
    assert!(ended.code() != 0 && ended.stderr.contains("/no/such/folder"), "{}", ended.stderr);
}

#[test]
fn lines_carry_their_rank_where_that_is_asked_for() {
    for flag in ["-l", "-prepend-rank", "--prepend-rank"] {
        assert_eq!(with(&["-n", "2", flag], &["echo", "word"]), ["[0] word", "[1] word"], "{flag}");
    }
}

#[test]
fn programs_behind_colons_have_ranks_variables_and_directories_of_their_own() {
    let folder = TempDir::new();
    let at = std::fs::canonicalize(&folder.0).unwrap().to_str().unwrap().to_owned();
    let tell = "echo $PULC_RANK/$PULC_SIZE $ALL$ONE $(pwd) $0";
    let words = [
        &["-genv", "ALL", "g", "-n", "1", "-wdir", "/", "sh", "-c", tell, "a", ":"][..],
        &["-n", "2", "-env", "ONE", "1", "-wdir", &at, "sh", "-c", tell, "b", ":", "-np", "1", "-wdir", "/"],
        &["sh", "-c", tell, "c"],
    ];
    let expected = ["0/4 g / a".to_owned(), format!("1/4 g1 {at} b"), format!("2/4 g1 {at} b"), "3/4 g / c".to_owned()];
    assert_eq!(lines(&words.concat()), expected);
    // A program that is not there is named, and nothing of the others goes on.
    let ended = mpiexec(&["-n", "1", "sleep", "1000", ":", "-n", "1", "/no/such/program"]);
    assert!(ended.code() == 127 && ended.stderr.contains("/no/such/program"), "{}", ended.stderr);
}

#[test]
fn flags_that_mean_nothing_here_are_named_in_one_line_and_change_nothing() {
    let flags = ["--oversubscribe", "--allow-run-as-root", "--bind-to", "core", "--map-by", "socket", "--mca", "btl"];
    let more = ["self", "-launcher", "ssh", "--report-bindings", "-n", "2"];
    let ended = mpiexec(&[&flags[..], &more, &WHO].concat());
    let told: Vec<&str> = ended.stderr.lines().filter(|line| line.starts_with("mpiexec: ")).collect();
    for name in ["-oversubscribe", "-allow-run-as-root", "-bind-to", "-map-by", "-mca", "-launcher"] {
        assert!(told.len() == 1 && told[0].contains(name), "{}", ended.stderr);
    }
    assert_eq!(sorted(&ended), ["0/2", "1/2"]);
    let ended = mpiexec(&["--no-such-flag", "true"]);
    assert!(ended.code() != 0 && ended.stderr.contains("-no-such-flag is unknown"), "{}", ended.stderr);
    // What stands behind the program is the program's.
    assert_eq!(with(&["-n", "1"], &["echo", "-n", "--oversubscribe", ":x"]), ["--oversubscribe :x"]);
}

#[test]
fn a_job_that_fails_or_takes_too_long_says_so_by_its_status() {
    assert_eq!(mpiexec(&["-n", "2", "sh", "-c", "test $PULC_RANK = 0 || exit 7"]).code(), 7);
    let ended = mpiexec(&["-n", "2", "-timeout", "1", "sleep", "1000"]);
    assert!(ended.code() != 0, "{}", ended.stderr);
}
