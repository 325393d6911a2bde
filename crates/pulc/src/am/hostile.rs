//! Frames that nothing honest sends, against the receive handler: it neither panics nor takes more than was agreed, and honest
//! messages still arrive afterwards.

use super::table::{AmTable, EndpointState, header as header_of};
use super::wire::{Header, Kind};
use super::{Bundle, Mode, Reply, Short};
use crate::Pulc;
use proptest::prelude::*;
use pulc_base::{Proto, Rank};
use pulc_handler::{Begin, Body, Hand, Here, Outbox, ReceiveHandler, TransferId};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const PING: Short<(u64,)> = Short::new(1);
const PONG: Reply<(u64,)> = Reply::new(2);

/// What a hostile process does next.
#[derive(Clone, Debug)]
enum Act {
    Message { header: Vec<u8>, body: usize },
    Parts { header: Vec<u8>, total: usize, parts: Vec<usize>, ends: bool },
}

/// A header with numbers that often mean something here.
fn header() -> impl Strategy<Value = Vec<u8>> {
    let number = prop_oneof![Just(0x10_0000_u32), Just(0x10_0001), Just(0x20_0000), any::<u32>()];
    let word = prop_oneof![0..40_u64, any::<u64>()];
    let fields = (0..16_u8, 0..=9_u8, 0..4_u8, prop_oneof![0..4_u16, any::<u16>()], number);
    (fields, proptest::collection::vec(word, 0..=3)).prop_map(|((kind, words, handler, slot, channel), inline)| {
        let fixed = u64::from(kind)
            | u64::from(words) << 4
            | u64::from(handler) << 8
            | u64::from(slot) << 16
            | u64::from(channel) << 32;
        std::iter::once(fixed).chain(inline).flat_map(u64::to_le_bytes).collect()
    })
}

fn act() -> impl Strategy<Value = Act> {
    let len = prop_oneof![0..100_usize, 0..20_000_usize];
    let message = (header(), len.clone()).prop_map(|(header, body)| Act::Message { header, body });
    let parts = (header(), len.clone(), proptest::collection::vec(len, 0..5), any::<bool>());
    let parts = parts.prop_map(|(header, total, parts, ends)| Act::Parts { header, total, parts, ends });
    prop_oneof![message, parts]
}

fn perform(table: &mut AmTable, here: &mut Here<'_, '_>, act: &Act, id: u32) {
    let bytes = vec![0xa5; 20_000];
    let body = |len: usize| Body::private(&bytes, bytes.len() - len);
    match act {
        Act::Message { header, body: len } => {
            table.message(Rank(0), header, body(*len), 0, here);
        }
        Act::Parts { header, total, parts, ends } => {
            let begun = table.begin(TransferId { src: Rank(0), id }, header, *total, false, 0, here);
            let (Begin::Take(number) | Begin::Hold(number)) = begun;
            parts.iter().for_each(|part| table.part(number, body(*part), here));
            if *ends {
                table.end(number, here);
            } else {
                table.withdrawn(number, here);
            }
        }
    }
}

/// The question of a rank for a channel to `name`, as it comes.
fn ask(table: &mut AmTable, outbox: &mut Outbox, src: u32, name: &str, credits: u64) {
    let front = Header { words: 2, ..header_of(Kind::Map, 7) }.front(&[5, credits]);
    let body = format!("{name}\0its own").into_bytes();
    table.message(Rank(src), front.bytes(), Body::private(&body, 0), 0, &mut Here { hand: &mut Hand::empty(), outbox });
}

