//! The drive's key, and the keys derived from it.

use std::fmt;
use std::sync::Arc;

use cheetah_kit::locked::Locked;
use cheetah_kit::random;
use ring::hkdf::{HKDF_SHA256, KeyType, Salt};
use zeroize::Zeroizing;

use crate::error::SealError;

/// Bytes of a key.
pub const KEY_BYTES: usize = 32;

/// The key of a drive, in locked memory. Clones share it.
#[derive(Clone)]
pub struct DriveKey(Arc<Locked<[u8; KEY_BYTES]>>);

impl DriveKey {
    /// Makes a new key.
    pub fn random() -> Result<Self, SealError> {
        Self::from_bytes(&*random()?)
    }

    /// The key with these bytes.
    pub fn from_bytes(bytes: &[u8; KEY_BYTES]) -> Result<Self, SealError> {
        let locked = Locked::new(*bytes);
        Ok(Self(Arc::new(locked.map_err(|error| SealError::system("mapping memory for a key", &error))?)))
    }

    /// Its bytes, for wrapping.
    pub(crate) fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    /// Derives a key by HKDF-SHA256. `info` is the concatenation of its parts.
    pub(crate) fn derive(&self, salt: &[u8], info: &[&[u8]]) -> Result<Zeroizing<[u8; KEY_BYTES]>, SealError> {
        derive(self.bytes(), salt, info)
    }
}

/// Shows nothing of the key.
impl fmt::Debug for DriveKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DriveKey")
    }
}

/// 32 bytes of output.
struct Bytes32;

impl KeyType for Bytes32 {
    fn len(&self) -> usize {
        KEY_BYTES
    }
}

/// Derives a key by HKDF-SHA256. `info` is the concatenation of its parts.
pub(crate) fn derive(ikm: &[u8], salt: &[u8], info: &[&[u8]]) -> Result<Zeroizing<[u8; KEY_BYTES]>, SealError> {
    let failed = |_| SealError::Malformed("a key cannot be derived");
    let mut key = Zeroizing::new([0; KEY_BYTES]);
    let pseudorandom = Salt::new(HKDF_SHA256, salt).extract(ikm);
    pseudorandom.expand(info, Bytes32).map_err(failed)?.fill(&mut *key).map_err(failed)?;
    Ok(key)
}

/// Random bytes of the operating system.
pub(crate) fn random<const N: usize>() -> Result<Zeroizing<[u8; N]>, SealError> {
    let mut bytes = Zeroizing::new([0; N]);
    random::fill(&mut *bytes).map_err(|error| SealError::System(error.to_string()))?;
    Ok(bytes)
}
