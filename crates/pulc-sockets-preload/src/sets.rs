//! Sets of descriptors (epoll): which followed connections are in which set, so that those whose ring has something are found without
//! a system call, and so that a sender knows whom to ring. What the kernel knows of a set is never touched: every membership is there
//! as the program made it, and a bell makes the kernel's own readiness true.
//!
//! A connection is *listed* if it is in one set, plainly (not one-shot, not exclusive), the set is not waited for through another
//! one, and there is room. Any other is *parked*: it is rung for whenever something comes to its empty ring.

use crate::connection::{Connection, Ring};
use crate::kernel::core;
use crate::members::{ALL, Held, MEMBERS, Member, SETS, Set};
use crate::promoted::{ring_for_unread, ring_of};
use crate::{polls, postponed, table};
use libc::{c_int, epoll_event};
use pulc_sockets::{Flag, Luck, Other};
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// Turns at the rings between two at the kernel.
const TURNS: u32 = 32;
/// Of the waits for empty rings one of so many asks the kernel first, and so many more do once it had something.
const WAITS: u32 = 8;
const BUSY: u32 = 64;

/// How a connection is waited for, see [`Connection::watch`]: nobody, the number of a set, or in a way that is not followed.
pub const UNWATCHED: u32 = 0;
pub const PARKED: u32 = u32::MAX;

/// By descriptor; all descriptors of a set have its number.
static NUMBERS: [AtomicU8; table::FDS_MAX] = [const { AtomicU8::new(0) }; table::FDS_MAX];
/// A set for which there was no number left.
const NONE: u8 = u8::MAX;
/// Guards changes of what a connection's end says of its sleep.
static REFRESH: AtomicU32 = AtomicU32::new(0);

/// A fork's child has one thread, which holds none of these.
pub fn unlock_all() {
    REFRESH.store(0, Ordering::Relaxed);
    ALL.iter().for_each(Set::is_of_one_thread);
}

/// A set that this process has just made.
pub fn made(set: c_int) {
    if NUMBERS.get(set as usize).is_some_and(|at| at.load(Ordering::Acquire) == 0) && table::is_mine() {
        give_number(set);
    }
}

/// The number of a set. One that came in another way than out of a call that makes sets gets its number at first sight, and other
/// processes may have it. 0 where there were more sets than numbers.
pub fn number(set: c_int) -> u32 {
    let Some(at) = NUMBERS.get(set as usize) else { return 0 };
    if at.load(Ordering::Acquire) == 0 {
        give_number(set);
        postponed::share(known(set));
    }
    known(set)
}

/// The number of a set that has one, or 0.
#[inline]
pub fn known(set: c_int) -> u32 {
    let number = NUMBERS.get(set as usize).map_or(0, |at| at.load(Ordering::Acquire));
    if number == NONE { 0 } else { u32::from(number) }
}

fn give_number(set: c_int) {
    let is_free = |place: &Set| place.is_taken.compare_exchange(0, 1, Ordering::SeqCst, Ordering::Relaxed).is_ok();
    let number = ALL.iter().enumerate().skip(1).find_map(|(number, place)| is_free(place).then_some(number));
    if let Some(number) = number {
        ALL[number].begin(set);
    }
    NUMBERS[set as usize].store(number.map_or(NONE, |number| number as u8), Ordering::Release);
}

/// `to` is another descriptor of the set that `fd` is.
pub fn alias(fd: c_int, to: c_int) {
    if let (Some(from), Some(at)) = (NUMBERS.get(fd as usize), NUMBERS.get(to as usize)) {
        at.store(from.load(Ordering::Acquire), Ordering::Release);
    } else {
        // What happens through it would not be seen.
        nest(fd);
    }
}

/// Whether this descriptor is a set that has been waited for or filled.
#[inline]
pub fn is_set(fd: c_int) -> bool {
    NUMBERS.get(fd as usize).is_some_and(|at| at.load(Ordering::Relaxed) != 0)
}

