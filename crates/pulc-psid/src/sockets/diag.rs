//! Asks the kernel which socket has a given pair of addresses, and whose it is. Needs no privileges. Called by the sockets' broker, so
//! that no process can claim a connection that it has not.
//! Source: sock_diag(7), linux/inet_diag.h.

use pulc_sockets::message::Place;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};
use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

const HEADER_BYTES: usize = 16;
const REQUEST_BYTES: usize = HEADER_BYTES + 56;
/// Where the answer's fields lie, counted from its header.
const AT_COOKIE: usize = HEADER_BYTES + 44;
const AT_UID: usize = HEADER_BYTES + 64;
const ANSWER_BYTES: usize = HEADER_BYTES + 72;
const AT_NUMBER: usize = 8;
const NLMSG_ERROR: u16 = 2;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const IPPROTO_TCP: u8 = 6;
const IPPROTO_UDP: u8 = 17;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// A socket as the kernel knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    pub cookie: u64,
    pub uid: u32,
}

/// How long the kernel may take.
const LIMIT: Duration = Duration::from_secs(1);

pub struct Diag {
    socket: OwnedFd,
    /// Of the last question, so that its answer is told from an earlier one's.
    number: Cell<u32>,
}

impl Diag {
    pub fn open() -> io::Result<Diag> {
        let kind = (AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC);
        let socket = rustix::net::socket_with(kind.0, kind.1, kind.2, Some(netlink::SOCK_DIAG))?;
        rustix::net::sockopt::set_socket_timeout(&socket, rustix::net::sockopt::Timeout::Recv, Some(LIMIT))?;
        Ok(Diag { socket, number: Cell::new(0) })
    }

    /// The TCP socket whose own address is `local` and whose peer's is `remote`.
    ///
    /// # Errors
    /// When the kernel does not say; that is not the same as that there is none.
    pub fn find(&self, local: &Place, remote: &Place) -> io::Result<Option<Found>> {
        self.ask(IPPROTO_TCP, local, remote)
    }

    /// The UDP socket to which a datagram comes that `from` sends to `to`. The kernel looks as it does for a datagram, and takes the places the
    /// other way round than for TCP.
    ///
    /// # Errors
    /// As [`Diag::find`].
    pub fn find_receiver(&self, from: &Place, to: &Place) -> io::Result<Option<Found>> {
        self.ask(IPPROTO_UDP, from, to)
    }

    fn ask(&self, protocol: u8, local: &Place, remote: &Place) -> io::Result<Option<Found>> {
        let number = self.number.get().wrapping_add(1);
        self.number.set(number);
        rustix::net::send(&self.socket, &request(protocol, local, remote, number), SendFlags::empty())?;
        loop {
            let mut answer = [0; 512];
            let (len, _) = match rustix::net::recv(&self.socket, &mut answer, RecvFlags::empty()) {
                Err(rustix::io::Errno::INTR) => continue,
                received => received?,
            };
            if let Some(found) = parse(&answer[..len], number) {
                return found;
            }
        }
    }
}

fn request(protocol: u8, local: &Place, remote: &Place, number: u32) -> [u8; REQUEST_BYTES] {
    let mut bytes = [0; REQUEST_BYTES];
    bytes[..4].copy_from_slice(&(REQUEST_BYTES as u32).to_ne_bytes());
    bytes[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes[6..8].copy_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    bytes[AT_NUMBER..AT_NUMBER + 4].copy_from_slice(&number.to_ne_bytes());
    let body = &mut bytes[HEADER_BYTES..];
    body[1] = protocol;
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

fn number_at(answer: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(answer.get(at..at + 4)?.try_into().ok()?))
}

/// What is said to question `number`; nothing if it is the answer to another one.
fn parse(answer: &[u8], number: u32) -> Option<io::Result<Option<Found>>> {
    if number_at(answer, AT_NUMBER)? != number {
        return None;
    }
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    if kind == NLMSG_ERROR {
        let error = number_at(answer, HEADER_BYTES)?.cast_signed().wrapping_neg();
        let is_nobody = error == rustix::io::Errno::NOENT.raw_os_error();
        return Some(if is_nobody { Ok(None) } else { Err(io::Error::from_raw_os_error(error)) });
    }
    if kind != SOCK_DIAG_BY_FAMILY || answer.len() < ANSWER_BYTES {
        return Some(Err(io::ErrorKind::InvalidData.into()));
    }
    Some(Ok(Some(Found {
        cookie: u64::from_ne_bytes(answer[AT_COOKIE..AT_COOKIE + 8].try_into().ok()?),
        uid: number_at(answer, AT_UID)?,
    })))
}

/// An answer, behind the number of the question that it is for.
pub(crate) fn fuzz_answers(bytes: &[u8]) {
    let Some((number, answer)) = bytes.split_first_chunk::<4>() else { return };
    let number = u32::from_ne_bytes(*number);
    let said = parse(answer, number);
    if let Some(Ok(Some(found))) = &said {
        assert!(answer.len() >= ANSWER_BYTES);
        assert_eq!(number_at(answer, AT_NUMBER), Some(number), "an answer to another question");
        assert_eq!(number_at(answer, AT_UID), Some(found.uid));
    }
    assert!(said.is_none() || parse(answer, number.wrapping_add(1)).is_none(), "one answer to two questions");
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
    fn the_socket_that_a_datagram_comes_to_is_found() {
        let diag = Diag::open().unwrap();
        let server = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
        let client = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let there = Place::v4([127, 0, 0, 1], server.local_addr().unwrap().port());
        client.connect(("127.0.0.1", there.port)).unwrap();
        let here = place(client.local_addr().unwrap());
        let one = diag.find_receiver(&here, &there).unwrap().unwrap();
        let other = diag.find_receiver(&there, &here).unwrap().unwrap();
        assert_ne!(one.cookie, other.cookie);
        assert_eq!(one.uid, rustix::process::geteuid().as_raw());
        let nobody = Place::v4([127, 0, 0, 1], 1);
        assert_eq!(diag.find_receiver(&nobody, &here).unwrap(), None, "it is connected to another one");
        let anywhere = Place::v4([0; 4], 0);
        let own = Place { port: there.port, ..anywhere };
        assert_eq!(diag.find_receiver(&anywhere, &own).unwrap(), Some(one));
    }

    #[test]
    fn answers_of_another_shape_or_to_another_question_are_no_answers() {
        for bytes in [&[][..], &[0; 8], &[20; 60]] {
            assert!(parse(bytes, 7).is_none());
        }
        let mut answer = [0; 512];
        answer[AT_NUMBER] = 7;
        assert!(parse(&answer, 7).unwrap().is_err(), "of no kind");
        assert!(parse(&answer, 8).is_none());
        answer[4] = NLMSG_ERROR as u8;
        for (number, is_known) in [(2i32, true), (105, false), (i32::MIN, false)] {
            answer[HEADER_BYTES..HEADER_BYTES + 4].copy_from_slice(&number.wrapping_neg().to_ne_bytes());
            let said = parse(&answer, 7).unwrap();
            assert_eq!(matches!(said, Ok(None)), is_known, "{said:?}");
        }
    }
}
