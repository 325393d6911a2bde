//! A process without a launcher: rank 0 of 1, which can send to itself.

use pulc::{
    Address, Envelope, Error, From, Item, Match, Mode, Port, Pulc, Rank, Readiness, Wakeup, select, select_items,
};
use std::os::fd::AsFd;
use std::time::Duration;

const HANG: Duration = Duration::from_secs(180);

fn port(name: &str) -> (Pulc, Port, Address) {
    let pulc = Pulc::attach().unwrap();
    let port = pulc.open_port(name).unwrap();
    let address = Address::new(pulc.rank(), name);
    (pulc, port, address)
}

#[test]
fn a_process_started_by_hand_is_rank_0_of_1() {
    let pulc = Pulc::attach().unwrap();
    assert_eq!((pulc.rank(), pulc.size()), (Rank(0), 1));
    assert_eq!(pulc.tasks().len(), 1);
    assert_eq!(pulc.nodes().len(), 1);
    assert!(!pulc.nodes()[0].name.is_empty());
}

#[test]
fn messages_to_oneself_match_by_tag_and_in_order() {
    let (_, port, me) = port("order");
    for (tag, text) in [(1, "a"), (2, "b"), (1, "c"), (2, "d")] {
        port.send(&me, tag, text.as_bytes()).unwrap();
    }
    let mut buffer = [0; 8];
    let mut receive = |tag| {
        let envelope = port.recv(From::Any, tag, &mut buffer).unwrap();
        (envelope.tag, buffer[0])
    };
    assert_eq!(receive(Match::Tag(2)), (2, b'b'));
    assert_eq!(receive(Match::Any), (1, b'a'));
    assert_eq!(receive(Match::Tag(2)), (2, b'd'));
    assert_eq!(receive(Match::Any), (1, b'c'));
    assert_eq!(port.try_recv(From::Any, Match::Any, &mut buffer).unwrap(), None);
}

#[test]
fn a_message_that_does_not_fit_is_kept_and_the_error_says_how_much_is_needed() {
    let (_, port, me) = port("small");
    for len in [100, 100_000, 3_000_000] {
        let bytes: Vec<u8> = (0..len).map(|i| i as u8).collect();
        port.send(&me, 5, &bytes).unwrap();
        let error = port.recv(From::Any, Match::Any, &mut [0; 10]).unwrap_err();
        assert_eq!(error, Error::BufferTooSmall { needed: len, len: 10 });
        let (envelope, got) = port.recv_vec(From::Rank(Rank(0)), Match::Tag(5)).unwrap();
        assert_eq!(envelope, Envelope { src: Rank(0), tag: 5, len });
        assert_eq!(got, bytes);
    }
}

#[test]
fn a_name_that_nobody_opens_is_an_error_after_the_lookup_time() {
    // Safety of the environment: tests of this binary that read it have attached before or do not care.
    let (_, port, _) = port("asker");
    let begin = std::time::Instant::now();
    let nobody = Address::new(Rank(0), "nobody");
    let error = port.send_timeout(&nobody, 0, b"x", Duration::from_millis(50)).unwrap_err();
    assert_eq!(error, Error::Timeout);
    assert!(begin.elapsed() < HANG);
}

#[test]
fn a_name_can_be_opened_after_the_first_send_to_it_has_begun() {
    let (pulc, port, _) = port("early");
    std::thread::scope(|scope| {
        scope.spawn(|| port.send(&Address::new(Rank(0), "late"), 9, b"hello").unwrap());
        std::thread::sleep(Duration::from_millis(20));
        let late = pulc.open_port("late").unwrap();
        let mut buffer = [0; 8];
        assert_eq!(late.recv_timeout(From::Any, Match::Any, &mut buffer, HANG).unwrap().tag, 9);
    });
}

#[test]
fn bad_names_taken_names_and_ranks_that_do_not_exist_are_refused() {
    let (pulc, port, _) = port("taken");
    assert!(matches!(pulc.open_port("taken"), Err(Error::NameTaken { .. })));
    assert!(matches!(pulc.open_port(""), Err(Error::BadName { len: 0, .. })));
    assert!(matches!(pulc.open_port(&"x".repeat(1000)), Err(Error::BadName { len: 1000, .. })));
    let nowhere = Address::new(Rank(7), "taken");
    assert_eq!(port.send(&nowhere, 0, b"").unwrap_err(), Error::NoSuchRank { rank: Rank(7), size: 1 });
    let error = port.try_recv(From::Rank(Rank(7)), Match::Any, &mut []).unwrap_err();
    assert_eq!(error, Error::NoSuchRank { rank: Rank(7), size: 1 });
    drop(port);
    drop(pulc.open_port("taken").expect("a closed port's name is free again"));
}

#[test]
fn a_send_to_a_port_that_was_closed_and_opened_again_finds_the_new_one() {
    let (pulc, port, _) = port("sender");
    let first = pulc.open_port("comes and goes").unwrap();
    let address = Address::new(Rank(0), "comes and goes");
    port.send(&address, 1, b"1").unwrap();
    drop(first);
    // This one is lost with the port, and the sender learns of it.
    port.send(&address, 2, b"2").unwrap();
    let second = pulc.open_port("comes and goes").unwrap();
    port.send(&address, 3, b"3").unwrap();
    let envelope = second.recv_timeout(From::Any, Match::Any, &mut [0; 8], HANG).unwrap();
    assert_eq!(envelope.tag, 3);
}

