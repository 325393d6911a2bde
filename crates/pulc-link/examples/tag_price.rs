//! What does the authentication of a frame cost? Prices the candidates of ADR 0004 on this machine, beside one `sendmsg` of a
//! datagram of the same size over loopback. Run by hand:
//! `cargo run --release -p pulc-link --example tag_price`. Prints a table; compare rows of one run only.

use aegis::aegis128l::{Aegis128L, Aegis128LMac};
use aegis::aegis128x2::{Aegis128X2, Aegis128X2Mac};
use ring::aead::{AES_128_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use siphasher::sip128::{Hasher128, SipHasher13, SipHasher24};
use std::hash::Hasher;
use std::hint::black_box;
use std::net::UdpSocket;
use std::time::Instant;

const SIZES: [usize; 4] = [64, 256, 1472, 16_384];
const HEADER: usize = 48;
const TAG: usize = 16;
const ROUNDS: usize = 9;

type Price<'a> = (&'static str, Box<dyn FnMut(u64, &mut [u8]) + 'a>);

fn nonce12(counter: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&counter.to_le_bytes());
    Nonce::assume_unique_for_key(nonce)
}

fn nonce16(counter: u64) -> [u8; 16] {
    let mut nonce = [0; 16];
    nonce[..8].copy_from_slice(&counter.to_le_bytes());
    nonce
}

/// The tag over header and packet, everything in the clear.
fn tag_only() -> Vec<Price<'static>> {
    let gcm = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &[7; 16]).expect("16 bytes are a key"));
    let chacha = LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, &[7; 32]).expect("32 bytes are a key"));
    let ring_tag = |key: LessSafeKey| {
        move |counter: u64, frame: &mut [u8]| {
            let (body, end) = frame.split_at_mut(frame.len() - TAG);
            let tag = key.seal_in_place_separate_tag(nonce12(counter), Aad::from(body), &mut []).expect("short enough");
            end.copy_from_slice(tag.as_ref());
        }
    };
    let split = |frame: &mut [u8], tag: &dyn Fn(&[u8]) -> [u8; TAG]| {
        let (body, end) = frame.split_at_mut(frame.len() - TAG);
        end.copy_from_slice(&tag(body));
    };
    vec![
        ("AES-128-GCM as GMAC (ring)", Box::new(ring_tag(gcm))),
        ("ChaCha20-Poly1305, tag only (ring)", Box::new(ring_tag(chacha))),
        (
            "BLAKE3 keyed",
            Box::new(move |counter, frame| {
                split(frame, &|body| {
                    let mut mac = blake3::Hasher::new_keyed(&[7; 32]);
                    mac.update(&counter.to_le_bytes()).update(body);
                    mac.finalize().as_bytes()[..TAG].try_into().expect("16 bytes")
                })
            }),
        ),
        (
            "SipHash-2-4-128",
            Box::new(move |counter, frame| {
                split(frame, &|body| {
                    let mut mac = SipHasher24::new_with_key(&[7; 16]);
                    mac.write_u64(counter);
                    mac.write(body);
                    mac.finish128().as_bytes()
                })
            }),
        ),
        (
            "SipHash-1-3-128",
            Box::new(move |counter, frame| {
                split(frame, &|body| {
                    let mut mac = SipHasher13::new_with_key(&[7; 16]);
                    mac.write_u64(counter);
                    mac.write(body);
                    mac.finish128().as_bytes()
                })
            }),
        ),
        (
            "AEGIS-128L, all as associated data",
            Box::new(move |counter, frame| {
                split(frame, &|body| Aegis128L::<TAG>::new(&[7; 16], &nonce16(counter)).encrypt_in_place(&mut [], body))
            }),
        ),
        (
            "AEGIS-128X2, all as associated data",
            Box::new(move |counter, frame| {
                split(frame, &|body| {
                    Aegis128X2::<TAG>::new(&[7; 16], &nonce16(counter)).encrypt_in_place(&mut [], body)
                })
            }),
        ),
        (
            "AEGIS-128L MAC",
            Box::new(move |counter, frame| {
                split(frame, &|body| {
                    let mut mac = Aegis128LMac::<TAG>::new_with_nonce(&[7; 16], &nonce16(counter));
                    mac.update(body);
                    mac.finalize()
                })
            }),
        ),
        (
            "AEGIS-128X2 MAC",
            Box::new(move |counter, frame| {
                split(frame, &|body| {
                    let mut mac = Aegis128X2Mac::<TAG>::new_with_nonce(&[7; 16], &nonce16(counter));
                    mac.update(body);
                    mac.finalize()
                })
            }),
        ),
    ]
}

