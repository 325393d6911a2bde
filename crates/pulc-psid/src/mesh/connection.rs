//! One established connection: a task that writes what is queued, a task that reads and hands up. Started by the hub when a node
//! is admitted. Reports `Up` first and `Down` last, so that events of one node are in order whatever the hub does meanwhile. Never
//! decides whether a node lives.

use super::wire::{self, Frame, FrameReader, WireError};
use super::{DownWhy, MeshEvent, NodeInfo};
use crate::error::Error;
use crate::membership::{ConnId, Member};
use pulc_base::clock::{Nanos, now};
use pulc_base::{NodeId, log};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncWriteExt as _, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio_rustls::TlsStream;

/// Frames are gathered up to this many bytes before they are written.
const GATHER_BYTES: usize = 64 << 10;
/// What is kept of that while nothing waits.
const IDLE_BYTES: usize = 1 << 10;
/// How long a farewell may take.
const FAREWELL: Duration = Duration::from_millis(500);
/// Own upkeep (beats, members) may exceed the queue's limit by this much.
const UPKEEP_BYTES: usize = 4 << 20;

pub(crate) type Stream = TlsStream<TcpStream>;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) frame_bytes: usize,
    pub(crate) queue_bytes: usize,
}

/// What a connection tells the hub.
#[derive(Debug)]
pub(crate) enum Report {
    Beat { load_milli: u32, answer: bool },
    Missed(Vec<NodeId>),
    Members(Vec<Member>),
    Ended(DownWhy),
}

/// Where messages to one node wait.
#[derive(Clone)]
pub(crate) struct Outbox {
    id: NodeId,
    queue: mpsc::UnboundedSender<Vec<u8>>,
    fill: Arc<Fill>,
    limits: Limits,
}

#[derive(Default)]
struct Fill {
    bytes: AtomicUsize,
    room: Notify,
}

/// The hub's side of a connection.
pub(crate) struct Connection {
    pub(crate) id: NodeId,
    pub(crate) outbox: Outbox,
    /// Only to ask the kernel about it and to shut it down.
    pub(crate) socket: OwnedFd,
    signs: Arc<Signs>,
    closing: watch::Sender<Option<DownWhy>>,
}

/// Signs of life.
#[derive(Default)]
struct Signs {
    heard: AtomicU64,
    /// The reader waits for whoever takes the events: the silence is ours, not the peer's.
    stalled: AtomicBool,
}

/// What a new connection is started with.
pub(crate) struct Start {
    pub(crate) conn: ConnId,
    pub(crate) info: NodeInfo,
    pub(crate) stream: Stream,
    pub(crate) socket: OwnedFd,
    /// Written before everything else.
    pub(crate) first: Vec<u8>,
    pub(crate) limits: Limits,
    pub(crate) events: mpsc::Sender<MeshEvent>,
    pub(crate) hub: mpsc::Sender<(ConnId, Report)>,
    /// Resolves when the last event of the previous connection with this node has been handed up.
    pub(crate) after: Option<oneshot::Receiver<()>>,
    /// Dropped after the last event of this one.
    pub(crate) done: oneshot::Sender<()>,
}

impl Connection {
    pub(crate) fn start(start: Start) -> Connection {
        let Start { conn, info, stream, socket, first, limits, events, hub, after, done } = start;
        let id = info.id;
        let (queue, queued) = mpsc::unbounded_channel();
        let fill = Arc::new(Fill::default());
        let signs = Arc::new(Signs { heard: AtomicU64::new(now().0), stalled: AtomicBool::new(true) });
        let (closing, closed) = watch::channel(None);
        let (from, to) = tokio::io::split(stream);
        tokio::spawn(write_all(to, first, queued, fill.clone()));
        let reader = Reader {
            conn,
            id,
            from,
            frames: FrameReader::new(limits.frame_bytes),
            events,
            hub,
            signs: signs.clone(),
            closed,
        };
        tokio::spawn(async move {
            if let Some(after) = after {
                let _ = after.await;
            }
            reader.listens();
            reader.run(info).await;
            drop(done);
        });
        Connection { id, outbox: Outbox { id, queue, fill, limits }, socket, signs, closing }
    }

