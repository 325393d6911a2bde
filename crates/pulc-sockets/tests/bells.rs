//! What is left when bytes were taken: bells that come when there is nothing that they could stand for, and memory that long messages took.

use pulc_sockets::{Board, End, Incoming, Kernel, Outgoing, Side, create};
use std::cell::Cell;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::AsFd as _;
use std::time::Duration;

const AGAIN: i32 = rustix::io::Errno::AGAIN.raw_os_error();

/// The kernel of a connection by which nothing goes but bells: those that have come, and those on their way.
#[derive(Default)]
struct Bells {
    there: Cell<usize>,
    late: Cell<usize>,
}

impl Kernel for Bells {
    fn sent(&self) -> Result<u64, i32> {
        Ok(0)
    }

    fn taken(&self) -> Result<u64, i32> {
        Ok(0)
    }

    fn recv(&self, to: &mut [IoSliceMut<'_>], peek: bool) -> Result<usize, i32> {
        let room: usize = to.iter().map(|part| part.len()).sum();
        let count = self.there.get().min(room);
        if count == 0 {
            return Err(AGAIN);
        }
        self.there.set(self.there.get() - if peek { 0 } else { count });
        Ok(count)
    }

    fn ring(&self) -> Result<(), i32> {
        self.late.set(self.late.get() + 1);
        Ok(())
    }

    fn acknowledge(&self) {}

    fn has_room(&self, _: usize) -> bool {
        true
    }

    fn me(&self) -> u32 {
        1
    }

    fn cpu(&self) -> u32 {
        0
    }

    fn is_alive(&self, _: u32) -> bool {
        true
    }
}

#[test]
fn a_bell_that_comes_after_its_bytes_were_taken_is_no_input() {
    let (kernel, board) = (Bells::default(), Board::create().unwrap().0);
    let (_map, fd) = create().unwrap();
    let [sender, receiver] =
        [Side::Active, Side::Passive].map(|side| End::join(fd.as_fd(), side, side as u32, 1).unwrap());
    [&sender, &receiver].iter().for_each(|end| end.make_ready(&kernel).unwrap());
    // Somebody sleeps, so that everything is rung for.
    board.enter(1, 0);
    let send = || assert_eq!(sender.send(&board, &kernel, &[IoSlice::new(b"one")]), Outgoing::Ring(3));
    let receive = || receiver.receive(&kernel, &mut [IoSliceMut::new(&mut [0; 8])], false);
    for _ in 0..3 {
        send();
        assert_eq!((receive(), kernel.late.get()), (Incoming::Got(3), 1));
        assert!(!receiver.were_only_bells(&kernel), "none has come");
        kernel.there.set(kernel.late.take());
        assert!(receiver.were_only_bells(&kernel));
        assert_eq!(kernel.there.get(), 0);
        // A bell that stands for something is left alone until that is taken.
        send();
        kernel.there.set(kernel.late.take());
        assert!(!receiver.were_only_bells(&kernel));
        assert_eq!((receive(), kernel.there.get()), (Incoming::Got(3), 0));
        assert_eq!(receive(), Incoming::Empty);
    }
}

#[test]
fn the_memory_that_long_messages_took_goes_back_when_little_is_sent() {
    let (kernel, board) = (Bells::default(), Board::create().unwrap().0);
    let (_map, fd) = create().unwrap();
    let ends = [Side::Active, Side::Passive].map(|side| End::join(fd.as_fd(), side, side as u32, 1).unwrap());
    ends.iter().for_each(|end| end.make_ready(&kernel).unwrap());
    let resident = || rustix::fs::fstat(&fd).unwrap().st_blocks as u64 * 512;
    let say = |bytes: &[u8]| {
        for (from, to) in [(&ends[0], &ends[1]), (&ends[1], &ends[0])] {
            let (mut room, mut done) = (vec![0; bytes.len()], 0);
            assert_eq!(from.send(&board, &kernel, &[IoSlice::new(bytes)]), Outgoing::Ring(bytes.len()));
            while done < bytes.len() {
                match to.receive(&kernel, &mut [IoSliceMut::new(&mut room[done..])], false) {
                    Incoming::Got(got) => done += got,
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(room, bytes);
        }
    };
    let chat = || (0..100).for_each(|number| say(&[number; 100]));
    chat();
    assert!(resident() <= 12 << 10, "little is sent: {}", resident());
    say(&[7; 200_000]);
    assert!(resident() >= 400_000, "{}", resident());
    std::thread::sleep(Duration::from_secs(4));
    chat();
    assert!(resident() <= 12 << 10, "little is sent again: {}", resident());
    // What was given back is used again.
    say(&[9; 200_000]);
}
