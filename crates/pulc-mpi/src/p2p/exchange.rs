//! A send and a receive in one call.
//! Source: MPI-5.0, 3.10.

use super::{check_recv, check_send, irecv, isend};
use crate::collective::{self, Program};
use crate::data::Data;
use crate::error::Result;
use crate::handle::{Comm, Datatype, Request};
use crate::memory::{Addr, Room};
use crate::status::Status;
use crate::{comm, request, world};

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

/// As [`sendrecv`], as one request.
#[expect(clippy::too_many_arguments, reason = "the standard's")]
pub fn isendrecv(
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
) -> Result<Request> {
    check_send(sendbuf, sendcount, sendtype, dest, sendtag, comm)?;
    check_recv(recvbuf, recvcount, recvtype, source, recvtag, comm)?;
    let mut program = Program::new();
    program.recv_plain(Data::new(recvbuf, recvcount, recvtype)?, source, recvtag);
    program.send_plain(Data::new(sendbuf, sendcount, sendtype)?, dest, sendtag);
    collective::begin_program(&comm::find(comm)?, program)
}

/// As [`sendrecv_replace`], as one request.
#[expect(clippy::too_many_arguments, reason = "the standard's")]
pub fn isendrecv_replace(
    buf: Addr,
    count: i64,
    datatype: Datatype,
    dest: i32,
    sendtag: i32,
    source: i32,
    recvtag: i32,
    comm: Comm,
) -> Result<Request> {
    check_send(buf, count, datatype, dest, sendtag, comm)?;
    check_recv(buf, count, datatype, source, recvtag, comm)?;
    let data = Data::new(buf, count, datatype)?;
    let mut program = Program::new();
    let out = Data::Flat { at: program.bytes(data.len().max(1)), len: data.len() };
    program.copy(data.clone(), out.clone());
    program.recv_plain(data, source, recvtag);
    program.send_plain(out, dest, sendtag);
    collective::begin_program(&comm::find(comm)?, program)
}
