//! The payload of one cell as words. A short frame is gathered in registers, stored word by word, and loaded word by word:
//! a load that spans two earlier stores waits until both have left the store buffer, which costs as much as a fifth of the
//! way between two cores. Used by `ring` and `pair`, and by the handler for its messages; private memory only.

use super::layout::CELL_PAYLOAD;

pub const CELL_WORDS: usize = CELL_PAYLOAD / 8;

/// The payload of one cell; bytes in memory order (little-endian words on every machine this runs on, as everything in a
/// channel is between processes of one machine).
pub type Words = [u64; CELL_WORDS];

/// Joins the parts of a frame, together at most one cell long; zero behind them.
///
/// # Panics
/// When they are longer.
#[inline(always)]
pub fn gather<const N: usize>(parts: [&[u8]; N]) -> Words {
    let mut words = [0; CELL_WORDS];
    let mut at = 0;
    for (index, part) in parts.iter().enumerate() {
        if part.len() % 8 != 0 && parts[index + 1..].iter().any(|later| !later.is_empty()) {
            return gather_bytes(&parts);
        }
        at = put(&mut words, at, part);
    }
    words
}

/// Writes `part` from word `at` on; returns the first word behind it.
///
/// # Panics
/// When it does not fit.
#[inline(always)]
pub fn put(words: &mut Words, at: usize, part: &[u8]) -> usize {
    let (whole, rest) = part.as_chunks::<8>();
    assert!(whole.len() <= CELL_WORDS, "{} bytes do not fit a cell", part.len());
    // Unrolled by hand: the compiler would call memcpy for these few words.
    let [a, b, c, d, e, f, g] = std::array::from_fn(|index| whole.get(index).map(|chunk| u64::from_ne_bytes(*chunk)));
    let mut at = at;
    for word in [a, b, c, d, e, f, g] {
        let Some(word) = word else { break };
        words[at] = word;
        at += 1;
    }
    if rest.is_empty() {
        return at;
    }
    words[at] = tail(rest);
    at + 1
}

/// The same where a part begins in the middle of a word.
#[inline(never)]
fn gather_bytes(parts: &[&[u8]]) -> Words {
    let mut bytes = [0; CELL_PAYLOAD];
    let mut at = 0;
    for part in parts {
        bytes[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    let mut words = [0; CELL_WORDS];
    put(&mut words, 0, &bytes);
    words
}

/// Writes all words to the front of `buffer`.
#[inline(always)]
pub fn scatter(words: &Words, buffer: &mut [u8]) {
    let front = &mut buffer[..CELL_PAYLOAD];
    for (chunk, word) in front.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *chunk = word.to_ne_bytes();
    }
}

/// At most eight bytes as the front of a word.
///
/// # Panics
/// When there are more.
#[inline(always)]
pub fn word(bytes: &[u8]) -> u64 {
    match bytes.first_chunk() {
        Some(all) => {
            assert!(bytes.len() == 8, "{} bytes are more than a word", bytes.len());
            u64::from_ne_bytes(*all)
        }
        None => tail(bytes),
    }
}

/// Less than eight bytes as the front of a word, without going through memory.
#[inline(always)]
fn tail(bytes: &[u8]) -> u64 {
    let n = bytes.len();
    let value = match *bytes {
        [a, b, c, d, ..] => {
            let low = u64::from(u32::from_le_bytes([a, b, c, d]));
            let high = u64::from(u32::from_le_bytes([bytes[n - 4], bytes[n - 3], bytes[n - 2], bytes[n - 1]]));
            low | high << (8 * (n - 4))
        }
        [a, b] => u64::from(a) | u64::from(b) << 8,
        [a, b, c] => u64::from(a) | u64::from(b) << 8 | u64::from(c) << 16,
        [a] => u64::from(a),
        [] => 0,
    };
    value.to_le()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_any_length_come_out_as_they_went_in() {
        let bytes: Vec<u8> = (1..=CELL_PAYLOAD as u8).collect();
        for first in 0..=CELL_PAYLOAD {
            for second in 0..=CELL_PAYLOAD - first {
                let mut out = [0xff; CELL_PAYLOAD + 8];
                let len = first + second;
                scatter(&gather([&bytes[..first], &bytes[first..len]]), &mut out);
                assert_eq!(out[..len], bytes[..len], "{first}+{second}");
                assert!(out[len..CELL_PAYLOAD].iter().all(|byte| *byte == 0), "{first}+{second}: not zero behind");
                assert_eq!(out[CELL_PAYLOAD..], [0xff; 8]);
            }
        }
    }

    #[test]
    fn up_to_eight_bytes_are_the_front_of_a_word() {
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8];
        for len in 0..=8 {
            let expected = std::array::from_fn(|at| if at < len { bytes[at] } else { 0 });
            assert_eq!(word(&bytes[..len]).to_ne_bytes(), expected);
        }
    }

    #[test]
    #[should_panic(expected = "index out of bounds")]
    fn more_than_a_cell_is_not_gathered() {
        let _ = gather([&[0; 48], &[0; 16]]);
    }
}
