//! The client's side of TLS.

use std::hash::{Hash, Hasher};
use std::io;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::client::danger::{ServerCertVerified, ServerCertVerifier};
use rustls::client::{
    Resumption, UnbufferedClientConnection, WebPkiServerVerifier, verify_server_cert_signed_by_trust_anchor,
};
use rustls::pki_types::{CertificateDer, DnsName, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::TLS13;
use sha2::{Digest, Sha256};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::channel::{Channel, Secured};
use crate::error::TlsError;
use crate::handshake::{self, Completed};
use crate::identity::{Fingerprint, Identity};
use crate::provider::{provider, tls13_signatures};
use crate::role::{Role, Roles};
use crate::trust::{Standing, Trust, time_of};

/// The most servers whose sessions can be resumed.
const SESSIONS_MAX: usize = 256;

/// The roles and the key that a client expects of a server. Ignored for servers of other makers, which are verified by
/// name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Expected {
    /// The server has one of these roles.
    pub roles: Roles,
    /// The server has this key.
    pub key: Option<Fingerprint>,
}

impl Expected {
    /// A server of this role, with any key.
    pub const fn role(role: Role) -> Self {
        Self { roles: Roles::of(&[role]), key: None }
    }

    /// A server of one of these roles, with any key.
    pub const fn roles(roles: Roles) -> Self {
        Self { roles, key: None }
    }

    /// Servers of the same roles, with this key only.
    #[must_use]
    pub const fn with_key(self, key: Fingerprint) -> Self {
        Self { key: Some(key), ..self }
    }

    fn check(&self, identity: &Identity) -> Result<(), TlsError> {
        if !self.roles.contains(identity.role) {
            return Err(TlsError::OtherRole(Box::new(identity.clone()), self.roles));
        }
        if self.key.is_some_and(|key| key != identity.key) {
            return Err(TlsError::OtherKey(Box::new(identity.clone())));
        }
        Ok(())
    }
}

/// TLS for connections to servers. Clones share resumable sessions; two are equal if they are clones, or were made by
/// one credential with equal expectations.
#[derive(Debug, Clone)]
pub struct ClientTls {
    rule: Arc<Rule>,
    config: Arc<ClientConfig>,
}

/// Which servers are accepted.
#[derive(Debug)]
enum Rule {
    /// Members of the room that are as expected.
    Member { trust: Arc<Trust>, expected: Expected },
    /// Servers of other makers: any with a certificate for the name that was dialled.
    Foreign { trust: Arc<Trust>, verifier: Arc<WebPkiServerVerifier> },
    /// The enrolment server of the room whose authority has this key.
    Authority(Fingerprint),
}

impl ClientTls {
    pub(crate) fn member(
        trust: &Arc<Trust>,
        own: Option<&Arc<CertifiedKey>>,
        expected: Expected,
    ) -> Result<Self, TlsError> {
        Self::new(Rule::Member { trust: Arc::clone(trust), expected }, own)
    }

    pub(crate) fn foreign(trust: &Arc<Trust>, own: Option<&Arc<CertifiedKey>>) -> Result<Self, TlsError> {
        let roots = Arc::clone(&trust.roots);
        let verifier = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(provider())).build();
        let verifier = verifier.map_err(|_| TlsError::Malformed("the authority's certificate cannot be used"))?;
        Self::new(Rule::Foreign { trust: Arc::clone(trust), verifier }, own)
    }

    /// TLS for enrolment, without a certificate: the server must present a certificate of role `room` or `examiner`,
    /// and with it that of its authority, whose key must be `authority`. Nothing is sent before that is verified.
    ///
    /// # Errors
    ///
    /// If the TLS library refuses.
    pub fn for_enrolment(authority: Fingerprint) -> Result<Self, TlsError> {
        Self::new(Rule::Authority(authority), None)
    }

    fn new(rule: Rule, own: Option<&Arc<CertifiedKey>>) -> Result<Self, TlsError> {
        let rule = Arc::new(rule);
        let builder = ClientConfig::builder_with_provider(Arc::clone(provider()))
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Verifier(Arc::clone(&rule))));
        let mut config = match own {
            Some(own) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(own)))),
            None => builder.with_no_client_auth(),
        };
        config.resumption = Resumption::in_memory_sessions(SESSIONS_MAX);
        config.enable_secret_extraction = true;
        config.enable_sni = matches!(*rule, Rule::Foreign { .. });
        Ok(Self { rule, config: Arc::new(config) })
    }

    fn server_name(&self, host: &str, port: u16) -> Result<ServerName<'static>, TlsError> {
        if self.is_foreign() {
            let name = ServerName::try_from(host.to_owned());
            return name
                .map_err(|_| TlsError::Malformed("the server's address is not a name that a certificate can contain"));
        }
        // Members are verified by role and key; the name, which is not sent, only selects sessions to resume.
        let digest: [u8; 32] = Sha256::digest(format!("{host} {port}")).into();
        let name = Fingerprint(digest).to_string();
        let name = DnsName::try_from(format!("s{}.invalid", &name[..40]));
        Ok(ServerName::DnsName(name.map_err(|_| TlsError::Malformed("the server's address is malformed"))?))
    }

    /// Performs the handshake over `stream`. `host` is the name or address that is dialled, without brackets. Returns
    /// the server's identity; `None` for servers of other makers, of which only the name is verified.
    ///
    /// # Errors
    ///
    /// The stream's, and if the handshake fails or the server is not as expected. Not limited in time.
    pub async fn handshake<S>(&self, host: &str, port: u16, stream: &mut S) -> io::Result<(Channel, Option<Identity>)>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let name = self.server_name(host, port).map_err(io::Error::other)?;
        let connection = UnbufferedClientConnection::new(Arc::clone(&self.config), name).map_err(io::Error::other)?;
        let Completed { channel, certificate } = handshake::handshake(connection, stream).await?;
        // Checked again, because a resumed session transfers no certificates.
        let certificate = certificate.ok_or(TlsError::NoCertificate).map_err(io::Error::other)?;
        Ok((channel, self.rule.accept(&certificate).map_err(io::Error::other)?))
    }

    /// Performs the handshake over a stream, which it takes.
    ///
    /// # Errors
    ///
    /// As for [`handshake`](Self::handshake).
    pub async fn connect<S>(&self, host: &str, port: u16, mut stream: S) -> io::Result<(Secured<S>, Option<Identity>)>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let (channel, identity) = self.handshake(host, port, &mut stream).await?;
        Ok((Secured::new(stream, channel), identity))
    }

    /// Whether the certificate of a server with which a [`handshake`](Self::handshake) was made is still accepted, to
    /// be asked while the connection lasts; `None` for servers that are no members of a room.
    pub fn standing(&self, server: &Identity) -> Option<Standing> {
        match &*self.rule {
            Rule::Member { trust, .. } => Some(Standing::new(Arc::clone(trust), server.clone())),
            Rule::Foreign { .. } | Rule::Authority(_) => None,
        }
    }

    /// Whether servers are verified by name rather than as members of a room.
    pub fn is_foreign(&self) -> bool {
        matches!(*self.rule, Rule::Foreign { .. })
    }
}

