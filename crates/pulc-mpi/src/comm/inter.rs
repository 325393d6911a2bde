//! Intercommunicators: two groups that talk to each other. Each side has a hidden communicator of its own for its part of collectives.
//! Source: MPI-5.0, 7.6.

use super::agree::{self, Across, Talk};
use super::create::{add, chosen, exchange, ranks_in};
use super::{Communicator, Remote, find};
use crate::collective;
use crate::consts::UNDEFINED;
use crate::data::Data;
use crate::error::{Class, Error, Result};
use crate::group::{self, Group};
use crate::handle::{Comm, Datatype, Errhandler, Group as GroupHandle, Info};
use crate::memory::Room;
use crate::{errors, p2p, world};
use std::sync::Arc;

/// Connects two groups through one member of each that can talk to each other.
pub fn intercomm_create(local: Comm, leader: i32, peer: Comm, remote_leader: i32, tag: i32) -> Result<Comm> {
    let own = find(local)?;
    if own.remote.is_some() {
        return Err(Error::new(Class::COMM, "the local communicator is an intercommunicator"));
    }
    if !(0..own.size() as i32).contains(&leader) {
        return Err(Error::new(Class::RANK, format!("local leader {leader} of {} processes", own.size())));
    }
    let talk = |mine: &[u8], theirs: &mut [u8]| exchange_with(peer, remote_leader, tag, mine, theirs);
    // The other side's size, then its members.
    let mut size = [0; 4];
    if own.me == leader {
        talk(&(own.size() as u32).to_ne_bytes(), &mut size)?;
    }
    share(&own, leader, &mut size)?;
    let processes = world::process()?.boot().tasks.len();
    let mut members = vec![0; announced(size, processes)? * 4];
    if own.me == leader {
        let mine: Vec<u8> = own.group.iter().flat_map(u32::to_ne_bytes).collect();
        talk(&mine, &mut members)?;
    }
    share(&own, leader, &mut members)?;
    let ranks: Vec<u32> = members.as_chunks::<4>().0.iter().map(|bytes| u32::from_ne_bytes(*bytes)).collect();
    if let Some(rank) = ranks.iter().find(|rank| **rank as usize >= processes) {
        return Err(Error::new(Class::COMM, format!("the other side names process {rank} of {processes}")));
    }
    if ranks.iter().any(|world| own.group.rank_of(*world).is_some()) {
        return Err(Error::new(Class::COMM, "the two groups of an intercommunicator share members"));
    }
    let is_low = own.group.world(0) < ranks.first().copied();
    make(&own, leader, &talk, Arc::new(Group::from_ranks(ranks)), is_low)
}

/// How long the other side says that its list is: believed up to the number of those who may stand in it.
fn announced(count: [u8; 4], limit: usize) -> Result<usize> {
    match u32::from_ne_bytes(count) as usize {
        count if count <= limit => Ok(count),
        count => Err(Error::new(Class::COMM, format!("the other side announces {count} members of {limit}"))),
    }
}

/// With the leader's way to the other side.
fn make(own: &Arc<Communicator>, leader: i32, talk: &Talk<'_>, remote: Arc<Group>, is_low: bool) -> Result<Comm> {
    // A member of its own for the agreement, in which the leader is the first.
    let across = Across { local: own, leader, tag: None, exchange: talk };
    let contexts = agree::contexts(own.context, 2, &across)?;
    finish(own, &contexts, remote, is_low, own).map(|comm| comm.handle)
}

/// With the error handler of `parent`.
fn finish(
    own: &Arc<Communicator>,
    contexts: &[u32],
    remote: Arc<Group>,
    is_low: bool,
    parent: &Communicator,
) -> Result<Arc<Communicator>> {
    let hidden = Communicator::new(Comm::NULL, contexts[1], own.me, Arc::clone(&own.group), None);
    let remote = Remote { group: remote, local: Arc::new(hidden), is_low };
    add(contexts[0], own.me, Arc::clone(&own.group), Some(remote), parent)
}

/// Another intercommunicator between the sides of an old one, or parts of them. `own` is this side's new communicator.
pub(super) fn make_across(
    old: &Arc<Communicator>,
    own: &Arc<Communicator>,
    remote: Arc<Group>,
    is_low: bool,
) -> Result<Arc<Communicator>> {
    let talk = |mine: &[u8], theirs: &mut [u8]| exchange_first(old, mine, theirs);
    let Some(side) = &old.remote else { return Err(Error::new(Class::INTERN, "no intercommunicator")) };
    let contexts =
        agree::contexts(old.context, 2, &Across { local: &side.local, leader: 0, tag: None, exchange: &talk })?;
    finish(own, &contexts, remote, is_low, old)
}

