//! Reads of tables and superblocks in few requests: they are many, often a sector long, beside each other, and of the same
//! places again.

use cheetah_device::{ByteRange, Data, Device, Extent, Geometry, Io, Result, try_io};
use parking_lot::Mutex;

use crate::recognise::START_BYTES;

/// Reads are widened to multiples of this: it has a GPT and its entries in sectors of either size.
const PIECE_BYTES: u64 = 32 << 10;
/// The longest range that is kept.
const KEPT_BYTES_MAX: u64 = 256 << 10;
/// The most ranges that are kept.
const PIECES_MAX: usize = 16;

/// The largest sector. Tables and their copies begin with one.
const SECTOR_BYTES_MAX: u64 = 4 << 10;

/// Returns the ranges at both ends of a device of `size` bytes in which a look at its tables begins. They are short: until a
/// new connection has grown its window, it delivers 14 kB in a round trip.
pub(crate) fn ends(size: u64) -> [ByteRange; 2] {
    let last = size.saturating_sub(SECTOR_BYTES_MAX);
    [ByteRange::between(0, size.min(START_BYTES)), ByteRange::between(last - last % SECTOR_BYTES_MAX, size)]
}

/// A device for one look at its tables. It keeps what it reads, so it must not outlive the look.
pub(crate) struct Nearby<'a> {
    device: &'a dyn Device,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    pieces: Vec<(ByteRange, Data)>,
    /// What could not be read whole.
    damaged: Vec<ByteRange>,
}

impl<'a> Nearby<'a> {
    pub fn new(device: &'a dyn Device) -> Self {
        Self { device, kept: Mutex::default() }
    }

    /// Reads both ends of the device at the same time, where tables and their copies are: one behind the other would take a round
    /// trip more on a link.
    pub async fn with_ends(device: &'a dyn Device) -> Self {
        let nearby = Self::new(device);
        let [first, last] = ends(device.geometry().size);
        match first.contains(last) {
            true => nearby.keep(first).await,
            false => drop(futures::join!(nearby.keep(first), nearby.keep(last))),
        }
        nearby
    }

    /// Keeps a range. What cannot be read fails where it is needed.
    async fn keep(&self, range: ByteRange) {
        if !range.is_empty()
            && let Ok(data) = self.device.read(range).await
            && data.len() == range.len
        {
            self.kept.lock().pieces.push((range, data));
        }
    }

    fn known(&self, range: ByteRange) -> Option<Data> {
        let kept = self.kept.lock();
        let (piece, data) = kept.pieces.iter().find(|(piece, _)| piece.contains(range))?;
        Some(data.slice(range.offset - piece.offset, range.len))
    }

    /// The pieces around a range, unless it is long, or one of them is known to be damaged.
    fn around(&self, range: ByteRange) -> Option<ByteRange> {
        let start = range.offset - range.offset % PIECE_BYTES;
        let end = range.end().next_multiple_of(PIECE_BYTES).min(self.device.geometry().size);
        let around = ByteRange::between(start, end);
        let kept = self.kept.lock();
        let is_damaged = kept.damaged.iter().any(|damaged| damaged.intersection(around).is_some());
        (around.len <= KEPT_BYTES_MAX && kept.pieces.len() < PIECES_MAX && !is_damaged).then_some(around)
    }

    async fn read_around(&self, range: ByteRange) -> Result<Data> {
        let Some(around) = self.around(range) else { return self.device.read(range).await };
        match self.device.read(around).await {
            Ok(data) if data.len() == around.len => {
                let wanted = data.slice(range.offset - around.offset, range.len);
                self.kept.lock().pieces.push((around, data));
                Ok(wanted)
            }
            // The bytes beside it may be the bad ones.
            _ => {
                self.kept.lock().damaged.push(around);
                self.device.read(range).await
            }
        }
    }
}

impl Device for Nearby<'_> {
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        try_io!(self.check(range));
        match self.known(range) {
            Some(data) => Io::ok(data),
            None => Io::later(self.read_around(range)),
        }
    }

    fn extents(&self, range: ByteRange) -> Io<'_, Vec<Extent>> {
        self.device.extents(range)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use cheetah_device::Error;
    use cheetah_device::memory::Memory;
    use futures::FutureExt as _;

    use super::*;

    /// A disk with a bad sector, which counts reads.
    struct Disk {
        memory: Memory,
        bad: ByteRange,
        reads: AtomicUsize,
    }

    impl Device for Disk {
        fn geometry(&self) -> Geometry {
            self.memory.geometry()
        }

        fn read(&self, range: ByteRange) -> Io<'_, Data> {
            self.reads.fetch_add(1, Ordering::Relaxed);
            match range.intersection(self.bad) {
                Some(_) => Io::fail(Error::Unreadable { device: "disk".into(), range, why: "bad".into() }),
                None => self.memory.read(range),
            }
        }
    }

    fn disk(bad: ByteRange) -> (Disk, Vec<u8>) {
        let content: Vec<u8> = (0..100_000u32).map(|at| (at % 251) as u8).collect();
        (Disk { memory: Memory::new(content.clone()), bad, reads: AtomicUsize::new(0) }, content)
    }

    fn read(device: &Nearby<'_>, offset: u64, len: u64) -> Option<Vec<u8>> {
        let data = device.read(ByteRange::new(offset, len)).now_or_never().unwrap().ok()?;
        Some(data.into_bytes().to_vec())
    }

    #[test]
    fn sectors_beside_each_other_are_read_at_once_and_once() {
        let (disk, content) = disk(ByteRange::new(0, 0));
        let nearby = Nearby::new(&disk);
        for (offset, len) in
            [(0, 512), (512, 512), (4096, 512), (1024, 16384), (32_000, 512), (99_488, 512), (99_900, 100)]
        {
            let range = offset as usize..(offset + len) as usize;
            assert_eq!(read(&nearby, offset, len).unwrap(), content[range], "{offset}");
        }
        assert_eq!(disk.reads.load(Ordering::Relaxed), 2);
        assert!(read(&nearby, 99_900, 101).is_none());
    }

    #[test]
    fn both_ends_are_read_together_and_once() {
        for (size, reads) in [(0, 0), (1, 1), (1000, 1), (100_000, 2)] {
            let memory = Memory::new(vec![1; size]);
            let disk = Disk { memory, bad: ByteRange::new(0, 0), reads: AtomicUsize::new(0) };
            let nearby = Nearby::with_ends(&disk).now_or_never().unwrap();
            assert!(size == 0 || read(&nearby, 0, 1).is_some() && read(&nearby, size as u64 - 1, 1).is_some());
            assert_eq!(disk.reads.load(Ordering::Relaxed), reads, "{size}");
        }
    }

    #[test]
    fn a_bad_sector_fails_its_own_reads_alone() {
        let (disk, content) = disk(ByteRange::new(2048, 512));
        let nearby = Nearby::new(&disk);
        for offset in (0..8192).step_by(512) {
            let expected = (offset != 2048).then(|| content[offset as usize..offset as usize + 512].to_vec());
            assert_eq!(read(&nearby, offset, 512), expected, "{offset}");
        }
    }
}
