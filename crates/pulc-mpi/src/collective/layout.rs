//! Where the blocks of several processes lie in one buffer of a collective: one after the other, or by counts and displacements.

use super::program::extent;
use crate::data::Data;
use crate::error::{Class, Error, Result};
use crate::handle::Datatype;
use crate::memory::{Addr, Ints};

/// A buffer with a block for every peer.
#[derive(Clone, Copy)]
pub(super) enum Blocks<'a> {
    /// Of the same length, one after the other.
    Same { base: Addr, count: i64, datatype: Datatype },
    /// Displacements in extents of the datatype.
    Varied { base: Addr, counts: Ints<'a>, displacements: Ints<'a>, datatype: Datatype },
    /// Displacements in bytes.
    Each { base: Addr, counts: Ints<'a>, displacements: Ints<'a>, datatypes: &'a [Datatype] },
}

impl Blocks<'_> {
    pub fn get(&self, at: usize) -> Result<Data> {
        match self {
            Blocks::Same { base, count, datatype } => {
                let step = extent(*datatype)?.checked_mul(*count).and_then(|step| step.checked_mul(at as i64));
                Data::new(base.offset(step.ok_or_else(too_far)?), *count, *datatype)
            }
            Blocks::Varied { base, counts, displacements, datatype } => {
                check(counts, displacements, at)?;
                let from = extent(*datatype)?.checked_mul(displacements.get(at)).ok_or_else(too_far)?;
                Data::new(base.offset(from), counts.get(at), *datatype)
            }
            Blocks::Each { base, counts, displacements, datatypes } => {
                check(counts, displacements, at)?;
                let datatype = *datatypes.get(at).ok_or_else(too_few)?;
                Data::new(base.offset(displacements.get(at)), counts.get(at), datatype)
            }
        }
    }

    /// Bytes of all blocks together: the same for all members.
    pub fn total(&self, blocks: usize) -> Result<usize> {
        (0..blocks).try_fold(0_usize, |sum, at| Ok(sum.saturating_add(self.get(at)?.len())))
    }

    pub fn is_in_place(&self) -> bool {
        match self {
            Blocks::Same { base, .. } | Blocks::Varied { base, .. } | Blocks::Each { base, .. } => base.is_in_place(),
        }
    }
}

fn check(counts: &Ints<'_>, displacements: &Ints<'_>, at: usize) -> Result<()> {
    if at < counts.len() && at < displacements.len() { Ok(()) } else { Err(too_few()) }
}

#[cold]
fn too_few() -> Error {
    Error::new(Class::ARG, "counts, displacements and datatypes are needed for every process")
}

#[cold]
fn too_far() -> Error {
    Error::new(Class::COUNT, "the blocks reach beyond all memory")
}
