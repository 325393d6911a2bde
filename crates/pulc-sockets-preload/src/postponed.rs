//! Changes of what a set waits for that the kernel need not know yet. A program that turns its interest in a connection on and off for
//! every request (redis's own benchmark does it five times) asks the kernel each time for something that matters only when the
//! kernel is waited in. So for members with a ring such a change is only noted, and the kernel is told before its next wait, if what it
//! has is still not what is wanted.
//!
//! - Whoever is about to call the kernel counts itself first and looks for changes then; whoever notes a change counts that first and
//!   looks for callers then. One of the two sees the other, and the kernel is told.
//! - Noted are changes of members that the kernel has: it then knows each of them, and a change can only be one of events, or an end.
//! - Edges, one-shot and exclusive members, nested sets and sets that other processes have are changed at once, as the program says it.
//! - Before a descriptor is closed or becomes another one, and before others get the set, the kernel is told.

use crate::kernel::{Change, change, flags};
use crate::members::{ALL, MEMBERS, Member, Set};
use crate::promoted::ring_of;
use crate::sets::{self, UNWATCHED};
use crate::table::{self, quietly};
use libc::{c_int, epoll_event};
use std::sync::atomic::{AtomicU32, Ordering};

/// Events whose meaning is in the moment at which the kernel hears of them.
const AT_ONCE: u32 = (libc::EPOLLET | libc::EPOLLONESHOT | libc::EPOLLEXCLUSIVE | libc::EPOLLWAKEUP) as u32;

