//! Slurm on the nodes of a test cluster, as its own packages install it, with everything of its in the cluster's folder: the key of its
//! authentication, a controller on the first node, a daemon on each. Needs root, as Slurm does.

use crate::Error;
use crate::peers::which;
use crate::queue::done;
use pulc_testkit::cluster::HANG;
use pulc_testkit::{Cluster, Host, run_within, wait_until};
use std::fs::{DirBuilder, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const PROGRAMS: [&str; 5] = ["munged", "slurmctld", "slurmd", "srun", "sbatch"];
const KEY_BYTES: u64 = 1024;

pub struct Slurm {
    directory: PathBuf,
    daemons: Vec<Child>,
}

impl Slurm {
    /// Starts it and waits until every node is idle.
    ///
    /// # Errors
    /// `NotHere` where it is not installed or not allowed.
    pub fn start(cluster: &Cluster, slots: u32) -> Result<Slurm, Error> {
        let not_here = |why: String| Error::NotHere { layer: "Slurm", why };
        if let Some(missing) = PROGRAMS.iter().find(|program| which(program).is_none()) {
            return Err(not_here(format!("{missing} is not installed (Debian's slurm-wlm and munge)")));
        }
        if !rustix::process::geteuid().is_root() {
            return Err(not_here("its daemons need root".into()));
        }
        let directory = cluster.directory().join("slurm");
        let mut slurm = Slurm { directory, daemons: Vec::new() };
        slurm.lay(cluster, slots).map_err(Error::system("write Slurm's configuration"))?;
        let directory = slurm.directory.clone();
        let at = |name: &str| directory.join(name);
        let mut munged = cluster.host(0).program_command("munged");
        munged.args(["--foreground", "--force", "--key-file"]).arg(at("munge.key"));
        munged.arg("--socket").arg(at("munge.socket")).arg("--pid-file").arg(at("munged.pid"));
        munged.arg("--log-file").arg(at("munged.log")).arg("--seed-file").arg(at("munged.seed"));
        slurm.launch(munged)?;
        wait_until(|| at("munge.socket").exists().then_some(())).ok_or(Error::Hung { seconds: HANG.as_secs() })?;
        let controller = slurm.named(cluster.host(0), "slurmctld -D -i");
        slurm.launch(controller)?;
        for host in cluster.hosts() {
            let daemon = slurm.named(host, &format!("slurmd -D -N {}", name(host)));
            slurm.launch(daemon)?;
        }
        let all_idle = || {
            let mut command = cluster.host(0).program_command("sinfo");
            command.env("SLURM_CONF", slurm.configuration()).args(["-h", "-o", "%D %t"]);
            let told = done(run_within(command, HANG)).ok()?.stdout;
            (told.trim() == format!("{} idle", cluster.hosts().len())).then_some(())
        };
        wait_until(all_idle).ok_or_else(|| Error::Program {
            program: "slurmd".into(),
            text: format!("its nodes do not become idle; see the logs in {}", slurm.directory.display()),
        })?;
        Ok(slurm)
    }

    pub fn configuration(&self) -> PathBuf {
        self.directory.join("slurm.conf")
    }

    fn lay(&self, cluster: &Cluster, slots: u32) -> std::io::Result<()> {
        // The authentication's daemon refuses a socket in a folder that others may write to, or not enter.
        DirBuilder::new().recursive(true).mode(0o755).create(self.directory.join("state"))?;
        let mut key = Vec::new();
        File::open("/dev/urandom")?.take(KEY_BYTES).read_to_end(&mut key)?;
        File::options()
            .create_new(true)
            .write(true)
            .mode(0o600)
            .open(self.directory.join("munge.key"))?
            .write_all(&key)?;
        // Nothing of it is used; without a word about it the daemon looks for a file system that need not be mounted.
        std::fs::write(self.directory.join("cgroup.conf"), "CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")?;
        std::fs::write(self.configuration(), configuration(&self.directory, cluster, slots))
    }

    /// A program under a host name of its own.
    fn named(&self, host: &Host, words: &str) -> Command {
        let mut command = host.program_command("unshare");
        command.args(["--uts", "sh", "-c", &format!("hostname {}; exec {words}", name(host))]);
        command.env("SLURM_CONF", self.configuration());
        command
    }

    fn launch(&mut self, mut command: Command) -> Result<(), Error> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.daemons.push(command.spawn().map_err(Error::system("start Slurm"))?);
        Ok(())
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        for daemon in self.daemons.iter_mut().rev() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

fn name(host: &Host) -> String {
    format!("node{}", host.number)
}

/// What a small group would write, with the least time after which a silent node counts as lost.
fn configuration(directory: &Path, cluster: &Cluster, slots: u32) -> String {
    let first = cluster.host(0);
    let at = directory.display();
    let mut text = format!(
        "ClusterName=bench
SlurmctldHost={}({})
AuthType=auth/munge
AuthInfo=socket={at}/munge.socket
SlurmUser=root
SlurmdUser=root
StateSaveLocation={at}/state
SlurmdSpoolDir={at}/spool-%n
SlurmctldPidFile={at}/slurmctld.pid
SlurmdPidFile={at}/slurmd-%n.pid
SlurmctldLogFile={at}/slurmctld.log
SlurmdLogFile={at}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SlurmdTimeout=5
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SlurmdParameters=config_overrides
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
",
        name(first),
        first.address
    );
    for host in cluster.hosts() {
        text += &format!("NodeName={} NodeAddr={} CPUs={slots} State=UNKNOWN\n", name(host), host.address);
    }
    text + &format!(
        "PartitionName=all Nodes=node[0-{}] Default=YES MaxTime=INFINITE State=UP\n",
        cluster.hosts().len() - 1
    )
}
