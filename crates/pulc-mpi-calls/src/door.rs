//! What the doors are made of: one macro that a door's crate calls once, for its binary interface. Nothing here runs.

/// The exported functions of one binary interface, made from `abi/mpi/functions.txt` by the build script of the crate that calls this.
#[macro_export]
macro_rules! exported_functions {
    ($abi:ident) => {
        /// The exported functions, made from `abi/mpi/functions.txt`.
        #[allow(non_snake_case, clippy::missing_safety_doc, clippy::too_many_arguments)]
        mod made {
            use pulc_mpi_calls::{self as calls, Abi, InInts, OutInts, twins, $abi as A};
            use std::ffi::{c_char, c_int, c_void};

            type Comm = <A as Abi>::Comm;
            type Datatype = <A as Abi>::Datatype;
            type Errhandler = <A as Abi>::Errhandler;
            type File = <A as Abi>::File;
            type Group = <A as Abi>::Group;
            type Info = <A as Abi>::Info;
            type Message = <A as Abi>::Message;
            type Op = <A as Abi>::Op;
            type Request = <A as Abi>::Request;
            type Session = <A as Abi>::Session;
            type Status = <A as Abi>::Status;
            type Win = <A as Abi>::Win;

            /// For `libpulc.so`, should it be in the same process.
            #[unsafe(no_mangle)]
            pub extern "C" fn pulc_door_table() -> usize {
                calls::native_table::<A>()
            }

            include!(concat!(env!("OUT_DIR"), "/exports.rs"));
        }
    };
}

/// Exports a private function under two names. Each is a jump to it, so that a tool that defines the first name and calls the
/// second one reaches us once, and nothing of ours reaches the tool.
#[macro_export]
macro_rules! twins {
    ($mpi:ident, $pmpi:ident, $body:ident) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $mpi() {
            #[cfg(target_arch = "x86_64")]
            core::arch::naked_asm!("jmp {}", sym $body);
            #[cfg(target_arch = "aarch64")]
            core::arch::naked_asm!("b {}", sym $body);
        }

        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $pmpi() {
            #[cfg(target_arch = "x86_64")]
            core::arch::naked_asm!("jmp {}", sym $body);
            #[cfg(target_arch = "aarch64")]
            core::arch::naked_asm!("b {}", sym $body);
        }
    };
}
