//! Frames that the `udp` device has taken and not yet given to the kernel, joined to runs where they may be. Called by `udp`
//! only; does no system call.

use super::Peer;
use super::udp_socket::BATCH_MAX;

/// Datagrams in one run.
pub(super) const RUN_FRAMES_MAX: usize = 64;
/// Most bytes of one run.
pub(super) const RUN_BYTES_MAX: usize = 65_507;

/// Frames taken and not yet given to the kernel.
#[derive(Default)]
pub(super) struct Outbox {
    pub bytes: Vec<u8>,
    pub runs: Vec<PendingRun>,
}

/// Frames to one peer, each `segment` bytes long, the last one possibly shorter.
pub(super) struct PendingRun {
    pub to: Peer,
    pub start: usize,
    pub end: usize,
    pub segment: usize,
}

impl Outbox {
    pub fn push(&mut self, to: Peer, run: &[u8], segment: usize) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(run);
        self.runs.push(PendingRun { to, start, end: start + run.len(), segment });
    }

    /// Adds a frame, to the last run if it fits behind it.
    pub fn push_frame(&mut self, to: Peer, parts: [&[u8]; 2], merge: bool) {
        let len = parts[0].len() + parts[1].len();
        let start = self.bytes.len();
        parts.iter().for_each(|part| self.bytes.extend_from_slice(part));
        if let Some(last) = self.runs.last_mut().filter(|_| merge) {
            let whole = (last.end - last.start).is_multiple_of(last.segment);
            let frames = (last.end - last.start) / last.segment;
            let fits = frames < RUN_FRAMES_MAX && last.end - last.start + len <= RUN_BYTES_MAX;
            if last.to == to && whole && len > 0 && len <= last.segment && fits {
                last.end += len;
                return;
            }
        }
        self.runs.push(PendingRun { to, start, end: start + len, segment: len.max(1) });
    }

    pub fn is_full(&self) -> bool {
        self.runs.len() >= BATCH_MAX || self.bytes.len() >= RUN_BYTES_MAX
    }

    pub fn split_runs(&mut self) {
        let split = |run: &PendingRun| {
            let (to, end, segment) = (run.to, run.end, run.segment);
            (run.start..run.end)
                .step_by(segment)
                .map(move |start| PendingRun { to, start, end: (start + segment).min(end), segment })
                .collect::<Vec<_>>()
        };
        self.runs = self.runs.iter().flat_map(split).collect();
    }

    pub fn drop_first(&mut self, count: usize) {
        self.runs.drain(..count.min(self.runs.len()));
        if self.runs.is_empty() {
            self.clear();
        }
    }

    pub fn clear(&mut self) {
        self.runs.clear();
        self.bytes.clear();
    }
}
