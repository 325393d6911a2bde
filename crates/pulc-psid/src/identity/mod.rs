//! Who a node is: its key, its certificate, and the cluster's certificate authority (CA). Called by `pulc up`, `pulc join` and the
//! mesh. A node's id is a hash of its public key, so no two nodes share one and nobody can claim another's. Certificates have no
//! meaningful dates: whether one is trusted depends on its signature and never on a clock.

mod fuzz;
mod store;
mod token;

pub(crate) use fuzz::files as fuzz_files;
pub use store::{DaemonLock, Settings, StateDir};
pub use token::{Token, TokenEntry};

use crate::error::Error;
use pulc_base::NodeId;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PublicKeyData, SigningKey,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use std::net::SocketAddr;

/// The name every node's certificate carries; nodes are told apart by key, not by name.
pub(crate) const CERTIFICATE_NAME: &str = "node.pulc.invalid";

/// The founder's authority to admit nodes. Whoever holds it can make members; it never leaves the founder's state directory.
pub struct ClusterCa {
    key: KeyPair,
    certificate: CertificateDer<'static>,
}

/// What a node proves itself with.
pub struct NodeIdentity {
    key: KeyPair,
    certificate: CertificateDer<'static>,
    ca: CertificateDer<'static>,
    id: NodeId,
}

/// A fresh key of a node that has no certificate yet.
pub struct NodeKey(KeyPair);

impl ClusterCa {
    /// A new cluster. Takes well under a millisecond.
    ///
    /// # Errors
    /// If the system gives no random numbers.
    pub fn new() -> Result<ClusterCa, Error> {
        let key = new_key()?;
        let certificate = ca_parameters()?.self_signed(&key).map_err(Error::certificate)?.der().clone();
        Ok(ClusterCa { key, certificate })
    }

    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// Which cluster this is the authority of.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.certificate)
    }

    pub(crate) fn key_der(&self) -> &[u8] {
        self.key.serialized_der()
    }

    pub(crate) fn from_der(key: &[u8], certificate: &[u8]) -> Result<ClusterCa, Error> {
        Ok(ClusterCa { key: key_from_der(key)?, certificate: CertificateDer::from(certificate.to_vec()) })
    }

    /// Makes `public_key` a member of the cluster.
    pub(crate) fn certify(&self, public_key: &PublicKey) -> Result<CertificateDer<'static>, Error> {
        let issuer = Issuer::new(ca_parameters()?, &self.key);
        let mut parameters = CertificateParams::new(vec![CERTIFICATE_NAME.to_owned()]).map_err(Error::certificate)?;
        parameters.distinguished_name.push(DnType::CommonName, public_key.node_id().to_string());
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        Ok(parameters.signed_by(public_key, &issuer).map_err(Error::certificate)?.der().clone())
    }

    /// A member made on the spot: the founder itself, and the nodes of a local cluster.
    ///
    /// # Errors
    /// If the system gives no random numbers.
    pub fn new_node(&self) -> Result<NodeIdentity, Error> {
        let key = NodeKey::new()?;
        let certificate = self.certify(&key.public())?;
        key.into_identity(certificate, self.certificate.clone())
    }
}

impl NodeKey {
    pub fn new() -> Result<NodeKey, Error> {
        Ok(NodeKey(new_key()?))
    }

    pub(crate) fn public(&self) -> PublicKey {
        let raw = self.0.public_key_raw();
        PublicKey(raw.try_into().expect("an Ed25519 public key has 32 bytes"))
    }

    pub(crate) fn sign(&self, text: &[u8]) -> Result<Vec<u8>, Error> {
        self.0.sign(text).map_err(Error::certificate)
    }

    /// Joins the key and the certificate issued for it.
    pub(crate) fn into_identity(
        self,
        certificate: CertificateDer<'static>,
        ca: CertificateDer<'static>,
    ) -> Result<NodeIdentity, Error> {
        let id = self.public().node_id();
        match node_id_of(&certificate) {
            Some(certified) if certified == id => Ok(NodeIdentity { key: self.0, certificate, ca, id }),
            _ => Err(Error::BadIdentity { what: "the certificate was not issued for this node's key".to_owned() }),
        }
    }
}

impl NodeIdentity {
    pub fn id(&self) -> NodeId {
        self.id
    }