#[test]
fn a_rank_that_takes_all_it_can_get_is_the_only_one_that_finds_nothing_left() {
    const GREEDY: u32 = 1;
    const HONEST: u32 = 2;
    let pulc = Pulc::attach().expect("a process by itself can attach");
    let bundle = Bundle::new(&pulc, Mode::Sequential).expect("there is room");
    let open = bundle.endpoint("taken all over", 5).expect("the name is new");
    let shared = Arc::clone(&open.inner.shared);
    let (mut table, mut outbox) = (AmTable::new(1024, 64), Outbox::default());
    let number = table.endpoints.add(|_| EndpointState { shared, segment: None }).expect("there is a place");
    table.names.insert("open".to_owned(), number);
    for question in 0..20_000 {
        ask(&mut table, &mut outbox, GREEDY, "open", 1024);
        ask(&mut table, &mut outbox, GREEDY, &format!("never {question}"), 1024);
    }
    let mappings =
        |table: &mut AmTable, rank| table.incoming.iter_mut().filter(|(_, one)| one.src == Rank(rank)).count();
    let held = mappings(&mut table, GREEDY);
    assert!((1..=1 << 14).contains(&held) && table.waiting(Rank(GREEDY)) == 1024, "{held} mappings");
    for round in 1..=100 {
        ask(&mut table, &mut outbox, HONEST, "open", 16);
        ask(&mut table, &mut outbox, HONEST, "not yet", 16);
        assert_eq!((mappings(&mut table, HONEST), table.waiting(Rank(HONEST))), (round, round));
    }
    assert!(table.incoming.iter_mut().all(|(_, one)| one.src != Rank(HONEST) || one.slots.len() == 16));
    // What it gives back it may have again.
    let first = table
        .incoming
        .iter_mut()
        .find(|(_, one)| one.src == Rank(GREEDY))
        .map(|(number, _)| number)
        .expect("it holds some");
    let unmap = header_of(Kind::Unmap, first).front(&[]);
    let here = &mut Here { hand: &mut Hand::empty(), outbox: &mut outbox };
    table.message(Rank(HONEST), unmap.bytes(), Body::private(&[], 0), 0, here);
    assert_eq!(mappings(&mut table, GREEDY), held, "it is not the honest one's to give back");
    table.message(Rank(GREEDY), unmap.bytes(), Body::private(&[], 0), 0, here);
    ask(&mut table, &mut outbox, GREEDY, "open", 1);
    assert_eq!(mappings(&mut table, GREEDY), held);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn honest_messages_arrive_whatever_came_before(acts in proptest::collection::vec(act(), 0..60), case in any::<u64>()) {
        let pulc = Pulc::attach().expect("a process by itself can attach");
        let bundle = Bundle::new(&pulc, Mode::Sequential).expect("there is room");
        let name = format!("hostile {case}");
        let endpoint = bundle.endpoint(&name, 5).expect("the name is new");
        endpoint.set_segment(vec![0_u8; 1000]);
        let got = Arc::new(AtomicU64::new(0));
        endpoint.on(PING, |token, (n,)| token.reply(PONG, (n,))).expect("the index is free");
        endpoint.on_leaf(Short::<(u64,)>::new(0), |token, (n,)| token.reply(PONG, (n,))).expect("the index is free");
        endpoint.on_leaf(Short::<[u64; 8]>::new(3), |_, _| {}).expect("the index is free");
        let last = Arc::clone(&got);
        endpoint.on_reply(PONG, move |_, (n,)| last.store(n, Ordering::Relaxed)).expect("the index is free");
        endpoint.on_error(|_| {}).expect("there is none yet");
        let old = endpoint.map(&bundle, pulc.rank(), &name, 5, 4).expect("it is open");
        {
            let mut guard = pulc.process.lock();
            let (table, outbox) = guard.engine.handler_and_outbox::<AmTable>(Proto::AM).expect("it is registered");
            for (id, act) in (0..).zip(&acts) {
                perform(table, &mut Here { hand: &mut Hand::empty(), outbox }, act, id);
            }
            let waiting = table.bundles.get(bundle.inner.number).map_or(0, |state| state.inbox.len());
            prop_assert!(waiting <= 8, "{} messages wait where four requests and four answers were agreed on", waiting);
        }
        while bundle.poll().expect("polling is allowed here") > 0 {}
        drop(old);
        let peer = endpoint.map(&bundle, pulc.rank(), &name, 5, 4).expect("it is open");
        peer.request(&bundle, PING, (case | 1,)).expect("there is credit");
        bundle
            .wait_until(Some(std::time::Duration::from_secs(60)), || got.load(Ordering::Relaxed) == case | 1)
            .expect("the reply comes");
    }

    #[test]
    fn a_header_of_random_bytes_is_never_read_beyond_its_end(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        if let Some((header, words)) = Header::parse(&bytes) {
            prop_assert!(words.words().all().len() == usize::from(header.words) && bytes.len() <= 32);
        }
    }
}
