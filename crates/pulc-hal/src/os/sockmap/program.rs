//! The two programs of a sockmap, as instructions of the kernel's BPF machine: few enough to be written by hand, and a compiler for them would be
//! one more thing to install. Registers 1 to 5 are arguments, 6 to 9 stay over calls, 10 is the end of the stack.
//! Source: the kernel's Documentation/bpf/standardization/instruction-set.rst, linux/bpf.h.

/// One instruction.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Instruction {
    code: u8,
    /// Destination in the lower half, source in the upper one.
    registers: u8,
    offset: i16,
    immediate: i32,
}

const MOVE: u8 = 0xbf;
const MOVE_NUMBER: u8 = 0xb7;
const ADD_NUMBER: u8 = 0x07;
const LOAD_WORD: u8 = 0x61;
const LOAD_BYTE: u8 = 0x71;
const LOAD_LONG: u8 = 0x79;
const STORE_WORD: u8 = 0x63;
const STORE_WORD_NUMBER: u8 = 0x62;
const STORE_BYTE_NUMBER: u8 = 0x72;
const LOAD_MAP: u8 = 0x18;
const FROM_MAP: u8 = 1;
const TO_BIG_ENDIAN: u8 = 0xdc;
const JUMP: u8 = 0x05;
const JUMP_IF: u8 = 0x15;
const JUMP_UNLESS: u8 = 0x55;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;

const LOOKUP: i32 = 1;
const UPDATE: i32 = 2;
const DELETE: i32 = 3;
const SET_CALLBACKS: i32 = 59;
const PUT_SOCKET: i32 = 70;
const REDIRECT: i32 = 71;

const ACTIVE: i32 = 4;
const PASSIVE: i32 = 5;
const STATE: i32 = 10;
const CALL_ON_STATE: i32 = 1 << 2;
const TCP_CLOSE: i32 = 7;
const AF_INET: i32 = 2;
const AF_INET6: i32 = 10;
const TO_READER: i32 = 1;
/// The first word of an IPv6 address that stands for one of IPv4, before that.
const MAPPED: i32 = i32::from_ne_bytes([0, 0, 0xff, 0xff]);

/// Of a direction: nothing sent yet, all by the kernel, all by the map.
const BY_KERNEL: i32 = 1;
const BY_MAP: i32 = 2;

/// A connection's addresses on the stack: of one end, of the other, both ports.
pub const KEY_BYTES: u32 = 40;
const KEY: i16 = -40;
const VALUE: i16 = -48;

/// Where a program's argument has them.
struct Places {
    family: i16,
    local4: i16,
    local6: i16,
    remote4: i16,
    remote6: i16,
    local_port: i16,
    remote_port: i16,
}

const OF_SOCKET: Places =
    Places { family: 20, local4: 28, local6: 48, remote4: 24, remote6: 32, local_port: 68, remote_port: 64 };
const AT_STATE: i16 = 8;
const AT_BYTES_RECEIVED: i16 = 168;
const OF_MESSAGE: Places =
    Places { family: 16, local4: 24, local6: 44, remote4: 20, remote6: 28, local_port: 64, remote_port: 60 };

/// A place to jump to.
#[derive(Clone, Copy)]
struct Label(usize);

#[derive(Default)]
struct Program {
    code: Vec<Instruction>,
    labels: Vec<usize>,
    jumps: Vec<(usize, Label)>,
}

impl Program {
    fn put(&mut self, code: u8, to: u8, from: u8, offset: i16, immediate: i32) {
        self.code.push(Instruction { code, registers: to | from << 4, offset, immediate });
    }

    fn label(&mut self) -> Label {
        self.labels.push(0);
        Label(self.labels.len() - 1)
    }

    fn here(&mut self, label: Label) {
        self.labels[label.0] = self.code.len();
    }

    fn jump(&mut self, code: u8, register: u8, number: i32, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.put(code, register, 0, 0, number);
    }

    fn map(&mut self, register: u8, map: i32) {
        self.put(LOAD_MAP, register, FROM_MAP, 0, map);
        self.put(0, 0, 0, 0, 0);
    }

    /// The address of the stack's `at`.
    fn stack(&mut self, register: u8, at: i16) {
        self.put(MOVE, register, 10, 0, 0);
        self.put(ADD_NUMBER, register, 0, 0, i32::from(at));
    }

    /// The connection's addresses on the stack, the own end's first, or the other's; the argument is in register 6.
    fn key(&mut self, places: &Places, own_first: bool) {
        let (own, other) = if own_first { (KEY, KEY + 16) } else { (KEY + 16, KEY) };
        let (own_port, other_port) = if own_first { (KEY + 32, KEY + 36) } else { (KEY + 36, KEY + 32) };
        let (six, ports) = (self.label(), self.label());
        self.put(LOAD_WORD, 1, 6, places.family, 0);
        self.jump(JUMP_IF, 1, AF_INET6, six);
        for (to, from) in [(own, places.local4), (other, places.remote4)] {
            self.put(STORE_WORD_NUMBER, 10, 0, to, 0);
            self.put(STORE_WORD_NUMBER, 10, 0, to + 4, 0);
            self.put(STORE_WORD_NUMBER, 10, 0, to + 8, MAPPED);
            self.put(LOAD_WORD, 1, 6, from, 0);
            self.put(STORE_WORD, 10, 1, to + 12, 0);
        }
        self.jump(JUMP, 0, 0, ports);
        self.here(six);
        for (to, from) in [(own, places.local6), (other, places.remote6)] {
            for word in 0..4 {
                self.put(LOAD_WORD, 1, 6, from + 4 * word, 0);
                self.put(STORE_WORD, 10, 1, to + 4 * word, 0);
            }
        }
        self.here(ports);
        self.put(LOAD_WORD, 1, 6, places.local_port, 0);
        self.put(STORE_WORD, 10, 1, own_port, 0);
        self.put(LOAD_WORD, 1, 6, places.remote_port, 0);
        self.put(TO_BIG_ENDIAN, 1, 0, 0, 32);
        self.put(STORE_WORD, 10, 1, other_port, 0);
    }

