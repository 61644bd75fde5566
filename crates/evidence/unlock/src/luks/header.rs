//! What both versions of the header have in common.

use cheetah_device::ByteRange;
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use crate::cipher::{Aes, Iv, Mode, Numbering, SectorCipher};
use crate::derive::{Hash, Kdf};
use crate::opened::{Content, Opened, Region};
use crate::refusal::{Refusal, Result};

/// Sectors are numbered in units of 512 bytes, also if they are larger.
const SECTOR_BYTES: u64 = 512;
/// The longest key of a volume, in bytes: that of XTS with AES-256.
pub(super) const KEY_BYTES_MAX: usize = 64;
/// The most stripes of a key. All programs make 4000.
pub(super) const STRIPES_MAX: usize = 16_000;

/// What a header says.
pub struct Header {
    /// The cipher of the data, as `aes-xts-plain64`.
    pub(super) encryption: String,
    pub(super) key_bytes: usize,
    pub(super) sector_bytes: u64,
    /// The number of the first sector.
    pub(super) first_number: u64,
    /// Where the data begin, and their length unless they reach to the end of the volume.
    pub(super) data_at: u64,
    pub(super) data_bytes: Option<u64>,
    pub(super) slots: Vec<Slot>,
    /// Slots that cannot be tried, by number.
    pub(super) refused: Vec<(u32, Refusal)>,
    pub(super) digests: Vec<KeyDigest>,
}

/// A slot that can be tried.
pub(super) struct Slot {
    pub number: u32,
    pub kdf: Kdf,
    pub salt: Vec<u8>,
    /// Where its material lies in the volume: whole sectors.
    pub area: ByteRange,
    /// Bytes of the material: whole stripes.
    pub material_bytes: usize,
    pub encryption: String,
    pub cipher_key_bytes: usize,
    pub split_hash: Hash,
}

/// What confirms the key of the volume.
pub(super) struct KeyDigest {
    pub kdf: Kdf,
    pub salt: Vec<u8>,
    pub value: Vec<u8>,
    /// The slots that it is about; all of LUKS 1.
    pub slots: Option<Vec<u32>>,
}

impl Header {
    /// Fails if the data could not be decrypted with any key.
    pub(super) fn checked(self) -> Result<Self> {
        if !(1..=KEY_BYTES_MAX).contains(&self.key_bytes) {
            return Err(Refusal::Unsupported(format!("a key of {} bytes", self.key_bytes)));
        }
        if !self.data_at.is_multiple_of(SECTOR_BYTES) {
            return Err(Refusal::Damaged("its data do not begin at a sector"));
        }
        self.cipher(&[0; KEY_BYTES_MAX][..self.key_bytes])?;
        Ok(self)
    }

    fn cipher(&self, key: &[u8]) -> Result<SectorCipher> {
        cipher(&self.encryption, key, self.first_number, self.sector_bytes)
    }

    /// Whether this is the key of the volume. A slot of LUKS 2 may hold another one, which is of no use.
    pub(super) fn confirms(&self, slot: &Slot, key: &[u8]) -> Result<bool> {
        let of_slot = |digest: &&KeyDigest| digest.slots.as_ref().is_none_or(|slots| slots.contains(&slot.number));
        self.digests.iter().filter(of_slot).try_fold(false, |is, digest| Ok(is || digest.confirms(key)?))
    }

    /// Whether this is the key of the volume.
    pub(super) fn confirm(&self, key: &[u8]) -> Result<bool> {
        self.digests.iter().try_fold(false, |is, digest| Ok(is || digest.confirms(key)?))
    }

    /// The volume in `range` of a device, opened with a key of zeros, for fuzzing.
    pub(crate) fn opened_with_zeros(&self, range: ByteRange) -> Result<Opened> {
        self.opened(&[0; KEY_BYTES_MAX][..self.key_bytes], range, String::new())
    }

    /// The volume in `range` of a device, opened with its key.
    pub(super) fn opened(&self, key: &[u8], range: ByteRange, protector: String) -> Result<Opened> {
        let whole = range.len.saturating_sub(self.data_at);
        let len = self.data_bytes.unwrap_or(whole);
        // Also where they begin there: the sum below does not overflow.
        if whole == 0 || len > whole {
            return Err(Refusal::Damaged("its data reach beyond its end"));
        }
        let data = ByteRange::new(range.offset + self.data_at, len - len % self.sector_bytes);
        if data.is_empty() {
            return Err(Refusal::Damaged("it has no data"));
        }
        let content = Content::encrypted(data.offset, data.offset);
        let regions = vec![Region { range: data, content }];
        Opened::new(data, regions, Some(self.cipher(key)?), protector)
    }
}

