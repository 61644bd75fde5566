//! The identity of a room's member. [`certificate`](crate::certificate) reads it.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};

use crate::role::Role;

/// The most bytes of a member's name.
pub const NAME_LEN_MAX: usize = 64;
/// How the URI in a member's certificate begins; `ROOMID:role:ROLE` follows.
pub(crate) const URN_PREFIX: &str = "urn:cheetah:room:";

/// The SHA-256 of a public key, in the form of a certificate's SubjectPublicKeyInfo. Text: 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// The fingerprint of a key in DER.
    pub fn of_key(spki: &[u8]) -> Self {
        Self(Sha256::digest(spki).into())
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
pub struct Serial(pub(crate) Vec<u8>);

impl Serial {
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
