//! A kernel's sockmap for the TCP connections between the processes of one group: what one end sends is put into the other's queue without the
//! protocol in between. For comparison only (`pulc bench sockets`): the kernel then holds no sender back whose reader does not read, and `splice`
//! finds nothing, see ADR 20. Needs the rights to load programs into the kernel and to make cgroups. Must leave no group behind.
//! Source: bpf(2), the kernel's Documentation/bpf/map_sockmap.rst, linux/bpf.h.

mod program;

use crate::error::HalError;
use program::Instruction;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

const MAP_CREATE: i32 = 0;
const PROG_LOAD: i32 = 5;
const PROG_ATTACH: i32 = 8;
const HASH: u32 = 1;
const SOCKHASH: u32 = 18;
const SOCK_OPS: u32 = 13;
const SK_MSG: u32 = 16;
const ON_CGROUP_SOCK_OPS: u32 = 3;
const ON_SK_MSG: u32 = 7;
/// Memory for an entry when it is made.
const NO_PREALLOC: u32 = 1;
const ENTRIES: u32 = 1 << 16;
const LICENSE: &[u8] = b"MIT/Apache-2.0\0";
/// Looks whether all have left the group, a millisecond apart.
const LOOKS: u32 = 1000;

/// The group with its map, which serve until this is dropped. Connections that are open then go on as they are.
pub struct Sockmap {
    group: PathBuf,
    /// The last descriptor of the map keeps the program that is attached to it.
    _sockets: OwnedFd,
}

/// The beginnings of `union bpf_attr`.
#[repr(C)]
struct MapAttributes {
    kind: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
    flags: u32,
}

#[repr(C)]
struct ProgramAttributes {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
}

#[repr(C)]
struct AttachAttributes {
    to: i32,
    program: i32,
    kind: u32,
    flags: u32,
}

/// One call of bpf(2), with the result as a number.
fn bpf<T>(what: i32, attributes: &T, doing: &'static str) -> Result<i32, HalError> {
    // SAFETY: the kernel reads as many bytes as are said to be there; addresses in them are those of memory that the caller holds.
    let result = unsafe { libc::syscall(libc::SYS_bpf, what, std::ptr::from_ref(attributes), size_of::<T>()) };
    if result < 0 { Err(HalError::system(doing)(io::Error::last_os_error())) } else { Ok(result as i32) }
}

fn descriptor<T>(what: i32, attributes: &T, doing: &'static str) -> Result<OwnedFd, HalError> {
    let fd = bpf(what, attributes, doing)?;
    // SAFETY: the kernel has just made it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn load(kind: u32, instructions: &[Instruction]) -> Result<OwnedFd, HalError> {
    let attributes = ProgramAttributes {
        kind,
        count: instructions.len() as u32,
        instructions: instructions.as_ptr() as u64,
        license: LICENSE.as_ptr() as u64,
        log_level: 0,
        log_bytes: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
    };
    descriptor(PROG_LOAD, &attributes, "load a program into the kernel")
}

fn attach(to: i32, program: &OwnedFd, kind: u32) -> Result<(), HalError> {
    let attributes = AttachAttributes { to, program: program.as_raw_fd(), kind, flags: 0 };
    bpf(PROG_ATTACH, &attributes, "attach a program").map(drop)
}

/// Where cgroups of version 2 are.
fn hierarchy() -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let mount = mounts.lines().find(|line| line.contains(" - cgroup2 "))?;
    mount.split(' ').nth(4).map(PathBuf::from)
}

impl Sockmap {
    /// # Errors
    /// Where this process may not, or this kernel cannot.
    pub fn make() -> Result<Sockmap, HalError> {
        let no_groups = || HalError::system("find cgroups of version 2")(io::Error::from(io::ErrorKind::NotFound));
        let group = hierarchy().ok_or_else(no_groups)?.join(format!("pulc-sockmap-{}", std::process::id()));
        let map = |kind, value_bytes, flags| {
            let attributes =
                MapAttributes { kind, key_bytes: program::KEY_BYTES, value_bytes, entries: ENTRIES, flags };
            descriptor(MAP_CREATE, &attributes, "make a map in the kernel")
        };
        let (sockets, states) = (map(SOCKHASH, 4, 0)?, map(HASH, 1, NO_PREALLOC)?);
        let (at, of) = (sockets.as_raw_fd(), states.as_raw_fd());
        let on_connections = load(SOCK_OPS, &program::on_connections(at, of))?;
        let on_messages = load(SK_MSG, &program::on_messages(at, of))?;
        attach(at, &on_messages, ON_SK_MSG)?;
        std::fs::create_dir(&group).map_err(HalError::system("make a cgroup"))?;
        let made = Sockmap { group, _sockets: sockets };
        let directory = std::fs::File::open(&made.group).map_err(HalError::system("open a cgroup"))?;
        attach(directory.as_raw_fd(), &on_connections, ON_CGROUP_SOCK_OPS)?;
        Ok(made)
    }

    /// Words to put before a program that is to be in the group.
    pub fn before(&self) -> Vec<OsString> {
        let line = "echo $$ >\"$0/cgroup.procs\" && exec \"$@\"";
        vec!["sh".into(), "-c".into(), line.into(), self.group().as_os_str().to_owned()]
    }

    fn group(&self) -> &Path {
        &self.group
    }
}

impl Drop for Sockmap {
    fn drop(&mut self) {
        // Who was killed leaves the group a moment later.
        for _ in 0..LOOKS {
            match std::fs::remove_dir(&self.group) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                    std::thread::sleep(Duration::from_millis(1))
                }
                Ok(()) | Err(_) => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::tcp_counts;
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd as _;
    use std::process::Command;

    const INSIDE: &str = "PULC_TEST_IN_SOCKMAP";
    const ROUNDS: u32 = 300;

    /// Messages there and back, every byte checked; bytes that TCP has carried.
    fn echoes() -> u64 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let other = listener.accept().unwrap().0;
        for round in 0..ROUNDS {
            let bytes: Vec<u8> = (0..round).map(|at| (at * 7 + round) as u8).collect();
            for (mut from, mut to) in [(&one, &other), (&other, &one)] {
                from.write_all(&bytes).unwrap();
                let mut got = vec![0; bytes.len()];
                to.read_exact(&mut got).unwrap();
                assert!(got == bytes, "round {round}");
            }
        }
        tcp_counts::sent(one.as_fd(), true).unwrap() + tcp_counts::sent(other.as_fd(), false).unwrap()
    }

    #[test]
    fn connections_of_a_group_go_past_the_protocol_and_others_do_not() {
        let all = u64::from(ROUNDS * (ROUNDS - 1));
        if std::env::var_os(INSIDE).is_some() {
            let carried = echoes();
            assert!(carried < all / 2, "TCP has carried {carried} of {all} bytes");
            return;
        }
        assert_eq!(echoes(), all);
        let sockmap = match Sockmap::make() {
            Ok(sockmap) => sockmap,
            Err(why) => {
                eprintln!("skipped: connections_of_a_group_go_past_the_protocol_and_others_do_not: {why}");
                return;
            }
        };
        let words = sockmap.before();
        let mut inside = Command::new(&words[0]);
        inside.args(&words[1..]).arg(std::env::current_exe().unwrap()).env(INSIDE, "1");
        inside.args(["--exact", "os::sockmap::tests::connections_of_a_group_go_past_the_protocol_and_others_do_not"]);
        let output = inside.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        let group = sockmap.group().to_owned();
        drop(sockmap);
        assert!(!group.exists(), "the group is still there");
    }
}
