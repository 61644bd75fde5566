//! A file of an image that is behind a link.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use cheetah_device::{ByteRange, Data, DynDevice, Error as DeviceError, Result as DeviceResult};
use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::file::ImageFile;
use crate::hashed::HashedFiles;

/// Reads of less are widened to blocks of this size: parsers read descriptors of some bytes, one behind the other.
const BLOCK_BYTES: u64 = 64 << 10;
/// The number of blocks that are kept.
const BLOCKS_MAX: usize = 8;

/// A file that is read through a device.
pub(crate) struct FileBehind {
    location: String,
    device: DynDevice,
    runtime: Handle,
    /// What the files of its image share, and its number among them.
    image: Option<(Arc<ImageBehind>, usize)>,
}

/// What the files of one image share.
struct ImageBehind {
    hashed: Option<Arc<HashedFiles>>,
    /// Blocks that were read: file, offset and content, the most recent last.
    blocks: Mutex<VecDeque<(usize, u64, Bytes)>>,
}

impl FileBehind {
    /// The file at `location`. Every read is one of the device. Must be called within a runtime.
    pub fn new(location: String, device: DynDevice) -> Self {
        Self { location, device, runtime: Handle::current(), image: None }
    }

    /// The files of an image of which little pieces are read. All bytes read are noted in `hashed`. Must be called within a
    /// runtime.
    pub fn of_image(files: Vec<(String, DynDevice)>, hashed: Option<&Arc<HashedFiles>>) -> Vec<Self> {
        let image = Arc::new(ImageBehind { hashed: hashed.cloned(), blocks: Mutex::default() });
        let file =
            |(number, (location, device))| Self { image: Some((image.clone(), number)), ..Self::new(location, device) };
        files.into_iter().enumerate().map(file).collect()
    }

    fn fetch(&self, range: ByteRange) -> DeviceResult<Bytes> {
        let read = self.runtime.block_on(async { self.device.read(range).await });
        let bytes = read.map(Data::into_bytes)?;
        if let Some((image, number)) = &self.image
            && let Some(hashed) = &image.hashed
        {
            hashed.note(*number, range.offset, &bytes, &self.runtime);
        }
        Ok(bytes)
    }
}

impl ImageBehind {
    /// The block of a file at `offset`, which `fetch` reads if it is not kept.
    fn block(&self, file: usize, offset: u64, fetch: impl FnOnce() -> DeviceResult<Bytes>) -> DeviceResult<Bytes> {
        let kept = |(of, at, _): &&(usize, u64, Bytes)| (*of, *at) == (file, offset);
        if let Some((_, _, bytes)) = self.blocks.lock().iter().find(kept) {
            return Ok(bytes.clone());
        }
        let bytes = fetch()?;
        let mut blocks = self.blocks.lock();
        blocks.push_back((file, offset, bytes.clone()));
        if blocks.len() > BLOCKS_MAX {
            blocks.pop_front();
        }
        Ok(bytes)
    }
}

impl ImageFile for FileBehind {
    fn name(&self) -> &str {
        &self.location
    }

    fn len(&self) -> u64 {
        self.device.geometry().size
    }

    fn read(&self, range: ByteRange) -> DeviceResult<Bytes> {
        let size = self.len();
        if !range.fits(size) {
            return Err(DeviceError::OutOfBounds { range, size });
        }
        let start = range.offset / BLOCK_BYTES * BLOCK_BYTES;
        match &self.image {
            Some((image, number)) if range.end() <= start + BLOCK_BYTES => {
                let block = ByteRange::between(start, (start + BLOCK_BYTES).min(size));
                let bytes = image.block(*number, start, || self.fetch(block))?;
                // Less than a block.
                let from = (range.offset - start) as usize;
                Ok(bytes.slice(from..from + range.len as usize))
            }
            _ => self.fetch(range),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    use cheetah_device::{Device, Geometry, Io};

    /// Counts reads.
    struct Counted(AtomicU64);

    impl Device for Counted {
        fn geometry(&self) -> Geometry {
            Geometry { size: 3 * BLOCK_BYTES + 5, writable: false, block_preferred: 4096 }
        }

        fn read(&self, range: ByteRange) -> Io<'_, Data> {
            self.0.fetch_add(1, Ordering::Relaxed);
            let bytes: Vec<u8> = (range.offset..range.end()).map(|at| (at % 251) as u8).collect();
            Io::ok(bytes.into())
        }
    }

    #[tokio::test]
    async fn small_reads_of_one_block_are_one_read_of_the_device() {
        let device = Arc::new(Counted(AtomicU64::new(0)));
        let files = vec![("https://lab/d.aff4".to_owned(), device.clone() as DynDevice)];
        let file = Arc::new(FileBehind::of_image(files, None).remove(0));
        let size = file.len();
        let reading = tokio::task::spawn_blocking(move || {
            let expected =
                |range: ByteRange| -> Vec<u8> { (range.offset..range.end()).map(|at| (at % 251) as u8).collect() };
            for (offset, len) in [(0, 10), (9, 1), (BLOCK_BYTES - 3, 3), (size - 5, 5), (size - 1, 1), (7, BLOCK_BYTES)]
            {
                let range = ByteRange::new(offset, len);
                assert_eq!(file.read(range).unwrap(), expected(range), "{range}");
            }
            assert!(file.read(ByteRange::new(size - 4, 5)).is_err());
        });
        reading.await.unwrap();
        assert_eq!(device.0.load(Ordering::Relaxed), 3, "the first block, the last one, and a read across two");
    }
}
