//! The metadata of a volume: a block, of which there are three copies.

use cheetah_device::le::{u16_at, u32_at, u64_at};
use crc_fast::CrcAlgorithm::Crc32IsoHdlc;
use crc_fast::checksum;

use super::boot::Boot;
use super::entry::{SealedKey, entries, kind, value};
use super::protector::Protector;
use super::volume_key::VolumeKey;
use crate::key::Key;
use crate::refusal::{Refusal, Result};

const SIGNATURE: &[u8] = b"-FVE-FS-";
const BLOCK_HEADER_BYTES: usize = 64;
const HEADER_BYTES: usize = 48;
/// The longest block, in bytes. Most have some hundred.
pub(super) const METADATA_BYTES_MAX: u64 = 64 << 10;
/// The bytes of a block that are read first. The rest follows if the block is longer.
pub(super) const METADATA_BYTES: u64 = 8 << 10;
/// The checksum, which follows the block in its place.
const CHECKSUM_AT: usize = 4;
/// Versions of blocks: of Windows Vista, whose sizes are in bytes, and of later ones, whose sizes are in these units.
const VISTA: u16 = 1;
const SEVEN: u16 = 2;
const SIZE_UNIT_BYTES: usize = 16;
/// The most protectors that are tried: each costs as much as a password.
const PROTECTORS_MAX: usize = 32;
/// States of a volume.
const DECRYPTED: u16 = 1;
const ENCRYPTED: u16 = 4;

const DAMAGED: Refusal = Refusal::Damaged("no copy of its metadata is whole");

/// The length of a block, as it says.
fn block_bytes(block: &[u8]) -> usize {
    let unit_bytes = if u16_at(block, 10) == VISTA { 1 } else { SIZE_UNIT_BYTES };
    usize::from(u16_at(block, 8)) * unit_bytes
}

/// What a block of metadata says.
pub struct Metadata {
    version: u16,
    /// The state of the volume, and the one that it is to have.
    states: (u16, u16),
    /// How much of the volume is encrypted; 0 if all of it is.
    pub(super) encrypted_bytes: u64,
    /// Where the copies of the metadata begin.
    pub(super) metadata_at: [u64; 3],
    /// Where the first sectors of the volume lie, and how many bytes of them. Of Windows Vista, the cluster that the boot sector does
    /// not name any more.
    pub(super) header_at: u64,
    pub(super) header_bytes: u64,
    pub(super) method: u16,
    protectors: Vec<Protector>,
    volume_key: Option<SealedKey>,
}

impl Metadata {
    /// Whether a block and its checksum are longer than these bytes of it.
    pub fn is_longer(place: &[u8]) -> bool {
        place.starts_with(SIGNATURE) && block_bytes(place) + CHECKSUM_AT + 4 > place.len()
    }

    /// Parses a block.
    ///
    /// # Errors
    ///
    /// If it is damaged, which its checksum says.
    pub fn parse(place: &[u8]) -> Result<Self> {
        let size = block_bytes(place);
        let (block, rest) = place.split_at_checked(size).ok_or(DAMAGED)?;
        if rest.len() < CHECKSUM_AT + 4 || u64::from(u32_at(rest, CHECKSUM_AT)) != checksum(Crc32IsoHdlc, block) {
            return Err(DAMAGED);
        }
        Self::parse_whole(block)
    }

    /// Parses a block whose checksum is right.
    pub fn parse_whole(block: &[u8]) -> Result<Self> {
        let version = u16_at(block, 10);
        let metadata = block.get(BLOCK_HEADER_BYTES..).filter(|_| block.starts_with(SIGNATURE)).ok_or(DAMAGED)?;
        if ![VISTA, SEVEN].contains(&version) {
            return Err(Refusal::Unsupported(format!("version {version} of its metadata")));
        }
        let (size, header) = (u32_at(metadata, 0) as usize, u32_at(metadata, 8) as usize);
        let metadata = metadata.get(..size).filter(|_| header == HEADER_BYTES).ok_or(DAMAGED)?;
        let mut parsed = Self {
            version,
            states: (u16_at(block, 12), u16_at(block, 14)),
            encrypted_bytes: u64_at(block, 16),
            metadata_at: [32, 40, 48].map(|at| u64_at(block, at)),
            header_at: u64_at(block, 56),
            // An entry says it.
            header_bytes: 0,
            method: u16_at(metadata, 36),
            protectors: Vec::new(),
            volume_key: None,
        };
        parsed.read_entries(metadata.get(HEADER_BYTES..).ok_or(DAMAGED)?);
        Ok(parsed)
    }

