//! Making and freeing communicators. All of it is collective: the members find out together who belongs to what and agree on a context.
//! Source: MPI-5.0, 7.4.

use super::agree::{self, Among};
use super::{Communicator, Remote, find, inter};
use crate::collective;
use crate::consts::{
    COMM_TYPE_HW_GUIDED, COMM_TYPE_HW_UNGUIDED, COMM_TYPE_RESOURCE_GUIDED, COMM_TYPE_SHARED, UNDEFINED,
};
use crate::data::Data;
use crate::error::{Class, Error, Result};
use crate::group::{self, Group};
use crate::handle::{self, Comm, Group as GroupHandle, Info, Kind, Request};
use crate::matcher::{Matcher, matcher};
use crate::memory::Room;
use crate::request::set_done;
use crate::{info, world};
use std::sync::Arc;

/// A communicator with the same members, attributes, topology and hints.
pub fn comm_dup(comm: Comm) -> Result<Comm> {
    let old = find(comm)?;
    let copies = old.attributes.copied(comm.0)?;
    let new = copy_of(&old)?;
    new.attributes.fill(copies);
    let topology = old.extras().topology.clone();
    new.extras().topology = topology;
    let hints = old.extras().info;
    if let Some(hints) = hints {
        new.extras().info = Some(info::info_dup(hints)?);
    }
    Ok(new.handle)
}

/// As [`comm_dup`] with other hints.
pub fn comm_dup_with_info(comm: Comm, hints: Info) -> Result<Comm> {
    let new = comm_dup(comm)?;
    super::comm_set_info(new, hints)?;
    Ok(new)
}

/// As [`comm_dup`]; the communicator is there when the call returns, and the request complete.
pub fn comm_idup(comm: Comm) -> Result<(Comm, Request)> {
    Ok((comm_dup(comm)?, set_done()?))
}

pub fn comm_idup_with_info(comm: Comm, hints: Info) -> Result<(Comm, Request)> {
    Ok((comm_dup_with_info(comm, hints)?, set_done()?))
}

/// The same members, and nothing else.
fn copy_of(old: &Arc<Communicator>) -> Result<Arc<Communicator>> {
    match &old.remote {
        None => {
            let contexts = agree::contexts(old.context, 1, &Among { comm: old, tag: None })?;
            add(contexts[0], old.me, Arc::clone(&old.group), None, old)
        }
        Some(remote) => inter::make_across(old, &remote.local, Arc::clone(&remote.group), remote.is_low),
    }
}

/// Gives a new communicator its place.
pub(super) fn add(
    context: u32,
    me: i32,
    group: Arc<Group>,
    remote: Option<Remote>,
    parent: &Communicator,
) -> Result<Arc<Communicator>> {
    let process = world::process()?;
    let mut guard = process.lock();
    let table = matcher(&mut guard.engine);
    let place = table.comms.iter().skip(2).position(Option::is_none).map_or(table.comms.len(), |at| at + 2);
    let handle = Comm(handle::made(Kind::Comm, place as u32));
    let comm = Arc::new(Communicator::new(handle, context, me, group, remote));
    comm.set_errhandler(parent.errhandler());
    crate::errors::use_again(parent.errhandler());
    if place == table.comms.len() {
        table.comms.push(None);
    }
    table.comms[place] = Some(Arc::clone(&comm));
    Ok(comm)
}

/// Splits by color, ordered by key and then by rank. Null for those of no color.
pub fn comm_split(comm: Comm, color: i32, key: i32) -> Result<Comm> {
    if color < 0 && color != UNDEFINED {
        return Err(Error::new(Class::ARG, format!("color {color} is negative")));
    }
    let old = find(comm)?;
    if let Some(remote) = &old.remote {
        return inter::split(&old, remote, color, key);
    }
    let all = exchange(&old, [color, key])?;
    let contexts = agree::contexts(old.context, 1, &Among { comm: &old, tag: None })?;
    let ranks = chosen(&all, color);
    made(&old, contexts[0], &ranks, color != UNDEFINED)
}

