//! ScaLAPACK's testers as Debian builds them for MPICH, with Debian's Fortran binding over our library. A tester solves systems of every
//! shape and checks the residuals; it must come to its end and nothing may have failed. Called by `foreign`.

use super::{Place, all_well, debian};
use crate::steps::Outcome;
use std::path::Path;
use std::time::Duration;

const AT: &str = "/usr/lib/x86_64-linux-gnu/scalapack/mpich-tests";
const PACKAGES: [&str; 3] = ["scalapack-mpi-test", "scalapack-test-common", "libscalapack-mpich2.2"];
const TESTERS: [&str; 3] = ["xdlu", "xdqr", "xslu"];
const RANKS: [u32; 3] = [1, 2, 4];
const LIMIT: Duration = Duration::from_secs(300);

pub fn run(place: &mut Place) -> Outcome {
    if !debian(&format!("{AT}/xdlu"), &PACKAGES) {
        place.tell(&format!("skipped: ScaLAPACK's testers, install {}", PACKAGES.join(" ")));
        return Ok(());
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
            let complete = text.contains("END OF TESTS.");
            if let (false, _, _) | (_, 0, _) | (_, _, 1..) = (complete, passed, failed) {
                failures
                    .push(format!("{tester} at {ranks} ranks: {passed} passed, {failed} failed, complete: {complete}"));
            } else if let Err(why) = outcome {
                failures.push(format!("{tester} at {ranks} ranks: {why}"));
            }
        }
    }
    all_well(failures)
}
