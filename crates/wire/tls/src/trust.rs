//! The authority that peers are verified against, and the peers that it has revoked.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, UnixTime};

use crate::certificate;
use crate::error::TlsError;
use crate::identity::{Fingerprint, Identity, RoomId, Serial};
use crate::revocation::Revocations;

/// An authority and its revocations.
#[derive(Debug)]
pub(crate) struct Trust {
    pub authority: CertificateDer<'static>,
    pub key: Fingerprint,
    pub roots: Arc<RootCertStore>,
    revocations: RwLock<Revocations>,
    /// Rises with each replacement of `revocations`.
    revision: AtomicU64,
}

impl Trust {
    pub fn new(authority: CertificateDer<'static>) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone())?;
        Ok(Self {
            key: Fingerprint::of_certificate(&authority)?,
            authority,
            roots: Arc::new(roots),
            revocations: RwLock::default(),
            revision: AtomicU64::new(0),
        })
    }

    pub fn room(&self) -> RoomId {
        RoomId::of_authority(&self.key)
    }

    /// Checks that a member, whose certificate the authority has signed, is of its room and not revoked.
    pub fn check(&self, identity: &Identity) -> Result<(), TlsError> {
        if identity.room != self.room() {
            return Err(TlsError::OtherRoom(Box::new(identity.clone()), identity.room));
        }
        if self.revocations.read().contains(&identity.serial) {
            return Err(TlsError::Revoked(Box::new(identity.clone())));
        }
        Ok(())
    }

    /// Checks that the authority has signed a certificate, in DER.
    pub fn check_signature(&self, certificate: &[u8]) -> Result<(), TlsError> {
        let (certificate, authority) = (certificate::parse(certificate)?, certificate::parse(&self.authority)?);
        let signed = certificate.verify_signature(Some(authority.public_key()));
        signed.map_err(|_| TlsError::Malformed("the certificate is not signed by the room"))
    }

    /// Checks that a certificate of others is not revoked.
    pub fn check_serial(&self, certificate: &[u8]) -> Result<(), TlsError> {
        let serial = Serial::from_bytes(certificate::parse(certificate)?.raw_serial())?;
        if self.revocations.read().contains(&serial) { Err(TlsError::ForeignRevoked) } else { Ok(()) }
    }

    pub fn replace_revocations(&self, der: &[u8]) -> Result<(), TlsError> {
        let new = Revocations::read(der, &self.authority)?;
        let mut known = self.revocations.write();
        if !new.is_current(&known) {
            return Err(TlsError::OldRevocations);
        }
        *known = new;
        self.revision.fetch_add(1, Ordering::Release);
        Ok(())
    }

    pub fn revoked(&self) -> usize {
        self.revocations.read().len()
    }

    pub fn revocations(&self) -> Option<Vec<u8>> {
        let known = self.revocations.read();
        Some(known.der.clone()).filter(|der| !der.is_empty())
    }
}

/// Whether a peer's certificate is still accepted. Cheap to ask at each request.
#[derive(Debug)]
pub struct Standing {
    trust: Arc<Trust>,
    identity: Identity,
    /// The revision of the revocations at the last check.
    seen: AtomicU64,
    revoked: AtomicBool,
}

impl Standing {
    pub(crate) fn new(trust: Arc<Trust>, identity: Identity) -> Self {
        Self { trust, identity, seen: AtomicU64::new(u64::MAX), revoked: AtomicBool::new(false) }
    }

    /// The peer.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Whether its certificate has been revoked.
    pub fn is_revoked(&self) -> bool {
        let revision = self.trust.revision.load(Ordering::Acquire);
        if self.seen.load(Ordering::Acquire) != revision {
            self.revoked.store(self.trust.check(&self.identity).is_err(), Ordering::Release);
            self.seen.store(revision, Ordering::Release);
        }
        self.revoked.load(Ordering::Acquire)
    }
}

/// A time at which all certificates of a chain are valid, if there is one: the latest start of their validity.
/// Certificates are verified for this time rather than for this machine's, since clocks of a room are wrong.
pub(crate) fn time_of<'a>(chain: impl IntoIterator<Item = &'a CertificateDer<'a>>) -> Result<UnixTime, TlsError> {
    let mut latest = 0;
    for certificate in chain {
        let start = certificate::parse(certificate)?.validity().not_before.timestamp();
        latest = latest.max(u64::try_from(start).unwrap_or(0));
    }
    Ok(UnixTime::since_unix_epoch(Duration::from_secs(latest)))
}
