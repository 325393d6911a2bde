//! The copy program of a committed datatype: the bytes of one element as few, large pieces, each found by its place in the
//! packed stream. Made once from the tree of types; visited for every message by `datatype::walk`.
//!
//! Neighbouring bytes are one piece whatever types they had, equal distances become a stride, and a large part that occurs
//! in several places is shared: the program is never longer than what the program's author wrote down.

use crate::datatype::basic::{Basic, Form};
use crate::datatype::typemap::{Blocks, Layout, Typemap};
use std::sync::Arc;

/// How the elements of a datatype are copied.
#[derive(Debug)]
pub(crate) struct Program {
    pub body: Arc<Sequence>,
    /// From one element to the next.
    pub extent: i64,
    /// All elements of a message are one piece without gaps, which begins at this place.
    pub whole: Option<i64>,
}

/// Pieces in the order of the packed stream.
#[derive(Debug, Default)]
pub(crate) struct Sequence {
    pub pieces: Vec<Piece>,
    /// Where each piece ends in the packed stream.
    pub ends: Vec<u64>,
}

/// Some bytes. All places are distances from the origin of the sequence that the piece is in.
#[derive(Clone, Debug)]
pub(crate) enum Piece {
    Run {
        at: i64,
        len: u64,
    },
    /// `count` runs, `stride` apart.
    Strided {
        at: i64,
        count: u64,
        len: u64,
        stride: i64,
    },
    /// Runs of equal length, anywhere; `at` is added to each place.
    Listed {
        at: i64,
        places: Arc<[i64]>,
        len: u64,
    },
    /// A sequence again and again.
    Loop {
        at: i64,
        count: u64,
        stride: i64,
        body: Arc<Sequence>,
    },
    /// A sequence at each of these places; `at` is added to each.
    Each {
        at: i64,
        places: Arc<[i64]>,
        body: Arc<Sequence>,
    },
}

/// A sequence of up to so many pieces is written out again where it occurs again; a longer one is shared.
const COPIED_PIECES: usize = 8;

/// From so many runs of equal length on, a list of places replaces them.
const LISTED_RUNS: usize = 4;

impl Program {
    pub fn of(typemap: &Typemap) -> Program {
        let body = sequence_of(typemap);
        let extent = typemap.bounds.extent();
        let whole = match body.pieces.as_slice() {
            [] => Some(0),
            [Piece::Run { at, len }] if *len as i64 == extent => Some(*at),
            _ => None,
        };
        Program { body, extent, whole }
    }
}

impl Sequence {
    /// Bytes of all pieces.
    pub fn bytes(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }
}

impl Piece {
    pub fn bytes(&self) -> u64 {
        match self {
            Piece::Run { len, .. } => *len,
            Piece::Strided { count, len, .. } => count * len,
            Piece::Listed { places, len, .. } => places.len() as u64 * len,
            Piece::Loop { count, body, .. } => count * body.bytes(),
            Piece::Each { places, body, .. } => places.len() as u64 * body.bytes(),
        }
    }

    fn moved(&self, by: i64) -> Piece {
        let mut piece = self.clone();
        match &mut piece {
            Piece::Run { at, .. }
            | Piece::Strided { at, .. }
            | Piece::Listed { at, .. }
            | Piece::Loop { at, .. }
            | Piece::Each { at, .. } => *at = at.wrapping_add(by),
        }
        piece
    }
}

fn sequence_of(typemap: &Typemap) -> Arc<Sequence> {
    let mut writer = Writer::default();
    match &typemap.layout {
        Layout::Basic(basic) => writer.basic(basic),
        Layout::Blocks(part, blocks) if typemap.size() > 0 => writer.blocks(part, blocks),
        Layout::Blocks(..) => {}
        Layout::Fields(fields) => {
            for field in fields.iter().filter(|field| field.part.size() > 0) {
                writer.repeat(&field.part.program().body, field.at, field.count, field.part.bounds.extent());
            }
        }
    }
    writer.finish()
}

/// Collects pieces and joins what belongs together.
#[derive(Default)]
struct Writer {
    pieces: Vec<Piece>,
}

impl Writer {
    fn basic(&mut self, basic: &Basic) {
        match basic.form {
            Form::Pair(value, place) => {
                self.run(0, value.bytes());
                self.run(basic.place_offset() as i64, place.bytes());
            }
            _ => self.run(0, basic.size()),
        }
    }