/// Header as associated data, packet encrypted in place.
fn encrypted() -> Vec<Price<'static>> {
    let ring_seal = |key: LessSafeKey| {
        move |counter: u64, frame: &mut [u8]| {
            let (body, end) = frame.split_at_mut(frame.len() - TAG);
            let (header, packet) = body.split_at_mut(HEADER.min(body.len()));
            let tag =
                key.seal_in_place_separate_tag(nonce12(counter), Aad::from(header), packet).expect("short enough");
            end.copy_from_slice(tag.as_ref());
        }
    };
    let gcm = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &[7; 16]).expect("16 bytes are a key"));
    let chacha = LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, &[7; 32]).expect("32 bytes are a key"));
    vec![
        ("AES-128-GCM, encrypted (ring)", Box::new(ring_seal(gcm))),
        ("ChaCha20-Poly1305, encrypted (ring)", Box::new(ring_seal(chacha))),
        (
            "AEGIS-128L, encrypted",
            Box::new(|counter, frame| {
                let (body, end) = frame.split_at_mut(frame.len() - TAG);
                let (header, packet) = body.split_at_mut(HEADER.min(body.len()));
                end.copy_from_slice(
                    &Aegis128L::<TAG>::new(&[7; 16], &nonce16(counter)).encrypt_in_place(packet, header),
                );
            }),
        ),
        (
            "AEGIS-128X2, encrypted",
            Box::new(|counter, frame| {
                let (body, end) = frame.split_at_mut(frame.len() - TAG);
                let (header, packet) = body.split_at_mut(HEADER.min(body.len()));
                end.copy_from_slice(
                    &Aegis128X2::<TAG>::new(&[7; 16], &nonce16(counter)).encrypt_in_place(packet, header),
                );
            }),
        ),
    ]
}

/// What there is to compare with: filling a frame without a tag, and one `sendmsg` of it to a socket of this machine.
fn yardsticks<'a>(socket: &'a UdpSocket) -> Vec<Price<'a>> {
    let source = vec![3u8; 1 << 16];
    vec![
        (
            "no tag (copy of the packet)",
            Box::new(move |counter, frame| {
                let len = frame.len();
                frame.copy_from_slice(&source[..len]);
                frame[..8].copy_from_slice(&counter.to_le_bytes());
            }),
        ),
        (
            "sendmsg over loopback",
            Box::new(move |_, frame| {
                let _ = socket.send(frame);
            }),
        ),
    ]
}

/// Best of some rounds, in nanoseconds a frame.
fn measure(price: &mut Price<'_>, size: usize, counter: &mut u64) -> f64 {
    let mut frame = vec![1u8; size];
    let per_round = (2_000_000 / (size + 200)).max(50);
    let mut best = f64::MAX;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..per_round {
            *counter += 1;
            price.1(*counter, black_box(&mut frame));
        }
        best = best.min(start.elapsed().as_nanos() as f64 / per_round as f64);
    }
    best
}

fn main() -> std::io::Result<()> {
    // Nobody reads the receiving socket: when it is full the kernel drops, so the price is that of a send, not of a queue.
    let drain = UdpSocket::bind("127.0.0.1:0")?;
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.connect(drain.local_addr()?)?;
    println!(
        "{:<38} {:>9} {:>9} {:>9} {:>9} {:>8}",
        "ns a frame of bytes:", SIZES[0], SIZES[1], SIZES[2], SIZES[3], "GB/s"
    );
    let mut counter = 0;
    for price in yardsticks(&socket).iter_mut().chain(&mut tag_only()).chain(&mut encrypted()) {
        let ns = SIZES.map(|size| measure(price, size, &mut counter));
        println!(
            "{:<38} {:>9.0} {:>9.0} {:>9.0} {:>9.0} {:>8.1}",
            price.0,
            ns[0],
            ns[1],
            ns[2],
            ns[3],
            SIZES[2] as f64 / ns[2]
        );
    }
    Ok(())
}