#[test]
fn datagrams_beyond_the_backlog_are_dropped_and_counted() {
    let (pulc, port, _) = port("receiver");
    let sender = pulc.open_port_with("datagrams", Mode::Datagram).unwrap();
    let address = Address::new(Rank(0), "receiver");
    let bytes = vec![7; 30_000];
    for tag in 0..100 {
        sender.send(&address, tag, &bytes).unwrap();
    }
    let mut received = 0;
    while let Ok((envelope, _)) = port.recv_vec_timeout(From::Any, Match::Any, Duration::from_millis(1)) {
        assert_eq!(envelope.tag, received, "the oldest are kept");
        received += 1;
    }
    assert!(received >= 30, "only {received} of a backlog of 1 MiB");
    assert_eq!(received + port.dropped(), 100);
    assert!(matches!(sender.send(&address, 0, &vec![0; 40_000]), Err(Error::MessageTooLarge { len: 40_000, .. })));
    sender.send(&address, 1, &bytes).unwrap();
    assert!(port.try_recv(From::Any, Match::Any, &mut vec![0; 40_000]).unwrap().is_some(), "there is room again");
}

#[test]
fn select_tells_which_port_has_a_message_and_times_out_when_none_has() {
    let (pulc, a, to_a) = port("select a");
    let b = pulc.open_port("select b").unwrap();
    assert_eq!(select(&[&a, &b], Some(Duration::from_millis(5))), Err(Error::Timeout));
    b.send(&to_a, 1, b"x").unwrap();
    assert_eq!(select(&[&b, &a], Some(HANG)), Ok(1));
    assert_eq!(select(&[], None), Err(Error::BadSelect));
    a.recv(From::Any, Match::Any, &mut [0; 1]).unwrap();
}

#[test]
fn a_wait_for_nothing_or_for_a_closed_descriptor_is_refused() {
    let (pulc, port, _) = port("refusals");
    assert_eq!(select_items(&pulc, &mut [], None), Err(Error::BadSelect));
    let short = Some(Duration::from_millis(2));
    assert_eq!(select_items(&pulc, &mut [Item::port(&port)], short), Err(Error::Timeout));
    let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut items = [Item::port(&port), Item::fd(near.as_fd(), Readiness::READ)];
    assert_eq!(select_items(&pulc, &mut items, short), Err(Error::Timeout));
    // The other end is closed: that is told although it was not asked for.
    drop(far);
    let mut items = [Item::fd(near.as_fd(), Readiness::default())];
    assert_eq!(select_items(&pulc, &mut items, Some(HANG)), Ok(1));
    assert!(items[0].ready().ended && !items[0].ready().write);
    let wakeup = Wakeup::new(&pulc).unwrap();
    assert_eq!(wakeup.arm(&mut [Item::fd(near.as_fd(), Readiness::READ)]), Err(Error::BadSelect));
    assert_eq!(wakeup.arm(&mut [Item::port(&port)]), Ok(0));
}

#[test]
fn a_thread_that_waits_does_not_stop_another_ones_send() {
    let (_, port, me) = port("threads");
    let receivers = 4;
    std::thread::scope(|scope| {
        for tag in 0..receivers {
            let port = &port;
            scope.spawn(move || {
                let mut buffer = [0; 8];
                for turn in 0..200_u64 {
                    let envelope = port.recv_timeout(From::Any, Match::Tag(tag), &mut buffer, HANG).unwrap();
                    assert_eq!((envelope.tag, u64::from_le_bytes(buffer)), (tag, turn));
                }
            });
        }
        for turn in 0..200_u64 {
            for tag in 0..receivers {
                port.send(&me, tag, &turn.to_le_bytes()).unwrap();
            }
            if turn % 50 == 0 {
                std::thread::sleep(Duration::from_millis(3));
            }
        }
    });
}

#[test]
fn a_timeout_ends_a_receive_and_nothing_is_lost_by_it() {
    let (_, port, me) = port("timeout");
    let mut buffer = [0; 4];
    let error = port.recv_timeout(From::Any, Match::Any, &mut buffer, Duration::from_millis(2)).unwrap_err();
    assert_eq!(error, Error::Timeout);
    port.send(&me, 3, b"late").unwrap();
    assert_eq!(port.recv(From::Any, Match::Any, &mut buffer).unwrap().len, 4);
    assert_eq!(&buffer, b"late");
}

#[test]
fn a_receive_that_is_too_small_does_not_keep_the_message_from_the_next_one() {
    let pulc = Pulc::attach().unwrap();
    let port = pulc.open_port("small and large").unwrap();
    let to = Address::new(pulc.rank(), "small and large");
    std::thread::scope(|scope| {
        let small = scope.spawn(|| port.recv_timeout(From::Any, Match::Tag(1), &mut [0; 10], Duration::from_secs(60)));
        // Mostly the small one is posted by now, and then it comes first; if not, the test is an easy one.
        std::thread::sleep(Duration::from_millis(50));
        let large = scope.spawn(|| port.recv_timeout(From::Any, Match::Tag(1), &mut [0; 100], Duration::from_secs(60)));
        std::thread::sleep(Duration::from_millis(50));
        port.send(&to, 1, &[7; 50]).unwrap();
        assert_eq!(large.join().unwrap().unwrap().len, 50);
        // It has its answer, or waits for something that fits.
        port.send(&to, 1, &[7; 5]).unwrap();
        match small.join().unwrap() {
            Ok(envelope) => assert_eq!(envelope.len, 5),
            Err(error) => assert!(matches!(error, Error::BufferTooSmall { needed: 50, len: 10 }), "{error}"),
        }
    });
}
