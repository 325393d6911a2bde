//! The launcher's end of PMI-1, without I/O: what one program asks, in lines, and what it is answered; what its rank leaves for the others,
//! and what they have left for it. Called by `pulc native-rank` for programs that run on the MPI they were built for, which may ask
//! anything, and whose job-mates may have left anything. Never blocks; everything that grows has a limit.
//! Source: the PMI-1 wire protocol as spoken by MPICH's `mpiexec.hydra`.

use crate::error::Error;
use std::collections::HashMap;

/// Longest name, longest value, longest line.
const KEY_MAX: usize = 64;
const VALUE_MAX: usize = 1024;
pub const LINE_MAX: usize = 4096;
/// Most words that one rank may leave between two meetings, and most that are kept of all ranks.
const FRESH_MAX: usize = 1 << 16;
const KNOWN_MAX: usize = 1 << 20;
/// Where MPICH looks which node each rank is on.
const MAPPING: &str = "PMI_process_mapping";

/// The launcher of one rank.
pub struct Launcher {
    size: u32,
    known: HashMap<String, String>,
    /// Left since the last meeting.
    fresh: Vec<(String, String)>,
}

/// What is to be done about a question.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// This line, without its end, is the answer.
    Say(String),
    /// All ranks meet: what [`Launcher::take_fresh`] gives is for the others, what they gave is for [`Launcher::learn`]; then this line.
    Meet(String),
    /// The job ends with this status.
    Abort(u8),
}

impl Launcher {
    /// `nodes` says on which node each rank is.
    pub fn new(nodes: &[u32]) -> Launcher {
        let known = HashMap::from([(MAPPING.to_owned(), mapping(nodes))]);
        Launcher { size: nodes.len() as u32, known, fresh: Vec::new() }
    }

    /// # Errors
    /// When it is no question of PMI-1: nothing that follows can be understood.
    pub fn answer(&mut self, line: &[u8]) -> Result<Answer, Error> {
        if line.len() > LINE_MAX {
            return Err(Error::PmiLineTooLong { limit: LINE_MAX });
        }
        let line = String::from_utf8_lossy(line);
        let field = |name: &str| line.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        let say = |text: &str| Ok(Answer::Say(text.to_owned()));
        match field("cmd").unwrap_or_default() {
            "init" => say("cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"),
            "get_maxes" => {
                Ok(Answer::Say(format!("cmd=maxes rc=0 kvsname_max=64 keylen_max={KEY_MAX} vallen_max={VALUE_MAX}")))
            }
            "get_appnum" => say("cmd=appnum rc=0 appnum=0"),
            "get_universe_size" => Ok(Answer::Say(format!("cmd=universe_size rc=0 size={}", self.size))),
            "get_my_kvsname" => say("cmd=my_kvsname rc=0 kvsname=pulc"),
            "put" => say(match self.put(field("key"), field("value")) {
                true => "cmd=put_result rc=0 msg=success",
                false => "cmd=put_result rc=-1 msg=too_much",
            }),
            "get" => match field("key").and_then(|key| self.known.get(key)) {
                Some(value) => Ok(Answer::Say(format!("cmd=get_result rc=0 msg=success value={value}"))),
                None => say("cmd=get_result rc=-1 msg=key_not_found value=unknown"),
            },
            "barrier_in" => Ok(Answer::Meet("cmd=barrier_out rc=0".to_owned())),
            "finalize" => say("cmd=finalize_ack rc=0"),
            "abort" => {
                let code = field("exitcode").and_then(|code| code.parse::<i32>().ok()).unwrap_or(1) as u8;
                Ok(Answer::Abort(code.max(1)))
            }
            other => Err(Error::NotPmi { asked: other.to_owned() }),
        }
    }

    fn put(&mut self, key: Option<&str>, value: Option<&str>) -> bool {
        let (Some(key), Some(value)) = (key, value) else { return false };
        let fits = may_be_left(key, value) && self.fresh.len() < FRESH_MAX;
        if fits {
            self.fresh.push((key.to_owned(), value.to_owned()));
        }
        fits
    }

    /// What this rank has left since the last meeting, as the others read it: `name value` lines.
    pub fn take_fresh(&mut self) -> Vec<u8> {
        let fresh = std::mem::take(&mut self.fresh);
        fresh.iter().flat_map(|(name, value)| format!("{name} {value}\n").into_bytes()).collect()
    }

    /// What ranks have left; lines that none of them can have been allowed to leave do not count.
    ///
    /// # Errors
    /// When it is more than can be kept.
    pub fn learn(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let text = String::from_utf8_lossy(bytes);
        let words = text.lines().filter_map(|line| line.split_once(' '));
        for (name, value) in words.filter(|(name, value)| may_be_left(name, value)) {
            if self.known.len() >= KNOWN_MAX && !self.known.contains_key(name) {
                return Err(Error::TooManyPmiWords { limit: KNOWN_MAX });
            }
            self.known.insert(name.to_owned(), value.to_owned());
        }
        Ok(())
    }
}

