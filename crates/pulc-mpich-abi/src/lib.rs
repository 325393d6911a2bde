#![doc = include_str!("../README.md")]

mod data;
mod fortran;

pulc_mpi_calls::exported_functions!(Mpich);
