//! Rules for documents: the root papers exist, every crate has a README with the four headings, links between files of
//! this repository lead somewhere, no merge is left half done, and the tests that the table of bad input names exist.

use super::{File, Finding};
use std::path::{Component, Path, PathBuf};

const ROOT_PAPERS: &[&str] = &[
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CAVEATS.md",
    "CHANGELOG.md",
    "LICENSE-MIT",
    "LICENSE-APACHE",
    "docs/glossary.md",
];

/// The table whose last column names tests.
const BAD_INPUT: &str = "docs/bad-input.md";

/// The table of what is shared without a lock.
const LOCK_FREE: &str = "docs/lock-free.md";
/// The crates whose rooms it lists by their place in the crate; those of others by their whole path. And what makes a room one of its.
const LOCK_FREE_IN: &[&str] = &["crates/pulc-hal/src/", "crates/pulc-handler/src/", "crates/pulc/src/"];
const ORDERING: &[&str] = &["Ordering::Acquire", "Ordering::Release", "Ordering::AcqRel", "Ordering::SeqCst"];

/// What each fuzz target stands for.
const FUZZ_TABLE: &str = "fuzz/README.md";

const HEADINGS: &[&str] = &["Door", "Rooms", "Invariants", "Neighbours"];

pub fn check(root: &Path, files: &[File]) -> Vec<Finding> {
    let has = |path: &Path| files.iter().any(|file| file.path == path);
    let mut findings = Vec::new();
    for paper in ROOT_PAPERS {
        if !has(Path::new(paper)) {
            findings.push(Finding::new(*paper, 0, "is missing"));
        }
    }
    for manifest in files.iter().filter(|file| file.name() == "Cargo.toml" && file.path.starts_with("crates")) {
        let readme = manifest.path.with_file_name("README.md");
        match files.iter().find(|file| file.path == readme) {
            None => findings.push(Finding::new(readme, 0, "is missing; headings Door, Rooms, Invariants, Neighbours")),
            Some(file) => {
                for heading in HEADINGS.iter().filter(|heading| !has_heading(&file.text, heading)) {
                    findings.push(Finding::new(&readme, 0, format!("lacks the heading \"## {heading}\"")));
                }
            }
        }
    }
    for file in files.iter().filter(|file| file.is("md")) {
        for (line, target) in links(&file.text) {
            let path = normal(&file.path.parent().unwrap_or(Path::new("")).join(&target));
            if !has(&path) && !root.join(&path).is_dir() {
                findings.push(Finding::new(&file.path, line, format!("links to {target}, which does not exist")));
            }
        }
    }
    findings.extend(files.iter().flat_map(unmerged));
    findings.extend(missing_tests(files));
    findings.extend(unlisted_atomics(files));
    findings.extend(fuzz_targets(files));
    findings
}

/// What a merge has left where it did not know which side is right.
fn unmerged(file: &File) -> impl Iterator<Item = Finding> + '_ {
    let left = |line: &str| line.starts_with("<<<<<<< ") || line.starts_with(">>>>>>> ");
    let lines = (1..).zip(file.text.lines()).filter(move |(_, line)| left(line));
    lines.map(|(number, _)| Finding::new(&file.path, number, "a merge is not finished here"))
}

/// Fuzz targets without a corpus, without a replay on a stable compiler, or without a row in the table; corpora without a target.
fn fuzz_targets(files: &[File]) -> Vec<Finding> {
    let under =
        |folder: &'static str| files.iter().filter_map(move |file| Some((file, file.path.strip_prefix(folder).ok()?)));
    let corpora: Vec<&str> =
        under("fuzz/corpus").filter_map(|(_, rest)| rest.components().next()?.as_os_str().to_str()).collect();
    let table = files.iter().find(|file| file.path == Path::new(FUZZ_TABLE)).map_or("", |file| &file.text);
    let mut findings = Vec::new();
    let mut targets = Vec::new();
    for (file, rest) in under("fuzz/fuzz_targets") {
        let Some(name) = rest.file_stem().and_then(|stem| stem.to_str()) else { continue };
        targets.push(name);
        let call = format!("replay(\"{name}\",");
        let is_replayed = files.iter().any(|other| other.is("rs") && other.text.contains(&call));
        for (is_there, what) in [
            (corpora.contains(&name), format!("has no corpus; keep inputs under fuzz/corpus/{name}")),
            (is_replayed, format!("is not replayed on a stable compiler; call `{call} …)` in a test")),
            (table.contains(&format!("`{name}`")), format!("stands in no row of {FUZZ_TABLE}")),
        ] {
            if !is_there {
                findings.push(Finding::new(&file.path, 0, what));
            }
        }
    }
    let mut forgotten: Vec<&str> = corpora.into_iter().filter(|name| !targets.contains(name)).collect();
    forgotten.dedup();
    let forgotten = forgotten.into_iter();
    findings.extend(forgotten.map(|name| Finding::new(format!("fuzz/corpus/{name}"), 0, "has no target")));
    findings
}

