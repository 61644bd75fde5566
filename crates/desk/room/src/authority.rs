//! The authority of a room: its key signs the certificates of members and the list of revoked ones.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cheetah_error::{Error, Kind, Result};
use cheetah_tls::{Fingerprint, Identity, Role, RoomId};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyUsagePurpose, PublicKeyData, RevokedCertParams, SanType,
    SerialNumber, date_time_ymd,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use time::OffsetDateTime;
use zeroize::Zeroizing;

use crate::invitation::Host;
use crate::key::PrivateKey;
use crate::register::{Admission, Member, Register};

/// Certificates are valid in all years that they can express: clocks are wrong, and revocation ends a membership.
const YEARS: (i32, i32) = (1970, 9999);

/// A certificate does not belong to a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the certificate is another key's")]
struct OtherKey;

/// A room's key and certificate.
pub struct Authority {
    name: String,
    key: PrivateKey,
    fingerprint: Fingerprint,
    certificate: String,
}

/// The content of a certificate.
pub struct Subject<'a> {
    /// The member's name.
    pub name: &'a str,
    /// Its role.
    pub role: Role,
    /// The serial number, in hexadecimal.
    pub serial: &'a str,
    /// Whether tools that verify names may find it by its name: a name that the examiner chose, not the machine itself.
    pub is_named: bool,
    /// Its addresses and names, beside its own name and this machine's loopback addresses.
    pub hosts: &'a [Host],
}

impl<'a> From<&'a Member> for Subject<'a> {
    fn from(member: &'a Member) -> Self {
        // A machine that joins calls itself what it likes, also by the name of another machine.
        let is_named = match member.by {
            Admission::Founder | Admission::InAdvance | Admission::Exported => true,
            Admission::Invitation(_) | Admission::Approved => false,
        };
        Self { name: &member.name, role: member.role, serial: &member.serial, is_named, hosts: &member.hosts }
    }
}

impl Authority {
    /// A new authority for the room of this name.
    ///
    /// # Errors
    ///
    /// If the kernel returns no random bytes.
    pub fn generate(name: &str) -> Result<Self> {
        let key = PrivateKey::generate()?;
        let certificate = own_params(name).self_signed(key.pair()).map_err(|error| failed(&error))?.pem();
        Ok(Self { name: name.to_owned(), fingerprint: key.public()?.fingerprint(), key, certificate })
    }

    /// The authority with this key and certificate, in PEM.
    ///
    /// # Errors
    ///
    /// If one is malformed, or they do not belong together.
    pub fn from_pem(name: &str, key: &[u8], certificate: &[u8]) -> Result<Self> {
        let key = PrivateKey::from_pem(key)?;
        let fingerprint = key.public()?.fingerprint();
        let der =
            CertificateDer::from_pem_slice(certificate).map_err(|_| Error::failed("the certificate is malformed"))?;
        match Fingerprint::of_certificate(&der) {
            Ok(found) if found == fingerprint => {}
            Ok(_) => return Err(Error::caused(Kind::Failed, OtherKey)),
            Err(_) => return Err(Error::failed("the certificate is malformed")),
        }
        let certificate = String::from_utf8_lossy(certificate).into_owned();
        Ok(Self { name: name.to_owned(), key, fingerprint, certificate })
    }

    /// The room.
    pub fn room(&self) -> RoomId {
        RoomId::of_authority(&self.fingerprint)
    }

    /// The fingerprint of its key.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Its private key, in PEM.
    pub fn key_pem(&self) -> Zeroizing<String> {
        self.key.to_pem()
    }

    /// Its certificate, in PEM.
    pub fn certificate_pem(&self) -> &str {
        &self.certificate
    }

    /// Signs a statement of the room, which begins with a context of its own; in base64.
    ///
    /// # Errors
    ///
    /// If the library refuses.
    pub fn sign(&self, statement: &[u8]) -> Result<String> {
        self.key.sign(statement).map(|signature| STANDARD.encode(signature))
    }

    /// Whether the room signed the statement.
    pub fn has_signed(&self, statement: &[u8], signature: &str) -> bool {
        let signature = STANDARD.decode(signature).unwrap_or_default();
        self.key.public().is_ok_and(|key| key.has_signed(statement, &signature))
    }

    /// A member's certificate, in PEM.
    ///
    /// # Errors
    ///
    /// If the library refuses.
    pub fn issue(&self, subject: &Subject<'_>, key: &impl PublicKeyData) -> Result<String> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, organization(&self.name));
        params.distinguished_name.push(DnType::OrganizationalUnitName, subject.role.name());
        params.distinguished_name.push(DnType::CommonName, subject.name);
        params.serial_number = Some(serial(subject.serial)?);
        params.not_before = date_time_ymd(YEARS.0, 1, 1);
        params.not_after = date_time_ymd(YEARS.1, 12, 31);
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = usages(subject.role);
        params.use_authority_key_identifier_extension = true;
        params.subject_alt_names = self.alternative_names(subject)?;
        let certificate = params.signed_by(key, &self.issuer()).map_err(|error| failed(&error))?;
        Ok(certificate.pem())
    }

