//! The words between a rank and a launcher that speaks PMI-1, as MPICH's and Intel's do: one line each way over a connection that the
//! launcher has left open. Called by `guest`; blocks until the answer is there, and trusts nothing in it.
//! Source: the PMI-1 wire protocol as spoken by MPICH's `mpiexec.hydra`.

use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Result, Write};

/// Longest answer that is read.
const LINE_MAX: u64 = 64 << 10;

pub struct Pmi<S> {
    stream: BufReader<S>,
    /// Of the place where the job's words are kept.
    space: String,
}

impl<S: Read + Write> Pmi<S> {
    /// Says hello.
    pub fn start(stream: S) -> Result<Pmi<S>> {
        let mut pmi = Pmi { stream: BufReader::new(stream), space: String::new() };
        pmi.ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init")?;
        let answer = pmi.ask("cmd=get_my_kvsname", "my_kvsname")?;
        pmi.space = field(&answer, "kvsname").ok_or_else(|| malformed(&answer))?.to_owned();
        Ok(pmi)
    }

    /// Leaves a word for all ranks; they find it after the next [`Pmi::meet`].
    pub fn put(&mut self, key: &str, value: &str) -> Result<()> {
        let line = format!("cmd=put kvsname={} key={key} value={value}", self.space);
        self.ask(&line, "put_result").map(|_| ())
    }

    /// A word that somebody has left.
    pub fn get(&mut self, key: &str) -> Result<String> {
        let line = format!("cmd=get kvsname={} key={key}", self.space);
        let answer = self.ask(&line, "get_result")?;
        Ok(field(&answer, "value").ok_or_else(|| malformed(&answer))?.to_owned())
    }

    /// Waits until all ranks are here.
    pub fn meet(&mut self) -> Result<()> {
        self.ask("cmd=barrier_in", "barrier_out").map(|_| ())
    }

    /// This rank ends as it should.
    pub fn finalize(&mut self) -> Result<()> {
        self.ask("cmd=finalize", "finalize_ack").map(|_| ())
    }

    /// The launcher ends the job; it does not answer.
    pub fn abort(&mut self, code: u8) -> Result<()> {
        self.stream.get_mut().write_all(format!("cmd=abort exitcode={code}\n").as_bytes())
    }

    fn ask(&mut self, line: &str, expected: &str) -> Result<String> {
        self.stream.get_mut().write_all(format!("{line}\n").as_bytes())?;
        let mut answer = Vec::new();
        (&mut self.stream).take(LINE_MAX).read_until(b'\n', &mut answer)?;
        let answer = String::from_utf8(answer).map_err(|_| malformed("bytes that are no text"))?;
        if answer.is_empty() {
            return Err(Error::new(ErrorKind::UnexpectedEof, "it has closed the connection"));
        }
        if field(&answer, "cmd") != Some(expected) {
            return Err(malformed(&answer));
        }
        match field(&answer, "rc") {
            None | Some("0") => Ok(answer),
            Some(_) => Err(Error::other(format!("it refused {line:?}: {:?}", answer.trim()))),
        }
    }
}

fn malformed(answer: &str) -> Error {
    Error::new(ErrorKind::InvalidData, format!("it answered {:?}", answer.trim()))
}

/// The value of a name in a line of `name=value` words.
fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

/// Which node each rank is on, from the launcher's `PMI_process_mapping`: `(vector,(first node,nodes,ranks on each),...)`, blocks of
/// nodes that are repeated until all ranks have a place.
pub fn nodes_of(mapping: &str, ranks: usize) -> Option<Vec<u32>> {
    let inner = mapping.trim().strip_prefix("(vector,")?.strip_suffix(')')?;
    let mut blocks = Vec::new();
    for block in inner.split("),") {
        let block = block.trim().trim_start_matches('(').trim_end_matches(')');
        let numbers: Vec<u32> = block.split(',').map(|word| word.trim().parse().ok()).collect::<Option<_>>()?;
        let [first, nodes, each] = numbers[..] else { return None };
        // A block without ranks has none to find, however many nodes it names.
        if nodes > 0 && each > 0 {
            blocks.push((first, nodes, each));
        }
    }
    if blocks.is_empty() {
        return None;
    }
    let round = blocks.iter().flat_map(|&(first, nodes, each)| {
        (0..nodes).flat_map(move |node| std::iter::repeat_n(first.saturating_add(node), each as usize))
    });
    Some(round.cycle().take(ranks).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    /// A launcher that gives these answers.
    fn launcher(answers: &[&'static str]) -> Result<Pmi<UnixStream>> {
        let (ours, mut theirs) = UnixStream::pair()?;
        let answers = answers.join("\n") + "\n";
        theirs.write_all(answers.as_bytes())?;
        // Kept open for what is written to it.
        std::mem::forget(theirs);
        Pmi::start(ours)
    }

    const HELLO: [&str; 2] =
        ["cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0", "cmd=my_kvsname kvsname=kvs_1"];

    #[test]
    fn words_are_left_and_found() {
        let more = ["cmd=put_result rc=0 msg=success", "cmd=barrier_out", "cmd=get_result rc=0 msg=success value=abc"];
        let mut pmi = launcher(&[&HELLO[..], &more].concat()).unwrap();
        pmi.put("key", "abc").unwrap();
        pmi.meet().unwrap();
        assert_eq!(pmi.get("key").unwrap(), "abc");
    }

    #[test]
    fn refusals_and_nonsense_are_errors() {
        assert!(launcher(&["cmd=response_to_init rc=-1"]).is_err());
        assert!(launcher(&["hello"]).is_err());
        let mut pmi =
            launcher(&[&HELLO[..], &["cmd=get_result rc=-1 msg=key_not_found value=unknown"]].concat()).unwrap();
        assert!(pmi.get("key").unwrap_err().to_string().contains("refused"));
    }

    #[test]
    fn ranks_are_placed_block_by_block() {
        assert_eq!(nodes_of("(vector,(0,1,4))", 4), Some(vec![0; 4]));
        assert_eq!(nodes_of("(vector,(0,2,2))", 4), Some(vec![0, 0, 1, 1]));
        assert_eq!(nodes_of("(vector,(0,2,1))", 4), Some(vec![0, 1, 0, 1]));
        assert_eq!(nodes_of("(vector,(0,1,2),(1,1,1))", 3), Some(vec![0, 0, 1]));
        let most = "(0,4294967295,4294967295)";
        assert_eq!(nodes_of(&format!("(vector,{most},{most})"), 2), Some(vec![0, 0]));
        assert_eq!(nodes_of("(vector,(0,4294967295,0),(7,1,1))", 2), Some(vec![7, 7]));
        for nonsense in ["", "(vector,)", "(vector,(0,0,0))", "(vector,(0,1))", "vector", "(vector,(a,1,1))"] {
            assert_eq!(nodes_of(nonsense, 2), None, "{nonsense}");
        }
    }
}
