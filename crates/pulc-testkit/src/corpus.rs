//! Replay of a fuzz target's corpus on a stable compiler: every input that was kept, and inputs made of them by chance. Called by
//! tests; `cargo xtask fuzz` looks for new inputs with a nightly one.

use crate::{Chance, rounds};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};

/// Longest input that chance makes.
const INPUT_MAX: usize = 16 << 10;

/// Runs `target` on every file of `fuzz/corpus/NAME` and on inputs made of them: `quick` in an ordinary run, a hundred times as many
/// under `cargo xtask test --full`, from the seed `PULC_TEST_SEED` or a fresh one that is printed.
///
/// # Panics
/// When there is no corpus, and as the target does, after the input that made it.
pub fn replay(name: &str, quick: u32, target: fn(&[u8])) {
    let corpus = read(&folder(name));
    assert!(!corpus.is_empty(), "fuzz/corpus/{name} is empty");
    for (path, input) in &corpus {
        run(target, input, &format!("fuzz/corpus/{name}/{}", path.display()));
    }
    let fresh = || std::time::UNIX_EPOCH.elapsed().map_or(1, |since| since.as_nanos() as u64) | 1;
    let seed = std::env::var("PULC_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(fresh);
    println!("{name}: {} inputs, PULC_TEST_SEED={seed}", corpus.len());
    let mut chance = Chance(seed | 1);
    for round in 0..rounds(quick, quick.saturating_mul(100)) {
        let mut input = corpus[chance.index(corpus.len())].1.clone();
        for _ in 0..1 + chance.below(6) {
            let other = chance.index(corpus.len());
            chance.bend(&mut input, &corpus[other].1);
        }
        input.truncate(INPUT_MAX);
        run(target, &input, &format!("{name}: PULC_TEST_SEED={seed}, round {round}"));
    }
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name)
}

fn read(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<(PathBuf, Vec<u8>)> =
        entries.filter_map(|entry| Some((entry.file_name().into(), std::fs::read(entry.path()).ok()?))).collect();
    files.sort();
    files
}

fn run(target: fn(&[u8]), input: &[u8], what: &str) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| target(input))) {
        let hex: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
        eprintln!("{what}: {hex}");
        resume_unwind(panic);
    }
}

impl Chance {
    /// One change: a bit, a byte, a number that is often a border, a cut, a copy, or a piece of another input.
    fn bend(&mut self, input: &mut Vec<u8>, other: &[u8]) {
        const BORDERS: [u64; 8] = [0, 1, 0x7f, 0xff, 0x7fff, 0xffff, 1 << 31, u64::MAX];
        let at = self.index(input.len() + 1);
        match self.index(8) {
            0 | 1 if at < input.len() => input[at] ^= 1 << self.index(8),
            2 if at < input.len() => input[at] = self.word() as u8,
            3 => {
                let number = BORDERS[self.index(BORDERS.len())].to_le_bytes();
                let len = [1, 2, 4, 8][self.index(4)].min(input.len() - at);
                input[at..at + len].copy_from_slice(&number[..len]);
            }
            4 => input.truncate(at),
            5 => {
                let end = (at + 1 + self.index(64)).min(input.len());
                let piece = input[at.min(end)..end].to_vec();
                input.extend(piece);
            }
            6 => {
                let from = self.index(other.len() + 1);
                let end = (from + 1 + self.index(64)).min(other.len());
                let piece = other[from.min(end)..end].to_vec();
                input.splice(at..at, piece);
            }
            _ => {
                let end = (at + self.index(9)).min(input.len());
                input.drain(at..end);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chance_makes_the_same_inputs_of_the_same_seed_and_different_ones_of_others() {
        let make = |seed| {
            let mut chance = Chance(seed);
            let mut input = b"a first input".to_vec();
            (0..200).for_each(|_| chance.bend(&mut input, b"another one"));
            input
        };
        assert_eq!(make(5), make(5));
        assert_ne!(make(5), make(7));
    }
}