/// Rooms in which an atomic orders something and that no row of the table names.
fn unlisted_atomics(files: &[File]) -> Vec<Finding> {
    let Some(table) = files.iter().find(|file| file.path == Path::new(LOCK_FREE)) else { return Vec::new() };
    let is_test = |path: &str| ["test", "src/models", "hostile", "fuzz.rs"].iter().any(|word| path.contains(word));
    let orders = |file: &&File| {
        let own = file.text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        ORDERING.iter().any(|word| own.contains(word))
    };
    let rooms = files.iter().filter(|file| file.is("rs")).filter_map(|file| {
        let path = file.path.to_str()?;
        let is_room = path.starts_with("crates/") && path.contains("/src/") && !is_test(path);
        let room = LOCK_FREE_IN.iter().find_map(|crate_| path.strip_prefix(crate_)).unwrap_or(path);
        is_room.then_some((file, room))
    });
    let unlisted = rooms.filter(|(file, room)| orders(file) && !table.text.contains(room));
    let text =
        format!("orders something by an atomic and stands in no row of {LOCK_FREE}; say there what must hold and why");
    unlisted.map(|(file, _)| Finding::new(&file.path, 0, text.clone())).collect()
}

/// Tests named in the table that nobody has written.
fn missing_tests(files: &[File]) -> Vec<Finding> {
    let Some(table) = files.iter().find(|file| file.path == Path::new(BAD_INPUT)) else { return Vec::new() };
    let rows = table.text.lines().enumerate().filter(|(_, line)| line.starts_with("| ") && line.contains('`'));
    let named = rows.flat_map(|(number, line)| {
        let tests = line.trim_end_matches([' ', '|']).rsplit('|').next().unwrap_or_default();
        tests.split('`').skip(1).step_by(2).map(move |name| (number + 1, name))
    });
    let exists = |name: &str| {
        let head = format!("fn {name}");
        let follows = |text: &str| text.starts_with(['(', '<']);
        files.iter().filter(|file| file.is("rs")).any(|file| file.text.split(&head).skip(1).any(follows))
    };
    named
        .filter(|(_, name)| !exists(name))
        .map(|(line, name)| Finding::new(BAD_INPUT, line, format!("names the test {name}, which does not exist")))
        .collect()
}

fn has_heading(text: &str, heading: &str) -> bool {
    text.lines()
        .any(|line| line.starts_with(['#', '*']) && line.trim_start_matches(['#', '*', ' ']).starts_with(heading))
}

/// Relative targets of `[text](target)` outside code, with their lines and without `#anchors`.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut in_code = false;
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        // Every second part is inside backquotes.
        for part in line.split('`').step_by(2) {
            for (at, _) in part.match_indices("](") {
                let target = part[at + 2..].split([')', ' ']).next().unwrap_or_default();
                let target = target.split('#').next().unwrap_or_default();
                let is_far = target.contains("://") || target.starts_with("mailto:");
                if !target.is_empty() && !is_far {
                    found.push((number + 1, target.to_string()));
                }
            }
        }
    }
    found
}

