//! What is done with bytes from other daemons, from keepers, from a disk, and from users' hands: for fuzz targets (`fuzz/`) and for the replay of
//! their corpora. Not for programs.

use crate::identity::Token;
use crate::keeper::message::{Order, Report};
use crate::{identity, keeper, mesh, pmi, sockets};
use pulc_control::fuzz::take_apart;

/// Orders of a psid and reports of a keeper; the bytes come in pieces whose length the first one says.
pub fn keeper_frames(bytes: &[u8]) {
    let [piece, bytes @ ..] = bytes else { return };
    take_apart::<Order>(bytes, usize::from(*piece) + 1);
    take_apart::<Report>(bytes, usize::from(*piece) + 1);
}

/// Datagrams at a keeper's attach socket, from a rank and from a stranger.
pub fn keeper_datagrams(bytes: &[u8]) {
    keeper::fuzz_datagrams(bytes);
}

/// What another daemon writes, from its first frame on.
pub fn mesh_frames(bytes: &[u8]) {
    mesh::fuzz_frames(bytes);
}

/// The text that lets a host join.
pub fn token(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(token) = Token::parse(&text) {
        assert_eq!(Token::parse(&token.to_string()).expect("it was just written"), token);
    }
    // Behind a right checksum as well, which no garbling hits by chance.
    if let Ok(token) = Token::parse(&Token::text_of(bytes)) {
        assert!(!token.addresses.is_empty());
    }
}

/// The log of the queue as the controller's disk gives it back.
pub fn queue_log(bytes: &[u8]) {
    pulc_sched::fuzz::journal(bytes);
}

/// What a program that was built for another MPI asks its launcher, and what its job-mates have left for it.
pub fn pmi_questions(bytes: &[u8]) {
    pmi::fuzz_words(bytes);
}

/// What the kernel says about sockets.
pub fn socket_answers(bytes: &[u8]) {
    sockets::fuzz_answers(bytes);
}

/// What other daemons show for certificates.
pub fn certificates(bytes: &[u8]) {
    mesh::fuzz_certificates(bytes);
}

/// Files of the state directory.
pub fn state_files(bytes: &[u8]) {
    identity::fuzz_files(bytes);
}
