//! MPIs between two nodes: two network namespaces joined by a cable, into which launchers reach by a program of ours instead of
//! `ssh`. Each end has a host name and a `/dev/shm` of its own, so that nothing but the cable joins them. Called by `peers`.

use super::across::{Across, write_agent};
use super::find::{Kind, Mpi};
use crate::Error;
use crate::wire::Wire;
use std::ffi::OsString;
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
        let agent = write_agent(folder, &wire.ends())?;
        Ok(Between { wire, agent })
    }

    /// The words that start one process at each end.
    pub fn launch(&self, mpi: &Mpi, program: &Path, words: &[&str]) -> Vec<OsString> {
        let [(a, mut all), (b, _)] = self.wire.ends();
        let add = |all: &mut Vec<OsString>, words: &[&str]| all.extend(words.iter().map(OsString::from));
        // Entering put `env` and variables last: more of them can follow. UCX finds its devices in /sys, which shows those of the
        // namespace that mounted it.
        if mpi.kind == Kind::Mpich {
            add(&mut all, &["unshare", "--mount", "sh", "-c", "mount -t sysfs none /sys; exec \"$@\"", "sh", "env"]);
        }
        let across = Across::new(mpi, &self.agent, &[a, b], 1);
        all.extend(mpi.environment());
        all.extend(across.variables);
        match mpi.kind {
            Kind::Mpich => add(&mut all, &["UCX_TLS=tcp,self"]),
            Kind::Intel => add(&mut all, &["I_MPI_FABRICS=shm:ofi", "FI_PROVIDER=tcp"]),
            Kind::Pulc | Kind::OpenMpi4 | Kind::OpenMpi5 => {}
        }
        all.push(mpi.launcher().into());
        all.extend(across.options);
        if matches!(mpi.kind, Kind::OpenMpi4 | Kind::OpenMpi5) {
            add(&mut all, &["--mca", "pml", "ob1", "--mca", "btl", "tcp,self"]);
            add(&mut all, &["--mca", "btl_tcp_if_include", &format!("{a}/24")]);
        }
        add(&mut all, &["-n", "2"]);
        all.push(program.into());
        add(&mut all, words);
        all
    }
}
