//! Active messages in a process without a launcher: rank 0 of 1, which asks itself.

mod leaf;

use pulc::am::{Bundle, Endpoint, Event, Fetch, Group, Medium, Mode, Opcode, Peer, Posted, Reply, Short, Words};
use pulc::{Error, Pulc};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Weak};
use std::time::Duration;

const HANG: Option<Duration> = Some(Duration::from_secs(60));
const PING: Short<(u64,)> = Short::new(1);
const PONG: Reply<(u64,)> = Reply::new(2);
const NOTE: Medium<()> = Medium::new(3);
const OFFER: Fetch<()> = Fetch::new(4);

struct Alone {
    bundle: Arc<Bundle>,
    endpoint: Endpoint,
    me: Peer,
    replies: Arc<AtomicU64>,
}

fn alone(name: &str, mode: Mode, credits: u16) -> Alone {
    let pulc = Pulc::attach().unwrap();
    let bundle = Arc::new(Bundle::new(&pulc, mode).unwrap());
    let endpoint = bundle.endpoint(name, 3).unwrap();
    let replies = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&replies);
    let on_reply = move |_, (_,): (u64,)| {
        count.fetch_add(1, Ordering::Relaxed);
    };
    endpoint.on_reply(PONG, on_reply).unwrap();
    let me = endpoint.map(&bundle, pulc.rank(), name, 3, credits).unwrap();
    Alone { bundle, endpoint, me, replies }
}

#[test]
fn credits_are_taken_by_requests_and_come_back_with_their_answers() {
    let Alone { bundle, endpoint, me, replies } = alone("credits", Mode::Sequential, 2);
    endpoint.on(PING, |token, (n,)| token.reply(PONG, (n,))).unwrap();
    assert_eq!(me.try_request(PING, (1,)).unwrap(), Posted::Done);
    assert_eq!(me.try_request(PING, (2,)).unwrap(), Posted::Done);
    assert_eq!(me.try_request(PING, (3,)).unwrap(), Posted::Again);
    assert_eq!(me.credits(), (0, 2));
    // Waits by running the handlers that give it credit.
    me.request(&bundle, PING, (4,)).unwrap();
    bundle.wait_until(HANG, || replies.load(Ordering::Relaxed) == 3).unwrap();
    assert_eq!(me.credits(), (2, 2));
    assert!(bundle.tally().again > 0);
    assert!(matches!(bundle.wait(Some(Duration::from_millis(1))), Err(Error::Timeout)));
}

#[test]
fn handlers_that_try_to_block_are_refused() {
    let Alone { bundle, endpoint, me, replies } = alone("blocks", Mode::Sequential, 2);
    let cheat: Weak<Bundle> = Arc::downgrade(&bundle);
    let run = move |token: pulc::am::Token<'_>, (n,)| {
        let bundle = cheat.upgrade().expect("the test holds it");
        assert!(matches!(bundle.poll(), Err(Error::InHandler)));
        assert!(matches!(bundle.wait(None), Err(Error::InHandler)));
        assert!(matches!(bundle.wait_event(&Event::new(None), None), Err(Error::InHandler)));
        token.reply(PONG, (n,));
    };
    endpoint.on(PING, run).unwrap();
    me.request(&bundle, PING, (1,)).unwrap();
    bundle.wait_until(HANG, || replies.load(Ordering::Relaxed) == 1).unwrap();
}

#[test]
fn a_handler_that_panics_in_the_polling_thread_leaves_everything_usable() {
    let Alone { bundle, endpoint, me, replies } = alone("panics", Mode::Sequential, 1);
    endpoint.on_error(|back| assert_eq!((back.opcode, back.handler), (Opcode::Short, 9))).unwrap();
    endpoint.on(Short::<()>::new(9), |_, ()| panic!("on purpose")).unwrap();
    endpoint.on(PING, |token, (n,)| token.reply(PONG, (n,))).unwrap();
    me.request(&bundle, Short::<()>::new(9), ()).unwrap();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| bundle.wait(HANG)));
    assert!(panicked.is_err());
    me.request(&bundle, PING, (1,)).unwrap();
    bundle.wait_until(HANG, || replies.load(Ordering::Relaxed) == 1).unwrap();
    assert_eq!(me.credits(), (1, 1));
}

