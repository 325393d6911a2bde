//! Leaf handlers in a process that asks itself.

use super::{Alone, HANG, PING, PONG, alone, or_hang};
use pulc::am::{Bundle, Group, LeafToken, Medium, Mode, Opcode, Posted, Reply, Returned, Short, Status};
use pulc::{Error, Pulc};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

fn bump(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

const LEAF: Short<(u64,)> = Short::new(20);
const LEAVES: Reply<(u64,)> = Reply::new(21);

/// What a leaf handler may have of a bundle that its types do not see.
static HIDDEN: OnceLock<Bundle> = OnceLock::new();

#[test]
fn a_leaf_handler_answers_in_the_poll_and_gives_the_credit_back() {
    let Alone { bundle, endpoint, me, .. } = alone("leaf", Mode::Sequential, 2);
    let (asked, answered) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let count = Arc::clone(&asked);
    let on_leaf = move |token: LeafToken<'_>, (n,)| {
        assert_eq!(token.source().rank, pulc::Rank(0));
        count.fetch_add(1, Ordering::Relaxed);
        token.reply(LEAVES, (n + 1,));
    };
    endpoint.on_leaf(LEAF, on_leaf).unwrap();
    let sum = Arc::clone(&answered);
    endpoint.on_leaf_reply(LEAVES, move |_, (n,)| bump(&sum, n)).unwrap();
    assert!(matches!(endpoint.on(LEAF, |_, _| {}), Err(Error::HandlerTaken { index: Some(20), .. })));
    for n in 0..100 {
        me.request(&bundle, LEAF, (n,)).unwrap();
    }
    bundle.wait_until(HANG, || answered.load(Ordering::Relaxed) == 100 * 101 / 2).unwrap();
    assert_eq!((asked.load(Ordering::Relaxed), me.credits()), (100, (2, 2)));
    while bundle.poll().unwrap() > 0 {}
    // Those that have run meanwhile are told once.
    assert_eq!(me.try_request(LEAF, (7,)).unwrap(), Posted::Done);
    assert_eq!(bundle.poll().unwrap() + bundle.poll().unwrap(), 2);
    assert_eq!(bundle.poll().unwrap(), 0);
    assert_eq!(bundle.tally().strays, 0);
}

#[test]
fn a_leaf_handler_that_does_not_reply_is_acknowledged_and_whoever_wants_to_know_is_told() {
    let Alone { bundle, endpoint, me, .. } = alone("leaf told", Mode::Sequential, 5);
    endpoint.on_leaf(LEAF, |_, _| {}).unwrap();
    let echo = Short::<(u64,)>::new(22);
    endpoint.on_leaf(echo, |token, (n,)| token.reply(LEAVES, (n,))).unwrap();
    let replies = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&replies);
    endpoint.on_leaf_reply(LEAVES, move |_, _| bump(&count, 1)).unwrap();
    for n in 0..200 {
        me.request(&bundle, LEAF, (n,)).unwrap();
    }
    let group = Group::new();
    for n in 0..50 {
        me.telling(Some(&group)).request(&bundle, LEAF, (n,)).unwrap();
        me.telling(Some(&group)).request(&bundle, echo, (n,)).unwrap();
    }
    assert_eq!(bundle.wait_group(&group, HANG).unwrap(), 0);
    bundle.wait_until(HANG, || replies.load(Ordering::Relaxed) == 50).unwrap();
    bundle.wait_until(HANG, || me.credits() == (5, 5)).unwrap();
}

