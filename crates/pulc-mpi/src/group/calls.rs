//! MPI's calls about groups, from handles to handles. Re-exported by `call`.
//! Source: MPI-5.0, 7.3.

use super::{Group, get, insert_arc, remove};
use crate::consts::UNDEFINED;
use crate::error::{Class, Error, Result};
use crate::handle::Group as Handle;
use crate::world;
use std::sync::Arc;

pub fn group_size(group: Handle) -> Result<i32> {
    Ok(get(group)?.size() as i32)
}

/// This process's rank; `UNDEFINED` if it is no member.
pub fn group_rank(group: Handle) -> Result<i32> {
    let found = get(group)?;
    let me = world::attached().map(|process| process.rank().0);
    Ok(me.and_then(|me| found.rank_of(me)).unwrap_or(UNDEFINED))
}

pub fn group_translate_ranks(group: Handle, ranks: &[i32], other: Handle) -> Result<Vec<i32>> {
    get(group)?.translate(ranks, &*get(other)?)
}

pub fn group_compare(group: Handle, other: Handle) -> Result<i32> {
    Ok(get(group)?.compare(&*get(other)?))
}

pub fn group_union(group: Handle, other: Handle) -> Result<Handle> {
    Ok(made(get(group)?.union(&*get(other)?)))
}

pub fn group_intersection(group: Handle, other: Handle) -> Result<Handle> {
    Ok(made(get(group)?.intersection(&*get(other)?)))
}

pub fn group_difference(group: Handle, other: Handle) -> Result<Handle> {
    Ok(made(get(group)?.difference(&*get(other)?)))
}

pub fn group_incl(group: Handle, ranks: &[i32]) -> Result<Handle> {
    get(group)?.incl(ranks).map(made)
}

pub fn group_excl(group: Handle, ranks: &[i32]) -> Result<Handle> {
    get(group)?.excl(ranks).map(made)
}

/// Each range is (first, last, stride).
pub fn group_range_incl(group: Handle, ranges: &[[i32; 3]]) -> Result<Handle> {
    get(group)?.range_incl(ranges).map(made)
}

/// Each range is (first, last, stride).
pub fn group_range_excl(group: Handle, ranges: &[[i32; 3]]) -> Result<Handle> {
    get(group)?.range_excl(ranges).map(made)
}

/// Frees the handle, which becomes null. The empty group stays, whichever call returned it.
pub fn group_free(group: &mut Handle) -> Result<()> {
    if *group != Handle::EMPTY && remove(*group).is_none() {
        return Err(Error::new(
            Class::GROUP,
            format!("{:#010x} is no group: it was never made, or was freed", group.0),
        ));
    }
    *group = Handle::NULL;
    Ok(())
}

fn made(group: Group) -> Handle {
    insert_arc(Arc::new(group))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_result_is_the_predefined_group_and_freed_groups_are_gone() {
        let mut group = made(Group::range(0, 3));
        let mut empty = group_difference(group, group).unwrap();
        assert_eq!(empty, Handle::EMPTY);
        group_free(&mut empty).unwrap();
        assert_eq!(group_size(Handle::EMPTY), Ok(0));
        let held = group;
        group_free(&mut group).unwrap();
        assert_eq!(group, Handle::NULL);
        assert_eq!(group_size(held).unwrap_err().class, Class::GROUP);
        assert_eq!(group_free(&mut group).unwrap_err().class, Class::GROUP);
        assert_eq!(group_rank(Handle::EMPTY), Ok(UNDEFINED));
    }
}
