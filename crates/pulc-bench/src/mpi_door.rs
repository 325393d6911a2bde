//! PULC's MPI as a measured layer, as a program meets it: through the functions that the library `libmpi.so.12` exports. The library is
//! loaded by the rank that is measured, since this program itself is no MPI program. Called by `rank`.

use crate::Error;
use crate::measure::Channel;
use pulc_hal::os::cpu;
use std::ffi::{CString, c_int, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::ptr::{NonNull, null_mut};

/// Where the library lies beside a program: in an installed tree, and in a folder that was compiled into.
const PLACES: [&str; 2] = ["../lib/libmpi.so.12", "libpulc_mpich.so"];

// Constants of the MPICH ABI.
const COMM_WORLD: c_int = 0x4400_0000;
const BYTE: c_int = 0x4c00_010d;
const STATUS_IGNORE: *mut c_void = std::ptr::without_provenance_mut(1);
const SUCCESS: c_int = 0;

type Init = extern "C" fn(*mut c_int, *mut *mut *mut u8) -> c_int;
type CommRank = extern "C" fn(c_int, *mut c_int) -> c_int;
type Send = extern "C" fn(*const c_void, c_int, c_int, c_int, c_int, c_int) -> c_int;
type Recv = extern "C" fn(*mut c_void, c_int, c_int, c_int, c_int, c_int, *mut c_void) -> c_int;
type Finalize = extern "C" fn() -> c_int;

/// The library beside this program.
pub fn library() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    PLACES.iter().map(|place| program.parent().unwrap_or(Path::new("")).join(place)).find(|path| path.exists())
}

/// Messages with one other rank.
pub struct Mpi {
    send: Send,
    recv: Recv,
    finalize: Finalize,
    pub rank: u32,
}

impl Mpi {
    /// Joins the job.
    pub fn init(library: &Path) -> Result<Mpi, Error> {
        let missing = |why: String| Error::NotHere { layer: "mpi", why };
        let path =
            CString::new(library.as_os_str().as_bytes()).map_err(|_| missing("its path has a zero byte".into()))?;
        // SAFETY: the path ends with a zero byte. What the library runs when it is loaded is the house's own: it is ours by its place.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        let handle = NonNull::new(handle).ok_or_else(|| missing(format!("{} cannot be loaded", library.display())))?;
        let symbol = |name: &std::ffi::CStr| {
            // SAFETY: the handle is never closed, the name ends with a zero byte.
            let found = NonNull::new(unsafe { libc::dlsym(handle.as_ptr(), name.as_ptr()) });
            found
                .map(NonNull::as_ptr)
                .ok_or_else(|| missing(format!("{} has no {}", library.display(), name.to_string_lossy())))
        };
        let [init, comm_rank, send, recv, finalize] = [
            symbol(c"MPI_Init")?,
            symbol(c"MPI_Comm_rank")?,
            symbol(c"MPI_Send")?,
            symbol(c"MPI_Recv")?,
            symbol(c"MPI_Finalize")?,
        ];
        // SAFETY: these are the functions of the MPI standard of those names, and the types are their C prototypes under the MPICH ABI,
        // whose handles are ints; the library stays loaded.
        let (init, comm_rank, send, recv, finalize) = unsafe {
            (
                std::mem::transmute::<*mut c_void, Init>(init),
                std::mem::transmute::<*mut c_void, CommRank>(comm_rank),
                std::mem::transmute::<*mut c_void, Send>(send),
                std::mem::transmute::<*mut c_void, Recv>(recv),
                std::mem::transmute::<*mut c_void, Finalize>(finalize),
            )
        };
        checked("MPI_Init", init(null_mut(), null_mut()))?;
        let mut rank = 0;
        checked("MPI_Comm_rank", comm_rank(COMM_WORLD, &mut rank))?;
        Ok(Mpi { send, recv, finalize, rank: rank.unsigned_abs() })
    }

    fn peer(&self) -> c_int {
        1 - self.rank.min(1) as c_int
    }

    /// Leaves the job.
    pub fn finalize(self) -> Result<(), Error> {
        checked("MPI_Finalize", (self.finalize)())
    }
}

fn checked(name: &str, code: c_int) -> Result<(), Error> {
    if code == SUCCESS { Ok(()) } else { Err(Error::Worker(format!("{name} gave error {code}"))) }
}

fn count(bytes: usize) -> Result<c_int, Error> {
    c_int::try_from(bytes).map_err(|_| Error::Nonsense(format!("{bytes} bytes in one message")))
}

impl Channel for Mpi {
    fn send(&mut self, message: &[u8]) -> Result<(), Error> {
        let count = count(message.len())?;
        checked("MPI_Send", (self.send)(message.as_ptr().cast(), count, BYTE, self.peer(), 0, COMM_WORLD))
    }

    fn recv(&mut self, message: &mut [u8]) -> Result<(), Error> {
        let count = count(message.len())?;
        let code = (self.recv)(message.as_mut_ptr().cast(), count, BYTE, self.peer(), 0, COMM_WORLD, STATUS_IGNORE);
        checked("MPI_Recv", code)
    }
}

/// One rank of the measured job: joins, goes to its core, does `what`, leaves.
pub fn joined(cores: &[u32], what: impl FnOnce(&mut Mpi) -> Result<(), Error>) -> Result<(), Error> {
    let library = library()
        .ok_or_else(|| Error::NotHere { layer: "mpi", why: "its library is not beside this program".into() })?;
    let mut mpi = Mpi::init(&library)?;
    if let Some(core) = cores.get(mpi.rank as usize) {
        cpu::pin_to(&[*core])?;
    }
    what(&mut mpi)?;
    mpi.finalize()
}
