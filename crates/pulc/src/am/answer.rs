//! The arguments of a short answer while its handler runs. Plain data; kept by the calls of handlers (`token`, `leaf`).

use super::args::{FEW, WORDS_MAX, Words};
use std::cell::Cell;

/// Words one by one: see `Words::assign`.
pub(crate) struct Said {
    words: [Cell<u64>; WORDS_MAX],
    count: Cell<usize>,
}

impl Said {
    #[inline(always)]
    pub fn nothing() -> Said {
        Said { words: [const { Cell::new(0) }; WORDS_MAX], count: Cell::new(0) }
    }

    #[inline(always)]
    pub fn say(&self, words: &Words) {
        let all = words.all();
        for at in 0..FEW {
            if let Some(word) = all.get(at) {
                self.words[at].set(*word);
            }
        }
        if all.len() > FEW {
            self.words.iter().zip(all).skip(FEW).for_each(|(place, word)| place.set(*word));
        }
        self.count.set(all.len());
    }

    #[inline(always)]
    pub fn count(&self) -> usize {
        self.count.get()
    }

    /// They themselves, if there are few, with zeros behind them.
    #[inline(always)]
    pub fn few(&self) -> Option<[u64; FEW]> {
        let word = |at: usize| self.words[at].get();
        match self.count.get() {
            0 => Some([0, 0, 0]),
            1 => Some([word(0), 0, 0]),
            2 => Some([word(0), word(1), 0]),
            FEW => Some([word(0), word(1), word(2)]),
            _ => None,
        }
    }

    /// They themselves.
    pub fn all(&self) -> Words {
        Words::new(std::array::from_fn(|at| self.words[at].get()), self.count.get())
    }
}
