//! The commands about the queue, one file a group, and what they share: the way to the controller through the local daemon, times and
//! tables. Each command is one request and one answer, but those that wait or follow.

pub mod alloc;
pub mod attach;
pub mod cancel;
pub mod change;
pub mod config;
pub mod directives;
pub mod events;
pub mod list;
pub mod names;
pub mod operator;
pub mod options;
pub mod submit;
pub mod top;
pub mod words;

use crate::daemon;
use pulc_control::queue::{QueueReply, QueueRequest};
use pulc_control::{Client, Reply, Request};
use std::process::ExitCode;
use std::time::Duration;

/// For the controller to answer: its disk may be busy.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// A line to the local daemon.
///
/// # Errors
/// One line for the user.
pub fn connect() -> Result<Client, String> {
    match daemon::connect() {
        Ok(Some(client)) => Ok(client),
        Ok(None) => {
            Err("no daemon is up here, so there is no queue; start one with `pulc up` or `pulc join TOKEN`".to_owned())
        }
        Err(error) => Err(format!("the daemon does not answer: {error}")),
    }
}

/// One question, one answer.
///
/// # Errors
/// One line for the user.
pub fn ask(request: QueueRequest) -> Result<QueueReply, String> {
    ask_on(&mut connect()?, request)
}

/// As [`ask`], on a line that is used again.
///
/// # Errors
/// One line for the user.
pub fn ask_on(client: &mut Client, request: QueueRequest) -> Result<QueueReply, String> {
    let mut reply = client.ask(&Request::Queue(Box::new(request)), ANSWER_WITHIN);
    // Files that a job brings along may be long.
    while matches!(reply, Ok(Reply::Staging)) {
        reply = client.receive_within(ANSWER_WITHIN);
    }
    match reply {
        Ok(reply) => unwrap(reply),
        Err(error) => Err(format!("the daemon does not answer: {error}")),
    }
}

/// What is inside of an answer; a refusal is an error.
///
/// # Errors
/// One line for the user.
pub fn unwrap(reply: Reply) -> Result<QueueReply, String> {
    match reply {
        Reply::Queue(reply) => match *reply {
            QueueReply::Refused { why } => Err(why),
            reply => Ok(reply),
        },
        Reply::Refused { why } => Err(why),
        _ => Err("the daemon gave an answer to another question; use the same pulc for both".to_owned()),
    }
}

pub fn fail(why: &str) -> ExitCode {
    eprintln!("pulc: {why}");
    ExitCode::FAILURE
}

/// Prints, or says why not.
pub fn print(outcome: Result<String, String>) -> ExitCode {
    match outcome {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(why) => fail(&why),
    }
}
