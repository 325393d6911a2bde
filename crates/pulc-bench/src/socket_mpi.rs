//! Another MPI over TCP, which is what ParaStation's bypass was made for: Open MPI, told to use nothing else, with the sockets bypass and without.
//! The program is that of `peers`. Called by `sockets` where it is installed.

use crate::Error;
use crate::job::output;
use crate::peers::{Folder, Kind, Mpi, SOURCE, in_path};
use crate::sockets::{LIMIT, Path, before};
use std::path::PathBuf;

/// One network for messages and for the launcher's own words, where others may not be reachable.
const OVER_TCP: [&str; 9] =
    ["--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo", "--mca", "oob_tcp_if_include", "lo"];

/// Open MPI and a program for it.
pub struct OverTcp {
    mpi: Mpi,
    program: PathBuf,
    _folder: Folder,
}

impl OverTcp {
    /// The first Open MPI in the search path; says so if there is none.
    pub fn find() -> Result<Option<OverTcp>, Error> {
        let is_open = |mpi: &Mpi| matches!(mpi.kind, Kind::OpenMpi4 | Kind::OpenMpi5);
        let Some(mpi) = in_path().into_iter().find(is_open) else {
            eprintln!("pulc: Open MPI is not installed and is left out");
            return Ok(None);
        };
        let folder = Folder::new("pulc-over-tcp")?;
        let (source, program) = (folder.0.join("peers.c"), folder.0.join("peers"));
        std::fs::write(&source, SOURCE).map_err(Error::system("write a program"))?;
        if let Err(error) = mpi.compile(&source, &program) {
            eprintln!("pulc: {} is left out, it compiles nothing: {error}", mpi.name);
            return Ok(None);
        }
        Ok(Some(OverTcp { mpi, program, _folder: folder }))
    }

    /// Nanoseconds that so many bytes take one way between two ranks on two cores, the least of some tries. It has no unix sockets:
    /// there the figure is no number.
    pub fn latency(&self, path: Path, bytes: usize, millis: u32) -> Result<f64, Error> {
        if path == Path::Unix {
            return Ok(f64::NAN);
        }
        let seconds = (f64::from(millis) / 3000.0).to_string();
        let mut words = before(path)?;
        words.extend(self.mpi.launch_with(&OVER_TCP, 2, &self.program, &["short", &seconds, "pin"]));
        let said = output(&words, LIMIT)?;
        figure(&said, bytes).ok_or(Error::Nonsense(said))
    }
}

fn figure(said: &str, bytes: usize) -> Option<f64> {
    let front = format!("latency {bytes} ");
    said.lines().find_map(|line| line.strip_prefix(&front)?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_the_size_is_read() {
        let said = "latency 8 12345.5\nlatency 65536 99999\n";
        assert_eq!(figure(said, 8), Some(12345.5));
        assert_eq!(figure(said, 65536), Some(99999.0));
        assert_eq!(figure(said, 1024), None);
    }
}
