//! Limits that the machine sets, as `pulc info` shows them. Only looks.

use pulc_base::param::Fixed;
use pulc_hal::os::cpu;
use rustix::process::{Resource, getrlimit};

/// Those that PULC is known to feel. What cannot be read is left out.
pub fn limits() -> Vec<Fixed> {
    let caches = cpu::caches();
    let number = |path: &str| std::fs::read_to_string(path).ok()?.trim().parse().ok();
    let all: [(&str, Option<u64>, &str); 7] = [
        ("cores", cpu::allowed_cores().ok().map(|cores| cores.len() as u64), "cores that this process may use"),
        ("l2_bytes", Some(caches.l2_bytes), "second cache of a core: the pool is to be larger"),
        ("l3_bytes", Some(caches.l3_bytes), "last cache"),
        ("socket_receive_max_bytes", number("/proc/sys/net/core/rmem_max"), "what remote ranks share as their windows"),
        ("socket_send_max_bytes", number("/proc/sys/net/core/wmem_max"), "of one rail"),
        (
            "open_files_max",
            getrlimit(Resource::Nofile).current,
            "descriptors: each peer takes some while a channel is made",
        ),
        ("processes_max", getrlimit(Resource::Nproc).current, "processes and threads of this user"),
    ];
    let known =
        |(name, value, text): (&'static str, Option<u64>, &'static str)| Some(Fixed { name, value: value?, text });
    all.into_iter().filter_map(known).collect()
}
