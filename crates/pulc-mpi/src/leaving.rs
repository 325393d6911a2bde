//! How a process leaves: messages that nobody will receive any more must not keep their senders, and a process that exits without
//! `MPI_Finalize` must not leave the others waiting for it. Called by the end of MPI and by the end of the process.
//! Source: MPI-5.0, 11.2.2 and 11.4.

use crate::matcher::{Goal, Kept, Matcher, matcher, matcher_and_outbox};
use crate::world;
use pulc_handler::{Outbox, Process};

/// From now on the program receives nothing: long messages that wait for a receive are let come, and thrown away.
pub(crate) fn take_no_more(process: &'static Process) {
    let mut guard = process.lock();
    let (table, outbox) = matcher_and_outbox(&mut guard.engine);
    table.leaving = Some(Vec::new());
    for context in 0..table.lanes.len() as u32 {
        for entry in table.lane(context).queue.kept_entries() {
            table.throw_away(context, entry, outbox);
        }
    }
}

impl Matcher {
    fn throw_away(&mut self, context: u32, entry: pulc_handler::matching::Entry, outbox: &mut Outbox) {
        let queue = &mut self.lane(context).queue;
        if !matches!(queue.kept(entry), Some(Kept::Asked { .. })) {
            return;
        }
        let Some(Kept::Asked { transfer, id, .. }) = queue.take(entry) else { return };
        self.transfers.redirect(transfer, Goal::Nowhere);
        outbox.grant(id);
        if let Some(thrown_away) = &mut self.leaving {
            thrown_away.push(context);
        }
    }

    /// How many messages of each communicator's nobody has received, by name.
    fn leftovers(&mut self) -> Vec<(String, usize)> {
        let mut found = Vec::new();
        for comm in self.comms.clone().into_iter().flatten() {
            let kept = self.lane(comm.context).queue.kept_len();
            let thrown_away = self.leaving.iter().flatten().filter(|context| **context == comm.context).count();
            if kept + thrown_away > 0 {
                found.push((comm.display_name(), kept + thrown_away));
            }
        }
        found
    }
}

/// Messages that nobody received are no reason to fail, but likely a mistake.
pub(crate) fn tell_leftovers(process: &'static Process) {
    let found = matcher(&mut process.lock().engine).leftovers();
    for (name, count) in found {
        pulc_base::log!(Warn, "mpi", "MPI_Finalize on {name}{}: {count} sent messages were not received", world::who());
    }
}

/// A process that exits with success and without `MPI_Finalize` ends the job: others may wait for it for ever. One that exits with
/// another status ends it anyway.
pub(crate) fn look_at_exit(status: i32) {
    if status != 0 || !world::is_running() {
        return;
    }
    let Some(process) = world::attached() else { return };
    if process.boot().tasks.len() == 1 {
        return;
    }
    let text = format!("exit on MPI_COMM_WORLD{}: the program ended without MPI_Finalize", world::who());
    if process.lock().engine.abort(1, &text) {
        std::thread::sleep(world::ABORT_PATIENCE);
    }
}
