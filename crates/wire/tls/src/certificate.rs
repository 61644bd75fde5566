//! Reading identities from X.509 certificates.

use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::error::TlsError;
use crate::identity::{Fingerprint, Identity, Serial, URN_PREFIX, is_name};

/// The most bytes of a serial number (RFC 5280).
const SERIAL_LEN_MAX: usize = 20;

impl Fingerprint {
    /// The fingerprint of a certificate's key.
    ///
    /// # Errors
    ///
    /// If `der` is not a certificate.
    pub fn of_certificate(der: &[u8]) -> Result<Self, TlsError> {
        Ok(Self::of_key(parse(der)?.public_key().raw))
    }
}

impl Serial {
    /// The serial number with these big-endian bytes.
    ///
    /// # Errors
    ///
    /// If there are more than 20 of them after leading zeros.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, TlsError> {
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        let bytes = &bytes[zeros..];
        if bytes.len() > SERIAL_LEN_MAX {
            return Err(TlsError::Malformed("a serial number is longer than 20 bytes"));
        }
        Ok(Self(bytes.to_vec()))
    }
}

impl Identity {
    /// Reads a certificate, in DER. Its signature is not checked.
    ///
    /// # Errors
    ///
    /// If `der` is not a certificate, or not one of a room's member.
    pub fn of_certificate(der: &[u8]) -> Result<Self, TlsError> {
        let certificate = parse(der)?;
        let malformed = TlsError::Malformed;
        let mut names = certificate.subject().iter_common_name();
        let name =
            names.next().and_then(|name| name.as_str().ok()).ok_or(malformed("a member's certificate has no name"))?;
        if names.next().is_some() || !is_name(name) {
            return Err(malformed("the name in a member's certificate is empty, long, or not text"));
        }
        let urns = urns(&certificate)?;
        let [urn] = urns[..] else {
            return Err(if urns.is_empty() {
                TlsError::NotOfARoom
            } else {
                malformed("a member's certificate has several roles")
            });
        };
        let (room, role) =
            urn.split_once(":role:").ok_or(malformed("the role in a member's certificate is malformed"))?;
        Ok(Self {
            name: name.to_owned(),
            role: role.parse().map_err(|_| malformed("the role in a member's certificate is unknown"))?,
            room: room.parse().map_err(|_| malformed("the room in a member's certificate is malformed"))?,
            key: Fingerprint::of_key(certificate.public_key().raw),
            serial: Serial::from_bytes(certificate.raw_serial())?,
        })
    }

    /// Whether a certificate, in DER, is one of a room's member.
    pub(crate) fn is_member(der: &[u8]) -> Result<bool, TlsError> {
        Ok(!urns(&parse(der)?)?.is_empty())
    }
}

/// The rooms and roles in a certificate, without their prefix.
fn urns<'a>(certificate: &'a X509Certificate<'_>) -> Result<Vec<&'a str>, TlsError> {
    let names = certificate.subject_alternative_name();
    let names = names.map_err(|_| TlsError::Malformed("a certificate's names are malformed"))?;
    let names = names.iter().flat_map(|names| &names.value.general_names);
    let urns = names.filter_map(|name| match name {
        GeneralName::URI(uri) => uri.strip_prefix(URN_PREFIX),
        _ => None,
    });
    Ok(urns.collect())
}

/// Parses a certificate that ends where `der` ends.
pub(crate) fn parse(der: &[u8]) -> Result<X509Certificate<'_>, TlsError> {
    match X509Certificate::from_der(der) {
        Ok(([], certificate)) => Ok(certificate),
        _ => Err(TlsError::Malformed("a certificate is malformed")),
    }
}
