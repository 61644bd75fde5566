//! The superblock of a volume.

use cheetah_device::le::u64_at;

use super::super::Uuid;
use super::blob::Blob;
use super::blocks::sum;

/// Where things are in a superblock.
const MAGIC_AT: usize = 32;
const MAGIC: &[u8] = b"APSB";
const FEATURES_AT: usize = 56;
const OBJECT_MAP_AT: usize = 128;
const ID_AT: usize = 240;
const FLAGS_AT: usize = 264;
const NAME_AT: usize = 704;
const NAME_BYTES: usize = 256;
const CONVERSION_AT: usize = 976;
/// The feature of a volume that is sealed: its tree of files has other nodes.
const SEALED: u64 = 0x20;

/// Flags.
mod flag {
    pub const UNENCRYPTED: u64 = 1;
    /// Its blocks are encrypted with one key, by software.
    pub const ONE_KEY: u64 = 8;
}

/// The users of recovery keys, which are the same on all systems.
const RECOVERY: Uuid = Uuid(*b"\xeb\xc6\xc0\x64\0\0\x11\xaa\xaa\x11\0\x30\x65\x43\xec\xac");
const INSTITUTION: Uuid = Uuid(*b"\xc0\x64\xeb\xc6\0\0\x11\xaa\xaa\x11\0\x30\x65\x43\xec\xac");
const ICLOUD: Uuid = Uuid(*b"\x64\xc0\xc6\xeb\0\0\x11\xaa\xaa\x11\0\x30\x65\x43\xec\xac");

/// A volume of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// Its identifier.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// Whether it is encrypted.
    pub is_encrypted: bool,
    /// Why no key can open it, if so: a subject that "is not supported" follows.
    pub refused: Option<&'static str>,
    /// Its key, wrapped with that of an opener.
    pub key: Option<Blob>,
    /// What opens it.
    pub openers: Vec<Opener>,
    /// The block of its superblock, and that.
    pub(super) block: u64,
    pub(super) superblock: Vec<u8>,
    /// The block of its object map.
    pub(super) object_map: u64,
}

/// A password or another key that opens a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opener {
    /// The identifier of its user.
    pub id: Uuid,
    /// The key of the user, which the password wraps.
    pub blob: Blob,
}

impl Volume {
    /// Parses the superblock at a block; `None` if it is none.
    pub(super) fn parse(block: u64, superblock: Vec<u8>) -> Option<Self> {
        if superblock.get(MAGIC_AT..MAGIC_AT + MAGIC.len()) != Some(MAGIC) {
            return None;
        }
        let name = superblock.get(NAME_AT..NAME_AT + NAME_BYTES)?;
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        let flags = u64_at(&superblock, FLAGS_AT);
        let refused = match () {
            () if flags & flag::ONE_KEY == 0 => Some("a key for each file"),
            () if u64_at(&superblock, CONVERSION_AT) != 0 => Some(CONVERSION),
            () if u64_at(&superblock, FEATURES_AT) & SEALED != 0 => Some("a sealed volume that is encrypted"),
            () => None,
        };
        let is_encrypted = flags & flag::UNENCRYPTED == 0;
        Some(Self {
            id: Uuid::at(&superblock, ID_AT)?,
            name: String::from_utf8_lossy(name).into_owned(),
            is_encrypted,
            refused: refused.filter(|_| is_encrypted),
            key: None,
            openers: Vec::new(),
            block,
            object_map: u64_at(&superblock, OBJECT_MAP_AT),
            superblock,
        })
    }

    /// The superblock as it is where the volume is not encrypted: so tools read its blocks as they are shown.
    pub fn unencrypted_superblock(&self) -> Vec<u8> {
        let mut superblock = self.superblock.clone();
        let flags = (u64_at(&superblock, FLAGS_AT) | flag::UNENCRYPTED) & !flag::ONE_KEY;
        if let Some(place) = superblock.get_mut(FLAGS_AT..FLAGS_AT + 8) {
            place.copy_from_slice(&flags.to_le_bytes());
        }
        let sum = sum(&superblock);
        if let Some(place) = superblock.first_chunk_mut() {
            *place = sum.to_le_bytes();
        }
        superblock
    }

    /// What a key of a user is.
    pub fn kind_of(&self, opener: &Opener) -> &'static str {
        match opener.id {
            RECOVERY => "recovery key",
            INSTITUTION => "recovery key of an institution",
            ICLOUD => "recovery by iCloud",
            id if id == self.id => "password",
            _ => "password of a user",
        }
    }
}

/// What is said of a volume whose keys the processor of a Mac keeps, of one whose keys are damaged, and of one that is being encrypted or
/// decrypted.
pub(super) const HARDWARE: &str = "encryption by the hardware of a Mac (T2, Apple silicon)";
pub(super) const KEY_BAG: &str = "a key bag that is damaged or cannot be read";
pub(super) const CONVERSION: &str = "an encryption or decryption that is not finished";
