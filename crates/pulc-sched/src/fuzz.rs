//! What is done with the bytes of a log, for the fuzz target (`fuzz/`) and for the replay of its corpus. Not for programs. A log is the
//! daemon's own file, but a disk may give back anything: whatever it is, it is read or refused, and nothing is made of it twice.

use crate::journal::{MAGIC, frame, tell};
use crate::state::State;
use std::path::Path;

/// The bytes as a log; and behind right checksums, which no chance hits, as bodies of records whose lengths the first byte says.
pub fn journal(bytes: &[u8]) {
    let path = Path::new("queue.log");
    let whole: Vec<u8> = [&MAGIC, bytes].concat();
    if let Ok(told) = tell(&whole, path) {
        assert!((MAGIC.len()..=whole.len()).contains(&told.end), "it ends at {} of {}", told.end, whole.len());
    }
    let [piece, bytes @ ..] = bytes else { return };
    let mut log = MAGIC.to_vec();
    for (number, body) in (0..).zip(bytes.chunks(usize::from(*piece) + 1)) {
        frame(&mut log, number, body);
    }
    if let Ok(told) = tell(&log, path) {
        assert_eq!(told.end, log.len());
        // It is a state that can be written anew.
        let mut again = State::default();
        told.state.snapshot().iter().for_each(|record| again.apply(record));
    }
}
