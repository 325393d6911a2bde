//! The C door seen from C: programs are compiled with `cc` against the public header and this build's library and run as
//! rank 0 of 1 (`cargo xtask test` runs the examples with two ranks as well).

use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The library that belongs to this test binary.
fn library() -> PathBuf {
    let deps = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let places = [deps.parent().unwrap().join("libpulc_c.so"), deps.join("libpulc_c.so")];
    places
        .into_iter()
        .find(|place| place.exists())
        .expect("the library is built: `cargo build -p pulc-c-abi` first, as `cargo xtask test` does")
}

/// A folder that goes away with the test, with the library in it under its two names.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let folder = std::env::temp_dir().join(format!("pulc-door-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for name in ["libpulc.so", "libpulc.so.0"] {
            std::os::unix::fs::symlink(library(), folder.join(name)).unwrap();
        }
        Scratch(folder)
    }

    fn compile(&self, source: &Path, more: &[&str]) -> PathBuf {
        let program = self.0.join(source.file_stem().unwrap());
        let mut cc = Command::new("cc");
        cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-I"]).arg(root().join("abi/include"));
        cc.arg(source).arg("-o").arg(&program).arg("-L").arg(&self.0).args(more);
        assert!(cc.status().unwrap().success(), "{} does not compile", source.display());
        program
    }

    fn run(&self, program: &Path, arguments: &[&Path]) -> String {
        let output = Command::new(program)
            .args(arguments)
            .env("LD_LIBRARY_PATH", &self.0)
            .env_remove("PULC_KEEPER")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{} ended with {}: {text}{words}", program.display(), output.status);
        text
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn every_c_example_compiles_without_a_warning_and_runs_alone() {
    let scratch = Scratch::new("examples");
    let mut ran = 0;
    for entry in std::fs::read_dir(root().join("examples/c")).unwrap() {
        let source = entry.unwrap().path();
        if source.extension().is_some_and(|extension| extension == "c") {
            let program = scratch.compile(&source, &["-lpulc"]);
            scratch.run(&program, &[]);
            ran += 1;
        }
    }
    assert!(ran > 0, "there is no example");
}

#[test]
fn two_copies_of_the_library_in_one_process_share_one_engine() {
    let scratch = Scratch::new("doors");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/two_doors.c");
    let program = scratch.compile(&source, &["-ldl", "-lpthread"]);
    // Two files, so that the loader cannot know them for one.
    let copies = [scratch.0.join("copy1.so"), scratch.0.join("copy2.so")];
    for copy in &copies {
        std::fs::copy(library(), copy).unwrap();
    }
    assert_eq!(scratch.run(&program, &[&copies[0], &copies[1]]), "one engine\n");
}

#[test]
fn the_header_compiles_as_c_plus_plus_where_there_is_a_compiler() {
    let scratch = Scratch::new("cpp");
    let source = scratch.0.join("header.cpp");
    std::fs::write(&source, "#include <pulc.h>\nint main() { return pulc_version() >> 8; }\n").unwrap();
    let program = scratch.0.join("header");
    let mut cxx = Command::new("c++");
    cxx.args(["-std=c++11", "-Wall", "-Werror", "-I"]).arg(root().join("abi/include"));
    cxx.arg(&source).arg("-o").arg(&program).arg("-L").arg(&scratch.0).arg("-lpulc");
    match cxx.status() {
        Ok(status) => assert!(status.success()),
        Err(error) => {
            pulc_testkit::skipped("the header is one for C++ too", &format!("no C++ compiler ({error})"));
            return;
        }
    }
    scratch.run(&program, &[]);
}
