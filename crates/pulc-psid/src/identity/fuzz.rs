//! Files of the state directory as a damaged disk gives them back, made of an input: what `crate::fuzz` offers of this room. Each is read or
//! refused, and nothing is made of it that could not be kept again.

use super::store::Settings;
use super::token::TokenEntry;
use super::{ClusterCa, NodeIdentity, NodeKey, node_id_of};
use crate::membership::Member;
use pulc_base::boot::{decode, encode};
use rustls::pki_types::CertificateDer;
use serde::{Deserialize, Serialize};
use std::fmt::Debug;

/// The first byte says which file it is.
pub(crate) fn files(bytes: &[u8]) {
    let [which, bytes @ ..] = bytes else { return };
    match which % 4 {
        0 => kept::<Settings>(bytes),
        1 => kept::<Vec<Member>>(bytes),
        2 => kept::<Vec<TokenEntry>>(bytes),
        _ => identity(bytes),
    }
}

fn kept<T: for<'a> Deserialize<'a> + Serialize + PartialEq + Debug>(bytes: &[u8]) {
    if let Ok(value) = decode::<T>(bytes) {
        assert_eq!(decode::<T>(&encode(&value)).expect("it was just written"), value);
    }
}

/// A key behind its length in one byte, then a certificate.
fn identity(bytes: &[u8]) {
    let [len, bytes @ ..] = bytes else { return };
    let (key, certificate) = bytes.split_at(usize::from(*len).min(bytes.len()));
    if let Ok(identity) = NodeIdentity::from_der(key, certificate, certificate) {
        let der = CertificateDer::from(certificate.to_vec());
        assert_eq!(Some(identity.id()), node_id_of(&der), "an identity with somebody else's certificate");
    }
    if let Ok(ca) = ClusterCa::from_der(key, certificate) {
        let key = NodeKey::new().expect("there is randomness");
        let member = ca.certify(&key.public()).expect("a key that was read signs");
        assert_eq!(node_id_of(&member), Some(key.public().node_id()));
    }
}
