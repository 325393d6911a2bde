//! Datagrams of 64 bytes there and back between a socket that hears many and one that is connected, over UDP or a unix socket. Called by
//! `socket_end`. One that was lost is sent again.

use crate::socket_end::{MESSAGE_BYTES, middle};
use pulc_base::clock::Nanos;
use std::io;
use std::net::UdpSocket;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

const LOST: Duration = Duration::from_millis(500);
/// Says that no more comes.
const END: [u8; 1] = [0];

/// Answers until it is told that it is over.
pub fn answer(is_unix: bool) -> io::Result<()> {
    let mut message = [0; MESSAGE_BYTES];
    if is_unix {
        let name = format!("pulc-bench-{}", std::process::id());
        let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
        println!("{name}");
        loop {
            let (len, from) = socket.recv_from(&mut message)?;
            if len == END.len() {
                return Ok(());
            }
            socket.send_to_addr(&message[..len], &from)?;
        }
    }
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    println!("{}", socket.local_addr()?);
    loop {
        let (len, from) = socket.recv_from(&mut message)?;
        if len == END.len() {
            return Ok(());
        }
        socket.send_to(&message[..len], from)?;
    }
}

/// Nanoseconds one way.
pub fn ask(server: &str, is_unix: bool, time: Nanos) -> io::Result<f64> {
    if is_unix {
        let name = format!("pulc-bench-{}", std::process::id());
        let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
        socket.connect_addr(&SocketAddr::from_abstract_name(server)?)?;
        socket.set_read_timeout(Some(LOST))?;
        return turns(time, |bytes| socket.send(bytes), |bytes| socket.recv(bytes));
    }
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.connect(server)?;
    socket.set_read_timeout(Some(LOST))?;
    turns(time, |bytes| socket.send(bytes), |bytes| socket.recv(bytes))
}

fn turns(
    time: Nanos,
    send: impl Fn(&[u8]) -> io::Result<usize>,
    receive: impl Fn(&mut [u8]) -> io::Result<usize>,
) -> io::Result<f64> {
    let mut message = [7; MESSAGE_BYTES];
    let figure = middle(time, |count| {
        for _ in 0..count {
            loop {
                send(&message)?;
                match receive(&mut message) {
                    Ok(_) => break,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    })?;
    send(&END)?;
    Ok(figure)
}
