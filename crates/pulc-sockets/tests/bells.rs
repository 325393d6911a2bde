//! Bells that come when nothing is left that they could stand for.

use pulc_sockets::{Board, End, Incoming, Kernel, Outgoing, Side, create};
use std::cell::Cell;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::AsFd as _;

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
