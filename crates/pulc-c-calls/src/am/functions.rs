//! Everything that C doors have for active messages, in one list: it makes the table that the doors of a process share, and in
//! `libpulc.so` the exported functions that call through it. Entries are only ever added at the end.

use super::calls::{CHandler, CReturned};
use super::progress::CTally;
use super::{Handle, calls, endpoints, progress, requests};
use std::ffi::{c_char, c_int, c_void};

/// Hands the list to a macro: exported name, body, entry of the table with its arguments.
#[macro_export]
macro_rules! am_functions {
    ($then:ident) => {
        $then! {
            pulc_am_bundle_new = progress::bundle_new, bundle_new(mode: c_int, bundle: *mut *mut Handle);
            pulc_am_bundle_free = progress::bundle_free, bundle_free(bundle: *mut Handle);
            pulc_am_poll = progress::poll, poll(bundle: *mut Handle, ran: *mut usize);
            pulc_am_wait = progress::wait, wait(bundle: *mut Handle, timeout_us: i64, ran: *mut usize);
            pulc_am_serve = progress::serve, serve(bundle: *mut Handle, server: *mut *mut Handle);
            pulc_am_server_stop = progress::server_stop, server_stop(server: *mut Handle);
            pulc_am_tally = progress::tally, tally(bundle: *mut Handle, tally: *mut CTally);
            pulc_am_event_test = progress::event_test, event_test(event: *mut Handle, outcome: *mut c_int);
            pulc_am_event_wait = progress::event_wait,
                event_wait(bundle: *mut Handle, event: *mut Handle, timeout_us: i64, outcome: *mut c_int);
            pulc_am_event_free = progress::event_free, event_free(event: *mut Handle);
            pulc_am_endpoint_open = endpoints::open,
                endpoint_open(bundle: *mut Handle, name: *const c_char, tag: u64, endpoint: *mut *mut Handle);
            pulc_am_endpoint_close = endpoints::close, endpoint_close(endpoint: *mut Handle);
            pulc_am_set_tag = endpoints::set_tag, set_tag(endpoint: *mut Handle, tag: u64);
            pulc_am_set_segment = endpoints::set_segment, set_segment(endpoint: *mut Handle, base: *mut c_void, bytes: usize);
            pulc_am_on = endpoints::on,
                on(endpoint: *mut Handle, index: u8, kinds: u32, run: Option<CHandler>, context: *mut c_void);
            pulc_am_on_error = endpoints::on_error,
                on_error(endpoint: *mut Handle, run: Option<CReturned>, context: *mut c_void);
            pulc_am_map = endpoints::map,
                map(endpoint: *mut Handle, bundle: *mut Handle, rank: u32, name: *const c_char, tag: u64, credits: u16,
                    timeout_us: i64, peer: *mut *mut Handle);
            pulc_am_unmap = endpoints::unmap, unmap(peer: *mut Handle);
            pulc_am_credits = endpoints::credits, credits(peer: *mut Handle, left: *mut u32, agreed: *mut u32);
            pulc_am_request = requests::request,
                request(peer: *mut Handle, bundle: *mut Handle, handler: u8, args: *const u64, count: usize,
                    told: *mut *mut Handle);
            pulc_am_request_medium = requests::request_medium,
                request_medium(peer: *mut Handle, bundle: *mut Handle, handler: u8, args: *const u64, count: usize,
                    data: *const c_void, bytes: usize, told: *mut *mut Handle);
            pulc_am_request_long = requests::request_long,
                request_long(peer: *mut Handle, bundle: *mut Handle, handler: u8, args: *const u64, count: usize, offset: u64,
                    data: *const c_void, bytes: usize, told: *mut *mut Handle);
            pulc_am_post_long = requests::post_long,
                post_long(peer: *mut Handle, bundle: *mut Handle, handler: u8, args: *const u64, count: usize, offset: u64,
                    data: *const c_void, bytes: usize, left: *mut *mut Handle);
            pulc_am_post_fetch = requests::post_fetch,
                post_fetch(peer: *mut Handle, bundle: *mut Handle, handler: u8, args: *const u64, count: usize,
                    data: *const c_void, bytes: usize, left: *mut *mut Handle);
            pulc_am_prepare = requests::prepare,
                prepare(peer: *mut Handle, bundle: *mut Handle, max: usize, prepared: *mut *mut Handle,
                    data: *mut *mut c_void);
            pulc_am_commit = requests::commit,
                commit(prepared: *mut Handle, handler: u8, args: *const u64, count: usize, bytes: usize);
            pulc_am_abandon = requests::abandon, abandon(prepared: *mut Handle);
            pulc_am_reply = calls::reply, reply(token: *mut Handle, handler: u8, args: *const u64, count: usize);
            pulc_am_reply_medium = calls::reply_medium,
                reply_medium(token: *mut Handle, handler: u8, args: *const u64, count: usize, data: *const c_void,
                    bytes: usize);
            pulc_am_reply_long = calls::reply_long,
                reply_long(token: *mut Handle, handler: u8, args: *const u64, count: usize, offset: u64, data: *const c_void,
                    bytes: usize);
            pulc_am_fetch = calls::fetch,
                fetch(token: *mut Handle, buffer: *mut c_void, bytes: usize, then: Option<CHandler>, context: *mut c_void);
            pulc_am_source_name = calls::source_name, source_name(token: *mut Handle, name: *mut c_char, bytes: usize);
            pulc_am_on_leaf = endpoints::on_leaf,
                on_leaf(endpoint: *mut Handle, index: u8, kinds: u32, run: Option<CHandler>, context: *mut c_void);
        }
    };
}

macro_rules! table {
    ($($export:ident = $body:path, $entry:ident($($name:ident: $type:ty),*);)+) => {
        /// Functions of one copy of this library.
        #[repr(C)]
        pub struct Functions {
            /// Size of this table where it was made, in bytes: entries beyond it do not exist there.
            pub bytes: usize,
            $(pub $entry: extern "C" fn($($type),*) -> c_int,)+
        }

        pub(crate) static OWN: Functions = Functions { bytes: size_of::<Functions>(), $($entry: $body,)+ };
    };
}

am_functions!(table);
