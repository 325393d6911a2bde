//! Instructions for the kernel's socket filters: written by those who know a format of frames, handed to the kernel by those
//! who hold sockets. Plain data; runs nothing.
//!
//! Source: Linux `Documentation/networking/filter.rst` (classic BPF).

/// One instruction, as `struct sock_filter`. Jumps say how many instructions are left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Instruction {
    pub code: u16,
    pub if_true: u8,
    pub if_false: u8,
    pub value: u32,
}

impl Instruction {
    pub const fn new(code: u16, value: u32) -> Instruction {
        Instruction { code, if_true: 0, if_false: 0, value }
    }
}

/// The kernel takes no longer program.
pub const PROGRAM_MAX: usize = 4096;

/// The filter of a UDP socket sees the UDP header first.
pub const UDP_HEADER_BYTES: u32 = 8;
/// Where the header of IP begins, for loads.
pub const IP_HEADER: u32 = 0xfff0_0000;
/// What a filter returns for a frame that passes: all of it.
pub const WHOLE: u32 = u32::MAX;

// Into the accumulator: from the frame, highest byte first; its length; the value itself.
pub const LOAD_BYTE: u16 = 0x30;
pub const LOAD_HALF: u16 = 0x28;
pub const LOAD_WORD: u16 = 0x20;
pub const LOAD_LEN: u16 = 0x80;
pub const LOAD_VALUE: u16 = 0x00;
/// The accumulator into the index register.
pub const TO_X: u16 = 0x07;
// On the accumulator, with the value or the index register.
pub const SUB: u16 = 0x14;
pub const OR_X: u16 = 0x4c;
pub const SHIFT_LEFT: u16 = 0x64;
pub const SHIFT_RIGHT_X: u16 = 0x7c;
// Tests of the accumulator.
pub const IF_EQUAL: u16 = 0x15;
pub const IF_AT_LEAST: u16 = 0x35;
pub const IF_AT_LEAST_X: u16 = 0x3d;
pub const IF_ANY_BIT: u16 = 0x45;
pub const RETURN: u16 = 0x06;
