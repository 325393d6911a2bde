//! A launcher that answers whatever it likes, made of an input: what `crate::fuzz` offers of this room.

use super::pmi::{Pmi, nodes_of};
use super::unhex;
use pulc_base::boot::{GuestReady, decode};
use std::io::{Read, Result, Write};
use std::net::SocketAddr;

/// Hears nothing, and says these bytes.
struct Launcher<'a>(&'a [u8]);

impl Read for Launcher<'_> {
    fn read(&mut self, to: &mut [u8]) -> Result<usize> {
        self.0.read(to)
    }
}

impl Write for Launcher<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

pub(crate) fn answers(bytes: &[u8]) {
    if let Ok(mut pmi) = Pmi::start(Launcher(bytes)) {
        let _ = pmi.put("key", "value");
        let _ = pmi.meet();
        while let Ok(value) = pmi.get("key") {
            words(&value);
        }
        let _ = pmi.finalize();
    }
    words(&String::from_utf8_lossy(bytes));
}

/// What a launcher keeps for the ranks, and where it says that they are.
fn words(text: &str) {
    const RANKS: usize = 1000;
    if let Some(nodes) = nodes_of(text, RANKS) {
        assert_eq!(nodes.len(), RANKS, "every rank has a node");
    }
    if let Some(bytes) = unhex(text) {
        assert_eq!(bytes.len() * 2, text.len());
        let _ = decode::<GuestReady>(&bytes);
        let _ = decode::<Vec<SocketAddr>>(&bytes);
    }
}