impl Slot {
    /// The place of `stripes` stripes of `key_bytes` from `at` on, in whole sectors, and their bytes.
    pub(super) fn place(at: u64, stripes: u64, key_bytes: usize) -> (ByteRange, usize) {
        // One more than allowed is refused.
        let stripes = usize::try_from(stripes).unwrap_or(usize::MAX).min(STRIPES_MAX + 1);
        let bytes = stripes * key_bytes;
        (ByteRange::new(at, (bytes as u64).next_multiple_of(SECTOR_BYTES)), bytes)
    }

    pub(super) fn cipher(&self, key: &[u8]) -> Result<SectorCipher> {
        cipher(&self.encryption, key, 0, SECTOR_BYTES)
    }

    /// Fails if the slot could not be opened with any key of a volume whose key has `key_bytes`.
    pub(super) fn checked(self, key_bytes: usize) -> Result<Self> {
        if !(1..=KEY_BYTES_MAX).contains(&self.cipher_key_bytes) {
            return Err(Refusal::Unsupported(format!("a key of {} bytes", self.cipher_key_bytes)));
        }
        if !(1..=STRIPES_MAX).contains(&(self.material_bytes / key_bytes.max(1))) {
            return Err(Refusal::Damaged("the length of its material is wrong"));
        }
        self.cipher(&[0; KEY_BYTES_MAX][..self.cipher_key_bytes])?;
        Ok(self)
    }
}

impl KeyDigest {
    fn confirms(&self, key: &[u8]) -> Result<bool> {
        let mut value = Zeroizing::new(vec![0; self.value.len()]);
        self.kdf.derive(key, &self.salt, &mut value)?;
        Ok(!self.value.is_empty() && value.ct_eq(&self.value).into())
    }
}

/// The cipher that a header calls `encryption`.
fn cipher(encryption: &str, key: &[u8], first: u64, sector_bytes: u64) -> Result<SectorCipher> {
    let unsupported = || Refusal::Unsupported(format!("the cipher {encryption} with a key of {} bits", 8 * key.len()));
    let whole = || Aes::new(key).ok_or_else(unsupported);
    let (name, mode) = encryption.split_once('-').ok_or_else(unsupported)?;
    let mode = match (name, mode) {
        ("aes", "xts-plain64" | "xts-plain") => {
            let (data, tweak) = key.split_at(key.len() / 2);
            let iv = if mode == "xts-plain" { Iv::Plain32 } else { Iv::Plain64 };
            let half = |half| Aes::new(half).filter(|_| key.len() != 48).ok_or_else(unsupported);
            Mode::Xts { data: half(data)?, tweak: half(tweak)?, iv }
        }
        ("aes", "cbc-plain64") => Mode::Cbc { data: whole()?, iv: Iv::Plain64 },
        ("aes", "cbc-plain") => Mode::Cbc { data: whole()?, iv: Iv::Plain32 },
        ("aes", "cbc-essiv:sha256") => {
            let mut salted = Zeroizing::new([0; 32]);
            Hash::Sha256.digest(&[key], &mut *salted);
            Mode::Cbc { data: whole()?, iv: Iv::Encrypted(Aes::new(&*salted).ok_or_else(unsupported)?) }
        }
        ("aes", "ecb") => Mode::Ecb(whole()?),
        _ => return Err(unsupported()),
    };
    let numbering = Numbering { unit_bytes: SECTOR_BYTES, first };
    SectorCipher::new(mode, numbering, sector_bytes)
        .ok_or_else(|| Refusal::Unsupported(format!("a sector of {sector_bytes} bytes")))
}

/// A text in a header, up to its first zero.
pub(super) fn text_at(header: &[u8], at: usize, len: usize) -> String {
    let bytes = header.get(at..at + len).unwrap_or_default();
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// A number in a header, its highest byte first; 0 beyond its end.
pub(super) fn u32_at(header: &[u8], at: usize) -> u32 {
    header.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u32::from_be_bytes(*bytes))
}
