//! What a rank says of itself while it waits for long: in which call it is, since when, and for whom. Written by the rank on its own
//! slot of the board when a sleep was not ended by anything, read by its keeper when somebody asks. Costs nothing before that.
//!
//! ```text
//! lines 2 and 3 of a slot, as words of 8 bytes
//!   0  version, odd while it is being written      5..8   six ranks, u32 each
//!   1  since when, ns; 0: it waits for nothing     8..12  name of the call
//!   2  flags | how many it waits for << 32         12..16 where: name of the communicator
//!   3  tag            4  number of a meeting
//! ```
//! Everyone may write there: a reader takes it for a claim, and looks at lengths and ranks before it uses them.

use super::Slot;
use crate::sync::{Words, fence};
use pulc_base::clock::Nanos;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where it lies in a slot.
const AT: usize = 128;
const VERSION: usize = 0;
const SINCE: usize = 1;
const FLAGS: usize = 2;
const TAG: usize = 3;
const MEETING: usize = 4;
const RANKS: usize = 5;
const CALL: usize = 8;
const PLACE: usize = 12;
const WORDS: usize = 16;

/// Ranks that a notice names at most.
pub const RANKS_MAX: usize = 6;
const TEXT_BYTES: usize = 32;

const ANY: u64 = 1;
const HAS_TAG: u64 = 2;
const MEETS: u64 = 4;

/// Reads of one notice until the reader gives up: its writer writes all the time.
const TRIES: u32 = 100;

/// Monotonic time that all processes of a machine read alike.
pub fn machine_time() -> Nanos {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Nanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

/// One wait.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Notice {
    /// The function that the program has called; at most 32 bytes are kept.
    pub call: String,
    /// The communicator, likewise.
    pub place: String,
    /// Whom it waits for, [`RANKS_MAX`] at most.
    pub ranks: Vec<u32>,
    /// How many these are, also those that found no room.
    pub count: u32,
    /// One of them is enough.
    pub any: bool,
    pub tag: Option<i32>,
    /// The same number for all who wait in one collective operation.
    pub meeting: Option<u64>,
}

impl Slot<'_> {
    /// Says what the owner waits for, and since which [`machine_time`]. For the owner, one thread at a time.
    pub fn tell(&self, since: Nanos, notice: &Notice) {
        let mut words = [0; WORDS];
        words[SINCE] = since.0.max(1);
        let flag = |is: bool, flag: u64| if is { flag } else { 0 };
        let flags = flag(notice.any, ANY) | flag(notice.tag.is_some(), HAS_TAG) | flag(notice.meeting.is_some(), MEETS);
        words[FLAGS] = flags | u64::from(notice.count) << 32;
        words[TAG] = u64::from(notice.tag.unwrap_or_default() as u32);
        words[MEETING] = notice.meeting.unwrap_or_default();
        for (at, rank) in notice.ranks.iter().take(RANKS_MAX).enumerate() {
            // One more, so that nothing is zero.
            words[RANKS + at / 2] |= u64::from(rank.wrapping_add(1)) << (at % 2 * 32);
        }
        put_text(&mut words[CALL..CALL + TEXT_BYTES / 8], &notice.call);
        put_text(&mut words[PLACE..PLACE + TEXT_BYTES / 8], &notice.place);
        replace(self, &words);
    }

    /// It waits no longer. For the owner.
    pub fn tell_nothing(&self) {
        replace(self, &[0; WORDS]);
    }

    /// What the owner says that it waits for, and since which [`machine_time`]. For anybody; nothing of it is to be believed.
    pub fn notice(&self) -> Option<(Nanos, Notice)> {
        let words: [u64; WORDS] = read_whole(self, TRIES)?;
        (words[SINCE] != 0).then(|| (Nanos(words[SINCE]), read(&words)))
    }

    fn notice_word(&self, at: usize) -> &AtomicU64 {
        self.map.u64_at(self.base + AT + at * 8)
    }
}

impl Words for Slot<'_> {
    fn load(&self, at: usize, order: Ordering) -> u64 {
        self.notice_word(at).load(order)
    }

    fn store(&self, at: usize, word: u64, order: Ordering) {
        self.notice_word(at).store(word, order);
    }
}

/// Puts `words` in the place of those that are there; the first of them is their version. One writer at a time.
pub(crate) fn replace<const N: usize>(place: &impl Words, words: &[u64; N]) {
    let version = place.load(VERSION, Ordering::Relaxed) | 1;
    place.store(VERSION, version, Ordering::Relaxed);
    // Pairs with the fence of `read_whole`: who reads one of the words below sees the odd version before or after them.
    fence(Ordering::Release);
    for (at, word) in words.iter().enumerate().skip(VERSION + 1) {
        place.store(at, *word, Ordering::Relaxed);
    }
    // Release: pairs with the acquire of `read_whole`.
    place.store(VERSION, version.wrapping_add(1), Ordering::Release);
}

