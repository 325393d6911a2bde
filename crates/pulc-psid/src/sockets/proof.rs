//! Whether this kernel counts the bytes of a connection, and tells whose it is, as the bypass needs it. Tried on a connection of the
//! broker's own: a kernel that does otherwise (or not at all) is noticed before any byte of a program depends on it. Tried again when it
//! has failed, because what failed may pass: a network whose loopback interface is not up yet has no connections at all.

use super::diag::Diag;
use pulc_base::log;
use pulc_hal::os::tcp_counts::{sent, taken};
use pulc_sockets::message::{Place, Reason};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

/// Bytes of the trial, different in both directions.
const SENT: [usize; 2] = [1000, 77];
const READ: usize = 300;
/// What a step of the trial may take.
const LIMIT: Duration = Duration::from_secs(1);
/// Between two trials.
const PAUSE: Duration = Duration::from_millis(300);

/// The last trial's outcome.
pub struct Proof {
    failed: Option<(Reason, String)>,
    at: Instant,
}

impl Proof {
    pub fn new(diag: &Diag) -> Proof {
        let proof = Proof { failed: trial(diag).err(), at: Instant::now() };
        if let Some((_, why)) = &proof.failed {
            log!(Warn, "sockets", "{why}: connections stay on the kernel until a later trial goes well");
        }
        proof
    }

    /// Why no connection can be promoted, if so; after a while it is tried again.
    pub fn failed(&mut self, diag: &Diag) -> Option<&(Reason, String)> {
        if self.failed.is_some() && self.at.elapsed() >= PAUSE {
            self.failed = trial(diag).err();
            self.at = Instant::now();
        }
        self.failed.as_ref()
    }
}

fn trial(diag: &Diag) -> Result<(), (Reason, String)> {
    let failed = |error: std::io::Error| (Reason::NoTrial, format!("the trial connection failed ({error})"));
    let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
    let server = listener.local_addr().map_err(failed)?;
    let mut active = TcpStream::connect_timeout(&server, LIMIT).map_err(failed)?;
    let mut passive = listener.accept().map_err(failed)?.0;
    passive.set_read_timeout(Some(LIMIT)).map_err(failed)?;
    active.write_all(&[1; SENT[0]]).map_err(failed)?;
    passive.write_all(&[1; SENT[1]]).map_err(failed)?;
    passive.read_exact(&mut [0; READ]).map_err(failed)?;
    let counts =
        [sent(active.as_fd(), true), sent(passive.as_fd(), false), taken(active.as_fd()), taken(passive.as_fd())];
    let expected = [SENT[0], SENT[1], 0, READ].map(|count| Ok(count as u64));
    if counts != expected {
        let why = format!("this kernel counts {counts:?} where {expected:?} were moved");
        return Err((Reason::KernelUnknown, why));
    }
    let client = active.local_addr().map_err(failed)?;
    let cookie = rustix::net::sockopt::socket_cookie(&active).map_err(|error| failed(error.into()))?;
    let found = diag.find(&place(client), &place(server));
    match found {
        Ok(Some(found)) if found.cookie == cookie => Ok(()),
        other => Err((Reason::KernelSilent, format!("this kernel says {other:?} about socket {cookie}"))),
    }
}

fn place(address: SocketAddr) -> Place {
    match address {
        SocketAddr::V4(v4) => Place::v4(v4.ip().octets(), v4.port()),
        SocketAddr::V6(v6) => Place { address: v6.ip().octets(), port: v6.port() },
    }
}
