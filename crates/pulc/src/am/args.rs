//! Arguments of active messages: up to eight words, typed at both ends. Pure; nothing here communicates.

use pulc_base::Rank;
use std::marker::PhantomData;

/// Arguments of one message at most.
pub const WORDS_MAX: usize = 8;

/// Arguments as they travel.
#[derive(Clone, Copy)]
pub struct Words {
    /// What stands behind the first `count` means nothing: words that are used again are not cleared.
    words: [u64; WORDS_MAX],
    count: u8,
}

impl PartialEq for Words {
    fn eq(&self, other: &Words) -> bool {
        self.all() == other.all()
    }
}

impl Eq for Words {}

impl std::fmt::Debug for Words {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_list().entries(self.all()).finish()
    }
}

impl Words {
    /// # Panics
    /// With more than [`WORDS_MAX`] words.
    #[inline]
    pub fn new(words: [u64; WORDS_MAX], count: usize) -> Words {
        assert!(count <= WORDS_MAX, "{count} arguments; at most {WORDS_MAX} travel");
        Words { words, count: count as u8 }
    }

    /// The arguments there are.
    #[inline]
    pub fn all(&self) -> &[u64] {
        &self.words[..usize::from(self.count)]
    }

    #[inline]
    pub(crate) fn put(&mut self, at: usize, word: u64) {
        self.words[at] = word;
    }

    pub(crate) const fn none() -> Words {
        Words { words: [0; WORDS_MAX], count: 0 }
    }

    /// From now on there are so many, of which the caller puts all.
    ///
    /// # Panics
    /// With more than [`WORDS_MAX`].
    #[inline]
    pub(crate) fn set_count(&mut self, count: usize) {
        assert!(count <= WORDS_MAX, "{count} arguments; at most {WORDS_MAX} travel");
        self.count = count as u8;
    }

    /// Takes over what `other` has. Words are stored singly: they are read singly soon, and a load that spans two stores waits
    /// for both.
    #[inline(always)]
    pub(crate) fn assign(&mut self, other: &Words) {
        self.count = other.count;
        for at in 0..FEW {
            if at < usize::from(other.count) {
                self.words[at] = other.words[at];
            }
        }
        if usize::from(other.count) > FEW {
            self.words[FEW..].copy_from_slice(&other.words[FEW..]);
        }
    }

    /// The first ones, zero where there is none.
    #[inline(always)]
    pub(crate) fn first(&self) -> [u64; FEW] {
        std::array::from_fn(|at| if at < usize::from(self.count) { self.words[at] } else { 0 })
    }
}

/// Arguments of most messages at most: those that stand in a header.
pub(crate) const FEW: usize = 3;

/// What fits one word.
pub trait Word: Copy + 'static {
    fn to_word(self) -> u64;
    fn from_word(word: u64) -> Self;
}

macro_rules! integers_as_words {
    ($($integer:ty),*) => { $(
        impl Word for $integer {
            #[inline]
            fn to_word(self) -> u64 {
                self as u64
            }
            #[inline]
            fn from_word(word: u64) -> $integer {
                word as $integer
            }
        }
    )* };
}

integers_as_words!(u8, u16, u32, u64, usize, i8, i16, i32, i64, isize);

impl Word for bool {
    fn to_word(self) -> u64 {
        u64::from(self)
    }
    fn from_word(word: u64) -> bool {
        word != 0
    }
}

impl Word for f64 {
    fn to_word(self) -> u64 {
        self.to_bits()
    }
    fn from_word(word: u64) -> f64 {
        f64::from_bits(word)
    }
}

impl Word for f32 {
    fn to_word(self) -> u64 {
        u64::from(self.to_bits())
    }
    fn from_word(word: u64) -> f32 {
        f32::from_bits(word as u32)
    }
}

impl Word for Rank {
    fn to_word(self) -> u64 {
        u64::from(self.0)
    }
    fn from_word(word: u64) -> Rank {
        Rank(word as u32)
    }
}

