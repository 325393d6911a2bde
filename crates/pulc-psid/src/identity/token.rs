//! The token that lets a host join: where the founder listens, which CA it must prove to have, and a secret that proves that the
//! joiner was invited. The founder keeps only a hash of the secret, an expiry date and an id by which a token can be revoked.
//! Read by `pulc join`, made by `pulc up` and `pulc token`. Text form: `pulc1-` and base64url, with a checksum, so that a token cut short by a
//! terminal is told apart from a wrong one.

use super::{ADDRESSES_MAX, Fingerprint, limit_addresses, random, sha256};
use crate::error::Error;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const PREFIX: &str = "pulc1-";
const TEXT_MAX: usize = 1024;
/// Tokens a founder keeps at once.
pub(super) const TOKENS_MAX: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    pub addresses: Vec<SocketAddr>,
    pub ca: Fingerprint,
    pub secret: [u8; 16],
}

/// What the founder remembers of a token. Dates are the founder's own wall clock, compared with nobody else's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenEntry {
    pub id: String,
    pub secret_sha256: [u8; 32],
    pub expires_unix_s: u64,
}

impl Token {
    /// A fresh token and what the founder keeps of it.
    pub(super) fn new(
        addresses: Vec<SocketAddr>,
        ca: Fingerprint,
        life: Duration,
    ) -> Result<(Token, TokenEntry), Error> {
        let token = Token { addresses: limit_addresses(addresses), ca, secret: random()? };
        let secret_sha256 = sha256(&token.secret);
        let id = secret_sha256[..4].iter().map(|byte| format!("{byte:02x}")).collect();
        Ok((token, TokenEntry { id, secret_sha256, expires_unix_s: unix_now_s().saturating_add(life.as_secs()) }))
    }

    /// The text with these bytes inside.
    pub(crate) fn text_of(packed: &[u8]) -> String {
        let bytes = [&sha256(packed)[..4], packed].concat();
        format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))
    }

    /// # Errors
    /// [`Error::BadToken`] with the reason in words.
    pub fn parse(text: &str) -> Result<Token, Error> {
        let text = text.trim();
        let bad = |why: &str| Error::BadToken { why: why.to_owned() };
        if text.len() > TEXT_MAX {
            return Err(bad("it is far too long"));
        }
        let body = text.strip_prefix(PREFIX).ok_or_else(|| bad("it does not begin with pulc1-"))?;
        let bytes =
            URL_SAFE_NO_PAD.decode(body).map_err(|_| bad("it holds characters that no token has, or was cut short"))?;
        let (sum, packed) = bytes.split_at_checked(4).ok_or_else(|| bad("it was cut short"))?;
        if sha256(packed)[..4] != *sum {
            return Err(bad("its checksum does not match: it was cut short or mistyped"));
        }
        let (addresses, ca, secret) = pulc_base::boot::decode::<(Vec<SocketAddr>, [u8; 32], [u8; 16])>(packed)
            .map_err(|_| bad("its parts can't be read"))?;
        if addresses.is_empty() || addresses.len() > ADDRESSES_MAX {
            return Err(bad("it names no address to join at"));
        }
        Ok(Token { addresses, ca: Fingerprint(ca), secret })
    }
}

impl std::fmt::Display for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&Token::text_of(&pulc_base::boot::encode(&(&self.addresses, self.ca.0, self.secret))))
    }
}

impl TokenEntry {
    pub fn is_live(&self) -> bool {
        self.expires_unix_s > unix_now_s()
    }

    pub fn matches(&self, secret: &[u8; 16]) -> bool {
        self.secret_sha256 == sha256(secret)
    }

    /// Time until the founder stops accepting it.
    pub fn remaining(&self) -> Duration {
        Duration::from_secs(self.expires_unix_s.saturating_sub(unix_now_s()))
    }
}

fn unix_now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token() -> Token {
        let addresses = vec!["10.1.2.3:7852".parse().unwrap(), "[fe80::1]:7852".parse().unwrap()];
        Token::new(addresses, Fingerprint([7; 32]), Duration::from_secs(60)).unwrap().0
    }

    #[test]
    fn a_token_survives_its_text_form() {
        let token = token();
        assert_eq!(Token::parse(&format!(" {token}\n")).unwrap(), token);
    }

    #[test]
    fn every_cut_and_every_changed_character_is_noticed() {
        let text = token().to_string();
        for len in 0..text.len() {
            assert!(Token::parse(&text[..len]).is_err(), "cut to {len} characters it was accepted");
        }
        for at in 0..text.len() {
            let mut other = text.clone().into_bytes();
            other[at] = if other[at] == b'A' { b'B' } else { b'A' };
            let other = String::from_utf8(other).unwrap();
            assert!(
                Token::parse(&other).map_or(true, |parsed| parsed == token_of(&text)),
                "change at {at} made another token"
            );
        }
        assert!(Token::parse(&"x".repeat(100_000)).is_err());
    }

    fn token_of(text: &str) -> Token {
        Token::parse(text).unwrap()
    }

    #[test]
    fn an_expired_token_is_dead_and_only_its_own_secret_matches() {
        let (token, entry) =
            Token::new(vec!["10.0.0.1:1".parse().unwrap()], Fingerprint([1; 32]), Duration::ZERO).unwrap();
        assert!(!entry.is_live());
        assert!(entry.matches(&token.secret));
        assert!(!entry.matches(&[0; 16]));
    }
}
