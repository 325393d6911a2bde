//! A client's connection to psid: blocking, no runtime, usable from several threads (one reads, any may send). Used by the
//! commands; never starts a daemon itself.

use crate::frame::{self, FrameError};
use crate::message::{Reply, Request};
use pulc_base::{NodeId, PROTOCOL_VERSION};
use std::io::{BufReader, ErrorKind, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// For a psid to answer the first message.
const GREETING: Duration = Duration::from_secs(20);

/// Environment variable that picks one of several daemons of a user on one machine.
pub const ENV_INSTANCE: &str = "PULC_INSTANCE";

/// Abstract address (without the leading NUL byte) on which the daemon of user `uid` listens for clients.
pub fn socket_name(uid: u32, instance: Option<&str>) -> String {
    match instance {
        Some(instance) => format!("pulc-psid-{uid}-{instance}"),
        None => format!("pulc-psid-{uid}"),
    }
}

/// Input that may be on its way to rank 0, in bytes.
pub const INPUT_WINDOW: u32 = 64 << 10;

pub struct Client {
    reader: BufReader<UnixStream>,
    sender: ClientSender,
    node: NodeId,
}

/// The sending half; clones share the connection.
#[derive(Clone)]
pub struct ClientSender {
    stream: Arc<Mutex<UnixStream>>,
}

impl Client {
    /// Connects to a daemon by its abstract address, or by its path, which begins with a slash; `Ok(None)` when none listens there.
    ///
    /// # Errors
    /// Also when the listener is another user's: anybody may take an abstract name, and what is sent there (program,
    /// arguments, environment) is not for everybody. One at a path is believed where only root may write to its directory.
    pub fn connect(name: &str) -> Result<Option<Client>, FrameError> {
        if name.starts_with('/') {
            return Client::connect_at(Path::new(name));
        }
        let address = SocketAddr::from_abstract_name(name)?;
        match UnixStream::connect_addr(&address) {
            Ok(stream) => {
                check_owner(&stream, name)?;
                Client::new(stream).map(Some)
            }
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn connect_at(path: &Path) -> Result<Option<Client>, FrameError> {
        match UnixStream::connect(path) {
            Ok(stream) => {
                check_directory(path)?;
                Client::new(stream).map(Some)
            }
            Err(error) if matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Greets the psid at the other end of `stream`, which answers soon.
    pub fn new(stream: UnixStream) -> Result<Client, FrameError> {
        Client::greet(stream, GREETING)
    }

    /// Greets the psid at the other end of `stream`, which may take so long to answer.
    pub fn greet(stream: UnixStream, patience: Duration) -> Result<Client, FrameError> {
        let sender = ClientSender { stream: Arc::new(Mutex::new(stream.try_clone()?)) };
        let mut client = Client { reader: BufReader::new(stream), sender, node: NodeId([0; 16]) };
        let greeting =
            client.ask(&Request::Hello { version: PROTOCOL_VERSION }, patience).map_err(|error| match error {
                FrameError::Io(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    let why = format!("no word from it within {} s; is it stopped?", patience.as_secs());
                    FrameError::Io(std::io::Error::other(why))
                }
                error => error,
            })?;
        match greeting {
            Reply::Welcome { node, .. } => client.node = node,
            Reply::Refused { why } => return Err(FrameError::Io(std::io::Error::other(why))),
            _ => return Err(FrameError::Malformed { len: 0 }),
        }
        Ok(client)
    }

    /// The node whose psid answers.
    pub fn node(&self) -> NodeId {
        self.node
    }

    pub fn sender(&self) -> ClientSender {
        self.sender.clone()
    }

    pub fn send(&self, request: &Request) -> Result<(), FrameError> {
        self.sender.send(request)
    }

    /// The next reply.
    ///
    /// # Blocking
    /// Until one comes or the daemon closes the connection.
    pub fn receive(&mut self) -> Result<Reply, FrameError> {
        frame::read(&mut self.reader)
    }

    /// The next reply if it comes within `timeout`, else [`FrameError::Io`] with `WouldBlock`.
    pub fn receive_within(&mut self, timeout: Duration) -> Result<Reply, FrameError> {
        self.reader.get_ref().set_read_timeout(Some(timeout))?;
        let reply = self.receive();
        self.reader.get_ref().set_read_timeout(None)?;
        reply
    }

    /// One request, one reply, waiting for it no longer than `timeout`.
    pub fn ask(&mut self, request: &Request, timeout: Duration) -> Result<Reply, FrameError> {
        self.reader.get_ref().set_read_timeout(Some(timeout))?;
        let reply = self.call(request);
        self.reader.get_ref().set_read_timeout(None)?;
        reply
    }

    /// One request, one reply.
    pub fn call(&mut self, request: &Request) -> Result<Reply, FrameError> {
        self.send(request)?;
        self.receive()
    }
}

/// Nobody but root may put a socket there.
fn check_directory(path: &Path) -> Result<(), FrameError> {
    let directory = path.parent().unwrap_or(path);
    let data = std::fs::metadata(directory)?;
    if data.uid() == 0 && data.mode() & 0o022 == 0 {
        return Ok(());
    }
    let directory = directory.display();
    let why =
        format!("others than root may write to {directory}, so who listens there is not believed; nothing was sent");
    Err(FrameError::Io(std::io::Error::other(why)))
}

/// Whoever listens must be this user or root.
fn check_owner(stream: &UnixStream, name: &str) -> Result<(), FrameError> {
    let owner = rustix::net::sockopt::socket_peercred(stream).map_err(std::io::Error::from)?.uid;
    let me = rustix::process::geteuid();
    if owner == me || owner.is_root() {
        return Ok(());
    }
    Err(FrameError::Io(std::io::Error::other(format!(
        "@{name} is held by a process of user {}, not by a daemon of user {}; nothing was sent to it \
         (with another {ENV_INSTANCE} your daemon gets another name)",
        owner.as_raw(),
        me.as_raw()
    ))))
}

impl ClientSender {
    pub fn send(&self, request: &Request) -> Result<(), FrameError> {
        let bytes = frame::encode(request)?;
        self.stream.lock().unwrap_or_else(PoisonError::into_inner).write_all(&bytes)?;
        Ok(())
    }
}
