//! A stream from whoever connects to the `tcp` device, made of an input: what `crate::fuzz` offers of this room.

use super::tcp::FRAME_MAX;
use super::tcp_streams::Arriving;
use std::io::Write;
use std::net::{Shutdown, TcpListener, TcpStream};

/// The bytes come in pieces whose lengths the first byte says.
pub(crate) fn stream(bytes: &[u8]) {
    let [piece, bytes @ ..] = bytes else { return };
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it is bound");
    let mut stranger = TcpStream::connect(address).expect("it listens");
    let (stream, _) = listener.accept().expect("somebody has connected");
    let mut arriving = Arriving::new(stream).expect("a stream");
    let mut frames = 0;
    for piece in bytes.chunks(usize::from(*piece) * 8 + 1) {
        stranger.write_all(piece).expect("a piece fits the socket");
        frames += take(&mut arriving);
    }
    stranger.shutdown(Shutdown::Both).expect("it is connected");
    // What is under way has arrived on loopback when the end has.
    for _ in 0..1000 {
        let goes_on = arriving.fill();
        frames += take_frames(&mut arriving);
        if !goes_on || arriving.breaks_rules() {
            break;
        }
    }
    assert!(frames <= bytes.len() / 4, "{frames} frames out of {} bytes", bytes.len());
}

fn take(arriving: &mut Arriving) -> usize {
    if arriving.breaks_rules() {
        return 0;
    }
    arriving.fill();
    take_frames(arriving)
}

fn take_frames(arriving: &mut Arriving) -> usize {
    if arriving.peer.is_none() {
        if arriving.take_token().is_none() {
            return 0;
        }
        arriving.peer = Some(super::Peer(0));
    }
    let mut frames = 0;
    while let Some(frame) = arriving.next_frame() {
        assert!(frame.len() <= FRAME_MAX);
        frames += 1;
    }
    frames
}
