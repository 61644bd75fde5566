//! Revoked certificates.

use std::collections::HashSet;

use x509_parser::num_bigint::BigUint;
use x509_parser::prelude::{CertificateRevocationList, FromDer};

use crate::certificate;
use crate::error::TlsError;
use crate::identity::Serial;

/// The most bytes of a list.
pub const REVOCATIONS_BYTES_MAX: usize = 1 << 20;

/// The serial numbers of revoked certificates, from a list that the room's authority signed.
#[derive(Debug, Default)]
pub(crate) struct Revocations {
    number: Option<BigUint>,
    serials: HashSet<Serial>,
    /// The list itself, in DER; empty before the first.
    pub der: Vec<u8>,
}

impl Revocations {
    /// Reads a list in DER that the key of `authority`, a certificate in DER, has signed.
    pub fn read(der: &[u8], authority: &[u8]) -> Result<Self, TlsError> {
        let malformed = TlsError::Malformed;
        if der.len() > REVOCATIONS_BYTES_MAX {
            return Err(malformed("the list of revoked certificates is longer than 1 MiB"));
        }
        let Ok(([], list)) = CertificateRevocationList::from_der(der) else {
            return Err(malformed("the list of revoked certificates is malformed"));
        };
        let authority = certificate::parse(authority)?;
        list.verify_signature(authority.public_key()).map_err(|_| TlsError::ForeignRevocations)?;
        let serials = list.iter_revoked_certificates().map(|revoked| Serial::from_bytes(revoked.raw_serial()));
        Ok(Self { number: list.crl_number().cloned(), serials: serials.collect::<Result<_, _>>()?, der: der.to_vec() })
    }

    /// Whether `self` replaces `known`: its number is not lower, and no certificate is missing. A room whose folder was
    /// restored from a backup signs lists that lack some.
    pub fn is_current(&self, known: &Self) -> bool {
        self.number >= known.number && known.serials.is_subset(&self.serials)
    }

    pub fn len(&self) -> usize {
        self.serials.len()
    }

    pub fn contains(&self, serial: &Serial) -> bool {
        self.serials.contains(serial)
    }
}
