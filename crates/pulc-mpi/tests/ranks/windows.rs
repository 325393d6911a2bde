//! Windows of posted receives, of every kind and waited for in every way, and the messages for them: what is taken in a sweep arrives as what is
//! taken singly does (MPI-5.0, 3.5: order; 3.7.5: completion of several).

use crate::values::{INT, Values, WORLD, place};
use pulc_mpi::call;
use pulc_mpi::consts::{ANY_SOURCE, ANY_TAG, PROC_NULL};
use pulc_mpi::error::Class;
use pulc_mpi::handle::{Comm, Request};
use pulc_mpi::status::Status;
use pulc_testkit::Chance;
use std::collections::HashMap;

const WINDOWS: u64 = 150;
/// Numbers in a message; of ten it just fits a cell.
const LENS: [usize; 9] = [1, 2, 2, 2, 5, 10, 11, 100, 6000];
const TAGS: u64 = 3;

/// A message of a window, as all ranks know it.
#[derive(Clone, Copy)]
struct Planned {
    from: i32,
    comm: usize,
    tag: i32,
    len: usize,
    number: i32,
}

/// Rank 0 receives, all others send.
pub fn play() {
    let (me, n) = place(WORLD);
    let comms = [WORLD, call::comm_dup(WORLD).unwrap()];
    let (mut plan, mut own) = (Chance(0x5eed_0009), Chance(0x0dd_ba11 + me as u64));
    let mut numbers = HashMap::new();
    for window in 0..WINDOWS {
        let count = plan.below(130);
        let messages: Vec<Planned> = (0..count)
            .map(|_| {
                let (from, comm) = (1 + plan.below(n as u64 - 1) as i32, plan.below(8) as usize / 7);
                let (tag, len) = (plan.below(TAGS) as i32, LENS[plan.index(LENS.len())]);
                // Most windows are of one kind, so that there is something to sweep.
                let len = if window % 3 == 0 { len } else { 2 };
                let tag = if window % 3 == 1 { 0 } else { tag };
                let number: &mut i32 = numbers.entry((from, comm, tag)).or_default();
                *number += 1;
                Planned { from, comm, tag, len, number: *number }
            })
            .collect();
        if me == 0 {
            receive(&comms, &messages, &mut own, window);
        } else {
            send(&comms, messages.iter().filter(|message| message.from == me), &mut own);
        }
        // A receive from anybody must not get a message of the next window.
        call::barrier(WORLD).unwrap();
    }
    too_short(me);
    among_others(me);
}

fn send<'a>(comms: &[Comm; 2], messages: impl Iterator<Item = &'a Planned>, random: &mut Chance) {
    let mut buffers: Vec<(Values, Planned)> =
        messages.map(|message| (Values::filled(message.number, message.len), *message)).collect();
    let mut all: Vec<Request> = buffers
        .iter_mut()
        .map(|(values, message)| {
            if random.once_in(50) {
                std::thread::yield_now();
            }
            let count = values.count();
            call::isend(values.addr(), count, INT, 0, message.tag, comms[message.comm]).unwrap()
        })
        .collect();
    call::waitall(&mut all, &mut |_, _| {}).unwrap();
}

/// Which receives accept what is the same for all of a communicator and a tag, so that none takes what only another one accepts.
fn receive(comms: &[Comm; 2], messages: &[Planned], random: &mut Chance, window: u64) {
    let (of_anybody, of_any_tag) = (random.below(1 << TAGS), random.once_in(2));
    // Room for any message that a receive may get.
    let room = messages.iter().map(|message| message.len).max().unwrap_or(0);
    let mut buffers: Vec<Values> = messages.iter().map(|_| Values::filled(-1, room)).collect();
    let mut all = Vec::new();
    for (message, buffer) in messages.iter().zip(&mut buffers) {
        let is_open = message.comm == 1 && of_any_tag;
        let tag = if is_open { ANY_TAG } else { message.tag };
        let source = if is_open || of_anybody >> message.tag & 1 != 0 { ANY_SOURCE } else { message.from };
        let count = buffer.count();
        all.push(call::irecv(buffer.addr(), count, INT, source, tag, comms[message.comm]).unwrap());
    }
    let statuses = complete(&mut all, random.below(4));
    assert!(all.iter().all(|request| request.is_null()));
    let mut last = HashMap::new();
    let mut sums = [0_i64; 2];
    for ((message, buffer), status) in messages.iter().zip(&mut buffers).zip(&statuses) {
        let values = buffer.get();
        let len = status.bytes as usize / 4;
        assert!(values[..len].iter().all(|value| *value == values[0]), "window {window}: one message in one buffer");
        assert!(values[len..].iter().all(|value| *value == -1), "window {window}: nothing behind it");
        let before = last.insert((status.source, message.comm, status.tag), values[0]);
        assert!(before.is_none_or(|before| before < values[0]), "window {window}: in the order sent");
        sums[0] += i64::from(values[0]) * len as i64;
        sums[1] += i64::from(message.number) * message.len as i64;
    }
    assert_eq!(sums[0], sums[1], "window {window}: each message once");
}

