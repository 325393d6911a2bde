//! `--mpi=native`: every rank starts this binary, which starts the program and answers it as a launcher that speaks PMI-1, so that
//! programs run on the MPI they were built for (MPICH and its relatives). What ranks leave for each other travels over ports. Called
//! as `pulc native-rank …` by keepers only. What the program says is understood in `pulc_psid::pmi`, which trusts nothing of it.

use pulc::{Address, From, Match, Port, Pulc, Rank};
use pulc_base::boot;
use pulc_psid::pmi::{Answer, LINE_MAX, Launcher};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, exit};

/// The hidden subcommand.
pub const NAME: &str = "native-rank";

const PORT: &str = "pmi";
/// What ranks would look for to join the job themselves: the program is not to.
const NOT_FOR_IT: [&str; 2] = [boot::ENV_KEEPER, boot::ENV_COOKIE];

/// The command line that serves `command`.
pub fn command(command: Vec<OsString>) -> Result<Vec<OsString>, String> {
    let own = std::env::current_exe().map_err(|error| format!("cannot find this binary: {error}"))?;
    Ok([vec![own.into_os_string(), NAME.into()], command].concat())
}

pub fn run(words: impl Iterator<Item = OsString>) -> ExitCode {
    let words: Vec<OsString> = words.collect();
    let Some((program, arguments)) = words.split_first() else {
        eprintln!("pulc: {NAME} is started by `pulc run --mpi=native` only");
        return ExitCode::FAILURE;
    };
    let mut command = Command::new(program);
    command.args(arguments);
    match serve(command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("pulc: cannot serve {}: {why}", program.display());
            ExitCode::from(127)
        }
    }
}

fn serve(mut command: Command) -> Result<(), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let pulc = Pulc::attach().map_err(|error| text(&error))?;
    let (ours, theirs) = UnixStream::pair().map_err(|error| text(&error))?;
    rustix::io::fcntl_setfd(&theirs, rustix::io::FdFlags::empty()).map_err(|error| text(&error))?;
    let (rank, size) = (pulc.rank().0, pulc.size());
    command.env("PMI_FD", theirs.as_raw_fd().to_string()).env("PMI_RANK", rank.to_string());
    command.env("PMI_SIZE", size.to_string());
    NOT_FOR_IT.iter().for_each(|name| _ = command.env_remove(name));
    let port = pulc.open_port(PORT).map_err(|error| text(&error))?;
    let nodes: Vec<u32> = pulc.tasks().into_iter().map(|task| task.node.0).collect();
    let child = command.spawn().map_err(|error| text(&error))?;
    drop(theirs);
    std::thread::spawn(move || end_with(child));
    let launcher = Launcher::new(&nodes);
    let mut server = Server { lines: BufReader::new(ours), launcher, pulc, port, meetings: 0 };
    while server.answer()? {}
    // The program has closed its end: the other thread learns how it ended.
    loop {
        std::thread::park();
    }
}

/// Ends this process as the program has ended.
fn end_with(mut child: Child) {
    match child.wait() {
        Ok(status) => match status.signal() {
            Some(signal) => die_by(signal),
            None => exit(status.code().unwrap_or(1)),
        },
        Err(error) => {
            eprintln!("pulc: cannot wait for the program: {error}");
            exit(1);
        }
    }
}

fn die_by(signal: i32) {
    if let Some(signal) = rustix::process::Signal::from_named_raw(signal) {
        let _ = rustix::process::kill_process(rustix::process::getpid(), signal);
    }
    exit(128 + signal);
}

struct Server {
    lines: BufReader<UnixStream>,
    launcher: Launcher,
    pulc: Pulc,
    port: Port,
    meetings: u64,
}

impl Server {
    /// Answers one question; false when there will be none.
    fn answer(&mut self) -> Result<bool, String> {
        let mut line = Vec::new();
        // One byte more than may be: what is longer is not cut, but refused.
        let read = (&mut self.lines).take(LINE_MAX as u64 + 1).read_until(b'\n', &mut line);
        if read.map_err(|error| error.to_string())? == 0 {
            return Ok(false);
        }
        let line = match self.launcher.answer(&line).map_err(|error| error.to_string())? {
            Answer::Say(line) => line,
            Answer::Meet(line) => {
                self.meet()?;
                line
            }
            Answer::Abort(code) => exit(code.into()),
        };
        let sent = self.lines.get_mut().write_all(format!("{line}\n").as_bytes());
        Ok(sent.is_ok())
    }

    /// Everybody gives what is new to rank 0, which gives all of it to everybody.
    fn meet(&mut self) -> Result<(), String> {
        let own = self.launcher.take_fresh();
        self.meetings += 1;
        let all = self.exchange(own).map_err(|error| error.to_string())?;
        self.launcher.learn(&all).map_err(|error| error.to_string())
    }

    fn exchange(&self, own: Vec<u8>) -> Result<Vec<u8>, pulc::Error> {
        let tag = self.meetings;
        let address = |rank: u32| Address::new(Rank(rank), PORT);
        let others = 1..self.pulc.size();
        if self.pulc.rank().0 != 0 {
            self.port.send(&address(0), tag, &own)?;
            return Ok(self.port.recv_vec(From::Rank(Rank(0)), Match::Tag(tag))?.1);
        }
        let mut all = own;
        for rank in others.clone() {
            all.extend(self.port.recv_vec(From::Rank(Rank(rank)), Match::Tag(tag))?.1);
        }
        for rank in others {
            self.port.send(&address(rank), tag, &all)?;
        }
        Ok(all)
    }
}
