//! A program for the kernel's socket filter that lets through only what a link may take next: frames of this pair and this
//! rail, whole, with a counter that is new. Made by the owner when somebody floods a link, so that what does not even look
//! right dies before it takes room in the socket's buffer and the process's time; what passes still has to verify.
//!
//! It knows the counters up to the moment it was made, so it is made anew while frames keep being refused. A train that the
//! network tears apart does not pass: it is repeated in parts. It tells nothing that is not on the wire.
//!
//! Source: Linux `Documentation/networking/filter.rst` (classic BPF); bpf(4) of BSD, where it comes from.

use crate::link::{Link, Rail};
use crate::wire::{MAGIC_VERSION, OVERHEAD};
use pulc_base::sieve::{
    IF_ANY_BIT, IF_AT_LEAST, IF_AT_LEAST_X, IF_EQUAL, Instruction, LOAD_BYTE, LOAD_LEN, LOAD_VALUE, LOAD_WORD, OR_X,
    RETURN, SHIFT_LEFT, SHIFT_RIGHT_X, SUB, TO_X, UDP_HEADER_BYTES, WHOLE,
};

/// How far above the newest counter seen one may be: more frames than leave while one sieve serves.
const AHEAD_MAX: u32 = 1 << 24;

/// Collects instructions.
#[derive(Default)]
struct Program(Vec<Instruction>);

impl Program {
    fn put(&mut self, code: u16, value: u32) {
        self.jump(code, value, 0, 0);
    }

    fn jump(&mut self, code: u16, value: u32, if_true: u8, if_false: u8) {
        self.0.push(Instruction { code, value, if_true, if_false });
    }

    /// Goes on if the test holds, refuses the frame otherwise.
    fn demand(&mut self, test: u16, value: u32) {
        self.jump(test, value, 1, 0);
        self.put(RETURN, 0);
    }

    /// Goes on unless the test holds.
    fn forbid(&mut self, test: u16, value: u32) {
        self.jump(test, value, 0, 1);
        self.put(RETURN, 0);
    }

    /// Loads bytes of the frame that stand lowest first, at most four, into the accumulator.
    fn load(&mut self, at: u32, bytes: u32) {
        for byte in (0..bytes).rev() {
            if byte + 1 < bytes {
                self.put(SHIFT_LEFT, 8);
                self.put(TO_X, 0);
            }
            self.put(LOAD_BYTE, UDP_HEADER_BYTES + at + byte);
            if byte + 1 < bytes {
                self.put(OR_X, 0);
            }
        }
    }
}

impl Link {
    /// The filter for the socket that hears this link's peer, and it alone, on a rail.
    pub fn sieve(&self, rail: Rail) -> Vec<Instruction> {
        let mut program = Program::default();
        program.put(LOAD_LEN, 0);
        program.demand(IF_AT_LEAST, UDP_HEADER_BYTES + OVERHEAD as u32);
        program.put(LOAD_BYTE, UDP_HEADER_BYTES);
        program.demand(IF_EQUAL, u32::from(MAGIC_VERSION));
        program.put(LOAD_BYTE, UDP_HEADER_BYTES + 2);
        program.demand(IF_EQUAL, u32::from(rail.0));
        for (at, rank) in [(4, self.keys.peer), (8, self.keys.here)] {
            program.put(LOAD_WORD, UDP_HEADER_BYTES + at);
            program.demand(IF_EQUAL, rank.0.swap_bytes());
        }
        // The frame is all here; others may be joined behind it.
        program.load(22, 2);
        program.demand(IF_AT_LEAST, OVERHEAD as u32);
        program.put(TO_X, 0);
        program.put(LOAD_LEN, 0);
        program.put(SUB, UDP_HEADER_BYTES);
        program.demand(IF_AT_LEAST_X, 0);
        self.only_new_counters(&mut program);
        program.put(RETURN, WHOLE);
        program.0
    }

