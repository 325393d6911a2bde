//! Loans: memory that is filled here and read there without a copy, and the views that their receivers get. Called by `channel`
//! and by programs.

use super::Channel;
use super::receive::{self, table};
use super::table::RawTable;
use super::wire::{LOAN_BYTES, header_of_loan, header_of_return};
use crate::receive::Patience;
use crate::{Block, Error, Rank, error, memory};
use pulc_base::Proto;
use pulc_base::clock::{self, Nanos};
use pulc_hal::device::shm::{ArenaView, Reads};
use pulc_handler::{Engine, Hand, Process, Waited, Watch};
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// Memory to be filled and sent, whatever its length, without a copy.
#[derive(Debug)]
pub struct Loan {
    pub(super) block: Block,
}

impl Deref for Loan {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.block
    }
}

impl DerefMut for Loan {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.block
    }
}

/// A received message where it lies. Its bytes are the sender's to change as long as they are its own memory, so they are only
/// ever copied out; a sender that keeps to the rules leaves them alone. Dropping the view gives a loan back.
pub struct View {
    source: Source,
}

enum Source {
    /// In the sender's memory.
    Lent {
        view: ArenaView,
        _back: Back,
    },
    Own(Vec<u8>),
}

/// Whom to tell that a loan is no longer read.
pub(super) struct Back {
    process: &'static Process,
    peer: Rank,
    number: u16,
    id: u32,
}

impl View {
    pub fn len(&self) -> usize {
        match &self.source {
            Source::Lent { view, .. } => view.len(),
            Source::Own(bytes) => bytes.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the bytes still lie in the sender's memory.
    pub fn is_lent(&self) -> bool {
        matches!(self.source, Source::Lent { .. })
    }

    /// Copies `to.len()` bytes from `offset`.
    ///
    /// # Panics
    /// When the range lies outside of the message.
    pub fn copy_to(&self, offset: usize, to: &mut [u8]) {
        match &self.source {
            Source::Lent { view, .. } => view.copy_to(offset, to),
            Source::Own(bytes) => to.copy_from_slice(&bytes[offset..offset + to.len()]),
        }
    }

    /// All bytes, copied.
    pub fn to_vec(&self) -> Vec<u8> {
        match &self.source {
            Source::Lent { view, .. } => {
                let mut bytes = vec![0; view.len()];
                view.copy_to(0, &mut bytes);
                bytes
            }
            Source::Own(bytes) => bytes.clone(),
        }
    }

    /// Where the bytes are, for callers of other languages. What lies in the sender's memory can change while it is read.
    pub fn as_ptr(&self) -> *const u8 {
        match &self.source {
            Source::Lent { view, .. } => view.as_ptr(),
            Source::Own(bytes) => bytes.as_ptr(),
        }
    }
}

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "View of {} bytes", self.len())
    }
}

impl Drop for Back {
    fn drop(&mut self) {
        if self.process.check_fork().is_err() {
            return;
        }
        let mut guard = self.process.lock();
        give_back(&mut guard.engine, self.peer, self.number, self.id);
        self.process.poll(&mut guard, &mut Hand::empty());
    }
}

/// Tells the lender that nobody reads any more.
fn give_back(engine: &mut Engine, peer: Rank, number: u16, id: u32) {
    if let Some((_, outbox)) = engine.handler_and_outbox::<RawTable>(Proto::RAWDATA) {
        outbox.post(peer, Proto::RAWDATA, &header_of_return(number), &id.to_le_bytes());
    }
}

/// Copies the loan that is the first kept message, and gives it back. Its length.
pub(super) fn copy_first(engine: &mut Engine, place: u32, peer: Rank, to: &mut [u8]) -> Option<Result<usize, Error>> {
    let (lent, cost) = table(engine).take_first_loan(place)?;
    engine.release(peer, cost);
    let view = engine.borrowed_from(peer, lent.offset, lent.len as u64);
    let number = table(engine).state(place).number;
    let result = match view {
        Some(view) => {
            view.copy_to(0, &mut to[..lent.len]);
            Ok(lent.len)
        }
        None => Err(no_such_memory(peer)),
    };
    give_back(engine, peer, number, lent.id);
    Some(result)
}

fn no_such_memory(peer: Rank) -> Error {
    Error::System(format!("rank {peer} lends memory that it does not share, or is gone: nothing of it can be read"))
}

