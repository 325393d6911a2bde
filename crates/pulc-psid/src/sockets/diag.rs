//! Asks the kernel which socket has a given pair of addresses, and whose it is. Needs no privileges. Called by the sockets' broker, so
//! that no process can claim a connection that it has not.
//! Source: sock_diag(7), linux/inet_diag.h.

use pulc_sockets::message::Place;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};
use std::io;
use std::os::fd::OwnedFd;

const HEADER_BYTES: usize = 16;
const REQUEST_BYTES: usize = HEADER_BYTES + 56;
/// Where the answer's fields lie, counted from its header.
const AT_COOKIE: usize = HEADER_BYTES + 44;
const AT_UID: usize = HEADER_BYTES + 64;
const ANSWER_BYTES: usize = HEADER_BYTES + 72;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const IPPROTO_TCP: u8 = 6;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// A socket as the kernel knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    pub cookie: u64,
    pub uid: u32,
}

pub struct Diag(OwnedFd);

impl Diag {
    pub fn open() -> io::Result<Diag> {
        let kind = (AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC);
        Ok(Diag(rustix::net::socket_with(kind.0, kind.1, kind.2, Some(netlink::SOCK_DIAG))?))
    }

    /// The TCP socket whose own address is `local` and whose peer's is `remote`.
    pub fn find(&self, local: &Place, remote: &Place) -> io::Result<Option<Found>> {
        rustix::net::send(&self.0, &request(local, remote), SendFlags::empty())?;
        let mut answer = [0; 512];
        let (len, _) = rustix::net::recv(&self.0, &mut answer, RecvFlags::empty())?;
        Ok(parse(&answer[..len]))
    }
}

fn request(local: &Place, remote: &Place) -> [u8; REQUEST_BYTES] {
    let mut bytes = [0; REQUEST_BYTES];
    bytes[..4].copy_from_slice(&(REQUEST_BYTES as u32).to_ne_bytes());
    bytes[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes[6..8].copy_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    let body = &mut bytes[HEADER_BYTES..];
    body[1] = IPPROTO_TCP;
    body[4..8].fill(0xff);
    body[8..10].copy_from_slice(&local.port.to_be_bytes());
    body[10..12].copy_from_slice(&remote.port.to_be_bytes());
    match (local.as_v4(), remote.as_v4()) {
        (Some(local), Some(remote)) => {
            body[0] = AF_INET;
            body[12..16].copy_from_slice(&local);
            body[28..32].copy_from_slice(&remote);
        }
        _ => {
            body[0] = AF_INET6;
            body[12..28].copy_from_slice(&local.address);
            body[28..44].copy_from_slice(&remote.address);
        }
    }
    // Whatever its cookie is.
    body[48..56].fill(0xff);
    bytes
}

fn parse(answer: &[u8]) -> Option<Found> {
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    if kind != SOCK_DIAG_BY_FAMILY || answer.len() < ANSWER_BYTES {
        return None;
    }
    Some(Found {
        cookie: u64::from_ne_bytes(answer[AT_COOKIE..AT_COOKIE + 8].try_into().ok()?),
        uid: u32::from_ne_bytes(answer[AT_UID..AT_UID + 4].try_into().ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{SocketAddr, TcpListener, TcpStream};

    fn place(address: SocketAddr) -> Place {
        match address {
            SocketAddr::V4(v4) => Place::v4(v4.ip().octets(), v4.port()),
            SocketAddr::V6(v6) => Place { address: v6.ip().octets(), port: v6.port() },
        }
    }

    #[test]
    fn both_ends_of_a_connection_are_found_and_nobody_else() {
        let diag = Diag::open().unwrap();
        for host in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(host) else { continue };
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (local, remote) = (place(client.local_addr().unwrap()), place(client.peer_addr().unwrap()));
            let one = diag.find(&local, &remote).unwrap().unwrap();
            let other = diag.find(&remote, &local).unwrap().unwrap();
            assert_ne!(one.cookie, other.cookie);
            assert_eq!(one.uid, rustix::process::geteuid().as_raw());
            let nobody = Place { port: 1, ..local };
            assert_eq!(diag.find(&nobody, &remote).unwrap(), None);
        }
    }

    #[test]
    fn answers_of_another_shape_are_no_answers() {
        for bytes in [&[][..], &[0; 16], &[20; 60]] {
            assert_eq!(parse(bytes), None);
        }
    }
}
