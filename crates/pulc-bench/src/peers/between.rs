//! MPIs between two nodes: two network namespaces joined by a cable, into which launchers reach by a program of ours instead of
//! `ssh`. Each end has a host name and a `/dev/shm` of its own, so that nothing but the cable joins them. Called by `peers`.

use super::find::{Kind, Mpi};
use crate::Error;
use crate::wire::Wire;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

pub struct Between {
    wire: Wire,
    agent: PathBuf,
}

impl Between {
    /// Lays the cable, starts our daemons at its ends and writes the agent into `folder`.
    pub fn new(folder: &Path) -> Result<Between, Error> {
        let mut wire = Wire::lay()?;
        wire.start_daemons()?;
        let agent = folder.join("agent");
        std::fs::write(&agent, script(&wire)).map_err(Error::system("write a program"))?;
        std::fs::set_permissions(&agent, std::fs::Permissions::from_mode(0o755))
            .map_err(Error::system("write a program"))?;
        Ok(Between { wire, agent })
    }

    /// The words that start one process at each end.
    pub fn launch(&self, mpi: &Mpi, program: &Path, words: &[&str]) -> Vec<OsString> {
        let [(a, mut all), (b, _)] = self.wire.ends();
        let agent = self.agent.as_os_str();
        let network = format!("{a}/24");
        let add = |all: &mut Vec<OsString>, words: &[&str]| all.extend(words.iter().map(OsString::from));
        // Entering put `env` and variables last: more of them can follow. UCX finds its devices in /sys, which shows those of the
        // namespace that mounted it.
        if mpi.kind == Kind::Mpich {
            add(&mut all, &["unshare", "--mount", "sh", "-c", "mount -t sysfs none /sys; exec \"$@\"", "sh", "env"]);
        }
        all.extend(mpi.environment());
        match mpi.kind {
            Kind::Pulc => {
                all.push(mpi.launcher().into());
                add(&mut all, &["-ppn", "1"]);
            }
            Kind::Mpich => {
                add(&mut all, &["UCX_TLS=tcp,self"]);
                all.push(mpi.launcher().into());
                add(&mut all, &["-launcher", "ssh", "-launcher-exec"]);
                all.push(agent.into());
                add(&mut all, &["-localhost", &a.to_string(), "-hosts", &format!("{a}:1,{b}:1")]);
            }
            Kind::Intel => {
                add(&mut all, &["I_MPI_FABRICS=shm:ofi", "FI_PROVIDER=tcp", "I_MPI_HYDRA_BOOTSTRAP=ssh"]);
                let mut word = OsString::from("I_MPI_HYDRA_BOOTSTRAP_EXEC=");
                word.push(agent);
                all.push(word);
                all.push(mpi.launcher().into());
                add(&mut all, &["-localhost", &a.to_string(), "-hosts", &format!("{a},{b}"), "-ppn", "1"]);
            }
            Kind::OpenMpi4 | Kind::OpenMpi5 => {
                all.push(mpi.launcher().into());
                all.extend(mpi.permission());
                add(&mut all, &["--bind-to", "none", "--host", &format!("{a}:1,{b}:1"), "--mca", "plm_rsh_agent"]);
                all.push(agent.into());
                let daemons = if mpi.kind == Kind::OpenMpi4 { "--mca" } else { "--prtemca" };
                add(&mut all, &[daemons, "oob_tcp_if_include", &network]);
                add(&mut all, &["--mca", "pml", "ob1", "--mca", "btl", "tcp,self"]);
                add(&mut all, &["--mca", "btl_tcp_if_include", &network]);
            }
        }
        add(&mut all, &["-n", "2"]);
        all.push(program.into());
        add(&mut all, words);
        all
    }
}

/// Runs a command at the end whose address stands where a host's name is expected; options of `ssh` are skipped.
fn script(wire: &Wire) -> Vec<u8> {
    let mut text = b"#!/bin/sh\nwhile :; do\n  case \"$1\" in\n    -x|-q|-n) shift ;;\n    -o|-p|-l) shift 2 ;;\n    *) break ;;\n  esac\ndone\nhost=$1\nshift\n".to_vec();
    text.extend_from_slice(b"case \"$host\" in\n");
    for (number, (address, enter)) in wire.ends().iter().enumerate() {
        text.extend_from_slice(format!("  {address}) exec").as_bytes());
        for word in enter {
            text.extend_from_slice(&[b" '", word.as_bytes(), b"'"].concat());
        }
        let inside = format!(
            " unshare --uts --ipc --mount sh -c \"hostname end{number}; mount -t tmpfs none /dev/shm; mount -t sysfs none /sys; $*\" ;;\n"
        );
        text.extend_from_slice(inside.as_bytes());
    }
    text.extend_from_slice(b"esac\necho \"no such end: $host\" >&2\nexit 1\n");
    text
}
