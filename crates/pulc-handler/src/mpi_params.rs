//! MPI's rows of the parameter table. Read by `pulc-mpi`; they stand here so that the program `pulc`, which prints them, is not built with
//! all of MPI.

use pulc_base::param::Param;

pub static HALL_AFTER: Param = Param {
    name: "hall_after",
    default: 4,
    min: 0,
    max: 1 << 30,
    text: "blocking collectives on a communicator after which its members meet in shared memory; the same for all ranks of a job",
};

pub static HALLS_MAX: Param = Param {
    name: "halls_max",
    default: 256,
    min: 0,
    max: 4096,
    text: "communicators of one process whose members meet in shared memory; 0: none",
};

pub static HALL_MEMBERS_MAX: Param = Param {
    name: "hall_members_max",
    default: 256,
    min: 2,
    max: 1024,
    text: "members of a communicator on one node that meet in shared memory; the same for all ranks of a job",
};

pub static READ_ALL_BYTES: Param = Param {
    name: "hall_read_all_bytes",
    default: 16 << 10,
    min: 0,
    max: 1 << 30,
    text: "reductions: up to so many bytes of all others together every member reads them all; more are combined in shares",
};

pub static BLOCK_BYTES: Param = Param {
    name: "hall_block_bytes",
    default: 64 << 10,
    min: 0,
    max: 1 << 40,
    text: "gather, scatter, alltoall: longest block that goes through shared memory; longer ones are messages; the same for all ranks of a job",
};

pub static EVENTS_MAX: Param = Param {
    name: "trace_events",
    default: 200_000,
    min: 1,
    max: 1 << 26,
    text: "calls and waits that one process keeps for a timeline; of more only the number is kept",
};

/// The rows of MPI's collectives.
pub static PARAMS: &[&Param] =
    &[&HALL_AFTER, &HALLS_MAX, &HALL_MEMBERS_MAX, &READ_ALL_BYTES, &BLOCK_BYTES, &EVENTS_MAX];