    fn alternative_names(&self, subject: &Subject<'_>) -> Result<Vec<SanType>> {
        let text = |name: &str| name.try_into().map_err(|error| failed(&error));
        let mut names = vec![SanType::URI(text(&Identity::urn(&self.room(), subject.role))?)];
        if subject.is_named {
            names.push(SanType::DnsName(text(subject.name)?));
        }
        names.push(SanType::DnsName(text("localhost")?));
        let loopback = [std::net::Ipv4Addr::LOCALHOST.into(), std::net::Ipv6Addr::LOCALHOST.into()];
        names.extend(loopback.map(SanType::IpAddress));
        for host in subject.hosts {
            let name = match host {
                Host::Ip(address) => SanType::IpAddress(*address),
                Host::Name(name) => SanType::DnsName(text(name)?),
            };
            if !names.contains(&name) {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// The list of revoked certificates, in PEM. Its number rises with the register's revision.
    ///
    /// # Errors
    ///
    /// If the library refuses.
    pub fn revocations_pem(&self, register: &Register) -> Result<String> {
        let revoke = |member: &Member| {
            let seconds = i64::try_from(member.revoked.unwrap_or_default()).unwrap_or_default();
            Ok(RevokedCertParams {
                serial_number: serial(&member.serial)?,
                revocation_time: OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH),
                reason_code: None,
                invalidity_date: None,
            })
        };
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(YEARS.0, 1, 1),
            next_update: date_time_ymd(YEARS.1, 12, 31),
            crl_number: (register.revision() + 1).into(),
            issuing_distribution_point: None,
            revoked_certs: register.revoked().map(revoke).collect::<Result<_>>()?,
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.issuer()).and_then(|list| list.pem()).map_err(|error| failed(&error))
    }

    fn issuer(&self) -> Issuer<'static, &rcgen::KeyPair> {
        Issuer::new(own_params(&self.name), self.key.pair())
    }
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Authority({} {})", self.name, self.room())
    }
}

/// The parameters of the authority's own certificate.
fn own_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, organization(name));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.not_before = date_time_ymd(YEARS.0, 1, 1);
    params.not_after = date_time_ymd(YEARS.1, 12, 31);
    params
}

fn organization(name: &str) -> String {
    format!("Cheetah room {name}")
}

/// The connections in which a role takes part: nodes only serve, except for the request to join an examiner's drive.
fn usages(role: Role) -> Vec<ExtendedKeyUsagePurpose> {
    match role {
        Role::Room => vec![ExtendedKeyUsagePurpose::ServerAuth],
        _ => vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth],
    }
}

fn serial(hex: &str) -> Result<SerialNumber> {
    let number = u128::from_str_radix(hex, 16).map_err(|_| Error::failed("a serial number is malformed"))?;
    Ok(SerialNumber::from_slice(&number.to_be_bytes()))
}

fn failed(error: &rcgen::Error) -> Error {
    Error::failed(format!("making a certificate: {error}"))
}

#[cfg(test)]
mod tests {
    use cheetah_tls::Credential;

    use super::*;
    use crate::register::{Admission, Applicant};

    #[test]
    fn a_members_certificate_makes_a_credential_that_names_it() {
        let authority = Authority::generate("lab").unwrap();
        let authority =
            Authority::from_pem("lab", authority.key_pem().as_bytes(), authority.certificate_pem().as_bytes()).unwrap();
        let key = PrivateKey::generate().unwrap();
        let mut register = Register::new();
        let applicant = Applicant {
            name: "lab-7".into(),
            key: key.public().unwrap().fingerprint(),
            called_from: Some("10.0.0.7".parse().unwrap()),
            hosts: vec!["fd00::7".parse().unwrap()],
        };
        let member = register.admit(&applicant, Role::Node, Admission::Approved, 7, 1).unwrap().clone();
        let certificate = authority.issue(&(&member).into(), &key.public().unwrap()).unwrap();
        register.revoke(&["lab-7"], 2);
        let revoked = authority.revocations_pem(&register).unwrap();
        let pem = [key.to_pem().as_str(), &certificate, authority.certificate_pem(), &revoked].concat();
        let credential = Credential::from_pem(pem.as_bytes()).unwrap();
        let identity = credential.identity().unwrap();
        assert_eq!((&*identity.name, identity.role, identity.room), ("lab-7", Role::Node, authority.room()));
        assert_eq!(identity.serial.to_string(), member.serial);
        assert_eq!(credential.authority_key(), authority.fingerprint());
        assert!(credential.revocations().is_some());
    }

    #[test]
    fn a_machine_that_joins_gets_no_certificate_for_a_name_that_it_chose() {
        let authority = Authority::generate("lab").unwrap();
        let names = |by: Admission| {
            let key = PrivateKey::generate().unwrap();
            let mut register = Register::new();
            let applicant = Applicant {
                name: "evidence-server.corp.example".into(),
                key: key.public().unwrap().fingerprint(),
                called_from: Some("10.0.0.7".parse().unwrap()),
                hosts: vec!["evidence-server.corp.example".parse().unwrap()],
            };
            let member = register.admit(&applicant, Role::Agent, by, 7, 1).unwrap().clone();
            authority.alternative_names(&(&member).into()).unwrap()
        };
        let own = SanType::DnsName("evidence-server.corp.example".try_into().unwrap());
        let address = SanType::IpAddress("10.0.0.7".parse().unwrap());
        for by in [Admission::Invitation("01234567".into()), Admission::Approved] {
            let names = names(by);
            assert!(!names.contains(&own) && names.contains(&address), "{names:?}");
        }
        for by in [Admission::Founder, Admission::InAdvance, Admission::Exported] {
            assert!(names(by).contains(&own));
        }
    }

    #[test]
    fn another_keys_certificate_is_refused() {
        let (one, other) = (Authority::generate("a").unwrap(), Authority::generate("a").unwrap());
        let mixed = Authority::from_pem("a", one.key_pem().as_bytes(), other.certificate_pem().as_bytes());
        assert_eq!(mixed.unwrap_err().cause(), Some(&OtherKey));
        for bad in ["", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            assert!(Authority::from_pem("a", one.key_pem().as_bytes(), bad.as_bytes()).is_err());
            assert!(Authority::from_pem("a", bad.as_bytes(), one.certificate_pem().as_bytes()).is_err());
        }
    }
}
