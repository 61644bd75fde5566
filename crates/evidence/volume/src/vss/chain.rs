//! Reads a list of blocks, each of which says where the next one is.

use std::collections::HashSet;

use cheetah_device::{ByteRange, Data, Device, Error as DeviceError};

use super::BLOCK_BYTES;
use super::block::parse_block;
use super::refused::{Damage, Defect, Part};

/// The longest list, in blocks: 512 MiB.
const BLOCKS_MAX: usize = 1 << 15;
/// The longest catalog, in blocks: as many shadow copies as there can be take nine. It is read whenever a source is opened.
const CATALOG_BLOCKS_MAX: usize = 64;
/// How much is read at once of a list whose blocks lie behind each other, as they mostly do.
const AHEAD_BYTES_MAX: u64 = 1 << 20;

/// A list of blocks of one kind.
pub(super) struct Chain<'a> {
    device: &'a dyn Device,
    /// The place of the volume in the device.
    volume: ByteRange,
    part: Part,
    /// Where the next block is, from the start of the volume; 0 after the last.
    next: u64,
    seen: HashSet<u64>,
    /// What was read last.
    kept: Option<(ByteRange, Data)>,
    ahead_bytes: u64,
}

impl<'a> Chain<'a> {
    /// The list that begins at `first`, from the start of the volume. 0 is an empty one.
    pub fn new(device: &'a dyn Device, volume: ByteRange, part: Part, first: u64) -> Self {
        Self { device, volume, part, next: first, seen: HashSet::new(), kept: None, ahead_bytes: BLOCK_BYTES }
    }

    /// Reads the next block; returns its place in the volume, and the whole of it.
    pub async fn next_block(&mut self) -> Result<Option<(u64, Vec<u8>)>, Defect> {
        let at = self.next;
        if at == 0 {
            return Ok(None);
        }
        let blocks_max = if self.part == Part::Catalog { CATALOG_BLOCKS_MAX } else { BLOCKS_MAX };
        if self.seen.len() >= blocks_max {
            return Err(self.damaged(at, Damage::LongList));
        }
        if !self.seen.insert(at) {
            return Err(self.damaged(at, Damage::Twice));
        }
        let block: Vec<u8> = self.block(at).await?.into_bytes().into();
        self.next = parse_block(&block, self.part, at)?;
        Ok(Some((at, block)))
    }

    async fn block(&mut self, at: u64) -> Result<Data, Defect> {
        let wanted = ByteRange::new(at, BLOCK_BYTES);
        if !wanted.fits(self.volume.len) {
            return Err(self.damaged(at, Damage::Beyond));
        }
        if let Some((range, data)) = &self.kept
            && range.contains(wanted)
        {
            return Ok(data.slice(at - range.offset, BLOCK_BYTES));
        }
        let follows = self.kept.as_ref().is_some_and(|(range, _)| range.end() == at);
        self.ahead_bytes = if follows { (self.ahead_bytes * 2).min(AHEAD_BYTES_MAX) } else { BLOCK_BYTES };
        let ahead = ByteRange::new(at, self.ahead_bytes.min(self.volume.len - at));
        let (range, read) = match self.read(ahead).await {
            // The bytes behind it may be the bad ones.
            Err(_) if ahead != wanted => (wanted, self.read(wanted).await),
            read => (ahead, read),
        };
        let data = read.map_err(|error| Defect::Unread { part: self.part, at, error })?;
        let block = data.slice(0, BLOCK_BYTES);
        self.kept = Some((range, data));
        Ok(block)
    }

    async fn read(&self, range: ByteRange) -> Result<Data, DeviceError> {
        read(self.device, self.volume, range).await
    }

    fn damaged(&self, at: u64, why: Damage) -> Defect {
        Defect::Damaged { part: self.part, at, why }
    }
}

/// Reads a range of a volume.
pub(super) async fn read(device: &dyn Device, volume: ByteRange, range: ByteRange) -> Result<Data, DeviceError> {
    if !range.fits(volume.len) {
        return Err(DeviceError::OutOfBounds { range, size: volume.len });
    }
    let data = device.read(range.shifted(volume.offset)).await?;
    match data.len() == range.len {
        true => Ok(data),
        false => Err(DeviceError::Invalid("a reply to a read has the wrong length".into())),
    }
}
