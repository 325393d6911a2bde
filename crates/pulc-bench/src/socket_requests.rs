//! Requests and answers of 64 bytes over one or many connections, each with one request on its way: the server and all clients wait in
//! epoll, as servers do. Called by `socket_end`. Must never open more connections than it is told.

use crate::socket_end::{Listener, MESSAGE_BYTES, tcp, unix};
use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use mio::{Events, Interest, Poll, Token};
use pulc_base::clock::{Nanos, now};
use std::io::{self, Read, Write};

/// Events that are taken at a time.
const EVENTS: usize = 128;
/// Answers of each client before the clock is read first.
const WARM: u64 = 200;

trait Connection: Read + Write + Source {}
impl Connection for TcpStream {}
impl Connection for UnixStream {}

/// One connection and how much of a message has come.
struct Line {
    connection: Box<dyn Connection>,
    there: usize,
}

impl Line {
    fn new(mut connection: Box<dyn Connection>, poll: &Poll, number: usize) -> io::Result<Line> {
        poll.registry().register(&mut connection, Token(number), Interest::READABLE)?;
        Ok(Line { connection, there: 0 })
    }

    /// Messages that are complete, and whether the other end is still there.
    fn read(&mut self) -> io::Result<(usize, bool)> {
        let mut room = [0; 16 * MESSAGE_BYTES];
        let mut complete = 0;
        loop {
            let got = match self.connection.read(&mut room) {
                Ok(0) => return Ok((complete, false)),
                Ok(got) => got,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok((complete, true)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            self.there += got;
            complete += self.there / MESSAGE_BYTES;
            self.there %= MESSAGE_BYTES;
            // Less than there was room for: there is no more, and the next edge will come.
            if got < room.len() {
                return Ok((complete, true));
            }
        }
    }

    /// One message is on its way at most: the system has room for it.
    fn write(&mut self) -> io::Result<()> {
        self.connection.write_all(&[7; MESSAGE_BYTES])
    }
}

fn over_tcp(stream: std::net::TcpStream) -> io::Result<Box<dyn Connection>> {
    stream.set_nonblocking(true)?;
    Ok(Box::new(TcpStream::from_std(stream)))
}

fn over_unix(stream: std::os::unix::net::UnixStream) -> io::Result<Box<dyn Connection>> {
    stream.set_nonblocking(true)?;
    Ok(Box::new(UnixStream::from_std(stream)))
}

/// Waits for events; true when there are some.
fn wait(poll: &mut Poll, events: &mut Events) -> io::Result<()> {
    match poll.poll(events, None) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
        outcome => outcome,
    }
}

/// Answers so many clients until all of them have gone.
pub fn answer(listener: &Listener, clients: u32) -> io::Result<()> {
    let (mut poll, mut events) = (Poll::new()?, Events::with_capacity(EVENTS));
    let mut lines = Vec::new();
    for number in 0..clients as usize {
        let connection = match listener {
            Listener::Tcp(listener) => {
                let stream = listener.accept()?.0;
                stream.set_nodelay(true)?;
                over_tcp(stream)?
            }
            Listener::Unix(listener) => over_unix(listener.accept()?.0)?,
        };
        lines.push(Some(Line::new(connection, &poll, number)?));
    }
    while lines.iter().any(Option::is_some) {
        wait(&mut poll, &mut events)?;
        for event in &events {
            let place = &mut lines[event.token().0];
            let Some(line) = place else { continue };
            let (messages, is_there) = line.read()?;
            for _ in 0..messages {
                line.write()?;
            }
            if !is_there {
                *place = None;
            }
        }
    }
    Ok(())
}

/// Requests a second.
pub fn ask(server: &str, is_unix: bool, clients: u32, time: Nanos) -> io::Result<f64> {
    let (mut poll, mut events) = (Poll::new()?, Events::with_capacity(EVENTS));
    let mut lines = Vec::new();
    for number in 0..clients as usize {
        let connection = if is_unix { over_unix(unix(server)?)? } else { over_tcp(tcp(server)?)? };
        lines.push(Line::new(connection, &poll, number)?);
    }
    for line in &mut lines {
        line.write()?;
    }
    let (mut started, mut count, mut is_warm) = (now(), 0u64, false);
    loop {
        wait(&mut poll, &mut events)?;
        for event in &events {
            let line = &mut lines[event.token().0];
            let (messages, is_there) = line.read()?;
            if !is_there {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            for _ in 0..messages {
                line.write()?;
            }
            count += messages as u64;
        }
        if !is_warm && count > WARM * u64::from(clients) {
            (started, count, is_warm) = (now(), 0, true);
        }
        let took = now().since(started);
        if is_warm && took >= time {
            return Ok(count as f64 / (took.0 as f64 / 1e9));
        }
    }
}
