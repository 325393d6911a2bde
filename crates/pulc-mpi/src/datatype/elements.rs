//! How many basic elements are in the first bytes of a packed stream, and back. For `MPI_Get_elements` and
//! `MPI_Status_set_elements`.
//!
//! Source: MPI-5.0, section 5.1.11.

use crate::datatype::basic::Form;
use crate::datatype::typemap::{Layout, Typemap};

/// None if the bytes end within a basic element.
pub fn elements(map: &Typemap, bytes: u64) -> Option<i64> {
    if map.size() == 0 {
        return (bytes == 0).then_some(0);
    }
    let whole = (bytes / map.size()).checked_mul(map.elements())?;
    let (more, left) = within(map, bytes % map.size());
    let sum = whole.checked_add(more)?;
    if left > 0 { None } else { i64::try_from(sum).ok() }
}

/// Elements in the first `bytes` (fewer than all) of one element, and the bytes that are left over.
fn within(map: &Typemap, mut bytes: u64) -> (u64, u64) {
    let mut elements = 0;
    let mut take = |part: &Typemap, copies: u64, bytes: &mut u64| -> bool {
        if part.size() == 0 {
            return true;
        }
        let whole = (*bytes / part.size()).min(copies);
        elements += whole * part.elements();
        *bytes -= whole * part.size();
        if whole < copies {
            let (more, left) = within(part, *bytes);
            elements += more;
            *bytes = left;
        }
        whole == copies
    };
    match &map.layout {
        Layout::Basic(basic) => {
            if let Form::Pair(value, _) = basic.form
                && bytes >= value.bytes()
            {
                return (1, bytes - value.bytes());
            }
            return (0, bytes);
        }
        // Whatever the blocks are, the stream is one element after the other.
        Layout::Blocks(part, _) => {
            take(part, u64::MAX, &mut bytes);
        }
        Layout::Fields(fields) => {
            for field in fields.iter() {
                if !take(&field.part, field.count, &mut bytes) {
                    break;
                }
            }
        }
    }
    (elements, bytes)
}

/// The bytes of so many basic elements; none where there is no such stream.
pub fn bytes(map: &Typemap, elements: u64) -> Option<u64> {
    if elements == 0 {
        return Some(0);
    }
    if map.elements() == 0 {
        return None;
    }
    let whole = (elements / map.elements()).checked_mul(map.size())?;
    whole.checked_add(bytes_within(map, elements % map.elements()))
}

/// Bytes of the first `elements` (fewer than all) of one element.
fn bytes_within(map: &Typemap, mut elements: u64) -> u64 {
    let mut bytes = 0;
    let mut take = |part: &Typemap, copies: u64, elements: &mut u64| -> bool {
        if part.elements() == 0 {
            return true;
        }
        let whole = (*elements / part.elements()).min(copies);
        bytes += whole * part.size();
        *elements -= whole * part.elements();
        if whole < copies {
            bytes += bytes_within(part, *elements);
            *elements = 0;
        }
        whole == copies
    };
    match &map.layout {
        Layout::Basic(basic) => match (basic.form, elements) {
            (Form::Pair(value, _), 1) => return value.bytes(),
            _ => return 0,
        },
        Layout::Blocks(part, _) => {
            take(part, u64::MAX, &mut elements);
        }
        Layout::Fields(fields) => {
            for field in fields.iter() {
                if !take(&field.part, field.count, &mut elements) {
                    break;
                }
            }
        }
    }
    bytes
}
