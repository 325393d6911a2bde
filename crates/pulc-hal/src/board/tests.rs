//! The board between two threads and two mappings: nothing rung is lost, nothing published is missed.

use super::*;

#[test]
fn a_ring_between_the_last_look_and_the_sleep_is_not_lost() {
    let (board, _fd) = Board::create(1).unwrap();
    let slot = board.slot(0);
    for how in [Sleep::Futex, Sleep::Poll] {
        let bell = Bell::new().unwrap();
        let ring_end = bell.share().unwrap();
        slot.prepare_sleep(how);
        assert!(slot.sleeping());
        assert!(slot.ring(Some(ring_end.as_fd())), "the owner said that it sleeps");
        assert!(!slot.ring(Some(ring_end.as_fd())), "once is enough");
        let woken = match how {
            Sleep::Futex => slot.sleep(None),
            Sleep::Poll => slot.sleep_in_poll(Some(&bell), &[], &mut Watched::default(), None),
        };
        assert_eq!(woken.unwrap(), Woken::Rung);
        assert!(!slot.sleeping());
    }
}

#[test]
fn two_threads_hand_over_many_times_without_losing_a_wake_up() {
    let (board, fd) = Board::create(2).unwrap();
    let other = Board::attach(fd.as_fd(), 2).unwrap();
    let bells = [Bell::new().unwrap(), Bell::new().unwrap()];
    let turn = AtomicU32::new(0);
    let watchdogs = AtomicU32::new(0);
    const TURNS: u32 = 2000;
    let play = |board: &Board, me: u32| {
        let ring_end = bells[1 - me as usize].share().unwrap();
        loop {
            let now = turn.load(Ordering::SeqCst);
            if now >= TURNS {
                return;
            }
            if now % 2 == me {
                turn.store(now + 1, Ordering::SeqCst);
                board.slot(1 - me).ring(Some(ring_end.as_fd()));
                continue;
            }
            let slot = board.slot(me);
            // Both ways of sleeping, in turn.
            let how = if now % 4 < 2 { Sleep::Futex } else { Sleep::Poll };
            slot.prepare_sleep(how);
            if turn.load(Ordering::SeqCst) != now {
                slot.cancel();
                continue;
            }
            let woken = match how {
                Sleep::Futex => slot.sleep(None),
                Sleep::Poll => slot.sleep_in_poll(Some(&bells[me as usize]), &[], &mut Watched::default(), None),
            };
            if woken.unwrap() == Woken::Watchdog && turn.load(Ordering::SeqCst) != now {
                watchdogs.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| play(&other, 1));
        play(&board, 0);
    });
    // On a loaded machine the watchdog may win a race by a hair; a lost wake-up would show in every turn.
    let lost = watchdogs.load(Ordering::Relaxed);
    assert!(lost < TURNS / 100, "{lost} wake-ups came only from the watchdog");
}

#[test]
fn a_message_of_the_broker_is_counted_and_wakes() {
    let (board, _fd) = Board::create(3).unwrap();
    let slot = board.slot(2);
    slot.prepare_sleep(Sleep::Futex);
    slot.announce_broker_message();
    assert_eq!((slot.broker_waiting(), slot.sleeping()), (1, false));
    assert_eq!((board.slot(1).broker_waiting(), board.slot(0).broker_waiting()), (0, 0));
}

#[test]
fn a_readable_descriptor_ends_a_sleep_in_poll() {
    let (board, _fd) = Board::create(1).unwrap();
    let (read, write) = rustix::pipe::pipe().unwrap();
    let bell = Bell::new().unwrap();
    let slot = board.slot(0);
    slot.prepare_sleep(Sleep::Poll);
    rustix::io::write(&write, b"x").unwrap();
    assert_eq!(slot.sleep_in_poll(Some(&bell), &[read.as_fd()], &mut Watched::default(), None).unwrap(), Woken::Rung);
    let none = Some(Duration::from_millis(1));
    rustix::io::read(&read, &mut [0]).unwrap();
    slot.prepare_sleep(Sleep::Poll);
    assert_eq!(
        slot.sleep_in_poll(Some(&bell), &[read.as_fd()], &mut Watched::default(), none).unwrap(),
        Woken::Deadline
    );
    slot.prepare_sleep(Sleep::Futex);
    assert_eq!(slot.sleep(none).unwrap(), Woken::Deadline);
}

#[test]
fn what_a_rank_publishes_is_seen_by_the_others() {
    let (board, fd) = Board::create(2).unwrap();
    let other = Board::attach(fd.as_fd(), 2).unwrap();
    assert_eq!(other.slot(1).core(), None);
    board.slot(1).publish_core(0);
    board.slot(1).set_pinned(true);
    board.slot(1).made_progress();
    let seen = other.slot(1);
    assert_eq!((seen.core(), seen.pinned(), seen.progress()), (Some(0), true, 1));
    board.slot(1).reset();
    assert_eq!((seen.core(), seen.pinned(), seen.progress()), (None, false, 0));
}

#[test]
fn boards_of_impossible_size_are_refused() {
    assert!(Board::create(0).is_err());
    assert!(Board::create(SLOTS_MAX + 1).is_err());
    let (_board, fd) = Board::create(2).unwrap();
    assert!(Board::attach(fd.as_fd(), 3).is_err());
}

#[test]
fn a_word_that_a_broken_job_mate_wrote_only_wakes() {
    let (board, _fd) = Board::create(1).unwrap();
    let slot = board.slot(0);
    slot.doorbell().store(77, Ordering::Relaxed);
    assert!(slot.ring(None));
    assert!(!slot.ring(None));
}

#[test]
fn whoever_shuts_a_bell_or_rings_it_without_end_keeps_its_owner_neither_asleep_nor_awake() {
    let (board, _fd) = Board::create(1).unwrap();
    let slot = board.slot(0);
    let bell = Bell::new().unwrap();
    let ring_end = bell.share().unwrap();
    // As much as the socket takes, and more all the time.
    let stop = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let flood = scope.spawn(|| {
            while stop.load(Ordering::Relaxed) == 0 {
                let _ = rustix::net::send(&ring_end, &[1; 65536], rustix::net::SendFlags::DONTWAIT);
            }
        });
        for _ in 0..50 {
            slot.prepare_sleep(Sleep::Poll);
            slot.sleep_in_poll(Some(&bell), &[], &mut Watched::default(), None).unwrap();
        }
        stop.store(1, Ordering::Relaxed);
        flood.join().unwrap();
    });
    rustix::net::shutdown(&ring_end, rustix::net::Shutdown::Both).unwrap();
    let mut looked_up = 0;
    while !bell.is_mute() {
        slot.prepare_sleep(Sleep::Poll);
        slot.sleep_in_poll(Some(&bell), &[], &mut Watched::default(), None).unwrap();
        looked_up += 1;
        assert!(looked_up < 10_000, "the bell rings for ever");
    }
    slot.prepare_sleep(Sleep::Poll);
    assert_eq!(slot.sleep_in_poll(Some(&bell), &[], &mut Watched::default(), None).unwrap(), Woken::Watchdog);
    let (read, write) = rustix::pipe::pipe().unwrap();
    rustix::io::write(&write, b"x").unwrap();
    slot.prepare_sleep(Sleep::Poll);
    assert_eq!(
        slot.sleep_in_poll(Some(&bell), &[read.as_fd()], &mut Watched::default(), None).unwrap(),
        Woken::Rung,
        "descriptors still wake it"
    );
}
