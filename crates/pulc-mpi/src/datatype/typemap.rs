//! What a datatype is, without its handle: a tree of repeated parts, its bounds, where it came from, and (once committed) the
//! program that copies it. Never changes after it was made, so any number of handles and larger types share one.
//!
//! Source: MPI-5.0, section 5.1.

use crate::datatype::basic::{Basic, Form};
use crate::datatype::bounds::{self, Bounds, Hull};
use crate::datatype::origin::Origin;
use crate::datatype::program::Program;
use crate::error::{Class, Error, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Datatypes made of datatypes made of ... so many times. Types are visited recursively, and the stack is finite.
pub const NESTING_MAX: u32 = 1000;

/// A datatype.
#[derive(Debug)]
pub struct Typemap {
    pub(crate) layout: Layout,
    pub(crate) bounds: Bounds,
    pub(crate) origin: Origin,
    size: u64,
    /// Basic elements as `MPI_Get_elements` counts them.
    elements: u64,
    align: u64,
    /// The one predefined type that all data is of.
    uniform: Option<&'static Basic>,
    nesting: u32,
    committed: AtomicBool,
    program: OnceLock<Program>,
}

/// Where the data of one element is.
#[derive(Clone, Debug)]
pub(crate) enum Layout {
    Basic(&'static Basic),
    /// Blocks of one other type.
    Blocks(Arc<Typemap>, Blocks),
    /// One after the other, of different types.
    Fields(Arc<[Field]>),
}

/// Blocks of elements that stand side by side, an extent apart.
#[derive(Clone, Debug)]
pub(crate) enum Blocks {
    /// `count` blocks of `len` elements, the first one `at` bytes from the origin, `stride` bytes from one to the next.
    Strided { at: i64, count: u64, len: u64, stride: i64 },
    /// Blocks of equal length at these places, in bytes.
    Even { at: Arc<[i64]>, len: u64 },
    /// Place in bytes and length of each block.
    Uneven(Arc<[(i64, u64)]>),
}

#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub at: i64,
    pub count: u64,
    pub part: Arc<Typemap>,
}

impl Typemap {
    /// A predefined type.
    pub(crate) fn basic(basic: &'static Basic) -> Typemap {
        let extent = basic.extent() as i64;
        // The end of the data of a pair lies before its extent.
        let end = (basic.place_offset() + basic.size() - first_bytes(basic)) as i64;
        let bounds = Bounds {
            lb: 0,
            ub: extent,
            true_lb: 0,
            true_ub: end,
            lb_is_set: basic.form == Form::LowerBound,
            ub_is_set: basic.form == Form::UpperBound,
        };
        Typemap {
            layout: Layout::Basic(basic),
            bounds,
            origin: Origin::Named,
            size: basic.size(),
            elements: basic.elements(),
            align: basic.align(),
            uniform: (basic.size() > 0).then_some(basic),
            nesting: 0,
            committed: AtomicBool::new(true),
            program: OnceLock::new(),
        }
    }

    /// Finds size and bounds of a new layout.
    pub(crate) fn new(layout: Layout, origin: Origin) -> Result<Typemap> {
        let mut sums =
            Sums { hull: Hull::new(), size: 0, elements: 0, align: 1, uniform: None, mixed: false, nesting: 0 };
        match &layout {
            Layout::Basic(basic) => {
                let whole = Typemap::basic(basic);
                return Ok(Typemap { origin, committed: AtomicBool::new(false), ..whole });
            }
            Layout::Blocks(part, Blocks::Strided { at, count, len, stride }) => {
                sums.add_strided(part, *at, *count, *len, *stride)?;
            }
            Layout::Blocks(part, Blocks::Even { at, len }) => {
                let low = at.iter().min().copied().unwrap_or(0);
                let high = at.iter().max().copied().unwrap_or(0);
                let count = at.len() as u64;
                // The hull of blocks of one length is that of the lowest and the highest one.
                sums.add_between(part, low, high, count, *len)?;
            }
            Layout::Blocks(part, Blocks::Uneven(blocks)) => {
                for &(at, len) in blocks.iter() {
                    sums.add_between(part, at, at, 1, len)?;
                }
            }
            Layout::Fields(fields) => {
                for field in fields.iter() {
                    sums.add_between(&field.part, field.at, field.at, 1, field.count)?;
                }
            }
        }
        sums.finish(layout, origin)
    }

    /// The same data between other bounds.
    pub(crate) fn resized(old: &Arc<Typemap>, lb: i64, extent: i64, origin: Origin) -> Result<Typemap> {
        let ub = bounds::plus(lb, extent)?;
        let bounds = Bounds { lb, ub, lb_is_set: true, ub_is_set: true, ..old.bounds };
        Ok(old.again(bounds, origin))
    }

    /// The same type with another origin (`MPI_Type_dup` and the Fortran 90 types).
    pub(crate) fn renamed(old: &Arc<Typemap>, origin: Origin) -> Typemap {
        let copy = old.again(old.bounds, origin);
        if old.is_committed() {
            copy.commit();
        }
        copy
    }

    fn again(&self, bounds: Bounds, origin: Origin) -> Typemap {
        Typemap {
            layout: self.layout.clone(),
            bounds,
            origin,
            size: self.size,
            elements: self.elements,
            align: self.align,
            uniform: self.uniform,
            nesting: self.nesting,
            committed: AtomicBool::new(false),
            program: OnceLock::new(),
        }
    }

    /// Bytes of data in one element.
    pub fn size(&self) -> u64 {
        self.size
    }

    pub fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    /// Basic elements in one element.
    pub fn elements(&self) -> u64 {
        self.elements
    }

    /// The predefined type that all data is of, if it is one.
    pub fn uniform(&self) -> Option<&'static Basic> {
        self.uniform
    }

    /// The predefined type that this is.
    pub fn as_basic(&self) -> Option<&'static Basic> {
        match (&self.origin, &self.layout) {
            (Origin::Named, Layout::Basic(basic)) => Some(basic),
            _ => None,
        }
    }

    pub fn is_committed(&self) -> bool {
        self.committed.load(Ordering::Acquire)
    }

    /// Makes the copy program now rather than at the first message.
    pub fn commit(&self) {
        self.program();
        self.committed.store(true, Ordering::Release);
    }

    /// How one element is copied.
    #[inline]
    pub(crate) fn program(&self) -> &Program {
        self.program.get_or_init(|| Program::of(self))
    }
}

