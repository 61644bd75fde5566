//! Where a volume lies on a device: in one piece, or in several.

use std::fmt;
use std::sync::Arc;

use cheetah_device::{ByteRange, Data, Device, Error, Result};
use futures::future::try_join_all;
use smallvec::{SmallVec, smallvec};

/// The place of a volume: its pieces, in order. A partition has one, a logical volume may have several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pieces(Arc<[Piece]>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Piece {
    /// Where it begins in the volume.
    at: u64,
    /// Its place on the device.
    place: ByteRange,
}

impl Pieces {
    /// Takes the places of the pieces on the device, in the order of the volume.
    pub fn new(places: impl IntoIterator<Item = ByteRange>) -> Self {
        let mut at = 0u64;
        let piece = |place: ByteRange| {
            let piece = Piece { at, place };
            at = at.saturating_add(place.len);
            piece
        };
        Self(places.into_iter().map(piece).collect())
    }

    /// The length of the volume.
    pub(super) fn len(&self) -> u64 {
        self.0.last().map_or(0, |last| last.at.saturating_add(last.place.len))
    }

    /// The places on the device of a range of the volume. A range beyond the end of a volume in one piece lies behind it on the
    /// device: a partition may be recorded shorter than its file system.
    pub(super) fn of(&self, range: ByteRange) -> SmallVec<[ByteRange; 2]> {
        match &self.0[..] {
            [piece] => smallvec![ByteRange::new(piece.place.offset.saturating_add(range.offset), range.len)],
            _ => self.within(range).collect(),
        }
    }

    /// The places on the device of the part of a range that lies within the volume.
    pub(super) fn within(&self, range: ByteRange) -> impl Iterator<Item = ByteRange> {
        let first = self.0.partition_point(|piece| piece.at.saturating_add(piece.place.len) <= range.offset);
        self.0[first..].iter().map_while(move |piece| {
            let inside =
                range.intersection(ByteRange::new(piece.at, piece.place.len)).filter(|part| !part.is_empty())?;
            Some(ByteRange::new(piece.place.offset.checked_add(inside.offset - piece.at)?, inside.len))
        })
    }
}

impl fmt::Display for Pieces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0[..] {
            [] => f.write_str("no place"),
            [piece] => piece.place.fmt(f),
            [first, more @ ..] => write!(f, "{} and {} more pieces", first.place, more.len()),
        }
    }
}

impl From<ByteRange> for Pieces {
    fn from(place: ByteRange) -> Self {
        Self::new([place])
    }
}

/// Reads the places on a device that `len` bytes of a volume have; fails if the volume ends before.
pub(super) async fn read(device: &dyn Device, places: &[ByteRange], len: u64) -> Result<Data> {
    let mut whole = Data::new();
    for data in try_join_all(places.iter().map(|place| device.read(*place))).await? {
        whole.append(data);
    }
    if whole.len() != len {
        return Err(Error::Invalid("the volume ends before".into()));
    }
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_over_several_pieces_has_a_place_in_each_and_none_beyond_the_volume() {
        let pieces = Pieces::new([ByteRange::new(100, 10), ByteRange::new(50, 5), ByteRange::new(200, 10)]);
        assert_eq!(pieces.len(), 25);
        let of = |offset, len| pieces.of(ByteRange::new(offset, len)).to_vec();
        assert_eq!(of(8, 10), [ByteRange::new(108, 2), ByteRange::new(50, 5), ByteRange::new(200, 3)]);
        assert_eq!(of(10, 5), [ByteRange::new(50, 5)]);
        assert_eq!(of(20, 100), [ByteRange::new(205, 5)]);
        assert_eq!(of(25, 5), []);
        let partition = Pieces::from(ByteRange::new(100, 10));
        assert_eq!(partition.of(ByteRange::new(8, 10)).to_vec(), [ByteRange::new(108, 10)]);
        assert_eq!(partition.within(ByteRange::new(8, 10)).collect::<Vec<_>>(), [ByteRange::new(108, 2)]);
    }
}
