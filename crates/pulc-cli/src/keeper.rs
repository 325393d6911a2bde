//! `pulc keeper`: the keeper process of one job on one node, or with `clerk` the process that opens a user's files. Started by psid only, with its line to psid as descriptor 3. And
//! `pulc guest-keeper`, which ranks start under another launcher.

use std::ffi::OsString;
use std::process::ExitCode;

pub fn run() -> ExitCode {
    match pulc_hal::os::process::inherited_fd(3) {
        Ok(line) => match std::env::args_os().nth(2) {
            Some(word) if word == "clerk" => pulc_psid::stage::clerk::main(line),
            word => pulc_psid::keeper::main(line, word.is_some_and(|word| word == "stays")),
        },
        Err(error) => {
            eprintln!("pulc: `pulc keeper` is started by psid, not by hand (descriptor 3: {error})");
            ExitCode::FAILURE
        }
    }
}

pub fn run_as_guest(word: Option<OsString>) -> ExitCode {
    pulc_psid::keeper::guest::main(word.as_ref().and_then(|word| word.to_str()))
}
