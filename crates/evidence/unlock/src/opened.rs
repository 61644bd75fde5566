//! A volume that was opened: where its parts lie, and what decrypts them.
//!
//! An opened volume has its place: the content of each sector is read where its ciphertext lies. So a layer over a whole disk shows
//! the opened volumes in it, and what was fetched of the disk in advance is what they need.

use bytes::{Bytes, BytesMut};
use cheetah_device::data::Part;
use cheetah_device::{ByteRange, Data, Device, Error, Result, buffers};
use cheetah_kit::locked::Locked;
use futures::future::try_join_all;

use crate::cipher::{SECTOR_BYTES_MAX, SectorCipher};
use crate::refusal;

/// Bytes that are copied and decrypted at a time: a multiple of every sector.
const PIECE_BYTES: usize = 8 * SECTOR_BYTES_MAX;

/// A volume that was opened, at a place of a device.
pub(crate) struct Opened {
    /// Its content, in the offsets of the device.
    range: ByteRange,
    /// The parts of `range`, in order and without gaps.
    regions: Vec<Region>,
    /// What decrypts them; none if nothing is encrypted.
    ciphers: Vec<Locked<SectorCipher>>,
    /// What opened it, as `key slot 1`.
    protector: String,
}

/// A part of a volume, of one kind.
#[derive(Debug, Clone)]
pub(crate) struct Region {
    /// Its place in the content, in the offsets of the device.
    pub range: ByteRange,
    pub content: Content,
}

/// How the content of a part is made.
#[derive(Debug, Clone)]
pub(crate) enum Content {
    /// It is encrypted.
    Encrypted(Sealed),
    /// It is not encrypted, from this offset of the device on.
    Clear { below: u64 },
    /// Zeros: something else lies there, which is no part of the content.
    Zeros,
    /// These bytes.
    Stated(Bytes),
}

/// Where encrypted bytes lie, and how they are counted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sealed {
    /// Where they begin, in the offsets of the device.
    pub below: u64,
    /// What comes before them in the count of sectors, in bytes.
    pub counted: u64,
    /// The number of what decrypts them, among the ciphers of the volume.
    pub cipher: usize,
}

impl Content {
    /// Bytes from `below` on, which the first cipher decrypts, and which are counted from `origin` on: both in the offsets of the device.
    pub fn encrypted(below: u64, origin: u64) -> Self {
        Self::Encrypted(Sealed { below, counted: below.saturating_sub(origin), cipher: 0 })
    }
}

impl Opened {
    /// Takes the parts of `range`; fails unless they cover it exactly, in whole sectors where they are encrypted.
    pub fn new(
        range: ByteRange,
        regions: Vec<Region>,
        cipher: Option<SectorCipher>,
        protector: String,
    ) -> refusal::Result<Self> {
        let ciphers = cipher.into_iter().map(Locked::new).collect::<std::io::Result<_>>()?;
        Self::with_ciphers(range, regions, ciphers, protector)
    }

    /// The same of a volume that several ciphers decrypt.
    pub fn with_ciphers(
        range: ByteRange,
        regions: Vec<Region>,
        ciphers: Vec<Locked<SectorCipher>>,
        protector: String,
    ) -> refusal::Result<Self> {
        let wrong = refusal::Refusal::Damaged("its parts do not fit together");
        let mut at = range.offset;
        for Region { range, content } in &regions {
            let is_right = match content {
                Content::Encrypted(sealed) => ciphers.get(sealed.cipher).is_some_and(|cipher| {
                    let is_sector = |bytes: u64| bytes.is_multiple_of(cipher.sector_bytes());
                    is_sector(sealed.counted) && is_sector(range.len)
                }),
                Content::Clear { .. } | Content::Zeros => true,
                Content::Stated(bytes) => bytes.len() as u64 == range.len,
            };
            if range.offset != at || !is_right {
                return Err(wrong);
            }
            at = range.end();
        }
        if at != range.end() {
            return Err(wrong);
        }
        Ok(Self { range, regions, ciphers, protector })
    }

    /// Its content, in the offsets of the device.
    pub fn range(&self) -> ByteRange {
        self.range
    }

    /// What opened it.
    pub fn protector(&self) -> &str {
        &self.protector
    }

    /// Reads a range within [`range`](Self::range).
    pub async fn read(&self, device: &dyn Device, range: ByteRange) -> Result<Data> {
        let first = self.regions.partition_point(|region| region.range.end() <= range.offset);
        let parts = self.regions[first..].iter().map_while(|region| Some((region, region.range.intersection(range)?)));
        let reads = try_join_all(parts.map(|(region, part)| self.read_part(device, region, part))).await?;
        let mut content = Data::new();
        reads.into_iter().for_each(|data| content.append(data));
        Ok(content)
    }

