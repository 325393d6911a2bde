//! Rawdata from Rust: neighbours pour blocks into each other's posted buffers, receive straight into a buffer, and lend each other memory
//! that is read without a copy. Alone, a process pours into its own.
//! `cargo build -p pulc --examples && pulc run -n 2 target/debug/examples/rawdata`

use pulc::rawdata::Channel;
use pulc::{Error, Pulc, Rank};

const BYTES: usize = 48 << 10;
const BUFFERS: usize = 4;
const BLOCKS: usize = 100;
const LOAN_BYTES: usize = 1 << 20;

fn main() -> Result<(), Error> {
    let pulc = Pulc::attach()?;
    let (me, size) = (pulc.rank().0, pulc.size());
    // The last one of an odd number has no neighbour but itself.
    let neighbour = if me ^ 1 < size { me ^ 1 } else { me };
    let channel = pulc.open_channel(Rank(neighbour), 1)?;
    pour(&channel)?;
    receive(&pulc.open_channel(Rank(neighbour), 2)?)?;
    lend(&channel, me, neighbour)?;
    println!("rank {me}: {BLOCKS} blocks of {BYTES} bytes and a loan of {LOAN_BYTES} from rank {neighbour}");
    Ok(())
}

/// Messages land in the buffers that were posted, in the order in which they were posted.
fn pour(channel: &Channel) -> Result<(), Error> {
    for token in 0..BUFFERS {
        channel.post(vec![0; BYTES], token as u64)?;
    }
    let mut sent = 0;
    for number in 0..BLOCKS {
        // Not further ahead than there are buffers: what nobody has posted for is kept for a while, which costs a copy.
        while sent < BLOCKS.min(number + BUFFERS) {
            channel.send(&[sent as u8; BYTES])?;
            sent += 1;
        }
        let landed = channel.landed()?;
        assert_eq!((landed.token, landed.result?), ((number % BUFFERS) as u64, BYTES));
        assert!(landed.buffer.iter().all(|byte| *byte == number as u8), "block {number} landed wrong");
        if number + BUFFERS < BLOCKS {
            channel.post(landed.buffer, landed.token)?;
        }
    }
    Ok(())
}

/// Without posted buffers a receive waits with its own. A message that does not fit stays.
fn receive(channel: &Channel) -> Result<(), Error> {
    channel.send(b"well done")?;
    let short = channel.recv(&mut [0; 4]);
    assert!(matches!(short, Err(Error::BufferTooSmall { needed: 9, len: 4 })), "{short:?}");
    let mut word = [0; 16];
    let len = channel.recv(&mut word)?;
    assert_eq!(&word[..len], b"well done");
    Ok(())
}

/// A loan is filled here and read there. Between nodes it is an ordinary message, and a long one waits for its receiver: so one of
/// the two begins.
fn lend(channel: &Channel, me: u32, neighbour: u32) -> Result<(), Error> {
    let lend = || -> Result<(), Error> {
        let mut loan = channel.loan(LOAN_BYTES)?;
        loan.fill(me as u8);
        channel.send_loan(loan)
    };
    let read = || -> Result<(), Error> {
        let view = channel.recv_view()?;
        assert!(view.to_vec() == vec![neighbour as u8; LOAN_BYTES], "the loan of rank {neighbour} is spoilt");
        Ok(())
    };
    if me <= neighbour {
        lend()?;
        return read();
    }
    read()?;
    lend()
}
