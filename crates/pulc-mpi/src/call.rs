//! Every function of MPI under its own name in lower case. The doors call these and nothing else. Only re-exports.

pub use crate::added_errors::{
    add_error_class, add_error_code, add_error_string, error_class, error_string, remove_error_class,
    remove_error_code, remove_error_string,
};
pub use crate::collective::*;
pub use crate::comm::*;
pub use crate::comm::{
    comm_delete_attr as attr_delete, comm_free_keyval as keyval_free, comm_get_errhandler as errhandler_get,
    comm_set_errhandler as errhandler_set,
};
pub use crate::datatype::calls::*;
pub use crate::datatype::calls::{
    get_elements as get_elements_x, status_set_elements as status_set_elements_x, type_get_extent as type_get_extent_x,
    type_get_true_extent as type_get_true_extent_x, type_size as type_size_x,
};
pub use crate::datatype::packing::{pack, pack_external, pack_external_size, pack_size, unpack, unpack_external};
pub use crate::environment::*;
pub use crate::errors::{comm_call_errhandler, errhandler_free};
pub use crate::group::calls::*;
pub use crate::info::*;
pub use crate::op::calls::*;
pub use crate::p2p::*;
pub use crate::request::*;
pub use crate::session::*;
pub use crate::topology::calls::*;
pub use crate::world::{finalize, finalized, init, init_thread, initialized, is_thread_main, query_thread};
