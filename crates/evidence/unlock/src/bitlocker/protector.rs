//! Protectors: the ways to the volume master key.

use cheetah_device::le::{u16_at, u32_at};
use cheetah_kit::locked::LockedBytes;
use cheetah_volume::partition::guid_text;
use sha2::block_api::compress256;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use super::entry::{KEY_BYTES, MethodKey, SealedKey, entries, kind, value};
use crate::key::Key;
use crate::refusal::Result;

const GUID_BYTES: usize = 16;
/// The header of a protector: its identifier, a time, and its kind.
const HEADER_BYTES: usize = 28;
const SALT_BYTES: usize = 16;
/// Rounds of SHA-256 for one password.
const STRETCHES: u64 = 1 << 20;
/// Where the number of the round is in the second block of a round.
const ROUND_AT: usize = SALT_BYTES;
/// The state with which SHA-256 begins (FIPS 180-4, section 5.3.3).
const SHA_256_STATE: [u32; 8] =
    [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];
/// The header of a key file, as that of metadata.
const FILE_HEADER_BYTES: usize = 48;

/// Kinds of protectors.
mod protection {
    pub const CLEAR: u16 = 0x0000;
    pub const STARTUP_KEY: u16 = 0x0200;
    pub const RECOVERY_PASSWORD: u16 = 0x0800;
    pub const PASSWORD: u16 = 0x2000;
}

/// One protector: the volume master key, sealed with a key of its own.
pub(super) struct Protector {
    id: String,
    kind: u16,
    salt: Option<[u8; SALT_BYTES]>,
    sealed: Vec<SealedKey>,
    clear: Option<MethodKey>,
}

impl Protector {
    /// Parses the content of its entry; `None` if it is too short.
    pub fn parse(content: &[u8]) -> Option<Self> {
        let (id, kind) = (guid_text(content.get(..GUID_BYTES)?).to_lowercase(), u16_at(content, 26));
        let mut parsed = Self { id, kind, salt: None, sealed: Vec::new(), clear: None };
        for entry in entries(content.get(HEADER_BYTES..)?) {
            match entry.value {
                value::KEY => parsed.clear = MethodKey::parse(entry.content),
                value::STRETCH_KEY => parsed.salt = entry.content.get(4..).and_then(<[u8]>::first_chunk).copied(),
                value::SEALED_KEY => parsed.sealed.extend(SealedKey::parse(entry.content)),
                _ => {}
            }
        }
        Some(parsed)
    }

    /// Its kind and identifier, for people.
    pub fn name(&self) -> String {
        let kind = match self.kind {
            protection::CLEAR => "clear key",
            protection::STARTUP_KEY => "startup key",
            protection::RECOVERY_PASSWORD => "recovery password",
            protection::PASSWORD => "password",
            _ => "protector",
        };
        format!("{kind} {}", self.id)
    }

    /// The volume master key, if the protection is suspended: then its key lies beside it.
    pub fn without_key(&self) -> Result<Option<LockedBytes>> {
        match &self.clear {
            Some(clear) if self.kind == protection::CLEAR => self.open(&clear.bytes),
            _ => Ok(None),
        }
    }

    /// The volume master key, if `key` is of its kind and opens it. Blocks.
    pub fn with_key(&self, key: &Key) -> Result<Option<LockedBytes>> {
        let recovery = key.recovery_password();
        let hash = match self.kind {
            protection::STARTUP_KEY => {
                return startup_key(&key.bytes).map_or(Ok(None), |startup| self.open(&startup.bytes));
            }
            protection::RECOVERY_PASSWORD => recovery.map(|password| sha256(&*password)),
            protection::PASSWORD if recovery.is_none() => password_hash(key),
            _ => None,
        };
        match (hash, &self.salt) {
            (Some(hash), Some(salt)) => self.open(&*stretch(&hash, salt, STRETCHES)),
            _ => Ok(None),
        }
    }

    fn open(&self, key: &[u8]) -> Result<Option<LockedBytes>> {
        for sealed in &self.sealed {
            if let Some(opened) = sealed.open(key)? {
                return Ok(Some(opened.bytes));
            }
        }
        Ok(None)
    }
}

/// The key in a key file (`.BEK`); `None` if it is none.
fn startup_key(file: &[u8]) -> Option<MethodKey> {
    let (size, version, header) = (u32_at(file, 0) as usize, u32_at(file, 4), u32_at(file, 8) as usize);
    if version != 1 || header != FILE_HEADER_BYTES {
        return None;
    }
    let is_startup =
        |entry: &super::entry::Entry<'_>| entry.kind == kind::STARTUP_KEY && entry.value == value::EXTERNAL_KEY;
    let external = entries(file.get(FILE_HEADER_BYTES..size.min(file.len()))?).find(is_startup)?;
    // Its identifier and a time.
    let inner = external.content.get(GUID_BYTES + 8..)?;
    let key = entries(inner).find(|entry| entry.value == value::KEY)?;
    MethodKey::parse(key.content).filter(|key| key.bytes.len() == KEY_BYTES)
}

fn password_hash(key: &Key) -> Option<Zeroizing<[u8; KEY_BYTES]>> {
    let text = std::str::from_utf8(&key.bytes).ok().filter(|_| !key.is_file)?;
    // Enough for any text, so that no copy of it is left in memory.
    let mut units = Zeroizing::new(Vec::with_capacity(2 * text.len()));
    text.encode_utf16().for_each(|unit| units.extend(unit.to_le_bytes()));
    Some(sha256(&*sha256(&units)))
}

fn sha256(bytes: &[u8]) -> Zeroizing<[u8; KEY_BYTES]> {
    Zeroizing::new(Sha256::digest(bytes).into())
}

/// The key of a hashed password: the sum of the round before, the hash, the salt and the number of the round are hashed, again and again.
fn stretch(hash: &[u8; KEY_BYTES], salt: &[u8; SALT_BYTES], rounds: u64) -> Zeroizing<[u8; KEY_BYTES]> {
    // Two blocks that are padded once and compressed at once: half of the time would go into preparing them.
    let mut blocks = Zeroizing::new([[0; 64]; 2]);
    blocks[0][KEY_BYTES..].copy_from_slice(hash);
    blocks[1][..SALT_BYTES].copy_from_slice(salt);
    blocks[1][ROUND_AT + 8] = 0x80;
    blocks[1][56..].copy_from_slice(&(8 * (64 + ROUND_AT as u64 + 8)).to_be_bytes());
    let mut last = Zeroizing::new([0; KEY_BYTES]);
    for round in 0..rounds {
        blocks[0][..KEY_BYTES].copy_from_slice(&*last);
        blocks[1][ROUND_AT..ROUND_AT + 8].copy_from_slice(&round.to_le_bytes());
        let mut state = SHA_256_STATE;
        compress256(&mut state, &*blocks);
        for (bytes, word) in last.as_chunks_mut::<4>().0.iter_mut().zip(state) {
            *bytes = word.to_be_bytes();
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_stretched_as_by_hashing_each_round_as_a_whole() {
        let (hash, salt) = ([0x5a; KEY_BYTES], [0xc3; SALT_BYTES]);
        let mut last = [0; KEY_BYTES];
        for round in 0..300u64 {
            assert_eq!(*stretch(&hash, &salt, round), last, "{round}");
            last = Sha256::digest([&last[..], &hash, &salt, &round.to_le_bytes()].concat()).into();
        }
    }
}
