//! What a receive accepts: a source and a tag, or any. Used by the matching queue and by the hand of a polling thread.

/// What a receive accepts; `None` is a wildcard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pattern {
    pub src: Option<u32>,
    pub tag: Option<u64>,
}

impl Pattern {
    #[inline(always)]
    pub fn accepts(&self, src: u32, tag: u64) -> bool {
        self.src.is_none_or(|wanted| wanted == src) && self.tag.is_none_or(|wanted| wanted == tag)
    }
}
