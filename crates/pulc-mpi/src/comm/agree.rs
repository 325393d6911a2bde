//! Agreeing on a context that is free on every member of a new communicator. Each process knows which contexts it uses; the members combine
//! this knowledge and take the lowest one that is free everywhere. Called by those who make communicators.
//!
//! Threads that make communicators at the same time on different parents would choose the same context; so only one of them at a
//! time shows what is free, the others show nothing and try again. It is the one with the lowest parent, on every process.

use super::Communicator;
use crate::collective;
use crate::data::Data;
use crate::error::{Class, Error, Result};
use crate::handle::{Datatype, Op};
use crate::matcher::matcher;
use crate::memory::{Addr, Room};
use crate::world;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Pairs of contexts a process may have, in words of bits.
const WORDS: usize = 64;
const PAIRS_MAX: usize = WORDS * 64;

/// Attempts that do not count: another thread's turn.
const ATTEMPTS_MAX: u32 = 1_000_000;

/// Parents of communicators that are being made in this process.
static MAKING: Mutex<Vec<u32>> = Mutex::new(Vec::new());

fn making() -> MutexGuard<'static, Vec<u32>> {
    MAKING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Free pairs as bits.
pub(super) struct Free {
    pub words: [u64; WORDS],
}

impl Free {
    const NONE: Free = Free { words: [0; WORDS] };

    /// What is free in this process, reserved for nobody.
    fn here() -> Result<Free> {
        let process = world::process()?;
        let mut guard = process.lock();
        let contexts = &matcher(&mut guard.engine).contexts;
        let mut free = Free { words: [u64::MAX; WORDS] };
        for (pair, _) in contexts.iter().enumerate().take(PAIRS_MAX).filter(|(_, used)| **used) {
            free.words[pair / 64] &= !(1 << (pair % 64));
        }
        Ok(free)
    }

    fn lowest(&self, count: usize) -> Option<Vec<u32>> {
        let all = (0..PAIRS_MAX).filter(|pair| self.words[pair / 64] & 1 << (pair % 64) != 0);
        let found: Vec<u32> = all.take(count).map(|pair| pair as u32 * 2).collect();
        (found.len() == count).then_some(found)
    }

    fn and(&mut self, other: &Free) {
        for (word, other) in self.words.iter_mut().zip(other.words) {
            *word &= other;
        }
    }

    fn is_none(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }
}

/// How the members of a communicator combine bits; done by whoever makes one.
pub(super) trait Combine {
    fn combine(&self, bits: &mut [u64; WORDS]) -> Result<()>;
}

/// Agrees on `count` contexts, each the even one of a pair; they are in use from now on. `parent` orders the threads of a process.
pub(super) fn contexts(parent: u32, count: usize, combine: &dyn Combine) -> Result<Vec<u32>> {
    making().push(parent);
    let result = attempts(parent, count, combine);
    let mut all = making();
    if let Some(at) = all.iter().position(|other| *other == parent) {
        all.swap_remove(at);
    }
    result
}

fn attempts(parent: u32, count: usize, combine: &dyn Combine) -> Result<Vec<u32>> {
    static TURN: Mutex<()> = Mutex::new(());
    for _ in 0..ATTEMPTS_MAX {
        let my_turn = making().iter().all(|other| *other >= parent);
        let turn = if my_turn { TURN.try_lock().ok() } else { None };
        let mut free = if turn.is_some() { Free::here()? } else { Free::NONE };
        let own = turn.is_some();
        combine.combine(&mut free.words)?;
        if !free.is_none() {
            let found = free.lowest(count).ok_or_else(too_many)?;
            if own {
                reserve(&found)?;
            }
            return Ok(found);
        }
        drop(turn);
        if own && Free::here()?.is_none() {
            return Err(too_many());
        }
        std::thread::yield_now();
    }
    Err(too_many())
}

#[cold]
fn too_many() -> Error {
    let text = format!("no context is free on all members: a process has {PAIRS_MAX} communicators at most; free some");
    Error::new(Class::OTHER, text)
}

fn reserve(found: &[u32]) -> Result<()> {
    let process = world::process()?;
    let mut guard = process.lock();
    let contexts = &mut matcher(&mut guard.engine).contexts;
    for context in found {
        let pair = *context as usize / 2;
        if contexts.len() <= pair {
            contexts.resize(pair + 1, false);
        }
        contexts[pair] = true;
    }
    Ok(())
}

/// Gives a context back.
pub(super) fn release(context: u32) -> Result<()> {
    let process = world::process()?;
    let mut guard = process.lock();
    let contexts = &mut matcher(&mut guard.engine).contexts;
    if let Some(used) = contexts.get_mut(context as usize / 2) {
        *used = false;
    }
    Ok(())
}

/// Among the members of a communicator.
pub(super) struct Among<'a> {
    pub comm: &'a Arc<Communicator>,
    /// Instead of the communicator's next one.
    pub tag: Option<i32>,
}

impl Combine for Among<'_> {
    fn combine(&self, bits: &mut [u64; WORDS]) -> Result<()> {
        let mut room = Room::new(size_of_val(bits));
        let at = room.addr();
        write_bits(at, bits);
        let program =
            collective::allreduce_program(self.comm, Addr::IN_PLACE, at, WORDS as i64, Datatype::UINT64_T, Op::BAND)?;
        collective::run_tagged(self.comm, program, self.tag)?;
        read_bits(at, bits);
        Ok(())
    }
}

/// One message to the other side and one from there.
pub(super) type Talk<'a> = dyn Fn(&[u8], &mut [u8]) -> Result<()> + 'a;

/// Among both sides of an intercommunicator, or of one in the making: this side combines, the leaders exchange.
pub(super) struct Across<'a> {
    pub local: &'a Arc<Communicator>,
    pub leader: i32,
    /// Instead of the local communicator's next ones.
    pub tag: Option<i32>,
    /// What that member does to exchange words with the other side.
    pub exchange: &'a Talk<'a>,
}

impl Combine for Across<'_> {
    fn combine(&self, bits: &mut [u64; WORDS]) -> Result<()> {
        Among { comm: self.local, tag: self.tag }.combine(bits)?;
        let mut room = Room::new(size_of_val(bits));
        let at = room.addr();
        if self.local.me == self.leader {
            let mut theirs = [0; WORDS * 8];
            (self.exchange)(&bytes_of(bits), &mut theirs)?;
            let mut other = Free::NONE;
            at.write(0, &theirs);
            read_bits(at, &mut other.words);
            let mut both = Free { words: *bits };
            both.and(&other);
            *bits = both.words;
        }
        write_bits(at, bits);
        let data = Data::Flat { at, len: WORDS * 8 };
        collective::run_tagged(self.local, collective::bcast_data(self.local, data, self.leader)?, self.tag)?;
        read_bits(at, bits);
        Ok(())
    }
}

fn bytes_of(bits: &[u64; WORDS]) -> Vec<u8> {
    bits.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn write_bits(at: Addr, bits: &[u64; WORDS]) {
    at.write(0, &bytes_of(bits));
}

fn read_bits(at: Addr, bits: &mut [u64; WORDS]) {
    for (place, word) in bits.iter_mut().enumerate() {
        let mut bytes = [0; 8];
        at.read(place as i64 * 8, &mut bytes);
        *word = u64::from_ne_bytes(bytes);
    }
}
