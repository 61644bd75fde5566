//! Sets: known files as the names and the keys of their blocks, in a file that is used again.
//!
//! All numbers are little-endian:
//!
//! | bytes | content |
//! |---|---|
//! | 16 | `cheetah blocks\r\n` |
//! | 4 | the version, 1 |
//! | 4 | the bytes of a block, 4096 |
//! | 4 | the multiple of bytes at which blocks begin, 512 |
//! | 4, 4, 4 | the numbers of files, of different blocks, and of their places in the files |
//! | 4 and more for each file | the length of its name, and the name in UTF-8 |
//! | 25 for each block, in ascending order | CRC-64/NVME of its first sector, the first 16 bytes of its BLAKE3, the number of its places |
//! | 8 for each of its places, behind it | the number of the file, and that of the block in the file, both from 0 |
//! | 32 | BLAKE3 of all before |

use std::io::{self, Write};

use cheetah_error::{Next, next};

use super::known::{BLOCKS_MAX, FILES_MAX, KnownFile, KnownFiles, PLACES_MAX, Place};
use super::{BLOCK_BYTES, BlockKey, SECTOR_BYTES};
use crate::found::number;

const MAGIC: &[u8; 16] = b"cheetah blocks\r\n";
const VERSION: u32 = 1;
/// The bytes at the end: BLAKE3 of all before.
const SUM_BYTES: usize = 32;
/// The maximum length of the name of a file, in bytes.
const NAME_BYTES_MAX: usize = 64 << 10;
/// The maximum size of a set, in bytes: the keys and places of all blocks that a set may have, and names.
pub const SET_BYTES_MAX: u64 = 256 << 20;
/// The bytes in which an export of hashdb names its columns.
const LOOK_BYTES: usize = 4096;

/// What the file of a database of LMDB has in its first page, after the header of the page: its magic number, little-endian.
const LMDB_MAGIC: [u8; 4] = 0xbeef_c0de_u32.to_le_bytes();
const LMDB_MAGIC_AT: usize = 16;

/// Why bytes are no set of known files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoKnownSet {
    /// It is another kind of file.
    #[error("it is no set of known files")]
    Other,
    /// It is an export of hashdb: MD5 of blocks, which are not searched for.
    #[error("it is an export of hashdb, which has the MD5 of blocks, and these are not searched for")]
    Hashdb,
    /// It is a database of hashdb, or another one of LMDB, which is not read.
    #[error(
        "it is a database (LMDB), such as hashdb makes, which has the MD5 of blocks, and these are not searched for"
    )]
    HashdbDatabase,
    /// It is a set of another version of the format.
    #[error("it is a set of version {0}, and only version {known} can be read", known = VERSION)]
    Version(u32),
    /// Its blocks have another size, or begin at multiples of another number of bytes.
    #[error("it has blocks of {block_bytes} bytes at multiples of {sector_bytes}, which are not searched for")]
    Blocks {
        /// The bytes of a block.
        block_bytes: u32,
        /// Blocks begin at multiples of this.
        sector_bytes: u32,
    },
    /// Its checksum is wrong: it was changed, or part of it is missing.
    #[error("its checksum is wrong, so it was changed or is cut short")]
    Damaged,
    /// It is larger than a set may be.
    #[error("it has more than {} MiB, or too many files or blocks", SET_BYTES_MAX >> 20)]
    TooLarge,
    /// Its checksum is right, and what it says contradicts itself.
    #[error("what it says contradicts itself")]
    Malformed,
}

impl NoKnownSet {
    /// What can be done; nothing if it is another kind of file.
    pub fn next(self) -> Option<Next> {
        match self {
            Self::Other => None,
            Self::TooLarge => Some(next::Search::DivideKnown.into()),
            Self::Hashdb
            | Self::HashdbDatabase
            | Self::Version(_)
            | Self::Blocks { .. }
            | Self::Damaged
            | Self::Malformed => Some(next::Search::MakeSet.into()),
        }
    }
}