/// Completes all in one of the ways that there are.
fn complete(all: &mut [Request], way: u64) -> Vec<Status> {
    let mut statuses = vec![Status::EMPTY; all.len()];
    match way {
        0 => call::waitall(all, &mut |at, status| statuses[at] = *status).unwrap(),
        1 => all.iter_mut().zip(&mut statuses).rev().for_each(|(request, status)| {
            *status = call::wait(request).unwrap();
        }),
        2 => while call::waitsome(all, &mut |_, at, status| statuses[at] = *status).unwrap() > 0 {},
        _ => {
            let (some, rest) = all.split_at_mut(all.len() / 2);
            let (first, second) = statuses.split_at_mut(some.len());
            call::waitall(rest, &mut |at, status| second[at] = *status).unwrap();
            while !call::testall(some, &mut |at, status| first[at] = *status).unwrap() {}
        }
    }
    statuses
}

/// A receive that is too short, between two that are not.
fn too_short(me: i32) {
    let mut out = Values::filled(7, 2);
    let mut into = [2, 1, 2].map(|len| Values::filled(-1, len));
    match me {
        0 => {
            let mut all: Vec<Request> = Vec::new();
            for values in &mut into {
                let count = values.count();
                all.push(call::irecv(values.addr(), count, INT, 1, 5, WORLD).unwrap());
            }
            let mut errors = vec![0; 3];
            let error = call::waitall(&mut all, &mut |at, status| errors[at] = status.error).unwrap_err();
            assert_eq!(error.class, Class::IN_STATUS);
            assert_eq!(errors, [0, Class::TRUNCATE.0, 0]);
            assert_eq!(into.each_mut().map(|values| values.get()), [vec![7, 7], vec![7], vec![7, 7]]);
        }
        1 => (0..3).for_each(|_| call::send(out.addr(), 2, INT, 0, 5, WORLD).unwrap()),
        _ => {}
    }
}

/// Receives among requests that are null, persistent, or not started, and one from nobody: each ends as it does alone (MPI-5.0, 3.7.5, 3.9).
fn among_others(me: i32) {
    const COUNT: usize = 70;
    const TAG: i32 = 6;
    let awaited = |at: usize| !matches!(at % 7, 0 | 2 | 4);
    if me == 1 {
        for round in 0..2 {
            for at in (0..COUNT).filter(|at| awaited(*at)) {
                let mut out = Values::of(&[(round * COUNT + at) as i32]);
                call::send(out.addr(), 1, INT, 0, TAG, WORLD).unwrap();
            }
        }
    }
    if me != 0 {
        return;
    }
    let mut into: Vec<Values> = (0..COUNT).map(|_| Values::filled(-1, 1)).collect();
    let mut kept = vec![Request::NULL; COUNT];
    for (at, values) in into.iter_mut().enumerate().filter(|(at, _)| matches!(at % 7, 1 | 2)) {
        kept[at] = call::recv_init(values.addr(), 1, INT, 1, TAG, WORLD).unwrap();
    }
    for round in 0..2 {
        let mut all = kept.clone();
        for (at, values) in into.iter_mut().enumerate() {
            match at % 7 {
                0 | 2 => {}
                1 => call::start(&mut all[at]).unwrap(),
                4 => all[at] = call::irecv(values.addr(), 1, INT, PROC_NULL, TAG, WORLD).unwrap(),
                _ => all[at] = call::irecv(values.addr(), 1, INT, 1, TAG, WORLD).unwrap(),
            }
        }
        let mut told = vec![None; COUNT];
        call::waitall(&mut all, &mut |at, status| assert!(told[at].replace(*status).is_none(), "{at} told twice"))
            .unwrap();
        assert_eq!(all, kept, "those that persist stay, the others are null");
        for (at, values) in into.iter_mut().enumerate() {
            let status = told[at].expect("each is told");
            let expected = match at % 7 {
                4 => (PROC_NULL, 0),
                _ if awaited(at) => (1, 4),
                _ => (ANY_SOURCE, 0),
            };
            assert_eq!((status.source, status.bytes), expected, "place {at}");
            let number = if awaited(at) { (round * COUNT + at) as i32 } else { -1 };
            assert_eq!(values.get(), [number], "place {at}");
        }
    }
    kept.iter_mut().filter(|request| !request.is_null()).for_each(|request| call::request_free(request).unwrap());
}
