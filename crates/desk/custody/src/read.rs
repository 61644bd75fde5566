//! Reads a whole device once: hashes it, and finds the ranges that cannot be read.

use std::sync::Arc;

use cheetah_device::around::{Piece, read_around, reason};
use cheetah_device::{ByteRange, Data, Device as _, DynDevice, Error as DeviceError};
use cheetah_drive::digests::{CHUNK_BYTES, Digests, digest};
use cheetah_error::{Error, Result};
use cheetah_image::hash::Hashing;
use cheetah_image::{HashChoice, Hashes};
use futures::{StreamExt as _, stream};
use serde::Serialize;

use crate::event::Span;

/// The number of reads in flight.
const READ_AHEAD: usize = 8;

/// A range that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Damage {
    /// Where.
    #[serde(flatten)]
    pub range: Span,
    /// The device's reason.
    pub why: Arc<str>,
}

/// The result of reading a whole device.
pub struct FullRead {
    /// Hashes of the whole, with zeros for unreadable ranges; none if anything is damaged.
    pub hashes: Hashes,
    /// BLAKE3 of the digests of its chunks, if it was asked for and everything could be read.
    pub root: Option<String>,
    /// Ranges that the device calls unreadable evidence.
    pub unreadable: Vec<ByteRange>,
    /// Ranges that fail for another reason.
    pub damaged: Vec<Damage>,
}

/// Reads all of `device`; computes hashes, and the digests of its chunks if asked for.
pub async fn read_in_full(
    device: &DynDevice,
    (hashes, digests): (HashChoice, bool),
    mut progress: impl FnMut(u64) + Send,
) -> Result<FullRead> {
    let mut hashing = Some(Hashing::start(hashes)?);
    let mut digests = digests.then(|| Digests::new(device.geometry().size)).transpose()?;
    let mut found = FullRead { hashes: Hashes::default(), root: None, unreadable: Vec::new(), damaged: Vec::new() };
    let read = |range: ByteRange| {
        let device = device.clone();
        let task = tokio::spawn(async move { read_around(&device, range).await });
        async move { (range, task.await) }
    };
    let whole = ByteRange::new(0, device.geometry().size);
    let mut reads = std::pin::pin!(stream::iter(whole.split_at_multiples(CHUNK_BYTES)).map(read).buffered(READ_AHEAD));
    while let Some((range, read)) = reads.next().await {
        let pieces = read.map_err(|error| Error::failed(format!("reading {range}: {error}")))?;
        let data = found.joined(pieces.map_err(Error::device("reading the image"))?);
        if let (Some(data), Some(digests)) = (&data, &mut digests) {
            digests.set(range.offset, digest(data));
        }
        match (data, &hashing) {
            (Some(data), Some(hashing)) => hashing.push(&data).await?,
            // The hashes of the whole mean nothing without this part.
            (None, _) => hashing = None,
            (Some(_), None) => {}
        }
        progress(range.end());
    }
    if let Some(hashing) = hashing {
        found.hashes = hashing.finish().await?;
        found.root = digests.map(|digests| digests.root());
    }
    Ok(found)
}

impl FullRead {
    /// The content of the pieces, with zeros for unreadable bytes; `None` if part of it is damaged.
    fn joined(&mut self, pieces: Vec<Piece>) -> Option<Data> {
        let (mut content, mut whole) = (Data::new(), true);
        for (range, read) in pieces {
            match read {
                Ok(data) => content.append(data),
                Err(error) => {
                    content.append(Data::zeros(range.len));
                    whole &= self.give_up(range, &error);
                }
            }
        }
        whole.then_some(content)
    }

    /// Notes a range that cannot be read; whether zeros may stand for it.
    fn give_up(&mut self, range: ByteRange, error: &DeviceError) -> bool {
        if let DeviceError::Unreadable { .. } | DeviceError::Withheld { .. } = error {
            range.append_to(&mut self.unreadable);
            return true;
        }
        let why = reason(error);
        match self.damaged.last_mut() {
            Some(last) if last.range.offset + last.range.len == range.offset && last.why == why => {
                last.range.len += range.len;
            }
            _ => self.damaged.push(Damage { range: range.into(), why }),
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cheetah_device::{Device, Geometry, Io};
    use cheetah_image::HashKind;

    /// Three MiB of sevens, with a bad sector and a corrupt 32 KiB chunk where asked for.
    struct Disk {
        unreadable: Option<ByteRange>,
        corrupt: Option<ByteRange>,
    }

    impl Device for Disk {
        fn geometry(&self) -> Geometry {
            Geometry { size: 3 << 20, writable: false, block_preferred: 4096 }
        }

        fn read(&self, range: ByteRange) -> Io<'_, Data> {
            let hit = |bad: Option<ByteRange>| bad.and_then(|bad| bad.intersection(range));
            if let Some(range) = hit(self.unreadable) {
                return Io::fail(DeviceError::Unreadable { device: "disk".into(), range, why: "bad sector".into() });
            }
            if let Some(range) = hit(self.corrupt) {
                return Io::fail(DeviceError::Corrupt { device: "disk".into(), range });
            }
            Io::ok(vec![7; usize::try_from(range.len).unwrap()].into())
        }
    }

    async fn read(disk: Disk) -> FullRead {
        let device: DynDevice = Arc::new(disk);
        read_in_full(&device, (HashChoice::NONE.with(HashKind::Sha256), false), |_| {}).await.unwrap()
    }

    #[tokio::test]
    async fn unreadable_ranges_are_hashed_as_zeros() {
        let bad = ByteRange::new((1 << 20) + 1024, 1024);
        let found = read(Disk { unreadable: Some(bad), corrupt: None }).await;
        assert_eq!((&found.unreadable[..], &found.damaged[..]), (&[bad][..], &[][..]));
        let mut bytes = vec![7; 3 << 20];
        bytes[bad.offset as usize..bad.end() as usize].fill(0);
        let hashing = Hashing::start(HashChoice::NONE.with(HashKind::Sha256)).unwrap();
        hashing.push(&bytes.into()).await.unwrap();
        assert_eq!(found.hashes, hashing.finish().await.unwrap());
    }

    #[tokio::test]
    async fn a_device_with_damaged_ranges_has_no_hash() {
        let bad = ByteRange::new(64 << 10, 32 << 10);
        let found = read(Disk { unreadable: None, corrupt: Some(bad) }).await;
        assert_eq!(found.damaged, [Damage { range: bad.into(), why: "it does not match its checksum".into() }]);
        assert_eq!(found.hashes, Hashes::default());
    }
}
