//! Ranks that keep the rules and check every byte: each turn every one of them sends something to every other one over ports,
//! rawdata and active messages, of lengths that take every way there is. What comes from ranks that break the rules is nobody's
//! business here, but nothing of it may be taken for a message of an honest one.

use super::{ENV_HONEST, ENV_TURNS};
use pulc::am::{Bundle, Endpoint, MEDIUM_MAX, Medium, MediumReply, Mode, Peer};
use pulc::rawdata::Channel;
use pulc::{Address, Error, From, Match, Port, Pulc, Rank};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A guard against hanging: longer than anything honest takes on a machine that is busy with other things.
const HANG: Duration = Duration::from_secs(180);
/// In bytes: in a cell, in some cells, in the pool, in parts, asked for first.
const LENGTHS: [usize; 7] = [8, 40, 600, 5_000, 20_000, 64_000, 200_000];
const TAG: u64 = 4711;

const ASK: Medium<(u64, u64)> = Medium::new(1);
const ANSWER: MediumReply<(u64, u64)> = MediumReply::new(2);

/// Who keeps the rules.
pub fn ranks() -> Vec<u32> {
    let text = std::env::var(ENV_HONEST).expect("the test says who is honest");
    text.split(',').map(|rank| rank.parse().expect("a rank")).collect()
}

fn turns() -> u64 {
    std::env::var(ENV_TURNS).ok().and_then(|turns| turns.parse().ok()).expect("the test says how long")
}

/// The one right content of a message.
fn text(from: u32, to: u32, turn: u64, len: usize) -> Vec<u8> {
    let seed = u64::from(from) << 40 ^ u64::from(to) << 20 ^ turn;
    (0..len as u64).map(|at| (at.wrapping_mul(31) ^ at >> 8 ^ seed ^ seed >> 17).wrapping_mul(0x9d) as u8).collect()
}

fn length(from: u32, to: u32, turn: u64, way: u64) -> usize {
    LENGTHS[(u64::from(from) * 3 + u64::from(to) * 5 + turn * 7 + way) as usize % LENGTHS.len()]
}

struct Honest {
    pulc: Pulc,
    me: u32,
    others: Vec<u32>,
    port: Port,
    addresses: Vec<Address>,
    channels: Vec<Channel>,
    bundle: Bundle,
    peers: Vec<Peer>,
    answers: Arc<AtomicU64>,
    /// Requests taken, by rank: who goes on before all have asked runs no handlers for those who are late.
    asked: Arc<Vec<AtomicU64>>,
    _endpoint: Endpoint,
}

/// The whole part of an honest rank.
pub fn exchange() {
    let honest = Honest::join();
    println!("rank {} has begun", honest.me);
    super::wait_until_others_have_begun(honest.pulc.size() as usize - ranks().len());
    for turn in 0..turns() {
        honest.turn(turn);
    }
    honest.last_words();
    println!("rank {} stood it: {} turns with {} others", honest.me, turns(), honest.others.len());
}

/// Turns without end, for those that are killed meanwhile; returns when a job-mate is gone.
pub fn exchange_until_somebody_ends() -> String {
    let honest = Honest::join();
    println!("rank {} has begun in job {}", honest.me, std::env::var("PULC_JOBID").expect("this is a rank"));
    for turn in 0.. {
        if let Some(end) = honest.others.iter().find_map(|other| honest.end_of(*other, turn)) {
            return end;
        }
    }
    unreachable!("turns have no end")
}