/// A set is closed, or its number is given to something else. Its connections may be in it still, by a copy of its descriptor.
pub fn forget(fd: c_int) {
    let Some(at) = NUMBERS.get(fd as usize) else { return };
    let number = at.swap(0, Ordering::SeqCst);
    if number == 0 || number == NONE {
        return;
    }
    let set = &ALL[number as usize];
    if let Some(other) = NUMBERS.iter().position(|at| at.load(Ordering::Relaxed) == number) {
        let _ = set.fd.compare_exchange(fd as u32 + 1, other as u32 + 1, Ordering::Relaxed, Ordering::Relaxed);
        return;
    }
    // Where nobody else has it, the kernel's set ends with this descriptor.
    let is_over = [&set.is_shared, &set.waiters, &set.is_nested].iter().all(|word| word.load(Ordering::SeqCst) == 0);
    if is_over {
        release_all(set)
    } else {
        park_all(u32::from(number))
    }
    set.is_taken.store(0, Ordering::SeqCst);
}

/// Somebody waits for the set itself: then only the kernel knows who is asleep for its members.
pub fn nest(set: c_int) {
    let number = number(set);
    if number != 0 && ALL[number as usize].is_nested.swap(1, Ordering::SeqCst) == 0 {
        park_all(number);
    }
}

fn park_all(number: u32) {
    let set = &ALL[number as usize];
    loop {
        let last = set.with(|members, count| {
            let at = count.checked_sub(1)?;
            let fd = members[at].fd;
            // Whoever wants it no more has it told now.
            if !postponed::tell_one(set, members, count, at) {
                *count = at;
            }
            Some(fd)
        });
        match last.flatten() {
            Some(fd) => park(fd),
            None => return,
        }
    }
}

/// A set is over: its members are in none.
fn release_all(set: &Set) {
    while let Some(fd) = set
        .with(|members, count| {
            *count = count.checked_sub(1)?;
            Some(members[*count].fd)
        })
        .flatten()
    {
        is_out(fd);
    }
}

fn park(fd: c_int) {
    let Some(call) = table::touch(fd) else { return };
    let before = call.connection.watch.swap(PARKED, Ordering::SeqCst);
    refresh(call.connection);
    // What came before was not rung for.
    if before != PARKED && ring_of(&call).is_some_and(|ring| ring.unread() != 0) {
        ring_for_unread(&call, fd);
    }
}

/// Tells the other end how this one sleeps.
pub fn refresh(connection: &Connection) {
    let Some(end) = connection.held().map(|held| held.ring()) else { return };
    let _held = Held::take(&REFRESH);
    let watch = connection.watch.load(Ordering::SeqCst);
    // A fork's child sleeps in sets of its own: then both are rung for everything.
    if connection.aware_in.load(Ordering::Relaxed) != table::owner() {
        end.set(Flag::Shared, true);
    }
    if watch == PARKED || end.is(Flag::Shared) {
        end.set(Flag::Edge, true);
        end.set(Flag::Parked, true);
        return;
    }
    end.set(Flag::Edge, connection.edges.load(Ordering::SeqCst) != 0);
    end.sleeps_in(watch);
    end.set(Flag::Parked, false);
}

