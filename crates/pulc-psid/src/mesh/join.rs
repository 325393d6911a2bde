//! Joining a cluster. The founder's side is the [`Desk`]: it checks the token and certifies the newcomer's key. The newcomer's
//! side is [`join`], called by `pulc join` before its daemon starts. The key itself never travels; what travels is a signature
//! over this connection's keying material, so that a request can't be replayed on another connection.

use super::accept::Host;
use super::connection::Stream;
use super::dial::{DialError, HANDSHAKE, connect};
use super::tls;
use super::wire::{self, Answer, Opening, WireError};
use crate::error::Error;
use crate::identity::{NodeIdentity, NodeKey, PublicKey, StateDir, Token, node_id_of};
use crate::membership::{Member, Refusal};
use pulc_base::log;
use rustls::pki_types::CertificateDer;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::AsyncWriteExt as _;

const PROOF_LABEL: &[u8] = b"EXPORTER-pulc-join";

/// Admits newcomers; only the founder of a cluster has one.
pub(crate) struct Desk {
    pub(crate) state: StateDir,
}

impl Desk {
    pub(crate) fn admit(
        &self,
        host: &Host,
        stream: &Stream,
        secret: [u8; 16],
        public_key: [u8; 32],
        proof: &[u8],
        member: &Member,
    ) -> Result<Answer, Refusal> {
        let tokens = self.state.tokens().map_err(|error| unusable(&error))?;
        if !tokens.iter().any(|token| token.matches(&secret)) {
            return Err(Refusal::WrongToken);
        }
        let key = PublicKey(public_key);
        let material = keying_material(stream).map_err(|_| Refusal::Stranger)?;
        if !key.verify(&material, proof) || key.node_id() != member.id {
            return Err(Refusal::Stranger);
        }
        let ca = self.state.ca().map_err(|error| unusable(&error))?.ok_or(Refusal::NotFounder)?;
        let certificate = ca.certify(&key).map_err(|error| unusable(&error))?;
        let members = host.shared.members();
        let name = free_name(&member.name, &members);
        log!(Info, "mesh", "{name} ({}) joins from {:?}", member.id, member.addresses.first());
        Ok(Answer::Joined { certificate: certificate.to_vec(), name, members })
    }
}

fn unusable(error: &Error) -> Refusal {
    log!(Error, "mesh", "nobody can join: {error}");
    Refusal::NotFounder
}

/// `wanted`, or with a number behind it if another node has that name.
fn free_name(wanted: &str, members: &[Member]) -> String {
    let taken = |name: &str| members.iter().any(|member| member.name == name);
    let numbered = (2..).map(|n| format!("{wanted}-{n}"));
    std::iter::once(wanted.to_owned()).chain(numbered).find(|name| !taken(name)).expect("numbers do not run out")
}

/// What a newcomer gets.
pub struct Joined {
    pub identity: NodeIdentity,
    pub name: String,
    pub members: Vec<Member>,
}

/// Asks the founder for a certificate. `me.id` is filled in here; `me.addresses` is where the daemon will listen.
///
/// # Errors
/// Every refusal and every way of not reaching the founder, in words.
pub async fn join(token: &Token, mut me: Member) -> Result<Joined, Error> {
    let key = NodeKey::new()?;
    me.id = key.public().node_id();
    let config = Arc::new(tls::joiner(token.ca)?);
    let mut key = Some(key);
    let mut unreachable = Vec::new();
    for address in &token.addresses {
        let attempt = ask(&config, *address, token, key.as_ref().expect("taken only on success"), &me);
        match tokio::time::timeout(HANDSHAKE, attempt).await.unwrap_or(Err(DialError::Slow)) {
            Ok((certificate, ca, name, members)) => {
                let identity = key.take().expect("taken only on success").into_identity(certificate, ca)?;
                return Ok(Joined { identity, name, members });
            }
            Err(DialError::Refused(why)) => return Err(refused(why)),
            Err(DialError::Wire(WireError::Version { theirs, ours })) => {
                return Err(Error::WrongVersion { theirs, ours, at: *address });
            }
            Err(error) => unreachable.push(format!("{address}: {}", in_words(&error))),
        }
    }
    Err(Error::Unreachable { tried: unreachable.join("; ") })
}

/// A TLS error at this point means that another cluster answers, which the library's words do not tell.
fn in_words(error: &DialError) -> String {
    match error {
        DialError::Wire(WireError::Io(io)) if io.kind() == std::io::ErrorKind::InvalidData => {
            format!("what answers there is not the cluster of this token ({io})")
        }
        other => other.to_string(),
    }
}

fn refused(why: Refusal) -> Error {
    let why = match why {
        Refusal::WrongToken => {
            "the token is unknown there: revoked, expired or of another cluster; make a new one with `pulc token` on the node that founded it"
        }
        Refusal::NotFounder => "it did not found the cluster and cannot admit nodes; use a token of the founder",
        Refusal::Full => "the cluster is full",
        Refusal::Stranger => "it does not accept the proof of this node's key",
        Refusal::Busy | Refusal::SameIdentity => "it is busy with this node already; try again",
    };
    Error::JoinRefused { why: why.to_owned() }
}

type Admission = (CertificateDer<'static>, CertificateDer<'static>, String, Vec<Member>);

async fn ask(
    config: &Arc<rustls::ClientConfig>,
    address: SocketAddr,
    token: &Token,
    key: &NodeKey,
    me: &Member,
) -> Result<Admission, DialError> {
    let mut stream = connect(config, address).await?;
    let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let ca = chain
        .iter()
        .find(|ca| crate::identity::Fingerprint::of(ca) == token.ca)
        .cloned()
        .ok_or(DialError::BrokenRules)?;
    let material = keying_material(&stream).map_err(|_| DialError::BrokenRules)?;
    let proof = key.sign(&material).map_err(|_| DialError::BrokenRules)?;
    let opening = Opening::Join { secret: token.secret, public_key: key.public().0, proof, member: me.clone() };
    stream.write_all(&wire::preamble_and(me.version, &opening)).await?;
    stream.flush().await?;
    wire::read_preamble(&mut stream, me.version).await?;
    match wire::read_first(&mut stream).await? {
        Answer::Joined { certificate, name, members } => {
            let certificate = CertificateDer::from(certificate);
            if node_id_of(&certificate) != Some(me.id) {
                return Err(DialError::BrokenRules);
            }
            Ok((certificate, ca, name, members))
        }
        Answer::Refused(why) => Err(DialError::Refused(why)),
        Answer::Welcome { .. } => Err(DialError::BrokenRules),
    }
}

fn keying_material(stream: &Stream) -> Result<[u8; 32], rustls::Error> {
    match stream {
        Stream::Client(stream) => stream.get_ref().1.export_keying_material([0; 32], PROOF_LABEL, None),
        Stream::Server(stream) => stream.get_ref().1.export_keying_material([0; 32], PROOF_LABEL, None),
    }
}