    fn blocks(&mut self, part: &Arc<Typemap>, blocks: &Blocks) {
        let unit = &part.program().body;
        let extent = part.bounds.extent();
        match blocks {
            Blocks::Strided { at, count, len, stride } => {
                let block = row(unit, *len, extent);
                self.repeat(&block, *at, *count, *stride);
            }
            Blocks::Even { at, len } => {
                let block = row(unit, *len, extent);
                match block.pieces.as_slice() {
                    [Piece::Run { at: first, len }] => {
                        for place in at.iter() {
                            self.run(place.wrapping_add(*first), *len);
                        }
                    }
                    _ => self.push(Piece::Each { at: 0, places: at.clone(), body: block }),
                }
            }
            Blocks::Uneven(list) => {
                for &(at, len) in list.iter() {
                    self.repeat(unit, at, len, extent);
                }
            }
        }
    }

    /// The sequence `count` times, the first time at `at`.
    fn repeat(&mut self, body: &Arc<Sequence>, at: i64, count: u64, stride: i64) {
        if count == 0 || body.bytes() == 0 {
            return;
        }
        if count == 1 && body.pieces.len() <= COPIED_PIECES {
            for piece in &body.pieces {
                self.push(piece.moved(at));
            }
            return;
        }
        let whole_stride =
            |count: u64, stride: i64| i64::try_from(count).ok().and_then(|count| count.checked_mul(stride));
        match body.pieces.as_slice() {
            [Piece::Run { at: first, len }] if *len as i64 == stride => self.run(at.wrapping_add(*first), count * len),
            [Piece::Run { at: first, len }] => {
                self.push(Piece::Strided { at: at.wrapping_add(*first), count, len: *len, stride });
            }
            [Piece::Strided { at: first, count: inner, len, stride: step }]
                if whole_stride(*inner, *step) == Some(stride) =>
            {
                self.push(Piece::Strided {
                    at: at.wrapping_add(*first),
                    count: count * inner,
                    len: *len,
                    stride: *step,
                });
            }
            [Piece::Loop { at: first, count: inner, stride: step, body }]
                if whole_stride(*inner, *step) == Some(stride) =>
            {
                let at = at.wrapping_add(*first);
                self.push(Piece::Loop { at, count: count * inner, stride: *step, body: body.clone() });
            }
            _ => self.push(Piece::Loop { at, count, stride, body: body.clone() }),
        }
    }

    fn push(&mut self, piece: Piece) {
        match piece {
            Piece::Run { at, len } => self.run(at, len),
            other => self.pieces.push(other),
        }
    }

    fn run(&mut self, at: i64, len: u64) {
        if len == 0 {
            return;
        }
        if let Some(Piece::Run { at: before, len: before_len }) = self.pieces.last_mut()
            && before.wrapping_add(*before_len as i64) == at
        {
            *before_len += len;
            return;
        }
        self.pieces.push(Piece::Run { at, len });
    }

    fn finish(self) -> Arc<Sequence> {
        let mut sequence = Sequence::default();
        let mut end = 0;
        let mut rest = self.pieces.as_slice();
        while let Some(first) = rest.first() {
            let (piece, taken) = match equal_runs(rest) {
                (len, places) if places.len() >= LISTED_RUNS => (joined(&places, len), places.len()),
                _ => (first.clone(), 1),
            };
            rest = &rest[taken..];
            end += piece.bytes();
            sequence.pieces.push(piece);
            sequence.ends.push(end);
        }
        Arc::new(sequence)
    }
}

/// `count` elements side by side.
fn row(unit: &Arc<Sequence>, count: u64, extent: i64) -> Arc<Sequence> {
    if count == 1 {
        return unit.clone();
    }
    let mut writer = Writer::default();
    writer.repeat(unit, 0, count, extent);
    writer.finish()
}

/// Length and places of the runs of one length that the pieces begin with.
fn equal_runs(pieces: &[Piece]) -> (u64, Vec<i64>) {
    let Some(Piece::Run { len, .. }) = pieces.first() else { return (0, Vec::new()) };
    let places = pieces.iter().map_while(|piece| match piece {
        Piece::Run { at, len: other } if other == len => Some(*at),
        _ => None,
    });
    (*len, places.collect())
}

fn joined(places: &[i64], len: u64) -> Piece {
    let stride = places[1].wrapping_sub(places[0]);
    if places.windows(2).all(|pair| pair[1].wrapping_sub(pair[0]) == stride) {
        Piece::Strided { at: places[0], count: places.len() as u64, len, stride }
    } else {
        Piece::Listed { at: 0, places: places.into(), len }
    }
}
