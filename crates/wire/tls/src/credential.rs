//! The certificate and key with which a machine proves its identity.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;

use cheetah_kit::file::{open_without_following, others_may_use};
use parking_lot::Mutex;
use ring::hkdf;
use rustls::pki_types::pem::{PemObject as _, SectionKind};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use zeroize::Zeroizing;

use crate::certificate;
use crate::client::{ClientTls, Expected};
use crate::error::{BadCredential, TlsError};
use crate::identity::{Fingerprint, Identity, RoomId};
use crate::provider::provider;
use crate::revocation::REVOCATIONS_BYTES_MAX;
use crate::server::ServerTls;
use crate::trust::{Standing, Trust};

/// The most bytes of a credential file.
const FILE_BYTES_MAX: usize = 2 * REVOCATIONS_BYTES_MAX;
/// Sets secrets that are derived from a private key apart from its other uses.
const SECRETS_SALT: &[u8] = b"cheetah credential secrets v1";
/// The most certificates of a credential.
const CERTIFICATES_MAX: usize = 8;
/// The maximum number of peers that are known to have the list of revoked certificates.
const INFORMED_MAX: usize = 4096;
/// The maximum number of expectations whose sessions can be resumed.
const CLIENTS_MAX: usize = 1024;

/// A certificate with its private key, the certificate of the authority that peers must have, and revoked certificates.
///
/// Clones share everything; two are equal if they are clones. The private key never leaves it.
#[derive(Debug, Clone)]
pub struct Credential(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// `None`: a client without a certificate, as some foreign servers accept.
    own: Option<Arc<CertifiedKey>>,
    identity: Option<Identity>,
    /// Secrets are derived from it; `None` without a private key.
    secrets: Option<hkdf::Prk>,
    trust: Arc<Trust>,
    /// A client for each expectation, so that sessions are resumed.
    clients: Mutex<HashMap<Option<Expected>, ClientTls>>,
    /// The peers that were given the list of revoked certificates, and the number of certificates in it.
    informed: Mutex<HashMap<String, usize>>,
}

/// The sections of PEM files.
#[derive(Default)]
struct Sections {
    certificates: Vec<CertificateDer<'static>>,
    key: Option<PrivateKeyDer<'static>>,
    revocations: Option<Vec<u8>>,
}

impl Credential {
    /// Reads a member's credential from PEM: a private key, its certificate, the certificate of the room's authority
    /// (self-signed), and optionally a list of revoked certificates; in any order.
    ///
    /// # Errors
    ///
    /// If a part is missing or malformed, or the parts do not belong together.
    pub fn from_pem(pem: &[u8]) -> Result<Self, TlsError> {
        let mut sections = Sections::default();
        sections.add(pem)?;
        let (own, authority) = sections.split()?;
        let key = sections.key.take().ok_or(BadCredential::NoKey)?;
        if own.is_empty() {
            return Err(BadCredential::NoCertificate.into());
        }
        let identity = Identity::of_certificate(&own[0])?;
        let credential = Self::new(Some((own, key)), authority, Some(identity))?;
        credential.check_own()?;
        if let Some(der) = sections.revocations {
            credential.replace_revocations(&der)?;
        }
        Ok(credential)
    }

    /// Reads a member's credential from a file that only its owner may read.
    ///
    /// # Errors
    ///
    /// As [`Self::from_pem`], and if the file cannot be read, is a symbolic link, or is readable by other users.
    pub fn from_file(path: &Path) -> Result<Self, TlsError> {
        let failed = |error| TlsError::Read { path: path.to_owned(), error };
        let mut file = open_without_following(File::options().read(true), path).map_err(failed)?;
        if others_may_use(&file).map_err(failed)? {
            return Err(TlsError::Readable(path.to_owned()));
        }
        Self::from_pem(&read(&mut file).map_err(failed)?)
    }

