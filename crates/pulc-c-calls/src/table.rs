//! The table of functions that the first door of a process announces when it attaches, and that later doors call through: copies of
//! `libpulc.so`, and the MPI doors, which bring a table of their own. It is the binary interface between copies of different builds:
//! entries are only ever added at the end.

use crate::am::functions::Functions;
use crate::guard::{self, Failed};
use crate::{am, groups, machine, memory, ports, raw, waits};
use pulc_hal::os::registry::{self, Announced};
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// Kind of announcement: functions of the port interface.
pub const KIND: u32 = 1;
/// 0xMMmm as in `pulc.h`. A table of another major version is not called.
pub const ABI_VERSION: u32 = 0x0001;

/// Opaque to callers: whoever's table made one is who gets it back.
pub type PortHandle = c_void;
pub type AddressHandle = c_void;
pub type ChannelHandle = c_void;
pub type LoanHandle = c_void;
pub type ViewHandle = c_void;
pub type WakeupHandle = c_void;
pub type MembersHandle = c_void;

/// As in `pulc.h`.
#[repr(C)]
pub struct CEnvelope {
    pub tag: u64,
    pub len: u64,
    pub src: u32,
    pub reserved: u32,
}

/// As in `pulc.h`.
#[repr(C)]
pub struct CCounters {
    pub device: [c_char; 16],
    pub messages_sent: u64,
    pub messages_received: u64,
    pub bytes_sent: u64,
    pub bytes_received: u64,
    pub system_calls: u64,
}

/// As in `pulc.h`.
#[repr(C)]
pub struct CLanded {
    pub token: u64,
    pub buffer: *mut c_void,
    pub len: u64,
    pub status: c_int,
    pub reserved: u32,
}

/// As in `pulc.h`.
#[repr(C)]
pub struct CBytes {
    pub data: *const c_void,
    pub bytes: usize,
}

/// As in `pulc.h`.
#[repr(C)]
pub struct CItem {
    pub kind: c_int,
    pub fd: c_int,
    pub object: *mut c_void,
    pub wanted: u32,
    pub ready: u32,
}

const _: () = assert!(size_of::<CItem>() == 24);
const _: () = assert!(size_of::<CLanded>() == 32);
const _: () = assert!(size_of::<CEnvelope>() == 24 && size_of::<CCounters>() == 56);

