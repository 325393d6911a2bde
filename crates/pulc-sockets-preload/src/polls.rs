//! Waiting for several descriptors, some of which have a ring. The kernel waits; here is said who is asleep, what the rings have is
//! added, and what only a bell made readable is taken away again.

use crate::asleep::Asleep;
use crate::connection::Ring;
use crate::kernel::Socket;
use crate::promoted::{look_around, ring_of, socket};
use crate::{next, sets, table};
use libc::{c_int, fd_set, pollfd, sigset_t, timespec};
use pulc_sockets::{TOGETHER, Wait};
use std::time::{Duration, Instant};

const INPUT: i16 = libc::POLLIN | libc::POLLRDNORM;
/// Words of the longest set of `select` that is looked into; longer ones are the kernel's alone.
const WORDS: usize = 256;
const BITS: usize = 64;

/// When a wait ends; `None`: never.
pub struct Deadline(Option<Instant>);

impl Deadline {
    pub fn after(limit: Option<Duration>) -> Deadline {
        Deadline(limit.and_then(|limit| Instant::now().checked_add(limit)))
    }

    pub fn left(&self) -> Option<Duration> {
        self.0.map(|end| end.saturating_duration_since(Instant::now()))
    }
}

pub fn time(duration: Duration) -> timespec {
    timespec { tv_sec: duration.as_secs() as _, tv_nsec: duration.subsec_nanos() as _ }
}

/// What a wait's limit says; nonsense is left to the kernel to refuse.
pub fn duration(limit: &timespec) -> Option<Duration> {
    let seconds = u64::try_from(limit.tv_sec).ok()?;
    (0..1_000_000_000).contains(&limit.tv_nsec).then(|| Duration::new(seconds, limit.tv_nsec as u32))
}

/// Calls `what` with the end of a followed descriptor that has a ring.
pub fn with_end<T>(fd: c_int, what: impl FnOnce(&dyn Ring, &Socket) -> T) -> Option<T> {
    let call = table::touch(fd)?;
    let end = ring_of(&call)?;
    Some(what(end, &socket(&call, fd)))
}

/// Whether a read would find something, once somebody is said to be asleep.
fn has_input(fd: c_int) -> bool {
    with_end(fd, |end, kernel| end.may_wait(kernel) == Wait::No).unwrap_or(false)
}

/// Whether what the kernel calls readable is: not if it was a bell.
fn is_true_input(fd: c_int) -> bool {
    with_end(fd, |end, kernel| end.unread() != 0 || end.truth(kernel) == Wait::No).unwrap_or(true)
}

/// `poll` and its relatives over `fds`, at least one of which is followed.
///
/// # Safety
/// As for `ppoll`.
pub unsafe fn poll(fds: &mut [pollfd], limit: Option<Duration>, mask: *const sigset_t) -> c_int {
    fds.iter().filter(|entry| sets::is_set(entry.fd)).for_each(|entry| sets::nest(entry.fd));
    let deadline = Deadline::after(limit);
    if is_long(limit) && fds.len() <= TOGETHER {
        look_before_sleep(fds.iter().filter(|entry| entry.events & INPUT != 0).map(|entry| entry.fd));
    }
    let mut asleep = None;
    loop {
        let mut ready = || fds.iter().any(|entry| entry.events & INPUT != 0 && has_input(entry.fd));
        let is_ready = is_ready(limit, &mut asleep, &mut ready);
        let limit = if is_ready { Some(Duration::ZERO) } else { deadline.left() };
        let time = limit.map(time);
        let time = time.as_ref().map_or(std::ptr::null(), |time| &raw const *time);
        // SAFETY: the caller's promise.
        let found = unsafe { next::ppoll(fds.as_mut_ptr(), fds.len() as _, time, mask) };
        if found < 0 {
            return found;
        }
        let mut count = 0;
        for entry in fds.iter_mut() {
            if entry.events & INPUT != 0 && table::is_followed(entry.fd) {
                if with_end(entry.fd, |end, _| end.unread() != 0) == Some(true) {
                    entry.revents |= entry.events & INPUT;
                } else if entry.revents & INPUT != 0 && !is_true_input(entry.fd) {
                    entry.revents &= !INPUT;
                }
            }
            count += c_int::from(entry.revents != 0);
        }
        let is_over = deadline.left().is_some_and(|left| left.is_zero());
        if count > 0 || is_over {
            drop(asleep);
            return count;
        }
    }
}

/// Whether there is input, asked again once it is said that somebody is asleep. Who only looks, or finds something at once, does not say
/// so: it would be rung for.
fn is_ready(limit: Option<Duration>, asleep: &mut Option<Asleep>, look: &mut impl FnMut() -> bool) -> bool {
    if look() {
        return true;
    }
    if asleep.is_some() || limit == Some(Duration::ZERO) {
        return false;
    }
    *asleep = Some(Asleep::enter(0));
    look()
}

