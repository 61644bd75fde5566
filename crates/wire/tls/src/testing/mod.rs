//! Rooms made in memory, and records made by hand, for tests.

// A failure fails the test.
#![allow(clippy::unwrap_used)]

mod direction;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertificateRevocationListParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, PublicKeyData as _,
    RevokedCertParams, SanType, date_time_ymd,
};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

pub use self::direction::{Forger, Reader, direction};
use crate::{Credential, Fingerprint, Identity, Role, RoomId};

/// An authority that signs anything.
pub struct Room {
    certificate: Certificate,
    issuer: Issuer<'static, KeyPair>,
    id: RoomId,
    lists: AtomicU64,
}

/// A member's files, in PEM.
#[derive(Debug, Clone)]
pub struct Member {
    /// The certificate.
    pub certificate: String,
    /// The private key.
    pub key: String,
    /// The authority's certificate.
    pub authority: String,
}

impl Member {
    /// One file of everything.
    pub fn pem(&self) -> String {
        format!("{}{}{}", self.key, self.certificate, self.authority)
    }

    /// The credential.
    pub fn credential(&self) -> Credential {
        Credential::from_pem(self.pem().as_bytes()).unwrap()
    }

    /// The certificate in DER.
    pub fn certificate_der(&self) -> Vec<u8> {
        CertificateDer::from_pem_slice(self.certificate.as_bytes()).unwrap().to_vec()
    }

    /// Writes the layout of the NBD tools, with the certificate as a client's and a server's.
    pub fn write_to(&self, dir: &Path) {
        std::fs::write(dir.join("ca-cert.pem"), &self.authority).unwrap();
        for side in ["client", "server"] {
            std::fs::write(dir.join(format!("{side}-cert.pem")), &self.certificate).unwrap();
            std::fs::write(dir.join(format!("{side}-key.pem")), &self.key).unwrap();
        }
    }
}

impl Default for Room {
    fn default() -> Self {
        Self::new()
    }
}

impl Room {
    /// A room with a new key.
    pub fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "test room");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.not_before = date_time_ymd(1970, 1, 1);
        params.not_after = date_time_ymd(9999, 12, 31);
        let id = RoomId::of_authority(&Fingerprint::of_key(&key.subject_public_key_info()));
        let certificate = params.self_signed(&key).unwrap();
        Self { certificate, issuer: Issuer::new(params, key), id, lists: AtomicU64::new(1) }
    }

    /// The room's id.
    pub fn id(&self) -> RoomId {
        self.id
    }

    /// A member's credential.
    pub fn credential(&self, name: &str, role: Role) -> Credential {
        self.member(name, role).credential()
    }

    /// A member's files.
    pub fn member(&self, name: &str, role: Role) -> Member {
        self.member_with(name, &Identity::urn(&self.id, role), 1970..9999)
    }

    /// A member's files, with any URI, valid in these years.
    pub fn member_with(&self, name: &str, urn: &str, years: std::ops::Range<i32>) -> Member {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        let addresses: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        params.subject_alt_names.extend(addresses.map(SanType::IpAddress));
        if !urn.is_empty() {
            params.subject_alt_names.push(SanType::URI(urn.try_into().unwrap()));
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.not_before = date_time_ymd(years.start, 1, 1);
        params.not_after = date_time_ymd(years.end, 12, 31);
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Member { certificate, key: key.serialize_pem(), authority: self.certificate.pem() }
    }

    /// The next list of revoked certificates, in DER.
    pub fn revocations(&self, revoked: &[&Credential]) -> Vec<u8> {
        let revoke = |credential: &&Credential| RevokedCertParams {
            serial_number: credential.identity().unwrap().serial.as_bytes().to_vec().into(),
            revocation_time: date_time_ymd(2026, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(1970, 1, 1),
            next_update: date_time_ymd(9999, 12, 31),
            crl_number: self.lists.fetch_add(1, Ordering::Relaxed).into(),
            issuing_distribution_point: None,
            revoked_certs: revoked.iter().map(revoke).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.issuer).unwrap().der().to_vec()
    }
}
