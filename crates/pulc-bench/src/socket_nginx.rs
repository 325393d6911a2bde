//! nginx as Debian sets it up (sendfile, corked answers), asked for small files by wrk: one of the programs that `sockets` measures where they are
//! installed. Must leave no process and no file behind, and must not count an answer that is not the file.

use crate::Error;
use crate::job::output;
use crate::peers::{Folder, which};
use crate::socket_programs::{free_port, wait_for};
use crate::sockets::{LIMIT, Path, before, start};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;

const WRK: &str = "wrk";
const FILE_BYTES: usize = 1000;
/// It measures whole seconds.
const SECONDS: &str = "1";

/// Where nginx is; distributions put it where only root looks.
fn nginx() -> Option<PathBuf> {
    which("nginx").or_else(|| Some(PathBuf::from("/usr/sbin/nginx")).filter(|path| path.is_file()))
}

pub fn is_there() -> bool {
    let is_there = nginx().is_some() && which(WRK).is_some();
    if !is_there {
        eprintln!("pulc: nginx or wrk is not installed, and both are left out");
    }
    is_there
}

/// What it is told: one worker, everything in a folder that is removed.
fn settings(folder: &Folder, port: u16) -> String {
    let at = folder.0.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|what| format!("{what}_temp_path {at}/{what}; "))
        .concat();
    // Whoever is root stays it, since the folder is its own.
    let user = if rustix::process::geteuid().is_root() { "user root root; " } else { "" };
    format!(
        "{user}daemon off; worker_processes 1; pid {at}/pid; error_log {at}/error.log; events {{ worker_connections 256; }} \
         http {{ access_log off; sendfile on; tcp_nopush on; keepalive_requests 100000000; {temporary} \
         server {{ listen 127.0.0.1:{port}; root {at}; }} }}"
    )
}

/// Answers a second. It knows unix sockets and wrk does not: there the figure is no number.
pub fn answers(path: Path, clients: u32) -> Result<f64, Error> {
    if path == Path::Unix {
        return Ok(f64::NAN);
    }
    let (Some(nginx), port) = (nginx(), free_port()?) else { return Ok(f64::NAN) };
    let folder = Folder::new("pulc-nginx")?;
    let write = |name: &str, text: &str| {
        std::fs::write(folder.0.join(name), text).map_err(Error::system("write what nginx serves"))
    };
    write("conf", &settings(&folder, port))?;
    write("file", &"x".repeat(FILE_BYTES))?;
    let mut words = before(path)?;
    words.extend([
        nginx.into(),
        "-e".into(),
        folder.0.join("error.log").into(),
        "-c".into(),
        folder.0.join("conf").into(),
    ]);
    let server = start(&words, Stdio::null())?;
    let said = wait_for(port).and_then(|()| {
        let mut words = before(path)?;
        let place = format!("http://127.0.0.1:{port}/file");
        words.extend([WRK, "-t", "1", "-c", &clients.to_string(), "-d", SECONDS, &place].map(OsString::from));
        output(&words, LIMIT)
    });
    // The master ends its worker only when it is asked to.
    server.ask_to_end();
    figure(&said?)
}

/// What wrk says; nothing where any answer was not the file.
fn figure(said: &str) -> Result<f64, Error> {
    let is_wrong = said.contains("Socket errors") || said.contains("Non-2xx");
    let rate = said.lines().find_map(|line| line.trim().strip_prefix("Requests/sec:")?.trim().parse().ok());
    rate.filter(|_| !is_wrong).ok_or_else(|| Error::Nonsense(said.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_are_not_the_file_are_no_figure() {
        let good = "Running 1s test\n  1 threads and 5 connections\nRequests/sec:  12345.67\nTransfer/sec: 1MB\n";
        assert_eq!(figure(good).unwrap(), 12345.67);
        assert!(figure(&format!("{good}  Non-2xx or 3xx responses: 7\n")).is_err());
        assert!(figure(&format!("  Socket errors: connect 0, read 3, write 0, timeout 0\n{good}")).is_err());
        assert!(figure("").is_err());
    }
}