    /// When something was last heard; now, if it is this node that does not listen.
    pub(crate) fn heard(&self) -> Nanos {
        if self.signs.stalled.load(Ordering::Relaxed) { now() } else { Nanos(self.signs.heard.load(Ordering::Relaxed)) }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.outbox.fill.bytes.load(Ordering::Relaxed) == 0
    }

    /// Ends it; the reader reports `Down` with this reason.
    pub(crate) fn close(self, why: DownWhy) {
        let _ = self.closing.send(Some(why));
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }

    /// Sends what is queued and a good-bye, then ends it.
    pub(crate) async fn farewell(self) {
        self.outbox.put_upkeep(&Frame::Goodbye);
        let written = async {
            while !self.is_idle() && !self.outbox.queue.is_closed() {
                self.outbox.fill.room.notified().await;
            }
        };
        let _ = tokio::time::timeout(FAREWELL, written).await;
        self.close(DownWhy::Left);
    }
}

impl Outbox {
    /// Queues one message; hands it back when the queue is full.
    pub(crate) fn put(&self, body: Vec<u8>) -> Result<(), (Error, Vec<u8>)> {
        self.put_within(body, self.limits.queue_bytes)
    }

    pub(crate) fn put_upkeep(&self, frame: &Frame) {
        if let Err((error, _)) = self.put_within(wire::encode(frame), self.limits.queue_bytes + UPKEEP_BYTES) {
            log!(Debug, "mesh", "upkeep of {} skipped: {error}", self.id);
        }
    }

    fn put_within(&self, body: Vec<u8>, limit_bytes: usize) -> Result<(), (Error, Vec<u8>)> {
        let len = body.len();
        if len > self.limits.frame_bytes {
            return Err((Error::MessageTooLong { len, limit: self.limits.frame_bytes }, body));
        }
        let queued_bytes = self.fill.bytes.fetch_add(len, Ordering::Relaxed);
        if queued_bytes > 0 && queued_bytes + len > limit_bytes {
            self.fill.bytes.fetch_sub(len, Ordering::Relaxed);
            return Err((Error::QueueFull { to: self.id, queued_bytes, limit_bytes }, body));
        }
        self.queue.send(body).map_err(|back| (Error::NotConnected(self.id), back.0))
    }

    /// Queues one message as soon as there is room for it.
    pub(crate) async fn put_wait(&self, mut body: Vec<u8>) -> Result<(), Error> {
        loop {
            // Registered before the queue is looked at, so that no wake-up is missed.
            let mut written = std::pin::pin!(self.fill.room.notified());
            written.as_mut().enable();
            match self.put(body) {
                Ok(()) => return Ok(()),
                Err((Error::QueueFull { .. }, back)) => body = back,
                Err((error, _)) => return Err(error),
            }
            tokio::select! {
                () = written => {}
                () = self.queue.closed() => return Err(Error::NotConnected(self.id)),
            }
        }
    }
}

/// Writes until the queue is closed or the stream breaks; a broken stream is reported by the reader.
async fn write_all(
    mut to: WriteHalf<Stream>,
    first: Vec<u8>,
    mut queued: mpsc::UnboundedReceiver<Vec<u8>>,
    fill: Arc<Fill>,
) {
    if !first.is_empty() && (to.write_all(&first).await.is_err() || to.flush().await.is_err()) {
        queued.close();
    }
    drop(first);
    let mut gathered = Vec::new();
    while let Some(body) = queued.recv().await {
        wire::put_frame(&mut gathered, &body);
        let mut bytes = body.len();
        while gathered.len() < GATHER_BYTES
            && let Ok(body) = queued.try_recv()
        {
            wire::put_frame(&mut gathered, &body);
            bytes += body.len();
        }
        let written = async {
            to.write_all(&gathered).await?;
            to.flush().await
        };
        if written.await.is_err() {
            break;
        }
        gathered.clear();
        // One large message must not hold its memory for ever, and a cluster has many connections on which little is said.
        gathered.shrink_to(if queued.is_empty() { IDLE_BYTES } else { GATHER_BYTES });
        fill.bytes.fetch_sub(bytes, Ordering::Relaxed);
        fill.room.notify_waiters();
    }
    queued.close();
    fill.room.notify_waiters();
}

