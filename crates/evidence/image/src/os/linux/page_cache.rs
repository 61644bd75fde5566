//! Reading a file from the kernel's page cache, without waiting for the disk.

use std::fs::File;
use std::io::{IoSliceMut, Result as IoResult};
use std::os::unix::fs::FileExt as _;

use cheetah_device::ByteRange;
use rustix::io::{Errno, ReadWriteFlags, preadv2};

/// Up to this many bytes, copying takes less time than handing the read over to another thread.
const LEN_MAX: u64 = 64 << 10;
/// The type of a tmpfs (linux/magic.h).
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// How a file can be read from the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PageCache {
    /// The kernel answers if it has the content in memory (`RWF_NOWAIT`), or that it does not support this.
    Asked,
    /// The page cache is all there is: a tmpfs, which does not support `RWF_NOWAIT`.
    Whole,
}

impl PageCache {
    pub(crate) fn of(file: &File) -> Self {
        // The type has another size on other machines.
        match rustix::fs::fstatfs(file) {
            Ok(found) if found.f_type as u64 == TMPFS_MAGIC => Self::Whole,
            _ => Self::Asked,
        }
    }

    /// Reads a range; `None` if it is long, or not in memory as a whole.
    pub(crate) fn read(self, file: &File, range: ByteRange) -> Option<Vec<u8>> {
        if range.len > LEN_MAX {
            return None;
        }
        let mut bytes = vec![0; usize::try_from(range.len).ok()?];
        let read = match self {
            Self::Whole => file.read_at(&mut bytes, range.offset).ok()?,
            Self::Asked => {
                let into = &mut [IoSliceMut::new(&mut bytes)];
                preadv2(file, into, range.offset, ReadWriteFlags::NOWAIT).ok()?
            }
        };
        (read == bytes.len()).then_some(bytes)
    }
}

/// Fills `into` if all of it is in the page cache.
pub(crate) fn read_cached(file: &File, offset: u64, into: &mut [u8]) -> IoResult<bool> {
    match preadv2(file, &mut [IoSliceMut::new(into)], offset, ReadWriteFlags::NOWAIT) {
        Ok(len) => Ok(len == into.len()),
        // Not cached, or the file system does not support the query.
        Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INTR | Errno::INVAL) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_in_memory_is_read_as_it_is_and_a_long_or_missing_range_is_left_to_others() {
        for dir in ["/dev/shm", "/var/tmp"] {
            let Ok(file) = tempfile::tempfile_in(dir) else { continue };
            let content: Vec<u8> = (0..100_000_u32).map(|at| (at % 251) as u8).collect();
            file.write_all_at(&content, 0).unwrap();
            let cache = PageCache::of(&file);
            // File systems without RWF_NOWAIT never answer.
            if let Some(bytes) = cache.read(&file, ByteRange::new(4096, 5000)) {
                assert_eq!(bytes, content[4096..9096], "{dir}");
            }
            assert_eq!(cache.read(&file, ByteRange::new(0, 70_000)), None, "{dir}");
            assert_eq!(cache.read(&file, ByteRange::new(99_000, 2000)), None, "{dir}");
        }
    }
}
