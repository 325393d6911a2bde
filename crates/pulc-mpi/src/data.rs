//! The data of one call: address, count and datatype, looked at once. Most of it is one piece of memory, which messages are sent from
//! and land in without a copy in between. Made by every call with a buffer; used by the receive handler.

use crate::datatype::{self, TypeRef};
use crate::error::{Class, Error, Result};
use crate::handle::Datatype;
use crate::memory::Addr;
use pulc_handler::Body;

/// Elements that a short way takes: their bytes are counted without a look at limits.
const QUICK_MAX: i64 = 1 << 32;

/// What a call reads or writes.
#[derive(Clone)]
pub(crate) enum Data {
    /// One piece of memory.
    Flat { at: Addr, len: usize },
    /// Pieces, by a datatype.
    Typed { base: Addr, count: i64, datatype: TypeRef, len: usize },
}

impl Data {
    pub const NONE: Data = Data::Flat { at: Addr::NULL, len: 0 };

    #[inline(always)]
    pub fn new(base: Addr, count: i64, datatype: Datatype) -> Result<Data> {
        if count < 0 {
            return Err(negative(count));
        }
        if let Some(size) = datatype::contiguous_size(datatype)
            && let Some(len) = size.checked_mul(count as u64)
        {
            return flat(base, len);
        }
        Data::general(base, count, datatype)
    }

    /// Address and length where the datatype is predefined and everything is as it should be: for the short ways of a message, which keep
    /// them in registers. What is put together in memory and moved as a whole waits for every store before it.
    #[inline(always)]
    pub fn quick(base: Addr, count: i64, datatype: Datatype) -> Option<(Addr, usize)> {
        let size = datatype::contiguous_size(datatype)?;
        let is_plain = (0..=QUICK_MAX).contains(&count) && !base.is_null();
        is_plain.then(|| (base, (size * count as u64) as usize))
    }

    #[inline(never)]
    fn general(base: Addr, count: i64, datatype: Datatype) -> Result<Data> {
        let datatype = datatype::get(datatype)?;
        if !datatype.is_committed() {
            return Err(Error::new(Class::TYPE, "the datatype is not committed: call MPI_Type_commit first"));
        }
        let len = datatype.size().checked_mul(count as u64).filter(|len| isize::try_from(*len).is_ok());
        let Some(len) = len else {
            return Err(Error::new(
                Class::COUNT,
                format!("{count} elements of {} bytes exceed all memory", datatype.size()),
            ));
        };
        if datatype.is_contiguous() || len == 0 {
            return flat(base.offset(datatype.true_lb()), len);
        }
        Ok(Data::Typed { base, count, datatype, len: len as usize })
    }

    #[inline(always)]
    pub fn len(&self) -> usize {
        match self {
            Data::Flat { len, .. } | Data::Typed { len, .. } => *len,
        }
    }

    /// The memory, if it is one piece.
    #[inline(always)]
    pub fn as_flat(&self) -> Option<&[u8]> {
        match self {
            Data::Flat { at, len } => Some(at.bytes(*len)),
            Data::Typed { .. } => None,
        }
    }

    /// A copy of all of it.
    pub fn pack(&self) -> Result<Vec<u8>> {
        match self {
            Data::Flat { at, len } => Ok(at.bytes(*len).to_vec()),
            Data::Typed { base, count, datatype, len } => {
                let mut bytes = room_for(*len)?;
                bytes.resize(*len, 0);
                datatype.pack(*base, *count, 0, &mut bytes);
                Ok(bytes)
            }
        }
    }

    /// A copy of `len` bytes from `from` on; what lies behind the end is zero.
    pub fn pack_part(&self, from: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        let fits = self.len().saturating_sub(from).min(len);
        match self {
            Data::Flat { at, .. } => at.read(from as i64, &mut bytes[..fits]),
            Data::Typed { base, count, datatype, .. } => {
                datatype.pack(*base, *count, from as u64, &mut bytes[..fits]);
            }
        }
        bytes
    }

    /// Copies the first bytes into `out`; what lies behind the end stays.
    pub fn get(&self, out: &mut [u8]) {
        let fits = self.len().min(out.len());
        match self {
            Data::Flat { at, .. } => at.read(0, &mut out[..fits]),
            Data::Typed { base, count, datatype, .. } => datatype.pack(*base, *count, 0, &mut out[..fits]),
        }
    }

    /// Puts bytes where the ones from `from` on belong; what lies behind the end is left out.
    pub fn put(&self, from: usize, input: &[u8]) {
        let fits = self.len().saturating_sub(from).min(input.len());
        let input = &input[..fits];
        match self {
            Data::Flat { at, .. } => at.write(from as i64, input),
            Data::Typed { base, count, datatype, .. } => datatype.unpack(*base, *count, from as u64, input),
        }
    }

    /// The same for a body that is just arriving; `scratch` is memory to use.
    #[inline]
    pub fn put_body(&self, from: usize, body: Body<'_>, scratch: &mut Vec<u8>) {
        if let Data::Flat { at, len } = self
            && from + body.len() <= *len
        {
            body.copy_to(at.offset(from as i64).bytes_mut(body.len()));
            return;
        }
        scratch.clear();
        body.append_to(scratch);
        self.put(from, scratch);
    }

    /// Copies from one call's data to another's, within this process; how many bytes.
    pub fn copy_to(&self, to: &Data) -> Result<usize> {
        let len = self.len().min(to.len());
        if let (Data::Flat { at, .. }, Data::Flat { at: there, .. }) = (self, to) {
            at.copy_to(*there, len);
            return Ok(len);
        }
        to.put(0, &self.pack()?[..len]);
        Ok(len)
    }
}

#[inline(always)]
fn flat(at: Addr, len: u64) -> Result<Data> {
    match usize::try_from(len) {
        Ok(len) if len <= isize::MAX as usize && (len == 0 || !at.is_null()) => Ok(Data::Flat { at, len }),
        _ => Err(bad_flat(len)),
    }
}

#[cold]
fn bad_flat(len: u64) -> Error {
    if len > isize::MAX as u64 {
        return Error::new(Class::COUNT, format!("{len} bytes exceed all memory"));
    }
    Error::new(Class::BUFFER, format!("a buffer of {len} bytes at address zero"))
}

#[cold]
fn negative(count: i64) -> Error {
    Error::new(Class::COUNT, format!("count {count} is negative"))
}

/// Memory for a message, or the error that says there is none.
pub(crate) fn room_for(len: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match bytes.try_reserve_exact(len) {
        Ok(()) => Ok(bytes),
        Err(_) => Err(Error::new(Class::NO_MEM, format!("no memory for a message of {len} bytes"))),
    }
}
