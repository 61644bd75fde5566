//! The key of a volume, and the cipher that it is for.

use cheetah_kit::locked::LockedBytes;

use crate::cipher::{Aes, Iv, Mode, Numbering, SectorCipher};
use crate::refusal::{Refusal, Result};

/// Methods.
const CBC_128_DIFFUSER: u16 = 0x8000;
const CBC_256_DIFFUSER: u16 = 0x8001;
const CBC_128: u16 = 0x8002;
const CBC_256: u16 = 0x8003;
const XTS_128: u16 = 0x8004;
const XTS_256: u16 = 0x8005;

/// The key of a volume (FVEK): its halves, of which some methods have one.
pub(super) struct VolumeKey {
    method: u16,
    first: LockedBytes,
    second: LockedBytes,
}

impl VolumeKey {
    /// Takes the bytes of a key for `method`; `None` for an unknown one, or a key of another length.
    pub fn of(method: u16, bytes: &[u8]) -> Option<Self> {
        let (first, second) = match (method, bytes.len()) {
            (CBC_128, 16) | (CBC_256, 32) => (bytes, &[][..]),
            (XTS_128 | CBC_128_DIFFUSER, 32) | (XTS_256 | CBC_256_DIFFUSER, 64) => bytes.split_at(bytes.len() / 2),
            // Both halves have room for a key of 256 bits.
            (CBC_128_DIFFUSER, 64) => (&bytes[..16], &bytes[32..48]),
            _ => return None,
        };
        Some(Self { method, first: LockedBytes::copy_of(first).ok()?, second: LockedBytes::copy_of(second).ok()? })
    }

    /// The cipher of sectors of this size.
    pub fn cipher(&self, sector_bytes: u64) -> Result<SectorCipher> {
        let damaged = || Refusal::Damaged("the length of a key is wrong");
        let (first, second) = (|| Aes::new(&self.first), || Aes::new(&self.second));
        let by = |unit_bytes| Numbering { unit_bytes, first: 0 };
        let iv = || Some(Iv::Encrypted(first()?));
        // CBC counts bytes.
        let (mode, numbering) = match self.method {
            XTS_128 | XTS_256 => {
                let (data, tweak) = (first().ok_or_else(damaged)?, second().ok_or_else(damaged)?);
                (Mode::Xts { data, tweak, iv: Iv::Plain64 }, by(sector_bytes))
            }
            CBC_128 | CBC_256 => {
                let (data, iv) = (first().ok_or_else(damaged)?, iv().ok_or_else(damaged)?);
                (Mode::Cbc { data, iv }, by(1))
            }
            _ => {
                let (data, iv) = (first().ok_or_else(damaged)?, iv().ok_or_else(damaged)?);
                (Mode::CbcDiffused { data, iv, sector_key: second().ok_or_else(damaged)? }, by(1))
            }
        };
        SectorCipher::new(mode, numbering, sector_bytes)
            .ok_or_else(|| Refusal::Unsupported(format!("a sector of {sector_bytes} bytes")))
    }
}
