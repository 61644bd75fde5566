//! Reads the catalog of a volume.

use cheetah_device::{ByteRange, Device};
use futures::{StreamExt as _, stream};

use super::BLOCK_BYTES;
use super::block::{HEADER_AT, parse_block, parse_header};
use super::chain::{Chain, read};
use super::entries::{Entries, ShadowCopy};
use super::refused::{Defect, Part};
use crate::recognise::START_BYTES;

/// The number of stores whose headers are read at the same time.
const AT_ONCE: usize = 8;

/// The shadow copies of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Catalog {
    /// The place of the volume in the device that holds it.
    pub volume: ByteRange,
    /// In the order of their times.
    pub copies: Vec<ShadowCopy>,
}

/// Lists the shadow copies of the volume at a place of a device; `None` if it is no NTFS volume that has some. Reads the first 8 KiB of
/// the volume; if it has shadow copies, the catalog, and a block for each.
///
/// # Errors
///
/// If the catalog is damaged or cannot be read, or the start of the volume cannot be read, so that it is not known whether it has shadow
/// copies.
pub async fn catalog(device: &dyn Device, volume: ByteRange) -> Result<Option<Catalog>, Defect> {
    if volume.len < START_BYTES {
        return Ok(None);
    }
    let start = read(device, volume, ByteRange::new(0, START_BYTES)).await;
    let start = start.map_err(|error| Defect::Unread { part: Part::Header, at: HEADER_AT as u64, error })?;
    let Some(catalog_at) = parse_header(&start.into_bytes()).transpose()? else { return Ok(None) };
    let (mut entries, mut chain) = (Entries::default(), Chain::new(device, volume, Part::Catalog, catalog_at));
    while let Some((at, block)) = chain.next_block().await? {
        entries.add(&block, at)?;
    }
    let copies = entries.copies(catalog_at)?.into_iter().map(|copy| described(device, volume, copy));
    let copies: Vec<_> = copies.collect();
    Ok(Some(Catalog { volume, copies: stream::iter(copies).buffered(AT_ONCE).collect().await }))
}

/// Adds what the header of the store of a shadow copy says.
async fn described(device: &dyn Device, volume: ByteRange, mut copy: ShadowCopy) -> ShadowCopy {
    let Some(store) = copy.store else { return copy };
    match store_header(device, volume, store.header).await {
        Ok(block) => copy.describe(&block),
        Err(defect) => copy.defect = Some(defect),
    }
    if copy.defect.is_none() && copy.size_bytes > volume.len {
        copy.defect = Some(Defect::TooLarge(copy.size_bytes));
    }
    copy
}

async fn store_header(device: &dyn Device, volume: ByteRange, at: u64) -> Result<Vec<u8>, Defect> {
    let part = Part::Store;
    let block = read(device, volume, ByteRange::new(at, BLOCK_BYTES)).await;
    let block: Vec<u8> = block.map_err(|error| Defect::Unread { part, at, error })?.into_bytes().into();
    parse_block(&block, part, at)?;
    Ok(block)
}
