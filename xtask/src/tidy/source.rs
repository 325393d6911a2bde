//! Rules for Rust files: header, length, where `unsafe` may stand, words that mark unfinished work, room names, `unwrap`.
//! Works on the text with comments and string contents blanked out, which is exact enough and needs no parser.

use super::{File, Finding};
use std::path::{Path, PathBuf};

/// Of a file, its own unit tests at the end not counted.
const LINES_MAX: usize = 400;

/// Longer files, each with its limit and the reason why it is one room.
const LONGER: &[(&str, usize, &str)] = &[];

/// Where `unsafe` may stand. Everywhere else the crate root says `#![forbid(unsafe_code)]`.
const UNSAFE_IN: &[(&str, &str)] = &[
    ("crates/pulc-hal/", "the room of devices and of the operating system"),
    ("crates/pulc-c-abi/", "a door: raw pointers of C programs end there"),
    ("crates/pulc-c-calls/", "the bodies of the C functions: raw pointers of C programs end there"),
    ("crates/pulc-alloc-preload/", "a door: the C library's allocator"),
    ("crates/pulc-sockets-preload/", "a door: the C library's socket calls"),
    ("crates/pulc-mpi-calls/", "the bodies of MPI functions: raw pointers of MPI programs end there"),
    ("crates/pulc-mpich-abi/", "a door: functions and variables with C names"),
    ("crates/pulc-mpi-abi/", "a door: functions with C names"),
    (
        "crates/pulc-bench/src/mpi_door.rs",
        "a measured MPI, called as programs call it: through the functions of its library",
    ),
    ("crates/pulc-mpi/src/memory.rs", "the memory of MPI programs, by address"),
    ("crates/pulc-mpi/src/datatype/copy.rs", "datatypes copied from and to the memory of MPI programs"),
    ("crates/pulc-mpi/src/op/apply.rs", "reductions of the memory of MPI programs"),
    ("crates/pulc-mpi/src/op/many.rs", "reductions of shared memory where it lies"),
];

/// Room names that say nothing about what is inside.
const NAMELESS: &[&str] = &["util.rs", "utils.rs", "common.rs", "helper.rs", "helpers.rs", "misc.rs"];

/// Split so that this file does not find itself.
const UNFINISHED: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("unimpl", "emented!"),
    concat!("to", "do!"),
    concat!("db", "g!"),
];

pub fn check(files: &[File]) -> Vec<Finding> {
    let rust = || files.iter().filter(|file| file.is("rs"));
    let tests: Vec<PathBuf> = rust().flat_map(test_modules).collect();
    let mut findings: Vec<Finding> =
        rust().flat_map(|file| check_file(file, is_test_path(&file.path) || tests.contains(&file.path))).collect();
    for (path, limit, _) in LONGER {
        if !files.iter().any(|file| file.path.as_os_str() == *path && own_lines(&file.text) > LINES_MAX) {
            findings.push(Finding::new(
                *path,
                0,
                format!("needs no exception of {limit} lines any more; remove its row"),
            ));
        }
    }
    findings
}

/// Files of the modules that this file declares for tests only.
fn test_modules(file: &File) -> Vec<PathBuf> {
    let stem = file.path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let parent = file.path.parent().unwrap_or(Path::new(""));
    let dir = if ["mod", "lib", "main"].contains(&stem) { parent.to_path_buf() } else { parent.join(stem) };
    let lines: Vec<&str> = file.text.lines().map(str::trim).collect();
    let declared = lines.windows(2).filter(|pair| pair[0].starts_with("#[cfg(") && pair[0].contains("test"));
    declared
        .filter_map(|pair| pair[1].trim_start_matches("pub ").strip_prefix("mod ")?.strip_suffix(';'))
        .flat_map(|name| [dir.join(format!("{name}.rs")), dir.join(name).join("mod.rs")])
        .collect()
}

fn is_test_path(path: &Path) -> bool {
    if path.to_string_lossy().ends_with("tests.rs") {
        return true;
    }
    path.components().any(|part| part.as_os_str() == "tests" || part.as_os_str() == "examples")
}

/// Lines before the file's own unit tests.
fn own_lines(text: &str) -> usize {
    text.lines().take_while(|line| *line != "#[cfg(test)]").count()
}

