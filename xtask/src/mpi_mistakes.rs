//! What users are told when an MPI program is wrong or dies: one C program makes each mistake in turn, and the job must end with the
//! right status and a word that names the place. Called by `mpi_door`. Judges no times.

use crate::steps::{self, Outcome};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Guard against hanging; a job ends long before.
const RUN: Duration = Duration::from_secs(60);

/// Mistake, exit status of the job, and what its standard error must contain.
const MISTAKES: [(&str, i32, &[&str]); 20] = [
    ("argument rank", 6, &["MPI_Send on MPI_COMM_WORLD at rank 1 (", "rank 9"]),
    ("argument tag", 4, &["MPI_Send on MPI_COMM_WORLD at rank 1 (", "tag -5"]),
    ("argument count", 2, &["MPI_Send on MPI_COMM_WORLD at rank 1 (", "count -1"]),
    ("argument datatype", 3, &["MPI_Send on MPI_COMM_WORLD at rank 1 ("]),
    ("argument communicator", 5, &["MPI_Send on ", "at rank 1 (", "MPI_COMM_NULL"]),
    ("argument buffer", 1, &["MPI_Send on MPI_COMM_WORLD at rank 1 ("]),
    ("argument operation", 9, &["MPI_Allreduce on MPI_COMM_WORLD at rank 1 ("]),
    ("truncation", 14, &["MPI_Recv on pairs at rank 1 (", "100 bytes", "10"]),
    ("truncation in a wait", 14, &["MPI_Wait on pairs at rank 1 (", "100 bytes"]),
    ("abort", 7, &["MPI_Abort on MPI_COMM_WORLD at rank 2 ("]),
    ("abort on a part", 9, &["MPI_Abort on MPI_COMM_SELF at rank 2 ("]),
    ("exit", 1, &["MPI_COMM_WORLD at rank 2 (", "without MPI_Finalize"]),
    ("exit with a status", 3, &["rank 2 on node ", "status 3"]),
    ("vanish", 76, &["MPI_Barrier on MPI_COMM_WORLD at rank ", "is gone"]),
    ("killed", 137, &["rank 2 on node ", "SIGKILL"]),
    ("crash", 139, &["rank 2 on node ", "SIGSEGV"]),
    ("leftovers", 0, &["MPI_Finalize on MPI_COMM_WORLD at rank 1 (", "3 sent messages were not received"]),
    ("returned", 0, &[]),
    ("late", 15, &["MPI_Barrier", "at rank ", "has been finalized"]),
    ("early", 15, &["MPI_Send", "call MPI_Init first"]),
];

/// `program` is examples/mpi/mistakes.c, compiled; `mpiexec` starts jobs.
pub fn test(program: &Path, mpiexec: impl Fn() -> Command) -> Outcome {
    let mut failures = String::new();
    for (mistake, status, words) in MISTAKES {
        let mut command = mpiexec();
        command.args(["-n", "3"]).arg(program).arg(mistake);
        let mut told = String::new();
        let outcome = steps::run_lines(&mut command, RUN, |line| told = format!("{told}{line}\n"));
        let ended = match outcome {
            Ok(()) => "exit status: 0".to_owned(),
            Err(why) => why.rsplit(" ended with ").next().unwrap_or_default().to_owned(),
        };
        let missing: Vec<_> = words.iter().filter(|word| !told.contains(**word)).collect();
        if ended != format!("exit status: {status}") || !missing.is_empty() {
            failures += &format!("\n  {mistake}: {ended}, wanted {status}; lacks {missing:?} in {told:?}");
        }
    }
    println!("{} mistakes of programs are told and end their jobs", MISTAKES.len());
    if failures.is_empty() { Ok(()) } else { Err(failures) }
}
