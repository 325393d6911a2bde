//! Scenes with messages between two ranks (MPI-5.0, chapter 3).

use crate::values::{INT, Values, WORLD, place};
use pulc_mpi::call;
use pulc_mpi::consts::{ANY_SOURCE, ANY_TAG, PROC_NULL};
use pulc_mpi::error::Class;
use pulc_mpi::handle::{Message, Request};
use pulc_mpi::status::Status;

pub fn play() {
    let (me, n) = place(WORLD);
    let (right, left) = ((me + 1) % n, (me + n - 1) % n);
    for len in [0, 1, 2, 10, 1000, 16_000, 17_000, 100_000, 3_000_000] {
        let (mut out, mut into) = (Values::filled(me, len), Values::filled(-1, len));
        let mut all = [
            call::isend(out.addr(), out.count(), INT, right, 1, WORLD).unwrap(),
            call::irecv(into.addr(), into.count(), INT, ANY_SOURCE, ANY_TAG, WORLD).unwrap(),
        ];
        let mut received = Status::EMPTY;
        call::waitall(&mut all, &mut |at, status| {
            if at == 1 {
                received = *status;
            }
        })
        .unwrap();
        assert_eq!((received.source, received.tag, received.bytes), (left, 1, len as u64 * 4));
        assert_eq!(into.get(), vec![left; len], "{len} integers");
        assert_eq!(all, [Request::NULL; 2]);
        let status = exchange(&mut out, right, &mut into, left);
        assert_eq!(status.bytes, len as u64 * 4);
    }
    let nobody = call::recv(Values::of(&[]).addr(), 0, INT, PROC_NULL, 0, WORLD).unwrap();
    assert_eq!((nobody.source, nobody.bytes), (PROC_NULL, 0));
    too_long(me, n);
    persistent(right, left, me);
    buffered_and_synchronous(right, left, me);
    cancelled();
}

fn exchange(out: &mut Values, right: i32, into: &mut Values, left: i32) -> Status {
    let (sent, room) = (out.count(), into.count());
    call::sendrecv(out.addr(), sent, INT, right, 2, into.addr(), room, INT, left, 2, WORLD).unwrap()
}

/// A message that does not fit fills the buffer, and the receive says so (MPI-5.0, 3.2.4).
fn too_long(me: i32, n: i32) {
    for len in [2, 100, 50_000] {
        if me == n - 1 {
            call::isend(Values::filled(3, len).addr(), len as i64, INT, 0, 7, WORLD)
                .and_then(|mut request| call::wait(&mut request).map(|_| ()))
                .unwrap_or_else(|error| panic!("{error}"));
        }
        if me == 0 && n > 1 {
            let mut into = Values::filled(0, 1);
            let error = call::recv(into.addr(), 1, INT, n - 1, 7, WORLD).unwrap_err();
            assert_eq!(error.class, Class::TRUNCATE);
            assert_eq!(into.get(), [3]);
        }
        if n == 1 {
            return;
        }
    }
}

/// MPI-5.0, 3.9.
fn persistent(right: i32, left: i32, me: i32) {
    let (mut out, mut into) = (Values::of(&[me]), Values::of(&[-1]));
    let mut all = [
        call::recv_init(into.addr(), 1, INT, left, 8, WORLD).unwrap(),
        call::send_init(out.addr(), 1, INT, right, 8, WORLD).unwrap(),
    ];
    let kept = all;
    for _ in 0..3 {
        call::startall(&mut all).unwrap();
        call::waitall(&mut all, &mut |_, _| {}).unwrap();
        assert_eq!((into.get(), all), (vec![left], kept));
    }
    all.iter_mut().for_each(|request| call::request_free(request).unwrap());
    assert_eq!(all, [Request::NULL; 2]);
}

/// MPI-5.0, 3.4 and 3.6; 3.8.2: what a matched probe has found is for its receive alone.
fn buffered_and_synchronous(right: i32, left: i32, me: i32) {
    let mut lent = Values::filled(0, 100_000);
    call::buffer_attach(lent.addr(), 400_000).unwrap();
    let mut out = Values::filled(me, 50_000);
    call::bsend(out.addr(), 50_000, INT, right, 3, WORLD).unwrap();
    let full = call::bsend(out.addr(), 100_000, INT, right, 3, WORLD).unwrap_err();
    assert_eq!(full.class, Class::BUFFER);
    let mut request = call::issend(out.addr(), 1, INT, right, 4, WORLD).unwrap();
    let (mut message, status) = call::mprobe(left, 3, WORLD).unwrap();
    assert_eq!(status.bytes, 200_000);
    let mut into = Values::filled(-1, 50_000);
    call::mrecv(into.addr(), 50_000, INT, &mut message).unwrap();
    assert_eq!((message, into.get()), (Message::NULL, vec![left; 50_000]));
    call::recv(into.addr(), 1, INT, left, 4, WORLD).unwrap();
    call::wait(&mut request).unwrap();
    assert_eq!(call::buffer_detach().unwrap().1, 400_000);
}

/// MPI-5.0, 3.8.4.
fn cancelled() {
    let mut into = Values::of(&[5]);
    let mut request = call::irecv(into.addr(), 1, INT, ANY_SOURCE, 12345, WORLD).unwrap();
    call::cancel(&mut request).unwrap();
    assert!(call::wait(&mut request).unwrap().cancelled);
}

/// Long and short messages, sent in turn: a receive with a wildcard gets them in this order (MPI-5.0, 3.5).
pub fn order() {
    let (me, _) = place(WORLD);
    let lens = [1, 100_000, 2, 20_000, 3, 40_000, 4, 1_000_000, 5];
    let mut buffers: Vec<Values> = lens.iter().map(|len| Values::filled(*len as i32, *len)).collect();
    for round in 0..3 {
        if me == 0 {
            let mut all: Vec<Request> = buffers
                .iter_mut()
                .map(|values| {
                    let count = values.count();
                    call::isend(values.addr(), count, INT, 1, round, WORLD).unwrap()
                })
                .collect();
            call::waitall(&mut all, &mut |_, _| {}).unwrap();
        } else {
            let mut into = Values::filled(0, 1_000_000);
            for len in lens {
                let status = call::recv(into.addr(), 1_000_000, INT, ANY_SOURCE, ANY_TAG, WORLD).unwrap();
                assert_eq!((status.bytes, status.tag), (len as u64 * 4, round));
                assert!(into.get()[..len].iter().all(|value| *value == len as i32));
            }
        }
    }
}

/// Rank 1 says that it is there and is killed; rank 0 waits for a message of it, and then sends one.
pub fn bereft() {
    let (me, _) = place(WORLD);
    if me == 1 {
        println!("@ here");
        loop {
            std::thread::park();
        }
    }
    let mut into = Values::of(&[0]);
    let error = call::recv(into.addr(), 1, INT, 1, 0, WORLD).unwrap_err();
    assert_eq!(error.class, Class::PROC_ABORTED);
    let error = call::send(into.addr(), 1, INT, 1, 0, WORLD).unwrap_err();
    assert_eq!(error.class, Class::PROC_ABORTED);
}