/// The arguments of a handler: nothing, a tuple of up to eight words, or an array of them.
pub trait Args: Copy + 'static {
    const COUNT: usize;
    fn to_words(self) -> Words;
    fn from_words(words: &Words) -> Self;
}

impl Args for () {
    const COUNT: usize = 0;
    fn to_words(self) -> Words {
        Words::new([0; WORDS_MAX], 0)
    }
    fn from_words(_words: &Words) {}
}

impl<const N: usize> Args for [u64; N] {
    const COUNT: usize = {
        assert!(N <= WORDS_MAX, "at most eight arguments travel");
        N
    };
    #[inline]
    fn to_words(self) -> Words {
        let mut words = [0; WORDS_MAX];
        words[..Self::COUNT].copy_from_slice(&self);
        Words::new(words, Self::COUNT)
    }
    #[inline]
    fn from_words(words: &Words) -> [u64; N] {
        std::array::from_fn(|at| words.words[at])
    }
}

macro_rules! tuples_as_args {
    ($(($count:literal: $($name:ident $at:tt),+)),+) => { $(
        impl<$($name: Word),+> Args for ($($name,)+) {
            const COUNT: usize = $count;
            #[inline]
            fn to_words(self) -> Words {
                let mut words = [0; WORDS_MAX];
                $(words[$at] = self.$at.to_word();)+
                Words::new(words, $count)
            }
            #[inline]
            fn from_words(words: &Words) -> Self {
                ($($name::from_word(words.words[$at]),)+)
            }
        }
    )+ };
}

tuples_as_args!(
    (1: A 0),
    (2: A 0, B 1),
    (3: A 0, B 1, C 2),
    (4: A 0, B 1, C 2, D 3),
    (5: A 0, B 1, C 2, D 3, E 4),
    (6: A 0, B 1, C 2, D 3, E 4, F 5),
    (7: A 0, B 1, C 2, D 3, E 4, F 5, G 6),
    (8: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7)
);

macro_rules! entries {
    ($($(#[$text:meta])* $name:ident),+) => { $(
        $(#[$text])*
        pub struct $name<A> {
            pub(crate) index: u8,
            args: PhantomData<fn(A)>,
        }

        impl<A: Args> $name<A> {
            /// The handler with this place in the table of an endpoint.
            pub const fn new(index: u8) -> $name<A> {
                $name { index, args: PhantomData }
            }
        }

        impl<A> Clone for $name<A> {
            fn clone(&self) -> $name<A> {
                *self
            }
        }

        impl<A> Copy for $name<A> {}
    )+ };
}

entries!(
    /// A handler of requests that carry arguments only.
    Short,
    /// A handler of requests with a payload of at most [`MEDIUM_MAX`](super::MEDIUM_MAX) bytes.
    Medium,
    /// A handler that is told when a payload has landed in the endpoint's segment.
    Long,
    /// A handler that is offered a payload and chooses where it goes.
    Fetch,
    /// A handler of replies that carry arguments only.
    Reply,
    /// A handler of replies with a payload of at most [`MEDIUM_MAX`](super::MEDIUM_MAX) bytes.
    MediumReply,
    /// A handler that is told when the payload of a reply has landed in the endpoint's segment.
    LongReply
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_of_every_type_survive_the_way_through_words() {
        let args = (u8::MAX, -1_i8, i64::MIN, 1.5_f64, -2.25_f32, true, Rank(7), usize::MAX);
        let words = args.to_words();
        assert_eq!(words.all().len(), 8);
        assert_eq!(<(u8, i8, i64, f64, f32, bool, Rank, usize)>::from_words(&words), args);
        assert_eq!(<[u64; 3]>::from_words(&[1, 2, 3].to_words()), [1, 2, 3]);
        assert!(().to_words().all().is_empty());
    }
}
