//! The server's side of TLS.

use std::io;
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ServerSessionMemoryCache, UnbufferedServerConnection, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::TLS13;
use rustls::{DistinguishedName, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::channel::{Channel, Secured};
use crate::error::TlsError;
use crate::handshake::{self, Completed};
use crate::identity::Identity;
use crate::provider::{provider, tls13_signatures};
use crate::trust::{Standing, Trust, time_of};

/// The most sessions that can be resumed. Each takes one or two KiB.
const SESSIONS_MAX: usize = 1024;

/// TLS for a server. Clones share resumable sessions.
#[derive(Debug, Clone)]
pub struct ServerTls {
    trust: Arc<Trust>,
    config: Arc<ServerConfig>,
}

impl ServerTls {
    /// A server whose clients must be members of its room, of any role: the caller decides what each role may do.
    pub(crate) fn new(trust: &Arc<Trust>, own: &Arc<CertifiedKey>) -> Result<Self, TlsError> {
        let verifier = Verifier::new(trust, true)?;
        let builder = ServerConfig::builder_with_provider(Arc::clone(provider())).with_protocol_versions(&[&TLS13])?;
        let builder = builder.with_client_cert_verifier(Arc::new(verifier));
        let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(own))));
        config.enable_secret_extraction = true;
        config.session_storage = ServerSessionMemoryCache::new(SESSIONS_MAX);
        Ok(Self { trust: Arc::clone(trust), config: Arc::new(config) })
    }

    /// A server for enrolment: clients need no certificate, and receive the authority's. A member may present its own.
    pub(crate) fn for_enrolment(trust: &Arc<Trust>, own: &Arc<CertifiedKey>) -> Result<Self, TlsError> {
        let mut chain = own.cert.clone();
        chain.push(trust.authority.clone());
        let own = Arc::new(CertifiedKey::new(chain, Arc::clone(&own.key)));
        let builder = ServerConfig::builder_with_provider(Arc::clone(provider())).with_protocol_versions(&[&TLS13])?;
        let builder = builder.with_client_cert_verifier(Arc::new(Verifier::new(trust, false)?));
        let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(own)));
        config.enable_secret_extraction = true;
        Ok(Self { trust: Arc::clone(trust), config: Arc::new(config) })
    }

    /// Performs the handshake over `stream`. Returns the client; `None` for enrolment, if the client shows no
    /// certificate.
    ///
    /// # Errors
    ///
    /// The stream's, and if the handshake fails. Not limited in time.
    pub async fn handshake<S>(&self, stream: &mut S) -> io::Result<(Channel, Option<Standing>)>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let connection = UnbufferedServerConnection::new(Arc::clone(&self.config)).map_err(io::Error::other)?;
        let Completed { mut channel, certificate } = handshake::handshake(connection, stream).await?;
        match certificate.map(|certificate| self.standing(&certificate)).transpose() {
            Ok(standing) => Ok((channel, standing)),
            Err(error) => {
                channel.sender.refuse(stream).await;
                handshake::linger(stream).await;
                Err(io::Error::other(error))
            }
        }
    }

    /// The same, for a stream that is given away.
    ///
    /// # Errors
    ///
    /// As for [`handshake`](Self::handshake).
    pub async fn accept<S>(&self, mut stream: S) -> io::Result<(Secured<S>, Option<Standing>)>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let (channel, standing) = self.handshake(&mut stream).await?;
        Ok((Secured::new(stream, channel), standing))
    }

    /// Checks the certificate of a client, which is properly signed. Again, since a resumed session comes without one.
    fn standing(&self, certificate: &CertificateDer<'_>) -> Result<Standing, TlsError> {
        let identity = Identity::of_certificate(certificate)?;
        self.trust.check(&identity)?;
        Ok(Standing::new(Arc::clone(&self.trust), identity))
    }
}

/// Verifies the certificates of members.
#[derive(Debug)]
struct Verifier {
    trust: Arc<Trust>,
    inner: Arc<dyn ClientCertVerifier>,
    /// Whether a client must show a certificate.
    mandatory: bool,
}

impl Verifier {
    fn new(trust: &Arc<Trust>, mandatory: bool) -> Result<Self, TlsError> {
        let roots = Arc::clone(&trust.roots);
        let inner = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(provider())).build();
        let inner = inner.map_err(|_| TlsError::Malformed("the authority's certificate cannot be used"))?;
        Ok(Self { trust: Arc::clone(trust), inner, mandatory })
    }
}

impl ClientCertVerifier for Verifier {
    fn client_auth_mandatory(&self) -> bool {
        self.mandatory
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let time = time_of([end_entity].into_iter().chain(intermediates)).map_err(TlsError::into_rustls)?;
        let verified = self.inner.verify_client_cert(end_entity, intermediates, time)?;
        let identity = Identity::of_certificate(end_entity).map_err(TlsError::into_rustls)?;
        self.trust.check(&identity).map_err(TlsError::into_rustls)?;
        Ok(verified)
    }

    tls13_signatures!();
}
