//! The lines of the job room: to clients and to keepers. A task reads each line, another writes it; both speak frames. What is
//! read goes into the room's one bounded queue, so a talkative client is held back by its own socket.

use crate::jobs::Event;
use crate::keeper::message::{Order, Report};
use pulc_base::JobId;
use pulc_control::frame::{self, Deframer, FrameError};
use pulc_control::{Reply, Request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};

/// Number of a client's connection in this daemon's life.
pub type ClientId = u64;

/// Serves a client until it or the room closes the line.
pub fn client(stream: UnixStream, id: ClientId, events: mpsc::Sender<Event>) -> mpsc::UnboundedSender<Reply> {
    let (mut reader, writer) = stream.into_split();
    let (sender, outgoing) = mpsc::unbounded_channel();
    let writing = tokio::spawn(write(writer, outgoing));
    tokio::spawn(async move {
        let mut frames = Deframer::default();
        let error = read::<Request>(&mut reader, &mut frames, &events, |request| Event::Client(id, request)).await;
        let _ = events.send(Event::ClientClosed(id, error)).await;
        // It may have closed its half only and wait for answers. Once it is gone, whoever keeps the sender, for an answer that may come
        // much later, sees by its being closed that nobody waits any more.
        while !writing.is_finished() {
            if is_gone(reader.as_ref()) {
                writing.abort();
                return;
            }
            tokio::time::sleep(LOOK).await;
        }
    });
    sender
}

/// Between two looks whether a client that says nothing more is still there.
const LOOK: Duration = Duration::from_millis(200);

/// Whether the other side has closed both halves.
fn is_gone(stream: &UnixStream) -> bool {
    let nothing = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut fds = [PollFd::new(stream, PollFlags::empty())];
    poll(&mut fds, Some(&nothing)).is_ok() && fds[0].revents().contains(PollFlags::HUP)
}

/// The line to a keeper.
pub fn keeper(stream: UnixStream, job: JobId, events: mpsc::Sender<Event>) -> mpsc::UnboundedSender<Order> {
    let (mut reader, writer) = stream.into_split();
    let (sender, outgoing) = mpsc::unbounded_channel();
    tokio::spawn(write(writer, outgoing));
    tokio::spawn(async move {
        let mut frames = Deframer::default();
        read::<Report>(&mut reader, &mut frames, &events, |report| Event::Keeper(job, report)).await;
        let _ = events.send(Event::KeeperClosed(job)).await;
    });
    sender
}

/// The line that a keeper of a queued job has opened; its first word says which one it is. What it says after that is heard only when the
/// room has taken it for that one: where one daemon serves several users, anybody may come here.
pub fn keeper_back(stream: UnixStream, events: mpsc::Sender<Event>) {
    let peer = stream.peer_cred().ok().and_then(|peer| Some((peer.uid(), peer.pid()?)));
    let Some((uid, pid)) = peer else { return };
    let (mut reader, writer) = stream.into_split();
    let (sender, outgoing) = mpsc::unbounded_channel();
    tokio::spawn(write(writer, outgoing));
    tokio::spawn(async move {
        let mut frames = Deframer::default();
        let first = tokio::time::timeout(FIRST_WORD, first(&mut reader, &mut frames)).await;
        // Whoever begins with something else is no keeper.
        let Ok(Ok(Report::Back(back))) = first else { return };
        let job = JobId(back.job);
        let (taken, is_taken) = oneshot::channel();
        let _ = events.send(Event::KeeperBack { back, orders: sender, uid, pid, taken }).await;
        if is_taken.await.is_err() {
            return;
        }
        read::<Report>(&mut reader, &mut frames, &events, |report| Event::Keeper(job, report)).await;
        let _ = events.send(Event::KeeperClosed(job)).await;
    });
}

/// For a keeper to say which one it is.
const FIRST_WORD: Duration = Duration::from_secs(30);

/// The first message, and nothing more.
async fn first<T: for<'a> Deserialize<'a>>(reader: &mut OwnedReadHalf, frames: &mut Deframer) -> Result<T, FrameError> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        if let Some(message) = frames.take::<T>()? {
            return Ok(message);
        }
        match reader.read(&mut buffer).await? {
            0 => return Err(FrameError::Closed),
            count => frames.feed(&buffer[..count]),
        }
    }
}

/// Hands on what comes, what has come already first.
async fn read<T: for<'a> Deserialize<'a>>(
    reader: &mut OwnedReadHalf,
    frames: &mut Deframer,
    events: &mpsc::Sender<Event>,
    mut wrap: impl FnMut(T) -> Event,
) -> FrameError {
    let mut buffer = vec![0; 64 << 10];
    loop {
        loop {
            match frames.take::<T>() {
                Ok(Some(message)) => {
                    if events.send(wrap(message)).await.is_err() {
                        return FrameError::Closed;
                    }
                }
                Ok(None) => break,
                Err(error) => return error,
            }
        }
        let count = match reader.read(&mut buffer).await {
            Ok(0) => return FrameError::Closed,
            Ok(count) => count,
            Err(error) => return error.into(),
        };
        frames.feed(&buffer[..count]);
    }
}

/// Ends (and thereby closes its half) when the room drops the sender or the other side is gone.
async fn write<T: Serialize>(mut writer: OwnedWriteHalf, mut outgoing: mpsc::UnboundedReceiver<T>) {
    while let Some(message) = outgoing.recv().await {
        match frame::encode(&message) {
            Ok(bytes) => {
                if writer.write_all(&bytes).await.is_err() {
                    break;
                }
            }
            Err(error) => pulc_base::log!(Error, "psid", "a message could not be sent: {error}"),
        }
    }
    let _ = writer.shutdown().await;
}
