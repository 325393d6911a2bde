//! The system calls of the `udp` device: many datagrams out or in with one call, segmentation offload, and what the kernel
//! knows of the socket and of a path. Called by `udp` only; keeps no state beyond receive buffers and never blocks.
//!
//! Source: udp(7), Linux `UDP_SEGMENT` and `UDP_GRO`.

use pulc_base::sieve::Instruction;
use std::io;
use std::mem::{size_of, zeroed};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::os::fd::AsRawFd;

/// Datagrams in one call.
pub(super) const BATCH_MAX: usize = 32;
/// Pieces that one datagram or run is gathered from.
pub(super) const PIECES_MAX: usize = 8;
/// Largest datagram, or train of merged datagrams, that the kernel hands over.
pub(super) const DATAGRAM_MAX: usize = 65_535;
/// One receive buffer, in bytes.
const BUFFER_BYTES: usize = 64 << 10;
/// Room for one control message with an integer.
const CONTROL_BYTES: usize = 64;

/// A socket address in the form that system calls take. Bytes beyond its length are zero.
#[derive(Clone, Copy)]
pub(super) struct RawAddress {
    storage: libc::sockaddr_storage,
    len: libc::socklen_t,
}

impl RawAddress {
    pub fn new(address: SocketAddr) -> RawAddress {
        // SAFETY: all-zero bytes are a valid sockaddr_storage; it is plain data.
        let mut storage: libc::sockaddr_storage = unsafe { zeroed() };
        let len = match address {
            SocketAddr::V4(v4) => {
                let raw = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: v4.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                    sin_zero: [0; 8],
                };
                // SAFETY: sockaddr_storage is larger than and aligned for every sockaddr type; both are plain data.
                unsafe { (&raw mut storage).cast::<libc::sockaddr_in>().write(raw) };
                size_of::<libc::sockaddr_in>()
            }
            SocketAddr::V6(v6) => {
                let raw = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: 0,
                    sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                    sin6_scope_id: v6.scope_id(),
                };
                // SAFETY: as above.
                unsafe { (&raw mut storage).cast::<libc::sockaddr_in6>().write(raw) };
                size_of::<libc::sockaddr_in6>()
            }
        };
        RawAddress { storage, len: len as libc::socklen_t }
    }

    /// `None`: a family other than IPv4 and IPv6.
    pub fn address(&self) -> Option<SocketAddr> {
        match i32::from(self.storage.ss_family) {
            libc::AF_INET => {
                // SAFETY: the family says that the storage holds a sockaddr_in; it is large enough and aligned for it.
                let raw = unsafe { (&raw const self.storage).cast::<libc::sockaddr_in>().read() };
                let ip = Ipv4Addr::from(raw.sin_addr.s_addr.to_ne_bytes());
                Some(SocketAddrV4::new(ip, u16::from_be(raw.sin_port)).into())
            }
            libc::AF_INET6 => {
                // SAFETY: as above, for sockaddr_in6.
                let raw = unsafe { (&raw const self.storage).cast::<libc::sockaddr_in6>().read() };
                let ip = Ipv6Addr::from(raw.sin6_addr.s6_addr);
                Some(SocketAddrV6::new(ip, u16::from_be(raw.sin6_port), 0, raw.sin6_scope_id).into())
            }
            _ => None,
        }
    }
}

