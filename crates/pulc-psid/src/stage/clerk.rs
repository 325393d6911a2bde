//! The clerk: a process that is a user and opens that user's files for a daemon that serves several. Started by the helper from the same
//! binary (`pulc keeper clerk`) with its line to psid as descriptor 3. It does what it is asked, one thing after the other, with the user's
//! rights and no others; the kernel decides what is allowed. psid gets bytes from it, through a pipe, never an open file of the user's, which
//! may block whoever reads it for ever; it gives open files of the cache, never names in it. It ends when its line does.

use super::deliver::{deliver, deliver_from};
use super::give_back::list;
use super::known::{Known, Whose};
use super::place::{self, Step};
use super::users::is_kept;
use super::{TICK, executable};
use crate::error::shortage;
use pulc_base::boot;
use pulc_control::stage::{Content, as_path};
use pulc_hal::os::fdpass::Seqpacket;
use rustix::fs::{Mode, OFlags, open};
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

/// No question or answer is longer: two paths and little else.
pub const MESSAGE_BYTES_MAX: usize = 16 << 10;

/// From psid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// What is in this file, please, into the pipe that comes along, after [`Answer::Reading`].
    Read { path: Vec<u8> },
    /// Is exactly this there, and may it be executed if it is a program?
    Holds { path: Vec<u8>, content: Content, program: bool },
    /// A directory for a job, which nobody has made before.
    Room { path: Vec<u8> },
    /// One step of filling it; where something comes out of the cache, with that as open file.
    Fill(Step),
    /// Remove what was made for a job.
    Remove { room: Vec<u8> },
    /// The same if nothing uses it any more.
    Sweep { room: Vec<u8> },
    /// The files that are there, each in an answer of its own.
    List { path: Vec<u8>, target: Vec<u8> },
    /// Put the open file that comes along there.
    Deliver { target: Vec<u8>, mode: u32 },
    /// Put a copy of that file there.
    DeliverOwn { from: Vec<u8>, target: Vec<u8> },
    /// Move it there, out of a job's directory.
    Keep { from: Vec<u8>, to: Vec<u8> },
}

/// To psid, which believes none of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// It is at it.
    Busy,
    Reading {
        bytes: u64,
        mode: u32,
    },
    Listed {
        path: Vec<u8>,
        target: Vec<u8>,
    },
    Done,
    No,
    Failed(String),
}

/// The whole life of a clerk.
pub fn main(line: OwnedFd) -> ExitCode {
    let _ = rustix::thread::set_name(c"pulc-clerk");
    let line = Seqpacket::from(line);
    let mut buffer = vec![0; MESSAGE_BYTES_MAX];
    loop {
        let received = match line.recv(&mut buffer) {
            Ok(Some(received)) => received,
            Ok(None) => return ExitCode::SUCCESS,
            Err(_) => return ExitCode::FAILURE,
        };
        let Ok(ask) = boot::decode::<Ask>(&buffer[..received.bytes]) else { return ExitCode::FAILURE };
        let answer = serve(ask, received.fds.into_iter().next(), &line).unwrap_or_else(Answer::Failed);
        if say(&line, &answer).is_err() {
            return ExitCode::SUCCESS;
        }
    }
}

fn say(line: &Seqpacket, answer: &Answer) -> io::Result<()> {
    line.send(&boot::encode(answer), &[])
}

