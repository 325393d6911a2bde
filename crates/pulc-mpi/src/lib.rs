#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

pub mod attribute;
pub mod call;
pub mod callback;
pub mod consts;
pub mod datatype;
pub mod error;
pub mod group;
pub mod handle;
#[allow(unsafe_code)]
pub mod memory;
pub mod op;
pub mod status;
pub mod table;
