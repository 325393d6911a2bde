//! Frames that nothing honest sends, at the receive handler of active messages: what `crate::fuzz` offers of this room. Each input
//! is a row of frames: what happens (a whole message, or one in parts that ends or not), the header behind its length, and how
//! long the body is.

use super::table::AmTable;
use super::{Bundle, Mode, Reply, Short};
use crate::Pulc;
use pulc_base::{Proto, Rank};
use pulc_handler::{Begin, Body, Hand, Here, Outbox, ReceiveHandler, TransferId};

const PING: Short<(u64,)> = Short::new(1);
const PONG: Reply<(u64,)> = Reply::new(2);
const BODY_MAX: usize = 20_000;

pub(crate) fn frames(bytes: &[u8]) {
    let pulc = Pulc::attach().expect("a process by itself can attach");
    let bundle = Bundle::new(&pulc, Mode::Sequential).expect("there is room");
    let endpoint = bundle.endpoint("fuzz", 5).expect("the last one of this name is closed");
    endpoint.set_segment(vec![0_u8; 1000]);
    endpoint.on(PING, |token, (n,)| token.reply(PONG, (n,))).expect("the index is free");
    endpoint.on_reply(PONG, |_, (_,)| {}).expect("the index is free");
    endpoint.on_leaf(Short::<(u64,)>::new(0), |token, (n,)| token.reply(PONG, (n,))).expect("the index is free");
    endpoint.on_leaf_reply(Reply::<[u64; 8]>::new(3), |_, _| {}).expect("the index is free");
    endpoint.on_error(|_| {}).expect("there is none yet");
    let peer = endpoint.map(&bundle, pulc.rank(), "fuzz", 5, 4).expect("it is open");
    {
        let mut guard = pulc.process.lock();
        let (table, outbox) = guard.engine.handler_and_outbox::<AmTable>(Proto::AM).expect("it is registered");
        feed(table, outbox, bytes);
    }
    while bundle.poll().expect("polling is allowed here") > 0 {}
    drop(peer);
}

fn feed(table: &mut AmTable, outbox: &mut Outbox, mut bytes: &[u8]) {
    let body = vec![0xa5; BODY_MAX];
    let mut number = 0;
    while let Some((&[what, header_len, low, high], rest)) = bytes.split_first_chunk::<4>() {
        let (header, behind) = rest.split_at(usize::from(header_len % 33).min(rest.len()));
        bytes = behind;
        let len = usize::from(u16::from_le_bytes([low, high])) % BODY_MAX;
        let body = |len: usize| Body::private(&body, BODY_MAX - len);
        let here = &mut Here { hand: &mut Hand::empty(), outbox };
        number += 1;
        if what % 4 == 0 {
            table.message(Rank(0), header, body(len), 0, here);
            continue;
        }
        let begun = table.begin(TransferId { src: Rank(0), id: number }, header, len, false, 0, here);
        let (Begin::Take(transfer) | Begin::Hold(transfer)) = begun;
        if what % 4 > 1 {
            table.part(transfer, body(len / 2), here);
        }
        if what % 4 == 3 {
            table.part(transfer, body(len - len / 2), here);
            table.end(transfer, here);
        } else {
            table.withdrawn(transfer, here);
        }
    }
}