/// The last answer.
fn serve(ask: Ask, fd: Option<OwnedFd>, line: &Seqpacket) -> Result<Answer, String> {
    let last = Cell::new(Instant::now());
    let tick = || {
        if last.get().elapsed() >= TICK {
            last.set(Instant::now());
            // Whoever does not hear it any more hears no answer either.
            let _ = say(line, &Answer::Busy);
        }
    };
    let cached = |fd: Option<OwnedFd>| fd.map(File::from).ok_or_else(|| "no file came along".to_owned());
    match ask {
        Ask::Read { path } => return read(as_path(&path), cached(fd)?, line).map(|()| Answer::Done),
        Ask::Holds { path, content, program } => {
            let path = as_path(&path);
            let holds = Known::default().holds(path, &content, Whose::Users, &tick);
            if !holds || (program && !executable(path)) {
                return Ok(Answer::No);
            }
        }
        Ask::Room { path } => place::make_room(as_path(&path))?,
        Ask::Fill(step) => match fd {
            Some(fd) => step.perform_from(&mut File::from(fd), &tick)?,
            None => step.perform(None)?,
        },
        Ask::Remove { room } => place::remove(as_path(&room)),
        Ask::Sweep { room } => place::sweep_one(as_path(&room)),
        Ask::List { path, target } => {
            let mut files = Vec::new();
            list(&mut files, as_path(&path), as_path(&target), 0)?;
            let bytes = |path: &Path| path.as_os_str().as_encoded_bytes().to_vec();
            for (path, target) in files {
                let listed = Answer::Listed { path: bytes(&path), target: bytes(&target) };
                say(line, &listed).map_err(|error| error.to_string())?;
            }
        }
        Ask::Deliver { target, mode } => deliver_from(&mut cached(fd)?, as_path(&target), mode, &tick)?,
        Ask::DeliverOwn { from, target } => deliver(as_path(&from), as_path(&target), None)?,
        Ask::Keep { from, to } => keep(as_path(&from), as_path(&to)).map_err(|error| shortage(&error))?,
    }
    Ok(Answer::Done)
}

/// Out of a file, which must be a regular one, into a pipe.
fn read(path: &Path, mut pipe: File, line: &Seqpacket) -> Result<(), String> {
    use std::os::unix::fs::MetadataExt as _;
    let words = |error: io::Error| shortage(&error);
    // Opening a FIFO or a device must not wait for whoever is at its other end.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = open(path, flags, Mode::empty()).map_err(|error| words(error.into()))?;
    let file = File::from(file);
    let data = file.metadata().map_err(words)?;
    if !data.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    let reading = Answer::Reading { bytes: data.len(), mode: data.mode() & 0o7777 };
    say(line, &reading).map_err(words)?;
    // psid counts what comes.
    io::copy(&mut io::Read::take(file, data.len()), &mut pipe).map_err(words)?;
    Ok(())
}

/// Into a directory beside those of jobs, which is made if there is none. Everybody may make some there and sees what jobs there are: one that
/// somebody else has made, or may write to, is not used.
fn keep(from: &Path, to: &Path) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt as _;
    fs::symlink_metadata(from)?;
    // The outermost first; one that is called so inside of it is as harmless as that is.
    let mut own: Vec<&Path> = to.ancestors().skip(1).filter(|above| is_kept(above)).collect();
    own.reverse();
    if own.is_empty() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for directory in own {
        super::store::make_directory(directory)?;
        let data = fs::symlink_metadata(directory)?;
        if !data.is_dir() || data.uid() != rustix::process::geteuid().as_raw() || data.mode() & 0o022 != 0 {
            return Err(io::Error::other(format!("{} is not this user's alone", directory.display())));
        }
    }
    to.parent().map_or(Ok(()), super::store::make_directory)?;
    fs::rename(from, to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn what_is_kept_goes_to_a_directory_of_the_users_alone() {
        let rooms = std::env::temp_dir().join(format!("pulc-clerk-{}", std::process::id()));
        fs::create_dir_all(&rooms).unwrap();
        let from = rooms.join("result");
        let kept = |job: &str| rooms.join(format!("kept-{job}"));
        let result = |job: &str| kept(job).join("below").join("result");
        fs::write(&from, "all").unwrap();
        // Made by somebody before: everybody may write there, or it leads elsewhere.
        fs::create_dir(kept("open")).unwrap();
        fs::set_permissions(kept("open"), fs::Permissions::from_mode(0o777)).unwrap();
        std::os::unix::fs::symlink(&rooms, kept("link")).unwrap();
        for job in ["open", "link"] {
            assert!(keep(&from, &result(job)).is_err(), "{job}");
        }
        assert!(keep(&from, &rooms.join("elsewhere").join("result")).is_err());
        keep(&from, &result("own")).unwrap();
        assert_eq!(fs::read_to_string(result("own")).unwrap(), "all");
        assert_eq!(fs::metadata(kept("own")).unwrap().permissions().mode() & 0o777, 0o700);
        fs::remove_dir_all(&rooms).unwrap();
    }
}