    fn read_entries(&mut self, bytes: &[u8]) {
        for entry in entries(bytes) {
            match (entry.kind, entry.value) {
                (kind::VOLUME_MASTER_KEY, value::VOLUME_MASTER_KEY) if self.protectors.len() < PROTECTORS_MAX => {
                    self.protectors.extend(Protector::parse(entry.content));
                }
                (kind::VOLUME_KEY, value::SEALED_KEY) if self.volume_key.is_none() => {
                    self.volume_key = SealedKey::parse(entry.content);
                }
                (kind::VOLUME_HEADER, value::PLACE) => {
                    self.header_at = u64_at(entry.content, 0);
                    self.header_bytes = u64_at(entry.content, 8);
                }
                _ => {}
            }
        }
    }

    /// Whether it is of Windows Vista.
    pub(super) fn is_of_vista(&self) -> bool {
        self.version == VISTA
    }

    /// Whether nothing of the volume is encrypted any more.
    pub(super) fn is_decrypted(&self) -> bool {
        self.states == (DECRYPTED, DECRYPTED)
    }

    /// Fails if the volume could not be decrypted right with any key.
    pub(super) fn check(&self, boot: &Boot) -> Result<()> {
        // Such a volume also has records within it, which are no part of its content.
        if boot.is_on_write {
            return Err(Refusal::Unsupported("BitLocker that encrypts a sector when it is written".to_owned()));
        }
        if boot.is_of_vista() != self.is_of_vista() {
            return Err(Refusal::Damaged("its boot sector and its metadata are of different versions"));
        }
        // Vista does not say how far it has come, and leaves its usual boot sector behind.
        let is_decrypted = self.is_decrypted() && !self.is_of_vista();
        let is_encrypted = self.states == (ENCRYPTED, ENCRYPTED) && !(self.is_of_vista() && self.encrypted_bytes != 0);
        match is_decrypted || is_encrypted {
            true => Ok(()),
            false => Err(Refusal::Unsupported("an encryption or decryption that is not finished".to_owned())),
        }
    }

    /// The key of a volume whose protection is suspended, and the protector.
    pub(super) fn without_key(&self) -> Result<Option<(VolumeKey, String)>> {
        for protector in &self.protectors {
            if let Some(master) = protector.without_key()? {
                return self.confirmed(&master, protector.name());
            }
        }
        Ok(None)
    }

    /// The key of the volume, if `key` opens a protector, or is the volume master key. Blocks.
    pub(super) fn with_key(&self, key: &Key) -> Result<Option<(VolumeKey, String)>> {
        if let Some(master) = key.hexadecimal()?
            && let Some(opened) = self.confirmed(&master, "volume master key".to_owned())?
        {
            return Ok(Some(opened));
        }
        for protector in &self.protectors {
            if let Some(master) = protector.with_key(key)? {
                return match self.confirmed(&master, protector.name())? {
                    Some(opened) => Ok(Some(opened)),
                    None => Err(Refusal::Damaged("the key of the volume is not what its protector sealed")),
                };
            }
        }
        Ok(None)
    }

    /// The key of the volume, if `key` is that. Nothing in the metadata confirms it.
    pub(super) fn volume_key_given(&self, key: &Key) -> Result<Option<VolumeKey>> {
        Ok(key.hexadecimal()?.and_then(|bytes| VolumeKey::of(self.method, &bytes)))
    }

    fn confirmed(&self, master: &[u8], name: String) -> Result<Option<(VolumeKey, String)>> {
        let sealed = self.volume_key.as_ref().ok_or(Refusal::Damaged("the key of the volume is missing"))?;
        let Some(opened) = sealed.open(master)? else { return Ok(None) };
        match VolumeKey::of(opened.method, &opened.bytes) {
            Some(key) => Ok(Some((key, name))),
            None => Err(Refusal::Unsupported(format!("the method {:#x}", opened.method))),
        }
    }
}
