//! Datatypes: where the data of a message lies in a program's memory. Sends, receives and collectives ask a [`Type`] for its size
//! and let it copy between that memory and a packed stream, any part of the stream at a time. Knows nothing of communication.
//!
//! A [`Type`] is what a handle names (with its name and attributes); what it means is a [`typemap::Typemap`], which never changes
//! and is shared. Committing makes the copy program (`program`), which `walk` executes and `copy` turns into moves.
//!
//! Source: MPI-5.0, chapter 5.

mod arrays;
pub mod basic;
mod bounds;
mod build;
pub mod calls;
#[allow(unsafe_code)]
mod copy;
mod elements;
mod external;
mod fortran;
#[cfg(test)]
mod handle_tests;
pub mod number;
#[cfg(test)]
mod oracle;
pub mod origin;
pub mod packing;
mod program;
#[cfg(test)]
mod tests;
pub mod typemap;
mod walk;

use crate::attribute::AttrSet;
use crate::error::{Class, Error, Result};
use crate::handle::{Datatype, Kind};
use crate::memory::Addr;
use crate::table::Table;
use basic::BASICS;
use std::ops::Deref;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use typemap::Typemap;

/// Element size of a predefined type without gaps; none for every other handle. A few instructions: for the short way of a message.
#[inline(always)]
pub fn contiguous_size(datatype: Datatype) -> Option<u64> {
    basic::contiguous_size(datatype.0)
}

/// What a handle names.
#[derive(Debug)]
pub struct Type {
    map: Arc<Typemap>,
    name: Mutex<String>,
    pub(crate) attributes: AttrSet,
}

/// A type, held for as long as an operation uses it: a handle that is freed meanwhile does no harm.
#[derive(Clone, Debug)]
pub enum TypeRef {
    Predefined(&'static Type),
    Made(Arc<Type>),
}

impl Deref for TypeRef {
    type Target = Type;

    #[inline(always)]
    fn deref(&self) -> &Type {
        match self {
            TypeRef::Predefined(datatype) => datatype,
            TypeRef::Made(datatype) => datatype,
        }
    }
}

static PREDEFINED: LazyLock<Vec<Type>> =
    LazyLock::new(|| BASICS.iter().map(|basic| Type::new(Arc::new(Typemap::basic(basic)), basic.name)).collect());

/// Types that the program made. The handles of some pairs look like the first ones of this kind (as in MPICH), so these places are
/// taken for good.
static MADE: LazyLock<Table<Type>> = LazyLock::new(|| {
    let table = Table::new(Kind::Datatype);
    for basic in basic::like_made() {
        let handle = table.insert(Type::new(Arc::new(Typemap::basic(basic)), basic.name));
        assert_eq!(handle as u32, basic.mpich, "the table counts from the first handle on");
    }
    table
});

/// The type that a handle names.
#[inline]
pub fn get(datatype: Datatype) -> Result<TypeRef> {
    if let Some(index) = basic::index_of(datatype.0) {
        return Ok(TypeRef::Predefined(&PREDEFINED[index]));
    }
    MADE.get(datatype.0).map(TypeRef::Made).ok_or_else(|| unknown(datatype))
}

/// As [`get`], for the arguments of communication: the type must be committed.
#[inline]
pub fn committed(datatype: Datatype) -> Result<TypeRef> {
    let found = get(datatype)?;
    if !found.is_committed() {
        return Err(not_committed(&found));
    }
    Ok(found)
}

#[cold]
fn unknown(datatype: Datatype) -> Error {
    let text = match datatype {
        Datatype::NULL => {
            "datatype MPI_DATATYPE_NULL: pass a predefined type, or one that was made and not freed".into()
        }
        Datatype(number) => format!("datatype {number:#010x} does not exist: it was never made, or it was freed"),
    };
    Error::new(Class::TYPE, text)
}

#[cold]
fn not_committed(datatype: &Type) -> Error {
    let name = datatype.name();
    Error::new(Class::TYPE, format!("datatype {name:?} is not committed: call MPI_Type_commit before it is used"))
}

/// Gives a new type its handle.
pub(crate) fn insert(map: Arc<Typemap>) -> Datatype {
    Datatype(MADE.insert(Type::new(map, "")))
}

/// Takes a handle's type away; those who still use it keep it.
pub(crate) fn remove(datatype: Datatype) -> Result<Arc<Type>> {
    if let Some(index) = basic::index_of(datatype.0) {
        let name = BASICS[index].name;
        return Err(Error::new(Class::TYPE, format!("{name} is predefined and can't be freed")));
    }
    MADE.remove(datatype.0).ok_or_else(|| unknown(datatype))
}

impl Type {
    fn new(map: Arc<Typemap>, name: &str) -> Type {
        Type { map, name: Mutex::new(name.to_string()), attributes: AttrSet::new() }
    }

    pub fn map(&self) -> &Arc<Typemap> {
        &self.map
    }

    /// Bytes of data in one element.
    #[inline]
    pub fn size(&self) -> u64 {
        self.map.size()
    }

