//! Requests whose sender is told when their handler has returned. Public; see [`Peer::telling`].

use super::Bundle;
use super::args::{Args, Long, Medium, Short};
use super::attempt::{Asked, long, medium, short};
use super::event::{Event, Group};
use super::peer::Peer;
use super::send;
use crate::Error;

/// Requests with remote completion; see [`Peer::telling`].
pub struct Telling<'a> {
    pub(super) peer: &'a Peer,
    pub(super) group: Option<&'a Group>,
}

impl Telling<'_> {
    /// [`Peer::request`] with remote completion.
    pub fn request<A: Args>(&self, bundle: &Bundle, handler: Short<A>, args: A) -> Result<Event, Error> {
        let words = args.to_words();
        self.told(|event| {
            let asked = Asked { tell: Some(event), ..short(handler.index, &words) };
            self.peer.until(&bundle.inner, |engine| self.peer.try_short(engine, asked))
        })
    }

    /// [`Peer::request_medium`] with remote completion.
    pub fn request_medium<A: Args>(
        &self,
        bundle: &Bundle,
        handler: Medium<A>,
        args: A,
        bytes: &[u8],
    ) -> Result<Event, Error> {
        send::check_medium(bytes.len())?;
        let words = args.to_words();
        self.told(|event| {
            let asked = Asked { tell: Some(event), ..medium(handler.index, &words) };
            self.peer.until(&bundle.inner, |engine| self.peer.try_medium(engine, asked, bytes))
        })
    }

    /// [`Peer::request_long`] with remote completion.
    pub fn request_long<A: Args>(
        &self,
        bundle: &Bundle,
        handler: Long<A>,
        args: A,
        offset: u64,
        bytes: &[u8],
    ) -> Result<Event, Error> {
        let words = args.to_words();
        self.told(|event| {
            self.peer.long(&bundle.inner, Asked { tell: Some(event), ..long(handler.index, &words, offset) }, bytes)
        })
    }

    fn told(&self, send: impl FnOnce(&Event) -> Result<(), Error>) -> Result<Event, Error> {
        let event = Event::new(self.group);
        match send(&event) {
            Ok(()) => Ok(event),
            Err(error) => {
                event.state().finish(false);
                Err(error)
            }
        }
    }
}