impl Channel {
    /// Memory to be filled for a message of `len` bytes.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn loan(&self, len: usize) -> Result<Loan, Error> {
        let process = self.pulc.process;
        process.check_fork()?;
        let loan = Loan { block: memory::alloc(len)? };
        // By the time it is filled the other side may have learnt of this memory.
        let mut guard = process.lock();
        if guard.engine.connect(self.peer).is_ok() {
            guard.engine.lends_to(self.peer);
        }
        Ok(loan)
    }

    /// Sends what was filled. On the same node not a byte is copied, and the memory is free again when the receiver drops its
    /// [`View`] (or has received into a buffer); elsewhere it is an ordinary message.
    ///
    /// # Blocks
    /// As [`Channel::send`]; the first time also until the receiver has learnt of this process's memory.
    pub fn send_loan(&self, loan: Loan) -> Result<(), Error> {
        self.send_loan_until(loan, None)
    }

    /// As [`Channel::send_loan`], but gives up with [`Error::Timeout`]; the loan is dropped then.
    pub fn send_loan_timeout(&self, loan: Loan, timeout: Duration) -> Result<(), Error> {
        self.send_loan_until(loan, Some(clock::now() + Nanos::from(timeout)))
    }

    fn send_loan_until(&self, loan: Loan, deadline: Option<Nanos>) -> Result<(), Error> {
        let (process, peer) = (self.pulc.process, self.peer);
        process.check_fork()?;
        let mut guard = process.lock();
        if let Err(fault) = guard.engine.connect(peer) {
            drop(guard);
            return Err(error::of_send(process, fault));
        }
        let mut reads = guard.engine.lends_to(peer);
        if reads == Reads::NotYet {
            let (waited, again) = process.wait(guard, &mut Hand::empty(), deadline, Watch::Always, |engine, _| {
                match engine.lends_to(peer) {
                    Reads::NotYet => None,
                    answer => Some(answer),
                }
            });
            guard = again;
            match waited {
                Waited::Ready(answer) => reads = answer,
                Waited::Timeout => return Err(Error::Timeout),
            }
        }
        if reads == Reads::Never {
            drop(guard);
            return self.send_until(&loan, deadline);
        }
        let (offset, len) = (loan.block.offset(), loan.len());
        let id = table(&mut guard.engine).lend(peer, loan.block);
        drop(guard);
        let mut body = [0; LOAN_BYTES];
        body[..8].copy_from_slice(&offset.to_le_bytes());
        body[8..16].copy_from_slice(&(len as u64).to_le_bytes());
        body[16..].copy_from_slice(&id.to_le_bytes());
        let header = header_of_loan(self.number);
        let sent = process.send(peer, Proto::RAWDATA, &header, &body, deadline);
        sent.map_err(|fault| {
            table(&mut process.lock().engine).returned(peer, id);
            error::of_send(process, fault)
        })
    }

    /// Waits for a message and returns it where it lies: a loan stays in its sender's memory, any other is received.
    pub fn recv_view(&self) -> Result<View, Error> {
        self.recv_view_until(None)
    }

    /// As [`Channel::recv_view`], but gives up after `timeout` with [`Error::Timeout`].
    pub fn recv_view_timeout(&self, timeout: Duration) -> Result<View, Error> {
        self.recv_view_until(Some(clock::now() + Nanos::from(timeout)))
    }

    fn recv_view_until(&self, deadline: Option<Nanos>) -> Result<View, Error> {
        let (process, place, peer) = (self.pulc.process, self.place, self.peer);
        process.check_fork()?;
        loop {
            let guard = process.lock();
            let (waited, mut guard) = process.wait(guard, &mut Hand::empty(), deadline, Watch::News, |engine, _| {
                settle(engine, place, peer);
                match table(engine).state(place).first_len() {
                    Some(len) => Some(Ok(len)),
                    None => {
                        let end = engine.end_of(peer)?;
                        Some(Err(Error::PeerGone { rank: peer, how: end.to_string() }))
                    }
                }
            });
            let len = match waited {
                Waited::Ready(len) => len?,
                Waited::Timeout => return Err(Error::Timeout),
            };
            if let Some((lent, cost)) = table(&mut guard.engine).take_first_loan(place) {
                guard.engine.release(peer, cost);
                let view = guard.engine.borrowed_from(peer, lent.offset, lent.len as u64);
                drop(guard);
                let back = Back { process, peer, number: self.number, id: lent.id };
                let view = view.ok_or_else(|| no_such_memory(peer))?;
                return Ok(View { source: Source::Lent { view, _back: back } });
            }
            drop(guard);
            let mut bytes = Vec::new();
            bytes.try_reserve_exact(len).map_err(|_| error::no_memory(len))?;
            bytes.resize(len, 0);
            match receive::receive(process, place, peer, &mut bytes, Patience::None) {
                Ok(Some(len)) => {
                    bytes.truncate(len);
                    return Ok(View { source: Source::Own(bytes) });
                }
                // Another thread was quicker.
                Ok(None) | Err(Error::BufferTooSmall { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Loans that are kept go to the buffers that wait for them: the receive handler cannot read them, this thread can.
pub(super) fn settle(engine: &mut Engine, place: u32, peer: Rank) {
    while let Some((at, needed)) = table(engine).loan_for_posted(place) {
        let (lent, cost) = match table(engine).take_first_loan(place) {
            Some(found) => found,
            None => return,
        };
        engine.release(peer, cost);
        let view = engine.borrowed_from(peer, lent.offset, lent.len as u64);
        let Some((table, outbox)) = engine.handler_and_outbox::<RawTable>(Proto::RAWDATA) else { return };
        let result = match view {
            Some(view) => {
                view.copy_to(0, &mut table.state(place).posted_mut(at)[..needed]);
                Ok(needed)
            }
            None => Err(no_such_memory(peer)),
        };
        table.finish_posted(place, at, result);
        table.serve_posted(place, outbox);
        let number = table.state(place).number;
        give_back(engine, peer, number, lent.id);
    }
}
