//! `pulc events`: what has happened in the cluster, and with `--follow` what happens from now on. `pulc metrics`: numbers for monitoring,
//! printed, or served over HTTP for Prometheus.

use super::{ask, connect, fail, print, unwrap, words};
use pulc_control::Request;
use pulc_control::queue::{Happened, QueueReply, QueueRequest};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::time::Duration;

#[derive(clap::Args)]
pub struct EventsArgs {
    /// Number of past events
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50)]
    at_most: u32,
    /// Go on with what happens from now on
    #[arg(short, long)]
    follow: bool,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
pub struct MetricsArgs {
    /// Serve them at http://ADDRESS/metrics instead of printing them once
    #[arg(long, value_name = "ADDRESS:PORT")]
    serve: Option<SocketAddr>,
}

pub fn events(args: &EventsArgs) -> ExitCode {
    let request = QueueRequest::Events { at_most: args.at_most, follow: args.follow };
    let mut client = match connect() {
        Ok(client) => client,
        Err(why) => return fail(&why),
    };
    if let Err(error) = client.send(&Request::Queue(Box::new(request))) {
        return fail(&error.to_string());
    }
    loop {
        let reply = client.receive().map_err(|error| format!("the daemon is gone: {error}")).and_then(unwrap);
        let events = match reply {
            Ok(QueueReply::Events(events)) => events,
            Ok(_) => return fail("the daemon gave an answer to another question; use the same pulc for both"),
            Err(why) => return fail(&why),
        };
        let text: String = events.iter().map(|event| line(event, args.json)).collect();
        let mut out = std::io::stdout();
        // Whoever read this has gone.
        if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() || !args.follow {
            return ExitCode::SUCCESS;
        }
    }
}

fn line(event: &Happened, json: bool) -> String {
    if json {
        return format!("{}\n", serde_json::json!({ "at_ms": event.at, "text": event.text }));
    }
    format!("{}  {}\n", words::date(event.at), event.text)
}

pub fn metrics(args: &MetricsArgs) -> ExitCode {
    let Some(address) = args.serve else { return print(text()) };
    let listener = match TcpListener::bind(address) {
        Ok(listener) => listener,
        Err(error) => return fail(&format!("cannot listen on {address}: {error}")),
    };
    println!("http://{}/metrics", listener.local_addr().unwrap_or(address));
    for stream in listener.incoming().flatten() {
        // One after the other: who asks for numbers asks seldom, and a slow one is given up.
        let _ = serve(stream);
    }
    ExitCode::SUCCESS
}

fn text() -> Result<String, String> {
    match ask(QueueRequest::Metrics)? {
        QueueReply::Text(text) => Ok(text),
        _ => Err("the daemon gave an answer to another question; use the same pulc for both".to_owned()),
    }
}

/// Longest request that is read.
const REQUEST_MAX: u64 = 8 << 10;

fn serve(mut stream: TcpStream) -> std::io::Result<()> {
    use std::io::Read as _;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.set_write_timeout(Some(Duration::from_secs(5)))?;
    let mut reader = BufReader::new(stream.try_clone()?.take(REQUEST_MAX));
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut header = String::new();
    while reader.read_line(&mut header)? > 2 {
        header.clear();
    }
    let mut words = first.split(' ');
    let (status, body) = match (words.next(), words.next()) {
        (Some("GET"), Some("/metrics")) => match text() {
            Ok(text) => ("200 OK", text),
            Err(why) => ("503 Service Unavailable", why + "\n"),
        },
        (Some("GET"), _) => ("404 Not Found", "the numbers are at /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", "only GET is understood\n".to_owned()),
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}
