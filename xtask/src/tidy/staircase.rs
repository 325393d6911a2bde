//! Who may name whom. Data flows down one staircase when sent and up the same one when received: a crate may name only
//! crates below it, and interfaces never name each other. The table is the rule; a new crate needs a row here and a record
//! under docs/adr/. Reads each `Cargo.toml`; feature flags and targets make no difference.

use super::{File, Finding};

struct Crate {
    name: &'static str,
    may_name: &'static [&'static str],
    /// More that its tests may name.
    tests_may_name: &'static [&'static str],
}

const fn row(name: &'static str, may_name: &'static [&'static str], tests_may_name: &'static [&'static str]) -> Crate {
    Crate { name, may_name, tests_may_name }
}

const STAIRCASE: &[Crate] = &[
    row("pulc-base", &[], &[]),
    row("pulc-hal", &["pulc-base"], &["pulc-testkit"]),
    // No I/O and no clock: only its tests meet a device.
    row("pulc-link", &["pulc-base"], &["pulc-hal", "pulc-testkit"]),
    row("pulc-handler", &["pulc-base", "pulc-hal", "pulc-link"], &["pulc-testkit"]),
    row("pulc", &["pulc-base", "pulc-hal", "pulc-link", "pulc-handler"], &["pulc-testkit"]),
    row("pulc-mpi", &["pulc-base", "pulc-hal", "pulc-handler"], &["pulc-testkit"]),
    row("pulc-c-calls", &["pulc-hal", "pulc-handler", "pulc"], &[]),
    row("pulc-c-abi", &["pulc-hal", "pulc-c-calls"], &["pulc-testkit"]),
    // A preload of its own: nothing of the handler comes into a program that never attaches.
    row("pulc-alloc-preload", &["pulc-hal"], &[]),
    row("pulc-sockets", &["pulc-hal"], &["pulc-testkit"]),
    row("pulc-sockets-preload", &["pulc-hal", "pulc-sockets"], &["pulc-testkit"]),
    row("pulc-control", &["pulc-base", "pulc-hal"], &["pulc-testkit"]),
    // Runs as root: nothing that it does not need.
    row("pulc-helper", &["pulc-base", "pulc-hal"], &["pulc-testkit"]),
    // Decides without I/O and without a clock; its journal is a file.
    row("pulc-sched", &["pulc-base", "pulc-control"], &["pulc-testkit"]),
    row(
        "pulc-psid",
        &["pulc-base", "pulc-hal", "pulc-control", "pulc-helper", "pulc-sched", "pulc-sockets"],
        &["pulc-testkit", "pulc"],
    ),
    row("pulc-testkit", &["pulc-base", "pulc-hal"], &[]),
    row("pulc-bench", &["pulc-base", "pulc-hal", "pulc-link", "pulc-handler", "pulc", "pulc-testkit"], &[]),
    // Heat is linked as a library for the demo: the one exception to the staircase.
    row(
        "pulc-cli",
        &[
            "pulc-base",
            "pulc-hal",
            "pulc-link",
            "pulc-handler",
            "pulc",
            "pulc-control",
            "pulc-helper",
            "pulc-psid",
            "pulc-sockets",
            "pulc-bench",
            "pulc-heat",
        ],
        &["pulc-testkit"],
    ),
    row("pulc-heat", &["pulc-base", "pulc"], &["pulc-testkit"]),
    // The table of MPI functions: read by build scripts, and by xtask for what is made from it and committed.
    row("pulc-mpi-table", &[], &[]),
    row("pulc-mpi-calls", &["pulc-mpi", "pulc-mpi-table", "pulc-c-calls"], &[]),
    row("pulc-mpich-abi", &["pulc-mpi-calls", "pulc-mpi-table"], &["pulc-testkit"]),
    row("pulc-mpi-abi", &["pulc-mpi-calls", "pulc-mpi-table"], &["pulc-testkit"]),
    // Not of this workspace: it meets every room that parses what comes from elsewhere.
    row(
        "pulc-fuzz",
        &["pulc", "pulc-control", "pulc-hal", "pulc-handler", "pulc-link", "pulc-mpi", "pulc-psid", "pulc-sockets"],
        &[],
    ),
    row("xtask", &["pulc-mpi-table"], &[]),
];

pub fn check(files: &[File]) -> Vec<Finding> {
    let (of_crates, roots): (Vec<&File>, Vec<&File>) =
        files.iter().filter(|file| file.name() == "Cargo.toml").partition(|file| file.path.components().count() > 1);
    of_crates.into_iter().flat_map(check_manifest).chain(roots.into_iter().flat_map(check_names)).collect()
}

/// The root gives crates of the house to all others: under their own names, or nobody would see who is named.
fn check_names(root: &File) -> Vec<Finding> {
    let renamed = |dependency: &Dependency| {
        dependency.known_as != dependency.name && STAIRCASE.iter().any(|row| row.name == dependency.name)
    };
    let finding = |dependency: Dependency| {
        let text = format!("{} is a crate of the house and may not be called {}", dependency.name, dependency.known_as);
        Finding::new(&root.path, dependency.line, text)
    };
    parse(&root.text).dependencies.into_iter().filter(renamed).map(finding).collect()
}

fn check_manifest(file: &File) -> Vec<Finding> {
    let manifest = parse(&file.text);
    let finding = |line, text: String| Finding::new(&file.path, line, text);
    let Some(row) = STAIRCASE.iter().find(|row| row.name == manifest.name) else {
        let text = format!(
            "the crate {:?} has no row in the staircase; a new crate needs one in xtask/src/tidy/staircase.rs and a \
             record under docs/adr/",
            manifest.name
        );
        return vec![finding(0, text)];
    };
    let house: Vec<&str> = STAIRCASE.iter().map(|row| row.name).collect();
    let mut findings = Vec::new();
    for dependency in &manifest.dependencies {
        let name = dependency.name.as_str();
        let allowed = row.may_name.contains(&name)
            || dependency.only_tests && row.tests_may_name.contains(&name)
            || !house.contains(&name);
        if !allowed {
            let who = if dependency.only_tests { "the tests of " } else { "" };
            let may = [row.may_name, if dependency.only_tests { row.tests_may_name } else { &[] }].concat();
            let text = format!("{who}{} may not name {name}; it may name [{}]", row.name, may.join(", "));
            findings.push(finding(dependency.line, text));
        }
    }
    findings
}

struct Manifest {
    name: String,
    dependencies: Vec<Dependency>,
}

struct Dependency {
    name: String,
    /// What the manifest calls it.
    known_as: String,
    line: usize,
    only_tests: bool,
}

/// The part of TOML that Cargo manifests use: `[section]`, `key = value`, `key.sub = value`.
fn parse(text: &str) -> Manifest {
    let mut manifest = Manifest { name: String::new(), dependencies: Vec::new() };
    let mut section = String::new();
    for (line, text) in text.lines().enumerate().map(|(index, text)| (index + 1, text.trim())) {
        if let Some(header) = text.strip_prefix('[').and_then(|text| text.split_once(']')).map(|(header, _)| header) {
            section = header.to_string();
            // [dependencies.name]
            if let Some((kind, name)) = section.rsplit_once("dependencies.") {
                let only_tests = kind.ends_with("dev-");
                let known_as = name.to_string();
                manifest.dependencies.push(Dependency { name: known_as.clone(), known_as, line, only_tests });
            }
            continue;
        }
        let Some((key, value)) = text.split_once('=') else { continue };
        let key = key.trim();
        if section == "package" && key == "name" {
            manifest.name = value.trim().trim_matches('"').to_string();
        } else if section.ends_with("dependencies") && !text.starts_with('#') {
            let known_as = key.split('.').next().unwrap_or(key).to_string();
            let renamed = value.split_once("package = \"").and_then(|(_, rest)| rest.split_once('"'));
            let name = renamed.map_or_else(|| known_as.clone(), |(name, _)| name.to_string());
            let only_tests = section.ends_with("dev-dependencies");
            manifest.dependencies.push(Dependency { name, known_as, line, only_tests });
        } else if section.contains("dependencies.")
            && key == "package"
            && let Some(dependency) = manifest.dependencies.last_mut()
        {
            dependency.name = value.trim().trim_matches('"').to_string();
        }
    }
    manifest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(text: &str) -> Vec<String> {
        let file = File { path: "crates/x/Cargo.toml".into(), text: text.into() };
        check(&[file]).iter().map(|finding| finding.to_string()).collect()
    }

    #[test]
    fn a_crate_that_names_one_above_it_is_found() {
        let found = findings("[package]\nname = \"pulc-hal\"\n[dependencies]\npulc-handler.workspace = true\n");
        assert_eq!(found, ["crates/x/Cargo.toml:4: pulc-hal may not name pulc-handler; it may name [pulc-base]"]);
    }

    #[test]
    fn a_renamed_a_target_bound_and_a_table_dependency_are_found() {
        let found = findings(
            "[package]\nname = \"pulc-link\"\n[dependencies]\nother = { package = \"pulc\", path = \"../pulc\" }\n\
             [target.'cfg(unix)'.dependencies]\npulc-hal.workspace = true\n[build-dependencies.pulc-psid]\n",
        );
        assert_eq!(found.len(), 3, "{found:?}");
    }

    #[test]
    fn a_crate_of_the_house_under_another_name_is_found() {
        let found = findings("[package]\nname = \"pulc-link\"\n[dependencies.other]\npackage = \"pulc\"\n");
        assert_eq!(found.len(), 1, "{found:?}");
        let root = |text: &str| check(&[File { path: "Cargo.toml".into(), text: text.into() }]).len();
        assert_eq!(root("[workspace.dependencies]\nother = { package = \"pulc\", path = \"crates/pulc\" }\n"), 1);
        assert_eq!(root("[workspace.dependencies.other]\npath = \"crates/pulc\"\npackage = \"pulc\"\n"), 1);
        assert_eq!(root("[workspace.dependencies]\npulc = { path = \"crates/pulc\" }\nserde = \"1\"\n"), 0);
    }

    #[test]
    fn what_only_tests_may_name_is_allowed_in_tests_and_refused_elsewhere() {
        assert!(findings("[package]\nname=\"pulc-link\"\n[dev-dependencies]\npulc-hal.workspace = true").is_empty());
        assert_eq!(findings("[package]\nname=\"pulc-link\"\n[dependencies]\npulc-hal.workspace = true").len(), 1);
    }

    #[test]
    fn a_crate_without_a_row_is_found_and_foreign_crates_are_not() {
        assert!(findings("[package]\nname = \"pulc-new\"\n")[0].contains("no row in the staircase"));
        assert!(findings("[package]\nname = \"pulc-base\"\n[dependencies]\nserde.workspace = true\n").is_empty());
    }

    #[test]
    fn every_row_names_only_crates_of_the_house() {
        for row in STAIRCASE {
            for name in [row.may_name, row.tests_may_name].concat() {
                assert!(STAIRCASE.iter().any(|row| row.name == name), "{} names the unknown {name}", row.name);
            }
        }
    }
}