    /// The counter, 48 bits from byte 16 on, is one of the next, or one not seen among the last.
    fn only_new_counters(&self, program: &mut Program) {
        let (first, seen) = self.replay.latest();
        let (low, high) = (first as u32, (first >> 32) as u32);
        program.load(20, 2);
        if low.checked_add(AHEAD_MAX).is_some() {
            program.demand(IF_EQUAL, high);
        } else {
            // The low half may run over within the span.
            program.jump(IF_EQUAL, high, 2, 0);
            program.demand(IF_EQUAL, high + 1);
        }
        program.load(16, 4);
        program.put(SUB, low);
        program.forbid(IF_AT_LEAST, AHEAD_MAX);
        for half in [seen as u32, (seen >> 32) as u32] {
            // Beyond this half: on to the next.
            program.jump(IF_AT_LEAST, 32, 6, 0);
            program.put(TO_X, 0);
            program.put(LOAD_VALUE, half);
            program.put(SHIFT_RIGHT_X, 0);
            program.forbid(IF_ANY_BIT, 1);
            program.put(RETURN, WHOLE);
            program.put(SUB, 32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::keys::LinkKeys;
    use crate::wire::HEADER_BYTES;
    use pulc_base::clock::Nanos;
    use pulc_base::{JobId, Rank};

    /// What the kernel does with a program; true: the datagram passes.
    fn passes(program: &[Instruction], frame: &[u8]) -> bool {
        let packet = [&[0; UDP_HEADER_BYTES as usize], frame].concat();
        let (mut a, mut x, mut at) = (0u32, 0u32, 0);
        loop {
            let Instruction { code, if_true, if_false, value } = program[at];
            let load = |bytes: usize| {
                let bytes = packet.get(value as usize..value as usize + bytes)?;
                Some(bytes.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte)))
            };
            let mut test = None;
            match code {
                LOAD_BYTE | LOAD_WORD => {
                    // The kernel ends a program that reads beyond the packet.
                    let Some(loaded) = load(if code == LOAD_BYTE { 1 } else { 4 }) else {
                        return false;
                    };
                    a = loaded;
                }
                LOAD_LEN => a = packet.len() as u32,
                LOAD_VALUE => a = value,
                TO_X => x = a,
                SUB => a = a.wrapping_sub(value),
                OR_X => a |= x,
                SHIFT_LEFT => a <<= value,
                SHIFT_RIGHT_X => a = a.checked_shr(x).expect("shifts stay inside a word"),
                IF_EQUAL => test = Some(a == value),
                IF_AT_LEAST => test = Some(a >= value),
                IF_AT_LEAST_X => test = Some(a >= x),
                IF_ANY_BIT => test = Some(a & value != 0),
                RETURN => return value != 0,
                other => panic!("no such instruction: {other:#x}"),
            }
            at += 1 + usize::from(test.map_or(0, |holds| if holds { if_true } else { if_false }));
        }
    }

    fn pair() -> (Link, Link) {
        let link = |here, peer| {
            let keys = LinkKeys::derive(&[5; 32], JobId(9), Rank(here), Rank(peer));
            Link::new(Config::from_params(1472, 1, 1 << 20), keys, Nanos(0))
        };
        (link(1, 2), link(2, 1))
    }

    fn next_frame(from: &mut Link, now: Nanos) -> Vec<u8> {
        from.send(now, [b"forty-two", b""]).expect("there is room");
        let mut out = vec![0; 1472];
        let (_, len) = from.transmit(now, &mut out).expect("a packet is due");
        out.truncate(len);
        out
    }

    /// The far end after frames with these counters, and frames with all counters up to 400.
    fn after(heard: impl Fn(u64) -> bool, begin: u64) -> (Link, Vec<Vec<u8>>) {
        let (mut one, mut two) = pair();
        one.next_counter = begin;
        let frames: Vec<Vec<u8>> = (0..400).map(|_| next_frame(&mut one, Nanos(0))).collect();
        for (counter, frame) in (0..).zip(&frames).filter(|(counter, _)| heard(*counter)) {
            let mut frame = frame.clone();
            let taken = two.receive(Nanos(1), Rail(0), &mut frame);
            assert!(taken.is_ok(), "{counter}: {taken:?}");
        }
        (two, frames)
    }

    #[test]
    fn what_is_new_passes_and_what_was_seen_or_is_older_does_not() {
        // Also where the low half of the counter runs over, before, in and behind the last 64.
        for begin in [0, (1 << 32) - 330, (1 << 32) - 280, (1 << 32) - 200, (7 << 32) + 5] {
            let lost = |counter: u64| counter == 250 || counter == 299 - 40 || counter == 298;
            let (two, frames) = after(|counter| counter < 300 && !lost(counter), begin);
            let program = two.sieve(Rail(0));
            for (counter, frame) in (0..).zip(&frames) {
                assert_eq!(passes(&program, frame), counter >= 300 || lost(counter), "{begin}: {counter}");
            }
        }
    }

    #[test]
    fn before_anything_came_every_frame_of_the_pair_passes() {
        let (two, frames) = after(|_| false, 0);
        let program = two.sieve(Rail(0));
        assert!(frames.iter().all(|frame| passes(&program, frame)));
    }

    #[test]
    fn frames_that_do_not_look_right_do_not_pass() {
        let (two, frames) = after(|counter| counter < 10, 0);
        let (program, honest) = (two.sieve(Rail(0)), &frames[10]);
        assert!(passes(&program, honest));
        for len in 0..honest.len() {
            assert!(!passes(&program, &honest[..len]), "cut to {len} bytes");
        }
        for (byte, what) in
            [(0, "magic"), (2, "rail"), (4, "source"), (8, "destination"), (11, "destination"), (21, "future")]
        {
            let mut bent = honest.clone();
            bent[byte] ^= 1;
            assert!(!passes(&program, &bent), "{what}");
        }
        let joined = [honest.as_slice(), &frames[11]].concat();
        assert!(passes(&program, &joined), "joined by the kernel");
        assert!(!passes(&program, &[0; HEADER_BYTES + 100]));
        assert!(!passes(&two.sieve(Rail(1)), honest), "of another rail");
    }
}