#[repr(C)]
pub struct Table {
    /// Size of this table where it was made, in bytes: entries beyond it do not exist there.
    pub bytes: u32,
    pub version: u32,
    pub attach: extern "C" fn() -> c_int,
    pub rank: extern "C" fn(*mut u32) -> c_int,
    pub size: extern "C" fn(*mut u32) -> c_int,
    pub node: extern "C" fn(*mut u32) -> c_int,
    pub job: extern "C" fn(*mut u64) -> c_int,
    pub node_count: extern "C" fn(*mut u32) -> c_int,
    pub node_of: extern "C" fn(u32, *mut u32) -> c_int,
    pub node_name: extern "C" fn(u32, *mut c_char, usize) -> c_int,
    pub port_open: extern "C" fn(*const c_char, c_int, *mut *mut PortHandle) -> c_int,
    pub port_close: extern "C" fn(*mut PortHandle) -> c_int,
    pub port_dropped: extern "C" fn(*mut PortHandle, *mut u64) -> c_int,
    pub address_new: extern "C" fn(u32, *const c_char, *mut *mut AddressHandle) -> c_int,
    pub address_free: extern "C" fn(*mut AddressHandle) -> c_int,
    pub send: extern "C" fn(*mut PortHandle, *const AddressHandle, u64, *const c_void, usize, i64) -> c_int,
    pub recv: extern "C" fn(*mut PortHandle, u32, *const u64, *mut c_void, usize, i64, *mut CEnvelope) -> c_int,
    pub select: extern "C" fn(*const *mut PortHandle, usize, i64, *mut usize) -> c_int,
    pub device_counters: extern "C" fn(*mut CCounters, usize, *mut usize) -> c_int,
    pub flush: extern "C" fn() -> c_int,
    pub abort: extern "C" fn(u8, *const c_char),
    pub last_error: extern "C" fn() -> *const c_char,
    pub raw_open: extern "C" fn(u32, u16, *mut *mut ChannelHandle) -> c_int,
    pub raw_close: extern "C" fn(*mut ChannelHandle) -> c_int,
    pub raw_send: extern "C" fn(*mut ChannelHandle, *const c_void, usize, i64) -> c_int,
    pub raw_recv: extern "C" fn(*mut ChannelHandle, *mut c_void, usize, i64, *mut usize) -> c_int,
    pub raw_post: extern "C" fn(*mut ChannelHandle, *mut c_void, usize, u64) -> c_int,
    pub raw_landed: extern "C" fn(*mut ChannelHandle, i64, *mut CLanded) -> c_int,
    pub raw_select: extern "C" fn(*const *mut ChannelHandle, usize, i64, *mut usize) -> c_int,
    pub alloc: extern "C" fn(usize, *mut *mut c_void) -> c_int,
    pub free: extern "C" fn(*mut c_void) -> c_int,
    pub raw_loan: extern "C" fn(*mut ChannelHandle, usize, *mut *mut LoanHandle, *mut *mut c_void) -> c_int,
    pub raw_send_loan: extern "C" fn(*mut ChannelHandle, *mut LoanHandle, i64) -> c_int,
    pub loan_drop: extern "C" fn(*mut LoanHandle) -> c_int,
    pub raw_recv_view: extern "C" fn(*mut ChannelHandle, i64, *mut *mut ViewHandle, *mut usize) -> c_int,
    pub view_copy: extern "C" fn(*const ViewHandle, usize, *mut c_void, usize) -> c_int,
    pub view_data: extern "C" fn(*const ViewHandle) -> *const c_void,
    pub view_drop: extern "C" fn(*mut ViewHandle) -> c_int,
    /// A table of its own, with its own size.
    pub am: &'static Functions,
    pub select_items: extern "C" fn(*mut CItem, usize, i64, *mut usize) -> c_int,
    pub wakeup_new: extern "C" fn(*mut *mut WakeupHandle) -> c_int,
    pub wakeup_fd: extern "C" fn(*const WakeupHandle, *mut c_int) -> c_int,
    pub wakeup_arm: extern "C" fn(*const WakeupHandle, *mut CItem, usize, *mut usize) -> c_int,
    pub wakeup_free: extern "C" fn(*mut WakeupHandle) -> c_int,
    pub members_new: extern "C" fn(*const *const AddressHandle, usize, *mut *mut MembersHandle) -> c_int,
    pub members_free: extern "C" fn(*mut MembersHandle) -> c_int,
    pub send_many:
        extern "C" fn(*mut PortHandle, *mut MembersHandle, u64, *const c_void, usize, i64, *mut c_int) -> c_int,
    pub port_transfer: extern "C" fn(*mut PortHandle, u32, i64) -> c_int,
    pub port_adopt: extern "C" fn(u32, *const c_char, i64, *mut *mut PortHandle) -> c_int,
    pub raw_send_batch: extern "C" fn(*mut ChannelHandle, *const CBytes, usize, i64, *mut usize) -> c_int,
    pub raw_recv_batch:
        extern "C" fn(*mut ChannelHandle, *mut c_void, usize, *mut usize, usize, i64, *mut usize) -> c_int,
}

