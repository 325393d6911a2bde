//! `MPI_Pack` and its family: messages that programs put together by hand. Re-exported by `call`.
//!
//! Source: MPI-5.0, sections 5.2 and 5.3. What is packed is the bare data in native bytes, so that unpacking with any other
//! grouping of the same basic types works.

use crate::datatype::external;
use crate::datatype::{TypeRef, committed, get};
use crate::error::{Class, Error, Result};
use crate::handle::Datatype;
use crate::memory::Addr;

/// Bytes that `count` elements take when packed.
pub fn pack_size(count: i64, datatype: Datatype) -> Result<i64> {
    Ok(get(datatype)?.packed_size(count)? as i64)
}

/// Packs behind `position`, which moves on.
pub fn pack(input: Addr, count: i64, datatype: Datatype, out: Addr, out_size: i64, position: &mut i64) -> Result<()> {
    let found = committed(datatype)?;
    let bytes = found.packed_size(count)?;
    let end = range(*position, bytes, out_size)?;
    found.pack(input, count, 0, out.offset(*position).bytes_mut(bytes as usize));
    *position = end;
    Ok(())
}

/// Unpacks what stands behind `position`, which moves on.
pub fn unpack(input: Addr, in_size: i64, position: &mut i64, out: Addr, count: i64, datatype: Datatype) -> Result<()> {
    let found = committed(datatype)?;
    let bytes = found.packed_size(count)?;
    let end = range(*position, bytes, in_size)?;
    found.unpack(out, count, 0, input.offset(*position).bytes(bytes as usize));
    *position = end;
    Ok(())
}

/// Bytes that `count` elements take in a portable representation.
pub fn pack_external_size(representation: &str, count: i64, datatype: Datatype) -> Result<i64> {
    known(representation)?;
    let found = get(datatype)?;
    Ok(external_size(&found, count)? as i64)
}

pub fn pack_external(
    representation: &str,
    input: Addr,
    count: i64,
    datatype: Datatype,
    out: Addr,
    out_size: i64,
    position: &mut i64,
) -> Result<()> {
    known(representation)?;
    let found = committed(datatype)?;
    let bytes = external_size(&found, count)?;
    let end = range(*position, bytes, out_size)?;
    let mut packed = Vec::with_capacity(bytes as usize);
    external::pack(found.map(), input, count as u64, &mut packed);
    out.write(*position, &packed);
    *position = end;
    Ok(())
}

pub fn unpack_external(
    representation: &str,
    input: Addr,
    in_size: i64,
    position: &mut i64,
    out: Addr,
    count: i64,
    datatype: Datatype,
) -> Result<()> {
    known(representation)?;
    let found = committed(datatype)?;
    let bytes = external_size(&found, count)?;
    let end = range(*position, bytes, in_size)?;
    external::unpack(found.map(), out, count as u64, input.offset(*position).bytes(bytes as usize));
    *position = end;
    Ok(())
}

/// Copies data from one buffer of the program to another, of another type perhaps; as much as both hold. Gives the bytes copied.
pub fn transfer(
    from: Addr,
    from_count: i64,
    from_type: &TypeRef,
    to: Addr,
    to_count: i64,
    to_type: &TypeRef,
) -> Result<u64> {
    let bytes = from_type.packed_size(from_count)?.min(to_type.packed_size(to_count)?);
    if bytes == 0 {
        return Ok(0);
    }
    match (from_type.is_contiguous(), to_type.is_contiguous()) {
        (true, true) => {
            from.offset(from_type.true_lb()).copy_to(to.offset(to_type.true_lb()), bytes as usize);
        }
        (true, false) => {
            to_type.unpack(to, to_count, 0, from.offset(from_type.true_lb()).bytes(bytes as usize));
        }
        (false, true) => {
            from_type.pack(from, from_count, 0, to.offset(to_type.true_lb()).bytes_mut(bytes as usize));
        }
        (false, false) => {
            let mut piece = vec![0; TRANSFER_BYTES.min(bytes as usize)];
            let mut done = 0;
            while done < bytes {
                let piece = &mut piece[..TRANSFER_BYTES.min((bytes - done) as usize)];
                from_type.pack(from, from_count, done, piece);
                to_type.unpack(to, to_count, done, piece);
                done += piece.len() as u64;
            }
        }
    }
    Ok(bytes)
}

/// Goes through the first cache.
const TRANSFER_BYTES: usize = 16 * 1024;

/// Where `bytes` behind `position` end, if they fit.
fn range(position: i64, bytes: u64, size: i64) -> Result<i64> {
    let end = i64::try_from(bytes).ok().and_then(|bytes| position.checked_add(bytes));
    match end {
        Some(end) if position >= 0 && end <= size => Ok(end),
        _ => {
            let text =
                format!("{bytes} bytes at position {position} of a packed buffer of {size}: pass a larger buffer");
            Err(Error::new(Class::ARG, text))
        }
    }
}

fn external_size(found: &TypeRef, count: i64) -> Result<u64> {
    found.packed_size(count)?;
    external::size(found.map(), count as u64)
}

fn known(representation: &str) -> Result<()> {
    match representation {
        "external32" => Ok(()),
        other => Err(Error::new(Class::ARG, format!("data representation {other:?}: only \"external32\" is known"))),
    }
}