/// Sends one datagram, or with `segment` a run of datagrams of that size, gathered from at most [`PIECES_MAX`] pieces; without an
/// address to where the socket is connected to.
pub(super) fn send_gathered(
    socket: &UdpSocket,
    to: Option<&RawAddress>,
    pieces: &[&[u8]],
    segment: Option<u16>,
) -> io::Result<()> {
    if let (None, None, &[only]) = (to, segment, pieces) {
        return send_plainly(socket, only);
    }
    let count = pieces.len().min(PIECES_MAX);
    // SAFETY: all-zero bytes are valid for these plain C structures.
    let (mut header, mut parts): (libc::msghdr, [libc::iovec; PIECES_MAX]) = unsafe { zeroed() };
    for (part, piece) in parts.iter_mut().zip(pieces) {
        *part = libc::iovec { iov_base: piece.as_ptr().cast_mut().cast(), iov_len: piece.len() };
    }
    if let Some(to) = to {
        header.msg_name = (&raw const to.storage).cast_mut().cast();
        header.msg_namelen = to.len;
    }
    header.msg_iov = parts.as_mut_ptr();
    header.msg_iovlen = count;
    let mut control = Control::EMPTY;
    if let Some(segment) = segment {
        control.set_segment(segment);
        header.msg_control = (&raw mut control).cast();
        header.msg_controllen = Control::SEGMENT_BYTES;
    }
    // SAFETY: the header points to a name, `count` pieces and a control that live until the call returns; the kernel only
    // reads through them.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const header, libc::MSG_DONTWAIT) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The quickest way for one datagram, where the socket is connected.
fn send_plainly(socket: &UdpSocket, datagram: &[u8]) -> io::Result<()> {
    // SAFETY: the kernel reads `len` bytes from the live slice and keeps no pointer to it.
    let sent = unsafe { libc::send(socket.as_raw_fd(), datagram.as_ptr().cast(), datagram.len(), libc::MSG_DONTWAIT) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// What leaves with one entry of a batch: a datagram, or a run of datagrams of `segment` bytes.
pub(super) struct Outgoing<'a> {
    /// `None`: to where the socket is connected to.
    pub to: Option<&'a RawAddress>,
    pub bytes: &'a [u8],
    pub segment: Option<u16>,
}

/// Sends a batch (at most [`BATCH_MAX`]); returns how many entries the kernel took, at least one.
pub(super) fn send_batch(socket: &UdpSocket, batch: &[Outgoing<'_>]) -> io::Result<usize> {
    if let [only] = batch {
        return send_gathered(socket, only.to, &[only.bytes], only.segment).map(|()| 1);
    }
    let count = batch.len().min(BATCH_MAX);
    // SAFETY: all-zero bytes are valid for these plain C structures.
    let (mut headers, mut parts): ([libc::mmsghdr; BATCH_MAX], [libc::iovec; BATCH_MAX]) = unsafe { zeroed() };
    let mut controls = [Control::EMPTY; BATCH_MAX];
    for (index, outgoing) in batch[..count].iter().enumerate() {
        parts[index] =
            libc::iovec { iov_base: outgoing.bytes.as_ptr().cast_mut().cast(), iov_len: outgoing.bytes.len() };
        let header = &mut headers[index].msg_hdr;
        if let Some(to) = outgoing.to {
            header.msg_name = (&raw const to.storage).cast_mut().cast();
            header.msg_namelen = to.len;
        }
        header.msg_iov = &raw mut parts[index];
        header.msg_iovlen = 1;
        if let Some(segment) = outgoing.segment {
            controls[index].set_segment(segment);
            header.msg_control = (&raw mut controls[index]).cast();
            header.msg_controllen = Control::SEGMENT_BYTES;
        }
    }
    // SAFETY: the first `count` headers point to names, parts and controls that live until the call returns; the kernel only
    // reads through them and writes `msg_len`.
    let sent = unsafe { libc::sendmmsg(socket.as_raw_fd(), headers.as_mut_ptr(), count as u32, libc::MSG_DONTWAIT) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
}

/// Room for control messages, aligned as `cmsghdr` wants it.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; CONTROL_BYTES]);

const CMSG_DATA_OFFSET: usize = size_of::<libc::cmsghdr>();

impl Control {
    const EMPTY: Control = Control([0; CONTROL_BYTES]);
    /// `CMSG_SPACE` of a 16-bit integer.
    const SEGMENT_BYTES: usize = CMSG_DATA_OFFSET + 8;

    fn set_segment(&mut self, segment: u16) {
        let header = libc::cmsghdr {
            cmsg_len: CMSG_DATA_OFFSET + size_of::<u16>(),
            cmsg_level: libc::SOL_UDP,
            cmsg_type: libc::UDP_SEGMENT,
        };
        // SAFETY: Control is aligned for and longer than a cmsghdr, which is plain data.
        unsafe { (&raw mut self.0).cast::<libc::cmsghdr>().write(header) };
        self.0[CMSG_DATA_OFFSET..CMSG_DATA_OFFSET + 2].copy_from_slice(&segment.to_ne_bytes());
    }

    /// The size of the datagrams in a merged train, from what the kernel has written.
    fn merged_segment(&self, written: usize) -> Option<usize> {
        let mut at = 0;
        while at + CMSG_DATA_OFFSET <= written.min(CONTROL_BYTES) {
            // SAFETY: `at` is a multiple of 8 and a whole cmsghdr lies inside the buffer; every bit pattern is a valid one.
            let header = unsafe { self.0.as_ptr().add(at).cast::<libc::cmsghdr>().read() };
            if header.cmsg_level == libc::SOL_UDP && header.cmsg_type == libc::UDP_GRO {
                let data = self.0.get(at + CMSG_DATA_OFFSET..)?.first_chunk::<4>()?;
                return usize::try_from(i32::from_ne_bytes(*data)).ok().filter(|&segment| segment > 0);
            }
            at += header.cmsg_len.max(CMSG_DATA_OFFSET).next_multiple_of(8);
        }
        None
    }
}

/// Buffers for one batch of received datagrams.
pub(super) struct Inbox {
    /// `BATCH_MAX` buffers; the kernel backs with memory only what was once used.
    buffers: Vec<u8>,
    names: Box<[RawAddress; BATCH_MAX]>,
    controls: Box<[Control; BATCH_MAX]>,
    lens: [usize; BATCH_MAX],
    segments: [Option<usize>; BATCH_MAX],
    truncated: [bool; BATCH_MAX],
}

impl Inbox {
    pub fn new() -> Inbox {
        let nobody = RawAddress::new(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
        Inbox {
            buffers: vec![0; BATCH_MAX * BUFFER_BYTES],
            names: Box::new([nobody; BATCH_MAX]),
            controls: Box::new([Control::EMPTY; BATCH_MAX]),
            lens: [0; BATCH_MAX],
            segments: [None; BATCH_MAX],
            truncated: [false; BATCH_MAX],
        }
    }

    /// Receives at most `count` datagrams or trains; returns how many.
    pub fn receive(&mut self, socket: &UdpSocket, count: usize) -> io::Result<usize> {
        // An idle poll asks for one: it should not pay for the tables of many.
        match count {
            0..=1 => self.receive_up_to::<1>(socket),
            2..=8 => self.receive_up_to::<8>(socket),
            _ => self.receive_up_to::<BATCH_MAX>(socket),
        }
    }

    /// Receives one datagram or train from a connected socket the quickest way, without asking who sent it and what it was joined
    /// of; returns its length.
    pub fn receive_plainly(&mut self, socket: &UdpSocket) -> io::Result<usize> {
        let buffer = &mut self.buffers[..BUFFER_BYTES];
        let (at, len) = (buffer.as_mut_ptr().cast(), buffer.len());
        // SAFETY: the kernel writes at most `len` bytes to the buffer, which nothing else refers to until the call returns.
        let got = unsafe { libc::recv(socket.as_raw_fd(), at, len, libc::MSG_DONTWAIT) };
        if got < 0 { Err(io::Error::last_os_error()) } else { Ok((got as usize).min(BUFFER_BYTES)) }
    }

    /// As [`Inbox::receive_plainly`], with the bytes behind the first `front` ones put to `place` as far as there is room for them, and
    /// what is more behind that, where it would be in one piece. Returns the length of the whole.
    pub fn receive_around(&mut self, socket: &UdpSocket, front: usize, place: &mut [u8]) -> io::Result<usize> {
        let (before, behind) = self.buffers[..BUFFER_BYTES].split_at_mut(front);
        let room = place.len().min(behind.len());
        let mut parts = [
            libc::iovec { iov_base: before.as_mut_ptr().cast(), iov_len: before.len() },
            libc::iovec { iov_base: place.as_mut_ptr().cast(), iov_len: room },
            libc::iovec { iov_base: behind[room..].as_mut_ptr().cast(), iov_len: behind.len() - room },
        ];
        // SAFETY: all-zero bytes are a valid msghdr.
        let mut header: libc::msghdr = unsafe { zeroed() };
        (header.msg_iov, header.msg_iovlen) = (parts.as_mut_ptr(), parts.len());
        // SAFETY: the three parts are live and apart from each other, as long as stated, and nothing else refers to them until the
        // call returns.
        let got = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_DONTWAIT) };
        if got < 0 { Err(io::Error::last_os_error()) } else { Ok((got as usize).min(BUFFER_BYTES)) }
    }

    fn receive_up_to<const COUNT: usize>(&mut self, socket: &UdpSocket) -> io::Result<usize> {
        // SAFETY: all-zero bytes are valid for these plain C structures.
        let (mut headers, mut parts): ([libc::mmsghdr; COUNT], [libc::iovec; COUNT]) = unsafe { zeroed() };
        for (index, buffer) in self.buffers.chunks_exact_mut(BUFFER_BYTES).enumerate().take(COUNT) {
            parts[index] = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: BUFFER_BYTES };
            let header = &mut headers[index].msg_hdr;
            header.msg_name = (&raw mut self.names[index].storage).cast();
            header.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            header.msg_iov = &raw mut parts[index];
            header.msg_iovlen = 1;
            header.msg_control = (&raw mut self.controls[index]).cast();
            header.msg_controllen = CONTROL_BYTES;
        }
        let fd = socket.as_raw_fd();
        let got = if COUNT == 1 {
            // The plain call is the quicker one.
            // SAFETY: as below, for the one header.
            let bytes = unsafe { libc::recvmsg(fd, &raw mut headers[0].msg_hdr, libc::MSG_DONTWAIT) };
            headers[0].msg_len = u32::try_from(bytes).unwrap_or(0);
            if bytes < 0 { -1 } else { 1 }
        } else {
            let none = std::ptr::null_mut();
            // SAFETY: the headers point to buffers, names and controls of `self`, each as long as stated, which nothing
            // else refers to until the call returns.
            unsafe { libc::recvmmsg(fd, headers.as_mut_ptr(), COUNT as u32, libc::MSG_DONTWAIT, none) as isize }
        };
        if got < 0 {
            return Err(io::Error::last_os_error());
        }
        for (index, header) in headers[..got as usize].iter().enumerate() {
            self.names[index].len = header.msg_hdr.msg_namelen;
            self.lens[index] = (header.msg_len as usize).min(BUFFER_BYTES);
            self.segments[index] = self.controls[index].merged_segment(header.msg_hdr.msg_controllen);
            self.truncated[index] = header.msg_hdr.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0;
        }
        Ok(got as usize)
    }

    /// Sender of the datagram or train at `index` of the last batch; `None` when it was cut short.
    pub fn sender(&self, index: usize) -> Option<SocketAddr> {
        if self.truncated[index] { None } else { self.names[index].address() }
    }

    /// Bytes of the datagram or train, and of each datagram in it.
    pub fn shape(&self, index: usize) -> (usize, usize) {
        let len = self.lens[index];
        (len, self.segments[index].unwrap_or(len).min(len))
    }

    pub fn bytes(&mut self, index: usize, start: usize, end: usize) -> &mut [u8] {
        let base = index * BUFFER_BYTES;
        &mut self.buffers[base + start..base + end]
    }
}

/// Sets an integer option.
pub(super) fn set_option(socket: &UdpSocket, level: i32, name: i32, value: i32) -> io::Result<()> {
    let len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the option value is a live i32 and `len` is its size.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), len) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Reads an integer option.
pub(super) fn option(socket: &UdpSocket, level: i32, name: i32) -> io::Result<i32> {
    let mut value = 0i32;
    let mut len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, the size of the live i32 given.
    let result = unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut len) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

/// Lets only what this program passes come into the socket's buffer, in place of an earlier one's.
pub(super) fn attach_sieve(socket: &UdpSocket, program: &[Instruction]) -> io::Result<()> {
    let mut filter: Vec<libc::sock_filter> = program
        .iter()
        .map(|one| libc::sock_filter { code: one.code, jt: one.if_true, jf: one.if_false, k: one.value })
        .collect();
    let len = u16::try_from(filter.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let whole = libc::sock_fprog { len, filter: filter.as_mut_ptr() };
    let (value, bytes) = ((&raw const whole).cast(), size_of::<libc::sock_fprog>() as libc::socklen_t);
    // SAFETY: the option value is a live sock_fprog whose `len` instructions live until the call returns; the kernel copies and
    // checks them.
    let result =
        unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, value, bytes) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Lets everything in again.
pub(super) fn detach_sieve(socket: &UdpSocket) {
    // Refused only where none is attached.
    let _ = set_option(socket, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, 0);
}

/// Datagrams for this socket that the kernel has thrown away: sieved, or for want of room. Counts modulo 2^32.
pub(super) fn dropped(socket: &UdpSocket) -> u32 {
    /// `SO_MEMINFO` of Linux's `asm-generic/socket.h`, and the place of `SK_MEMINFO_DROPS` in what it answers.
    const MEMINFO: i32 = 55;
    const DROPS: usize = 8;
    let mut words = [0u32; DROPS + 1];
    let mut len = size_of_val(&words) as libc::socklen_t;
    let value = words.as_mut_ptr().cast();
    // SAFETY: the kernel writes at most `len` bytes, the size of the live array given.
    let result = unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, MEMINFO, value, &raw mut len) };
    if result < 0 { 0 } else { words[DROPS] }
}

/// What the route to `to` carries in one IP packet, as the kernel knows it at present.
pub(super) fn path_mtu(local: SocketAddr, to: SocketAddr) -> io::Result<usize> {
    let probe = UdpSocket::bind(SocketAddr::new(local.ip(), 0))?;
    probe.connect(to)?;
    let mtu = match to {
        SocketAddr::V4(_) => option(&probe, libc::IPPROTO_IP, libc::IP_MTU)?,
        SocketAddr::V6(_) => option(&probe, libc::IPPROTO_IPV6, libc::IPV6_MTU)?,
    };
    usize::try_from(mtu).map_err(|_| io::ErrorKind::InvalidData.into())
}
