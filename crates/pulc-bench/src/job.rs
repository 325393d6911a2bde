//! Measured processes that need a launcher: this very program, started as ranks of a job by its own `pulc run`. What rank 0
//! writes is the result.

use crate::Error;
use pulc_base::boot::ENV_ENDS_WITH;
use pulc_base::clock::{Nanos, now};
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A job to start.
pub struct Job<'a> {
    /// Words to put before the program, to enter a network namespace.
    pub enter: &'a [OsString],
    pub ranks: u32,
    pub nodes: Option<u32>,
    pub limit: Nanos,
    /// More of the launcher's options.
    pub options: &'a [&'a str],
}

impl Job<'_> {
    /// Runs `words` as ranks of a job and returns what they wrote to standard output.
    pub fn run<S: AsRef<OsStr>>(&self, words: &[S]) -> Result<String, Error> {
        let mut launch: Vec<OsString> = self.enter.to_vec();
        launch.push(this_program()?);
        launch.extend(["run", "-n", &self.ranks.to_string()].map(OsString::from));
        if let Some(nodes) = self.nodes {
            launch.extend(["--nodes", &nodes.to_string()].map(OsString::from));
        }
        launch.extend(self.options.iter().map(OsString::from));
        launch.push("--".into());
        launch.extend(words.iter().map(|word| word.as_ref().to_owned()));
        output(&launch, self.limit)
    }

    /// Runs this program's `bench rank …` as ranks of a job.
    pub fn run_ranks(&self, words: &[&str]) -> Result<String, Error> {
        let mut all = vec![this_program()?];
        all.extend(["bench", "rank"].iter().chain(words).map(OsString::from));
        self.run(&all)
    }
}

pub fn this_program() -> Result<OsString, Error> {
    std::env::current_exe().map(OsString::from).map_err(Error::system("find this program"))
}

/// Standard output of a program that succeeds within `limit`; it is killed after that.
pub fn output(words: &[OsString], limit: Nanos) -> Result<String, Error> {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.env(ENV_ENDS_WITH, std::process::id().to_string());
    let mut child = command.spawn().map_err(Error::system("start a job"))?;
    let (out, err) = (drain(child.stdout.take()), drain(child.stderr.take()));
    let ended = wait(&mut child, limit);
    let (out, err) = (out.join().unwrap_or_default(), err.join().unwrap_or_default());
    let program = words.iter().take(8).map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    match ended? {
        Some(status) if status.success() => Ok(out),
        Some(status) => Err(Error::Program { program, text: format!("{status} {}", err.trim()) }),
        None => Err(Error::Program { program, text: format!("took longer than {:?}", limit.as_duration()) }),
    }
}

fn drain(pipe: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = Vec::new();
        if let Some(mut pipe) = pipe {
            // What cannot be read is missed by the caller, who looks for its result in it.
            let _ = pipe.read_to_end(&mut text);
        }
        String::from_utf8_lossy(&text).into_owned()
    })
}

fn wait(child: &mut Child, limit: Nanos) -> Result<Option<std::process::ExitStatus>, Error> {
    let deadline = now() + limit;
    loop {
        if let Some(status) = child.try_wait().map_err(Error::system("wait for a job"))? {
            return Ok(Some(status));
        }
        if now() >= deadline {
            let _ = child.kill();
            let _ = child.wait();
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