    /// Returns 1 where `out` is.
    fn end(mut self, out: Label) -> Vec<Instruction> {
        self.here(out);
        self.put(MOVE_NUMBER, 0, 0, 0, 1);
        self.put(EXIT, 0, 0, 0, 0);
        for (at, label) in &self.jumps {
            self.code[*at].offset = (self.labels[label.0] - at - 1) as i16;
        }
        self.code
    }
}

/// Run when a connection of the group changes: puts a new one into the map of sockets, and notes that nothing was sent by it.
pub fn on_connections(sockets: i32, states: i32) -> Vec<Instruction> {
    let mut program = Program::default();
    let (new, known, gone, out) = (program.label(), program.label(), program.label(), program.label());
    program.put(MOVE, 6, 1, 0, 0);
    program.put(LOAD_WORD, 7, 6, 0, 0);
    program.jump(JUMP_IF, 7, ACTIVE, new);
    program.jump(JUMP_IF, 7, PASSIVE, new);
    program.jump(JUMP_UNLESS, 7, STATE, out);
    program.put(LOAD_WORD, 1, 6, AT_STATE, 0);
    program.jump(JUMP_UNLESS, 1, TCP_CLOSE, out);
    program.here(new);
    program.put(LOAD_WORD, 1, 6, OF_SOCKET.family, 0);
    program.jump(JUMP_IF, 1, AF_INET, known);
    program.jump(JUMP_UNLESS, 1, AF_INET6, out);
    program.here(known);
    program.key(&OF_SOCKET, true);
    program.jump(JUMP_IF, 7, STATE, gone);
    // What has come already (TCP fast open) would be read after what comes by the map.
    program.put(LOAD_LONG, 1, 6, AT_BYTES_RECEIVED, 0);
    program.jump(JUMP_UNLESS, 1, 0, out);
    program.put(STORE_BYTE_NUMBER, 10, 0, VALUE, 0);
    program.map(1, states);
    program.stack(2, KEY);
    program.stack(3, VALUE);
    program.put(MOVE_NUMBER, 4, 0, 0, 0);
    program.put(CALL, 0, 0, 0, UPDATE);
    // Without a note it stays on the kernel.
    program.jump(JUMP_UNLESS, 0, 0, out);
    program.put(MOVE, 1, 6, 0, 0);
    program.put(MOVE_NUMBER, 2, 0, 0, CALL_ON_STATE);
    program.put(CALL, 0, 0, 0, SET_CALLBACKS);
    program.put(MOVE, 1, 6, 0, 0);
    program.map(2, sockets);
    program.stack(3, KEY);
    program.put(MOVE_NUMBER, 4, 0, 0, 0);
    program.put(CALL, 0, 0, 0, PUT_SOCKET);
    program.jump(JUMP, 0, 0, out);
    program.here(gone);
    program.map(1, states);
    program.stack(2, KEY);
    program.put(CALL, 0, 0, 0, DELETE);
    program.end(out)
}

/// Run for what a connection in the map sends: hands it to the other end's socket if that is in the map too. What a direction's first message found is so
/// for all that follow: the kernel hands out what came by the map before what came by TCP, whichever was sent first.
pub fn on_messages(sockets: i32, states: i32) -> Vec<Instruction> {
    let mut program = Program::default();
    let (found, out) = (program.label(), program.label());
    program.put(MOVE, 6, 1, 0, 0);
    program.key(&OF_MESSAGE, true);
    program.map(1, states);
    program.stack(2, KEY);
    program.put(CALL, 0, 0, 0, LOOKUP);
    program.jump(JUMP_IF, 0, 0, out);
    program.put(MOVE, 7, 0, 0, 0);
    program.put(LOAD_BYTE, 8, 7, 0, 0);
    program.jump(JUMP_IF, 8, BY_KERNEL, out);
    program.key(&OF_MESSAGE, false);
    program.put(MOVE, 1, 6, 0, 0);
    program.map(2, sockets);
    program.stack(3, KEY);
    program.put(MOVE_NUMBER, 4, 0, 0, TO_READER);
    program.put(CALL, 0, 0, 0, REDIRECT);
    program.jump(JUMP_IF, 8, BY_MAP, out);
    program.jump(JUMP_IF, 0, 1, found);
    program.put(STORE_BYTE_NUMBER, 7, 0, 0, BY_KERNEL);
    program.jump(JUMP, 0, 0, out);
    program.here(found);
    program.put(STORE_BYTE_NUMBER, 7, 0, 0, BY_MAP);
    program.end(out)
}