/// Two numbers of every member.
pub(crate) fn exchange(comm: &Arc<Communicator>, own: [i32; 2]) -> Result<Vec<[i32; 2]>> {
    let size = comm.size();
    let mut room = Room::new(size * 8);
    let base = room.addr();
    let mut bytes = Vec::with_capacity(8);
    own.iter().for_each(|number| bytes.extend_from_slice(&number.to_ne_bytes()));
    let mut mine = Room::new(8);
    mine.addr().write(0, &bytes);
    let own = Data::Flat { at: mine.addr(), len: 8 };
    collective::run(comm, collective::allgather_bytes(comm, own, base, 8)?)?;
    let number = |at: usize| {
        let mut bytes = [0; 4];
        base.read(at as i64 * 4, &mut bytes);
        i32::from_ne_bytes(bytes)
    };
    Ok((0..size).map(|rank| [number(rank * 2), number(rank * 2 + 1)]).collect())
}

/// Ranks with this color, by key.
pub(super) fn chosen(all: &[[i32; 2]], color: i32) -> Vec<i32> {
    let mut ranks: Vec<i32> = (0..all.len() as i32).filter(|rank| all[*rank as usize][0] == color).collect();
    ranks.sort_by_key(|rank| all[*rank as usize][1]);
    ranks
}

/// The communicator of these ranks of the old one, if this process belongs to it; otherwise the context is free again.
fn made(old: &Arc<Communicator>, context: u32, ranks: &[i32], belongs: bool) -> Result<Comm> {
    let me = ranks.iter().position(|rank| *rank == old.me).filter(|_| belongs);
    let Some(me) = me else {
        agree::release(context)?;
        return Ok(Comm::NULL);
    };
    let world: Vec<u32> = ranks.iter().filter_map(|rank| old.group.world(*rank)).collect();
    let comm = add(context, me as i32, Arc::new(Group::from_ranks(world)), None, old)?;
    Ok(comm.handle)
}

/// The communicator of these ranks of the old one, all of whose members take part; null for those that are not in it.
pub(crate) fn with_members(old: &Arc<Communicator>, ranks: &[i32]) -> Result<Comm> {
    let contexts = agree::contexts(old.context, 1, &Among { comm: old, tag: None })?;
    made(old, contexts[0], ranks, true)
}

/// Splits by what members share: the memory of a node.
pub fn comm_split_type(comm: Comm, split_type: i32, key: i32, hints: Info) -> Result<Comm> {
    let process = world::process()?;
    let color = match split_type {
        COMM_TYPE_SHARED => process.node().0 as i32,
        UNDEFINED => UNDEFINED,
        // What the hardware is divided into below a node is not told apart.
        COMM_TYPE_HW_UNGUIDED => UNDEFINED,
        COMM_TYPE_HW_GUIDED | COMM_TYPE_RESOURCE_GUIDED if names_the_node(hints)? => process.node().0 as i32,
        COMM_TYPE_HW_GUIDED | COMM_TYPE_RESOURCE_GUIDED => UNDEFINED,
        other => return Err(Error::new(Class::ARG, format!("{other} is no kind of split"))),
    };
    comm_split(comm, color, key)
}

/// Whether hints ask for those that share memory.
fn names_the_node(hints: Info) -> Result<bool> {
    if hints.is_null() {
        return Ok(false);
    }
    Ok(info::info_get(hints, "mpi_hw_resource_type")?.as_deref() == Some("mpi_shared_memory"))
}

/// Of the members of a group, all of the communicator taking part.
pub fn comm_create(comm: Comm, group: GroupHandle) -> Result<Comm> {
    let old = find(comm)?;
    let group = group::get(group)?;
    if let Some(remote) = &old.remote {
        return inter::create(&old, remote, &group);
    }
    let contexts = agree::contexts(old.context, 1, &Among { comm: &old, tag: None })?;
    let ranks = ranks_in(&old, &group)?;
    made(&old, contexts[0], &ranks, true)
}

