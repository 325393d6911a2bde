//! Sessions: MPI for a part of a program, without a beginning and an end of the whole. The process sets are the job and the process itself.
//! Source: MPI-5.0, 11.3.

use crate::callback::{ErrorOn, UserErrhandler};
use crate::error::{Class, Error, Result};
use crate::group::{self, Group};
use crate::handle::{Comm, Errhandler, Group as GroupHandle, Info, Kind, Session};
use crate::table::Table;
use crate::{comm, errors, info, world};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

const SETS: [&str; 2] = ["mpi://WORLD", "mpi://SELF"];

pub(crate) struct Open {
    pub errhandler: AtomicI32,
}

static SESSIONS: Table<Open> = Table::new(Kind::Session);

pub(crate) fn find(session: Session) -> Result<Arc<Open>> {
    let found = SESSIONS.get(session.0);
    found.ok_or_else(|| Error::new(Class::SESSION, format!("{:#010x} is no open session", session.0)))
}

/// The handler that errors of a session go to.
pub(crate) fn errhandler_of(session: Session) -> Option<Errhandler> {
    find(session).ok().map(|open| Errhandler(open.errhandler.load(Ordering::Relaxed)))
}

/// Opens a session; MPI need not be initialised.
pub fn session_init(_hints: Info, errhandler: Errhandler) -> Result<Session> {
    errors::check(errhandler)?;
    world::open_session()?;
    errors::use_again(errhandler);
    Ok(Session(SESSIONS.insert(Open { errhandler: AtomicI32::new(errhandler.0) })))
}

pub fn session_finalize(session: &mut Session) -> Result<()> {
    let open = find(*session)?;
    SESSIONS.remove(session.0);
    errors::use_no_more(Errhandler(open.errhandler.load(Ordering::Relaxed)));
    world::close_session();
    *session = Session::NULL;
    Ok(())
}

pub fn session_get_num_psets(session: Session, _hints: Info) -> Result<i32> {
    find(session).map(|_| SETS.len() as i32)
}

pub fn session_get_nth_pset(session: Session, _hints: Info, n: i32) -> Result<String> {
    find(session)?;
    let set = usize::try_from(n).ok().and_then(|n| SETS.get(n));
    let set = set.ok_or_else(|| Error::new(Class::ARG, format!("process set {n} of {}", SETS.len())))?;
    Ok((*set).to_owned())
}

pub fn session_get_info(session: Session) -> Result<Info> {
    find(session)?;
    let hints = info::info_create()?;
    info::info_set(hints, "thread_level", "MPI_THREAD_MULTIPLE")?;
    Ok(hints)
}

pub fn session_get_pset_info(session: Session, set: &str) -> Result<Info> {
    let group = members(session, set)?;
    let hints = info::info_create()?;
    info::info_set(hints, "mpi_size", &group.size().to_string())?;
    Ok(hints)
}

fn members(session: Session, set: &str) -> Result<Group> {
    find(session)?;
    let process = world::process()?;
    if set.eq_ignore_ascii_case(SETS[0]) {
        return Ok(Group::range(0, process.boot().tasks.len() as u32));
    }
    if set.eq_ignore_ascii_case(SETS[1]) {
        return Ok(Group::range(process.rank().0, 1));
    }
    Err(Error::new(Class::ARG, format!("there is no process set {set:?}: there are {}", SETS.join(" and "))))
}

pub fn group_from_session_pset(session: Session, set: &str) -> Result<GroupHandle> {
    Ok(group::insert_arc(Arc::new(members(session, set)?)))
}

/// A communicator of the members of a group, only they taking part.
pub fn comm_create_from_group(group: GroupHandle, tag: &str, _hints: Info, errhandler: Errhandler) -> Result<Comm> {
    errors::check(errhandler)?;
    let made = comm::from_group(group::get(group)?, tag)?;
    if !made.is_null() {
        comm::comm_set_errhandler(made, errhandler)?;
    }
    Ok(made)
}

pub fn session_create_errhandler(handler: Arc<dyn UserErrhandler>) -> Result<Errhandler> {
    Ok(errors::create(handler))
}

pub fn session_set_errhandler(session: Session, handler: Errhandler) -> Result<()> {
    let open = find(session)?;
    errors::check(handler)?;
    errors::use_again(handler);
    errors::use_no_more(Errhandler(open.errhandler.swap(handler.0, Ordering::Relaxed)));
    Ok(())
}

pub fn session_get_errhandler(session: Session) -> Result<Errhandler> {
    let handler = Errhandler(find(session)?.errhandler.load(Ordering::Relaxed));
    errors::use_again(handler);
    Ok(handler)
}

pub fn session_call_errhandler(session: Session, class: i32) -> Result<()> {
    find(session)?;
    let error = Error::new(Class(class), "an error of the program");
    errors::raise(ErrorOn::Session(session), "MPI_Session_call_errhandler", error);
    Ok(())
}
