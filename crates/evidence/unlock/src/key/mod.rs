//! Keys, as people have them: files with one key a line, and files that are a key.
//!
//! A file may also be the header of a volume of LUKS that is kept apart from it, or a copy of its header; that is no secret.
//!
//! A line may be a passphrase, a recovery password, or a key in hexadecimal digits; which of these, its form says, and where it can
//! be several, each is tried. A line may name key files of VeraCrypt, which are read at once. Keys are in locked memory from the first byte on, and nothing shows them.

mod key_files;
mod read;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use cheetah_device::memory::Memory;
use cheetah_device::{ByteRange, DynDevice};
use cheetah_error::Result;
use cheetah_kit::locked::LockedBytes;
use zeroize::Zeroizing;

use crate::piece::Piece;
use crate::refusal;

/// The maximum number of keys: each is tried on each volume, and that takes seconds.
pub const KEYS_MAX: usize = 256;
/// Groups of a recovery password, and the prime that divides each.
const GROUPS: usize = 8;
const GROUP_FACTOR: u32 = 11;
/// How a line begins that is a password of VeraCrypt, and what begins its number of iterations.
const VERACRYPT: &[u8] = b"veracrypt";
const PIM: &[u8] = b",pim=";
/// The longest password of VeraCrypt, in bytes.
const VERACRYPT_BYTES_MAX: usize = 128;
/// Bytes of a recovery password.
pub(crate) const RECOVERY_BYTES: usize = 2 * GROUPS;

/// The keys that are tried.
#[derive(Debug, Default)]
pub struct Keys {
    keys: Vec<Arc<Key>>,
    headers: Vec<DetachedHeader>,
}

impl Keys {
    /// Reads key files: each line of a text is a key, and each file as a whole is one. An empty file has none: some volumes
    /// need none. A file that begins as a volume of LUKS is a header.
    ///
    /// # Errors
    ///
    /// If a file cannot be read or is too long; if there are more than [`KEYS_MAX`] keys.
    pub fn read<P: AsRef<Path>>(paths: &[P]) -> Result<Self> {
        read::read(paths.iter().map(AsRef::as_ref))
    }

    /// The keys in the content of one file.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub fn parse(content: &[u8]) -> Result<Self> {
        Ok(Self { keys: read::parse(content)?.into_iter().map(Arc::new).collect(), headers: Vec::new() })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Key>> {
        self.keys.iter()
    }

    /// The keys that say that they are passwords of VeraCrypt.
    pub(crate) fn veracrypt(&self) -> impl Iterator<Item = &Arc<Key>> {
        self.keys.iter().filter(|key| key.veracrypt().is_some())
    }

    pub(crate) fn headers(&self) -> &[DetachedHeader] {
        &self.headers
    }
}

/// The header of a volume of LUKS, which is kept apart from it.
pub struct DetachedHeader {
    /// The name of its file.
    pub(crate) name: String,
    device: DynDevice,
}

impl DetachedHeader {
    fn new(name: String, content: Vec<u8>) -> Self {
        Self { name, device: Arc::new(Memory::new(content)) }
    }

    /// Where it lies: a device of its own.
    pub(crate) fn piece(&self) -> Piece {
        Piece { device: Arc::clone(&self.device), range: ByteRange::new(0, self.device.geometry().size) }
    }
}

impl fmt::Debug for DetachedHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DetachedHeader").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A password of VeraCrypt.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct VeraCryptKey<'a> {
    /// The personal iterations multiplier; `None` for the usual number of iterations.
    pub pim: Option<u32>,
    pub password: &'a [u8],
}

/// One key.
#[derive(Debug)]
pub struct Key {
    pub(crate) bytes: LockedBytes,
    /// Whether it is the content of a file, which is no password that people type.
    pub(crate) is_file: bool,
}

impl Key {
    /// The bytes that these hexadecimal digits stand for; `None` for another text.
    ///
    /// # Errors
    ///
    /// If no memory can be had for them.
    pub(crate) fn hexadecimal(&self) -> refusal::Result<Option<LockedBytes>> {
        let (pairs, rest) = self.bytes.as_chunks::<2>();
        // Of a digit of any case: its lowest four bits, of a letter nine more.
        let digit = |byte: u8| (byte & 0xf) + if byte.is_ascii_alphabetic() { 9 } else { 0 };
        let is_digit = |byte: &u8| byte.is_ascii_hexdigit();
        if self.is_file || !rest.is_empty() || pairs.is_empty() || !self.bytes.iter().all(is_digit) {
            return Ok(None);
        }
        let mut bytes = LockedBytes::zeroed(pairs.len())?;
        for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
            *byte = digit(*high) << 4 | digit(*low);
        }
        Ok(Some(bytes))
    }

    /// The key of a recovery password: eight groups of six digits, each a multiple of eleven. `None` for another text.
    pub(crate) fn recovery_password(&self) -> Option<Zeroizing<[u8; RECOVERY_BYTES]>> {
        let text = std::str::from_utf8(&self.bytes).ok().filter(|_| !self.is_file)?;
        let mut key = Zeroizing::new([0; RECOVERY_BYTES]);
        let mut places = key.as_chunks_mut::<2>().0.iter_mut();
        for group in text.trim().split('-') {
            let is_group = group.len() == 6 && group.bytes().all(|byte| byte.is_ascii_digit());
            let number: u32 = group.parse().ok().filter(|number| is_group && number % GROUP_FACTOR == 0)?;
            *places.next()? = u16::try_from(number / GROUP_FACTOR).ok()?.to_le_bytes();
        }
        places.next().is_none().then_some(key)
    }

    /// The password of a line `veracrypt:PASSWORD` or `veracrypt,pim=NUMBER:PASSWORD`; `None` for another line.
    pub(crate) fn veracrypt(&self) -> Option<VeraCryptKey<'_>> {
        let rest = self.bytes.strip_prefix(VERACRYPT).filter(|_| !self.is_file)?;
        let colon = rest.iter().position(|byte| *byte == b':')?;
        let (options, password) = (&rest[..colon], &rest[colon + 1..]);
        let pim = match options {
            [] => None,
            options => Some(std::str::from_utf8(options.strip_prefix(PIM)?).ok()?.parse().ok()?),
        };
        // As in VeraCrypt, 0 stands for the usual number.
        let pim = pim.filter(|pim| *pim > 0);
        (1..=VERACRYPT_BYTES_MAX).contains(&password.len()).then_some(VeraCryptKey { pim, password })
    }
}