impl KnownFiles {
    /// Writes them as a set. Of blocks that many files have, nothing is written.
    ///
    /// # Errors
    ///
    /// If it cannot be written; `FileTooLarge` if it would be larger than a set may be.
    pub fn write_set(&self, to: impl Write) -> io::Result<()> {
        let kept = |key: &BlockKey| self.places.get(key).filter(|places| places.len() <= PLACES_MAX);
        let keys: Vec<_> = self.keys().into_iter().filter(|key| kept(key).is_some()).collect();
        let places: usize = keys.iter().filter_map(kept).map(Vec::len).sum();
        let names: usize = self.files.iter().map(|file| 4 + file.name.len()).sum();
        let size = 40 + names + 25 * keys.len() + 8 * places + SUM_BYTES;
        let is_name_too_long = self.files.iter().any(|file| file.name.len() > NAME_BYTES_MAX);
        if size as u64 > SET_BYTES_MAX || is_name_too_long || self.files.len() > FILES_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let mut to = Summed { to, sum: blake3::Hasher::new() };
        to.write_all(MAGIC)?;
        to.numbers(&[VERSION, number(BLOCK_BYTES), number(SECTOR_BYTES)])?;
        to.numbers(&[number(self.files.len()), number(keys.len()), number(places)])?;
        for file in &self.files {
            to.numbers(&[number(file.name.len())])?;
            to.write_all(file.name.as_bytes())?;
        }
        for (key, places) in keys.iter().filter_map(|key| Some((key, kept(key)?))) {
            to.write_all(&BlockKey::to_bytes(&[*key]))?;
            // Not truncated: at most `PLACES_MAX`.
            to.write_all(&[places.len() as u8])?;
            places.iter().try_for_each(|place| to.numbers(&[place.file, place.block]))?;
        }
        let Summed { mut to, sum } = to;
        to.write_all(sum.finalize().as_bytes())?;
        to.flush()
    }

    /// Reads a set.
    ///
    /// # Errors
    ///
    /// If it is none, or none that can be used.
    pub fn read_set(bytes: &[u8]) -> Result<Self, NoKnownSet> {
        if bytes.len() as u64 > SET_BYTES_MAX {
            return Err(NoKnownSet::TooLarge);
        }
        let rest = bytes.strip_prefix(MAGIC).ok_or_else(|| of_another_kind(bytes))?;
        // Another version may have another checksum.
        let version = rest.first_chunk().map(|version| u32::from_le_bytes(*version)).ok_or(NoKnownSet::Damaged)?;
        if version != VERSION {
            return Err(NoKnownSet::Version(version));
        }
        let (content, sum) = bytes.split_last_chunk::<SUM_BYTES>().ok_or(NoKnownSet::Damaged)?;
        if blake3::hash(content) != blake3::Hash::from_bytes(*sum) {
            return Err(NoKnownSet::Damaged);
        }
        Rest(content.get(MAGIC.len() + 4..).ok_or(NoKnownSet::Malformed)?).known_files()
    }
}

/// What bytes are that are no set.
fn of_another_kind(bytes: &[u8]) -> NoKnownSet {
    match () {
        () if is_hashdb_export(bytes) => NoKnownSet::Hashdb,
        () if bytes.get(LMDB_MAGIC_AT..).is_some_and(|rest| rest.starts_with(&LMDB_MAGIC)) => {
            NoKnownSet::HashdbDatabase
        }
        () => NoKnownSet::Other,
    }
}

/// Whether this is an export of hashdb: lines of JSON, after comments.
fn is_hashdb_export(bytes: &[u8]) -> bool {
    let start = bytes.get(..LOOK_BYTES.min(bytes.len())).unwrap_or_default();
    [b"\"block_hash\"", b"\"file_hash\":"].iter().any(|name| memchr::memmem::find(start, *name).is_some())
}

