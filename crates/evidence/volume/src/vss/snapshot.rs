//! A shadow copy as a device: each byte from the store that keeps it, or from the volume.

use std::sync::Arc;

use cheetah_device::{ByteRange, Data, Device, DynDevice, Error, Extent, Geometry, Io, Result, try_io};
use futures::{StreamExt as _, TryStreamExt as _, stream};

use super::chain::read;
use super::entries::ShadowCopy;
use super::store::{Content, Store};
use super::{BLOCK_BYTES, SECTOR_BYTES};

/// The number of pieces that are read at the same time.
const AT_ONCE: usize = 16;

/// A shadow copy whose stores were read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// What it is.
    pub copy: ShadowCopy,
    /// The place of the volume in the device that holds it.
    volume: ByteRange,
    /// Its own store, and those of the later ones, in their order.
    stores: Arc<[Arc<Store>]>,
}

/// A piece of a shadow copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Piece {
    range: ByteRange,
    origin: Origin,
}

/// Where a piece of a shadow copy is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// At this offset of the volume.
    Volume(u64),
    /// Nothing was kept of it, since it was not in use.
    Unused,
    /// Where it is is not certain.
    Unknown,
}

impl Snapshot {
    pub(super) fn new(copy: ShadowCopy, volume: ByteRange, stores: Arc<[Arc<Store>]>) -> Self {
        Self { copy, volume, stores }
    }

    /// How many of its bytes were not in use, so that Windows kept nothing of them and they read as zeros.
    pub fn lost_bytes(&self) -> u64 {
        match &self.stores[..] {
            // An older one has there what came later.
            [store] => store.lost_bytes(self.copy.size_bytes),
            _ => 0,
        }
    }

    /// Shows it, over a device with the offsets of the one in which the volume was found.
    ///
    /// # Errors
    ///
    /// If the volume lies beyond the device.
    pub fn over(&self, below: &DynDevice) -> Result<DynDevice> {
        below.check(self.volume)?;
        Ok(Arc::new(Shown { below: Arc::clone(below), snapshot: self.clone() }))
    }

    /// The pieces of a range, in order.
    fn pieces(&self, range: ByteRange) -> Vec<Piece> {
        let mut pieces = Vec::new();
        for part in range.split_at_multiples(BLOCK_BYTES) {
            let block = part.offset - part.offset % BLOCK_BYTES;
            let Some(overlay) = self.stores.first().and_then(|store| store.overlay(block)) else {
                push(&mut pieces, part, self.find(part.offset));
                continue;
            };
            for sector in part.split_at_multiples(SECTOR_BYTES) {
                let within = sector.offset - block;
                let origin = match overlay.sectors >> (within / SECTOR_BYTES) & 1 {
                    1 => Origin::Volume(overlay.at + within),
                    _ => self.find(sector.offset),
                };
                push(&mut pieces, sector, origin);
            }
        }
        pieces
    }

    /// Where the bytes from an offset to the end of its block are, below what was written to the shadow copy itself.
    fn find(&self, offset: u64) -> Origin {
        let (mut block, within) = (offset - offset % BLOCK_BYTES, offset % BLOCK_BYTES);
        for store in self.stores.iter() {
            match store.content(block) {
                Some(Content::Kept(at)) => return Origin::Volume(at + within),
                Some(Content::Moved(to)) => block = to,
                Some(Content::MovedBack) => return Origin::Unknown,
                None => {}
            }
        }
        match &self.stores[..] {
            // An older one does not know what the later ones did with free space.
            [store] if block + within == offset && store.is_unused(block) => Origin::Unused,
            _ => Origin::Volume(block + within),
        }
    }
}

/// Adds a piece, to the last one if it follows that.
fn push(pieces: &mut Vec<Piece>, range: ByteRange, origin: Origin) {
    match pieces.last_mut() {
        Some(last) if follows(*last, origin) => last.range.len += range.len,
        _ => pieces.push(Piece { range, origin }),
    }
}

fn follows(last: Piece, next: Origin) -> bool {
    match (last.origin, next) {
        // A hostile store may name the highest places that there are.
        (Origin::Volume(at), Origin::Volume(next)) => at.checked_add(last.range.len) == Some(next),
        (Origin::Unused, Origin::Unused) => true,
        _ => false,
    }
}

/// A shadow copy over the device that holds its volume.
struct Shown {
    below: DynDevice,
    snapshot: Snapshot,
}

impl Shown {
    async fn read_piece(&self, Piece { range, origin }: Piece) -> Result<Data> {
        match origin {
            Origin::Volume(at) => read(&*self.below, self.snapshot.volume, ByteRange::new(at, range.len)).await,
            Origin::Unused => Ok(Data::zeros(range.len)),
            Origin::Unknown => Err(Error::Unreadable {
                device: self.snapshot.copy.description().into(),
                range,
                why: "Windows moved the block away and back, which is not supported".into(),
            }),
        }
    }
}

impl Device for Shown {
    fn geometry(&self) -> Geometry {
        Geometry { size: self.snapshot.copy.size_bytes, writable: false, ..self.below.geometry() }
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        try_io!(self.check(range));
        Io::later(async move {
            let pieces: Vec<_> = self.snapshot.pieces(range).into_iter().map(|piece| self.read_piece(piece)).collect();
            stream::iter(pieces)
                .buffered(AT_ONCE)
                .try_fold(Data::new(), |mut whole, piece| async move {
                    whole.append(piece);
                    Ok(whole)
                })
                .await
        })
    }

    /// Free space of which nothing was kept is a hole.
    fn extents(&self, range: ByteRange) -> Io<'_, Vec<Extent>> {
        try_io!(self.check(range));
        let mut extents = Vec::new();
        for Piece { range, origin } in self.snapshot.pieces(range) {
            match origin {
                Origin::Unused => Extent::hole(range.len).push(&mut extents),
                Origin::Volume(_) | Origin::Unknown => Extent::data(range.len).push(&mut extents),
            }
        }
        Io::ok(extents)
    }
}