struct Reader {
    conn: ConnId,
    id: NodeId,
    from: ReadHalf<Stream>,
    frames: FrameReader,
    events: mpsc::Sender<MeshEvent>,
    hub: mpsc::Sender<(ConnId, Report)>,
    signs: Arc<Signs>,
    closed: watch::Receiver<Option<DownWhy>>,
}

impl Reader {
    async fn run(mut self, info: NodeInfo) {
        let why = match self.hand_up(MeshEvent::Up(info)).await {
            Some(why) => why,
            None => self.read().await,
        };
        let _ = self.hub.send((self.conn, Report::Ended(why))).await;
        let _ = self.events.send(MeshEvent::Down(self.id, why)).await;
    }

    async fn read(&mut self) -> DownWhy {
        loop {
            loop {
                let ended = match self.frames.next() {
                    Ok(None) => break,
                    Ok(Some(Frame::Peer(message))) => self.hand_up(MeshEvent::Message(self.id, message)).await,
                    Ok(Some(Frame::Beat { load_milli, answer })) => {
                        self.report(Report::Beat { load_milli, answer }).await
                    }
                    Ok(Some(Frame::Missed(ids))) => self.report(Report::Missed(ids)).await,
                    Ok(Some(Frame::Members(members))) => self.report(Report::Members(members)).await,
                    Ok(Some(Frame::Goodbye)) => Some(DownWhy::Left),
                    Err(error) => self.broken(&error),
                };
                if let Some(why) = ended {
                    return why;
                }
            }
            tokio::select! {
                biased;
                why = closing(&mut self.closed) => return why,
                filled = self.frames.fill(&mut self.from) => match filled {
                    Ok(1..) => self.signs.heard.store(now().0, Ordering::Relaxed),
                    Ok(0) | Err(_) => return self.closed.borrow().unwrap_or(DownWhy::Closed),
                },
            }
        }
    }

    /// From now on silence is the peer's.
    fn listens(&self) {
        self.signs.heard.store(now().0, Ordering::Relaxed);
        self.signs.stalled.store(false, Ordering::Relaxed);
    }

    fn broken(&self, error: &WireError) -> Option<DownWhy> {
        log!(Warn, "mesh", "node {} broke the protocol ({error}); its connection is closed", self.id);
        Some(DownWhy::BrokenRules)
    }

    /// Gives one event to whoever started the mesh, waiting for room; returns why the connection ended meanwhile, if it did.
    async fn hand_up(&mut self, event: MeshEvent) -> Option<DownWhy> {
        let event = match self.events.try_send(event) {
            Ok(()) => return None,
            Err(mpsc::error::TrySendError::Closed(_)) => return Some(DownWhy::Closed),
            Err(mpsc::error::TrySendError::Full(event)) => event,
        };
        self.signs.stalled.store(true, Ordering::Relaxed);
        let ended = tokio::select! {
            biased;
            why = closing(&mut self.closed) => Some(why),
            sent = self.events.send(event) => sent.is_err().then_some(DownWhy::Closed),
        };
        self.listens();
        ended
    }

    async fn report(&mut self, report: Report) -> Option<DownWhy> {
        tokio::select! {
            biased;
            why = closing(&mut self.closed) => Some(why),
            sent = self.hub.send((self.conn, report)) => sent.is_err().then_some(DownWhy::Closed),
        }
    }
}

/// Resolves when the hub closes the connection.
async fn closing(closed: &mut watch::Receiver<Option<DownWhy>>) -> DownWhy {
    match closed.wait_for(Option::is_some).await {
        Ok(why) => why.unwrap_or(DownWhy::Closed),
        Err(_) => DownWhy::Closed,
    }
}
