#![doc = include_str!("../README.md")]

pulc_mpi_calls::exported_functions!(Standard);