/// What is left of a set.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    /// Reads the rest of the set, after the version. Memory is allocated for the bytes that are present, not for the counts in the header.
    fn known_files(mut self) -> Result<KnownFiles, NoKnownSet> {
        let [block_bytes, sector_bytes, files, keys, places] = self.numbers()?;
        if (block_bytes, sector_bytes) != (number(BLOCK_BYTES), number(SECTOR_BYTES)) {
            return Err(NoKnownSet::Blocks { block_bytes, sector_bytes });
        }
        // A file takes more memory than its name takes bytes, which may be none.
        if places as usize > BLOCKS_MAX || files as usize > FILES_MAX {
            return Err(NoKnownSet::TooLarge);
        }
        let mut known = KnownFiles::default();
        for _ in 0..files {
            let name = self.name()?.to_owned();
            known.files.push(KnownFile { name, blocks: 0 });
        }
        let mut last: Option<BlockKey> = None;
        for _ in 0..keys {
            let (key, places) = self.block(files)?;
            if last.is_some_and(|last| last >= key) {
                return Err(NoKnownSet::Malformed);
            }
            last = Some(key);
            known.blocks += places.len();
            if known.blocks > BLOCKS_MAX {
                return Err(NoKnownSet::TooLarge);
            }
            known.places.insert(key, places);
        }
        let is_whole = self.0.is_empty() && known.blocks == places as usize;
        // Counts the blocks of each file.
        is_whole.then(|| known.without_common_blocks()).ok_or(NoKnownSet::Malformed)
    }

    /// A key, and its places in these files.
    fn block(&mut self, files: u32) -> Result<(BlockKey, Vec<Place>), NoKnownSet> {
        let sector = u64::from_le_bytes(self.take()?);
        let key = BlockKey { sector, hash: self.take()? };
        let [count] = self.take()?;
        if !(1..=PLACES_MAX).contains(&usize::from(count)) {
            return Err(NoKnownSet::Malformed);
        }
        let mut places: Vec<Place> = Vec::with_capacity(usize::from(count));
        for _ in 0..count {
            let [file, block] = self.numbers()?;
            let follows = places.last().is_none_or(|last| (last.file, last.block) < (file, block));
            if file >= files || !follows {
                return Err(NoKnownSet::Malformed);
            }
            places.push(Place { file, block });
        }
        Ok((key, places))
    }

    fn name(&mut self) -> Result<&'a str, NoKnownSet> {
        let [len] = self.numbers()?;
        let len = Some(len as usize).filter(|len| *len <= NAME_BYTES_MAX).ok_or(NoKnownSet::Malformed)?;
        let (name, rest) = self.0.split_at_checked(len).ok_or(NoKnownSet::Malformed)?;
        self.0 = rest;
        std::str::from_utf8(name).map_err(|_| NoKnownSet::Malformed)
    }

    fn numbers<const N: usize>(&mut self) -> Result<[u32; N], NoKnownSet> {
        let mut numbers = [0; N];
        for number in &mut numbers {
            *number = u32::from_le_bytes(self.take()?);
        }
        Ok(numbers)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], NoKnownSet> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(NoKnownSet::Malformed)?;
        self.0 = rest;
        Ok(*taken)
    }
}

/// Writes, and sums up what is written.
struct Summed<W> {
    to: W,
    sum: blake3::Hasher,
}

impl<W: Write> Summed<W> {
    fn numbers(&mut self, numbers: &[u32]) -> io::Result<()> {
        numbers.iter().try_for_each(|number| self.write_all(&number.to_le_bytes()))
    }
}

