//! Somebody on the network: one who listens, and one who listens and then sends whatever could fool a rank, as fast as the
//! machine can. Both end when their standard input does.

use crate::ranks::SECRET;
use pulc_base::clock::{Nanos, now};
use pulc_base::{JobId, Rank};
use pulc_link::{Config, Link, LinkKeys, MAGIC_VERSION};
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const IP_BYTES: usize = 20;
const UDP_BYTES: usize = 8;
const UDP: u8 = 17;
/// `ETH_P_ALL` in network order, and `IPPROTO_RAW`.
const EVERY_PROTOCOL: u32 = 0x0300;
const RAW: u32 = 255;
/// Frames kept to be used against their receivers.
const RECORDED_MAX: usize = 64;

fn ended() -> Arc<AtomicBool> {
    let ended = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&ended);
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        told.store(true, Ordering::Relaxed);
    });
    ended
}

fn socket(family: AddressFamily, kind: SocketType, protocol: u32) -> OwnedFd {
    let protocol = Protocol::from_raw(protocol.try_into().expect("not zero"));
    rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, Some(protocol)).expect("root of this network")
}

/// Hears every packet of this host, from the IP header on.
fn ear() -> OwnedFd {
    let ear = socket(AddressFamily::PACKET, SocketType::DGRAM, EVERY_PROTOCOL);
    let patience = Some(Duration::from_millis(20));
    rustix::net::sockopt::set_socket_timeout(&ear, rustix::net::sockopt::Timeout::Recv, patience).expect("a timeout");
    ear
}

pub fn listen() {
    let (ear, ended) = (ear(), ended());
    println!("begun");
    let (mut buffer, mut packets, mut secrets) = (vec![0; 1 << 17], 0u64, 0u64);
    let mut last_look = false;
    loop {
        match rustix::net::recv(&ear, &mut buffer[..], RecvFlags::empty()) {
            Ok((bytes, _)) => {
                packets += 1;
                let whole = SECRET.as_bytes();
                secrets += u64::from(buffer[..bytes].windows(whole.len()).any(|window| window == whole));
            }
            // Nothing more is there: what came before the end has been looked at.
            Err(_) if last_look => break,
            Err(_) => {}
        }
        last_look = ended.load(Ordering::Relaxed);
    }
    let much = if packets > 50 { "heard much" } else { "heard little" };
    println!("{much}: {packets} packets{}", if secrets > 0 { ", and read it" } else { "" });
}

/// A frame of the job as it was on the wire.
struct Recorded {
    src: SocketAddrV4,
    dst: SocketAddrV4,
    frame: Vec<u8>,
}

fn recorded(packet: &[u8]) -> Option<Recorded> {
    let header = packet.first_chunk::<{ IP_BYTES + UDP_BYTES }>()?;
    let address = |at: usize| Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]);
    let port = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let frame = &packet[IP_BYTES + UDP_BYTES..];
    if header[0] != 0x45 || header[9] != UDP || frame.first() != Some(&MAGIC_VERSION) {
        return None;
    }
    let frame = frame[..frame.len().min(1472)].to_vec();
    Some(Recorded {
        src: SocketAddrV4::new(address(12), port(20)),
        dst: SocketAddrV4::new(address(16), port(22)),
        frame,
    })
}

/// An IP packet with whatever source.
fn forge(src: SocketAddrV4, dst: SocketAddrV4, frame: &[u8]) -> Vec<u8> {
    let len = (UDP_BYTES + frame.len()) as u16;
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, UDP, 0, 0];
    // The kernel completes length, number and checksum of the header; a checksum of UDP may be left out.
    packet.extend_from_slice(&src.ip().octets());
    packet.extend_from_slice(&dst.ip().octets());
    for word in [src.port(), dst.port(), len, 0] {
        packet.extend_from_slice(&word.to_be_bytes());
    }
    packet.extend_from_slice(frame);
    packet
}

/// A well-made frame of another job between the same ranks.
fn foreign(frame: &[u8]) -> Vec<u8> {
    let rank = |at: usize| Rank(u32::from_le_bytes(frame[at..at + 4].try_into().expect("four bytes")));
    let config = Config::from_params(1472, 1, 1 << 20);
    let mut link = Link::new(config, LinkKeys::derive(&[9; 32], JobId(1), rank(4), rank(8)), now());
    link.send(now(), [b"obey me", &[]]).expect("an empty link has room");
    let mut out = vec![0; 1472];
    let (_, len) = link.transmit(now(), &mut out).expect("a packet is due");
    out.truncate(len);
    out
}

/// The ways in which frame number `turn` is made of a recorded one.
fn spoil(recorded: &Recorded, turn: u64) -> (SocketAddrV4, Vec<u8>) {
    let (mut src, mut frame) = (recorded.src, recorded.frame.clone());
    let place = (turn.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) as usize % frame.len();
    match turn % 9 {
        // Replayed as it was, out of its order.
        0 | 1 => {}
        2 => frame.truncate(place),
        3 => frame[place] ^= 1 << (turn / 9 % 8),
        // Redirected: what one rank said to another as if the other had said it.
        4 => (0..4).for_each(|byte| frame.swap(4 + byte, 8 + byte)),
        // From the future.
        5 => frame[21] ^= 1,
        6 => frame = foreign(&frame),
        7 => src = SocketAddrV4::new(Ipv4Addr::new(10, 77, 0, 99), src.port()),
        _ => frame = (0..place).map(|byte| (byte as u64 ^ turn) as u8).collect(),
    }
    (src, frame)
}

pub fn attack() {
    let (ear, ended) = (ear(), ended());
    let mouth = socket(AddressFamily::INET, SocketType::RAW, RAW);
    println!("begun");
    let (mut buffer, mut known, mut turn, mut sent) = (vec![0; 1 << 17], Vec::<Recorded>::new(), 0u64, 0u64);
    let mut heard_at = Nanos(0);
    while !ended.load(Ordering::Relaxed) {
        // Listen until there is something to use, and now and then for newer frames.
        if known.is_empty() || now().since(heard_at) > Nanos::from_ms(100) {
            heard_at = now();
            for _ in 0..100 {
                let Ok((bytes, _)) = rustix::net::recv(&ear, &mut buffer[..], RecvFlags::empty()) else { break };
                // Only frames that leave this host: towards it nothing can be sent with another's source.
                let here = |frame: &Recorded| frame.frame.len() >= 64 && is_here(*frame.src.ip());
                if let Some(frame) = recorded(&buffer[..bytes]).filter(here) {
                    if known.len() >= RECORDED_MAX {
                        known.swap_remove(turn as usize % RECORDED_MAX);
                    }
                    known.push(frame);
                }
            }
        }
        for _ in 0..256 {
            let Some(victim) = known.get(turn as usize / 9 % known.len().max(1)) else { break };
            turn += 1;
            let (src, frame) = spoil(victim, turn);
            let done = rustix::net::sendto(&mouth, &forge(src, victim.dst, &frame), SendFlags::empty(), &victim.dst);
            sent += u64::from(done.is_ok());
        }
    }
    println!("attacked with {sent} frames");
}

/// Whether an address is one of this host's.
fn is_here(address: Ipv4Addr) -> bool {
    std::net::UdpSocket::bind((address, 0)).is_ok()
}