/// All of one writing, or nothing when they were being replaced at each of so many looks.
pub(crate) fn read_whole<const N: usize>(place: &impl Words, tries: u32) -> Option<[u64; N]> {
    for _ in 0..tries {
        // Acquire: pairs with the release of `replace`.
        let version = place.load(VERSION, Ordering::Acquire);
        let words = std::array::from_fn(|at| place.load(at, Ordering::Relaxed));
        // Pairs with the fence of `replace`.
        fence(Ordering::Acquire);
        if version.is_multiple_of(2) && place.load(VERSION, Ordering::Relaxed) == version {
            return Some(words);
        }
        std::hint::spin_loop();
    }
    None
}

fn read(words: &[u64; WORDS]) -> Notice {
    let ranks = (0..RANKS_MAX).map(|at| (words[RANKS + at / 2] >> (at % 2 * 32)) as u32);
    Notice {
        call: text_of(&words[CALL..CALL + TEXT_BYTES / 8]),
        place: text_of(&words[PLACE..PLACE + TEXT_BYTES / 8]),
        ranks: ranks.filter_map(|rank| rank.checked_sub(1)).collect(),
        count: (words[FLAGS] >> 32) as u32,
        any: words[FLAGS] & ANY != 0,
        tag: (words[FLAGS] & HAS_TAG != 0).then_some(words[TAG] as u32 as i32),
        meeting: (words[FLAGS] & MEETS != 0).then_some(words[MEETING]),
    }
}

fn put_text(words: &mut [u64], text: &str) {
    for (word, bytes) in words.iter_mut().zip(text.as_bytes().chunks(8)) {
        let mut whole = [0; 8];
        whole[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_ne_bytes(whole);
    }
}

/// Printable characters only: it goes to a terminal.
fn text_of(words: &[u64]) -> String {
    let bytes = words.iter().flat_map(|word| word.to_ne_bytes());
    bytes
        .take_while(|byte| *byte != 0)
        .map(|byte| if (b' '..=b'~').contains(&byte) { byte as char } else { '?' })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::board::Board;

    fn full() -> Notice {
        Notice {
            call: "MPI_Recv".to_owned(),
            place: "MPI_COMM_WORLD".to_owned(),
            ranks: vec![0, 1, 65_535, 3, 4, 5],
            count: 9,
            any: true,
            tag: Some(-7),
            meeting: Some(u64::MAX),
        }
    }

    #[test]
    fn what_is_told_is_what_is_read_until_it_is_over() {
        let (board, _) = Board::create(2).unwrap();
        assert_eq!(board.slot(1).notice(), None);
        board.slot(1).tell(Nanos(5), &full());
        assert_eq!(board.slot(1).notice(), Some((Nanos(5), full())));
        assert_eq!(board.slot(0).notice(), None);
        assert_eq!((board.slot(1).sleeping(), board.slot(1).core()), (false, None));
        board.slot(1).tell(Nanos(6), &Notice::default());
        assert_eq!(board.slot(1).notice(), Some((Nanos(6), Notice::default())));
        board.slot(1).tell_nothing();
        assert_eq!(board.slot(1).notice(), None);
    }

    #[test]
    fn long_names_are_cut_and_nonsense_is_made_printable() {
        let (board, _) = Board::create(1).unwrap();
        let long = "x".repeat(100);
        board.slot(0).tell(Nanos(1), &Notice { call: long, place: "a\x1b[2Jü".to_owned(), ..Notice::default() });
        let (_, found) = board.slot(0).notice().unwrap();
        assert_eq!((found.call.len(), found.place.as_str()), (TEXT_BYTES, "a?[2J??"));
        for at in 1..WORDS {
            board.slot(0).notice_word(at).store(u64::MAX, Ordering::Relaxed);
        }
        let (_, found) = board.slot(0).notice().unwrap();
        assert!(found.ranks.len() <= RANKS_MAX && found.call.bytes().all(|byte| byte == b'?'));
    }

    #[test]
    fn a_reader_never_sees_two_notices_mixed() {
        let (board, _) = Board::create(1).unwrap();
        let over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..20_000_u32 {
                    let text = format!("{number}");
                    let notice =
                        Notice { call: text.clone(), place: text, ranks: vec![number], count: number, ..full() };
                    board.slot(0).tell(Nanos(u64::from(number) + 1), &notice);
                }
                over.store(true, Ordering::Relaxed);
            });
            while !over.load(Ordering::Relaxed) {
                if let Some((since, found)) = board.slot(0).notice() {
                    let text = found.count.to_string();
                    assert_eq!((&found.call, &found.place, &found.ranks), (&text, &text, &vec![found.count]));
                    assert_eq!(since.0, u64::from(found.count) + 1);
                }
            }
        });
    }
}
