//! Recipients and identities of the `age` format.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use bech32::primitives::decode::CheckedHrpstring;
use bech32::{Bech32, Hrp};
use cheetah_kit::locked::Locked;
use curve25519_dalek::MontgomeryPoint;
use zeroize::Zeroizing;

use super::header::{Stanza, decode, encode};
use super::{CUT_OFF, FileKey, open_file_key, seal_file_key};
use crate::error::SealError;
use crate::key::{derive, random};

const X25519: &str = "X25519";
const X25519_INFO: &[u8] = b"age-encryption.org/v1/X25519";
const SCRYPT: &str = "scrypt";
const SCRYPT_SALT: &[u8] = b"age-encryption.org/v1/scrypt";
const SALT_BYTES: usize = 16;
/// The work factor of new passphrases: 2^18 takes 256 MiB, and about a second.
const WORK_FACTOR: u8 = 18;
/// The highest work factor that is accepted: 1 GiB.
const WORK_FACTOR_MAX: u8 = 20;
const PUBLIC_PREFIX: &str = "age";
const SECRET_PREFIX: &str = "age-secret-key-";

/// A party that a key is wrapped for.
#[derive(Clone)]
pub enum Recipient {
    /// A public key, `age1…`.
    Key([u8; 32]),
    /// A passphrase.
    Passphrase(Arc<Zeroizing<String>>),
}

/// What opens a wrapped key. Clones share it.
#[derive(Clone)]
pub enum Identity {
    /// A secret key, `AGE-SECRET-KEY-1…`.
    Key(Arc<Locked<[u8; 32]>>),
    /// A passphrase.
    Passphrase(Arc<Zeroizing<String>>),
}

impl Recipient {
    /// Wraps a file key.
    pub(super) fn wrap(&self, file_key: &FileKey) -> Result<Stanza, SealError> {
        match self {
            Self::Key(public) => {
                let ephemeral = random::<32>()?;
                let share = MontgomeryPoint::mul_base_clamped(*ephemeral).to_bytes();
                let key = shared_key(&ephemeral, public, &share, public)?;
                let args = vec![X25519.to_owned(), encode(&share)];
                Ok(Stanza { args, body: seal_file_key(&*key, file_key)? })
            }
            Self::Passphrase(passphrase) => {
                let salt = random::<SALT_BYTES>()?;
                let key = stretch(passphrase, &salt, WORK_FACTOR)?;
                let args = vec![SCRYPT.to_owned(), encode(&*salt), WORK_FACTOR.to_string()];
                Ok(Stanza { args, body: seal_file_key(&*key, file_key)? })
            }
        }
    }
}

impl Identity {
    /// Makes a new secret key.
    pub fn generate() -> Result<Self, SealError> {
        Self::from_secret(&*random::<32>()?)
    }

    /// The secret key with these bytes.
    pub fn from_secret(bytes: &[u8; 32]) -> Result<Self, SealError> {
        let locked = Locked::new(*bytes);
        Ok(Self::Key(Arc::new(locked.map_err(|error| SealError::system("mapping memory for a key", &error))?)))
    }

    /// The recipient that it belongs to.
    pub fn recipient(&self) -> Recipient {
        match self {
            Self::Key(secret) => Recipient::Key(MontgomeryPoint::mul_base_clamped(***secret).to_bytes()),
            Self::Passphrase(passphrase) => Recipient::Passphrase(passphrase.clone()),
        }
    }

    /// The text of a secret key, for its file; `None` for a passphrase.
    pub fn secret_text(&self) -> Option<Zeroizing<String>> {
        let Self::Key(secret) = self else { return None };
        let text = bech32::encode_upper::<Bech32>(Hrp::parse(SECRET_PREFIX).ok()?, &***secret);
        text.ok().map(Zeroizing::new)
    }

