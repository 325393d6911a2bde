//! This library's own functions: endpoints, their handlers, mappings. Each is a guard, a conversion, one call, a mapping.

use super::calls::{self, CHandler, CReturned, Context, bit_of};
use super::{Handle, Lent, give, patience, take, thing_of};
use crate::guard::{self, Failed, guarded};
use crate::machine::store;
use crate::ports::text_of;
use pulc::Rank;
use pulc::am::{Bundle, Endpoint, LeafMessage, Message, Opcode, Peer, Status};
use std::ffi::{c_char, c_int, c_void};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// An endpoint of a C program.
struct COpened {
    endpoint: Endpoint,
    handlers: Arc<Handlers>,
}

/// A handler of a C program, and the kinds of messages it takes.
struct Slot {
    kinds: u32,
    run: CHandler,
    context: Context,
}

/// Handlers that can be replaced at any time. What was replaced stays until the endpoint is closed everywhere, because it may
/// be running.
struct Handlers {
    slots: Vec<AtomicPtr<Slot>>,
    made: Mutex<Vec<Arc<Slot>>>,
    /// What the endpoint knows of each index.
    known: Mutex<[Known; 256]>,
    on_error: Mutex<Option<(CReturned, Context)>>,
    /// Where the segment begins.
    base: AtomicPtr<c_void>,
}

/// How the handler of an index is called, once it has had one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    Not,
    Usual,
    Leaf,
}

impl Handlers {
    fn new() -> Handlers {
        Handlers {
            slots: (0..256).map(|_| AtomicPtr::new(std::ptr::null_mut())).collect(),
            made: Mutex::default(),
            known: Mutex::new([Known::Not; 256]),
            on_error: Mutex::default(),
            base: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// The handler of this index, if it takes such messages.
    #[inline]
    fn of(&self, index: u8, opcode: Opcode) -> Result<&Slot, Status> {
        // Acquire: pairs with the release of `set`.
        let slot = self.slots[usize::from(index)].load(Ordering::Acquire);
        // SAFETY: null, or one of `made`, which is never emptied while this lives.
        let slot = unsafe { slot.as_ref() }.ok_or(Status::BadHandler)?;
        if slot.kinds & bit_of(opcode) == 0 { Err(Status::BadHandler) } else { Ok(slot) }
    }

    fn handle(&self, index: u8, message: Message<'_>) -> Result<(), Status> {
        let slot = self.of(index, message.opcode)?;
        calls::call(message, slot.run, slot.context, self.base.load(Ordering::Relaxed));
        Ok(())
    }

    #[inline]
    fn handle_leaf(&self, index: u8, message: LeafMessage<'_>) -> Result<(), Status> {
        let slot = self.of(index, message.opcode)?;
        calls::call_leaf(message, slot.run, slot.context);
        Ok(())
    }

    /// What the endpoint is to know of an index: nothing before, or the same.
    fn claim(&self, index: u8, kind: Known) -> Result<bool, Failed> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut known[usize::from(index)], kind) {
            Known::Not => Ok(true),
            before if before == kind => Ok(false),
            before => {
                known[usize::from(index)] = before;
                Err(Failed::new(guard::ARGUMENT, "a handler and a leaf handler cannot take each other's place"))
            }
        }
    }

    fn set(&self, index: u8, slot: Option<Slot>) {
        let pointer = match slot.map(Arc::new) {
            Some(slot) => {
                let pointer = Arc::as_ptr(&slot).cast_mut();
                self.made.lock().unwrap_or_else(PoisonError::into_inner).push(slot);
                pointer
            }
            None => std::ptr::null_mut(),
        };
        // Release: pairs with the acquire of `handle`.
        self.slots[usize::from(index)].store(pointer, Ordering::Release);
    }
}

pub extern "C" fn open(bundle: *mut Handle, name: *const c_char, tag: u64, endpoint: *mut *mut Handle) -> c_int {
    guarded(|| {
        let (bundle, name) = (thing_of::<Bundle>(bundle, "bundle")?, text_of(name, "name")?);
        if endpoint.is_null() {
            return Err(Failed::null("endpoint"));
        }
        let opened = COpened { endpoint: bundle.endpoint(name, tag)?, handlers: Arc::new(Handlers::new()) };
        let handlers = Arc::clone(&opened.handlers);
        opened.endpoint.on_error(move |back| {
            let run = *handlers.on_error.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((run, context)) = run {
                calls::came_back(back, run, context);
            }
        })?;
        give(endpoint, opened, "endpoint")
    })
}

