//! `pulc run` as its users meet it: the real binary, real processes. Every job carries a tag of its own in the environment, by
//! which each test makes sure at its end that nothing of it is left. Times here are guards against hanging, never verdicts.

mod bad_input;
mod endings;
mod harness;
mod mpiexec;
mod nodes;
mod output;
mod ports;
mod safety;
mod shortage;
mod user;
mod violence;
mod what_travels;
