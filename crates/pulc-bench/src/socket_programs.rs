//! Programs of others that `sockets` measures where they are installed: redis with its own client, and iperf3 (nginx and Open MPI are in rooms of their own). Must leave no process and
//! no file behind.

use crate::Error;
use crate::job::output;
use crate::sockets::{LIMIT, Path, before, start};
use pulc_base::clock::now;
use std::ffi::OsString;
use std::io::{BufRead as _, BufReader};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;

const REDIS_SERVER: &str = "redis-server";
const REDIS_BENCHMARK: &str = "redis-benchmark";
const IPERF: &str = "iperf3";

/// Whether a program can be started; says so if not.
fn is_there(program: &str) -> bool {
    let there = output(&[program.into(), "--version".into()], LIMIT).is_ok();
    if !there {
        eprintln!("pulc: {program} is not installed and is left out");
    }
    there
}

pub fn has_redis() -> bool {
    is_there(REDIS_SERVER)
}

pub fn has_iperf() -> bool {
    is_there(IPERF)
}

pub fn free_port() -> Result<u16, Error> {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    Ok(free.map_err(Error::system("find a free port"))?.port())
}

/// Waits until a server takes connections.
pub fn wait_for(port: u16) -> Result<(), Error> {
    let started = now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        if now().since(started) > LIMIT {
            return Err(Error::Hung { seconds: LIMIT.0 / 1_000_000_000 });
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    Ok(())
}

/// Redis and its own client: requests a second.
pub fn redis(path: Path, clients: u32, pipeline: u32, requests: u32) -> Result<f64, Error> {
    let port = free_port()?;
    let socket = std::env::temp_dir().join(format!("pulc-bench-{}-{port}.sock", std::process::id()));
    let mut words = before(path)?;
    let text = port.to_string();
    words.extend([REDIS_SERVER, "--port", &text, "--bind", "127.0.0.1", "--save", ""].map(OsString::from));
    words.extend(["--appendonly", "no", "--unixsocket"].map(OsString::from));
    words.push(socket.clone().into());
    let server = start(&words, Stdio::null())?;
    wait_for(port)?;
    let mut words = before(path)?;
    words.push(REDIS_BENCHMARK.into());
    match path {
        Path::Unix => words.extend(["-s".into(), socket.clone().into()]),
        Path::Kernel | Path::Sockmap | Path::Bypass => words.extend(["-p", &text].map(OsString::from)),
    }
    let numbers = [clients, pipeline, requests].map(|number| number.to_string());
    words.extend(["-t", "set", "--csv", "-c", &numbers[0], "-P", &numbers[1], "-n", &numbers[2]].map(OsString::from));
    let said = output(&words, LIMIT);
    drop(server);
    // Redis removes it itself when it is not killed.
    let _ = std::fs::remove_file(socket);
    let said = said?;
    let rate = said.lines().find_map(|line| line.strip_prefix("\"SET\",\"")?.split('"').next()?.parse().ok());
    rate.ok_or(Error::Nonsense(said))
}

/// Bytes a second that iperf3 counts where they arrive. It knows no unix sockets: there the figure is no number.
pub fn iperf(path: Path, streams: u32, megabytes: u32) -> Result<f64, Error> {
    if path == Path::Unix {
        return Ok(f64::NAN);
    }
    let port = free_port()?.to_string();
    let mut words = before(path)?;
    words.extend([IPERF, "-s", "-B", "127.0.0.1", "-p", &port, "--forceflush"].map(OsString::from));
    let mut server = start(&words, Stdio::piped())?;
    if let Some(out) = server.0.stdout.take() {
        let mut lines = BufReader::new(out);
        let mut line = String::new();
        while lines.read_line(&mut line).map_err(Error::system("hear a server"))? > 0 && !line.contains("listening") {
            line.clear();
        }
        // Whoever reads no more would make it end.
        std::thread::spawn(move || lines.lines().for_each(drop));
    }
    let mut words = before(path)?;
    let (streams, bytes) = (streams.to_string(), format!("{megabytes}M"));
    words.extend([IPERF, "-c", "127.0.0.1", "-p", &port, "-P", &streams, "-n", &bytes, "-J"].map(OsString::from));
    let said = output(&words, LIMIT)?;
    let parsed: serde_json::Value = serde_json::from_str(&said).unwrap_or_default();
    let bits = parsed["end"]["sum_received"]["bits_per_second"].as_f64();
    bits.map(|bits| bits / 8.0).ok_or(Error::Nonsense(said))
}
