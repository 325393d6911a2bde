//! Frames for the message handler of a job-mate: mostly ones that keep its rules and are nasty all the same, now and then
//! complete nonsense. Pure.

use super::Chance;

/// Longest frame made here that is no memory by reference.
pub const FRAME_MAX: usize = 16 << 10;

const FREE: u8 = 1;
const WHOLE: u8 = 0;
const FIRST: u8 = 1;
const ASK: u8 = 2;
const NEXT: u8 = 3;
const WITHDRAW: u8 = 6;
const RAWDATA: u8 = 1;
const PORT: u8 = 2;
const AM: u8 = 3;

/// Makes frames for one victim.
pub struct Frames {
    next_id: u32,
    /// Bytes that were sent as if there were credit for them; more would break the rules.
    charged: u64,
}

impl Frames {
    pub fn new() -> Frames {
        Frames { next_id: 0, charged: 0 }
    }

    /// The next frame. One in `nonsense` is of random bytes in random places.
    pub fn next(&mut self, random: &mut Chance, nonsense: u64) -> Vec<u8> {
        if random.once_in(nonsense) {
            return self.nonsense(random);
        }
        match random.below(16) {
            // Questions without end, whose answers nobody takes.
            0..=3 => self.whole(FREE, PORT, &port(random, 2), b"main"),
            // Names that nobody has.
            4 => {
                let name = format!("nobody {}", random.below(1 << 20));
                self.whole(FREE, PORT, &port(random, 2), name.as_bytes())
            }
            // Answers to questions that others were asked, and news of ports that are not closed.
            5 => self.whole(FREE, PORT, &port(random, 3), &[]),
            6 => self.whole(FREE, PORT, &port(random, 4), &[]),
            // Messages outside all credit, to be kept.
            7 => self.whole(FREE, PORT, &port(random, 0), &vec![0xee; random.below(2000) as usize]),
            8 => self.whole(FREE, PORT, &port(random, 1), &vec![0xee; random.below(2000) as usize]),
            9 => self.whole(FREE, RAWDATA, &rawdata(random), &vec![0xee; random.below(100) as usize]),
            10 => self.whole(FREE, AM, &am(random), &vec![0xee; random.below(100) as usize]),
            11 => {
                // A question for an endpoint, with credits without end.
                let map = [11 | 2 << 4, 4711, 1 << 40].map(u64::to_le_bytes).concat();
                self.whole(FREE, AM, &map, b"main\0hostile")
            }
            12 => self.asks(random),
            13 => self.counted(random),
            // Withdrawn, whether or not there is such a one.
            14 => head(0, WITHDRAW, &[], FREE, random.below(u64::from(self.next_id) + 2) as u32, None),
            _ => self.begins(random),
        }
    }

    fn whole(&self, flags: u8, proto: u8, header: &[u8], body: &[u8]) -> Vec<u8> {
        [head(proto, WHOLE, header, flags, 0, None), body.to_vec()].concat()
    }

    /// Asks for room and never uses it.
    fn asks(&mut self, random: &mut Chance) -> Vec<u8> {
        let total = [0, 1, 1 << 20, 1 << 40, u64::MAX][random.below(5) as usize];
        // An honest number of them.
        if self.next_id > 5_000 {
            return self.whole(FREE, PORT, &port(random, 2), b"main");
        }
        self.next_id += 1;
        let header = if random.once_in(2) { port(random, 0) } else { rawdata(random) };
        let proto = if header.len() == 16 { PORT } else { RAWDATA };
        head(proto, ASK, &header, 0, self.next_id, Some(total))
    }

    /// Begins a message in parts that it never ends.
    fn begins(&mut self, random: &mut Chance) -> Vec<u8> {
        let total = 100 + random.below(20_000);
        if self.charged + total + 64 > 500_000 {
            return self.whole(FREE, PORT, &port(random, 2), b"main");
        }
        self.charged += total + 64;
        self.next_id += 1;
        let part = vec![0xbb; random.below(100) as usize];
        [head(PORT, FIRST, &port(random, 0), 0, self.next_id, Some(total)), part].concat()
    }

    /// A message like any other, with credit, which somebody may even receive.
    fn counted(&mut self, random: &mut Chance) -> Vec<u8> {
        let len = random.below(3000);
        if self.charged + len + 64 > 500_000 {
            return self.whole(FREE, PORT, &port(random, 2), b"main");
        }
        self.charged += len + 64;
        self.whole(0, PORT, &port(random, 0), &vec![0xcc; len as usize])
    }

    fn nonsense(&mut self, random: &mut Chance) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..random.below(200)).map(|_| random.word() as u8).collect();
        if random.once_in(2) && bytes.len() >= 16 {
            // Nearly right: a kind that exists, of a protocol that exists.
            bytes[0] = random.below(5) as u8;
            bytes[1] = [WHOLE, FIRST, ASK, NEXT, 4, 5, WITHDRAW][random.below(7) as usize];
            bytes[2] = [0, 8, 16, 24, 32, 33][random.below(6) as usize];
        }
        bytes
    }
}

fn head(proto: u8, kind: u8, header: &[u8], flags: u8, id: u32, total: Option<u64>) -> Vec<u8> {
    let mut bytes = vec![proto, kind, header.len() as u8, flags];
    bytes.extend(id.to_le_bytes());
    bytes.extend(total.map(u64::to_le_bytes).into_iter().flatten());
    bytes.extend(header);
    bytes
}

/// A port's number that often exists, and a tag that often means something.
fn port(random: &mut Chance, kind: u8) -> Vec<u8> {
    let number = [1 << 16, 1 << 16, 2 << 16, 1 << 16 | 1, random.word() as u32][random.below(5) as usize];
    let tag = if random.once_in(4) { random.word() } else { random.below(300) };
    [number.to_le_bytes(), u32::from(kind).to_le_bytes()].concat().into_iter().chain(tag.to_le_bytes()).collect()
}

fn rawdata(random: &mut Chance) -> Vec<u8> {
    let (number, kind) = (if random.once_in(2) { 7 } else { random.below(1 << 16) }, random.below(4));
    (number | kind << 16).to_le_bytes().to_vec()
}

fn am(random: &mut Chance) -> Vec<u8> {
    let (kind, words) = (random.below(16), random.below(9));
    let channel = [1 << 16, 1 << 16 | 1, 1 << 16 | 2, random.below(1 << 32)][random.below(4) as usize];
    let fixed = kind | words << 4 | random.below(4) << 8 | random.below(8) << 16 | channel << 32;
    // Where it goes, and the first arguments.
    let inline = if matches!(kind, 2 | 3 | 7) { 1 + words.min(2) } else { words.min(3) };
    std::iter::once(fixed).chain((0..inline).map(|_| random.below(10_000))).flat_map(u64::to_le_bytes).collect()
}
