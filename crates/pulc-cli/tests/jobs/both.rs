//! A Rust program that uses MPI and ports: one engine, and one wait for both. Copies of this test binary are the ranks.

use crate::harness::{Job, command, tag};
use pulc::{Address, From, Item, Match, Pulc, Rank, select_items};
use pulc_mpi::call::{self, Pending};
use pulc_mpi::handle::{Comm, Datatype, Op};
use pulc_mpi::memory::Room;
use std::time::Duration;

const INT: Datatype = Datatype(0x4c00_0405);
const SUM: Op = Op(0x5800_0003);

const SCENE: &str = "PULC_TEST_SCENE";
const TURNS: i32 = 100;
const TAG: i32 = 3;
/// Guard against hanging.
const PATIENCE: Option<Duration> = Some(Duration::from_secs(200));

/// Not a test: what the ranks do. Nothing where no scene is named.
#[test]
fn as_a_rank() {
    if std::env::var(SCENE).as_deref() != Ok("both") {
        return;
    }
    call::init().unwrap();
    let pulc = Pulc::attach().unwrap();
    let port = pulc.open_port("both").unwrap();
    let peer = 1 - pulc.rank().0;
    let address = Address::new(Rank(peer), "both");
    call::barrier(Comm::WORLD).unwrap();
    let mut room = Room::new(4);
    for turn in 0..TURNS {
        // The word goes back and forth, now this way, now that way; who waits for it does not know which.
        let sends = turn % 2 == pulc.rank().0 as i32;
        let by_mpi = (turn / 2) % 3 == 0;
        if sends && by_mpi {
            room.addr().write(0, &turn.to_ne_bytes());
            call::send(room.addr(), 4, Datatype::BYTE, peer as i32, TAG, Comm::WORLD).unwrap();
        } else if sends {
            port.send(&address, 0, &turn.to_ne_bytes()).unwrap();
        } else {
            let mut request = call::irecv(room.addr(), 4, Datatype::BYTE, peer as i32, TAG, Comm::WORLD).unwrap();
            let pending = Pending(request);
            let mut items = [Item::port(&port), Item::awaited(&pending)];
            assert_eq!(select_items(&pulc, &mut items, PATIENCE).unwrap(), 1);
            assert_eq!([items[0].ready().read, items[1].ready().read], [!by_mpi, by_mpi], "turn {turn}");
            let mut word = [0; 4];
            if by_mpi {
                assert!(call::test(&mut request).unwrap().is_some());
                room.addr().read(0, &mut word);
            } else {
                port.recv(From::Rank(Rank(peer)), Match::Any, &mut word).unwrap();
                call::cancel(&mut request).unwrap();
                call::wait(&mut request).unwrap();
            }
            assert_eq!(i32::from_ne_bytes(word), turn);
        }
    }
    nonblocking_collective(&pulc, &port);
    call::finalize().unwrap();
}

/// One ends while its process waits for a port.
fn nonblocking_collective(pulc: &Pulc, port: &pulc::Port) {
    let (mut one, mut sum) = (Room::new(4), Room::new(4));
    one.addr().write(0, &(pulc.rank().0 as i32 + 1).to_ne_bytes());
    let mut request = call::iallreduce(one.addr(), sum.addr(), 1, INT, SUM, Comm::WORLD).unwrap();
    let pending = Pending(request);
    let mut items = [Item::port(port), Item::awaited(&pending)];
    assert_eq!(select_items(pulc, &mut items, PATIENCE).unwrap(), 1);
    assert!(items[1].ready().read);
    assert!(call::test(&mut request).unwrap().is_some());
    let mut word = [0; 4];
    sum.addr().read(0, &mut word);
    assert_eq!(i32::from_ne_bytes(word), 3);
}

#[test]
fn one_wait_of_a_rust_program_is_for_messages_of_mpi_and_at_ports() {
    let own = std::env::current_exe().unwrap();
    let words = ["-n", "2", own.to_str().unwrap(), "both::as_a_rank", "--exact", "--nocapture"];
    let tag = tag();
    let mut command = command(&tag, &words);
    let ended = Job::of(command.env(SCENE, "both"), tag.clone()).finish();
    assert_eq!(ended.code(), 0, "{}{}", ended.text(), ended.stderr);
}
