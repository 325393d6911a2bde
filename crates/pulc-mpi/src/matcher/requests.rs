//! The slab of requests: what every operation under way is, how far it has come, and how it ended. Always with the engine locked.

use crate::callback::GeneralizedRequest;
use crate::collective::Schedule;
use crate::data::Data;
use crate::error::{Class, Error};
use crate::group::Group;
use crate::handle::{self, Comm, Kind as HandleKind, Request};
use crate::memory::Addr;
use crate::request::Plan;
use crate::status::Status;
use pulc_base::Rank;
use pulc_handler::matching::Entry;
use pulc_handler::{Body, SendProgress};
use std::sync::Arc;

/// What a request does.
pub(crate) enum Work {
    /// Nothing: complete, or persistent and not started.
    None,
    Recv(Recv),
    Send(Box<Out>),
    Schedule(Arc<Schedule>),
}

/// A receive that is posted or whose message is arriving.
pub(crate) struct Recv {
    pub data: Data,
    pub context: u32,
    /// Its place in the queue, while it waits there.
    pub entry: Option<Entry>,
    /// Names senders by their rank in the communicator; `None` where that is their rank in the job.
    pub senders: Option<Arc<Group>>,
    pub src: Rank,
    pub tag: i32,
    pub total: usize,
    pub arrived: usize,
}

/// A message that could not leave at once.
pub(crate) struct Out {
    pub dst: Rank,
    pub header: [u8; crate::envelope::HEADER_BYTES],
    pub bytes: Bytes,
    pub progress: Option<SendProgress>,
    /// Complete only when it is matched.
    pub synchronous: bool,
}

/// The bytes of an outgoing message.
pub(crate) enum Bytes {
    /// In the program's buffer.
    User(Data),
    /// Packed or buffered.
    Own(Vec<u8>),
}

impl Bytes {
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Bytes::User(data) => data.as_flat().expect("typed data is packed before it is sent"),
            Bytes::Own(bytes) => bytes,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    Free,
    /// Persistent, and not started.
    Inactive,
    Active,
    Done,
}

pub(crate) struct Place {
    pub phase: Phase,
    pub work: Work,
    pub status: Status,
    pub error: Option<Error>,
    pub comm: Comm,
    pub persistent: Option<Arc<Plan>>,
    pub generalized: Option<Arc<dyn GeneralizedRequest>>,
    /// A schedule is told when it is complete.
    pub of_schedule: bool,
    /// The program has freed it: it goes when it is complete.
    pub released: bool,
}

impl Place {
    /// Whether its end is more than a status.
    pub fn is_faulty_or_generalized(&self) -> bool {
        self.error.is_some() || self.generalized.is_some()
    }
}

const FREE: Place = Place {
    phase: Phase::Free,
    work: Work::None,
    status: Status::EMPTY,
    error: None,
    comm: Comm::NULL,
    persistent: None,
    generalized: None,
    of_schedule: false,
    released: false,
};

#[derive(Default)]
pub(crate) struct Requests {
    places: Vec<Place>,
    free: Vec<u32>,
    /// A request of a schedule has completed since somebody looked.
    pub schedule_news: bool,
    /// A persistent request that is being started: the next operation takes its place.
    next: Option<u32>,
    scratch: Vec<u8>,
}

impl Requests {
    #[inline]
    pub fn add(&mut self, work: Work, comm: Comm) -> u32 {
        if let Some(at) = self.next.take() {
            let place = &mut self.places[at as usize];
            (place.phase, place.work, place.status, place.error) = (Phase::Active, work, Status::EMPTY, None);
            return at;
        }
        if let Some(at) = self.free.pop() {
            // What is free is as in `FREE`.
            let place = &mut self.places[at as usize];
            (place.phase, place.work, place.comm) = (Phase::Active, work, comm);
            return at;
        }
        assert!(self.places.len() < handle::INDEX_MAX, "more requests than handles");
        self.places.push(Place { phase: Phase::Active, work, comm, ..FREE });
        self.places.len() as u32 - 1
    }

    /// The place that [`Requests::add_recv`] will take.
    #[inline(always)]
    pub fn next_free(&self) -> Option<u32> {
        if self.next.is_some() { None } else { self.free.last().copied() }
    }

