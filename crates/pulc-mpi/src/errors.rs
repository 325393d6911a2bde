//! Error handlers, and what a call that failed does: the doors bring every error here with the object it happened on. Nothing is
//! locked while a handler of the program runs.
//! Source: MPI-5.0, 9.3.

use crate::callback::{ErrorOn, UserErrhandler};
use crate::comm::Communicator;
use crate::error::{Class, Error, Result};
use crate::handle::{Comm, Errhandler, Kind};
use crate::matcher::matcher;
use crate::table::Table;
use crate::{session, world};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

struct Handler {
    user: Arc<dyn UserErrhandler>,
    /// Handles of the program and objects that have it.
    uses: AtomicU32,
}

static HANDLERS: Table<Handler> = Table::new(Kind::Errhandler);
/// What errors are raised on that belong to no object, while `MPI_COMM_SELF` is not there.
static INITIAL: AtomicI32 = AtomicI32::new(Errhandler::ERRORS_ARE_FATAL.0);

pub(crate) fn create(user: Arc<dyn UserErrhandler>) -> Errhandler {
    Errhandler(HANDLERS.insert(Handler { user, uses: AtomicU32::new(1) }))
}

fn is_predefined(handler: Errhandler) -> bool {
    [Errhandler::ERRORS_ARE_FATAL, Errhandler::ERRORS_RETURN, Errhandler::ERRORS_ABORT].contains(&handler)
}

pub(crate) fn check(handler: Errhandler) -> Result<()> {
    if is_predefined(handler) || HANDLERS.get(handler.0).is_some() {
        return Ok(());
    }
    Err(Error::new(Class::ERRHANDLER, format!("{:#010x} is no error handler", handler.0)))
}

/// Another object or handle has it.
pub(crate) fn use_again(handler: Errhandler) {
    if let Some(found) = HANDLERS.get(handler.0) {
        found.uses.fetch_add(1, Ordering::Relaxed);
    }
}

/// An object or a handle has it no longer.
pub(crate) fn use_no_more(handler: Errhandler) {
    if let Some(found) = HANDLERS.get(handler.0)
        && found.uses.fetch_sub(1, Ordering::AcqRel) == 1
    {
        HANDLERS.remove(handler.0);
    }
}

pub fn errhandler_free(handler: &mut Errhandler) -> Result<()> {
    check(*handler)?;
    use_no_more(*handler);
    *handler = Errhandler::NULL;
    Ok(())
}

/// Calls the handler of a communicator for an error of the program's own.
pub fn comm_call_errhandler(comm: Comm, class: i32) -> Result<()> {
    crate::comm::find(comm)?;
    raise(ErrorOn::Comm(comm), "MPI_Comm_call_errhandler", Error::new(Class(class), "an error of the program"));
    Ok(())
}

/// Sets what happens to errors before there is a communicator.
pub fn set_initial(handler: Errhandler) {
    INITIAL.store(handler.0, Ordering::Relaxed);
}

/// What an error leads to: the code that the call returns, if it returns.
#[cold]
pub fn raise(on: ErrorOn, function: &str, error: Error) -> i32 {
    let class = error.class.0;
    let on = match (error.on, on) {
        (Some(comm), _) => ErrorOn::Comm(comm),
        (None, on) => on,
    };
    let found = communicator(on);
    let own = match on {
        // Errors of files return, unless the program says otherwise.
        ErrorOn::File(_) => Some(Errhandler::ERRORS_RETURN),
        ErrorOn::Session(session) => session::errhandler_of(session),
        _ => found.as_ref().map(|comm| comm.errhandler()),
    };
    let inherited = || found.as_ref().map(|comm| comm.errhandler());
    let handler = own.or_else(inherited).unwrap_or_else(|| Errhandler(INITIAL.load(Ordering::Relaxed)));
    if handler == Errhandler::ERRORS_RETURN {
        return class;
    }
    if let Some(user) = HANDLERS.get(handler.0) {
        user.user.handle(on, class);
        return class;
    }
    let place = found.as_ref().map(|comm| format!(" on {}", comm.display_name())).unwrap_or_default();
    let who = world::who();
    let meaning = match error.class {
        // The class says nothing that the text does not.
        Class::OTHER => String::new(),
        class => format!("{}: ", class.text().unwrap_or("an error of the program")),
    };
    world::abort_job(exit_status(class), &format!("{function}{place}{who}: {meaning}{}", error.text))
}

fn exit_status(class: i32) -> i32 {
    if class & 0xff == 0 { 1 } else { class & 0xff }
}

/// The communicator whose handler is asked: of errors that belong to no object, that of `MPI_COMM_SELF`.
fn communicator(on: ErrorOn) -> Option<Arc<Communicator>> {
    let process = world::process().ok()?;
    let mut guard = process.lock();
    let table = matcher(&mut guard.engine);
    match on {
        ErrorOn::Comm(comm) => table.comm(comm).or_else(|_| table.comm(Comm::WORLD)).ok().cloned(),
        _ => table.comm(Comm::SELF).ok().cloned(),
    }
}