pub extern "C" fn close(endpoint: *mut Handle) -> c_int {
    guarded(|| {
        let opened = take::<COpened>(endpoint, "endpoint")?;
        // Mappings may keep it open: nothing of the program's is called any more.
        (0..=255).for_each(|index| opened.handlers.set(index, None));
        *opened.handlers.on_error.lock().unwrap_or_else(PoisonError::into_inner) = None;
        opened.endpoint.set_segment(Vec::new());
        Ok(())
    })
}

pub extern "C" fn set_tag(endpoint: *mut Handle, tag: u64) -> c_int {
    guarded(|| {
        thing_of::<COpened>(endpoint, "endpoint")?.endpoint.set_tag(tag);
        Ok(())
    })
}

pub extern "C" fn set_segment(endpoint: *mut Handle, base: *mut c_void, bytes: usize) -> c_int {
    guarded(|| {
        let opened = thing_of::<COpened>(endpoint, "endpoint")?;
        let lent = Lent::new(base, bytes)?;
        opened.endpoint.set_segment(lent);
        opened.handlers.base.store(base, Ordering::Relaxed);
        Ok(())
    })
}

pub extern "C" fn on(
    endpoint: *mut Handle,
    index: u8,
    kinds: u32,
    run: Option<CHandler>,
    context: *mut c_void,
) -> c_int {
    guarded(|| {
        let opened = thing_of::<COpened>(endpoint, "endpoint")?;
        let is_new = opened.handlers.claim(index, Known::Usual)?;
        opened.handlers.set(index, run.map(|run| Slot { kinds, run, context: Context(context) }));
        if is_new {
            let handlers = Arc::clone(&opened.handlers);
            opened.endpoint.on_message(index, move |message| handlers.handle(index, message))?;
        }
        Ok(())
    })
}

pub extern "C" fn on_leaf(
    endpoint: *mut Handle,
    index: u8,
    kinds: u32,
    run: Option<CHandler>,
    context: *mut c_void,
) -> c_int {
    guarded(|| {
        let opened = thing_of::<COpened>(endpoint, "endpoint")?;
        if kinds & !(bit_of(Opcode::Short) | bit_of(Opcode::Reply)) != 0 {
            return Err(Failed::new(guard::ARGUMENT, "leaf handlers take PULC_AM_SHORT and PULC_AM_REPLY only"));
        }
        let is_new = opened.handlers.claim(index, Known::Leaf)?;
        opened.handlers.set(index, run.map(|run| Slot { kinds, run, context: Context(context) }));
        if is_new {
            // What the program's handlers reach they see after a panic as well: it is not Rust's to say what that is.
            let handlers = AssertUnwindSafe(Arc::clone(&opened.handlers));
            opened.endpoint.on_leaf_message(index, move |message| (*handlers).handle_leaf(index, message))?;
        }
        Ok(())
    })
}

pub extern "C" fn on_error(endpoint: *mut Handle, run: Option<CReturned>, context: *mut c_void) -> c_int {
    guarded(|| {
        let opened = thing_of::<COpened>(endpoint, "endpoint")?;
        let mut place = opened.handlers.on_error.lock().unwrap_or_else(PoisonError::into_inner);
        *place = run.map(|run| (run, Context(context)));
        Ok(())
    })
}

pub extern "C" fn map(
    endpoint: *mut Handle,
    bundle: *mut Handle,
    rank: u32,
    name: *const c_char,
    tag: u64,
    credits: u16,
    timeout_us: i64,
    peer: *mut *mut Handle,
) -> c_int {
    guarded(|| {
        let opened = thing_of::<COpened>(endpoint, "endpoint")?;
        let (bundle, name) = (thing_of::<Bundle>(bundle, "bundle")?, text_of(name, "name")?);
        if peer.is_null() {
            return Err(Failed::null("peer"));
        }
        let mapped = match patience(timeout_us) {
            Some(timeout) => opened.endpoint.map_timeout(bundle, Rank(rank), name, tag, credits, timeout)?,
            None => opened.endpoint.map(bundle, Rank(rank), name, tag, credits)?,
        };
        give(peer, mapped, "peer")
    })
}

pub extern "C" fn unmap(peer: *mut Handle) -> c_int {
    guarded(|| take::<Peer>(peer, "peer").map(drop))
}

pub extern "C" fn credits(peer: *mut Handle, left: *mut u32, agreed: *mut u32) -> c_int {
    guarded(|| {
        let (now, all) = thing_of::<Peer>(peer, "peer")?.credits();
        store(left, u32::from(now), "left")?;
        store(agreed, u32::from(all), "agreed")
    })
}
