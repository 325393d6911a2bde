//! Segmentation and joining of datagrams as socket options, for programs that move bytes by plain `send` and `recv`. Called by
//! `pulc-bench`, which measures the kernel beside our devices; the device `udp` says the same message by message.
//!
//! Source: udp(7), Linux `UDP_SEGMENT` and `UDP_GRO`.

use crate::error::HalError;
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;

/// Every message that is sent from now on and is longer than `bytes` leaves as datagrams of that many.
///
/// # Errors
/// If the kernel knows no segmentation offload for this socket.
pub fn segment(socket: &UdpSocket, bytes: u16) -> Result<(), HalError> {
    set(socket, libc::UDP_SEGMENT, i32::from(bytes), "setsockopt UDP_SEGMENT")
}

/// One receive takes as many datagrams as the kernel has joined, up to 64 KiB.
///
/// # Errors
/// If the kernel cannot join datagrams for this socket.
pub fn join(socket: &UdpSocket) -> Result<(), HalError> {
    set(socket, libc::UDP_GRO, 1, "setsockopt UDP_GRO")
}

fn set(socket: &UdpSocket, name: i32, value: i32, doing: &'static str) -> Result<(), HalError> {
    let len = size_of::<i32>() as libc::socklen_t;
    let fd = socket.as_raw_fd();
    // SAFETY: the option value is a live i32 and `len` is its size; the socket is open because it is borrowed.
    let status = unsafe { libc::setsockopt(fd, libc::SOL_UDP, name, (&raw const value).cast(), len) };
    if status == 0 { Ok(()) } else { Err(HalError::System { doing, source: std::io::Error::last_os_error() }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_send_leaves_as_datagrams_and_one_receive_takes_what_was_joined() {
        let [a, b] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        a.connect(b.local_addr().unwrap()).unwrap();
        segment(&a, 1000).unwrap();
        let sent: Vec<u8> = (0..2500).map(|at| (at / 1000) as u8).collect();
        a.send(&sent).unwrap();
        let mut buffer = vec![9; 64 << 10];
        let lens: Vec<usize> = (0..3).map(|_| b.recv(&mut buffer).unwrap()).collect();
        assert_eq!(lens, [1000, 1000, 500]);
        join(&b).unwrap();
        a.send(&sent).unwrap();
        // How much the kernel joins is its affair; nothing is lost and nothing changes place.
        let mut got = Vec::new();
        while got.len() < sent.len() {
            let len = b.recv(&mut buffer).unwrap();
            got.extend_from_slice(&buffer[..len]);
        }
        assert_eq!(got, sent);
    }
}
