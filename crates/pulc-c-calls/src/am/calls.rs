//! What a handler of a C program is given, and what it may do with it: reply once, or fetch what is offered. The token is valid
//! until the handler returns; a second reply is an error here, as C has no types for it.

use super::{Handle, Lent, words_of};
use crate::guard::{self, Failed, guarded};
use crate::ports::bytes_of;
use pulc::am::{Data, LeafMessage, LeafToken, Message, Offer, Opcode, Returned, Token, Words};
use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

/// As in `pulc_am.h`.
#[repr(C)]
pub struct CCall {
    pub token: *mut Handle,
    pub args: *const u64,
    pub data: *const c_void,
    pub bytes: u64,
    pub offset: u64,
    pub count: u32,
    pub source: u32,
    pub kind: u32,
    pub reserved: u32,
}

/// As in `pulc_am.h`.
#[repr(C)]
pub struct CBack {
    pub args: *const u64,
    pub count: u32,
    pub peer: u32,
    pub handler: u32,
    pub kind: u32,
    pub status: c_int,
    pub reserved: u32,
}

const _: () = assert!(size_of::<CCall>() == 56 && size_of::<CBack>() == 32);

pub type CHandler = extern "C" fn(*const CCall, *mut c_void);
pub type CReturned = extern "C" fn(*const CBack, *mut c_void);

/// The bit of a kind of message.
pub fn bit_of(opcode: Opcode) -> u32 {
    match opcode {
        Opcode::Short => 1,
        Opcode::Medium => 2,
        Opcode::Long => 4,
        Opcode::Fetch => 8,
        Opcode::Reply => 16,
        Opcode::MediumReply => 32,
        Opcode::LongReply => 64,
    }
}

/// A context of a C program, which promises that any thread may have it.
#[derive(Clone, Copy)]
pub struct Context(pub *mut c_void);

// SAFETY: the pointer is only handed back to the C program, whose handlers run in whichever thread polls, as `pulc_am.h` says.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// The right to reply that a token of a C program has.
enum Right<'a> {
    Any(Token<'a>),
    /// By arguments only.
    Leaf(LeafToken<'a>),
}

/// What a token of a C program stands for.
struct CToken<'a> {
    right: Cell<Option<Right<'a>>>,
    offer: Cell<Option<Offer<'a>>>,
    words: Words,
    source: u32,
}

/// Calls a handler of a C program; `base` is where its segment begins.
pub fn call(message: Message<'_>, run: CHandler, context: Context, base: *mut c_void) {
    let Message { opcode, source, token, words, data } = message;
    let has_token = token.is_some();
    let (mut offer, mut at, mut bytes, mut offset) = (None, std::ptr::null(), 0, 0);
    match data {
        Data::None => {}
        Data::Bytes(payload) => (at, bytes) = (payload.as_ptr().cast::<c_void>(), payload.len() as u64),
        Data::Landed(landed) => {
            at = base.cast_const().cast::<u8>().wrapping_add(landed.offset).cast();
            (bytes, offset) = (landed.len as u64, landed.offset as u64);
        }
        Data::Offer(offered) => {
            bytes = offered.len();
            offer = Some(offered);
        }
    }
    let right = Cell::new(token.map(Right::Any));
    let held = CToken { right, offer: Cell::new(offer), words: *words, source: source.rank.0 };
    let told = CCall {
        token: if has_token { std::ptr::from_ref(&held).cast_mut().cast() } else { std::ptr::null_mut() },
        args: words.all().as_ptr(),
        data: at,
        bytes,
        offset,
        count: words.all().len() as u32,
        source: held.source,
        kind: bit_of(opcode),
        reserved: 0,
    };
    run(&told, context.0);
}

/// Calls a leaf handler of a C program.
#[inline]
pub fn call_leaf(message: LeafMessage<'_>, run: CHandler, context: Context) {
    let LeafMessage { opcode, source, token, words } = message;
    let has_token = token.is_some();
    let right = Cell::new(token.map(Right::Leaf));
    let held = CToken { right, offer: Cell::new(None), words: *words, source: source.rank.0 };
    let told = CCall {
        token: if has_token { std::ptr::from_ref(&held).cast_mut().cast() } else { std::ptr::null_mut() },
        args: words.all().as_ptr(),
        data: std::ptr::null(),
        bytes: 0,
        offset: 0,
        count: words.all().len() as u32,
        source: held.source,
        kind: bit_of(opcode),
        reserved: 0,
    };
    run(&told, context.0);
}