/// The two members that connect the sides exchange bytes.
fn exchange_with(peer: Comm, to: i32, tag: i32, mine: &[u8], theirs: &mut [u8]) -> Result<()> {
    let (mut out, mut into) = (Room::new(mine.len()), Room::new(theirs.len()));
    out.addr().write(0, mine);
    let (sent, room) = (mine.len() as i64, theirs.len() as i64);
    let byte = Datatype::BYTE;
    p2p::sendrecv(out.addr(), sent, byte, to, tag, into.addr(), room, byte, to, tag, peer)?;
    into.addr().read(0, theirs);
    Ok(())
}

/// The first members of both sides exchange bytes, in the context of collectives.
fn exchange_first(comm: &Arc<Communicator>, mine: &[u8], theirs: &mut [u8]) -> Result<()> {
    exchange_tagged(comm, 0, EXCHANGE_TAG, mine, theirs)
}

/// With a member of the other side, which does the same.
fn exchange_tagged(comm: &Arc<Communicator>, with: i32, tag: i32, mine: &[u8], theirs: &mut [u8]) -> Result<()> {
    let (mut out, mut into) = (Room::new(mine.len()), Room::new(theirs.len()));
    out.addr().write(0, mine);
    let (sent, room) =
        (Data::Flat { at: out.addr(), len: mine.len() }, Data::Flat { at: into.addr(), len: theirs.len() });
    let mut program = collective::Program::new();
    program.send(sent, with);
    program.recv(room, with);
    collective::run_tagged(comm, program, Some(tag))?;
    into.addr().read(0, theirs);
    Ok(())
}

/// A tag that collectives do not reach by counting.
const EXCHANGE_TAG: i32 = 0x7fff_fffe;

/// From one member to all of its side.
fn share(comm: &Arc<Communicator>, root: i32, bytes: &mut [u8]) -> Result<()> {
    let mut room = Room::new(bytes.len());
    room.addr().write(0, bytes);
    let data = Data::Flat { at: room.addr(), len: bytes.len() };
    collective::run(comm, collective::bcast_data(comm, data, root)?)?;
    room.addr().read(0, bytes);
    Ok(())
}

/// Between two groups that know each other, without a parent. Only their members take part.
pub fn intercomm_create_from_groups(
    local: GroupHandle,
    leader: i32,
    remote: GroupHandle,
    remote_leader: i32,
    stringtag: &str,
    _hints: Info,
    errhandler: Errhandler,
) -> Result<Comm> {
    errors::check(errhandler)?;
    let process = world::process()?;
    let (local, remote) = (group::get(local)?, group::get(remote)?);
    let Some(me) = local.rank_of(process.rank().0) else {
        return Err(Error::new(Class::GROUP, "this process is no member of the local group"));
    };
    if local.world(leader).is_none() || remote.world(remote_leader).is_none() {
        return Err(Error::new(Class::RANK, format!("leaders {leader} and {remote_leader} are not in their groups")));
    }
    // Both sides by themselves, in the context of the job's collectives: the tag keeps them apart.
    let own = Arc::new(Communicator::new(Comm::WORLD, 0, me, Arc::clone(&local), None));
    let is_low = local.world(0) < remote.world(0);
    let side = Remote { group: Arc::clone(&remote), local: Arc::clone(&own), is_low };
    let pair = Arc::new(Communicator::new(Comm::WORLD, 0, me, local, Some(side)));
    let tag = super::create::tag_of(stringtag);
    let talk = |mine: &[u8], theirs: &mut [u8]| exchange_tagged(&pair, remote_leader, tag, mine, theirs);
    let across = Across { local: &own, leader, tag: Some(tag), exchange: &talk };
    let contexts = agree::contexts(0, 2, &across)?;
    let made = finish(&own, &contexts, remote, is_low, &own)?.handle;
    super::comm_set_errhandler(made, errhandler)?;
    Ok(made)
}

