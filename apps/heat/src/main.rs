//! The program `heat`. All of it is in the library, because `pulc demo` runs it too.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    pulc_heat::main(std::env::args_os())
}