/// The program has changed what it waits for; the kernel has agreed.
pub fn changed(set: c_int, what: c_int, fd: c_int, event: Option<epoll_event>) {
    if is_set(fd) {
        nest(fd);
    }
    let number = number(set);
    let Some(call) = table::touch(fd) else { return };
    let connection = call.connection;
    let watch = connection.watch.load(Ordering::SeqCst);
    if watch == PARKED {
        remove(number, fd);
        return;
    }
    let odd = (libc::EPOLLONESHOT | libc::EPOLLEXCLUSIVE) as u32;
    let place = &ALL[number as usize];
    let is_plain = number != 0
        && place.is_nested.load(Ordering::SeqCst) == 0
        && (watch == UNWATCHED || watch == number && what != libc::EPOLL_CTL_ADD)
        && event.is_none_or(|event| event.events & odd == 0);
    if !is_plain {
        remove(watch, fd);
        park(fd);
        return;
    }
    let Some(event) = event.filter(|_| what != libc::EPOLL_CTL_DEL) else {
        remove(number, fd);
        connection.watch.store(UNWATCHED, Ordering::SeqCst);
        refresh(connection);
        return;
    };
    let (events, data) = (event.events, event.u64);
    let (kernel_events, kernel_data) = (events, data);
    let member = Member { fd, is_wanted: true, events, data, kernel_events, kernel_data, told: u64::MAX };
    let is_in = place.with(|members, count| match members[..*count].iter_mut().find(|known| known.fd == fd) {
        Some(known) => {
            place.postponed.fetch_sub(u32::from(known.is_postponed()), Ordering::SeqCst);
            *known = member;
            true
        }
        None if *count < MEMBERS => {
            members[*count] = member;
            *count += 1;
            true
        }
        None => false,
    });
    if is_in == Some(true) {
        connection.edges.store(event.events & libc::EPOLLET as u32, Ordering::SeqCst);
        connection.watch.store(number, Ordering::SeqCst);
        refresh(connection);
    } else {
        park(fd);
    }
}

fn remove(number: u32, fd: c_int) {
    if number == UNWATCHED || number == PARKED {
        return;
    }
    let set = &ALL[number as usize % SETS];
    set.with(|members, count| {
        if let Some(at) = members[..*count].iter().position(|known| known.fd == fd) {
            set.postponed.fetch_sub(u32::from(members[at].is_postponed()), Ordering::SeqCst);
            *count -= 1;
            members[at] = members[*count];
        }
    });
}

/// The kernel has taken a descriptor out of its set; whoever calls holds the set's lock and has removed the member.
pub fn is_out(fd: c_int) {
    if let Some(call) = table::touch(fd)
        && !matches!(call.connection.watch.load(Ordering::SeqCst), UNWATCHED | PARKED)
    {
        call.connection.watch.store(UNWATCHED, Ordering::SeqCst);
        refresh(call.connection);
    }
}

/// A descriptor of a connection is closed; the connection may live on by another one, and then in the kernel's sets too.
pub fn closed(connection: &Connection, fd: c_int, lives_on: bool) {
    let watch = connection.watch.load(Ordering::SeqCst);
    if watch != UNWATCHED && watch != PARKED {
        remove(watch, fd);
        if lives_on {
            connection.watch.store(PARKED, Ordering::SeqCst);
            refresh(connection);
        }
    }
}

/// Whether any member of the set may have a ring.
#[inline]
pub fn has_members(number: u32) -> bool {
    number != 0 && ALL[number as usize].count.load(Ordering::Acquire) != 0
}

/// Whether it is the kernel's turn before the rings'.
pub fn is_kernels_turn(number: u32) -> bool {
    ALL[number as usize].turns.fetch_add(1, Ordering::Relaxed) % TURNS == TURNS - 1
}

/// Looks at the rings for a while, as [`collect`] does; events found.
pub fn look_around(number: u32, max: usize, put: impl Fn(usize, epoll_event)) -> usize {
    let set = &ALL[number as usize];
    let Some(other) = Other::on(core_of_sender(set), core() + 1) else { return 0 };
    Luck(&set.luck).look(other, || collect(number, max, &put))
}

/// The core, and one more, of who has sent what was found last, or of any other end.
fn core_of_sender(set: &Set) -> u32 {
    let fd = match set.sender.load(Ordering::Relaxed) {
        0 => set.with(|members, count| members[..*count].first().map(|member| member.fd)).flatten(),
        known => Some(known as c_int - 1),
    };
    let call = fd.and_then(table::touch);
    call.as_ref().and_then(ring_of).map_or(0, |ring| ring.core_of_sender())
}