/// One communicator of both sides, those that say `high` behind the others.
pub fn intercomm_merge(comm: Comm, high: bool) -> Result<Comm> {
    let old = find(comm)?;
    let Some(remote) = &old.remote else {
        return Err(Error::new(Class::COMM, "the communicator is no intercommunicator"));
    };
    let mut theirs = [u8::from(high)];
    if old.me == 0 {
        exchange_first(&old, &[u8::from(high)], &mut theirs)?;
    }
    share(&remote.local, 0, &mut theirs)?;
    let own_first = if (theirs[0] != 0) == high { remote.is_low } else { !high };
    let mut ranks = old.group.to_vec();
    let others = remote.group.to_vec();
    let me = if own_first { old.me } else { old.me + others.len() as i32 };
    if own_first {
        ranks.extend(others);
    } else {
        ranks.splice(0..0, others);
    }
    let talk = |mine: &[u8], theirs: &mut [u8]| exchange_first(&old, mine, theirs);
    let contexts =
        agree::contexts(old.context, 1, &Across { local: &remote.local, leader: 0, tag: None, exchange: &talk })?;
    Ok(add(contexts[0], me, Arc::new(Group::from_ranks(ranks)), None, &old)?.handle)
}

/// Splits both sides by color.
pub(super) fn split(old: &Arc<Communicator>, remote: &Remote, color: i32, key: i32) -> Result<Comm> {
    let own = exchange(&remote.local, [color, key])?;
    let theirs = exchange_lists(old, remote, &own)?;
    let (mine, others) = (chosen(&own, color), chosen(&theirs, color));
    let worlds =
        |group: &Group, ranks: &[i32]| -> Vec<u32> { ranks.iter().filter_map(|rank| group.world(*rank)).collect() };
    new_sides(old, remote, worlds(&old.group, &mine), worlds(&remote.group, &others), color != UNDEFINED)
}

/// Of parts of both sides.
pub(super) fn create(old: &Arc<Communicator>, remote: &Remote, group: &Group) -> Result<Comm> {
    let ranks = ranks_in(old, group)?;
    let own: Vec<[i32; 2]> = ranks.iter().map(|rank| [*rank, 0]).collect();
    let theirs = exchange_lists(old, remote, &own)?;
    let others = theirs.iter().filter_map(|entry| remote.group.world(entry[0])).collect();
    new_sides(old, remote, group.to_vec(), others, true)
}

/// The other side's list for this one's.
fn exchange_lists(old: &Arc<Communicator>, remote: &Remote, own: &[[i32; 2]]) -> Result<Vec<[i32; 2]>> {
    let mut len = [0; 4];
    if old.me == 0 {
        exchange_first(old, &(own.len() as u32).to_ne_bytes(), &mut len)?;
    }
    share(&remote.local, 0, &mut len)?;
    let mut bytes = vec![0; announced(len, remote.group.size())? * 8];
    if old.me == 0 {
        let mine: Vec<u8> = own.iter().flatten().flat_map(|number| number.to_ne_bytes()).collect();
        exchange_first(old, &mine, &mut bytes)?;
    }
    share(&remote.local, 0, &mut bytes)?;
    let numbers: Vec<i32> = bytes.as_chunks::<4>().0.iter().map(|bytes| i32::from_ne_bytes(*bytes)).collect();
    Ok(numbers.as_chunks::<2>().0.to_vec())
}

/// The new intercommunicator, if this process belongs to it and the other side has members.
fn new_sides(old: &Arc<Communicator>, remote: &Remote, own: Vec<u32>, others: Vec<u32>, belongs: bool) -> Result<Comm> {
    let talk = |mine: &[u8], theirs: &mut [u8]| exchange_first(old, mine, theirs);
    let contexts =
        agree::contexts(old.context, 2, &Across { local: &remote.local, leader: 0, tag: None, exchange: &talk })?;
    let my_world = old.group.world(old.me);
    let me = own.iter().position(|world| Some(*world) == my_world).filter(|_| belongs && !others.is_empty());
    let Some(me) = me else {
        contexts.iter().try_for_each(|context| agree::release(*context))?;
        return Ok(Comm::NULL);
    };
    let group = Arc::new(Group::from_ranks(own));
    let side = Arc::new(Communicator::new(old.handle, old.context, me as i32, group, None));
    finish(&side, &contexts, Arc::new(Group::from_ranks(others)), remote.is_low, old).map(|comm| comm.handle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_side_that_announces_more_members_than_there_are_is_not_believed() {
        assert_eq!(announced(3_u32.to_ne_bytes(), 3).unwrap(), 3);
        for count in [4, u32::MAX] {
            assert!(announced(count.to_ne_bytes(), 3).is_err());
        }
    }
}
