//! Wall clocks that jump, of one node at a time: programs of the cluster get a small library before libc that shifts theirs.

use crate::Chance;
use crate::ledger::Workload;
use pulc_testkit::{Cluster, Host};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const HOUR: i64 = 3600;

/// Where a host's shift lies.
fn shift_of(host: &Host) -> PathBuf {
    host.state_dir.with_extension("clock")
}

fn set(host: &Host, seconds: i64) {
    use std::os::unix::fs::FileExt as _;
    // In place: it is mapped by those that run.
    let file = std::fs::OpenOptions::new().write(true).create(true).truncate(false).open(shift_of(host));
    file.and_then(|file| file.write_all_at(&seconds.to_le_bytes(), 0)).expect("a file of the test can be written");
}

/// Everything of this cluster asks clocks that can be set. Before it is started.
pub fn settable(cluster: Cluster) -> Cluster {
    let library = cluster.directory().join("clock.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/chaos/clock.c");
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-shared", "-fPIC", "-o"]).arg(&library).arg(source).arg("-ldl");
    assert!(cc.status().is_ok_and(|status| status.success()), "the build needs a C compiler too");
    for host in cluster.hosts() {
        set(host, 0);
    }
    cluster.with_environment(&[("LD_PRELOAD", library.to_str().expect("a temporary path is text"))])
}

/// An hour ahead, then an hour behind, then right again; with `restart`, each daemon on that host is a new one.
pub fn jump(cluster: &Cluster, work: &mut Workload<'_>, chance: &mut Chance, restart: fn(&Host)) {
    let host = cluster.host(chance.below(cluster.hosts().len() as u64) as usize);
    for shift in [HOUR, -HOUR, 0] {
        set(host, shift);
        restart(host);
        work.submit(chance, 1);
        std::thread::sleep(Duration::from_millis(1000 + chance.below(2000)));
    }
}
