//! `pulc keeper`: the keeper process of one job on one node. Started by psid only, with its line to psid as descriptor 3. And
//! `pulc guest-keeper`, which ranks start under another launcher.

use std::ffi::OsString;
use std::process::ExitCode;

pub fn run() -> ExitCode {
    match pulc_hal::os::process::inherited_fd(3) {
        Ok(line) => pulc_psid::keeper::main(line, std::env::args_os().nth(2).is_some_and(|word| word == "stays")),
        Err(error) => {
            eprintln!("pulc: `pulc keeper` is started by psid, not by hand (descriptor 3: {error})");
            ExitCode::FAILURE
        }
    }
}

pub fn run_as_guest(word: Option<OsString>) -> ExitCode {
    pulc_psid::keeper::guest::main(word.as_ref().and_then(|word| word.to_str()))
}
