//! Reads around what cannot be read: everything in a range that can be read, and the rest with the reason.

use std::sync::Arc;

use crate::error::EIO;
use crate::{ByteRange, Data, DynDevice, Error, Result};

/// The lengths of the smaller reads that replace a failed one, in turn, down to a sector. They are aligned, so that the same
/// sectors are given up wherever the range begins and ends, if it does so between sectors.
const RETRY_BYTES: [u64; 3] = [64 << 10, 4 << 10, SECTOR_BYTES];

/// The smallest unit that is given up.
pub const SECTOR_BYTES: u64 = 512;

/// A part of a range: its content, or why it cannot be read.
pub type Piece = (ByteRange, Result<Data>);

/// Reads a range; where that fails, reads smaller and smaller parts of it. Returns the parts in order: they cover exactly the range.
///
/// # Errors
///
/// If a read fails for a reason that concerns more than its place ([`is_local`]).
pub async fn read_around(device: &DynDevice, range: ByteRange) -> Result<Vec<Piece>> {
    let mut pieces = Vec::new();
    // A stack of the ranges still to be read, each with the number of times it was split.
    let mut todo = vec![(range, 0)];
    while let Some((range, cuts)) = todo.pop() {
        match (device.read(range).await, RETRY_BYTES.get(cuts)) {
            (Err(error), _) if !is_local(&error) => return Err(error),
            (Err(_), Some(piece)) => todo.extend(smaller(range, *piece, cuts + 1)),
            (read, _) => pieces.push((range, read)),
        }
    }
    Ok(pieces)
}

/// Reads a range from its beginning on, up to the first sector that cannot be read. Returns the bytes, and why they are not all.
///
/// # Errors
///
/// As [`read_around`].
pub async fn read_beginning(device: &DynDevice, range: ByteRange) -> Result<(Vec<u8>, Option<Error>)> {
    let mut bytes = Vec::new();
    let mut todo = vec![(range, 0)];
    while let Some((range, cuts)) = todo.pop() {
        match (device.read(range).await, RETRY_BYTES.get(cuts)) {
            (Ok(data), _) => data.runs().for_each(|run| bytes.extend_from_slice(run)),
            (Err(error), _) if !is_local(&error) => return Err(error),
            (Err(_), Some(piece)) => todo.extend(smaller(range, *piece, cuts + 1)),
            (Err(error), None) => return Ok((bytes, Some(error))),
        }
    }
    Ok((bytes, None))
}

/// The pieces of a range that could not be read at once, the last one first.
fn smaller(range: ByteRange, piece_bytes: u64, cuts: usize) -> impl Iterator<Item = (ByteRange, usize)> {
    let pieces: Vec<_> = range.split_at_multiples(piece_bytes).map(|piece| (piece, cuts)).collect();
    pieces.into_iter().rev()
}

/// Whether an error concerns only the range, and not the rest of the device.
pub fn is_local(error: &Error) -> bool {
    match error {
        Error::Unreadable { .. } | Error::Withheld { .. } | Error::Corrupt { .. } => true,
        Error::Io { errno, .. } => *errno == EIO,
        _ => false,
    }
}

/// Why a part cannot be read, without its place: the same for neighbours that fail alike.
pub fn reason(error: &Error) -> Arc<str> {
    match error {
        Error::Corrupt { .. } => "it does not match its checksum".into(),
        Error::Unreadable { why, .. } | Error::Io { why, .. } => why.clone(),
        Error::Withheld { reason, .. } => reason.to_string().into(),
        other => other.to_string().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Device, Geometry, Io};

    /// A MiB of sevens with a range that fails.
    struct Disk {
        bad: ByteRange,
        error: Error,
    }

    impl Device for Disk {
        fn geometry(&self) -> Geometry {
            Geometry { size: 1 << 20, writable: false, block_preferred: 4096 }
        }

        fn read(&self, range: ByteRange) -> Io<'_, Data> {
            match self.bad.intersection(range) {
                Some(_) => Io::fail(self.error.clone()),
                None => Io::ok(vec![7; usize::try_from(range.len).unwrap()].into()),
            }
        }
    }

    fn unreadable() -> Error {
        Error::Unreadable { device: "disk".into(), range: ByteRange::new(0, 1), why: "bad sector".into() }
    }

    #[tokio::test]
    async fn all_but_the_sectors_that_fail_is_read_in_order() {
        for (bad, given_up) in [(70_000, 69_632..70_144), (0, 0..512), ((1 << 20) - 1, (1 << 20) - 512..1 << 20)] {
            let device: DynDevice = Arc::new(Disk { bad: ByteRange::new(bad, 1), error: unreadable() });
            let pieces = read_around(&device, ByteRange::new(0, 1 << 20)).await.unwrap();
            let mut at = 0;
            for (range, read) in &pieces {
                assert_eq!(range.offset, at);
                assert!(read.as_ref().map_or(true, |data| data.len() == range.len));
                at = range.end();
            }
            assert_eq!(at, 1 << 20);
            let failed: Vec<_> = pieces.iter().filter(|(_, read)| read.is_err()).map(|(range, _)| *range).collect();
            assert_eq!(failed, [ByteRange::between(given_up.start, given_up.end)]);
        }
    }

    #[tokio::test]
    async fn the_beginning_of_a_range_ends_at_the_first_sector_that_fails() {
        for (bad, len) in [(70_000, 69_632), (0, 0), ((1 << 20) - 1, (1 << 20) - 512)] {
            let device: DynDevice = Arc::new(Disk { bad: ByteRange::new(bad, 1), error: unreadable() });
            let (bytes, why) = read_beginning(&device, ByteRange::new(0, 1 << 20)).await.unwrap();
            assert_eq!((bytes.len(), why), (len, Some(unreadable())), "{bad}");
            let before = read_beginning(&device, ByteRange::new(0, len as u64)).await.unwrap();
            assert_eq!(before, (vec![7; len], None), "{bad}");
        }
    }

    #[tokio::test]
    async fn a_device_that_is_gone_fails_at_once() {
        let range = ByteRange::new(0, 512);
        let error = Error::Lost { device: "node 10.0.0.7".into(), range, why: "it was stopped".into() };
        let device: DynDevice = Arc::new(Disk { bad: range, error: error.clone() });
        assert_eq!(read_around(&device, ByteRange::new(0, 1 << 20)).await.err(), Some(error.clone()));
        assert_eq!(read_beginning(&device, ByteRange::new(0, 1 << 20)).await, Err(error));
    }
}
