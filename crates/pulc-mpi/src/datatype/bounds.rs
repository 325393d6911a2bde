//! Where a datatype begins and ends: lower and upper bound, with and without gaps, in arithmetic that never wraps.
//! Used by the constructors only.
//!
//! Source: MPI-5.0, sections 5.1.6 and 5.1.7. A bound set by hand (`MPI_Type_create_resized`, or MPI-1's markers) stays a
//! bound of everything that is made of the type; where the upper bound is not set, the extent is rounded up to the alignment.

use crate::error::{Class, Error, Result};

/// Bounds of a datatype, in bytes from the address that a program passes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    pub lb: i64,
    pub ub: i64,
    pub true_lb: i64,
    pub true_ub: i64,
    /// Set by hand, not by the data.
    pub lb_is_set: bool,
    pub ub_is_set: bool,
}

impl Bounds {
    pub fn extent(&self) -> i64 {
        self.ub - self.lb
    }
}

/// Collects the bounds of the parts of a datatype.
pub struct Hull {
    /// The bound, and whether it was set by hand.
    lb: Option<(i64, bool)>,
    ub: Option<(i64, bool)>,
    data: Option<(i64, i64)>,
    align: u64,
}

impl Hull {
    pub fn new() -> Hull {
        Hull { lb: None, ub: None, data: None, align: 1 }
    }

    /// Adds copies of a part, the first one moved by `first` and the last one by `last` bytes.
    pub fn add(&mut self, part: &Bounds, has_data: bool, align: u64, first: i64, last: i64) -> Result<()> {
        let (low, high) = (first.min(last), first.max(last));
        if has_data {
            let (begin, end) = (plus(part.true_lb, low)?, plus(part.true_ub, high)?);
            let (from, to) = self.data.unwrap_or((begin, end));
            self.data = Some((from.min(begin), to.max(end)));
            self.align = self.align.max(align);
        }
        // The rounding of a part lies within the whole, as other implementations have it: programs that describe a type as nested
        // structures (NumPy does) rely on it.
        if part.lb_is_set || has_data {
            self.lb = Some(stronger(self.lb, (plus(part.lb, low)?, part.lb_is_set), i64::min));
        }
        if part.ub_is_set || has_data {
            self.ub = Some(stronger(self.ub, (plus(part.ub, high)?, part.ub_is_set), i64::max));
        }
        Ok(())
    }

    /// The bounds of everything added.
    pub fn finish(self) -> Result<Bounds> {
        let (lb, lb_is_set) = self.lb.unwrap_or((0, false));
        let (mut ub, ub_is_set) = self.ub.unwrap_or((0, false));
        let (true_lb, true_ub) = self.data.unwrap_or((0, 0));
        if !ub_is_set {
            let over = minus(ub, lb)?.rem_euclid(self.align as i64);
            ub = if over == 0 { ub } else { plus(ub, self.align as i64 - over)? };
        }
        minus(ub, lb)?;
        minus(true_ub, true_lb)?;
        Ok(Bounds { lb, ub, true_lb, true_ub, lb_is_set, ub_is_set })
    }
}

/// Of two bounds, one that was set by hand; else the outer one.
fn stronger(old: Option<(i64, bool)>, new: (i64, bool), outer: fn(i64, i64) -> i64) -> (i64, bool) {
    match old {
        None => new,
        Some((_, false)) if new.1 => new,
        Some((bound, true)) if !new.1 => (bound, true),
        Some((bound, is_set)) => (outer(bound, new.0), is_set),
    }
}

pub fn plus(a: i64, b: i64) -> Result<i64> {
    a.checked_add(b).ok_or_else(too_large)
}

pub fn minus(a: i64, b: i64) -> Result<i64> {
    a.checked_sub(b).ok_or_else(too_large)
}

pub fn times(a: i64, b: i64) -> Result<i64> {
    a.checked_mul(b).ok_or_else(too_large)
}

/// A number of bytes or elements: kept below the largest address difference.
pub fn bytes(a: u64, b: u64) -> Result<u64> {
    a.checked_mul(b).filter(|&product| product <= i64::MAX as u64).ok_or_else(too_large)
}

pub fn bytes_sum(a: u64, b: u64) -> Result<u64> {
    a.checked_add(b).filter(|&sum| sum <= i64::MAX as u64).ok_or_else(too_large)
}

fn too_large() -> Error {
    Error::new(
        Class::ARG,
        format!("a datatype that spans more than {} bytes: use smaller counts, strides or displacements", i64::MAX),
    )
}
