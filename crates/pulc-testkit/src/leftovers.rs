//! What a test may have left behind: processes (found by a tag in their environment), abstract and file sockets, shared memory, temporary
//! directories. Called at the end of whole-system tests. Kills only what proves by its tag that the test started it.

use pulc_hal::os::proctree;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Processes with `name=value` in their environment, as `process pid: command line`.
pub fn processes(name: &str, value: &str) -> Vec<String> {
    let command = |pid: i32| fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let text = |pid: i32| String::from_utf8_lossy(&command(pid)).replace('\0', " ");
    tagged(name, value)
        .iter()
        .map(|found| found.pid.as_raw_nonzero().get())
        .map(|pid| format!("process {pid}: {}", text(pid)))
        .collect()
}

/// Kills them all and returns when they are gone.
pub fn kill(name: &str, value: &str) {
    for _ in 0..500 {
        let found = tagged(name, value);
        if found.is_empty() {
            return;
        }
        found.iter().for_each(proctree::Tagged::kill);
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Those with the tag. A zombie has no environment any more and holds nothing.
fn tagged(name: &str, value: &str) -> Vec<proctree::Tagged> {
    proctree::tagged(&[&format!("{name}={value}")]).unwrap_or_default()
}

/// Whether a process has `name=value` in its environment.
pub fn is_tagged(pid: i32, name: &str, value: &str) -> bool {
    let wanted = format!("{name}={value}");
    fs::read(format!("/proc/{pid}/environ"))
        .is_ok_and(|environ| environ.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes()))
}

/// Sockets of PULC in the network namespace of a process, abstract (`@…`) and in the file system.
pub fn sockets_of(pid: u32) -> Vec<String> {
    let table = fs::read_to_string(format!("/proc/{pid}/net/unix")).unwrap_or_default();
    let names = table.lines().filter_map(|line| line.split_ascii_whitespace().nth(7));
    names.filter(|name| name.contains("pulc")).map(|name| format!("socket {name}")).collect()
}

/// Files of PULC in the places where shared memory and temporary files go.
pub fn files() -> Vec<String> {
    let of = |folder: &str| -> Vec<String> {
        let Ok(entries) = fs::read_dir(Path::new(folder)) else { return Vec::new() };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        names.filter(|name| name.contains("pulc")).map(|name| format!("{folder}/{name}")).collect()
    };
    of("/dev/shm")
}
