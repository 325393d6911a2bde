//! Writes the exported functions from the table, gives the library its SONAME, and keeps it loaded once it is.

use pulc_mpi_table::{Door, exports};
use std::path::PathBuf;

fn main() {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    std::fs::write(out.join("exports.rs"), exports::generate(Door::Mpich)).expect("OUT_DIR can be written");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libmpi.so.12");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
