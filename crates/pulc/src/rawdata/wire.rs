//! The header of the rawdata protocol. Used by every file of this room; pure.
//!
//! The protocol's header is eight bytes, so that it travels as one word: the channel's number and the kind of message (u16 each,
//! little-endian), and four that are zero. A channel is known by the rank at its other end and its number, which is the same at
//! both ends. `DATA` is a message; `LOAN` says where in its sender's arena one lies: offset and length (u64), the lender's
//! number for it (u32); `RETURN` gives that number back.

/// A whole word, so that a short message is put together in registers.
pub(super) const HEADER_BYTES: usize = 8;
/// Body of a loan.
pub(super) const LOAN_BYTES: usize = 20;
pub(super) const DATA: u16 = 0;
pub(super) const LOAN: u16 = 1;
pub(super) const RETURN: u16 = 2;

/// The channel's number and the kind of message.
#[inline]
pub(super) fn parse(header: &[u8]) -> Option<(u16, u16)> {
    let word = u64::from_le_bytes(header.try_into().ok()?);
    Some((word as u16, (word >> 16) as u16))
}

fn header(number: u16, kind: u16) -> [u8; HEADER_BYTES] {
    (u64::from(number) | u64::from(kind) << 16).to_le_bytes()
}

/// The header of a loan.
pub(super) fn header_of_loan(number: u16) -> [u8; HEADER_BYTES] {
    header(number, LOAN)
}

/// The header of a loan that is given back.
pub(super) fn header_of_return(number: u16) -> [u8; HEADER_BYTES] {
    header(number, RETURN)
}

/// The header of a message.
#[inline]
pub(super) fn header_of(number: u16) -> [u8; HEADER_BYTES] {
    u64::from(number).to_le_bytes()
}
