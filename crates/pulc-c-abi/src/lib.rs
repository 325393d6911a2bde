#![doc = include_str!("../README.md")]

mod am;
mod beside;

use pulc_c_calls::guard::{self, Failed};
use pulc_c_calls::table::{
    self, AddressHandle, CBytes, CCounters, CEnvelope, CItem, CLanded, ChannelHandle, LoanHandle, MembersHandle,
    PortHandle, Table, ViewHandle, WakeupHandle,
};
use std::ffi::{c_char, c_int, c_void};

/// Calls through the table of this process's engine.
#[inline(always)]
fn through(call: impl FnOnce(&'static Table) -> c_int) -> c_int {
    match table::in_use() {
        Some(table) => call(table),
        None => guard::guarded(|| Err(Failed::new(guard::NOT_ATTACHED, "pulc_attach has not been called"))),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn pulc_version() -> u32 {
    table::ABI_VERSION
}

#[unsafe(no_mangle)]
pub extern "C" fn pulc_attach() -> c_int {
    let mut chosen = None;
    let code = guard::guarded(|| {
        chosen = Some(table::choose(beside::table_of_mpi)?);
        Ok(())
    });
    chosen.map_or(code, |table| (table.attach)())
}

#[unsafe(no_mangle)]
pub extern "C" fn pulc_rank(rank: *mut u32) -> c_int {
    through(|table| (table.rank)(rank))
}

#[unsafe(no_mangle)]
pub extern "C" fn pulc_size(size: *mut u32) -> c_int {
    through(|table| (table.size)(size))
}

#[unsafe(no_mangle)]
pub extern "C" fn pulc_node(node: *mut u32) -> c_int {
    through(|table| (table.node)(node))
}

#[unsafe(no_mangle)]
pub extern "C" fn pulc_job(job: *mut u64) -> c_int {
    through(|table| (table.job)(job))
}

#[unsafe(no_mangle)]
pub extern "C" fn pulc_node_count(count: *mut u32) -> c_int {
    through(|table| (table.node_count)(count))
}

#[unsafe(no_mangle)]
pub extern "C" fn pulc_node_of(rank: u32, node: *mut u32) -> c_int {
    through(|table| (table.node_of)(rank, node))
}

#[unsafe(no_mangle)]
pub extern "C" fn pulc_node_name(node: u32, name: *mut c_char, bytes: usize) -> c_int {
    through(|table| (table.node_name)(node, name, bytes))
}

#[unsafe(no_mangle)]
pub extern "C" fn pulc_port_open(name: *const c_char, mode: c_int, port: *mut *mut PortHandle) -> c_int {
    through(|table| (table.port_open)(name, mode, port))
}

#[unsafe(no_mangle)]
pub extern "C" fn pulc_port_close(port: *mut PortHandle) -> c_int {
    through(|table| (table.port_close)(port))
}

#[unsafe(no_mangle)]
pub extern "C" fn pulc_port_dropped(port: *mut PortHandle, dropped: *mut u64) -> c_int {
    through(|table| (table.port_dropped)(port, dropped))
}

#[unsafe(no_mangle)]
pub extern "C" fn pulc_address_new(rank: u32, name: *const c_char, address: *mut *mut AddressHandle) -> c_int {
    through(|table| (table.address_new)(rank, name, address))
}

#[unsafe(no_mangle)]
pub extern "C" fn pulc_address_free(address: *mut AddressHandle) -> c_int {
    through(|table| (table.address_free)(address))
}

#[unsafe(no_mangle)]
pub extern "C" fn pulc_send(
    port: *mut PortHandle,
    to: *const AddressHandle,
    tag: u64,
    data: *const c_void,
    bytes: usize,
    timeout_us: i64,
) -> c_int {
    through(|table| (table.send)(port, to, tag, data, bytes, timeout_us))
}

#[unsafe(no_mangle)]
pub extern "C" fn pulc_recv(
    port: *mut PortHandle,
    src: u32,
    tag: *const u64,
    buffer: *mut c_void,
    bytes: usize,
    timeout_us: i64,
    envelope: *mut CEnvelope,
) -> c_int {
    through(|table| (table.recv)(port, src, tag, buffer, bytes, timeout_us, envelope))
}

#[unsafe(no_mangle)]
pub extern "C" fn pulc_members_new(
    addresses: *const *const AddressHandle,
    count: usize,
    members: *mut *mut MembersHandle,
) -> c_int {
    through(|table| (table.members_new)(addresses, count, members))
}

#[unsafe(no_mangle)]
pub extern "C" fn pulc_members_free(members: *mut MembersHandle) -> c_int {
    through(|table| (table.members_free)(members))
}

#[unsafe(no_mangle)]
pub extern "C" fn pulc_send_many(
    port: *mut PortHandle,
    members: *mut MembersHandle,
    tag: u64,
    data: *const c_void,
    bytes: usize,
    timeout_us: i64,
    statuses: *mut c_int,
) -> c_int {
    through(|table| (table.send_many)(port, members, tag, data, bytes, timeout_us, statuses))
}

#[unsafe(no_mangle)]
pub extern "C" fn pulc_port_transfer(port: *mut PortHandle, rank: u32, timeout_us: i64) -> c_int {
    through(|table| (table.port_transfer)(port, rank, timeout_us))
}

#[unsafe(no_mangle)]
pub extern "C" fn pulc_port_adopt(
    rank: u32,
    name: *const c_char,
    timeout_us: i64,
    port: *mut *mut PortHandle,
) -> c_int {
    through(|table| (table.port_adopt)(rank, name, timeout_us, port))
}

#[unsafe(no_mangle)]
pub extern "C" fn pulc_select(
    ports: *const *mut PortHandle,
    count: usize,
    timeout_us: i64,
    index: *mut usize,
) -> c_int {
    through(|table| (table.select)(ports, count, timeout_us, index))
}

#[unsafe(no_mangle)]
pub extern "C" fn pulc_raw_open(rank: u32, number: u16, channel: *mut *mut ChannelHandle) -> c_int {
    through(|table| (table.raw_open)(rank, number, channel))
}

#[unsafe(no_mangle)]
pub extern "C" fn pulc_raw_close(channel: *mut ChannelHandle) -> c_int {
    through(|table| (table.raw_close)(channel))
}

#[unsafe(no_mangle)]
pub extern "C" fn pulc_raw_send(
    channel: *mut ChannelHandle,
    data: *const c_void,
    bytes: usize,
    timeout_us: i64,
) -> c_int {
    through(|table| (table.raw_send)(channel, data, bytes, timeout_us))
}

#[unsafe(no_mangle)]
pub extern "C" fn pulc_raw_recv(
    channel: *mut ChannelHandle,
    buffer: *mut c_void,
    bytes: usize,
    timeout_us: i64,
    len: *mut usize,
) -> c_int {
    through(|table| (table.raw_recv)(channel, buffer, bytes, timeout_us, len))
}

#[unsafe(no_mangle)]
pub extern "C" fn pulc_raw_send_batch(
    channel: *mut ChannelHandle,
    messages: *const CBytes,
    count: usize,
    timeout_us: i64,
    sent: *mut usize,
) -> c_int {
    through(|table| (table.raw_send_batch)(channel, messages, count, timeout_us, sent))
}

#[unsafe(no_mangle)]
pub extern "C" fn pulc_raw_recv_batch(
    channel: *mut ChannelHandle,
    buffer: *mut c_void,
    bytes: usize,
    lens: *mut usize,
    count: usize,
    timeout_us: i64,
    received: *mut usize,
) -> c_int {
    through(|table| (table.raw_recv_batch)(channel, buffer, bytes, lens, count, timeout_us, received))
}

#[unsafe(no_mangle)]
pub extern "C" fn pulc_raw_post(channel: *mut ChannelHandle, buffer: *mut c_void, bytes: usize, token: u64) -> c_int {
    through(|table| (table.raw_post)(channel, buffer, bytes, token))
}

#[unsafe(no_mangle)]
pub extern "C" fn pulc_raw_landed(channel: *mut ChannelHandle, timeout_us: i64, landed: *mut CLanded) -> c_int {
    through(|table| (table.raw_landed)(channel, timeout_us, landed))
}

#[unsafe(no_mangle)]
pub extern "C" fn pulc_raw_select(
    channels: *const *mut ChannelHandle,
    count: usize,
    timeout_us: i64,
    index: *mut usize,
) -> c_int {
    through(|table| (table.raw_select)(channels, count, timeout_us, index))
}

#[unsafe(no_mangle)]
pub extern "C" fn pulc_alloc(bytes: usize, memory: *mut *mut c_void) -> c_int {
    through(|table| (table.alloc)(bytes, memory))
}

#[unsafe(no_mangle)]
pub extern "C" fn pulc_free(memory: *mut c_void) -> c_int {
    through(|table| (table.free)(memory))
}

#[unsafe(no_mangle)]
pub extern "C" fn pulc_raw_loan(
    channel: *mut ChannelHandle,
    bytes: usize,
    loan: *mut *mut LoanHandle,
    data: *mut *mut c_void,
) -> c_int {
    through(|table| (table.raw_loan)(channel, bytes, loan, data))
}

#[unsafe(no_mangle)]
pub extern "C" fn pulc_raw_send_loan(channel: *mut ChannelHandle, loan: *mut LoanHandle, timeout_us: i64) -> c_int {
    through(|table| (table.raw_send_loan)(channel, loan, timeout_us))
}

#[unsafe(no_mangle)]
pub extern "C" fn pulc_loan_drop(loan: *mut LoanHandle) -> c_int {
    through(|table| (table.loan_drop)(loan))
}

#[unsafe(no_mangle)]
pub extern "C" fn pulc_raw_recv_view(
    channel: *mut ChannelHandle,
    timeout_us: i64,
    view: *mut *mut ViewHandle,
    len: *mut usize,
) -> c_int {
    through(|table| (table.raw_recv_view)(channel, timeout_us, view, len))
}

#[unsafe(no_mangle)]
pub extern "C" fn pulc_view_copy(view: *const ViewHandle, offset: usize, buffer: *mut c_void, bytes: usize) -> c_int {
    through(|table| (table.view_copy)(view, offset, buffer, bytes))
}

#[unsafe(no_mangle)]
pub extern "C" fn pulc_view_data(view: *const ViewHandle) -> *const c_void {
    table::in_use().map_or(std::ptr::null(), |table| (table.view_data)(view))
}

#[unsafe(no_mangle)]
pub extern "C" fn pulc_view_drop(view: *mut ViewHandle) -> c_int {
    through(|table| (table.view_drop)(view))
}

#[unsafe(no_mangle)]
pub extern "C" fn pulc_select_items(items: *mut CItem, count: usize, timeout_us: i64, ready: *mut usize) -> c_int {
    through(|table| (table.select_items)(items, count, timeout_us, ready))
}

#[unsafe(no_mangle)]
pub extern "C" fn pulc_wakeup_new(wakeup: *mut *mut WakeupHandle) -> c_int {
    through(|table| (table.wakeup_new)(wakeup))
}

#[unsafe(no_mangle)]
pub extern "C" fn pulc_wakeup_fd(wakeup: *const WakeupHandle, fd: *mut c_int) -> c_int {
    through(|table| (table.wakeup_fd)(wakeup, fd))
}

#[unsafe(no_mangle)]
pub extern "C" fn pulc_wakeup_arm(
    wakeup: *const WakeupHandle,
    items: *mut CItem,
    count: usize,
    ready: *mut usize,
) -> c_int {
    through(|table| (table.wakeup_arm)(wakeup, items, count, ready))
}

#[unsafe(no_mangle)]
pub extern "C" fn pulc_wakeup_free(wakeup: *mut WakeupHandle) -> c_int {
    through(|table| (table.wakeup_free)(wakeup))
}

#[unsafe(no_mangle)]
pub extern "C" fn pulc_device_counters(counters: *mut CCounters, max: usize, count: *mut usize) -> c_int {
    through(|table| (table.device_counters)(counters, max, count))
}

#[unsafe(no_mangle)]
pub extern "C" fn pulc_flush() -> c_int {
    through(|table| (table.flush)())
}

#[unsafe(no_mangle)]
pub extern "C" fn pulc_abort(status: u8, message: *const c_char) {
    through(|table| {
        (table.abort)(status, message);
        guard::OK
    });
    std::process::exit(i32::from(status));
}

#[unsafe(no_mangle)]
pub extern "C" fn pulc_strerror(code: c_int) -> *const c_char {
    guard::meaning(code).as_ptr()
}

#[unsafe(no_mangle)]
pub extern "C" fn pulc_last_error() -> *const c_char {
    match table::in_use() {
        Some(table) => (table.last_error)(),
        None => guard::last_error(),
    }
}
