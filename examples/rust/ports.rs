//! Ports from Rust: neighbours throw a ball to and fro, two threads of one process share a port, and rank 0 asks everybody with one message.
//! Alone, a process plays with itself.
//! `cargo build -p pulc --examples && pulc run -n 4 target/debug/examples/ports`

use pulc::{Address, Error, From, Match, Members, Port, Pulc, Rank};

const NAME: &str = "game";
const BALL: u64 = 1;
const STREAM: u64 = 2;
const QUESTION: u64 = 3;
const ANSWER: u64 = 4;

fn main() -> Result<(), Error> {
    let pulc = Pulc::attach()?;
    let port = pulc.open_port(NAME)?;
    let (me, size) = (pulc.rank().0, pulc.size());
    // The last one of an odd number has no neighbour but itself.
    let neighbour = if me ^ 1 < size { me ^ 1 } else { me };
    throw(&port, me, neighbour)?;
    pour(&port, neighbour)?;
    ask(&pulc, &port)
}

/// An address is made once and used often: the first send finds the port, the later ones know it.
fn throw(port: &Port, me: u32, neighbour: u32) -> Result<(), Error> {
    let to = Address::new(Rank(neighbour), NAME);
    let mut ball = [0; 8];
    for turn in 0..1000_u64 {
        if me <= neighbour {
            port.send(&to, BALL, &turn.to_le_bytes())?;
        }
        let envelope = port.recv(From::Rank(Rank(neighbour)), Match::Tag(BALL), &mut ball)?;
        assert_eq!((envelope.src, envelope.len, u64::from_le_bytes(ball)), (Rank(neighbour), 8, turn));
        if me > neighbour {
            port.send(&to, BALL, &ball)?;
        }
    }
    Ok(())
}

/// One thread sends while the other one receives, both through the same port.
fn pour(port: &Port, neighbour: u32) -> Result<(), Error> {
    const MESSAGES: usize = 200;
    let bytes = |number: usize| vec![number as u8; number * 100];
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let to = Address::new(Rank(neighbour), NAME);
            (0..MESSAGES).try_for_each(|number| port.send(&to, STREAM, &bytes(number)))
        });
        for number in 0..MESSAGES {
            let (_, got) = port.recv_vec(From::Any, Match::Tag(STREAM))?;
            assert!(got == bytes(number), "message {number} arrived wrong");
        }
        sender.join().expect("the sender does not panic")
    })
}

/// One message to many ports, and as many answers from anybody.
fn ask(pulc: &Pulc, port: &Port) -> Result<(), Error> {
    if pulc.rank() == Rank(0) {
        let mut all = Members::new((0..pulc.size()).map(|rank| Address::new(Rank(rank), NAME)))?;
        port.send_many(&mut all, QUESTION, b"where are you?")?;
    }
    let (asked, question) = port.recv_vec(From::Any, Match::Tag(QUESTION))?;
    assert_eq!((asked.src, &question[..]), (Rank(0), &b"where are you?"[..]));
    let here = &pulc.nodes()[pulc.node().0 as usize].name;
    port.send(&Address::new(asked.src, NAME), ANSWER, format!("rank {} is on {here}", pulc.rank()).as_bytes())?;
    if pulc.rank() == Rank(0) {
        let mut answers = Vec::new();
        for _ in 0..pulc.size() {
            let (from, answer) = port.recv_vec(From::Any, Match::Tag(ANSWER))?;
            answers.push((from.src.0, String::from_utf8_lossy(&answer).into_owned()));
        }
        answers.sort();
        assert!(answers.iter().map(|(rank, _)| *rank).eq(0..pulc.size()), "somebody answered twice: {answers:?}");
        answers.iter().for_each(|(_, answer)| println!("{answer}"));
    }
    Ok(())
}