    /// As [`Requests::add`] of a receive into one piece of memory, which is written where it stays; in the place that
    /// [`Requests::next_free`] has told.
    #[inline(always)]
    pub fn add_recv(
        &mut self,
        at: Addr,
        len: usize,
        context: u32,
        senders: Option<Arc<Group>>,
        entry: Entry,
        comm: Comm,
    ) {
        let Some(place) = self.free.pop().and_then(|at| self.places.get_mut(at as usize)) else { return };
        (place.phase, place.comm) = (Phase::Active, comm);
        let (data, entry) = (Data::Flat { at, len }, Some(entry));
        let recv = Recv { data, context, entry, senders, src: Rank(0), tag: 0, total: 0, arrived: 0 };
        // What is free does nothing: there is nothing to drop.
        std::mem::forget(std::mem::replace(&mut place.work, Work::Recv(recv)));
    }

    /// The next operation takes the place of this persistent request.
    pub fn use_next(&mut self, index: u32) {
        self.next = Some(index);
    }

    /// After an operation has begun: one that took no place is complete.
    pub fn end_use(&mut self, index: u32) {
        if self.next.take().is_some() {
            self.set_done(index);
        }
    }

    /// A persistent request is complete as soon as it was started.
    pub fn set_done(&mut self, index: u32) {
        let place = &mut self.places[index as usize];
        (place.phase, place.status, place.error) = (Phase::Done, Status::EMPTY, None);
    }

    #[inline]
    pub fn handle(index: u32) -> Request {
        Request(handle::made(HandleKind::Request, index))
    }

    /// The place of a request of the program.
    #[inline]
    pub fn index(&self, request: Request) -> Option<u32> {
        let index = handle::made_index(HandleKind::Request, request.0)?;
        let place = self.places.get(index)?;
        (place.phase != Phase::Free).then_some(index as u32)
    }

    #[inline]
    pub fn place(&mut self, index: u32) -> &mut Place {
        &mut self.places[index as usize]
    }

    #[inline]
    pub fn is_active(&self, index: u32) -> bool {
        self.places[index as usize].phase == Phase::Active
    }

    /// Frees a place; what there was in it.
    pub fn remove(&mut self, index: u32) -> Place {
        self.free.push(index);
        std::mem::replace(&mut self.places[index as usize], FREE)
    }

    /// Frees the place of a request that is complete and not persistent; how it has ended. As `remove`, with less to move.
    #[inline]
    pub fn remove_done(&mut self, index: u32) -> (Status, Option<Error>, Option<Arc<dyn GeneralizedRequest>>) {
        self.free.push(index);
        let place = &mut self.places[index as usize];
        let ended = (place.status, place.error.take(), place.generalized.take());
        (place.phase, place.work, place.status) = (Phase::Free, Work::None, Status::EMPTY);
        (place.comm, place.persistent, place.of_schedule, place.released) = (Comm::NULL, None, false, false);
        ended
    }

    /// Tells how a request has ended, if that is all there is to it: it is complete and not persistent, without a fault and without
    /// functions of the program. Its place is free then.
    #[inline]
    pub fn take_plain(&mut self, request: Request, tell: impl FnOnce(&Status)) -> bool {
        let Some(index) = handle::made_index(HandleKind::Request, request.0) else { return false };
        let Some(place) = self.places.get_mut(index) else { return false };
        let is_plain = place.phase == Phase::Done
            && place.error.is_none()
            && place.persistent.is_none()
            && place.generalized.is_none()
            && matches!(place.work, Work::None);
        if !is_plain {
            return false;
        }
        tell(&place.status);
        (place.phase, place.status, place.comm) = (Phase::Free, Status::EMPTY, Comm::NULL);
        (place.of_schedule, place.released) = (false, false);
        self.free.push(index as u32);
        true
    }

    /// Whether a handle of the program is that of an operation under way.
    #[inline]
    pub fn is_under_way(&self, request: Request) -> bool {
        handle::made_index(HandleKind::Request, request.0)
            .and_then(|index| self.places.get(index))
            .is_some_and(|place| place.phase == Phase::Active)
    }

    #[inline]
    pub fn recv(&mut self, index: u32) -> Option<&mut Recv> {
        match &mut self.places.get_mut(index as usize)?.work {
            Work::Recv(recv) => Some(recv),
            _ => None,
        }
    }

    #[inline]
    pub fn peek_recv(&self, index: u32) -> Option<&Recv> {
        match &self.places.get(index as usize)?.work {
            Work::Recv(recv) => Some(recv),
            _ => None,
        }
    }

    /// All of a message has come for a posted receive.
    #[inline]
    pub fn whole(&mut self, index: u32, src: Rank, tag: i32, body: Body<'_>) {
        let Requests { places, scratch, .. } = self;
        let Some(Place { work: Work::Recv(recv), .. }) = places.get_mut(index as usize) else { return };
        (recv.src, recv.tag, recv.total, recv.arrived) = (src, tag, body.len(), body.len());
        recv.data.put_body(0, body, scratch);
        self.received(index);
    }