impl Honest {
    fn join() -> Honest {
        let pulc = Pulc::attach().expect("this is a rank");
        let me = pulc.rank().0;
        let others: Vec<u32> = ranks().into_iter().filter(|rank| *rank != me).collect();
        let port = pulc.open_port("main").expect("the name is free");
        let addresses = others.iter().map(|other| Address::new(Rank(*other), "main")).collect();
        let channel = |other: &u32| pulc.open_channel(Rank(*other), 7).expect("the number is free");
        let channels = others.iter().map(channel).collect();
        let bundle = Bundle::new(&pulc, Mode::Sequential).expect("there is room");
        let endpoint = bundle.endpoint("main", TAG).expect("the name is free");
        let asked = (0..pulc.size()).map(|_| AtomicU64::new(0)).collect();
        let (answers, asked) = (Arc::new(AtomicU64::new(0)), Arc::new(asked));
        answer_requests(&endpoint, me, &answers, &asked);
        let map = |other: &u32| endpoint.map_timeout(&bundle, Rank(*other), "main", TAG, 4, HANG).expect("it is open");
        let peers = others.iter().map(map).collect();
        Honest { pulc, me, others, port, addresses, channels, bundle, peers, answers, asked, _endpoint: endpoint }
    }

    fn turn(&self, turn: u64) {
        for (other, channel) in self.others.iter().zip(&self.channels) {
            channel.post(vec![0; length(*other, self.me, turn, 1)], turn).expect("the channel is open");
        }
        for ((other, address), channel) in self.others.iter().zip(&self.addresses).zip(&self.channels) {
            let bytes = text(self.me, *other, turn, length(self.me, *other, turn, 0));
            self.port.send(address, turn, &bytes).unwrap_or_else(|error| panic!("turn {turn} to {other}: {error}"));
            let bytes = text(self.me, *other, turn, length(self.me, *other, turn, 1));
            channel.send(&bytes).unwrap_or_else(|error| panic!("turn {turn} to {other}: {error}"));
        }
        for (other, peer) in self.others.iter().zip(&self.peers) {
            let bytes = text(self.me, *other, turn, length(self.me, *other, turn, 2).min(MEDIUM_MAX));
            let asked = peer.request_medium(&self.bundle, ASK, (turn, bytes.len() as u64), &bytes);
            asked.unwrap_or_else(|error| panic!("turn {turn} to {other}: {error}"));
        }
        for (other, channel) in self.others.iter().zip(&self.channels) {
            let len = length(*other, self.me, turn, 0);
            let (envelope, came) = self
                .port
                .recv_vec_timeout(From::Rank(Rank(*other)), Match::Tag(turn), HANG)
                .unwrap_or_else(|error| panic!("turn {turn}, a message from {other}: {error}"));
            assert_eq!((envelope.src, envelope.tag, envelope.len), (Rank(*other), turn, len));
            assert!(came == text(*other, self.me, turn, len), "turn {turn}: {len} bytes from {other} changed");
            let landed = channel
                .landed_timeout(HANG)
                .unwrap_or_else(|error| panic!("turn {turn}, rawdata from {other}: {error}"));
            let len = length(*other, self.me, turn, 1);
            assert_eq!((landed.result.as_ref().ok(), landed.token), (Some(&len), turn), "rawdata from {other}");
            assert!(landed.buffer[..len] == text(*other, self.me, turn, len)[..], "turn {turn}: rawdata from {other}");
        }
        let all = (turn + 1) * self.others.len() as u64;
        let has_asked = |other: &u32| self.asked[*other as usize].load(Ordering::Relaxed) > turn;
        let done = || self.answers.load(Ordering::Relaxed) >= all && self.others.iter().all(has_asked);
        self.bundle.wait_until(Some(HANG), done).unwrap_or_else(|error| {
            panic!("turn {turn}: {:?} answers, {:?} requests of {all}: {error}", self.answers, self.asked)
        });
        assert_eq!(self.answers.load(Ordering::Relaxed), all);
    }

