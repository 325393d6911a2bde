//! Numbers of the interface, all as in the MPICH ABI; the door of another ABI maps them. Plain data.
//! Source: the MPI standard names them, the ABI gives their values.

/// A receive or probe takes messages of every rank.
pub const ANY_SOURCE: i32 = -2;
/// And with every tag.
pub const ANY_TAG: i32 = -1;
/// Nobody: what is sent there vanishes, what is received from there is empty.
pub const PROC_NULL: i32 = -1;
/// This process is the root of an intercommunicator's collective.
pub const ROOT: i32 = -3;
pub const UNDEFINED: i32 = -32766;
/// Largest tag.
pub const TAG_MAX: i32 = i32::MAX;

pub const IDENT: i32 = 0;
pub const CONGRUENT: i32 = 1;
pub const SIMILAR: i32 = 2;
pub const UNEQUAL: i32 = 3;

pub const THREAD_SINGLE: i32 = 0;
pub const THREAD_FUNNELED: i32 = 1;
pub const THREAD_SERIALIZED: i32 = 2;
pub const THREAD_MULTIPLE: i32 = 3;

pub const COMM_TYPE_SHARED: i32 = 1;
pub const COMM_TYPE_HW_GUIDED: i32 = 2;
pub const COMM_TYPE_HW_UNGUIDED: i32 = 3;
pub const COMM_TYPE_RESOURCE_GUIDED: i32 = 4;

pub const GRAPH: i32 = 1;
pub const CART: i32 = 2;
pub const DIST_GRAPH: i32 = 3;

/// Keys of the predefined attributes of communicators.
pub const TAG_UB: i32 = 0x6440_0001;
pub const HOST: i32 = 0x6440_0003;
pub const IO: i32 = 0x6440_0005;
pub const WTIME_IS_GLOBAL: i32 = 0x6440_0007;
pub const UNIVERSE_SIZE: i32 = 0x6440_0009;
pub const LASTUSEDCODE: i32 = 0x6440_000b;
pub const APPNUM: i32 = 0x6440_000d;

/// Room that a buffered message takes in the attached buffer beyond its bytes.
pub const BSEND_OVERHEAD: u64 = 96;

/// Lengths of strings in bytes, the terminating zero included.
pub const MAX_PROCESSOR_NAME: usize = 128;
pub const MAX_ERROR_STRING: usize = 512;
pub const MAX_OBJECT_NAME: usize = 128;
pub const MAX_INFO_KEY: usize = 255;
pub const MAX_INFO_VAL: usize = 1024;

/// Which dimension of an array has its elements side by side.
pub const ORDER_C: i32 = 56;
pub const ORDER_FORTRAN: i32 = 57;
pub const DISTRIBUTE_BLOCK: i32 = 121;
pub const DISTRIBUTE_CYCLIC: i32 = 122;
pub const DISTRIBUTE_NONE: i32 = 123;
pub const DISTRIBUTE_DFLT_DARG: i32 = -49767;

pub const TYPECLASS_REAL: i32 = 1;
pub const TYPECLASS_INTEGER: i32 = 2;
pub const TYPECLASS_COMPLEX: i32 = 3;
