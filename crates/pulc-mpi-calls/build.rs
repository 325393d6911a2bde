//! Writes what is made from the tables of MPI functions and constants: bodies, and maps between the binary interfaces.

use pulc_mpi_table::{bodies, maps};
use std::path::PathBuf;

fn main() {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    std::fs::write(out.join("bodies.rs"), bodies::generate()).expect("OUT_DIR can be written");
    std::fs::write(out.join("maps.rs"), maps::generate()).expect("OUT_DIR can be written");
    println!("cargo::rerun-if-changed=build.rs");
}