impl PartialEq for ClientTls {
    fn eq(&self, other: &Self) -> bool {
        match (&*self.rule, &*other.rule) {
            (Rule::Member { trust, expected }, Rule::Member { trust: others, expected: other }) => {
                Arc::ptr_eq(trust, others) && expected == other
            }
            (Rule::Foreign { trust, .. }, Rule::Foreign { trust: others, .. }) => Arc::ptr_eq(trust, others),
            (Rule::Authority(key), Rule::Authority(other)) => key == other,
            _ => false,
        }
    }
}

impl Eq for ClientTls {}

impl Hash for ClientTls {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match &*self.rule {
            Rule::Member { trust, .. } | Rule::Foreign { trust, .. } => trust.key.hash(state),
            Rule::Authority(key) => key.hash(state),
        }
    }
}

impl Rule {
    /// Checks the certificate of a server, whose signature is verified already.
    fn accept(&self, certificate: &CertificateDer<'_>) -> Result<Option<Identity>, TlsError> {
        match self {
            Self::Member { trust, expected } => {
                let identity = Identity::of_certificate(certificate)?;
                trust.check(&identity)?;
                expected.check(&identity)?;
                Ok(Some(identity))
            }
            Self::Foreign { trust, .. } => trust.check_serial(certificate).map(|()| None),
            Self::Authority(_) => {
                let identity = Identity::of_certificate(certificate)?;
                Expected::role(Role::Room).check(&identity)?;
                Ok(Some(identity))
            }
        }
    }
}

/// Verifies a server's certificate by a [`Rule`].
#[derive(Debug)]
struct Verifier(Arc<Rule>);

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let algorithms = provider().signature_verification_algorithms.all;
        let other = |error: TlsError| error.into_rustls();
        match &*self.0 {
            Rule::Member { trust, .. } => {
                let time = time_of([end_entity].into_iter().chain(intermediates)).map_err(other)?;
                let parsed = ParsedCertificate::try_from(end_entity)?;
                verify_server_cert_signed_by_trust_anchor(&parsed, &trust.roots, intermediates, time, algorithms)?;
            }
            Rule::Foreign { verifier, .. } => {
                let time = time_of([end_entity].into_iter().chain(intermediates)).map_err(other)?;
                verifier.verify_server_cert(end_entity, intermediates, server_name, &[], time)?;
                if verifier.verify_server_cert(end_entity, intermediates, server_name, &[], now).is_err() {
                    tracing::warn!(
                        "the TLS certificate of {} is expired or not yet valid by this machine's clock",
                        server_name.to_str()
                    );
                }
            }
            Rule::Authority(key) => {
                let authority =
                    intermediates.iter().find(|der| Fingerprint::of_certificate(der).is_ok_and(|k| k == *key));
                let authority = authority.ok_or(TlsError::OtherAuthority).map_err(other)?;
                let trust = Trust::new(authority.clone().into_owned()).map_err(other)?;
                let time = time_of([end_entity]).map_err(other)?;
                let parsed = ParsedCertificate::try_from(end_entity)?;
                verify_server_cert_signed_by_trust_anchor(&parsed, &trust.roots, &[], time, algorithms)?;
                trust.check(&Identity::of_certificate(end_entity).map_err(other)?).map_err(other)?;
            }
        }
        self.0.accept(end_entity).map_err(other)?;
        Ok(ServerCertVerified::assertion())
    }

    tls13_signatures!();
}
