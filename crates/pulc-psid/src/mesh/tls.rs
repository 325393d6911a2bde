//! TLS between daemons: version 1.3 only, both sides prove membership by a certificate of the cluster's own CA, which is the only root.
//! Called by `dial`, `accept`, `join`. Names and dates in certificates mean nothing here: verification happens at a fixed moment, so
//! no clock can break it, and the node is known by its key.

use crate::error::Error;
use crate::identity::{CERTIFICATE_NAME, Fingerprint, NodeIdentity};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error as TlsError, RootCertStore,
    ServerConfig, SignatureScheme,
};
use std::sync::Arc;
use std::time::Duration;

/// 2020-01-01: inside the validity that every certificate of a cluster has.
const MOMENT: UnixTime = UnixTime::since_unix_epoch(Duration::from_secs(1_577_836_800));

/// The two configurations of a member.
#[derive(Clone)]
pub(crate) struct Tls {
    pub(crate) server: Arc<ServerConfig>,
    pub(crate) client: Arc<ClientConfig>,
}

impl Tls {
    pub(crate) fn of(identity: &NodeIdentity) -> Result<Tls, Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = Arc::new(MemberVerifier::new(identity.ca(), &provider)?);
        let chain = vec![identity.certificate().clone(), identity.ca().clone()];
        let mut server = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(Error::tls)?
            .with_client_cert_verifier(verifier.clone())
            .with_single_cert(chain.clone(), identity.private_key())
            .map_err(Error::tls)?;
        server.send_tls13_tickets = 0;
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(Error::tls)?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_client_auth_cert(chain, identity.private_key())
            .map_err(Error::tls)?;
        client.resumption = Resumption::disabled();
        Ok(Tls { server: Arc::new(server), client: Arc::new(client) })
    }
}

/// What a host uses that has only a token: it shows no certificate and accepts only the CA the token names.
pub(crate) fn joiner(ca: Fingerprint) -> Result<ClientConfig, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = Arc::new(PinnedVerifier { ca, provider: provider.clone() });
    let mut client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(Error::tls)?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    client.resumption = Resumption::disabled();
    Ok(client)
}

/// The name every dial asks for.
pub(crate) fn server_name() -> ServerName<'static> {
    ServerName::try_from(CERTIFICATE_NAME).expect("the certificate name is a valid DNS name")
}

/// Accepts members of one cluster, as client or as server.
#[derive(Debug)]
struct MemberVerifier {
    as_server: Arc<WebPkiServerVerifier>,
    as_client: Arc<dyn ClientCertVerifier>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl MemberVerifier {
    fn new(ca: &CertificateDer<'_>, provider: &Arc<CryptoProvider>) -> Result<MemberVerifier, Error> {
        let mut roots = RootCertStore::empty();
        roots.add(ca.clone().into_owned()).map_err(Error::tls)?;
        let roots = Arc::new(roots);
        let bad = |e: rustls::server::VerifierBuilderError| Error::BadIdentity {
            what: format!("the CA certificate is unusable: {e}"),
        };
        Ok(MemberVerifier {
            as_server: WebPkiServerVerifier::builder_with_provider(roots.clone(), provider.clone())
                .build()
                .map_err(bad)?,
            // A host that joins has no certificate yet; `accept` lets it do nothing else.
            as_client: WebPkiClientVerifier::builder_with_provider(roots, provider.clone())
                .allow_unauthenticated()
                .build()
                .map_err(bad)?,
            algorithms: provider.signature_verification_algorithms,
        })
    }
}

impl ServerCertVerifier for MemberVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        self.as_server.verify_server_cert(end_entity, &[], &server_name(), &[], MOMENT)
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        Err(TlsError::General("TLS 1.2 is never negotiated".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }
}

impl ClientCertVerifier for MemberVerifier {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, TlsError> {
        self.as_client.verify_client_cert(end_entity, &[], MOMENT)
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        Err(TlsError::General("TLS 1.2 is never negotiated".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }
}

/// Accepts a server whose chain holds the CA with one fingerprint.
#[derive(Debug)]
struct PinnedVerifier {
    ca: Fingerprint,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for PinnedVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        let unknown = TlsError::InvalidCertificate(CertificateError::UnknownIssuer);
        let ca = intermediates.iter().find(|ca| Fingerprint::of(ca) == self.ca).ok_or(unknown.clone())?;
        let member = MemberVerifier::new(ca, &self.provider).map_err(|_| unknown)?;
        member.as_server.verify_server_cert(end_entity, &[], &server_name(), &[], MOMENT)
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        Err(TlsError::General("TLS 1.2 is never negotiated".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }
}

/// Whoever judges a certificate: a member that is called, one that calls, and a host that has only a token.
pub(super) struct Verifiers {
    member: MemberVerifier,
    joiner: PinnedVerifier,
}

impl Verifiers {
    pub(super) fn of(identity: &NodeIdentity) -> Result<Verifiers, Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let member = MemberVerifier::new(identity.ca(), &provider)?;
        Ok(Verifiers { member, joiner: PinnedVerifier { ca: identity.cluster(), provider } })
    }

    /// Which of them accept `certificate`, shown together with `ca`.
    pub(super) fn accept(&self, certificate: &CertificateDer<'_>, ca: &CertificateDer<'_>) -> [bool; 3] {
        let (chain, name) = ([ca.clone()], server_name());
        [
            self.member.verify_client_cert(certificate, &chain, MOMENT).is_ok(),
            self.member.verify_server_cert(certificate, &chain, &name, &[], MOMENT).is_ok(),
            self.joiner.verify_server_cert(certificate, &chain, &name, &[], MOMENT).is_ok(),
        ]
    }
}
