//! Finds the memory behind any part of a packed stream: bytes `from..to` of so many elements. Whoever copies (`datatype::copy`)
//! or lists pieces is a [`Visit`]; this file only counts, so a message may stop and go on at any byte, in any order.

use crate::datatype::program::{Piece, Program, Sequence};

/// Told the places of the bytes of a stream, in the stream's order. Places are distances from the buffer's address.
pub(crate) trait Visit {
    fn run(&mut self, at: i64, len: u64);

    /// `count` runs of `len` bytes, `stride` apart.
    fn strided(&mut self, at: i64, count: u64, len: u64, stride: i64) {
        for index in 0..count {
            self.run(step(at, index, stride), len);
        }
    }

    /// Runs of `len` bytes at `at` plus each of the places.
    fn listed(&mut self, at: i64, places: &[i64], len: u64) {
        for &place in places {
            self.run(at.wrapping_add(place), len);
        }
    }
}

impl Program {
    /// Visits bytes `from..to` of the packed stream of `count` elements.
    #[inline]
    pub fn visit(&self, count: u64, from: u64, to: u64, visitor: &mut impl Visit) {
        debug_assert!(from <= to && u128::from(to) <= u128::from(count) * u128::from(self.body.bytes()));
        if from >= to {
            return;
        }
        match self.whole {
            Some(at) => visitor.run(at.wrapping_add(from as i64), to - from),
            // A whole message needs no division to find where it begins and ends.
            None if from == 0 && to == count * self.body.bytes() => {
                visit_copies(&self.body, 0, count, self.extent, visitor)
            }
            None => visit_loop(&self.body, 0, self.extent, from, to, visitor),
        }
    }
}

/// Place of the element with this index.
#[inline(always)]
fn step(at: i64, index: u64, stride: i64) -> i64 {
    at.wrapping_add((index as i64).wrapping_mul(stride))
}

/// A part of a stream of equal units: what is left of the first one, whole ones, and the beginning of the last one.
struct Cut {
    /// Index and range of bytes within it.
    head: Option<(u64, u64, u64)>,
    first: u64,
    count: u64,
    /// Index and number of bytes.
    tail: Option<(u64, u64)>,
}

fn cut(unit: u64, from: u64, to: u64) -> Cut {
    let (mut first, skip) = (from / unit, from % unit);
    let mut at = from;
    let mut head = None;
    if skip > 0 {
        let end = unit.min(skip + (to - from));
        head = Some((first, skip, end));
        at += end - skip;
        first += 1;
    }
    let count = (to - at) / unit;
    at += count * unit;
    Cut { head, first, count, tail: (at < to).then(|| (first + count, to - at)) }
}

/// Bytes `from..to` of the sequence repeated every `stride` bytes.
fn visit_loop(body: &Sequence, at: i64, stride: i64, from: u64, to: u64, visitor: &mut impl Visit) {
    let cut = cut(body.bytes(), from, to);
    if let Some((index, from, to)) = cut.head {
        visit_sequence(body, step(at, index, stride), from, to, visitor);
    }
    visit_copies(body, step(at, cut.first, stride), cut.count, stride, visitor);
    if let Some((index, to)) = cut.tail {
        visit_sequence(body, step(at, index, stride), 0, to, visitor);
    }
}

/// The whole sequence `count` times.
fn visit_copies(body: &Sequence, at: i64, count: u64, stride: i64, visitor: &mut impl Visit) {
    match body.pieces.as_slice() {
        [Piece::Run { at: first, len }] if *len as i64 == stride && count > 0 => {
            visitor.run(at.wrapping_add(*first), count * len);
        }
        [Piece::Run { at: first, len }] => visitor.strided(at.wrapping_add(*first), count, *len, stride),
        pieces => {
            for index in 0..count {
                let at = step(at, index, stride);
                for piece in pieces {
                    visit_piece(piece, at, visitor);
                }
            }
        }
    }
}

/// Bytes `from..to` of one pass through the sequence.
fn visit_sequence(sequence: &Sequence, at: i64, from: u64, to: u64, visitor: &mut impl Visit) {
    let first = if from == 0 { 0 } else { sequence.ends.partition_point(|&end| end <= from) };
    let mut start = if first == 0 { 0 } else { sequence.ends[first - 1] };
    for (piece, &end) in sequence.pieces[first..].iter().zip(&sequence.ends[first..]) {
        if start >= to {
            break;
        }
        if from <= start && end <= to {
            visit_piece(piece, at, visitor);
        } else {
            visit_part(piece, at, from.max(start) - start, to.min(end) - start, visitor);
        }
        start = end;
    }
}

/// The whole piece.
fn visit_piece(piece: &Piece, origin: i64, visitor: &mut impl Visit) {
    match piece {
        Piece::Run { at, len } => visitor.run(origin.wrapping_add(*at), *len),
        Piece::Strided { at, count, len, stride } => visitor.strided(origin.wrapping_add(*at), *count, *len, *stride),
        Piece::Listed { at, places, len } => visitor.listed(origin.wrapping_add(*at), places, *len),
        Piece::Loop { at, count, stride, body } => {
            visit_copies(body, origin.wrapping_add(*at), *count, *stride, visitor);
        }
        Piece::Each { at, places, body } => {
            for place in places.iter() {
                visit_copies(body, origin.wrapping_add(*at).wrapping_add(*place), 1, 0, visitor);
            }
        }
    }
}

/// Bytes `from..to` of the piece.
fn visit_part(piece: &Piece, origin: i64, from: u64, to: u64, visitor: &mut impl Visit) {
    match piece {
        Piece::Run { at, .. } => visitor.run(origin.wrapping_add(*at).wrapping_add(from as i64), to - from),
        Piece::Strided { at, len, stride, .. } => {
            let at = origin.wrapping_add(*at);
            let cut = cut(*len, from, to);
            if let Some((index, from, to)) = cut.head {
                visitor.run(step(at, index, *stride).wrapping_add(from as i64), to - from);
            }
            visitor.strided(step(at, cut.first, *stride), cut.count, *len, *stride);
            if let Some((index, to)) = cut.tail {
                visitor.run(step(at, index, *stride), to);
            }
        }
        Piece::Listed { at, places, len } => {
            let at = origin.wrapping_add(*at);
            let cut = cut(*len, from, to);
            if let Some((index, from, to)) = cut.head {
                visitor.run(at.wrapping_add(places[index as usize]).wrapping_add(from as i64), to - from);
            }
            visitor.listed(at, &places[cut.first as usize..][..cut.count as usize], *len);
            if let Some((index, to)) = cut.tail {
                visitor.run(at.wrapping_add(places[index as usize]), to);
            }
        }
        Piece::Loop { at, stride, body, .. } => visit_loop(body, origin.wrapping_add(*at), *stride, from, to, visitor),
        Piece::Each { at, places, body } => {
            let at = origin.wrapping_add(*at);
            let cut = cut(body.bytes(), from, to);
            if let Some((index, from, to)) = cut.head {
                visit_sequence(body, at.wrapping_add(places[index as usize]), from, to, visitor);
            }
            for place in &places[cut.first as usize..][..cut.count as usize] {
                visit_copies(body, at.wrapping_add(*place), 1, 0, visitor);
            }
            if let Some((index, to)) = cut.tail {
                visit_sequence(body, at.wrapping_add(places[index as usize]), 0, to, visitor);
            }
        }
    }
}