static OWN: Table = Table {
    bytes: size_of::<Table>() as u32,
    version: ABI_VERSION,
    attach: machine::attach,
    rank: machine::rank,
    size: machine::size,
    node: machine::node,
    job: machine::job,
    node_count: machine::node_count,
    node_of: machine::node_of,
    node_name: machine::node_name,
    port_open: ports::open,
    port_close: ports::close,
    port_dropped: ports::dropped,
    address_new: ports::address_new,
    address_free: ports::address_free,
    send: ports::send,
    recv: ports::recv,
    select: ports::select,
    device_counters: machine::device_counters,
    flush: machine::flush,
    abort: machine::abort,
    last_error: guard::last_error,
    raw_open: raw::open,
    raw_close: raw::close,
    raw_send: raw::send,
    raw_recv: raw::recv,
    raw_post: raw::post,
    raw_landed: raw::landed,
    raw_select: raw::select,
    alloc: memory::alloc,
    free: memory::free,
    raw_loan: memory::loan,
    raw_send_loan: memory::send_loan,
    loan_drop: memory::drop_loan,
    raw_recv_view: memory::recv_view,
    view_copy: memory::view_copy,
    view_data: memory::view_data,
    view_drop: memory::view_drop,
    am: &am::functions::OWN,
    select_items: waits::select_items,
    wakeup_new: waits::wakeup_new,
    wakeup_fd: waits::wakeup_fd,
    wakeup_arm: waits::wakeup_arm,
    wakeup_free: waits::wakeup_free,
    members_new: groups::members_new,
    members_free: groups::members_free,
    send_many: groups::send_many,
    port_transfer: groups::port_transfer,
    port_adopt: groups::port_adopt,
    raw_send_batch: raw::send_batch,
    raw_recv_batch: raw::recv_batch,
};

static IN_USE: AtomicPtr<Table> = AtomicPtr::new(std::ptr::null_mut());

/// The table in use; `None` before the first attach.
#[inline]
pub fn in_use() -> Option<&'static Table> {
    // Acquire: pairs with the release of `choose`.
    let table = IN_USE.load(Ordering::Acquire);
    // SAFETY: null or a table that `choose` has checked; tables are static and their libraries are never unloaded.
    unsafe { table.as_ref() }
}

/// Where this copy's own table lies.
pub fn own() -> usize {
    std::ptr::from_ref(&OWN) as usize
}

/// Finds the table that the first library of this process announced, or announces the one that `prefer` knows of, or our own.
pub fn choose(prefer: impl FnOnce() -> Option<usize>) -> Result<&'static Table, Failed> {
    if let Some(table) = in_use() {
        return Ok(table);
    }
    // Before the loader's lock is taken, which this may need.
    let address = prefer().unwrap_or_else(own);
    let found = registry::with(|registry| match registry.first(KIND) {
        Some(announced) => Some(announced),
        None => {
            let own = Announced { kind: KIND, version: ABI_VERSION, address };
            registry.announce(own).then_some(own)
        }
    });
    let announced = found
        .map_err(|error| Failed { code: guard::SYSTEM, text: error.to_string() })?
        .ok_or_else(|| Failed::new(guard::SYSTEM, "too many libraries in this process have announced an engine"))?;
    if announced.version >> 8 != ABI_VERSION >> 8 {
        let (theirs, ours) = (announced.version, ABI_VERSION);
        let text = format!("PULC with interface {theirs:#06x} is loaded in this process; this copy speaks {ours:#06x}");
        return Err(Failed { code: guard::VERSION, text });
    }
    let table = announced.address as *mut Table;
    // SAFETY: this process's own registry names it, and only our C and MPI doors announce this kind, each a static
    // table of this layout up to its `bytes`; they are linked `nodelete`.
    let bytes = unsafe { (*table).bytes } as usize;
    if bytes < size_of::<Table>() {
        let text = format!(
            "an older PULC is loaded in this process: its table has {bytes} bytes, ours {}",
            size_of::<Table>()
        );
        return Err(Failed { code: guard::VERSION, text });
    }
    // Release: pairs with the acquire of `in_use`.
    IN_USE.store(table, Ordering::Release);
    in_use().ok_or_else(|| Failed::new(guard::INTERNAL, "the table vanished"))
}
