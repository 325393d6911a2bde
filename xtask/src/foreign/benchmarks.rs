//! The Intel MPI Benchmarks, ready-made in Intel's wheel: every benchmark of three of its programs, on one node and on two. Nothing is
//! judged but that each runs to its end, with messages of up to 4 MiB. Called by `foreign`.

use super::{Place, all_well};
use crate::steps::Outcome;
use std::time::Duration;

const PROGRAMS: [&str; 3] = ["IMB-MPI1", "IMB-P2P", "IMB-NBC"];
const RANKS: [u32; 3] = [2, 3, 4];
const LIMIT: Duration = Duration::from_secs(900);
/// The last line of a program that came to its end.
const END: &str = "# All processes entering MPI_Finalize";

pub fn run(place: &mut Place) -> Outcome {
    let venv = place.environment("impi", &["impi-rt==2021.19.0"])?;
    let mut failures = Vec::new();
    for ranks in place.ranks_or(&RANKS).to_vec() {
        for nodes in [1, 2] {
            for program in PROGRAMS {
                let words = ranks.to_string();
                let mut command = place.mpiexec();
                command.args(["-n", &words, "-ppn", &ranks.div_ceil(nodes).to_string()]);
                command.arg(venv.join("bin").join(program)).args(["-npmin", &words, "-iter", "20", "-msglog", "0:22"]);
                let name = format!("{program}-{ranks}-{nodes}");
                let (outcome, text, took) = place.kept(&name, &mut command, LIMIT);
                let benchmarks = text.lines().filter(|line| line.starts_with("# Benchmarking")).count();
                let seconds = took.as_secs_f64();
                place.tell(&format!(
                    "{program}, {ranks} ranks on {nodes} nodes: {benchmarks} benchmarks, {seconds:.1} s"
                ));
                match outcome {
                    Ok(()) if benchmarks > 0 && text.contains(END) => {}
                    Ok(()) => failures.push(format!("{name}: ended early after {benchmarks} benchmarks")),
                    Err(why) => failures.push(format!("{name}: {why}")),
                }
            }
        }
    }
    all_well(failures)
}
