//! The Intel MPI Benchmarks, ready-made in Intel's wheel: every benchmark of three of its programs, also those that they leave out unasked,
//! on one node and on two. Nothing is judged but that each benchmark runs and each program comes to its end, with messages of up to 4 MiB.
//! Called by `foreign`.

use super::{Place, all_well};
use crate::steps::Outcome;
use std::collections::BTreeSet;
use std::time::Duration;

struct Program {
    name: &'static str,
    /// Numbers of processes with which all its benchmarks run at least once: a stencil in three dimensions takes eight.
    ranks: [u32; 3],
    benchmarks: &'static str,
    /// For each of them there is one more, with this added to its name.
    also: &'static str,
}

const PROGRAMS: [Program; 3] = [
    Program {
        name: "IMB-MPI1",
        ranks: [2, 3, 4],
        benchmarks: "Allgather Allgatherv Allreduce Alltoall Alltoallv Barrier Bcast Biband Exchange Gather Gatherv PingPing \
                     PingPingAnySource PingPingSpecificSource PingPong PingPongAnySource PingPongSpecificSource Reduce \
                     Reduce_local Reduce_scatter Reduce_scatter_block Scatter Scatterv Sendrecv Uniband",
        also: "",
    },
    Program {
        name: "IMB-P2P",
        ranks: [2, 4, 8],
        benchmarks: "PingPong PingPing Unirandom Birandom Corandom Stencil2D Stencil3D SendRecv_Replace",
        also: "",
    },
    Program {
        name: "IMB-NBC",
        ranks: [2, 3, 4],
        benchmarks: "Iallgather Iallgatherv Iallreduce Ialltoall Ialltoallv Ibarrier Ibcast Igather Igatherv Ireduce \
                     Ireduce_scatter Iscatter Iscatterv",
        also: "_pure",
    },
];
const LIMIT: Duration = Duration::from_secs(900);
/// The last line of a program that came to its end.
const END: &str = "# All processes entering MPI_Finalize";

impl Program {
    fn all(&self) -> BTreeSet<String> {
        let named = self.benchmarks.split_whitespace();
        named.flat_map(|name| [name.to_owned(), format!("{name}{}", self.also)]).collect()
    }
}

/// Names of the benchmarks that a program's output tells of.
fn told(text: &str) -> impl Iterator<Item = String> + '_ {
    let names = text.lines().filter_map(|line| line.strip_prefix("# Benchmarking "));
    names.filter_map(|rest| rest.split_whitespace().next()).map(str::to_owned)
}

pub fn run(place: &mut Place) -> Outcome {
    let venv = place.intel()?;
    let mut failures = Vec::new();
    for program in &PROGRAMS {
        let (all, mut seen) = (program.all(), BTreeSet::new());
        for ranks in place.ranks_or(&program.ranks).to_vec() {
            for nodes in [1, 2] {
                let words = ranks.to_string();
                let mut command = place.mpiexec();
                command.args(["-n", &words, "-ppn", &ranks.div_ceil(nodes).to_string()]);
                command.arg(venv.join("bin").join(program.name)).args(["-npmin", &words, "-iter", "20"]);
                command.args(["-msglog", "0:22"]).args(&all);
                let name = format!("{}-{ranks}-{nodes}", program.name);
                let (outcome, text, took) = place.kept(&name, &mut command, LIMIT);
                let ran: BTreeSet<String> = told(&text).collect();
                place.tell(&format!(
                    "{}, {ranks} ranks on {nodes} nodes: {} benchmarks, {:.1} s",
                    program.name,
                    ran.len(),
                    took.as_secs_f64()
                ));
                match outcome {
                    Ok(()) if !ran.is_empty() && text.contains(END) => {}
                    Ok(()) => failures.push(format!("{name}: ended early after {} benchmarks", ran.len())),
                    Err(why) => failures.push(format!("{name}: {why}")),
                }
                seen.extend(ran);
            }
        }
        // Not every benchmark runs with every number of processes.
        if place.ranks.is_empty() {
            failures.extend(all.difference(&seen).map(|name| format!("{}: {name} did not run", program.name)));
        }
    }
    all_well(failures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_benchmark_is_asked_for_and_recognised() {
        assert_eq!(PROGRAMS.map(|program| program.all().len()), [25, 8, 26]);
        let text = "# Benchmarking Stencil2D (2 x 4)\n x\n# Benchmarking Ibcast_pure \n";
        assert_eq!(told(text).collect::<Vec<_>>(), ["Stencil2D", "Ibcast_pure"]);
    }
}