/// Whether a wait is long against a look.
pub fn is_long(limit: Option<Duration>) -> bool {
    limit.is_none_or(|limit| limit >= Duration::from_millis(1))
}

/// Looks at the rings of a few descriptors before a sleep for all of them.
fn look_before_sleep(wanted: impl Iterator<Item = c_int>) {
    let mut fds = [-1; TOGETHER];
    fds.iter_mut().zip(wanted).for_each(|(to, fd)| *to = fd);
    look_around(&fds);
}

/// A set of `select` as words.
type Bits = [u64; WORDS];

/// # Safety
/// `from` is null or has room for `count` descriptors.
unsafe fn bits(from: *const fd_set, count: usize) -> Bits {
    let mut bits = [0; WORDS];
    if !from.is_null() {
        for (index, word) in bits.iter_mut().take(count.div_ceil(BITS)).enumerate() {
            // SAFETY: the caller's promise; the kernel reads whole words too.
            *word = unsafe { from.cast::<u64>().add(index).read_unaligned() };
        }
    }
    bits
}

/// # Safety
/// `to` is null or has room for `count` descriptors.
unsafe fn put(to: *mut fd_set, count: usize, bits: &Bits) {
    if !to.is_null() {
        for (index, word) in bits.iter().take(count.div_ceil(BITS)).enumerate() {
            // SAFETY: the caller's promise.
            unsafe { to.cast::<u64>().add(index).write_unaligned(*word) };
        }
    }
}

fn each(bits: &Bits, count: usize) -> impl Iterator<Item = c_int> {
    let set = move |fd: &usize| bits[fd / BITS] & 1 << (fd % BITS) != 0;
    (0..count).filter(set).map(|fd| fd as c_int)
}

/// Whether `select` over so many descriptors has to do with one that is to be read and has a ring, or may get one.
///
/// # Safety
/// As for `select`.
pub unsafe fn concerns(count: c_int, read: *const fd_set) -> bool {
    let Ok(count) = usize::try_from(count) else { return false };
    if count > WORDS * BITS || read.is_null() {
        return false;
    }
    // SAFETY: the caller's promise.
    let wanted = unsafe { bits(read, count) };
    each(&wanted, count).any(|fd| table::may_have_ring(fd, true) || sets::is_set(fd))
}

/// `select` and `pselect`, of which [`concerns`] is true.
///
/// # Safety
/// As for `pselect`.
pub unsafe fn select(
    count: c_int,
    sets_of: [*mut fd_set; 3],
    limit: Option<Duration>,
    mask: *const sigset_t,
) -> (c_int, Option<Duration>) {
    let wide = count as usize;
    // SAFETY: the caller's promise.
    let wanted = sets_of.map(|set| unsafe { bits(set, wide) });
    each(&wanted[0], wide).filter(|fd| sets::is_set(*fd)).for_each(sets::nest);
    let deadline = Deadline::after(limit);
    if is_long(limit) && each(&wanted[0], wide).nth(TOGETHER).is_none() {
        look_before_sleep(each(&wanted[0], wide));
    }
    let mut asleep = None;
    loop {
        let is_ready = is_ready(limit, &mut asleep, &mut || each(&wanted[0], wide).any(has_input));
        let limit = if is_ready { Some(Duration::ZERO) } else { deadline.left() };
        let time = limit.map(time);
        let time = time.as_ref().map_or(std::ptr::null(), |time| &raw const *time);
        // SAFETY: the caller's promise.
        unsafe { sets_of.iter().zip(&wanted).for_each(|(set, bits)| put(*set, wide, bits)) };
        // SAFETY: as above.
        let found = unsafe { next::pselect(count, sets_of[0], sets_of[1], sets_of[2], time, mask) };
        if found < 0 {
            return (found, deadline.left());
        }
        // SAFETY: as above.
        let mut results = sets_of.map(|set| unsafe { bits(set, wide) });
        for fd in each(&wanted[0], wide).filter(|fd| table::is_followed(*fd)) {
            let (word, bit) = (&mut results[0][fd as usize / BITS], 1 << (fd as usize % BITS));
            if with_end(fd, |end, _| end.unread() != 0) == Some(true) {
                *word |= bit;
            } else if *word & bit != 0 && !is_true_input(fd) {
                *word &= !bit;
            }
        }
        let count: u32 = results.iter().flatten().map(|word| word.count_ones()).sum();
        if count > 0 || deadline.left().is_some_and(|left| left.is_zero()) {
            // SAFETY: as above.
            unsafe { sets_of.iter().zip(&results).for_each(|(set, bits)| put(*set, wide, bits)) };
            return (count as c_int, deadline.left());
        }
    }
}