    /// Unwraps a file key; `None` if it is wrapped for another identity.
    pub(super) fn unwrap(&self, stanza: &Stanza) -> Result<Option<FileKey>, SealError> {
        let args: Vec<&str> = stanza.args.iter().map(String::as_str).collect();
        match (self, args.as_slice()) {
            (Self::Key(secret), [X25519, share]) => {
                let share: [u8; 32] = decode(share)?.try_into().map_err(|_| CUT_OFF)?;
                let public = MontgomeryPoint::mul_base_clamped(***secret).to_bytes();
                open_file_key(&*shared_key(secret, &share, &share, &public)?, &stanza.body)
            }
            (Self::Passphrase(passphrase), [SCRYPT, salt, factor]) => {
                let salt: [u8; SALT_BYTES] = decode(salt)?.try_into().map_err(|_| CUT_OFF)?;
                let canonical = factor.bytes().all(|byte| byte.is_ascii_digit()) && !factor.starts_with('0');
                let factor: u8 = factor.parse().ok().filter(|_| canonical).ok_or(CUT_OFF)?;
                if factor > WORK_FACTOR_MAX {
                    return Err(SealError::Malformed(
                        "a wrapped key wants more than 1 GiB of memory for its passphrase",
                    ));
                }
                open_file_key(&*stretch(passphrase, &salt, factor)?, &stanza.body)
            }
            _ => Ok(None),
        }
    }
}

/// The key that wraps a file key, by X25519 of a secret and a point.
fn shared_key(
    secret: &[u8; 32],
    point: &[u8; 32],
    share: &[u8; 32],
    recipient: &[u8; 32],
) -> Result<Zeroizing<[u8; 32]>, SealError> {
    let shared = Zeroizing::new(MontgomeryPoint(*point).mul_clamped(*secret).to_bytes());
    if shared.iter().all(|byte| *byte == 0) {
        return Err(SealError::Malformed("a wrapped key or a recipient has a point of low order"));
    }
    derive(&*shared, &[share.as_slice(), recipient].concat(), &[X25519_INFO])
}

/// The key that wraps a file key, from a passphrase.
fn stretch(passphrase: &str, salt: &[u8; SALT_BYTES], factor: u8) -> Result<Zeroizing<[u8; 32]>, SealError> {
    let bad = SealError::Malformed("a wrapped key has a work factor that does not exist");
    let params = scrypt::Params::new(factor, 8, 1).map_err(|_| bad.clone())?;
    let mut key = Zeroizing::new([0; 32]);
    let salt = [SCRYPT_SALT, salt].concat();
    scrypt::scrypt(passphrase.as_bytes(), &salt, &params, &mut *key).map_err(|_| bad)?;
    Ok(key)
}

/// Decodes 32 bytes of Bech32.
fn bech32_bytes(text: &str, prefix: &str) -> Option<Zeroizing<[u8; 32]>> {
    let parsed = CheckedHrpstring::new::<Bech32>(text).ok()?;
    if !parsed.hrp().to_string().eq_ignore_ascii_case(prefix) {
        return None;
    }
    let mut out = Zeroizing::new([0; 32]);
    let mut bytes = parsed.byte_iter();
    for byte in out.iter_mut() {
        *byte = bytes.next()?;
    }
    bytes.next().is_none().then_some(out)
}

impl FromStr for Recipient {
    type Err = SealError;

    fn from_str(text: &str) -> Result<Self, SealError> {
        match bech32_bytes(text, PUBLIC_PREFIX) {
            Some(bytes) => Ok(Self::Key(*bytes)),
            None => Err(SealError::NoRecipient(text.to_owned())),
        }
    }
}

/// A secret key. The error does not show the text, which may be a mistyped key.
impl FromStr for Identity {
    type Err = SealError;

    fn from_str(text: &str) -> Result<Self, SealError> {
        match bech32_bytes(text, SECRET_PREFIX) {
            Some(bytes) => Self::from_secret(&bytes),
            None => Err(SealError::Malformed("a line is no identity (AGE-SECRET-KEY-1…)")),
        }
    }
}

/// The text of a public key; `passphrase` for a passphrase.
impl fmt::Display for Recipient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(public) => {
                let prefix = Hrp::parse(PUBLIC_PREFIX).map_err(|_| fmt::Error)?;
                f.write_str(&bech32::encode_lower::<Bech32>(prefix, public).map_err(|_| fmt::Error)?)
            }
            Self::Passphrase(_) => f.write_str("passphrase"),
        }
    }
}

/// Shows no secret.
impl fmt::Debug for Recipient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Shows no secret.
impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Key(_) => "Identity::Key",
            Self::Passphrase(_) => "Identity::Passphrase",
        })
    }
}
