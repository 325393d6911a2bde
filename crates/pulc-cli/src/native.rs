//! `--mpi=native`: every rank starts this binary, which starts the program and answers it as a launcher that speaks PMI-1, so that
//! programs run on the MPI they were built for (MPICH and its relatives). What ranks leave for each other travels over ports. Called
//! as `pulc native-rank …` by keepers only. Trusts nothing that the program says.
//! Source: the PMI-1 wire protocol as spoken by MPICH's `mpiexec.hydra`.

use pulc::{Address, From, Match, Port, Pulc, Rank};
use pulc_base::boot;
use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, exit};

/// The hidden subcommand.
pub const NAME: &str = "native-rank";

const PORT: &str = "pmi";
/// Longest name and value, and longest line.
const KEY_MAX: usize = 64;
const VALUE_MAX: usize = 1024;
const LINE_MAX: u64 = 4096;
/// Most words that one rank may leave between two meetings.
const WORDS_MAX: usize = 1 << 16;
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
    let space = Space::open(pulc).map_err(|error| text(&error))?;
    let child = command.spawn().map_err(|error| text(&error))?;
    drop(theirs);
    std::thread::spawn(move || end_with(child));
    let mut server = Server { lines: BufReader::new(ours), space };
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

/// What the ranks leave for each other.
struct Space {
    pulc: Pulc,
    port: Port,
    known: HashMap<String, String>,
    /// Left since the last meeting.
    fresh: Vec<(String, String)>,
    meetings: u64,
}

impl Space {
    fn open(pulc: Pulc) -> Result<Space, pulc::Error> {
        let port = pulc.open_port(PORT)?;
        let mut known = HashMap::new();
        known.insert("PMI_process_mapping".to_owned(), mapping(&pulc));
        Ok(Space { pulc, port, known, fresh: Vec::new(), meetings: 0 })
    }

    /// Everybody gives what is new to rank 0, which gives all of it to everybody.
    fn meet(&mut self) -> Result<(), pulc::Error> {
        self.meetings += 1;
        let (tag, own) = (self.meetings, encode(&std::mem::take(&mut self.fresh)));
        let address = |rank: u32| Address::new(Rank(rank), PORT);
        let others = 1..self.pulc.size();
        let all = if self.pulc.rank().0 == 0 {
            let mut all = own;
            for rank in others.clone() {
                all.extend(self.port.recv_vec(From::Rank(Rank(rank)), Match::Tag(tag))?.1);
            }
            for rank in others {
                self.port.send(&address(rank), tag, &all)?;
            }
            all
        } else {
            self.port.send(&address(0), tag, &own)?;
            self.port.recv_vec(From::Rank(Rank(0)), Match::Tag(tag))?.1
        };
        self.known.extend(decode(&all));
        Ok(())
    }
}

/// `name value` lines: neither holds white space.
fn encode(words: &[(String, String)]) -> Vec<u8> {
    words.iter().flat_map(|(name, value)| format!("{name} {value}\n").into_bytes()).collect()
}

fn decode(bytes: &[u8]) -> Vec<(String, String)> {
    let text = String::from_utf8_lossy(bytes);
    let pair = |line: &str| line.split_once(' ').map(|(name, value)| (name.to_owned(), value.to_owned()));
    text.lines().filter_map(pair).collect()
}

/// Which node each rank is on: blocks of first node, number of nodes, ranks on each.
fn mapping(pulc: &Pulc) -> String {
    let nodes: Vec<u32> = pulc.tasks().into_iter().map(|task| task.node.0).collect();
    let blocks = nodes.chunk_by(|one, other| one == other).map(|block| format!("({},1,{})", block[0], block.len()));
    format!("(vector,{})", blocks.collect::<Vec<_>>().join(","))
}

struct Server {
    lines: BufReader<UnixStream>,
    space: Space,
}

impl Server {
    /// Answers one question; false when there will be none.
    fn answer(&mut self) -> Result<bool, String> {
        let mut line = Vec::new();
        let read = (&mut self.lines).take(LINE_MAX).read_until(b'\n', &mut line);
        if read.map_err(|error| error.to_string())? == 0 {
            return Ok(false);
        }
        let line = String::from_utf8_lossy(&line).into_owned();
        let field = |name: &str| line.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        let size = self.space.pulc.size();
        let answer = match field("cmd").unwrap_or_default() {
            "init" => "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0".to_owned(),
            "get_maxes" => format!("cmd=maxes rc=0 kvsname_max=64 keylen_max={KEY_MAX} vallen_max={VALUE_MAX}"),
            "get_appnum" => "cmd=appnum rc=0 appnum=0".to_owned(),
            "get_universe_size" => format!("cmd=universe_size rc=0 size={size}"),
            "get_my_kvsname" => "cmd=my_kvsname rc=0 kvsname=pulc".to_owned(),
            "put" => self.put(field("key"), field("value")),
            "get" => match field("key").and_then(|key| self.space.known.get(key)) {
                Some(value) => format!("cmd=get_result rc=0 msg=success value={value}"),
                None => "cmd=get_result rc=-1 msg=key_not_found value=unknown".to_owned(),
            },
            "barrier_in" => {
                self.space.meet().map_err(|error| error.to_string())?;
                "cmd=barrier_out rc=0".to_owned()
            }
            "finalize" => "cmd=finalize_ack rc=0".to_owned(),
            "abort" => {
                let code = field("exitcode").and_then(|code| code.parse::<i32>().ok()).unwrap_or(1) & 0xff;
                exit(if code == 0 { 1 } else { code });
            }
            other => return Err(format!("it asks for {other:?}, which PMI-1 does not know")),
        };
        let sent = self.lines.get_mut().write_all(format!("{answer}\n").as_bytes());
        Ok(sent.is_ok())
    }

    fn put(&mut self, key: Option<&str>, value: Option<&str>) -> String {
        match (key, value) {
            (Some(key), Some(value))
                if key.len() <= KEY_MAX && value.len() <= VALUE_MAX && self.space.fresh.len() < WORDS_MAX =>
            {
                self.space.fresh.push((key.to_owned(), value.to_owned()));
                "cmd=put_result rc=0 msg=success".to_owned()
            }
            _ => "cmd=put_result rc=-1 msg=too_much".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ranks_leave_survives_the_way() {
        let words = vec![("P0-businesscard".to_owned(), "a#b$c".to_owned()), ("k".to_owned(), "v=1".to_owned())];
        assert_eq!(decode(&encode(&words)), words);
        assert!(decode(b"nonsense\n\xff").is_empty());
    }
}