fn check_file(file: &File, is_test: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut found = |line: usize, text: String| findings.push(Finding::new(&file.path, line, text));
    let path = file.path.to_string_lossy();

    // A crate root may take its crate's README as its header.
    if !file.text.starts_with("//! ") && !file.text.starts_with("#![doc = include_str!(\"../README.md\")]") {
        found(1, "starts without `//!`; say what the file is, who calls it, what it must never do".into());
    }
    let lines = own_lines(&file.text);
    let limit = LONGER.iter().find(|(name, ..)| path == *name).map_or(LINES_MAX, |(_, limit, _)| *limit);
    if lines > limit {
        found(0, format!("has {lines} lines, the limit is {limit}; split it by rooms"));
    }
    if NAMELESS.contains(&file.name()) {
        found(0, "is named after nothing; name the file after what is in it".into());
    }
    for (number, text) in file.text.lines().enumerate() {
        for word in UNFINISHED {
            if has_word(text, word) {
                found(number + 1, format!("contains {word:?}; finish it, or leave it out and say so in CAVEATS.md"));
            }
        }
    }
    let code = blank(&file.text);
    let may_be_unsafe = UNSAFE_IN.iter().any(|(room, _)| path.starts_with(room));
    let mut in_tests = is_test;
    for (number, text) in code.lines().enumerate() {
        in_tests |= text.trim() == "#[cfg(test)]";
        if !may_be_unsafe && has_word(text, "unsafe") {
            let rooms: Vec<_> = UNSAFE_IN.iter().map(|(room, why)| format!("{room} ({why})")).collect();
            found(number + 1, format!("`unsafe` may stand only in {}", rooms.join(", ")));
        }
        if !in_tests && text.contains(".unwrap()") {
            found(
                number + 1,
                "`unwrap()` outside tests; use `expect(\"why it cannot fail\")` or return an error".into(),
            );
        }
    }
    let is_root = path.ends_with("src/lib.rs") || path.ends_with("src/main.rs");
    // A root whose crate has a few such rooms denies it for all others.
    let home = path.strip_suffix("src/lib.rs").unwrap_or(&path);
    let has_rooms = UNSAFE_IN.iter().any(|(room, _)| room.starts_with(home));
    let denied = if has_rooms { "#![deny(unsafe_code)]" } else { "#![forbid(unsafe_code)]" };
    if is_root && !may_be_unsafe && !code.contains(denied) {
        found(0, format!("the crate root lacks `{denied}`"));
    }
    findings
}

/// Whether `word` stands in `text` with no letter, digit or underscore beside it.
fn has_word(text: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        !before.is_some_and(is_part) && (word.ends_with('!') || !after.is_some_and(is_part))
    })
}

/// The text with comments and the contents of string and character literals replaced by blanks; lines stay where they are.
fn blank(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes[at..].starts_with(b"//") => find(bytes, at, b"\n").unwrap_or(bytes.len()),
            b'/' if bytes[at..].starts_with(b"/*") => find(bytes, at + 2, b"*/").map_or(bytes.len(), |end| end + 2),
            b'"' => string_end(bytes, at + 1),
            b'r' if raw_hashes(bytes, at).is_some() && !follows_word(bytes, at) => {
                let hashes = raw_hashes(bytes, at).unwrap_or_default();
                let close = [b"\"".as_slice(), &vec![b'#'; hashes]].concat();
                find(bytes, at + hashes + 2, &close).map_or(bytes.len(), |end| end + close.len())
            }
            // A character, not a lifetime.
            b'\'' if bytes.get(at + 1) == Some(&b'\\') => find(bytes, at + 3, b"'").map_or(bytes.len(), |end| end + 1),
            b'\'' if bytes.get(at + 2) == Some(&b'\'') => at + 3,
            byte => {
                out.push(byte);
                at += 1;
                continue;
            }
        };
        out.extend(bytes[at..end].iter().map(|&byte| if byte == b'\n' { b'\n' } else { b' ' }));
        at = end;
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn find(bytes: &[u8], from: usize, what: &[u8]) -> Option<usize> {
    let rest = bytes.get(from..)?;
    rest.windows(what.len()).position(|window| window == what).map(|at| from + at)
}

