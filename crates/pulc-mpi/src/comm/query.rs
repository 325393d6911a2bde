//! What communicators tell about themselves, and what programs hang on them.
//! Source: MPI-5.0, 7.4.1, 7.6.1, 7.7, 7.8 and 9.3.

use super::{Communicator, find};
use crate::attribute::{self, KeyvalOf};
use crate::callback::AttrCallbacks;
use crate::consts::{self, CONGRUENT, IDENT, MAX_OBJECT_NAME, SIMILAR, UNEQUAL};
use crate::error::{Class, Error, Result};
use crate::group::{self, Group};
use crate::handle::{Comm, Errhandler, Group as GroupHandle, Info, Keyval};
use crate::matcher::matcher;
use crate::{added_errors, errors, info, world};
use std::sync::Arc;

#[inline]
pub fn comm_rank(comm: Comm) -> Result<i32> {
    let process = world::process()?;
    let mut guard = process.lock();
    matcher(&mut guard.engine).comm(comm).map(|comm| comm.me)
}

#[inline]
pub fn comm_size(comm: Comm) -> Result<i32> {
    let process = world::process()?;
    let mut guard = process.lock();
    matcher(&mut guard.engine).comm(comm).map(|comm| comm.size() as i32)
}

pub fn comm_remote_size(comm: Comm) -> Result<i32> {
    Ok(other_side(&*find(comm)?)?.size() as i32)
}

pub fn comm_test_inter(comm: Comm) -> Result<bool> {
    Ok(find(comm)?.remote.is_some())
}

pub fn comm_group(comm: Comm) -> Result<GroupHandle> {
    Ok(group::insert_arc(Arc::clone(&find(comm)?.group)))
}

pub fn comm_remote_group(comm: Comm) -> Result<GroupHandle> {
    Ok(group::insert_arc(Arc::clone(other_side(&*find(comm)?)?)))
}

fn other_side(comm: &Communicator) -> Result<&Arc<Group>> {
    match &comm.remote {
        Some(remote) => Ok(&remote.group),
        None => Err(Error::new(Class::COMM, "the communicator is no intercommunicator")),
    }
}

pub fn comm_compare(one: Comm, other: Comm) -> Result<i32> {
    let (one, other) = (find(one)?, find(other)?);
    if Arc::ptr_eq(&one, &other) {
        return Ok(IDENT);
    }
    let sides = match (&one.remote, &other.remote) {
        (None, None) => vec![alike(&one.group, &other.group)],
        (Some(a), Some(b)) => vec![alike(&one.group, &other.group), alike(&a.group, &b.group)],
        _ => vec![UNEQUAL],
    };
    // The numbers grow with the difference.
    Ok(sides.into_iter().max().unwrap_or(UNEQUAL).max(CONGRUENT))
}

fn alike(one: &Group, other: &Group) -> i32 {
    if one == other {
        return CONGRUENT;
    }
    let same = one.size() == other.size() && one.iter().all(|world| other.rank_of(world).is_some());
    if same { SIMILAR } else { UNEQUAL }
}

pub fn comm_set_name(comm: Comm, name: &str) -> Result<()> {
    let end = name.len().min(MAX_OBJECT_NAME - 1);
    let end = (0..=end).rev().find(|at| name.is_char_boundary(*at)).unwrap_or(0);
    find(comm)?.extras().name = Some(name[..end].to_owned());
    Ok(())
}

pub fn comm_get_name(comm: Comm) -> Result<String> {
    if comm.is_null() {
        return Ok("MPI_COMM_NULL".into());
    }
    Ok(find(comm)?.extras().name.clone().unwrap_or_default())
}

pub fn comm_set_info(comm: Comm, hints: Info) -> Result<()> {
    let comm = find(comm)?;
    let copy = info::copy_of_any(hints)?;
    let old = comm.extras().info.replace(copy);
    old.map_or(Ok(()), |mut old| info::info_free(&mut old))
}

/// A copy of the hints; empty where none were given.
pub fn comm_get_info(comm: Comm) -> Result<Info> {
    let hints = find(comm)?.extras().info;
    match hints {
        Some(hints) => info::info_dup(hints),
        None => info::info_create(),
    }
}

pub fn comm_create_errhandler(handler: Arc<dyn crate::callback::UserErrhandler>) -> Result<Errhandler> {
    Ok(errors::create(handler))
}

pub fn comm_set_errhandler(comm: Comm, handler: Errhandler) -> Result<()> {
    let comm = find(comm)?;
    errors::check(handler)?;
    errors::use_again(handler);
    errors::use_no_more(comm.set_errhandler(handler));
    Ok(())
}

pub fn comm_get_errhandler(comm: Comm) -> Result<Errhandler> {
    let handler = find(comm)?.errhandler();
    errors::use_again(handler);
    Ok(handler)
}

pub fn comm_create_keyval(callbacks: Arc<dyn AttrCallbacks>) -> Result<Keyval> {
    Ok(attribute::create_keyval(KeyvalOf::Comm, callbacks))
}

pub fn comm_free_keyval(keyval: &mut Keyval) -> Result<()> {
    attribute::free_keyval(KeyvalOf::Comm, keyval)
}

pub fn comm_set_attr(comm: Comm, keyval: Keyval, value: usize) -> Result<()> {
    find(comm)?.attributes.set(KeyvalOf::Comm, comm.0, keyval, value)
}

pub fn comm_delete_attr(comm: Comm, keyval: Keyval) -> Result<()> {
    find(comm)?.attributes.delete(KeyvalOf::Comm, comm.0, keyval)
}

/// What an attribute holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attribute {
    /// A value of the program.
    Value(usize),
    /// A number of the library: C programs get a pointer to it.
    Predefined(i32),
}

pub fn comm_get_attr(comm: Comm, keyval: Keyval) -> Result<Option<Attribute>> {
    let comm = find(comm)?;
    let number = match keyval.0 {
        consts::TAG_UB => Some(consts::TAG_MAX),
        consts::HOST => Some(consts::PROC_NULL),
        consts::IO => Some(consts::ANY_SOURCE),
        consts::WTIME_IS_GLOBAL => Some(0),
        consts::UNIVERSE_SIZE => Some(world::process()?.boot().tasks.len() as i32),
        consts::LASTUSEDCODE => Some(added_errors::last_used()),
        consts::APPNUM => Some(0),
        _ => return Ok(comm.attributes.value(KeyvalOf::Comm, keyval)?.map(Attribute::Value)),
    };
    Ok(number.map(Attribute::Predefined))
}

/// Attributes of `MPI_COMM_SELF` are deleted first of all when MPI ends.
pub(crate) fn delete_attributes_of_self() -> Result<()> {
    find(Comm::SELF)?.attributes.clear(Comm::SELF.0)
}