    /// Nothing may be left over, and whoever broke the rules can be spoken to without harm.
    fn last_words(&self) {
        for rank in (0..self.pulc.size()).filter(|rank| *rank != self.me && !self.others.contains(rank)) {
            let hostile = Address::new(Rank(rank), "main");
            match self.port.send_timeout(&hostile, 1, &[1; 100], Duration::from_millis(20)) {
                Ok(()) | Err(Error::Timeout | Error::PeerGone { .. } | Error::UnknownPort { .. }) => {}
                Err(error) => panic!("a message to {rank} that breaks the rules: {error}"),
            }
        }
        // Everyone waits for everyone, so that nobody is taken for gone who has something to say.
        for ((other, address), word) in self.others.iter().zip(&self.addresses).zip(std::iter::repeat(u64::MAX)) {
            self.port.send(address, word, b"done").unwrap_or_else(|error| panic!("to {other} at the end: {error}"));
        }
        for other in &self.others {
            let done = self.port.recv_timeout(From::Rank(Rank(*other)), Match::Tag(u64::MAX), &mut [0; 4], HANG);
            done.unwrap_or_else(|error| panic!("from {other} at the end: {error}"));
        }
        for other in &self.others {
            let more = self.port.try_recv(From::Rank(Rank(*other)), Match::Any, &mut [0; 100]);
            assert!(!matches!(more, Ok(Some(_))), "one too many from {other}: {more:?}");
        }
        // Their last answers. Those that break the rules may ask for ever.
        let more = || self.bundle.poll().expect("polling is allowed here") > 0;
        let _ = (0..1000).all(|_| more());
        self.pulc.flush();
    }

    /// One message there and back; how the other one has ended, if it has.
    fn end_of(&self, other: u32, turn: u64) -> Option<String> {
        let at = self.others.iter().position(|rank| *rank == other)?;
        let (address, channel) = (&self.addresses[at], &self.channels[at]);
        let len = length(self.me, other, turn, 0);
        let ways = || -> Result<(), Error> {
            channel.post(vec![0; length(other, self.me, turn, 1)], turn)?;
            self.port.send(address, turn, &text(self.me, other, turn, len))?;
            channel.send(&text(self.me, other, turn, length(self.me, other, turn, 1)))?;
            let bytes = text(self.me, other, turn, 64);
            self.peers[at].request_medium(&self.bundle, ASK, (turn, 64), &bytes)?;
            let (_, came) = self.port.recv_vec_timeout(From::Rank(Rank(other)), Match::Tag(turn), HANG)?;
            assert!(came == text(other, self.me, turn, came.len()), "turn {turn}: a message from {other} changed");
            let landed = channel.landed_timeout(HANG)?;
            let len = landed.result?;
            assert!(landed.buffer[..len] == text(other, self.me, turn, len)[..], "turn {turn}: rawdata from {other}");
            self.bundle.poll().map(drop)
        };
        match ways() {
            Ok(()) => None,
            Err(error @ Error::PeerGone { .. }) => Some(error.to_string()),
            Err(error) => panic!("turn {turn} with {other}: {error}"),
        }
    }
}

fn answer_requests(endpoint: &Endpoint, me: u32, answers: &Arc<AtomicU64>, asked: &Arc<Vec<AtomicU64>>) {
    let honest = ranks();
    let count = Arc::clone(asked);
    let run = move |token: pulc::am::Token<'_>, (turn, len): (u64, u64), bytes: &[u8]| {
        let from = token.source().rank.0;
        if !honest.contains(&from) {
            return;
        }
        assert!(bytes == text(from, me, turn, len as usize), "turn {turn}: a request of {from} changed");
        count[from as usize].fetch_add(1, Ordering::Relaxed);
        let answer: Vec<u8> = bytes.iter().map(|byte| !byte).collect();
        token.reply_medium(ANSWER, (turn, len), &answer).expect("it is not too long");
    };
    endpoint.on_medium(ASK, run).expect("the index is free");
    let (honest, count) = (ranks(), Arc::clone(answers));
    let check = move |from: pulc::am::Source, (turn, len): (u64, u64), bytes: &[u8]| {
        assert!(honest.contains(&from.rank.0), "an answer of {}, who was not asked", from.rank);
        let wanted: Vec<u8> = text(me, from.rank.0, turn, len as usize).iter().map(|byte| !byte).collect();
        assert!(bytes == wanted, "turn {turn}: the answer of {} changed", from.rank);
        count.fetch_add(1, Ordering::Relaxed);
    };
    endpoint.on_reply_medium(ANSWER, check).expect("the index is free");
    endpoint.on_error(|back| panic!("an honest message came back: {back:?}")).expect("there is none yet");
}
