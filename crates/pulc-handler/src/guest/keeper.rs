//! Starting the keeper of a guest job: `pulc` from the tree that this library stands in. Called by the first rank of each node, once.

use pulc_base::boot::{GUEST_KEEPER, GuestGo, GuestOrder, GuestReady, decode, encode};
use std::io::{Error, Read, Result, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Mutex, PoisonError};

const PROGRAM: &str = "pulc";
/// Longest answer of a keeper.
const ANSWER_MAX: usize = 1 << 20;

/// Held until this process ends: so the keeper knows that somebody may still attach.
static LINE: Mutex<Option<ChildStdin>> = Mutex::new(None);

/// A keeper that waits for the table of the job.
pub struct Waiting {
    line: ChildStdin,
}

pub fn start(order: &GuestOrder) -> Result<(Waiting, GuestReady)> {
    let program = program();
    let failed = |error| Error::other(format!("cannot start {} as this node's keeper: {error}", program.display()));
    let mut command = Command::new(&program);
    command.arg(GUEST_KEEPER).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    let (line, answers) = (child.stdin.take(), child.stdout.take());
    let (Some(mut line), Some(mut answers)) = (line, answers) else { return Err(Error::other("it has no pipes")) };
    send(&mut line, &encode(order)).map_err(failed)?;
    let ready = receive(&mut answers).map_err(failed)?;
    // What was started goes on in another process, which is nobody's child.
    child.wait().map_err(failed)?;
    let ready = decode(&ready).map_err(|error| failed(Error::other(error)))?;
    Ok((Waiting { line }, ready))
}

impl Waiting {
    pub fn go(mut self, go: &GuestGo) -> Result<()> {
        send(&mut self.line, &encode(go))?;
        *LINE.lock().unwrap_or_else(PoisonError::into_inner) = Some(self.line);
        Ok(())
    }
}

fn send(line: &mut impl Write, bytes: &[u8]) -> Result<()> {
    line.write_all(&(bytes.len() as u32).to_le_bytes())?;
    line.write_all(bytes)?;
    line.flush()
}

fn receive(line: &mut impl Read) -> Result<Vec<u8>> {
    let mut len = [0; 4];
    line.read_exact(&mut len)?;
    let len = u32::from_le_bytes(len) as usize;
    if len > ANSWER_MAX {
        return Err(Error::other(format!("an answer of {len} bytes")));
    }
    let mut bytes = vec![0; len];
    line.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// `bin/pulc` of the tree whose `lib` holds this code, or `pulc` beside it, or whatever the search path finds.
fn program() -> PathBuf {
    let found = own_file().and_then(|own| {
        let dir = own.parent()?;
        let places = [dir.parent().map(|tree| tree.join("bin").join(PROGRAM)), Some(dir.join(PROGRAM))];
        places.into_iter().flatten().find(|place| place.is_file())
    });
    found.unwrap_or_else(|| PathBuf::from(PROGRAM))
}

/// The file that this code was loaded from, by the map of this process.
fn own_file() -> Option<PathBuf> {
    let here = own_file as fn() -> Option<PathBuf> as usize;
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let holds = |line: &str| {
        let (from, to) = line.split(' ').next()?.split_once('-')?;
        let place = |text| usize::from_str_radix(text, 16).ok();
        (place(from)?..place(to)?).contains(&here).then(|| line.find('/').map(|at| PathBuf::from(&line[at..])))?
    };
    maps.lines().find_map(holds).filter(|path: &PathBuf| Path::new(path).is_absolute())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_code_is_in_the_program_that_tests_it() {
        assert_eq!(
            own_file().unwrap().canonicalize().unwrap(),
            std::env::current_exe().unwrap().canonicalize().unwrap()
        );
    }

    #[test]
    fn what_is_sent_is_received_and_a_long_answer_refused() {
        let mut line = Vec::new();
        send(&mut line, b"words").unwrap();
        assert_eq!(receive(&mut &line[..]).unwrap(), b"words");
        assert!(receive(&mut &u32::MAX.to_le_bytes()[..]).is_err());
        assert!(receive(&mut &line[..6]).is_err());
    }
}
