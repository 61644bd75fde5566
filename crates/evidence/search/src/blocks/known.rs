//! Known files, and which of their blocks tell them.

use std::collections::HashMap;
use std::io::{self, Read};

use cheetah_error::{Error, Result};

use super::{BLOCK_BYTES, BlockKey, tells_nothing};

/// The most blocks of all files together: 16 GiB of files, whose keys take about 400 MB.
pub(super) const BLOCKS_MAX: usize = 4 << 20;
/// The most files of a set, each with a name.
pub(super) const FILES_MAX: usize = 4 << 20;
/// A block that stands in more places than this tells none of the files.
pub(super) const PLACES_MAX: usize = 16;

/// A known file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownFile {
    /// Its name.
    pub name: String,
    /// The number of its blocks that tell it. What is left of a block at its end is none.
    pub blocks: u64,
}

/// A block of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// The file, by its index.
    pub file: u32,
    /// The block, counted from the beginning of the file.
    pub block: u32,
}

/// Known files.
#[derive(Default)]
pub struct KnownFiles {
    pub(super) files: Vec<KnownFile>,
    /// The places of each block in the files.
    pub(super) places: HashMap<BlockKey, Vec<Place>>,
    /// The number of places.
    pub(super) blocks: usize,
}

impl KnownFiles {
    /// Adds a file.
    ///
    /// # Errors
    ///
    /// If it cannot be read; `Kind::Misuse` if the files have too many blocks.
    pub fn add(&mut self, name: &str, content: impl Read) -> Result<()> {
        let mut content = io::BufReader::with_capacity(1 << 20, content);
        let file = u32::try_from(self.files.len()).map_err(|_| Error::misuse("too many files: divide them"))?;
        let mut block = [0; BLOCK_BYTES];
        for number in 0..u32::MAX {
            match content.read_exact(&mut block) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
                Err(error) => return Err(Error::io(format!("reading {name}"), &error)),
            }
            if tells_nothing(&block) {
                continue;
            }
            self.blocks += 1;
            if self.blocks > BLOCKS_MAX {
                return Err(Error::misuse("the known files have more than 16 GiB: divide them"));
            }
            let places = self.places.entry(BlockKey::of(&block)).or_default();
            // One more than is allowed says that it tells nothing.
            if places.len() <= PLACES_MAX {
                places.push(Place { file, block: number });
            }
        }
        self.files.push(KnownFile { name: name.to_owned(), blocks: 0 });
        Ok(())
    }

    /// Leaves out the blocks that many files have, and counts those of each file that tell it.
    #[must_use]
    pub fn without_common_blocks(mut self) -> Self {
        self.places.retain(|_, places| places.len() <= PLACES_MAX);
        for place in self.places.values().flatten() {
            if let Some(file) = self.files.get_mut(place.file as usize) {
                file.blocks += 1;
            }
        }
        self
    }

    /// The files, in the order in which they were added.
    pub fn files(&self) -> &[KnownFile] {
        &self.files
    }

    /// What their blocks are found by, in a definite order.
    pub fn keys(&self) -> Vec<BlockKey> {
        let mut keys: Vec<_> = self.places.keys().copied().collect();
        keys.sort_unstable();
        keys
    }

    /// The places of the block that a hit has.
    pub(super) fn places(&self, bytes: &[u8]) -> &[Place] {
        BlockKey::in_hit(bytes).and_then(|key| self.places.get(&key)).map_or(&[], Vec::as_slice)
    }
}
