//! The exported functions of active messages: each one call through the table.

use pulc_c_calls::am::Handle;
use pulc_c_calls::am::calls::{CHandler, CReturned};
use pulc_c_calls::am::functions::Functions;
use pulc_c_calls::am::progress::CTally;
use pulc_c_calls::guard::{self, Failed};
use pulc_c_calls::table;
use std::ffi::{c_char, c_int, c_void};

macro_rules! exported {
    ($($export:ident = $body:path, $entry:ident($($name:ident: $type:ty),*);)+) => {
        $(
            #[unsafe(no_mangle)]
            pub extern "C" fn $export($($name: $type),*) -> c_int {
                through(|functions| (functions.$entry)($($name),*))
            }
        )+
    };
}

pulc_c_calls::am_functions!(exported);

/// Calls through the table of this process's engine.
#[inline(always)]
fn through(call: impl FnOnce(&'static Functions) -> c_int) -> c_int {
    match table::in_use() {
        Some(table) if table.am.bytes >= size_of::<Functions>() => call(table.am),
        Some(_) => guard::guarded(|| Err(Failed::new(guard::VERSION, "an older PULC is loaded in this process"))),
        None => guard::guarded(|| Err(Failed::new(guard::NOT_ATTACHED, "pulc_attach has not been called"))),
    }
}