/// Calls an error handler of a C program.
pub fn came_back(back: Returned, run: CReturned, context: Context) {
    let told = CBack {
        args: back.args.all().as_ptr(),
        count: back.args.all().len() as u32,
        peer: back.peer.0,
        handler: u32::from(back.handler),
        kind: bit_of(back.opcode),
        status: back.status as c_int,
        reserved: 0,
    };
    run(&told, context.0);
}

fn held_of<'a>(token: *mut Handle) -> Result<&'a CToken<'a>, Failed> {
    // SAFETY: null, or the token of a handler that has not returned, as the caller promises; it is used by its thread only.
    unsafe { token.cast::<CToken<'a>>().as_ref() }.ok_or_else(|| Failed::null("token"))
}

fn right_of<'a>(token: *mut Handle) -> Result<Right<'a>, Failed> {
    let right = held_of(token)?.right.take();
    right.ok_or_else(|| Failed::new(guard::ARGUMENT, "this request has been replied to"))
}

/// The token of a handler that is no leaf.
fn token_of<'a>(token: *mut Handle) -> Result<Token<'a>, Failed> {
    match right_of(token)? {
        Right::Any(token) => Ok(token),
        leaf @ Right::Leaf(_) => {
            held_of(token)?.right.set(Some(leaf));
            Err(Failed::new(guard::ARGUMENT, "a leaf handler replies with pulc_am_reply"))
        }
    }
}

pub extern "C" fn reply(token: *mut Handle, handler: u8, args: *const u64, count: usize) -> c_int {
    guarded(|| {
        let words = words_of(args, count)?;
        match right_of(token)? {
            Right::Any(token) => token.reply_words(handler, words),
            Right::Leaf(token) => token.reply_words(handler, &words),
        }
        Ok(())
    })
}

pub extern "C" fn reply_medium(
    token: *mut Handle,
    handler: u8,
    args: *const u64,
    count: usize,
    data: *const c_void,
    bytes: usize,
) -> c_int {
    guarded(|| {
        let (words, data) = (words_of(args, count)?, bytes_of(data, bytes)?);
        Ok(token_of(token)?.reply_medium_words(handler, words, data)?)
    })
}

pub extern "C" fn reply_long(
    token: *mut Handle,
    handler: u8,
    args: *const u64,
    count: usize,
    offset: u64,
    data: *const c_void,
    bytes: usize,
) -> c_int {
    guarded(|| {
        let (words, data) = (words_of(args, count)?, bytes_of(data, bytes)?);
        token_of(token)?.reply_long_words(handler, words, offset, Arc::new(data.to_vec()));
        Ok(())
    })
}

pub extern "C" fn fetch(
    token: *mut Handle,
    buffer: *mut c_void,
    bytes: usize,
    then: Option<CHandler>,
    context: *mut c_void,
) -> c_int {
    guarded(|| {
        let held = held_of(token)?;
        let (run, context) = (then.ok_or_else(|| Failed::null("then"))?, Context(context));
        let lent = Lent::new(buffer, bytes)?;
        let offer = held.offer.take();
        let offer =
            offer.ok_or_else(|| Failed::new(guard::ARGUMENT, "nothing is offered, or it was fetched before"))?;
        let (words, source, len) = (held.words, held.source, offer.len());
        held.right.set(None);
        offer.fetch(lent, move |token, lent: Lent| {
            let right = Cell::new(Some(Right::Any(token)));
            let held = CToken { right, offer: Cell::new(None), words, source };
            let told = CCall {
                token: std::ptr::from_ref(&held).cast_mut().cast(),
                args: words.all().as_ptr(),
                data: lent.as_ref().as_ptr().cast(),
                bytes: len,
                offset: 0,
                count: words.all().len() as u32,
                source,
                kind: bit_of(Opcode::Fetch),
                reserved: 0,
            };
            let context: Context = context;
            run(&told, context.0);
        })?;
        Ok(())
    })
}

pub extern "C" fn source_name(token: *mut Handle, name: *mut c_char, bytes: usize) -> c_int {
    guarded(|| {
        let right = token_of(token)?;
        let text = right.source_name();
        held_of(token)?.right.set(Some(Right::Any(right)));
        crate::machine::text_into(&text, name, bytes)
    })
}