    /// Reads the PEM files of the NBD tools from a folder: `ca-cert.pem`, optionally `client-cert.pem` and
    /// `client-key.pem` (both, or neither), and optionally `ca-crl.pem`.
    ///
    /// If the certificate is that of a room's member, so is the credential. Otherwise, servers are verified by name.
    ///
    /// # Errors
    ///
    /// If a file is missing, cannot be read, or is malformed, or they do not belong together.
    pub fn from_dir(dir: &Path) -> Result<Self, TlsError> {
        let mut sections = Sections::default();
        let mut add = |name: &str, required: bool| {
            let path = dir.join(name);
            let failed = |error| TlsError::Read { path: path.clone(), error };
            match File::open(&path) {
                Ok(mut file) => sections.add(&read(&mut file).map_err(failed)?),
                Err(error) if error.kind() == io::ErrorKind::NotFound && !required => Ok(()),
                Err(error) => Err(failed(error)),
            }
        };
        add("ca-cert.pem", true)?;
        add("client-cert.pem", false)?;
        add("client-key.pem", false)?;
        add("ca-crl.pem", false)?;
        let (own, authority) = sections.split()?;
        let (own, identity) = match (own.is_empty(), sections.key.take()) {
            (true, None) => (None, None),
            (false, Some(key)) => {
                let identity =
                    if Identity::is_member(&own[0])? { Some(Identity::of_certificate(&own[0])?) } else { None };
                (Some((own, key)), identity)
            }
            _ => return Err(BadCredential::HalfOfAPair.into()),
        };
        let credential = Self::new(own, authority, identity)?;
        credential.check_own()?;
        if let Some(der) = sections.revocations {
            credential.replace_revocations(&der)?;
        }
        Ok(credential)
    }

    fn new(
        own: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
        authority: CertificateDer<'static>,
        identity: Option<Identity>,
    ) -> Result<Self, TlsError> {
        let extract =
            |key: &PrivateKeyDer<'_>| hkdf::Salt::new(hkdf::HKDF_SHA256, SECRETS_SALT).extract(key.secret_der());
        let secrets = own.as_ref().map(|(_, key)| extract(key));
        let own = own.map(|(chain, key)| CertifiedKey::from_der(chain, key, provider())).transpose()?;
        let trust = Arc::new(Trust::new(authority)?);
        let (own, clients, informed) = (own.map(Arc::new), Mutex::default(), Mutex::default());
        Ok(Self(Arc::new(Inner { own, identity, secrets, trust, clients, informed })))
    }

    /// Checks that the certificate is signed by the authority, and for its room.
    fn check_own(&self) -> Result<(), TlsError> {
        let (Some(own), Some(identity)) = (&self.0.own, &self.0.identity) else { return Ok(()) };
        let authority = certificate::parse(&self.0.trust.authority)?;
        certificate::parse(&own.cert[0])?
            .verify_signature(Some(authority.public_key()))
            .map_err(|_| BadCredential::NotSigned)?;
        if identity.room != self.0.trust.room() {
            return Err(BadCredential::OtherRoom.into());
        }
        Ok(())
    }

    /// Derives a secret from the private key: 32 bytes, which are the same each time, and of which another `purpose`
    /// tells nothing. `None` without a private key.
    pub fn secret(&self, purpose: &[u8]) -> Option<Zeroizing<[u8; 32]>> {
        let mut secret = Zeroizing::new([0; 32]);
        let parts = [purpose];
        let expanded = self.0.secrets.as_ref()?.expand(&parts, hkdf::HKDF_SHA256).ok()?;
        expanded.fill(&mut *secret).ok()?;
        Some(secret)
    }

    /// The member, if the certificate is one of a room's member.
    pub fn identity(&self) -> Option<&Identity> {
        self.0.identity.as_ref()
    }

    /// The room, if the certificate is one of a room's member.
    pub fn room(&self) -> Option<RoomId> {
        self.identity().map(|identity| identity.room)
    }

    /// The fingerprint of the authority's key.
    pub fn authority_key(&self) -> Fingerprint {
        self.0.trust.key
    }

    /// TLS for connections to members that satisfy `expected`. With a credential that is not a room's, any server with
    /// a certificate for the name that is dialled is accepted. Sessions are resumed across connections made with equal
    /// expectations.
    ///
    /// # Errors
    ///
    /// If the authority's certificate cannot be used.
    pub fn client(&self, expected: Expected) -> Result<ClientTls, TlsError> {
        let (trust, own) = (&self.0.trust, self.0.own.as_ref());
        let expected = self.room().map(|_| expected);
        let mut clients = self.0.clients.lock();
        if let Some(known) = clients.get(&expected) {
            return Ok(known.clone());
        }
        if clients.len() == CLIENTS_MAX {
            clients.clear();
        }
        let made = match expected {
            Some(expected) => ClientTls::member(trust, own, expected)?,
            None => ClientTls::foreign(trust, own)?,
        };
        clients.insert(expected, made.clone());
        Ok(made)
    }

    /// TLS for a server. Clients must be members of the same room, of any role.
    ///
    /// # Errors
    ///
    /// If the credential is not that of a room's member.
    pub fn server(&self) -> Result<ServerTls, TlsError> {
        ServerTls::new(&self.0.trust, self.own()?)
    }