#[test]
fn a_handler_that_panics_after_its_reply_has_replied() {
    let Alone { bundle, endpoint, me, .. } = alone("late panic", Mode::Sequential, 1);
    let (echo, echoed) = (Short::<()>::new(9), pulc::am::MediumReply::<()>::new(10));
    let replies = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&replies);
    endpoint.on_error(|back| panic!("{back:?} came back")).unwrap();
    let run = move |_, (), bytes: &[u8]| {
        assert_eq!(bytes, b"said before");
        count.fetch_add(1, Ordering::Relaxed);
    };
    endpoint.on_reply_medium(echoed, run).unwrap();
    let run = move |token: pulc::am::Token<'_>, ()| {
        token.reply_medium(echoed, (), b"said before").unwrap();
        panic!("on purpose");
    };
    endpoint.on(echo, run).unwrap();
    for turn in 1..=3 {
        me.request(&bundle, echo, ()).unwrap();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| bundle.wait(HANG)));
        assert!(panicked.is_err());
        bundle.wait_until(HANG, || replies.load(Ordering::Relaxed) == turn).unwrap();
    }
    assert_eq!(me.credits(), (1, 1));
}

#[test]
fn handlers_of_a_parallel_bundle_run_at_the_same_time_and_those_of_a_sequential_one_do_not() {
    let Alone { bundle, endpoint, me, replies } = alone("parallel", Mode::Parallel, 4);
    let meet = Arc::new(Barrier::new(2));
    let both = Arc::clone(&meet);
    let run = move |token: pulc::am::Token<'_>, (n,)| {
        // Nobody passes alone.
        both.wait();
        token.reply(PONG, (n,));
    };
    endpoint.on(PING, run).unwrap();
    let servers = [bundle.serve().unwrap(), bundle.serve().unwrap()];
    for n in 0..4 {
        me.request_words(None, Opcode::Short, 1, &Words::new([n; 8], 1), None, &[]).map(drop).unwrap();
    }
    while replies.load(Ordering::Relaxed) < 4 {
        std::thread::sleep(Duration::from_millis(1));
    }
    servers.into_iter().for_each(pulc::am::Server::stop);

    let Alone { bundle, endpoint, me, replies } = alone("sequential", Mode::Sequential, 64);
    let inside = Arc::new(AtomicU64::new(0));
    let run = move |token: pulc::am::Token<'_>, (n,)| {
        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two handlers at a time");
        std::thread::yield_now();
        inside.fetch_sub(1, Ordering::SeqCst);
        token.reply(PONG, (n,));
    };
    endpoint.on(PING, run).unwrap();
    let _servers = [bundle.serve().unwrap(), bundle.serve().unwrap()];
    for n in 0..500 {
        me.request(&bundle, PING, (n,)).unwrap();
    }
    bundle.wait_until(HANG, || replies.load(Ordering::Relaxed) == 500).unwrap();
}

#[test]
fn a_group_tells_when_all_is_done_and_what_failed() {
    let Alone { bundle, endpoint, me, .. } = alone("group", Mode::Sequential, 3);
    endpoint.on_error(|_| {}).unwrap();
    endpoint.on(PING, |token, (n,)| token.reply(PONG, (n,))).unwrap();
    endpoint.on_medium(NOTE, |_, (), _: &[u8]| {}).unwrap();
    endpoint.on_fetch(OFFER, |_declined, ()| {}).unwrap();
    let group = Group::new();
    for n in 0..5 {
        me.telling(Some(&group)).request(&bundle, PING, (n,)).unwrap();
        me.telling(Some(&group)).request_medium(&bundle, NOTE, (), b"note").unwrap();
    }
    me.post_fetch(&bundle, OFFER, (), vec![1; 10], Some(&group)).unwrap();
    let event = me.telling(Some(&group)).request(&bundle, Short::<()>::new(200), ()).unwrap();
    assert_eq!(bundle.wait_group(&group, HANG).unwrap(), 2);
    assert_eq!((group.open(), group.failed(), event.outcome()), (0, 2, Some(false)));
    assert_eq!(me.credits(), (3, 3));
}

#[test]
fn names_and_indices_are_used_once_and_an_endpoint_without_a_tag_is_not_found() {
    let Alone { bundle, endpoint, .. } = alone("once", Mode::Sequential, 1);
    assert!(matches!(bundle.endpoint("once", 3).map(|_| ()), Err(Error::NameTaken { .. })));
    assert!(matches!(bundle.endpoint("", 3).map(|_| ()), Err(Error::BadName { .. })));
    assert!(matches!(endpoint.on_reply(PONG, |_, _| {}), Err(Error::HandlerTaken { index: Some(2), .. })));
    let late = bundle.endpoint("late", pulc::am::TAG_NONE).unwrap();
    let rank = Pulc::attach().unwrap().rank();
    let early = endpoint.map_timeout(&bundle, rank, "late", 9, 1, Duration::from_millis(10));
    assert!(matches!(early.map(|_| ()), Err(Error::UnknownEndpoint { .. })));
    late.set_tag(9);
    endpoint.map(&bundle, rank, "late", 9, 1).unwrap();
}

