//! What the keeper of a queued job does that others don't: it goes on without psid and finds it again, writes the job's files, makes the
//! ranks stand still, and stays until the job's end is on record. Part of the keeper's loop. Never waits for psid.

use super::launch;
use super::message::{Order, Prepare, Report};
use super::outlet::{Kept, Outlet, Sink};
use super::{CONTROL, Keeper};
use pulc_base::clock::{Nanos, now};
use pulc_base::log;
use pulc_base::param::Param;
use pulc_control::StopKind;
use pulc_control::queue::Used;
use rustix::event::epoll::{self, EventData, EventFlags};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Between two looks for a psid.
const LOOK: Nanos = Nanos::from_ms(50);

/// What keeps a keeper whose ranks have ended.
#[derive(Default)]
pub(super) struct Parting {
    dismissed: bool,
    /// What is in the job's directory is wanted when its processes have ended.
    returns: bool,
    /// The lock of the directory that was made for the job.
    room: Option<crate::stage::Held>,
}

pub(crate) static KEEPER_ALONE_S: Param = Param {
    name: "keeper_alone_s",
    default: 600,
    min: 5,
    max: 30 * 24 * 3600,
    text: "time for which a queued job goes on without the daemon of its node, in seconds",
};

impl Keeper {
    /// Where the output of a queued job goes.
    pub(super) fn open_outlet(&mut self, prepare: &Prepare) -> Result<(), String> {
        let Some(stay) = &prepare.stays else { return Ok(()) };
        self.control.outlet = match &stay.files {
            Some(files) => {
                let directory = Path::new(std::ffi::OsStr::from_bytes(&prepare.launch.cwd));
                Outlet::Files(Box::new(Sink::open(files, directory, stay.append)?))
            }
            None => Outlet::Kept(Kept::default()),
        };
        Ok(())
    }

    pub(super) fn prepare(&mut self, prepare: Prepare) {
        self.stay = prepare.stays.clone();
        self.job = prepare.job;
        self.parting.returns = prepare.returns;
        self.output = super::Output::new(prepare.total == 1);
        let prepared = self.open_outlet(&prepare).and_then(|()| launch::prepare(prepare, &self.guarded));
        match prepared {
            Ok(mut prepared) => {
                self.parting.room = prepared.room.take();
                self.control.report(&Report::Prepared { rails: prepared.addresses.clone() });
                self.prepared = Some(Box::new(prepared));
            }
            Err(text) => self.fail(text),
        }
    }

    /// Orders about queued jobs.
    pub(super) fn obey_queue(&mut self, order: Order) {
        match order {
            Order::Write { node, at, stream, bytes } => {
                if let Outlet::Files(sink) = &mut self.control.outlet {
                    let upto = sink.write_of(node, at, stream, &bytes);
                    self.control.report(&Report::Wrote { node, upto });
                }
            }
            Order::Acked { upto } => {
                if let Outlet::Kept(kept) = &mut self.control.outlet {
                    let bytes = kept.acked(upto);
                    self.output.add_credit(bytes);
                }
            }
            Order::Resend => self.control.send_again(),
            Order::Freeze { still } => {
                self.processes.freeze(still);
                self.control.report(&Report::Frozen { still });
            }
            Order::Dismiss => self.parting.dismissed = true,
            other => log!(Error, "keeper", "an order that is none for a queued job was ignored: {other:?}"),
        }
    }

    /// Removes the job's directory when nobody wants what is in it: psid, which does so where the keeper was killed, may be dying itself. That
    /// of a queued job is left to the daemon, which may be a later one and must not sweep it away before.
    pub(super) fn leave_directory(&mut self) {
        let queued = self.stay.is_some();
        let wanted = queued || (self.parting.returns && !self.psid_gone);
        if wanted && !self.parting.dismissed {
            return;
        }
        if let Some(room) = self.parting.room.take().filter(|_| !queued) {
            room.remove();
        }
    }

    /// What has been written to files since the last round gives room for more.
    pub(super) fn account_files(&mut self) {
        let written = self.control.outlet.take_written();
        if written > 0 {
            self.output.add_credit(written);
        }
        if let Some(text) = self.control.outlet.take_failure() {
            self.control.report(&Report::Failed { text });
            self.stop(StopKind::Gently);
        }
    }

    /// The line to psid is closed. Whether the job goes on without it.
    pub(super) fn goes_on_alone(&mut self) -> bool {
        if !self.started {
            // A later psid knows nothing of it and starts it anew: there is nobody to be dismissed by.
            self.stay = None;
        }
        if self.stay.is_none() || self.parting.dismissed {
            return false;
        }
        log!(Info, "keeper", "psid is gone; the job goes on");
        self.alone_since = Some(now());
        true
    }

    /// Looks for psid; returns when to look again.
    pub(super) fn find_psid(&mut self) -> Option<Nanos> {
        let since = self.alone_since?;
        let stay = self.stay.clone()?;
        match self.control.open_again(self.job, &stay) {
            Ok(()) => {
                self.alone_since = None;
                self.psid_gone = false;
                self.control_writes = false;
                let flags = EventFlags::IN;
                if let Err(error) = epoll::add(&self.epoll, &self.control, EventData::new_u64(CONTROL), flags) {
                    self.fail(format!("the line to psid cannot be polled: {error}"));
                }
                None
            }
            Err(_) if now().since(since) < Nanos::from_ms(KEEPER_ALONE_S.read().value * 1000) => Some(now() + LOOK),
            Err(error) => {
                log!(Error, "keeper", "no psid came back ({error}); the job ends");
                (self.alone_since, self.stay) = (None, None);
                self.stop(StopKind::AtOnce);
                None
            }
        }
    }

    /// Whether a keeper that has nothing left to do may go.
    pub(super) fn may_leave(&self) -> bool {
        match self.stay {
            Some(_) => self.parting.dismissed,
            None => self.psid_gone || self.parting.dismissed || !(self.parting.returns || self.control.has_unsent()),
        }
    }

    pub(super) fn report_used(&mut self) {
        if self.stay.is_some() {
            let used = Used { cpu_ms: cpu_ms_of_children(), memory_peak_kib: self.processes.memory_peak_kib() };
            self.control.report(&Report::Used(used));
        }
    }
}

/// Processor time of all children that have been waited for (fields 16 and 17 of /proc/self/stat).
fn cpu_ms_of_children() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let Some(end) = stat.rfind(')') else { return 0 };
    let fields: Vec<&str> = stat[end + 1..].split_ascii_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    // The first field behind the parenthesis is number 3.
    (ticks(13) + ticks(14)) * 1000 / rustix::param::clock_ticks_per_second().max(1)
}
