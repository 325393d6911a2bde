//! Servers and clients as people run them, on the kernel and with rings: redis with a replica, a monitor and a save in the background,
//! nginx with curl, rsync over ssh, iperf3, Open MPI told to use TCP. Each is a script beside this file that prints only what does not depend on time, so what it
//! prints must be the same both times, and bytes must have gone through rings where they can. Called by `sockets`.

use super::sockets::{Mode, isolated, without_rings};
use super::{Place, debian};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(300);

struct Service {
    name: &'static str,
    script: &'static str,
    /// Files that it needs, and the packages that have them.
    needs: &'static [(&'static str, &'static [&'static str])],
    /// Whether it uses connections that can be promoted at all.
    has_rings: bool,
    /// Becomes other users, which a user namespace with one user cannot have.
    needs_root: bool,
}

const CURL: (&str, &[&str]) = ("/usr/bin/curl", &["curl"]);

const SERVICES: [Service; 5] = [
    Service {
        name: "redis",
        script: include_str!("redis.sh"),
        needs: &[("/usr/bin/redis-server", &["redis-server", "redis-tools"])],
        has_rings: true,
        needs_root: false,
    },
    Service {
        name: "nginx",
        script: include_str!("nginx.sh"),
        needs: &[("/usr/sbin/nginx", &["nginx-light"]), CURL, ("/usr/bin/openssl", &["openssl"])],
        has_rings: true,
        needs_root: false,
    },
    // Its server forks for every connection, drops privileges and closes all descriptors that it does not know: it must not break.
    Service {
        name: "rsync",
        script: include_str!("rsync.sh"),
        needs: &[
            ("/usr/sbin/sshd", &["openssh-server"]),
            ("/usr/bin/ssh", &["openssh-client"]),
            ("/usr/bin/rsync", &["rsync"]),
        ],
        has_rings: false,
        needs_root: true,
    },
    Service {
        name: "iperf3",
        script: include_str!("iperf3.sh"),
        needs: &[("/usr/bin/iperf3", &["iperf3"])],
        has_rings: true,
        needs_root: false,
    },
    Service {
        name: "Open MPI over TCP",
        script: include_str!("openmpi.sh"),
        needs: &[("/usr/bin/mpicc.openmpi", &["openmpi-bin", "libopenmpi-dev"])],
        has_rings: true,
        needs_root: false,
    },
];

/// What came out differently.
pub fn run(place: &mut Place) -> Vec<String> {
    let mut failures = Vec::new();
    for service in &SERVICES {
        let name = service.name;
        let missing = service.needs.iter().find(|(file, packages)| !debian(file, packages));
        if let Some((file, packages)) = missing {
            place.tell(&format!("skipped: {name}, there is no {file}; install {}", packages.join(" ")));
        } else if service.needs_root && !rustix::process::geteuid().is_root() {
            place.tell(&format!("skipped: {name}, which only root can start"));
        } else {
            failures.extend(compared(place, service));
        }
    }
    failures
}

fn compared(place: &mut Place, service: &Service) -> Option<String> {
    let name = service.name;
    let mut told = Vec::new();
    for mode in [Mode::Kernel, Mode::Rings] {
        let mut command = isolated(place, mode, service.script);
        let (outcome, text, took) = place.kept(&format!("{name}-{}", mode.name()), &mut command, LIMIT);
        let (rings, rest) = without_rings(&text);
        let seconds = took.as_secs_f64();
        place.tell(&format!("  {name}, {}: {} lines in {seconds:.1} s; {rings}", mode.name(), rest.lines().count()));
        if let Err(why) = outcome {
            return Some(format!("{name}, {}: {why}", mode.name()));
        }
        if mode == Mode::Rings && service.has_rings && (rings.is_empty() || rings.starts_with("so far 0 ")) {
            return Some(format!("{name}: nothing went through rings"));
        }
        told.push(rest);
    }
    let [kernel, rings] = [&told[0], &told[1]];
    let different = kernel.lines().zip(rings.lines()).find(|(one, two)| one != two);
    match different {
        Some((one, two)) => Some(format!("{name}: {one:?} on the kernel, {two:?} with rings")),
        None if kernel != rings => Some(format!("{name}: not as many lines as on the kernel")),
        None => None,
    }
}