/// Resolves `.` and `..` in the path's own text.
fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir if out.pop() => {}
            Component::CurDir => {}
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.into(), text: text.into() }
    }

    fn findings(files: &[File]) -> Vec<String> {
        let found = check(Path::new("/nonexistent"), files);
        found.iter().map(|f| f.to_string()).filter(|text| !text.ends_with(": is missing")).collect()
    }

    #[test]
    fn a_missing_root_paper_is_found() {
        let found = check(Path::new("/nonexistent"), &[file("README.md", "")]);
        assert!(found.contains(&Finding::new("LICENSE-MIT", 0, "is missing")));
        assert!(!found.contains(&Finding::new("README.md", 0, "is missing")));
    }

    #[test]
    fn a_crate_without_readme_or_heading_is_found() {
        let manifest = || file("crates/pulc/Cargo.toml", "");
        assert!(findings(&[manifest()])[0].starts_with("crates/pulc/README.md: is missing; headings"));
        let readme = file("crates/pulc/README.md", "# pulc\n## Door\n## Rooms\n## Invariants\n");
        assert_eq!(findings(&[manifest(), readme]), ["crates/pulc/README.md: lacks the heading \"## Neighbours\""]);
    }

    #[test]
    fn a_merge_that_is_not_finished_is_found() {
        let text = "one\n<<<<<<< HEAD\ntwo\n=======\nthree\n>>>>>>> abc\n";
        let found = findings(&[file("docs/a.md", text)]);
        assert_eq!(found, ["docs/a.md:2: a merge is not finished here", "docs/a.md:6: a merge is not finished here"]);
    }

    #[test]
    fn tests_that_the_table_of_bad_input_names_must_exist() {
        let table = "| input | said | tests |\n| --- | --- | --- |\n| a | `b` | `here`, `gone` |\n";
        let files = [file(BAD_INPUT, table), file("a.rs", "fn here() {}\nfn gone_too() {}\n")];
        assert_eq!(findings(&files), ["docs/bad-input.md:3: names the test gone, which does not exist"]);
    }

    #[test]
    fn rooms_with_atomics_that_the_table_does_not_name_are_found() {
        let atomic = "//! Room.\nfn f() { A.load(Ordering::Acquire); }\n";
        let files = [
            file(LOCK_FREE, "| bell | `os/bell.rs`, `crates/pulc-x/src/named.rs` | holds | why |\n"),
            file("crates/pulc-hal/src/os/bell.rs", atomic),
            file("crates/pulc-hal/src/os/new.rs", atomic),
            file("crates/pulc-hal/src/os/counter.rs", "//! Room.\nfn f() { A.load(Ordering::Relaxed); }\n"),
            file("crates/pulc-hal/src/os/tests.rs", atomic),
            file("crates/pulc-x/src/named.rs", atomic),
            file("crates/pulc-y/src/named.rs", atomic),
            file("crates/pulc-y/tests/named.rs", atomic),
        ];
        let found = findings(&files);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[1].starts_with("crates/pulc-y/src/named.rs: orders something"), "{found:?}");
        assert!(found[0].starts_with("crates/pulc-hal/src/os/new.rs: orders something"), "{found:?}");
    }

    #[test]
    fn fuzz_targets_need_a_corpus_a_replay_and_a_row() {
        let target = |name: &str| file(&format!("fuzz/fuzz_targets/{name}.rs"), "");
        let files = [
            target("whole"),
            file("fuzz/corpus/whole/seed", ""),
            file("crates/x/tests/replay.rs", "fn f() { replay(\"whole\", 3, g); }"),
            file(FUZZ_TABLE, "| `whole` | bytes |"),
            file("fuzz/corpus/forgotten/seed", ""),
        ];
        assert_eq!(findings(&files), ["fuzz/corpus/forgotten: has no target"]);
        let found = findings(&[target("bare")]);
        assert_eq!(found.len(), 3, "{found:?}");
    }

    #[test]
    fn dead_links_are_found_and_code_and_far_links_are_passed_over() {
        let text = "[a](b.md) [c](../docs/d.md#part) [e](https://example.org) `[f](g)`\n```\n[h](i)\n```\n[j](#here)\n";
        let files = [file("docs/a.md", text), file("docs/d.md", "")];
        assert_eq!(findings(&files), ["docs/a.md:1: links to b.md, which does not exist"]);
    }
}