    pub(crate) fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    pub(crate) fn ca(&self) -> &CertificateDer<'static> {
        &self.ca
    }

    pub(crate) fn key_der(&self) -> &[u8] {
        self.key.serialized_der()
    }

    pub(crate) fn from_der(key: &[u8], certificate: &[u8], ca: &[u8]) -> Result<NodeIdentity, Error> {
        NodeKey(key_from_der(key)?)
            .into_identity(CertificateDer::from(certificate.to_vec()), CertificateDer::from(ca.to_vec()))
    }

    pub(crate) fn private_key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.serialize_der()))
    }

    /// Which cluster this is: the hash of its CA certificate.
    pub fn cluster(&self) -> Fingerprint {
        Fingerprint::of(&self.ca)
    }
}

/// Raw Ed25519 public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PublicKey(pub [u8; 32]);

impl PublicKey {
    pub(crate) fn node_id(&self) -> NodeId {
        node_id_of_spki(&self.subject_public_key_info())
    }

    pub(crate) fn verify(&self, text: &[u8], signature: &[u8]) -> bool {
        ring::signature::UnparsedPublicKey::new(&ring::signature::ED25519, &self.0).verify(text, signature).is_ok()
    }
}

impl PublicKeyData for PublicKey {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static rcgen::SignatureAlgorithm {
        &rcgen::PKCS_ED25519
    }
}

/// SHA-256 of a CA certificate.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    pub(crate) fn of(ca: &CertificateDer<'_>) -> Fingerprint {
        Fingerprint(sha256(ca))
    }
}

impl std::fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0[..8].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

/// The id of the node a certificate was issued for; `None` if the bytes are no certificate.
pub(crate) fn node_id_of(certificate: &CertificateDer<'_>) -> Option<NodeId> {
    let parsed = rustls::server::ParsedCertificate::try_from(certificate).ok()?;
    Some(node_id_of_spki(&parsed.subject_public_key_info()))
}

fn node_id_of_spki(spki: &[u8]) -> NodeId {
    let mut id = [0; 16];
    id.copy_from_slice(&sha256(spki)[..16]);
    NodeId(id)
}

pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// Unpredictable bytes.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut bytes).map_err(|_| Error::NoRandomness)?;
    Ok(bytes)
}

/// Where a daemon can be reached, as told to others.
pub(crate) const ADDRESSES_MAX: usize = 16;

/// Cuts a list of addresses to what a message may hold.
pub(crate) fn limit_addresses(mut addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    addresses.truncate(ADDRESSES_MAX);
    addresses
}

fn new_key() -> Result<KeyPair, Error> {
    KeyPair::generate_for(&rcgen::PKCS_ED25519).map_err(Error::certificate)
}

fn key_from_der(der: &[u8]) -> Result<KeyPair, Error> {
    KeyPair::from_pkcs8_der_and_sign_algo(&PrivatePkcs8KeyDer::from(der.to_vec()), &rcgen::PKCS_ED25519)
        .map_err(Error::certificate)
}

/// The same for every cluster, so that the CA can be rebuilt from its key alone.
fn ca_parameters() -> Result<CertificateParams, Error> {
    let mut parameters = CertificateParams::new(Vec::new()).map_err(Error::certificate)?;
    parameters.distinguished_name.push(DnType::CommonName, "pulc cluster");
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    Ok(parameters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_known_by_its_key_and_every_node_is_another_one() {
        let ca = ClusterCa::new().unwrap();
        let (a, b) = (ca.new_node().unwrap(), ca.new_node().unwrap());
        assert_ne!(a.id(), b.id());
        assert_eq!(node_id_of(a.certificate()), Some(a.id()));
        assert_eq!(a.cluster(), b.cluster());
        assert_ne!(ClusterCa::new().unwrap().new_node().unwrap().cluster(), a.cluster());
    }

    #[test]
    fn an_identity_survives_being_written_down_and_a_foreign_certificate_is_refused() {
        let ca = ClusterCa::new().unwrap();
        let (a, b) = (ca.new_node().unwrap(), ca.new_node().unwrap());
        let again = NodeIdentity::from_der(a.key_der(), a.certificate(), a.ca()).unwrap();
        assert_eq!(again.id(), a.id());
        assert!(matches!(NodeIdentity::from_der(a.key_der(), b.certificate(), a.ca()), Err(Error::BadIdentity { .. })));
        assert!(NodeIdentity::from_der(&[1, 2, 3], a.certificate(), a.ca()).is_err());
        let ca_again = ClusterCa::from_der(ca.key_der(), ca.certificate()).unwrap();
        let c = ca_again.new_node().unwrap();
        assert_eq!(c.cluster(), a.cluster());
    }
}