/// A call of the kernel that waits for a set or looks at it, for as long as this lives; the kernel has been told all.
pub struct Waiting(Option<&'static Set>);

impl Waiting {
    #[inline]
    pub fn enter(number: u32) -> Waiting {
        if number == 0 {
            return Waiting(None);
        }
        let set = &ALL[number as usize];
        // SeqCst: counted before the look for changes, see above.
        set.waiters.fetch_add(1, Ordering::SeqCst);
        if set.postponed.load(Ordering::SeqCst) != 0 {
            tell(number);
        }
        Waiting(Some(set))
    }
}

impl Drop for Waiting {
    #[inline]
    fn drop(&mut self) {
        if let Some(set) = self.0 {
            set.waiters.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Notes a change; what `epoll_ctl` returns then, as an error number. `None`: the kernel is to do it, which knows all of this
/// descriptor by now.
///
/// # Safety
/// `event` is null or an event, as for `epoll_ctl`.
pub unsafe fn postpone(number: u32, what: c_int, fd: c_int, event: *const epoll_event) -> Option<Result<(), c_int>> {
    let set = &ALL[number as usize];
    if number == 0 || set.count.load(Ordering::Acquire) == 0 {
        return None;
    }
    let call = table::touch(fd)?;
    let watch = call.connection.watch.load(Ordering::SeqCst);
    let is_possible = ring_of(&call).is_some() && watch == number && (what == libc::EPOLL_CTL_DEL || !event.is_null());
    if is_possible {
        // SAFETY: the caller's promise; it is no null where it is read.
        let wanted = (what != libc::EPOLL_CTL_DEL).then(|| unsafe { event.read_unaligned() });
        if let Some(result) = note(set, what, fd, wanted, &call.connection.member) {
            return Some(result);
        }
    }
    tell_of(number, fd);
    if watch != number {
        tell_of(watch, fd);
    }
    None
}

/// The member of this descriptor; `at` is where it was last.
fn find<'a>(members: &'a mut [Member], fd: c_int, at: &AtomicU32) -> Option<&'a mut Member> {
    let known = at.load(Ordering::Relaxed) as usize;
    if members.get(known).is_none_or(|member| member.fd != fd) {
        let found = members.iter().position(|member| member.fd == fd)?;
        at.store(found as u32, Ordering::Relaxed);
        return members.get_mut(found);
    }
    members.get_mut(known)
}

fn note(set: &Set, what: c_int, fd: c_int, wanted: Option<epoll_event>, at: &AtomicU32) -> Option<Result<(), c_int>> {
    if wanted.is_some_and(|event| event.events & AT_ONCE != 0) {
        return None;
    }
    let noted = set.with(|members, count| {
        if set.is_nested.load(Ordering::SeqCst) != 0 || set.is_shared.load(Ordering::SeqCst) != 0 {
            return None;
        }
        let member = find(&mut members[..*count], fd, at)?;
        let before = *member;
        if before.kernel_events & AT_ONCE != 0 {
            return None;
        }
        match (what, before.is_wanted) {
            (libc::EPOLL_CTL_ADD, true) => return Some(Err(libc::EEXIST)),
            (libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL, false) => return Some(Err(libc::ENOENT)),
            (libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD, _) => {
                let event = wanted?;
                *member = Member { is_wanted: true, events: event.events, data: event.u64, ..before };
            }
            (libc::EPOLL_CTL_DEL, true) => member.is_wanted = false,
            _ => return None,
        }
        // Not zero before the look for callers: see above. The number changes under the lock only.
        let number = set.postponed.load(Ordering::Relaxed);
        let others = number - u32::from(before.is_postponed());
        if number == 0 {
            set.postponed.store(1, Ordering::SeqCst);
        }
        let is_seen = set.waiters.load(Ordering::SeqCst) != 0;
        if is_seen {
            *member = before;
        }
        set.postponed.store(others + u32::from(member.is_postponed()), Ordering::Release);
        (!is_seen).then_some(Ok(()))
    });
    noted.flatten()
}

/// Tells the kernel all that was postponed.
#[cold]
pub fn tell(number: u32) {
    let Some(set) = with_postponed(number) else { return };
    quietly(|| {
        set.with(|members, count| {
            let mut at = 0;
            while at < *count {
                if !tell_one(set, members, count, at) {
                    at += 1;
                }
            }
        })
    });
}

/// The set, if something of it was postponed.
fn with_postponed(number: u32) -> Option<&'static Set> {
    let set = ALL.get(number as usize).filter(|_| number != UNWATCHED)?;
    (set.postponed.load(Ordering::SeqCst) != 0).then_some(set)
}

/// Tells it what was postponed of one descriptor.
pub fn tell_of(number: u32, fd: c_int) {
    let Some(set) = with_postponed(number) else { return };
    quietly(|| {
        set.with(|members, count| {
            if let Some(at) = members[..*count].iter().position(|member| member.fd == fd) {
                tell_one(set, members, count, at);
            }
        })
    });
}

/// True when the member is gone and another one is in its place. The lock is held.
pub fn tell_one(set: &Set, members: &mut [Member; MEMBERS], count: &mut usize, at: usize) -> bool {
    let member = &mut members[at];
    if !member.is_postponed() {
        return false;
    }
    let fd = member.fd;
    let known = set.fd.load(Ordering::Relaxed);
    let wanted = member.is_wanted.then_some(epoll_event { events: member.events, u64: member.data });
    let told = change(known as c_int - 1, fd, wanted.map_or(Change::End, Change::To));
    set.postponed.fetch_sub(1, Ordering::SeqCst);
    if member.is_wanted && told {
        (member.kernel_events, member.kernel_data) = (member.events, member.data);
        return false;
    }
    // Taken out, or closed behind our back.
    *count -= 1;
    members[at] = members[*count];
    sets::is_out(fd);
    true
}

/// A descriptor is about to be closed or to become another one. What only the kernel's own end of things ends, must not live on by a copy.
pub fn before_close(fd: c_int) {
    if let Some(call) = table::touch(fd) {
        tell_of(call.connection.watch.load(Ordering::SeqCst), fd);
    }
}

/// A fork is about to get all descriptors.
pub fn share_all() {
    (1..ALL.len()).for_each(|number| share(number as u32));
}

/// Another image is about to get what is not closed on exec.
pub fn share_inherited() {
    for (number, set) in ALL.iter().enumerate().skip(1) {
        let known = set.fd.load(Ordering::Relaxed);
        if set.is_taken.load(Ordering::SeqCst) != 0 && flags(known as c_int - 1, libc::F_GETFD) & libc::FD_CLOEXEC == 0
        {
            share(number as u32);
        }
    }
}

/// Others are about to get this set: from now on it is changed at once.
pub fn share(number: u32) {
    if number != 0 {
        ALL[number as usize].is_shared.store(1, Ordering::SeqCst);
        tell(number);
    }
}
