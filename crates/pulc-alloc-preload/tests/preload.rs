//! The preloaded allocator in front of programs that know nothing of it: a C program that strains every function with threads and forks,
//! and what Debian has. Each runs as it would without.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The library that belongs to this test binary.
fn library() -> PathBuf {
    let deps = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let places = [deps.parent().unwrap().join("libpulc_alloc.so"), deps.join("libpulc_alloc.so")];
    places
        .into_iter()
        .find(|place| place.exists())
        .expect("the library is built: `cargo build -p pulc-alloc-preload` first, as `cargo xtask test` does")
}

fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs")
}

/// A folder that goes away with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let folder = std::env::temp_dir().join(format!("pulc-alloc-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Scratch(folder)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs a program behind the allocator; what it wrote.
fn run(shortest: &str, command: &mut Command) -> String {
    command.env("LD_PRELOAD", library()).env("PULC_ALLOC_MIN_BYTES", shortest);
    let output = command.output().unwrap();
    let (text, words) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?} ended with {}: {text}{words}", output.status);
    assert!(!words.contains("preload"), "the library was not loaded: {words}");
    text.into_owned()
}

fn compile(scratch: &Scratch, preloaded: bool) -> PathBuf {
    let (source, program) = (programs().join("strain.c"), scratch.0.join("strain"));
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-fno-builtin", "-pthread"]);
    cc.arg(source).arg("-o").arg(&program);
    if preloaded {
        run("4k", &mut cc);
    } else {
        assert!(cc.status().unwrap().success());
    }
    program
}

#[test]
fn every_function_keeps_its_promises_under_threads_and_forks() {
    let scratch = Scratch::new("strain");
    let program = compile(&scratch, false);
    for shortest in ["4k", "64k"] {
        let text = run(shortest, &mut Command::new(&program));
        assert!(text.contains("all bytes were right"), "{text}");
        assert!(text.contains("long blocks lie in the arena"), "{text}");
    }
    // Where nothing is long enough there is no arena.
    let text = run("1g", &mut Command::new(&program));
    assert!(text.contains("all bytes were right") && text.contains("there is no arena"), "{text}");
}

#[test]
fn a_full_arena_is_no_error_for_a_program() {
    let scratch = Scratch::new("full");
    let program = compile(&scratch, false);
    let text = run("4k", Command::new(&program).env("PULC_ARENA_BYTES", "1m"));
    assert!(text.contains("all bytes were right"), "{text}");
}

#[test]
fn a_compiler_behind_the_allocator_compiles() {
    let scratch = Scratch::new("cc");
    let program = compile(&scratch, true);
    assert!(run("64k", &mut Command::new(program)).contains("all bytes were right"));
}

#[test]
fn a_listing_is_the_same_as_without() {
    let without = Command::new("ls").arg("-la").arg(programs()).output().unwrap();
    assert_eq!(run("4k", Command::new("ls").arg("-la").arg(programs())), String::from_utf8_lossy(&without.stdout));
}

#[test]
fn python_with_long_buffers_threads_and_forked_workers_runs() {
    let text = run("16k", Command::new("python3").arg(programs().join("buffers.py")));
    assert!(text.contains("all bytes were right"), "{text}");
}