#[test]
fn a_leaf_handler_takes_as_many_arguments_as_any_other_and_nothing_but_short_messages() {
    let Alone { bundle, endpoint, me, .. } = alone("leaf args", Mode::Sequential, 2);
    let (eight, back) = (Short::<[u64; 8]>::new(23), Reply::<[u64; 8]>::new(24));
    endpoint.on_leaf(eight, move |token, words| token.reply(back, words.map(|word| word + 1))).unwrap();
    let seen = Arc::new(AtomicU64::new(0));
    let last = Arc::clone(&seen);
    let on_back = move |_, words: [u64; 8]| {
        assert_eq!(words, [2, 3, 4, 5, 6, 7, 8, 9]);
        last.fetch_add(1, Ordering::Relaxed);
    };
    endpoint.on_leaf_reply(back, on_back).unwrap();
    me.request(&bundle, eight, [1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    bundle.wait_until(HANG, || seen.load(Ordering::Relaxed) == 1).unwrap();
    let returned = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&returned);
    endpoint.on_error(move |back| list.lock().unwrap().push((back.opcode, back.status))).unwrap();
    me.request_medium(&bundle, Medium::<[u64; 8]>::new(23), [0; 8], b"payload").unwrap();
    me.request(&bundle, Short::<(u64,)>::new(23), (1,)).unwrap();
    // A reply where a request is waited for, and a request where a reply is.
    me.request(&bundle, Short::<[u64; 8]>::new(24), [0; 8]).unwrap();
    endpoint.on_leaf(Short::<()>::new(25), |token, ()| token.reply(Reply::<()>::new(25), ())).unwrap();
    me.request(&bundle, Short::<()>::new(25), ()).unwrap();
    bundle.wait_until(HANG, || returned.lock().unwrap().len() == 4).unwrap();
    let mut returned = returned.lock().unwrap().clone();
    returned.sort_by_key(|(opcode, status)| (format!("{opcode:?}"), *status as u8));
    use Status::{BadArguments, BadHandler};
    let expected = [(Opcode::Medium, BadHandler), (Opcode::Reply, BadHandler), (Opcode::Short, BadArguments)];
    assert_eq!(returned[..3], expected);
    assert_eq!((returned[3], me.credits()), ((Opcode::Short, BadHandler), (2, 2)));
}

#[test]
fn a_leaf_handler_that_panics_leaves_everything_usable_and_its_panic_is_told() {
    let Alone { bundle, endpoint, me, replies } = alone("leaf panics", Mode::Sequential, 1);
    let returned = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&returned);
    let on_error = move |back: Returned| {
        assert_eq!((back.status, back.handler), (Status::Panicked, 20));
        count.fetch_add(1, Ordering::Relaxed);
    };
    endpoint.on_error(on_error).unwrap();
    endpoint.on_leaf(LEAF, |_, (n,)| panic!("on purpose {n}")).unwrap();
    endpoint.on_leaf(PING, |token, (n,)| token.reply(PONG, (n,))).unwrap();
    for turn in 1..=3 {
        me.request(&bundle, LEAF, (turn,)).unwrap();
        let panicked = catch_unwind(AssertUnwindSafe(|| bundle.wait(HANG))).unwrap_err();
        assert_eq!(panicked.downcast_ref::<String>(), Some(&format!("on purpose {turn}")));
        bundle.wait_until(HANG, || returned.load(Ordering::Relaxed) == turn).unwrap();
    }
    me.request(&bundle, PING, (1,)).unwrap();
    bundle.wait_until(HANG, || replies.load(Ordering::Relaxed) == 1).unwrap();
    assert_eq!(me.credits(), (1, 1));
}

#[test]
fn a_leaf_handler_that_calls_pulc_all_the_same_panics_instead_of_waiting_for_itself() {
    or_hang(|| {
        let Alone { bundle, endpoint, me, replies } = alone("leaf cheats", Mode::Sequential, 1);
        HIDDEN.get_or_init(|| Bundle::new(&Pulc::attach().unwrap(), Mode::Sequential).unwrap());
        let hidden = || HIDDEN.get().expect("it is there");
        endpoint.on_error(|back| assert_eq!(back.status, Status::Panicked)).unwrap();
        endpoint.on_leaf(Short::<()>::new(31), move |_, ()| drop(hidden().poll())).unwrap();
        endpoint.on_leaf(Short::<()>::new(32), move |_, ()| assert_eq!(hidden().tally().strays, 0)).unwrap();
        endpoint.on_leaf(Short::<()>::new(33), move |_, ()| drop(hidden().endpoint("from a leaf", 1))).unwrap();
        endpoint.on(PING, |token, (n,)| token.reply(PONG, (n,))).unwrap();
        for cheat in 31..=33 {
            me.request(&bundle, Short::<()>::new(cheat), ()).unwrap();
            let panicked = catch_unwind(AssertUnwindSafe(|| bundle.wait(HANG))).unwrap_err();
            let words = panicked.downcast_ref::<&str>().expect("words without numbers");
            assert!(words.contains("leaf handler has called PULC"), "{words}");
        }
        me.request(&bundle, PING, (1,)).unwrap();
        bundle.wait_until(HANG, || replies.load(Ordering::Relaxed) == 1).unwrap();
        assert!(hidden().poll().is_ok());
    });
}

#[test]
fn a_leaf_handler_runs_in_the_poll_of_a_thread_that_waits_for_something_else() {
    let Alone { bundle, endpoint, me, .. } = alone("leaf elsewhere", Mode::Sequential, 3);
    let asked = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&asked);
    endpoint.on_leaf(LEAF, move |_, _| bump(&count, 1)).unwrap();
    let port = Pulc::attach().unwrap().open_port("waits beside leaves").unwrap();
    // Without a bundle nothing runs handlers here, and still the credit is back each time.
    for n in 0..20 {
        while me.try_request(LEAF, (n,)).unwrap() == Posted::Again {
            let _ = port.recv_timeout(pulc::From::Any, pulc::Match::Any, &mut [0; 8], Duration::from_millis(1));
        }
    }
    while me.credits() != (3, 3) {
        let _ = port.recv_timeout(pulc::From::Any, pulc::Match::Any, &mut [0; 8], Duration::from_millis(1));
    }
    assert_eq!(asked.load(Ordering::Relaxed), 20);
    // What has run meanwhile is told to whoever asks the bundle.
    assert_eq!(bundle.poll().unwrap(), 20);
}
