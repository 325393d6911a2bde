//! Ranks as threads of one process, connected by channels: the stand-in that lets the tests compare decompositions without a
//! launcher. Never used by the program itself.

use super::{Exchange, ExchangeError, Traffic};
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};

type Message = (u64, Vec<u8>);

/// One rank's end.
pub struct ThreadExchange {
    rank: usize,
    to: Vec<Sender<Message>>,
    from: Vec<Receiver<Message>>,
    /// Arrived before it was asked for, by sender.
    early: Vec<VecDeque<Message>>,
    sent: Traffic,
}

/// Runs `work` as `size` ranks and returns their results in rank order.
///
/// # Panics
/// When a rank panics.
pub fn run<T: Send>(size: usize, work: impl Fn(&mut ThreadExchange) -> T + Sync) -> Vec<T> {
    let mut senders: Vec<Vec<Sender<Message>>> = (0..size).map(|_| Vec::new()).collect();
    let mut receivers: Vec<Vec<Receiver<Message>>> = (0..size).map(|_| Vec::new()).collect();
    for src in senders.iter_mut() {
        for dst in receivers.iter_mut() {
            let (sender, receiver) = channel();
            src.push(sender);
            dst.push(receiver);
        }
    }
    std::thread::scope(|scope| {
        let ranks: Vec<_> = senders
            .into_iter()
            .zip(receivers)
            .enumerate()
            .map(|(rank, (to, from))| {
                let sent = Traffic { device: "threads".into(), messages: 0, bytes: 0 };
                let early = (0..size).map(|_| VecDeque::new()).collect();
                let mut exchange = ThreadExchange { rank, to, from, early, sent };
                let work = &work;
                scope.spawn(move || work(&mut exchange))
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().expect("a rank panicked")).collect()
    })
}

impl Exchange for ThreadExchange {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.to.len()
    }

    fn send(&mut self, to: usize, tag: u64, bytes: &[u8]) -> Result<(), ExchangeError> {
        self.sent.messages += 1;
        self.sent.bytes += bytes.len() as u64;
        self.to[to].send((tag, bytes.to_vec())).map_err(|_| ExchangeError::PeerGone { rank: to })
    }

    fn recv(&mut self, from: usize, tag: u64, bytes: &mut [u8]) -> Result<(), ExchangeError> {
        let early = self.early[from].iter().position(|(arrived, _)| *arrived == tag);
        let message = match early.and_then(|index| self.early[from].remove(index)) {
            Some((_, message)) => message,
            None => loop {
                match self.from[from].recv() {
                    Ok((arrived, message)) if arrived == tag => break message,
                    Ok(other) => self.early[from].push_back(other),
                    Err(_) => return Err(ExchangeError::PeerGone { rank: from }),
                }
            },
        };
        if message.len() != bytes.len() {
            return Err(ExchangeError::Length { from, got: message.len(), expected: bytes.len() });
        }
        bytes.copy_from_slice(&message);
        Ok(())
    }

    fn traffic(&self) -> Vec<Traffic> {
        vec![self.sent.clone()]
    }
}
