//! `Pulc`: joining the job, and the view of it as one machine.

use crate::rawdata::{Channel, RawTable};
use crate::table::PortTable;
use crate::{Error, Mode, Port, params};
use pulc_base::clock::Nanos;
use pulc_base::metrics::DeviceCounters;
use pulc_base::{JobId, NodeId, NodeIndex, Proto, Rank};
use pulc_handler::Process;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long an aborting process waits to be ended by its keeper.
const ABORT_PATIENCE: Duration = Duration::from_secs(10);

/// This process's membership in its job. Cheap to clone; all clones share one engine.
#[derive(Clone)]
pub struct Pulc {
    pub(crate) process: &'static Process,
    /// Counts up whenever a found port may be gone; see [`crate::Address`].
    pub(crate) epoch: Arc<AtomicU32>,
    pub(crate) lookup: Nanos,
    pub(crate) datagram_max: usize,
}

/// A process of the job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Task {
    pub rank: Rank,
    pub node: NodeIndex,
}

/// A node of the job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    pub index: NodeIndex,
    pub id: NodeId,
    pub name: String,
}

/// What one device of this process has moved.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Counters {
    /// "self", "shm" or "udp".
    pub device: &'static str,
    /// Messages handed to and taken from the device by the message handler.
    pub messages_sent: u64,
    pub messages_received: u64,
    /// Their bytes, without any header.
    pub bytes_sent: u64,
    pub bytes_received: u64,
    /// Long frames from other nodes whose bytes the system put straight into the receiver's buffer.
    pub frames_landed: u64,
    /// What the device itself counts: frames, system calls, back-pressure.
    pub frames: DeviceCounters,
}

impl Pulc {
    /// Joins the job that this process was started in by `pulc run`; a process started by hand becomes rank 0 of 1. May be
    /// called any number of times: the process has one engine.
    ///
    /// # Errors
    /// [`Error::Attach`] when the keeper cannot be reached, refuses, or speaks another version; [`Error::Forked`] in a fork
    /// of an attached process.
    pub fn attach() -> Result<Pulc, Error> {
        static ATTACHED: Mutex<Option<Pulc>> = Mutex::new(None);
        let mut attached = ATTACHED.lock().unwrap_or_else(PoisonError::into_inner);
        let process = Process::attach()?;
        if let Some(pulc) = &*attached {
            return Ok(pulc.clone());
        }
        let mut guard = process.lock();
        let limits = *guard.engine.limits();
        let epoch = Arc::new(AtomicU32::new(0));
        let mut table = PortTable::default();
        table.epoch = Arc::clone(&epoch);
        table.others_alive = process.boot().tasks.len() - 1;
        table.budget = limits.unexpected_max_bytes;
        table.backlog_max = params::DATAGRAM_BACKLOG_BYTES.read().value;
        table.ports_max = params::PORTS_MAX.read().value as usize;
        table.lookups_per_rank = params::LOOKUPS_PER_RANK.read().value as usize;
        guard.engine.register(Proto::PORT, Box::new(table))?;
        guard.engine.register(Proto::RAWDATA, Box::new(RawTable::new(process.boot().tasks.len())))?;
        drop(guard);
        let lookup = Nanos::from_ms(params::PORT_LOOKUP_MS.read().value);
        let datagram_max = params::DATAGRAM_MAX_BYTES.read().value as usize;
        let pulc = Pulc { process, epoch, lookup, datagram_max };
        *attached = Some(pulc.clone());
        Ok(pulc)
    }

    pub fn rank(&self) -> Rank {
        self.process.rank()
    }

    /// Number of processes of the job.
    pub fn size(&self) -> u32 {
        self.process.boot().tasks.len() as u32
    }

    /// The node this process runs on, as an index into [`Pulc::nodes`].
    pub fn node(&self) -> NodeIndex {
        self.process.node()
    }

    pub fn job(&self) -> JobId {
        self.process.boot().job
    }

    /// All processes of the job, by rank.
    pub fn tasks(&self) -> Vec<Task> {
        let tasks = (0..).map(Rank).zip(&self.process.boot().tasks);
        tasks.map(|(rank, task)| Task { rank, node: NodeIndex(task.node) }).collect()
    }

    /// All nodes of the job, by index.
    pub fn nodes(&self) -> Vec<Node> {
        let nodes = (0..).map(NodeIndex).zip(&self.process.boot().nodes);
        nodes.map(|(index, node)| Node { index, id: node.id, name: node.name.clone() }).collect()
    }

    /// Opens an ordered port.
    ///
    /// # Errors
    /// [`Error::BadName`], [`Error::NameTaken`], [`Error::TooManyPorts`].
    pub fn open_port(&self, name: &str) -> Result<Port, Error> {
        self.open_port_with(name, Mode::Ordered)
    }

    /// Opens a port in either mode.
    pub fn open_port_with(&self, name: &str, mode: Mode) -> Result<Port, Error> {
        Port::open(self, name, mode)
    }

    /// Opens this end of the rawdata channel `number` to another process (or to this one).
    ///
    /// # Errors
    /// [`Error::NoSuchRank`], [`Error::ChannelTaken`].
    pub fn open_channel(&self, peer: Rank, number: u16) -> Result<Channel, Error> {
        Channel::open(self, peer, number)
    }

    /// What each device has moved so far.
    pub fn counters(&self) -> Vec<Counters> {
        if self.process.check_fork().is_err() {
            return Vec::new();
        }
        let reports = self.process.lock().engine.report();
        let counters = reports.into_iter().map(|report| Counters {
            device: report.device,
            messages_sent: report.tally.messages_sent,
            messages_received: report.tally.messages_received,
            bytes_sent: report.tally.bytes_sent,
            bytes_received: report.tally.bytes_received,
            frames_landed: report.links.packets_landed,
            frames: report.frames,
        });
        counters.collect()
    }

    /// Ends the whole job: all its processes are killed, `code` is its exit status, and `text` is shown to the user. A process
    /// that was started by hand only ends itself.
    pub fn abort(&self, code: u8, text: &str) -> ! {
        let told = self.process.check_fork().is_ok() && self.process.lock().engine.abort(code, text);
        if told {
            // The keeper ends this process too; should it not, it ends by itself.
            std::thread::sleep(ABORT_PATIENCE);
        } else {
            pulc_base::log!(Error, "pulc", "aborted: {text}");
        }
        std::process::exit(i32::from(code));
    }

    /// Waits until everything sent to other nodes has arrived there, at most for the time PULC_LINGER_MS. Done by itself when
    /// the process ends.
    pub fn flush(&self) {
        if self.process.check_fork().is_ok() {
            self.process.linger();
        }
    }
}
