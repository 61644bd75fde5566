//! Reads a disk past the page cache, in whole sectors.

use std::fs::File;
use std::io;

use bytes::Bytes;
use cheetah_device::ByteRange;
use cheetah_kit::file::FileExt as _;

use crate::os;

/// The largest block in which the page cache reads a disk (BLK_MAX_BLOCK_SIZE in include/linux/blkdev.h; a page in
/// older kernels). 4 KiB is usual.
const CACHE_BLOCK_BYTES_MAX: u64 = 64 << 10;
/// The minimum alignment of memory: no disk is known to need more than this and its sector size.
const MEMORY_ALIGNMENT_MIN: u64 = 4096;

/// A block device, opened to read exactly the sectors requested.
///
/// The page cache reads a disk in blocks of several sectors, and one bad sector makes its whole block fail. The good
/// sectors beside it can only be read past the cache.
pub(super) struct Direct {
    file: File,
    /// Bytes in a logical sector.
    sector: u64,
}

impl Direct {
    /// Reopens the device that `file` has open, even if its path now leads elsewhere.
    pub fn open(device: &File) -> io::Result<Self> {
        let (file, sector) = os::past_the_cache(device)?;
        Ok(Self { file, sector })
    }

    /// Reads a range within the device, rounded out to sectors.
    pub fn read(&self, range: ByteRange) -> io::Result<Bytes> {
        let wide = range.aligned_to(self.sector);
        let in_memory = |bytes: u64| usize::try_from(bytes).map_err(|_| io::ErrorKind::OutOfMemory);
        let (len, alignment) = (in_memory(wide.len)?, in_memory(self.sector.max(MEMORY_ALIGNMENT_MIN))?);
        let mut buffer = vec![0; len.checked_add(alignment).ok_or(io::ErrorKind::OutOfMemory)?];
        let start = buffer.as_ptr().align_offset(alignment);
        // Never out of bounds: to the next multiple of the alignment it is less than the alignment.
        let aligned = buffer.get_mut(start..).and_then(|rest| rest.get_mut(..len)).ok_or(io::ErrorKind::OutOfMemory)?;
        self.file.read_exact_at(aligned, wide.offset)?;
        let from = start + in_memory(range.offset - wide.offset)?;
        Ok(Bytes::from(buffer).slice(from..from + in_memory(range.len)?))
    }
}

/// Whether a read that failed through the page cache may have failed because of neighbouring sectors, on a device of
/// `size` bytes. A range of whole blocks failed by itself, and a failing disk is spared another try.
pub(super) fn helps(range: ByteRange, size: u64) -> bool {
    let blocks = range.aligned_to(CACHE_BLOCK_BYTES_MAX);
    ByteRange::between(blocks.offset, blocks.end().min(size)) != range
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SIZE: usize = 64 << 10;

    proptest! {
        #[test]
        fn unaligned_ranges_return_the_requested_bytes(
            offset in 0..SIZE, len in 1..SIZE, sector in prop::sample::select(vec![512, 2048, 4096]),
        ) {
            let content: Vec<u8> = (0..SIZE).map(|at| (at * 31 / 7) as u8).collect();
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), &content).unwrap();
            let len = len.min(SIZE - offset);
            let direct = Direct { file: file.reopen().unwrap(), sector };
            let read = direct.read(ByteRange::new(offset as u64, len as u64)).unwrap();
            prop_assert!(read[..] == content[offset..offset + len]);
        }
    }

    #[test]
    fn aligned_blocks_are_read_once() {
        let (size, block) = ((1 << 20) + 512, 64 << 10);
        for (offset, len) in [(0, size), (block, block), (1 << 20, 512)] {
            assert!(!helps(ByteRange::new(offset, len), size), "{offset}+{len}");
        }
        for (offset, len) in [(0, 512), (4096, 4096), (block, block + 512), (block - 512, block + 512)] {
            assert!(helps(ByteRange::new(offset, len), size), "{offset}+{len}");
        }
    }

    #[test]
    fn a_device_that_shrank_has_no_bad_sector() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(4096).unwrap();
        let direct = Direct { file: file.reopen().unwrap(), sector: 512 };
        let error = direct.read(ByteRange::new(4000, 200)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
