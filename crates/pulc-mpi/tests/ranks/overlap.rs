//! A scene in which one side computes while a long message moves: it ends only if somebody makes progress meanwhile
//! (what `PULC_PROGRESS=thread` promises; MPI-5.0, 3.7.4 asks for progress in calls only).

use crate::values::{INT, SUM, Values, WORLD, place};
use pulc_mpi::call;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const COUNT: usize = 3 << 20;
/// Only ends what hangs.
const HANG: Duration = Duration::from_secs(60);

/// Computes, without any call, until the other side says that it has everything.
fn compute_until(file: &Path) {
    let began = Instant::now();
    while !file.exists() {
        assert!(began.elapsed() < HANG, "the message did not move while this side computed");
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub fn play() {
    let (me, _) = place(WORLD);
    let folder = PathBuf::from(std::env::var_os("PULC_TEST_FOLDER").unwrap());
    let (sent, received) = (folder.join("sent"), folder.join("received"));
    // A sender that computes.
    let mut long = Values::filled(me + 5, COUNT);
    if me == 0 {
        let mut request = call::isend(long.addr(), COUNT as i64, INT, 1, 0, WORLD).unwrap();
        compute_until(&sent);
        call::wait(&mut request).unwrap();
    } else {
        call::recv(long.addr(), COUNT as i64, INT, 0, 0, WORLD).unwrap();
        assert_eq!(long.get()[COUNT - 1], 5);
        std::fs::write(&sent, "").unwrap();
    }
    call::barrier(WORLD).unwrap();
    // A receiver that computes.
    let mut long = Values::filled(me + 5, COUNT);
    if me == 0 {
        let mut request = call::irecv(long.addr(), COUNT as i64, INT, 1, 0, WORLD).unwrap();
        compute_until(&received);
        call::wait(&mut request).unwrap();
        assert_eq!(long.get()[COUNT - 1], 6);
    } else {
        call::send(long.addr(), COUNT as i64, INT, 0, 0, WORLD).unwrap();
        std::fs::write(&received, "").unwrap();
    }
    let mut into = Values::filled(0, 1);
    call::allreduce(Values::of(&[me]).addr(), into.addr(), 1, INT, SUM, WORLD).unwrap();
    assert_eq!(into.get(), vec![1]);
}
