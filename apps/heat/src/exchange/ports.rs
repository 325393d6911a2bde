//! The exchange over PULC ports: one ordered port per rank, one message per call, no copy of our own.

use super::{Exchange, ExchangeError, Traffic};
use pulc::{Address, Error, From, Match, Port, Pulc, Rank};

const PORT_NAME: &str = "heat";

pub struct PortExchange {
    pulc: Pulc,
    port: Port,
    /// By rank; made once, they remember the way to the port.
    addresses: Vec<Address>,
}

impl PortExchange {
    pub fn open(pulc: &Pulc) -> Result<PortExchange, Error> {
        let port = pulc.open_port(PORT_NAME)?;
        let addresses = (0..pulc.size()).map(|rank| Address::new(Rank(rank), PORT_NAME)).collect();
        Ok(PortExchange { pulc: pulc.clone(), port, addresses })
    }
}

impl Exchange for PortExchange {
    fn rank(&self) -> usize {
        self.pulc.rank().0 as usize
    }

    fn size(&self) -> usize {
        self.addresses.len()
    }

    fn send(&mut self, to: usize, tag: u64, bytes: &[u8]) -> Result<(), ExchangeError> {
        self.port.send(&self.addresses[to], tag, bytes).map_err(translate)
    }

    fn recv(&mut self, from: usize, tag: u64, bytes: &mut [u8]) -> Result<(), ExchangeError> {
        match self.port.recv(From::Rank(Rank(from as u32)), Match::Tag(tag), bytes) {
            Ok(envelope) if envelope.len == bytes.len() => Ok(()),
            Ok(envelope) => Err(ExchangeError::Length { from, got: envelope.len, expected: bytes.len() }),
            Err(Error::BufferTooSmall { needed, len }) => {
                Err(ExchangeError::Length { from, got: needed, expected: len })
            }
            Err(error) => Err(translate(error)),
        }
    }

    fn traffic(&self) -> Vec<Traffic> {
        let counted = |counters: pulc::Counters| Traffic {
            device: counters.device.to_owned(),
            messages: counters.messages_sent,
            bytes: counters.bytes_sent,
        };
        self.pulc.counters().into_iter().map(counted).collect()
    }
}

fn translate(error: Error) -> ExchangeError {
    match error {
        Error::PeerGone { rank, .. } => ExchangeError::PeerGone { rank: rank.0 as usize },
        other => ExchangeError::Other(other.to_string()),
    }
}
