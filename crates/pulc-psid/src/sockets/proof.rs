//! Whether this kernel counts the bytes of a connection as the bypass needs it. Tried once, on a connection of the broker's own: a kernel
//! that counts otherwise (or not at all) is noticed before any byte of a program depends on it.

use pulc_hal::os::tcp_counts::{sent, taken};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd as _;

/// Bytes of the trial, different in both directions.
const SENT: [usize; 2] = [1000, 77];
const READ: usize = 300;

/// # Errors
/// What was found instead, in words.
pub fn holds() -> Result<(), String> {
    let failed = |error: std::io::Error| format!("the trial connection failed ({error})");
    let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
    let mut active = TcpStream::connect(listener.local_addr().map_err(failed)?).map_err(failed)?;
    let mut passive = listener.accept().map_err(failed)?.0;
    active.write_all(&[1; SENT[0]]).map_err(failed)?;
    passive.write_all(&[1; SENT[1]]).map_err(failed)?;
    passive.read_exact(&mut [0; READ]).map_err(failed)?;
    let counts =
        [sent(active.as_fd(), true), sent(passive.as_fd(), false), taken(active.as_fd()), taken(passive.as_fd())];
    let expected = [SENT[0], SENT[1], 0, READ].map(|count| Ok(count as u64));
    if counts == expected {
        Ok(())
    } else {
        Err(format!("this kernel counts {counts:?} where {expected:?} were moved"))
    }
}
