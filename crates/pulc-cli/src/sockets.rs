//! `pulc sockets`: the bypassed connections of this user on this machine, and sending them back to the kernel.

use crate::sockets_broker;
use pulc_hal::os::fdpass::Seqpacket;
use pulc_sockets::message::Request;
use std::io::{self, Write as _};
use std::process::ExitCode;

const NOTES: &str = "A line is a connection of which one end at least has asked to be promoted, or has said why it does not ask: processes \
and addresses (the end that called connect first; 0 is a process that has not asked), the path of each direction, bytes that went through \
the ring, bells that woke a sleeping reader, and how often the direction went back to the kernel; at the end, why it stays there. A \
connection asks after eight data calls, and again later where the reason may pass.";

#[derive(clap::Args)]
#[command(after_help = NOTES)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Action>,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Send connections back to the kernel, for good: those of a process, or all
    Demote {
        /// A process's number, or `all`
        #[arg(value_parser = target)]
        which: u32,
    },
}

fn target(text: &str) -> Result<u32, String> {
    match text.parse() {
        _ if text == "all" => Ok(0),
        Ok(pid) if pid > 0 => Ok(pid),
        _ => Err("a process's number, or `all`".to_owned()),
    }
}

pub fn run(args: &Args) -> ExitCode {
    // The user's own, and the system's for connections with other users.
    let brokers: Vec<Seqpacket> =
        [sockets_broker::connect(), sockets_broker::connect_system()].into_iter().flatten().collect();
    if brokers.is_empty() {
        println!("no connections: no broker runs; `pulc bypass` starts one");
        return ExitCode::SUCCESS;
    }
    let outcome = match &args.command {
        None => list(&brokers),
        Some(Action::Demote { which }) => demote(&brokers, *which),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever reads has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pulc: the sockets' broker does not answer: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Room for a piece of the list.
const DATAGRAM_BYTES: usize = 16 << 10;

/// One datagram as text.
fn receive(broker: &Seqpacket) -> io::Result<String> {
    let mut bytes = vec![0; DATAGRAM_BYTES];
    let received = broker.recv(&mut bytes)?.ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok(String::from_utf8_lossy(&bytes[..received.bytes]).into_owned())
}

const HEADINGS: [&str; 9] = ["PID", "PEER", "FROM", "TO", "PATH", "RING BYTES", "BELLS", "RETURNS", "WHY NOT"];
/// The end of a list.
const END: &str = ".";
/// Before what is said of all connections.
const REMARK: char = '#';

fn list(brokers: &[Seqpacket]) -> io::Result<()> {
    let mut rows = vec![HEADINGS.map(str::to_owned).to_vec()];
    let mut remarks = Vec::new();
    for broker in brokers {
        broker.send(&Request::List.encode(), &[])?;
        let mut is_over = false;
        while !is_over {
            for row in receive(broker)?.lines() {
                is_over = row == END;
                match row.strip_prefix(REMARK) {
                    Some(remark) => remarks.push(remark.to_owned()),
                    None if is_over => {}
                    None => rows.push(row.split('\t').map(str::to_owned).collect()),
                }
            }
        }
    }
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(String::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..HEADINGS.len()).map(width).collect();
    let mut output = io::stdout().lock();
    for remark in &remarks {
        writeln!(output, "{remark}")?;
    }
    for row in &rows {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        writeln!(output, "{}", cells.join("  ").trim_end())?;
    }
    Ok(())
}

fn demote(brokers: &[Seqpacket], pid: u32) -> io::Result<()> {
    let mut count = 0;
    for broker in brokers {
        broker.send(&Request::Demote(pid).encode(), &[])?;
        count += receive(broker)?.trim().parse::<u64>().unwrap_or(0);
    }
    println!("{count} connections go back to the kernel with their next bytes");
    Ok(())
}
