//! Opens shadow copies: reads what the stores say of each block.

use std::fmt;
use std::sync::Arc;

use cheetah_device::{ByteRange, Device};

use super::bitmap::Bitmap;
use super::block::BLOCK_HEADER_BYTES;
use super::catalog::Catalog;
use super::chain::Chain;
use super::entries::ShadowCopy;
use super::refused::{Damage, Defect, Part};
use super::snapshot::Snapshot;
use super::store::{Bounds, Store};

/// The maximum number of entries about blocks in the stores of all volumes: 128 GiB. They take some 30 bytes of memory each.
const ENTRIES_MAX: usize = 8 << 20;

/// How many entries about blocks stores may still have. One is for all volumes of a source: partitions may overlap, so that the same stores
/// are read again.
pub struct Budget(pub(super) usize);

impl Default for Budget {
    fn default() -> Self {
        Self(ENTRIES_MAX)
    }
}

/// Shadow copies that were to be opened, in the order of their numbers.
#[derive(Debug, Default)]
pub struct Opened {
    /// Those that can be read.
    pub snapshots: Vec<Snapshot>,
    /// Those that cannot.
    pub not_opened: Vec<NotOpened>,
}

/// A shadow copy that is not opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotOpened {
    /// Its number.
    pub number: u32,
    /// Why.
    pub why: Defect,
}

impl fmt::Display for NotOpened {
    /// A clause.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.why, f)
    }
}

/// Opens the shadow copies with these numbers, of the volume whose catalog was read from the device. Reads the lists of their stores
/// and of all later ones, as far as the budget reaches.
pub async fn open(device: &dyn Device, catalog: &Catalog, numbers: &[u32], budget: &mut Budget) -> Opened {
    let mut opened = Opened::default();
    let Some(oldest) = numbers.iter().min() else { return opened };
    let mut stores: Vec<Arc<Store>> = Vec::new();
    let mut broken = None::<NotOpened>;
    // From the newest one back, since each needs all that are later.
    for copy in catalog.copies.iter().rev().take_while(|copy| copy.number >= *oldest) {
        let is_wanted = numbers.contains(&copy.number);
        if broken.is_none() {
            let with_bitmaps = is_wanted && stores.is_empty();
            match read_store(device, catalog.volume, copy, (with_bitmaps, &mut *budget)).await {
                Ok(store) => stores.push(Arc::new(store)),
                Err(why) => broken = Some(NotOpened { number: copy.number, why }),
            }
        }
        if !is_wanted {
            continue;
        }
        match refusal(copy, broken.as_ref()) {
            Some(why) => opened.not_opened.push(NotOpened { number: copy.number, why }),
            None => {
                let needed: Vec<_> = stores.iter().rev().cloned().collect();
                opened.snapshots.push(Snapshot::new(copy.clone(), catalog.volume, needed.into()));
            }
        }
    }
    opened.snapshots.reverse();
    opened.not_opened.reverse();
    opened
}

/// Why a shadow copy is not opened, if it is not: `broken` is the latest one whose store cannot be used.
fn refusal(copy: &ShadowCopy, broken: Option<&NotOpened>) -> Option<Defect> {
    let of_store = broken.map(|NotOpened { number, why }| match *number == copy.number {
        true => why.clone(),
        false => Defect::Later { number: *number, why: Box::new(why.clone()) },
    });
    of_store.or_else(|| copy.defect.clone())
}

/// Reads what the store of a shadow copy says.
async fn read_store(
    device: &dyn Device,
    volume: ByteRange,
    copy: &ShadowCopy,
    (with_bitmaps, Budget(entries_left)): (bool, &mut Budget),
) -> Result<Store, Defect> {
    let places = copy.store.ok_or(Defect::NoStore)?;
    match &copy.defect {
        // Its size is not that of its store.
        None | Some(Defect::TooLarge(_)) => {}
        Some(defect) => return Err(defect.clone()),
    }
    let bounds = Bounds { volume_bytes: volume.len, copy_bytes: copy.size_bytes };
    let (mut store, mut chain) = (Store::default(), Chain::new(device, volume, Part::List, places.list));
    while let Some((at, block)) = chain.next_block().await? {
        store.add(&block, at, bounds)?;
        if store.entries() > *entries_left {
            return Err(Defect::Damaged { part: Part::List, at, why: Damage::ManyBlocks });
        }
    }
    *entries_left -= store.entries();
    if with_bitmaps {
        store.unused = read_bitmap(device, volume, places.bitmap, copy.size_bytes).await?;
        if places.previous_bitmap != 0 {
            let previous = read_bitmap(device, volume, places.previous_bitmap, copy.size_bytes).await?;
            store.unused.retain(&previous);
        }
        // That block has the boot sector, so the bitmaps are not those of a volume: what they call free would read as zeros.
        if store.unused.has(0) {
            return Err(Defect::Damaged { part: Part::Bitmap, at: places.bitmap, why: Damage::FirstBlock });
        }
    }
    Ok(store)
}

/// Reads a bitmap, as far as the volume reaches.
async fn read_bitmap(device: &dyn Device, volume: ByteRange, first: u64, copy_bytes: u64) -> Result<Bitmap, Defect> {
    let wanted_bytes = Bitmap::bytes_for(copy_bytes.min(volume.len));
    if wanted_bytes > Bitmap::BYTES_MAX {
        return Err(Defect::Damaged { part: Part::Bitmap, at: first, why: Damage::LargeBitmap });
    }
    let (mut bitmap, mut chain) = (Bitmap::default(), Chain::new(device, volume, Part::Bitmap, first));
    while bitmap.bytes() < wanted_bytes
        && let Some((_, block)) = chain.next_block().await?
    {
        bitmap.append(block.get(BLOCK_HEADER_BYTES..).unwrap_or_default());
    }
    Ok(bitmap)
}
