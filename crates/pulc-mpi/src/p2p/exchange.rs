//! A send and a receive in one call.
//! Source: MPI-5.0, 3.10.

use super::{irecv, isend};
use crate::data::Data;
use crate::error::Result;
use crate::handle::{Comm, Datatype};
use crate::memory::{Addr, Room};
use crate::status::Status;
use crate::{request, world};

/// One message out and one in, in any order.
#[expect(clippy::too_many_arguments, reason = "the standard's")]
pub fn sendrecv(
    sendbuf: Addr,
    sendcount: i64,
    sendtype: Datatype,
    dest: i32,
    sendtag: i32,
    recvbuf: Addr,
    recvcount: i64,
    recvtype: Datatype,
    source: i32,
    recvtag: i32,
    comm: Comm,
) -> Result<Status> {
    let receive = irecv(recvbuf, recvcount, recvtype, source, recvtag, comm)?;
    let process = world::process()?;
    let sent = match isend(sendbuf, sendcount, sendtype, dest, sendtag, comm) {
        Ok(send) => request::wait_blocking(process, process.lock(), send),
        Err(error) => Err(error),
    };
    if let Err(error) = sent {
        request::abandon(process, receive);
        return Err(error);
    }
    request::wait_blocking(process, process.lock(), receive)
}

/// As [`sendrecv`] with one buffer for both: what is sent is copied first.
#[expect(clippy::too_many_arguments, reason = "the standard's")]
pub fn sendrecv_replace(
    buf: Addr,
    count: i64,
    datatype: Datatype,
    dest: i32,
    sendtag: i32,
    source: i32,
    recvtag: i32,
    comm: Comm,
) -> Result<Status> {
    let bytes = Data::new(buf, count, datatype)?.pack()?;
    let mut room = Room::new(bytes.len());
    room.addr().write(0, &bytes);
    let len = bytes.len() as i64;
    sendrecv(room.addr(), len, Datatype::BYTE, dest, sendtag, buf, count, datatype, source, recvtag, comm)
}
