//! ScaLAPACK's testers as Debian builds them for MPICH, with Debian's Fortran binding over our library. A tester solves systems of every
//! shape and checks the residuals; it must come to its end and nothing may have failed. With `--peers` also how long the two that decide take
//! beside other MPIs, with more processes than cores. Called by `foreign`.

use super::{Place, all_well, debian};
use crate::steps::Outcome;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const AT: &str = "/usr/lib/x86_64-linux-gnu/scalapack/mpich-tests";
const PACKAGES: [&str; 3] = ["scalapack-mpi-test", "scalapack-test-common", "libscalapack-mpich2.2"];
const TESTERS: [&str; 3] = ["xdlu", "xdqr", "xslu"];
const RANKS: [u32; 3] = [1, 2, 4];
const LIMIT: Duration = Duration::from_secs(300);

/// What a tester says at its end, once: processes that do not know of each other say it once each.
const END: &str = "END OF TESTS.";
/// The name by which the testers ask for MPI. Without it they find Debian's own.
const LIBRARY: &str = "lib/libmpich.so.12";

/// The same testers as Debian builds them for Open MPI.
const AT_OPENMPI: &str = "/usr/lib/x86_64-linux-gnu/scalapack/openmpi-tests";
const PACKAGES_OPENMPI: [&str; 3] = ["scalapack-mpi-test", "libscalapack-openmpi2.2", "openmpi-bin"];
/// Those whose time is compared, how often, and how long one run may take: some MPIs need minutes where processes share a core.
const TIMED: [&str; 2] = ["xdlu", "xdqr"];
const TIMED_RANKS: u32 = 4;
const ROUNDS: usize = 5;
const PATIENCE: Duration = Duration::from_secs(30);

pub fn run(place: &mut Place, peers: bool) -> Outcome {
    if !debian(&format!("{AT}/xdlu"), &PACKAGES) {
        place.tell(&format!("skipped: ScaLAPACK's testers, install {}", PACKAGES.join(" ")));
        return Ok(());
    }
    if !place.tree.join(LIBRARY).exists() {
        return Err(format!("{} has no {LIBRARY}", place.tree.display()));
    }
    let mut failures = Vec::new();
    for ranks in place.ranks_or(&RANKS).to_vec() {
        for tester in TESTERS {
            let mut command = place.mpiexec();
            // They read their input from where they are.
            command.current_dir(AT).args(["-n", &ranks.to_string()]).arg(Path::new(AT).join(tester));
            let (outcome, text, took) = place.kept(&format!("{tester}-{ranks}"), &mut command, LIMIT);
            let count = |word: &str| text.lines().filter(|line| line.split_whitespace().any(|one| one == word)).count();
            let (passed, failed) = (count("PASSED"), count("FAILED"));
            let seconds = took.as_secs_f64();
            place.tell(&format!("{tester}, {ranks} ranks: {passed} passed, {failed} failed, {seconds:.2} s"));
            let ends = text.matches(END).count();
            if ends != 1 || passed == 0 || failed > 0 {
                failures.push(format!("{tester} at {ranks} ranks: {passed} passed, {failed} failed, {ends} ends"));
            } else if let Err(why) = outcome {
                failures.push(format!("{tester} at {ranks} ranks: {why}"));
            }
        }
    }
    if peers {
        beside(place)?;
    }
    all_well(failures)
}

/// An MPI that runs the testers too.
struct Peer {
    name: &'static str,
    /// Its launcher, with everything but the number of processes.
    launcher: Vec<String>,
    libraries: Option<PathBuf>,
    testers: &'static str,
    /// Seconds of each round, by tester; none once a run did not come to its end.
    seconds: [Option<Vec<f64>>; TIMED.len()],
}

impl Peer {
    fn new(name: &'static str, launcher: &[&str], libraries: Option<PathBuf>, testers: &'static str) -> Peer {
        let launcher = launcher.iter().map(|word| (*word).to_owned()).collect();
        Peer { name, launcher, libraries, testers, seconds: [const { Some(Vec::new()) }; TIMED.len()] }
    }

    fn command(&self, tester: &str) -> Command {
        let mut command = Command::new(&self.launcher[0]);
        command.current_dir(self.testers).args(&self.launcher[1..]).args(["-n", &TIMED_RANKS.to_string()]);
        command.arg(Path::new(self.testers).join(tester)).env_remove("LD_LIBRARY_PATH").env("I_MPI_PIN", "off");
        if let Some(libraries) = &self.libraries {
            let fabrics = libraries.join("libfabric");
            command.env("LD_LIBRARY_PATH", format!("{}:{}", libraries.display(), fabrics.display()));
            command.env("I_MPI_ROOT", libraries.with_file_name("")).env("I_MPI_FABRICS", "shm");
        }
        command
    }
}

/// A wheel's library under the name by which the testers ask for it: otherwise they find Debian's MPICH, whatever launches them.
fn named_as_debian_does(libraries: &Path) -> Outcome {
    let link = libraries.join("libmpich.so.12");
    match std::os::unix::fs::symlink("libmpi.so.12", &link) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(format!("cannot link {}: {error}", link.display()))
        }
        _ => Ok(()),
    }
}

/// Interleaved rounds of the same testers on every MPI that can be had here.
fn beside(place: &mut Place) -> Outcome {
    let text = |path: PathBuf| path.display().to_string();
    let mut all = vec![Peer::new("PULC", &[&text(place.tree.join("bin/mpiexec"))], None, AT)];
    for (name, environment, launcher) in
        [("MPICH", place.mpich(), "bin/mpiexec"), ("Intel MPI", place.intel(), "bin/mpiexec.hydra")]
    {
        match environment {
            Ok(at) => {
                let libraries = at.join("lib");
                named_as_debian_does(&libraries)?;
                all.push(Peer::new(name, &[&text(at.join(launcher))], Some(libraries), AT));
            }
            Err(why) => place.tell(&format!("left out: {name}: {why}")),
        }
    }
    if debian(&format!("{AT_OPENMPI}/xdlu"), &PACKAGES_OPENMPI) && debian("/usr/bin/mpiexec.openmpi", &PACKAGES_OPENMPI)
    {
        let launcher = ["mpiexec.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"];
        all.push(Peer::new("Open MPI", &launcher, None, AT_OPENMPI));
    } else {
        place.tell(&format!("left out: Open MPI's testers, install {}", PACKAGES_OPENMPI.join(" ")));
    }
    for (which, tester) in TIMED.iter().enumerate() {
        for _ in 0..ROUNDS {
            for peer in &mut all {
                let Some(seconds) = &peer.seconds[which] else { continue };
                let name = format!("{tester}-{}-{}", peer.name.replace(' ', "-"), seconds.len());
                let (outcome, text, took) = place.kept(&name, &mut peer.command(tester), PATIENCE);
                if outcome.is_err() || text.matches(END).count() != 1 {
                    peer.seconds[which] = None;
                } else if let Some(seconds) = &mut peer.seconds[which] {
                    seconds.push(took.as_secs_f64());
                }
            }
        }
        for peer in &mut all {
            let shown = match &mut peer.seconds[which] {
                Some(seconds) => {
                    seconds.sort_by(f64::total_cmp);
                    format!("{:.2} s, least {:.2}, most {:.2}", seconds[ROUNDS / 2], seconds[0], seconds[ROUNDS - 1])
                }
                None => format!("did not come to its end in {} s", PATIENCE.as_secs()),
            };
            place.tell(&format!("{tester}, {TIMED_RANKS} ranks, median of {ROUNDS} rounds: {}: {shown}", peer.name));
        }
    }
    Ok(())
}
