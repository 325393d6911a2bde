//! What the `udp` device does while somebody floods its sockets: filters in the kernel. Each connected socket gets the program
//! that its owner writes for that peer; the bound one then hears only peers that are not heard on sockets of their own.
//! Called by the owner, rarely; what the kernel refuses leaves things as they were.

use super::Peer;
use super::udp::Udp;
use pulc_base::sieve::{IF_EQUAL, IP_HEADER, Instruction, LOAD_HALF, LOAD_WORD, PROGRAM_MAX, RETURN, WHOLE};
use std::net::{IpAddr, SocketAddr};

/// Where the source stands in the headers of IP.
const SOURCE_V4: u32 = 12;
const SOURCE_V6: u32 = 8;

impl Udp {
    /// From now on only what `program` passes is heard of this peer, if it is heard on a socket of its own.
    pub fn sieve(&mut self, peer: Peer, program: &[Instruction]) {
        if let Some(Some(destination)) = self.peers.get(peer.0 as usize) {
            self.paths.sieve(destination.path, program);
        }
    }

    /// From now on the bound socket hears only those it may have to hear.
    pub fn sieve_strangers(&mut self) {
        let known = self.peers.iter().flatten();
        let heard_here = known.filter(|peer| !self.paths.is_settled(peer.path)).map(|peer| peer.address);
        let program = from_these(heard_here);
        if program.len() <= PROGRAM_MAX {
            self.paths.sieve_bound(&program);
        }
    }

    /// Everything is heard again.
    pub fn lift_sieves(&mut self) {
        self.paths.lift_sieves();
    }

    /// Frames of senders that are no peers, or that came cut short.
    #[inline]
    pub fn frames_refused(&self) -> u64 {
        self.counters.frames_refused
    }

    /// Datagrams that the kernel has thrown away, sieved or for want of room.
    pub fn dropped(&self) -> u64 {
        self.paths.dropped()
    }
}

/// A program that passes what comes from these addresses.
fn from_these(addresses: impl Iterator<Item = SocketAddr>) -> Vec<Instruction> {
    let mut program = Vec::new();
    for address in addresses {
        let (at, words): (u32, Vec<u32>) = match address.ip() {
            IpAddr::V4(ip) => (SOURCE_V4, vec![ip.to_bits()]),
            IpAddr::V6(ip) => (SOURCE_V6, (0..4).map(|word| (ip.to_bits() >> (96 - 32 * word)) as u32).collect()),
        };
        let mut tests: Vec<(u16, u32, u32)> =
            (0..).zip(words).map(|(word, value)| (LOAD_WORD, IP_HEADER + at + 4 * word, value)).collect();
        tests.push((LOAD_HALF, 0, u32::from(address.port())));
        // Two instructions a test, and the return.
        let mut left_out = 2 * tests.len() as u8 + 1;
        for (load, from, value) in tests {
            left_out -= 2;
            program.push(Instruction::new(load, from));
            program.push(Instruction { if_false: left_out, ..Instruction::new(IF_EQUAL, value) });
        }
        program.push(Instruction::new(RETURN, WHOLE));
    }
    program.push(Instruction::new(RETURN, 0));
    program
}