/// Both stand in a line as one word, and the launcher's own word is nobody's to change.
fn may_be_left(name: &str, value: &str) -> bool {
    let is_word = |text: &str, max: usize| (1..=max).contains(&text.len()) && !text.contains(char::is_whitespace);
    is_word(name, KEY_MAX) && is_word(value, VALUE_MAX) && name != MAPPING
}

/// Which node each rank is on: blocks of first node, number of nodes, ranks on each.
fn mapping(nodes: &[u32]) -> String {
    let blocks = nodes.chunk_by(|one, other| one == other).map(|block| format!("({},1,{})", block[0], block.len()));
    format!("(vector,{})", blocks.collect::<Vec<_>>().join(","))
}

/// Each line a question of one rank, which then hears of it; the whole also as what another rank has left.
pub(crate) fn fuzz_words(bytes: &[u8]) {
    let (mut asks, mut hears) = (Launcher::new(&[0, 0, 1]), Launcher::new(&[0, 0, 1]));
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        match asks.answer(line) {
            // The program reads as many words as were meant.
            Ok(Answer::Say(said)) => assert!(!said.contains(['\n', '\r']) && said.len() <= LINE_MAX, "{said:?}"),
            Ok(Answer::Meet(_)) => {
                let fresh = asks.take_fresh();
                hears.learn(&fresh).expect("there is room");
                asks.learn(&fresh).expect("there is room");
                assert_eq!(asks.known, hears.known, "both know the same");
            }
            Ok(Answer::Abort(code)) => assert_ne!(code, 0, "an abort is no success"),
            Err(_) => break,
        }
    }
    hears.learn(bytes).expect("there is room");
    assert_eq!(hears.known.remove(MAPPING), Some(mapping(&[0, 0, 1])), "somebody moved the ranks to other nodes");
    assert!(hears.known.iter().all(|(name, value)| may_be_left(name, value)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(launcher: &mut Launcher, line: &str) -> String {
        match launcher.answer(line.as_bytes()).unwrap() {
            Answer::Say(said) | Answer::Meet(said) => said,
            Answer::Abort(code) => format!("abort {code}"),
        }
    }

    #[test]
    fn what_one_rank_leaves_another_finds_after_they_have_met() {
        let (mut one, mut other) = (Launcher::new(&[4, 4, 7]), Launcher::new(&[4, 4, 7]));
        assert_eq!(said(&mut one, "cmd=get_universe_size\n"), "cmd=universe_size rc=0 size=3");
        assert!(said(&mut one, "cmd=put kvsname=pulc key=P0 value=a#b$c=1\n").contains("rc=0"));
        assert!(said(&mut other, "cmd=get kvsname=pulc key=P0\n").contains("rc=-1"));
        assert_eq!(one.answer(b"cmd=barrier_in\n").unwrap(), Answer::Meet("cmd=barrier_out rc=0".to_owned()));
        other.learn(&one.take_fresh()).unwrap();
        assert!(said(&mut other, "cmd=get kvsname=pulc key=P0\n").ends_with(" value=a#b$c=1"));
        assert!(said(&mut one, "cmd=get key=PMI_process_mapping").ends_with("(vector,(4,1,2),(7,1,1))"));
        assert!(one.take_fresh().is_empty(), "it is given away once");
    }

    #[test]
    fn words_that_are_too_long_and_questions_that_nobody_knows_are_refused_and_an_abort_is_never_a_success() {
        let mut launcher = Launcher::new(&[0]);
        let long = format!("cmd=put key=k value={}\n", "v".repeat(VALUE_MAX + 1));
        assert!(said(&mut launcher, &long).contains("rc=-1"));
        assert!(said(&mut launcher, "cmd=put key= value=v").contains("rc=-1"));
        for line in ["cmd=spawn", "", "nonsense"] {
            assert!(launcher.answer(line.as_bytes()).is_err(), "{line:?}");
        }
        assert!(launcher.answer(&[b'a'; LINE_MAX + 1]).is_err());
        for (code, is) in [("0", 1), ("7", 7), ("256", 1), ("x", 1), ("-1", 255)] {
            assert_eq!(said(&mut launcher, &format!("cmd=abort exitcode={code}")), format!("abort {is}"));
        }
    }

    #[test]
    fn what_no_rank_can_have_left_is_not_believed() {
        let mut launcher = Launcher::new(&[3]);
        let long = format!("{} v\nk {}\n", "k".repeat(KEY_MAX + 1), "v".repeat(VALUE_MAX + 1));
        let moved = b"PMI_process_mapping (vector,(0,1,1))\n";
        for bytes in [&b"nonsense\n\xff"[..], b"two words more\n", b" v\nk \n", long.as_bytes(), moved] {
            launcher.learn(bytes).unwrap();
        }
        assert_eq!(launcher.known, Launcher::new(&[3]).known);
    }
}