    /// From one element to the next, in bytes.
    #[inline]
    pub fn extent(&self) -> i64 {
        self.map.bounds().extent()
    }

    pub fn lb(&self) -> i64 {
        self.map.bounds().lb
    }

    /// Where the data of one element begins.
    pub fn true_lb(&self) -> i64 {
        self.map.bounds().true_lb
    }

    /// From the first to behind the last byte of data of one element.
    pub fn true_extent(&self) -> i64 {
        self.map.bounds().true_ub - self.map.bounds().true_lb
    }

    /// Whether the data of any number of elements is one piece, which begins at the true lower bound.
    #[inline]
    pub fn is_contiguous(&self) -> bool {
        self.map.program().whole.is_some()
    }

    /// The piece of memory that `count` elements are, if it is one: distance of its beginning and length.
    pub fn one_piece(&self, count: i64) -> Option<(i64, u64)> {
        let bytes = self.packed_size(count).ok()?;
        if count == 0 || bytes == 0 {
            return Some((0, 0));
        }
        let program = self.map.program();
        match (program.whole, program.body.pieces.as_slice()) {
            (Some(at), _) => Some((at, bytes)),
            (None, [program::Piece::Run { at, len }]) if count == 1 => Some((*at, *len)),
            _ => None,
        }
    }

    pub fn is_committed(&self) -> bool {
        self.map.is_committed()
    }

    /// Bytes of the packed stream of `count` elements.
    #[inline]
    pub fn packed_size(&self, count: i64) -> Result<u64> {
        let counted = u64::try_from(count).map_err(|_| {
            Error::new(Class::COUNT, format!("count {count} is negative: pass the number of elements, 0 or more"))
        })?;
        bounds::bytes(counted, self.size())
    }

    /// Memory that `count` elements span when they are laid out like in the program's buffer: where the data begins, relative to
    /// the address that is passed, and how many bytes follow. For intermediate results of the same layout.
    pub fn span(&self, count: i64) -> Result<(i64, u64)> {
        if count <= 0 || self.size() == 0 {
            return Ok((0, 0));
        }
        let last = bounds::times(self.extent(), count - 1)?;
        let begin = bounds::plus(self.true_lb(), last.min(0))?;
        let end = bounds::plus(self.map.bounds().true_ub, last.max(0))?;
        Ok((begin, bounds::minus(end, begin)? as u64))
    }

    /// Copies bytes `from..from + out.len()` of the packed stream of `count` elements at `base`. The stream is all data in the order of
    /// the type map, as it is in memory.
    ///
    /// # Panics
    /// When the stream is shorter.
    #[inline]
    pub fn pack(&self, base: Addr, count: i64, from: u64, out: &mut [u8]) {
        let count = self.check_range(count, from, out.len());
        copy::pack(self.map.program(), base, count, from, out);
    }

    /// Puts `input` at bytes `from..from + input.len()` of the packed stream of `count` elements at `base`.
    ///
    /// # Panics
    /// When the stream is shorter.
    #[inline]
    pub fn unpack(&self, base: Addr, count: i64, from: u64, input: &[u8]) {
        let count = self.check_range(count, from, input.len());
        copy::unpack(self.map.program(), base, count, from, input);
    }

    /// Tells of the pieces of memory behind bytes `from..to` of the packed stream, in order: distance from the address, and length.
    pub fn pieces(&self, count: i64, from: u64, to: u64, each: &mut dyn FnMut(i64, u64)) {
        struct Each<'a>(&'a mut dyn FnMut(i64, u64));
        impl walk::Visit for Each<'_> {
            fn run(&mut self, at: i64, len: u64) {
                (self.0)(at, len);
            }
        }
        let count = self.check_range(count, from, to.saturating_sub(from) as usize);
        self.map.program().visit(count, from, to, &mut Each(each));
    }

    #[inline]
    fn check_range(&self, count: i64, from: u64, len: usize) -> u64 {
        let bytes = self.packed_size(count).unwrap_or(0);
        let fits = from.checked_add(len as u64).is_some_and(|to| to <= bytes);
        assert!(fits, "bytes {from} to {from}+{len} of a stream of {bytes}");
        count as u64
    }

    /// How many elements so many bytes are; none if they end within one.
    pub fn count(&self, bytes: u64) -> Option<i64> {
        match (bytes, self.size()) {
            (0, _) => Some(0),
            (_, 0) => None,
            (bytes, size) => (bytes % size == 0).then(|| (bytes / size) as i64),
        }
    }

    /// How many basic elements so many bytes are; none if they end within one.
    pub fn elements(&self, bytes: u64) -> Option<i64> {
        elements::elements(&self.map, bytes)
    }

    /// Bytes that are so many basic elements.
    pub fn bytes_of_elements(&self, elements: i64) -> Option<u64> {
        elements::bytes(&self.map, u64::try_from(elements).ok()?)
    }

    /// The name that the program, or the standard, gave it.
    pub fn name(&self) -> String {
        self.name.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_name(&self, name: &str) {
        *self.name.lock().unwrap_or_else(PoisonError::into_inner) = name.to_string();
    }
}