/// The members' ranks in a communicator.
pub(super) fn ranks_in(comm: &Communicator, group: &Group) -> Result<Vec<i32>> {
    let ranks: Option<Vec<i32>> = group.iter().map(|world| comm.group.rank_of(world)).collect();
    ranks.ok_or_else(|| Error::new(Class::GROUP, "the group has members that the communicator has not"))
}

/// Of the members of a group, only they taking part.
pub fn comm_create_group(comm: Comm, group: GroupHandle, tag: i32) -> Result<Comm> {
    let old = find(comm)?;
    if tag < 0 {
        return Err(super::bad_tag(tag));
    }
    let group = group::get(group)?;
    ranks_in(&old, &group)?;
    let me = old.group.world(old.me).and_then(|world| group.rank_of(world));
    let Some(me) = me else { return Ok(Comm::NULL) };
    // The members by themselves, in the parent's context: the tag keeps their messages apart from its collectives.
    let members = Arc::new(Communicator::new(old.handle, old.context, me, Arc::clone(&group), None));
    let own_tag = GROUP_TAGS | tag & 0x3fff_ffff;
    let contexts = agree::contexts(old.context, 1, &Among { comm: &members, tag: Some(own_tag) })?;
    Ok(add(contexts[0], me, group, None, &old)?.handle)
}

/// Tags of the collective context that communicators never reach by counting their collectives.
const GROUP_TAGS: i32 = 0x4000_0000;

/// The tag of messages about a new communicator that programs name.
pub(super) fn tag_of(name: &str) -> i32 {
    let hash = name.bytes().fold(7_u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
    GROUP_TAGS | (hash & 0x3fff_ffff) as i32
}

/// A communicator of a group of all processes, for sessions: without a parent.
pub(crate) fn from_group(group: Arc<Group>, stringtag: &str) -> Result<Comm> {
    let process = world::process()?;
    let me = group.rank_of(process.rank().0);
    let Some(me) = me else { return Ok(Comm::NULL) };
    let world = find(Comm::WORLD)?;
    let members = Arc::new(Communicator::new(Comm::WORLD, 0, me, Arc::clone(&group), None));
    let own_tag = tag_of(stringtag);
    let contexts = agree::contexts(0, 1, &Among { comm: &members, tag: Some(own_tag) })?;
    Ok(add(contexts[0], me, group, None, &world)?.handle)
}

/// Frees a communicator; what is under way on it still completes.
pub fn comm_free(comm: &mut Comm) -> Result<()> {
    if *comm == Comm::WORLD || *comm == Comm::SELF {
        return Err(Error::new(Class::COMM, "the predefined communicators are not freed"));
    }
    let old = find(*comm)?;
    old.attributes.clear(comm.0)?;
    crate::errors::use_no_more(old.errhandler());
    take_away(&old)?;
    if let Some(remote) = &old.remote {
        take_away(&remote.local)?;
    }
    *comm = Comm::NULL;
    Ok(())
}

fn take_away(comm: &Communicator) -> Result<()> {
    let process = world::process()?;
    let mut guard = process.lock();
    let table = matcher(&mut guard.engine);
    if let Some(place) = handle::made_index(Kind::Comm, comm.handle.0) {
        table.comms[place] = None;
    }
    let dropped = table.drop_kept(comm.context);
    for (src, cost) in dropped {
        guard.engine.release(src, cost);
    }
    drop(guard);
    agree::release(comm.context)
}

/// As [`comm_free`]: there are no connections to processes of other jobs to wait for.
pub fn comm_disconnect(comm: &mut Comm) -> Result<()> {
    comm_free(comm)
}

impl Matcher {
    /// Forgets messages that nobody will receive; what is to be released.
    fn drop_kept(&mut self, context: u32) -> Vec<(pulc_base::Rank, u64)> {
        let mut released = Vec::new();
        for context in [context, context + 1] {
            let queue = &mut self.lane(context).queue;
            for entry in queue.kept_entries() {
                let Some((src, _)) = queue.envelope(entry) else { continue };
                let Some(kept) = queue.take(entry) else { continue };
                if let Some(cost) = kept.cost_if_whole() {
                    released.push((pulc_base::Rank(src), cost));
                }
            }
        }
        released
    }
}