    /// TLS for an enrolment server: clients need no certificate. The server also presents the authority's.
    ///
    /// # Errors
    ///
    /// If the credential is not that of a room's member.
    pub fn enrolment_server(&self) -> Result<ServerTls, TlsError> {
        ServerTls::for_enrolment(&self.0.trust, self.own()?)
    }

    /// The authority's certificate, in DER.
    pub(crate) fn authority(&self) -> &CertificateDer<'static> {
        &self.0.trust.authority
    }

    pub(crate) fn own(&self) -> Result<&Arc<CertifiedKey>, TlsError> {
        self.0.own.as_ref().filter(|_| self.0.identity.is_some()).ok_or(TlsError::NotOfARoom)
    }

    /// The standing of a peer whose certificate, in DER, another TLS library has received and verified.
    ///
    /// # Errors
    ///
    /// If the room's authority has not signed it for a member of this room, or the member is revoked.
    pub fn standing(&self, certificate: &[u8]) -> Result<Standing, TlsError> {
        let identity = Identity::of_certificate(certificate)?;
        self.0.trust.check_signature(certificate)?;
        self.0.trust.check(&identity)?;
        Ok(Standing::new(self.0.trust.clone(), identity))
    }

    /// Replaces the list of revoked certificates. Peers with a certificate on it are refused from now on; their present
    /// connections end at the next request.
    ///
    /// # Errors
    ///
    /// If `der` is malformed, is not signed by the authority, or is older than the list in use.
    pub fn replace_revocations(&self, der: &[u8]) -> Result<(), TlsError> {
        self.0.trust.replace_revocations(der)
    }

    /// The number of revoked certificates that are known. It only grows.
    pub fn revoked(&self) -> usize {
        self.0.trust.revoked()
    }

    /// The list of revoked certificates in use, in DER, if there is one.
    pub fn revocations(&self) -> Option<Vec<u8>> {
        self.0.trust.revocations()
    }

    /// The same for a peer, once: `None` if the peer was given a list as long before, or no certificate is revoked.
    pub fn new_revocations(&self, peer: &str) -> Option<Vec<u8>> {
        let count = Some(self.revoked()).filter(|count| *count > 0)?;
        let mut informed = self.0.informed.lock();
        if informed.len() >= INFORMED_MAX {
            informed.clear();
        }
        // Certificates are never removed from the list.
        let before = informed.insert(peer.to_owned(), count).unwrap_or(0);
        drop(informed);
        if before < count { self.revocations() } else { None }
    }
}

impl PartialEq for Credential {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Credential {}

impl Sections {
    /// Adds the sections of a file.
    fn add(&mut self, pem: &[u8]) -> Result<(), TlsError> {
        for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(pem) {
            let (kind, der) = section.map_err(|_| BadCredential::NotPem)?;
            match kind {
                SectionKind::Certificate if self.certificates.len() == CERTIFICATES_MAX => {
                    return Err(BadCredential::TooManyCertificates.into());
                }
                SectionKind::Certificate => self.certificates.push(der.into()),
                SectionKind::Crl => self.revocations = Some(der),
                SectionKind::PrivateKey | SectionKind::EcPrivateKey | SectionKind::RsaPrivateKey => {
                    if self.key.is_some() {
                        return Err(BadCredential::SeveralKeys.into());
                    }
                    self.key = PrivateKeyDer::from_pem(kind, der);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The chain of the credential's certificate, which comes first, and the authority's certificate.
    fn split(&mut self) -> Result<(Vec<CertificateDer<'static>>, CertificateDer<'static>), TlsError> {
        let mut authority = None;
        let mut chain = Vec::new();
        for der in self.certificates.drain(..) {
            let certificate = certificate::parse(&der)?;
            if certificate.is_ca() && certificate.subject() == certificate.issuer() {
                authority = Some(der);
            } else {
                chain.push(der);
            }
        }
        Ok((chain, authority.ok_or(BadCredential::NoAuthority)?))
    }
}

/// Reads a file of limited size, into memory that is wiped.
fn read(file: &mut File) -> io::Result<Zeroizing<Vec<u8>>> {
    // With its final capacity from the start, the buffer leaves no copies behind.
    let len = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
    if len > FILE_BYTES_MAX {
        return Err(io::Error::other("it is too long for a credential"));
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(len + 1));
    file.take(FILE_BYTES_MAX as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}
