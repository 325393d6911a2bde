//! What a daemon and its helper say to each other: one datagram a question, one an answer, in turn. Read by a process of root from one that
//! speaks to the network, so everything is of fixed places and lengths, checked here, and nothing else is understood.
//!
//! ```text
//! READY                                  the daemon has begun: from now on it is started again when it dies
//! BECOME  uid:u32 part:u8 name           + the keeper's or clerk's line as descriptor
//! CLEAR   job:u64 index:u32
//! END     pid:u32
//!
//! STARTED pid:u32                        + pidfd
//! REFUSED text
//! LEFT    count:u32
//! DONE
//! ```
//! Numbers are little-endian.

/// No user's name is longer.
pub const NAME_BYTES_MAX: usize = 256;
/// No question or answer is longer.
pub const MESSAGE_BYTES_MAX: usize = 2048;

const READY: u8 = 1;
const BECOME: u8 = 2;
const CLEAR: u8 = 3;
const END: u8 = 4;
const STARTED: u8 = 129;
const REFUSED: u8 = 130;
const LEFT: u8 = 131;
const DONE: u8 = 132;

/// From the daemon.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Question {
    Ready,
    /// Start this as this user, who must have this name here.
    Become {
        uid: u32,
        part: Part,
        name: String,
    },
    /// Kill what is left here of a job whose keeper is dead. `index` is this node's place in the job.
    Clear {
        job: u64,
        index: u32,
    },
    /// Kill this keeper, which the helper has started.
    End {
        pid: u32,
    },
}

/// What a user's process is for; the last is the number that is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Part {
    /// A keeper that ends with the daemon.
    Keeper = 0,
    /// One that outlives it.
    StayingKeeper = 1,
    /// Opens the user's files for the daemon.
    Clerk = 2,
}

impl Part {
    fn of(number: u8) -> Option<Part> {
        [Part::Keeper, Part::StayingKeeper, Part::Clerk].into_iter().find(|part| *part as u8 == number)
    }
}

/// From the helper.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    Started {
        pid: u32,
    },
    Refused {
        why: String,
    },
    /// So many processes were still there.
    Left {
        count: u32,
    },
    Done,
}

impl Question {
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Question::Ready => vec![READY],
            Question::Become { uid, part, name } => {
                [&[BECOME][..], &uid.to_le_bytes(), &[*part as u8], name.as_bytes()].concat()
            }
            Question::Clear { job, index } => [&[CLEAR][..], &job.to_le_bytes(), &index.to_le_bytes()].concat(),
            Question::End { pid } => [&[END][..], &pid.to_le_bytes()].concat(),
        }
    }

    /// None for everything else.
    pub fn decode(bytes: &[u8]) -> Option<Question> {
        let (word, rest) = bytes.split_first()?;
        match *word {
            READY if rest.is_empty() => Some(Question::Ready),
            BECOME => {
                let (uid, rest) = rest.split_first_chunk()?;
                let (part, name) = rest.split_first()?;
                let name = std::str::from_utf8(name).ok()?;
                let shown = |c: char| !c.is_control() && !c.is_whitespace();
                let fits = !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.chars().all(shown);
                let (uid, part) = (u32::from_le_bytes(*uid), Part::of(*part).filter(|_| fits)?);
                Some(Question::Become { uid, part, name: name.to_owned() })
            }
            CLEAR => {
                let (job, rest) = rest.split_first_chunk()?;
                let index = rest.try_into().ok()?;
                Some(Question::Clear { job: u64::from_le_bytes(*job), index: u32::from_le_bytes(index) })
            }
            END => Some(Question::End { pid: u32::from_le_bytes(rest.try_into().ok()?) }),
            _ => None,
        }
    }
}

