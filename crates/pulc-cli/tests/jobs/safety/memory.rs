//! Writes over every shared mapping of this very process that is PULC's, through the kernel: what the pages forbid it refuses.
//! Between two looks for mappings the process must map and unmap nothing of them: something else could lie there by then.

use pulc_testkit::Chance;
use std::fs::File;
use std::os::unix::fs::FileExt;

struct Mapping {
    begin: u64,
    end: u64,
    writable: bool,
    /// As the system lists it.
    line: String,
}

/// All shared memory of PULC in this process.
pub struct Mappings {
    mappings: Vec<Mapping>,
    memory: File,
    /// How often it was written, and how often the kernel refused what must not be written.
    pub written: u64,
    pub refused: u64,
}

impl Mappings {
    pub fn new() -> Mappings {
        let memory =
            File::options().read(true).write(true).open("/proc/self/mem").expect("a process writes its own memory");
        let mut found = Mappings { mappings: Vec::new(), memory, written: 0, refused: 0 };
        found.look_again();
        found
    }

    /// Channels come and go.
    pub fn look_again(&mut self) {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("a process reads its own map");
        self.mappings = maps.lines().filter(|line| line.contains("/memfd:pulc-")).filter_map(mapping).collect();
    }

    /// Writes some bytes somewhere.
    pub fn scribble(&mut self, random: &mut Chance) {
        let Some(at) = random.word().checked_rem(self.mappings.len() as u64) else { return };
        let mapping = &self.mappings[at as usize];
        // The front of a mapping is where counts and headers stand.
        let span = if random.once_in(3) { mapping.end - mapping.begin } else { 8192.min(mapping.end - mapping.begin) };
        let len = [1, 4, 8, 64, 4096][random.below(5) as usize].min(span);
        let offset = random.below(span - len + 1);
        let offset = if random.once_in(4) { offset } else { offset & !7 };
        let bytes: Vec<u8> = match random.below(4) {
            0 => vec![0; len as usize],
            1 => vec![0xff; len as usize],
            // Small numbers, which lengths and kinds are.
            2 => (0..len).map(|at| if at % 8 == 0 { random.word() as u8 & 7 } else { 0 }).collect(),
            _ => (0..len).map(|_| random.word() as u8).collect(),
        };
        match self.memory.write_all_at(&bytes, mapping.begin + offset) {
            Ok(()) => {
                assert!(mapping.writable, "memory of others was written: {}", mapping.line);
                self.written += 1;
            }
            Err(_) => self.refused += 1,
        }
    }
}

/// Of a line of `/proc/PID/maps`.
fn mapping(line: &str) -> Option<Mapping> {
    let mut words = line.split_ascii_whitespace();
    let (begin, end) = words.next()?.split_once('-')?;
    let rights = words.next()?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some(Mapping {
        begin: number(begin)?,
        end: number(end)?,
        writable: rights.starts_with("rw"),
        line: line.to_owned(),
    })
}
