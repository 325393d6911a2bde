//! Garbage to the local socket of this job's keeper, in connections of its own.

use super::Chance;
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use std::sync::atomic::{AtomicBool, Ordering};

/// Connects, says something, and sometimes stays; until told to stop. How often.
pub fn garbage(keeper: &str, mut random: Chance, stop: &AtomicBool) -> u64 {
    let address = SocketAddrUnix::new_abstract_name(keeper.as_bytes()).expect("a name of the keeper's own making");
    let mut times = 0;
    let mut staying = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        std::thread::yield_now();
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let made = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let Ok(socket) = made else { continue };
        if rustix::net::connect(&socket, &address).is_err() {
            continue;
        }
        let bytes: Vec<u8> = (0..random.below(300)).map(|_| random.word() as u8).collect();
        let _ = rustix::net::send(&socket, &bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        times += 1;
        // Some never say hello.
        if random.once_in(4) && staying.len() < 50 {
            staying.push(socket);
        }
    }
    times
}