impl<W: Write> Write for Summed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.sum.update(bytes.get(..written).unwrap_or_default());
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::noise;
    use super::*;

    fn known() -> KnownFiles {
        let (shared, own) = (noise(3, 2 * BLOCK_BYTES), noise(5, BLOCK_BYTES));
        let mut known = KnownFiles::default();
        known.add("a", &[&shared[..], &own].concat()[..]).unwrap();
        known.add("größer", &[&own[..], &shared, &noise(6, 100)].concat()[..]).unwrap();
        known.add("none", &[0; BLOCK_BYTES][..]).unwrap();
        known.without_common_blocks()
    }

    fn set(known: &KnownFiles) -> Vec<u8> {
        let mut bytes = Vec::new();
        known.write_set(&mut bytes).unwrap();
        bytes
    }

    /// The set with its checksum made right.
    fn summed(mut bytes: Vec<u8>) -> Vec<u8> {
        bytes.truncate(bytes.len() - SUM_BYTES);
        let sum = blake3::hash(&bytes);
        bytes.extend_from_slice(sum.as_bytes());
        bytes
    }

    fn refusal(bytes: &[u8]) -> NoKnownSet {
        KnownFiles::read_set(bytes).err().unwrap()
    }

    #[test]
    fn a_set_that_is_written_is_read_with_the_same_files_keys_and_places() {
        let known = known();
        let bytes = set(&known);
        let read = KnownFiles::read_set(&bytes).unwrap();
        assert_eq!((read.files(), read.keys()), (known.files(), known.keys()));
        assert_eq!((&read.places, read.blocks), (&known.places, 6));
        assert_eq!(set(&read), bytes);
        // Three names, and three blocks of which each has two places.
        assert_eq!(bytes.len(), 40 + 3 * 4 + "agrößernone".len() + 3 * (25 + 2 * 8) + SUM_BYTES);
        let empty = KnownFiles::read_set(&set(&KnownFiles::default())).unwrap();
        assert!(empty.files().is_empty() && empty.keys().is_empty());
    }

    #[test]
    fn a_set_that_was_changed_or_cut_anywhere_is_refused() {
        let bytes = set(&known());
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            let expected = match at {
                0..16 => NoKnownSet::Other,
                16..20 => NoKnownSet::Version(VERSION ^ (1 << (8 * (at - 16)))),
                _ => NoKnownSet::Damaged,
            };
            assert_eq!(refusal(&changed), expected, "{at}");
            let expected = if at < 16 { NoKnownSet::Other } else { NoKnownSet::Damaged };
            assert_eq!(refusal(&bytes[..at]), expected, "{at}");
        }
    }

    #[test]
    fn a_set_with_a_right_checksum_that_contradicts_itself_is_refused() {
        let bytes = set(&known());
        let with = |at: usize, value: &[u8]| {
            let mut bytes = bytes.clone();
            bytes[at..at + value.len()].copy_from_slice(value);
            refusal(&summed(bytes))
        };
        let keys_at = 40 + 3 * 4 + "agrößernone".len();
        assert_eq!(with(20, &512u32.to_le_bytes()), NoKnownSet::Blocks { block_bytes: 512, sector_bytes: 512 });
        // Numbers of files, blocks and places.
        for at in [28, 32, 36] {
            assert_ne!(with(at, &1u32.to_le_bytes()), NoKnownSet::Damaged, "{at}");
            assert!(matches!(with(at, &[0xff; 4]), NoKnownSet::Malformed | NoKnownSet::TooLarge), "{at}");
        }
        assert_eq!(with(28, &(FILES_MAX as u32 + 1).to_le_bytes()), NoKnownSet::TooLarge);
        assert_eq!(with(40, &[0xff; 4]), NoKnownSet::Malformed);
        assert_eq!(with(44, &[0xff]), NoKnownSet::Malformed);
        // The order of the keys, the number of places, and their file.
        assert_eq!(with(keys_at, &[0xff; 8]), NoKnownSet::Malformed);
        assert_eq!(with(keys_at + 24, &[0]), NoKnownSet::Malformed);
        assert_eq!(with(keys_at + 24, &[17]), NoKnownSet::Malformed);
        assert_eq!(with(keys_at + 25, &[3]), NoKnownSet::Malformed);
        // The same place twice.
        assert_eq!(with(keys_at + 33, &bytes[keys_at + 25..keys_at + 33]), NoKnownSet::Malformed);
        let mut longer = bytes.clone();
        longer.push(0);
        assert_eq!(refusal(&summed(longer)), NoKnownSet::Malformed);
    }

    #[test]
    fn files_of_other_kinds_are_named() {
        assert_eq!(refusal(b""), NoKnownSet::Other);
        assert_eq!(refusal(b"PK\x03\x04"), NoKnownSet::Other);
        let export = b"# hashdb export\n{\"block_hash\":\"00\",\"source_sub_counts\":[]}\n";
        assert_eq!(refusal(export), NoKnownSet::Hashdb);
        let database = [&[0; 16][..], &[0xde, 0xc0, 0xef, 0xbe], &[1, 0, 0, 0]].concat();
        assert_eq!(refusal(&database), NoKnownSet::HashdbDatabase);
        assert_eq!((refusal(&database[..19]), refusal(&database[1..])), (NoKnownSet::Other, NoKnownSet::Other));
    }
}