    async fn read_part(&self, device: &dyn Device, region: &Region, part: ByteRange) -> Result<Data> {
        let before = part.offset - region.range.offset;
        match &region.content {
            Content::Clear { below } => device.read(ByteRange::new(below + before, part.len)).await,
            Content::Zeros => Ok(Data::zeros(part.len)),
            Content::Stated(bytes) => Ok(Data::from(bytes.clone()).slice(before, part.len)),
            Content::Encrypted(sealed) => self.decrypt(device, sealed, ByteRange::new(before, part.len)).await,
        }
    }

    /// Reads a part of encrypted bytes: the sectors that hold it.
    async fn decrypt(&self, device: &dyn Device, place: &Sealed, part: ByteRange) -> Result<Data> {
        let Some(cipher) = self.ciphers.get(place.cipher) else {
            return Err(Error::Invalid("a volume without a key is encrypted".into()));
        };
        let sectors = part.aligned_to(cipher.sector_bytes());
        let sealed = device.read(sectors.shifted(place.below)).await?;
        if sealed.len() != sectors.len {
            return Err(Error::Invalid("a reply to a read has the wrong length".into()));
        }
        let content = decrypted(cipher, place.counted + sectors.offset, sealed);
        Ok(Data::from(buffers::share(content)).slice(part.offset - sectors.offset, part.len))
    }
}

/// The content of whole sectors that begin `offset` bytes after the start of the volume, in the memory of `sealed` if that is its alone.
fn decrypted(cipher: &SectorCipher, offset: u64, sealed: Data) -> BytesMut {
    match sealed.parts() {
        [Part::Bytes(_)] => match sealed.into_bytes().try_into_mut() {
            Ok(mut alone) => {
                cipher.decrypt(offset, &mut alone);
                alone
            }
            Err(shared) => decrypted_copy(cipher, offset, &shared),
        },
        _ => {
            // Parts may meet within a sector, so they are joined first. Not truncated: they are in memory, or are the zeros of one read.
            let mut joined = buffers::empty(sealed.len() as usize);
            sealed.append_to(&mut joined);
            cipher.decrypt(offset, &mut joined);
            joined
        }
    }
}

/// The same of bytes that others may read.
fn decrypted_copy(cipher: &SectorCipher, offset: u64, sealed: &[u8]) -> BytesMut {
    let mut content = buffers::empty(sealed.len());
    // A piece is decrypted while the processor's cache has it.
    for piece in sealed.chunks(PIECE_BYTES) {
        let start = content.len();
        content.extend_from_slice(piece);
        cipher.decrypt(offset + start as u64, &mut content[start..]);
    }
    content
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cipher::{Aes, Iv, Mode, Numbering};

    const SECTOR: usize = 512;

    fn cipher() -> SectorCipher {
        let (data, tweak) = (Aes::new(&[1; 32]).unwrap(), Aes::new(&[2; 32]).unwrap());
        let numbering = Numbering { unit_bytes: SECTOR as u64, first: 3 };
        SectorCipher::new(Mode::Xts { data, tweak, iv: Iv::Plain64 }, numbering, SECTOR as u64).unwrap()
    }

    #[test]
    fn bytes_that_others_have_stay_as_they_are_and_every_form_has_the_same_content() {
        let cipher = cipher();
        // Below and above what is copied at a time, what is decrypted together, and the smallest buffer that is reused.
        for sectors in [1, 63, 64, 65, 127, 130, 200] {
            for before in [0, 1, 37, 64] {
                let (len, offset) = (sectors * SECTOR, (before * SECTOR) as u64);
                let sealed: Vec<u8> = (0..len).map(|at| (at * 7 % 251) as u8).collect();
                let mut expected = sealed.clone();
                for (nth, sector) in expected.chunks_exact_mut(SECTOR).enumerate() {
                    cipher.decrypt(offset + (nth * SECTOR) as u64, sector);
                }
                let name = format!("{sectors} sectors from {before} on");
                let alone = Data::from(sealed.clone());
                assert!(decrypted(&cipher, offset, alone) == expected[..], "{name}, alone");
                let shared = Bytes::from(sealed.clone());
                assert!(decrypted(&cipher, offset, Data::from(shared.clone())) == expected[..], "{name}, shared");
                assert!(shared == sealed, "{name}: the bytes of others were altered");
                let mut parts = Data::from(shared.slice(..len - 300));
                parts.append(Data::from(shared.slice(len - 300..)));
                assert!(decrypted(&cipher, offset, parts) == expected[..], "{name}, in parts");
                assert!(shared == sealed, "{name}: the bytes of others were altered");
            }
        }
    }

    #[test]
    fn a_hole_is_decrypted_as_the_zeros_that_it_is() {
        let (cipher, mut expected) = (cipher(), vec![0; 130 * SECTOR]);
        cipher.decrypt(0, &mut expected);
        assert!(decrypted(&cipher, 0, Data::zeros(130 * SECTOR as u64)) == expected[..]);
    }
}