/// Whether the kernel has its turn before a wait for rings that are empty.
pub fn is_kernel_first(number: u32) -> bool {
    let set = &ALL[number as usize];
    let busy = set.busy.load(Ordering::Relaxed);
    if busy > 0 {
        set.busy.store(busy - 1, Ordering::Relaxed);
    }
    busy > 0 || set.turns.load(Ordering::Relaxed).is_multiple_of(WAITS)
}

/// The kernel had something although the rings were empty.
pub fn kernel_was_busy(number: u32) {
    ALL[number as usize].busy.store(BUSY, Ordering::Relaxed);
}

/// Of what the kernel has found, takes away what only a bell made readable; how many are left, in their order. A program that is told of
/// bytes where there are none gets `EAGAIN`, and some take that for an error. Nothing is taken away where no bell was.
pub fn without_bells(number: u32, events: &mut [epoll_event]) -> usize {
    let mut left = 0;
    for at in 0..events.len() {
        let mut event = events[at];
        let input = (libc::EPOLLIN | libc::EPOLLRDNORM) as u32;
        if event.events & input != 0 && is_bell(number, event.u64) {
            event.events &= !input;
        }
        // What the kernel reports without being asked stays, as does room to send.
        if event.events != 0 {
            events[left] = event;
            left += 1;
        }
    }
    left
}

/// Whether the member that the kernel calls so has nothing but bells. Several may be called the same: then none may have more.
fn is_bell(number: u32, data: u64) -> bool {
    let (mut from, mut has_rung) = (0, false);
    loop {
        let next = ALL[number as usize].with(|members, count| {
            let rest = members[..*count].get(from..)?;
            let at = rest.iter().position(|member| member.kernel_data == data)?;
            Some((from + at + 1, rest[at].fd))
        });
        let Some((after, fd)) = next.flatten() else { return has_rung };
        from = after;
        match polls::with_end(fd, |end, kernel| (end.unread() != 0, end.were_only_bells(kernel))) {
            Some((true, _)) | None => return false,
            Some((false, rung)) => has_rung |= rung,
        }
    }
}

/// Events of members whose rings have something; never two of one member. `events` has room for `max`.
pub fn collect(number: u32, max: usize, mut put: impl FnMut(usize, epoll_event)) -> usize {
    let found = ALL[number as usize].with(|members, count| {
        let (mut found, total) = (0, *count);
        let start = ALL[number as usize].turns.load(Ordering::Relaxed) as usize;
        for step in 0..total {
            if found == max {
                break;
            }
            let member = &mut members[(start + step) % total];
            if !member.is_wanted {
                continue;
            }
            let Some(call) = table::touch(member.fd) else { continue };
            let Some(end) = ring_of(&call) else { continue };
            let events = ready(member, end);
            if events != 0 {
                ALL[number as usize].sender.store(member.fd as u32 + 1, Ordering::Relaxed);
                put(found, epoll_event { events, u64: member.data });
                found += 1;
            }
        }
        found
    });
    found.unwrap_or(0)
}

fn ready(member: &mut Member, end: &dyn Ring) -> u32 {
    let wanted = member.events;
    let is_edge = wanted & libc::EPOLLET as u32 != 0;
    let mut events = 0;
    if wanted & libc::EPOLLIN as u32 != 0 && end.unread() != 0 {
        let arrived = end.arrived();
        if !is_edge || member.told != arrived {
            member.told = arrived;
            events |= libc::EPOLLIN as u32;
        }
    }
    // A ring takes bytes at any time: what it has no room for goes to the kernel.
    if !is_edge && wanted & libc::EPOLLOUT as u32 != 0 && end.sends_by_ring() {
        events |= libc::EPOLLOUT as u32;
    }
    events
}
