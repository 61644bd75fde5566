//! The identity in a certificate.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::error::TlsError;
use crate::role::Role;

/// The most bytes of a member's name.
pub const NAME_LEN_MAX: usize = 64;
/// The most bytes of a serial number (RFC 5280).
const SERIAL_LEN_MAX: usize = 20;
/// How the URI in a member's certificate begins; `ROOMID:role:ROLE` follows.
const URN_PREFIX: &str = "urn:cheetah:room:";

/// The SHA-256 of a public key, in the form of a certificate's SubjectPublicKeyInfo. Text: 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// The fingerprint of a key in DER.
    pub fn of_key(spki: &[u8]) -> Self {
        Self(Sha256::digest(spki).into())
    }

    /// The fingerprint of a certificate's key.
    ///
    /// # Errors
    ///
    /// If `der` is not a certificate.
    pub fn of_certificate(der: &[u8]) -> Result<Self, TlsError> {
        Ok(Self::of_key(parse(der)?.public_key().raw))
    }
}

/// A room: the first 16 bytes of the fingerprint of its authority's key. Text: 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RoomId(pub [u8; 16]);

impl RoomId {
    /// The room whose authority has this key.
    pub fn of_authority(key: &Fingerprint) -> Self {
        let mut id = [0; 16];
        id.copy_from_slice(&key.0[..16]);
        Self(id)
    }
}

/// The error for a text that is not a fingerprint, room or serial number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("write {0} hexadecimal digits")]
pub struct NotHexadecimal(usize);

/// Text forms of fixed-size values.
macro_rules! hexadecimal {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = NotHexadecimal;

            fn from_str(text: &str) -> Result<Self, NotHexadecimal> {
                let mut bytes = [0; size_of::<Self>()];
                let error = NotHexadecimal(2 * bytes.len());
                if text.len() != 2 * bytes.len() || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                    return Err(error);
                }
                for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
                    let digits = std::str::from_utf8(digits).map_err(|_| error)?;
                    *byte = u8::from_str_radix(digits, 16).map_err(|_| error)?;
                }
                Ok(Self(bytes))
            }
        }
    };
}

hexadecimal!(Fingerprint);
hexadecimal!(RoomId);

/// A certificate's serial number: big-endian, without leading zeros. Text: hexadecimal.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Serial(Vec<u8>);

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

    /// Its big-endian bytes, without leading zeros.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A member of a room, as its certificate describes it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The name: the subject's common name, 1 to 64 bytes without control characters.
    pub name: String,
    /// The role.
    pub role: Role,
    /// The room.
    pub room: RoomId,
    /// The member's key.
    pub key: Fingerprint,
    /// The certificate's serial number.
    pub serial: Serial,
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

    /// The URI that a member's certificate holds.
    pub fn urn(room: &RoomId, role: Role) -> String {
        format!("{URN_PREFIX}{room}:role:{role}")
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.role)
    }
}

/// Whether a member may have this name: 1 to [`NAME_LEN_MAX`] bytes, no control characters.
pub fn is_name(name: &str) -> bool {
    (1..=NAME_LEN_MAX).contains(&name.len()) && !name.chars().any(char::is_control)
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