impl Answer {
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Answer::Started { pid } => [&[STARTED][..], &pid.to_le_bytes()].concat(),
            Answer::Refused { why } => {
                let end = why.floor_char_boundary_at(MESSAGE_BYTES_MAX - 1);
                [&[REFUSED][..], &why.as_bytes()[..end]].concat()
            }
            Answer::Left { count } => [&[LEFT][..], &count.to_le_bytes()].concat(),
            Answer::Done => vec![DONE],
        }
    }

    pub fn decode(bytes: &[u8]) -> Option<Answer> {
        let (word, rest) = bytes.split_first()?;
        let number = || Some(u32::from_le_bytes(rest.try_into().ok()?));
        match *word {
            STARTED => Some(Answer::Started { pid: number()? }),
            REFUSED => Some(Answer::Refused { why: String::from_utf8_lossy(rest).into_owned() }),
            LEFT => Some(Answer::Left { count: number()? }),
            DONE if rest.is_empty() => Some(Answer::Done),
            _ => None,
        }
    }
}

trait Cut {
    fn floor_char_boundary_at(&self, most: usize) -> usize;
}

impl Cut for String {
    /// The longest beginning of at most so many bytes that is whole characters.
    fn floor_char_boundary_at(&self, most: usize) -> usize {
        (0..=most.min(self.len())).rev().find(|at| self.is_char_boundary(*at)).unwrap_or(0)
    }
}

/// For a fuzzer: what is understood is understood the same again.
pub fn fuzz(bytes: &[u8]) {
    if let Some(question) = Question::decode(bytes) {
        assert_eq!(Question::decode(&question.encode()), Some(question));
    }
    if let Some(answer) = Answer::decode(bytes) {
        assert_eq!(
            Answer::decode(&answer.encode()).is_some(),
            bytes.len() <= MESSAGE_BYTES_MAX || answer == Answer::Done
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_question_and_every_answer_comes_as_it_went() {
        let name = "alice".to_owned();
        for question in [
            Question::Ready,
            Question::Become { uid: 1000, part: Part::StayingKeeper, name },
            Question::Become { uid: 1, part: Part::Clerk, name: "b".to_owned() },
            Question::Clear { job: u64::MAX, index: 3 },
            Question::End { pid: 77 },
        ] {
            assert_eq!(Question::decode(&question.encode()), Some(question));
        }
        let why = "no".to_owned();
        for answer in [Answer::Started { pid: 5 }, Answer::Refused { why }, Answer::Left { count: 9 }, Answer::Done] {
            assert_eq!(Answer::decode(&answer.encode()), Some(answer));
        }
        let long = Answer::Refused { why: "\u{e4}".repeat(MESSAGE_BYTES_MAX) }.encode();
        assert!(long.len() <= MESSAGE_BYTES_MAX && Answer::decode(&long).is_some());
    }

    #[test]
    fn what_is_too_short_too_long_or_something_else_is_no_question() {
        let good = Question::Become { uid: 1000, part: Part::Keeper, name: "alice".to_owned() }.encode();
        let mut bad: Vec<Vec<u8>> = (0..6).map(|end| good[..end].to_vec()).collect();
        bad.push([&good[..], b"\0"].concat());
        bad.push([&good[..], b" x"].concat());
        bad.push([&good[..6], &[0xff]].concat());
        bad.push([&good[..5], &[3], &b"alice"[..]].concat());
        bad.push([&good[..6], &vec![b'a'; NAME_BYTES_MAX + 1]].concat());
        bad.push(vec![READY, 0]);
        bad.push(vec![0]);
        bad.push(vec![STARTED, 1, 0, 0, 0]);
        bad.push([&[CLEAR][..], &[0; 11]].concat());
        bad.push([&[CLEAR][..], &[0; 13]].concat());
        bad.push([&[END][..], &[0; 5]].concat());
        for bytes in bad {
            assert_eq!(Question::decode(&bytes), None, "{bytes:?}");
        }
        for seed in 0..20_000u32 {
            let bytes: Vec<u8> = (0..seed % 40).map(|at| (seed.wrapping_mul(2_654_435_761 + at) >> 13) as u8).collect();
            fuzz(&bytes);
        }
    }
}