fn first_bytes(basic: &Basic) -> u64 {
    match basic.form {
        Form::Pair(value, _) => value.bytes(),
        _ => basic.size(),
    }
}

struct Sums {
    hull: Hull,
    size: u64,
    elements: u64,
    align: u64,
    uniform: Option<&'static Basic>,
    mixed: bool,
    nesting: u32,
}

impl Sums {
    fn add_strided(&mut self, part: &Arc<Typemap>, at: i64, count: u64, len: u64, stride: i64) -> Result<()> {
        if count == 0 {
            return self.nest(part);
        }
        let last = bounds::plus(at, bounds::times(stride, signed(count - 1)?)?)?;
        self.add_between(part, at, last, count, len)
    }

    /// `count` blocks of `len` elements of which the outermost ones are at `low` and `high`.
    fn add_between(&mut self, part: &Arc<Typemap>, low: i64, high: i64, count: u64, len: u64) -> Result<()> {
        self.nest(part)?;
        let copies = bounds::bytes(count, len)?;
        if copies == 0 {
            return Ok(());
        }
        let row = bounds::times(part.bounds.extent(), signed(len - 1)?)?;
        // Both ends of the lowest and of the highest block: an extent may be negative.
        for at in [low.min(high), low.max(high)] {
            self.hull.add(&part.bounds, part.size > 0, part.align, at, bounds::plus(at, row)?)?;
        }
        self.size = bounds::bytes_sum(self.size, bounds::bytes(copies, part.size)?)?;
        self.elements = bounds::bytes_sum(self.elements, bounds::bytes(copies, part.elements)?)?;
        self.align = self.align.max(part.align);
        if part.size > 0 {
            self.mixed |= part.uniform.is_none() || self.uniform.is_some_and(|basic| Some(basic) != part.uniform);
            self.uniform = part.uniform;
        }
        Ok(())
    }

    fn nest(&mut self, part: &Arc<Typemap>) -> Result<()> {
        self.nesting = self.nesting.max(part.nesting + 1);
        if self.nesting > NESTING_MAX {
            let text =
                format!("datatypes nested {} deep: at most {NESTING_MAX}; build it of fewer levels", self.nesting);
            return Err(Error::new(Class::TYPE, text));
        }
        Ok(())
    }

    fn finish(self, layout: Layout, origin: Origin) -> Result<Typemap> {
        Ok(Typemap {
            layout,
            bounds: self.hull.finish()?,
            origin,
            size: self.size,
            elements: self.elements,
            align: self.align,
            uniform: if self.mixed { None } else { self.uniform },
            nesting: self.nesting,
            committed: AtomicBool::new(false),
            program: OnceLock::new(),
        })
    }
}

fn signed(count: u64) -> Result<i64> {
    i64::try_from(count).map_err(|_| Error::new(Class::COUNT, format!("count {count} exceeds {}", i64::MAX)))
}