fn string_end(bytes: &[u8], mut at: usize) -> usize {
    while at < bytes.len() {
        match bytes[at] {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// Number of `#` of a raw string that starts at `at`.
fn raw_hashes(bytes: &[u8], at: usize) -> Option<usize> {
    let hashes = bytes[at + 1..].iter().take_while(|&&byte| byte == b'#').count();
    (bytes.get(at + 1 + hashes) == Some(&b'"')).then_some(hashes)
}

fn follows_word(bytes: &[u8], at: usize) -> bool {
    at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<String> {
        let file = File { path: path.into(), text: text.into() };
        check_file(&file, is_test_path(&file.path)).iter().map(|finding| finding.to_string()).collect()
    }

    #[test]
    fn a_clean_file_gives_no_finding() {
        let text = "//! Room.\n#![forbid(unsafe_code)]\n// unsafe\nconst A: &str = \"unsafe .unwrap() \\\" unsafe\";\n\
                    const B: &str = r#\"unsafe \"quoted\" unsafe\"#; const C: char = '\"'; fn f<'a>(_: &'a str) {}\n\
                    #[cfg(test)]\nmod tests { fn g() { Some(1).unwrap(); } }\n";
        assert_eq!(findings("crates/pulc-base/src/lib.rs", text), [""; 0]);
    }

    #[test]
    fn a_missing_header_a_long_file_and_a_nameless_room_are_found() {
        let text = "fn f() {}\n".repeat(LINES_MAX + 1);
        let found = findings("crates/pulc/src/util.rs", &text);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].contains("starts without"), "{found:?}");
        assert!(found[1].contains("has 401 lines, the limit is 400"), "{found:?}");
        assert!(found[2].contains("named after nothing"), "{found:?}");
    }

    #[test]
    fn unsafe_outside_its_rooms_is_found_and_inside_it_is_not() {
        let text = "//! Room.\nfn f() { unsafe { g() } }\n";
        assert_eq!(findings("crates/pulc-hal/src/os/futex.rs", text), [""; 0]);
        let found = findings("crates/pulc-handler/src/wait.rs", text);
        assert!(found[0].starts_with("crates/pulc-handler/src/wait.rs:2: `unsafe` may stand only in"), "{found:?}");
    }

    #[test]
    fn a_crate_root_that_does_not_forbid_unsafe_is_found() {
        let found = findings("crates/pulc-link/src/lib.rs", "//! Room.\n");
        assert!(found[0].contains("lacks `#![forbid(unsafe_code)]`"), "{found:?}");
    }

    #[test]
    fn unfinished_work_is_found_in_comments_and_code() {
        for word in UNFINISHED {
            let found = findings("crates/pulc/src/port.rs", &format!("//! Room.\nfn f() {{}} // {word} later\n"));
            assert_eq!(found.len(), 1, "{word}: {found:?}");
        }
        assert_eq!(findings("crates/pulc/src/port.rs", concat!("//! MASTO", "DON and to", "do_list\n")), [""; 0]);
    }

    #[test]
    fn a_module_declared_for_tests_only_may_unwrap() {
        let file = |path: &str, text: &str| File { path: path.into(), text: text.into() };
        let files = [
            file("crates/x/src/shm/mod.rs", "//! Room.\n#[cfg(test)]\nmod hostile;\nmod pair;\n"),
            file("crates/x/src/shm/hostile.rs", "//! Room.\nfn f() { g().unwrap(); }\n"),
            file("crates/x/src/shm/pair.rs", "//! Room.\nfn f() { g().unwrap(); }\n"),
        ];
        let found: Vec<_> = check(&files).iter().map(|finding| finding.to_string()).collect();
        let unwraps: Vec<_> = found.iter().filter(|text| text.contains("unwrap")).collect();
        assert_eq!(unwraps.len(), 1, "{found:?}");
        assert!(unwraps[0].starts_with("crates/x/src/shm/pair.rs:2"), "{found:?}");
    }

    #[test]
    fn unwrap_is_found_outside_tests_only() {
        let text = "//! Room.\nfn f() { g().unwrap(); }\n#[cfg(test)]\nmod tests { fn h() { g().unwrap(); } }\n";
        let found = findings("crates/pulc/src/port.rs", text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("crates/pulc/src/port.rs:2:"), "{found:?}");
        assert_eq!(findings("crates/pulc/tests/ports.rs", "//! Room.\nfn f() { g().unwrap(); }\n"), [""; 0]);
    }
}