    /// The same for a message of a few words, given as they are; whether there is room for it in one piece of memory.
    #[inline]
    pub fn land(&mut self, index: u32, src: Rank, tag: i32, len: usize, words: &[u64]) -> bool {
        let Some(place) = self.places.get_mut(index as usize) else { return false };
        let Work::Recv(Recv { data: Data::Flat { at, len: room }, senders, .. }) = &place.work else { return false };
        if len > *room || place.released {
            return false;
        }
        at.write_words(len, words);
        let source = match senders {
            Some(senders) => senders.rank_of(src.0).unwrap_or(crate::consts::ANY_SOURCE),
            None => src.0 as i32,
        };
        // As `complete` does, field by field where they stay: what is put together elsewhere and moved is waited for.
        place.phase = Phase::Done;
        (place.status.source, place.status.tag, place.status.error) = (source, tag, 0);
        (place.status.bytes, place.status.cancelled) = (len as u64, false);
        place.work = Work::None;
        self.schedule_news |= place.of_schedule;
        true
    }

    /// As [`Requests::land`] of a request that is waited for at this moment: how it ends is told, and its place is free. Where more than that is
    /// to be done it ends as others do, and whoever waits takes it.
    #[inline]
    pub fn land_for_good(
        &mut self,
        index: u32,
        src: Rank,
        tag: i32,
        len: usize,
        words: &[u64],
        tell: impl FnOnce(&Status),
    ) -> bool {
        let Some(place) = self.places.get_mut(index as usize) else { return false };
        let Work::Recv(Recv { data: Data::Flat { at, len: room }, senders: None, .. }) = &place.work else {
            return self.land(index, src, tag, len, words);
        };
        let is_plain = len <= *room && !place.released && place.persistent.is_none() && !place.of_schedule;
        if !is_plain {
            return self.land(index, src, tag, len, words);
        }
        at.write_words(len, words);
        tell(&Status { source: src.0 as i32, tag, error: 0, bytes: len as u64, cancelled: false });
        (place.phase, place.comm) = (Phase::Free, Comm::NULL);
        // A receive into one piece of memory from senders without names of their own: there is nothing to drop.
        std::mem::forget(std::mem::replace(&mut place.work, Work::None));
        self.free.push(index);
        true
    }

    /// The next part.
    pub fn part(&mut self, index: u32, body: Body<'_>) {
        let Requests { places, scratch, .. } = self;
        let Some(Place { work: Work::Recv(recv), .. }) = places.get_mut(index as usize) else { return };
        recv.data.put_body(recv.arrived, body, scratch);
        recv.arrived += body.len();
    }

    /// Where the rest of its message goes, if that is one piece of memory with room for it.
    pub fn place_of_part(&mut self, index: u32) -> Option<&mut [u8]> {
        let recv = self.recv(index)?;
        let Data::Flat { at, len } = &recv.data else { return None };
        let more = recv.total.checked_sub(recv.arrived)?;
        (recv.total <= *len).then(|| at.offset(recv.arrived as i64).bytes_mut(more))
    }

    /// So many bytes are there.
    pub fn part_landed(&mut self, index: u32, bytes: usize) {
        if let Some(recv) = self.recv(index) {
            recv.arrived += bytes;
        }
    }

    /// A receive has all its bytes.
    pub fn received(&mut self, index: u32) {
        let Some(recv) = self.recv(index) else { return };
        let source = match &recv.senders {
            Some(senders) => senders.rank_of(recv.src.0).unwrap_or(crate::consts::ANY_SOURCE),
            None => recv.src.0 as i32,
        };
        let (total, room) = (recv.total, recv.data.len());
        let status = Status { source, tag: recv.tag, error: 0, bytes: total.min(room) as u64, cancelled: false };
        let error = (total > room).then(|| too_long(total, room));
        self.complete(index, status, error);
    }

    /// Ends a request.
    pub fn complete(&mut self, index: u32, status: Status, error: Option<Error>) {
        let place = &mut self.places[index as usize];
        if place.phase != Phase::Active {
            return;
        }
        place.phase = Phase::Done;
        place.status = status;
        place.error = error;
        place.work = Work::None;
        self.schedule_news |= place.of_schedule;
        if place.released {
            self.remove(index);
        }
    }

    pub fn fail(&mut self, index: u32, error: Error) {
        self.complete(index, Status::EMPTY, Some(error));
    }
}

#[cold]
fn too_long(total: usize, room: usize) -> Error {
    Error::new(
        Class::TRUNCATE,
        format!("a message of {total} bytes does not fit the receive buffer of {room}: its end is lost"),
    )
}