#[test]
fn what_arrives_while_the_program_has_the_segment_is_there_afterwards() {
    let Alone { bundle, endpoint, me, .. } = alone("segment", Mode::Sequential, 2);
    let landed = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&landed);
    let put = pulc::am::Long::<()>::new(7);
    let run = move |_: pulc::am::Token<'_>, (), landed: pulc::am::Landed<'_>| {
        landed.with(|bytes| assert_eq!(bytes, [7; 3]));
        count.fetch_add(1, Ordering::Relaxed);
    };
    endpoint.on_long(put, run).unwrap();
    endpoint.set_segment(vec![0_u8; 8]);
    endpoint.with_segment(|bytes| {
        me.request_long(&bundle, put, (), 5, &[7; 3]).unwrap();
        assert_eq!(bytes, [0; 8]);
    });
    bundle.wait_until(HANG, || landed.load(Ordering::Relaxed) == 1).unwrap();
    endpoint.with_segment(|bytes| assert_eq!(bytes, [0, 0, 0, 0, 0, 7, 7, 7]));
}

/// Something of a user whose drop locks the engine.
struct Locks {
    bundle: Arc<Bundle>,
    dropped: Arc<AtomicU64>,
    bytes: Vec<u8>,
}

impl Drop for Locks {
    fn drop(&mut self) {
        let _ = self.bundle.tally();
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

impl AsRef<[u8]> for Locks {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AsMut<[u8]> for Locks {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

/// Runs a test in a thread of its own, so that one that locks itself out fails.
fn or_hang(test: impl FnOnce() + Send + 'static) {
    let (done, waits) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        test();
        done.send(()).unwrap();
    });
    let waited = waits.recv_timeout(Duration::from_secs(60));
    assert_ne!(waited, Err(std::sync::mpsc::RecvTimeoutError::Timeout), "the thread has locked itself out");
    thread.join().unwrap();
}

#[test]
fn handlers_of_a_closed_endpoint_are_dropped_with_the_engine_unlocked() {
    or_hang(|| {
        let Alone { bundle, endpoint, me, .. } = alone("closed", Mode::Sequential, 2);
        let dropped = Arc::new(AtomicU64::new(0));
        let locks = |bytes| Locks { bundle: Arc::clone(&bundle), dropped: Arc::clone(&dropped), bytes };
        let owned = locks(Vec::new());
        endpoint.on(PING, move |_, _| assert!(owned.bytes.is_empty(), "its endpoint is closed")).unwrap();
        endpoint.set_segment(locks(vec![0; 8]));
        me.request(&bundle, PING, (1,)).unwrap();
        drop((endpoint, me));
        assert_eq!(dropped.load(Ordering::Relaxed), 1, "the segment");
        // The request goes back, which is the last that anybody knows of the endpoint.
        while dropped.load(Ordering::Relaxed) < 2 {
            bundle.poll().unwrap();
        }
    });
}

#[test]
fn a_segment_that_is_replaced_under_the_eyes_of_its_reader_is_dropped_and_the_new_one_stays() {
    or_hang(|| {
        let Alone { bundle, endpoint, .. } = alone("replaced", Mode::Sequential, 1);
        let dropped = Arc::new(AtomicU64::new(0));
        let old = Locks { bundle: Arc::clone(&bundle), dropped: Arc::clone(&dropped), bytes: vec![1; 8] };
        endpoint.set_segment(old);
        endpoint.with_segment(|bytes| {
            endpoint.set_segment(vec![2_u8; 4]);
            assert_eq!((&*bytes, dropped.load(Ordering::Relaxed)), (&[1; 8][..], 0));
        });
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
        endpoint.with_segment(|bytes| assert_eq!(bytes, [2; 4]));
    });
}

#[test]
fn a_declined_payload_is_dropped_with_the_engine_unlocked() {
    or_hang(|| {
        let Alone { bundle, endpoint, me, .. } = alone("declined", Mode::Sequential, 2);
        let dropped = Arc::new(AtomicU64::new(0));
        endpoint.on_error(|_| {}).unwrap();
        endpoint.on_fetch(OFFER, |_declined, ()| {}).unwrap();
        let offered = Locks { bundle: Arc::clone(&bundle), dropped: Arc::clone(&dropped), bytes: vec![1; 10] };
        let event = me.post_fetch(&bundle, OFFER, (), offered, None).unwrap();
        assert!(!bundle.wait_event(&event, HANG).unwrap());
        bundle.wait_until(HANG, || dropped.load(Ordering::Relaxed) == 1).unwrap();
    });
}
