//! A file of a mount: a device, or a partition of it.

use std::cell::RefCell;

use cheetah_device::data::Part;
use cheetah_device::{ByteRange, Data, Device, DynDevice, Error, Zeroing};
use fuser::Errno;
use parking_lot::Mutex;

/// The range searched at a time for data or holes, in bytes.
const SEEK_BYTES: u64 = 1 << 30;
/// Failures this close together are logged once: after a failed request of 1 MiB, the kernel reads page by page.
const FAILURES_APART_BYTES: u64 = 1 << 20;

/// A device shown as a file.
pub(super) struct FileView {
    /// The file's name.
    pub(super) name: String,
    /// Its content.
    pub(super) device: DynDevice,
    /// Its size in bytes, which never changes.
    pub(super) size: u64,
    /// The last failure that was logged.
    failed: Mutex<Option<ByteRange>>,
}

/// The target of an `lseek`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Seek {
    Data,
    Hole,
}

impl FileView {
    pub(super) fn new(name: String, device: DynDevice) -> Self {
        let size = device.geometry().size;
        Self { name, device, size, failed: Mutex::new(None) }
    }

    /// Clips a request to the file; the result is empty beyond its end.
    pub(super) fn clip(&self, offset: u64, len: u64) -> ByteRange {
        ByteRange::new(offset, len).intersection(ByteRange::new(0, self.size)).unwrap_or(ByteRange::new(offset, 0))
    }

    /// Reads `range`; a short read is an error.
    pub(super) async fn read(&self, range: ByteRange) -> Result<Data, Errno> {
        let data = self.device.read(range).await.map_err(|error| self.failure("read", range, &error))?;
        if data.len() != range.len {
            // The kernel takes a short reply for the end of the file, and appends zeros.
            let error = Error::Invalid(format!("{} bytes came back", data.len()).into());
            return Err(self.failure("read", range, &error));
        }
        Ok(data)
    }

    pub(super) async fn write(&self, offset: u64, data: Data, fua: bool) -> Result<(), Errno> {
        let range = ByteRange::new(offset, data.len());
        self.device.write(offset, data, fua).await.map_err(|error| self.failure("write", range, &error))
    }

    pub(super) async fn zero(&self, range: ByteRange, keep_allocated: bool) -> Result<(), Errno> {
        let how = Zeroing { keep_allocated, ..Zeroing::default() };
        self.device.zero(range, how).await.map_err(|error| self.failure("zero", range, &error))
    }

    pub(super) async fn flush(&self) -> Result<(), Errno> {
        self.device.flush().await.map_err(|error| self.failure("flush", ByteRange::new(0, self.size), &error))
    }

    /// Finds the next byte from `offset` on that is data, or that is in a hole. The end of the file counts as a hole.
    pub(super) async fn seek(&self, offset: u64, what: Seek) -> Result<u64, Errno> {
        let mut at = offset;
        while at < self.size {
            let range = self.clip(at, SEEK_BYTES);
            let extents =
                self.device.extents(range).await.map_err(|error| self.failure("extents of", range, &error))?;
            for extent in extents {
                if extent.zero == (what == Seek::Hole) && extent.len > 0 {
                    return Ok(at.min(self.size));
                }
                at = at.saturating_add(extent.len);
            }
            at = at.max(range.end());
        }
        if what == Seek::Hole && offset < self.size { Ok(self.size) } else { Err(Errno::ENXIO) }
    }

    /// Logs a failure, unless a neighbouring one was just logged, and returns its errno.
    fn failure(&self, doing: &str, range: ByteRange, error: &Error) -> Errno {
        let known = self.failed.lock().is_some_and(|last| last.contains(range));
        if known {
            tracing::debug!(file = self.name, %range, "{doing} failed: {error}");
        } else {
            tracing::warn!(file = self.name, %range, "{doing} failed: {error}");
            let start = range.offset - range.offset % FAILURES_APART_BYTES;
            let end = range.end().div_ceil(FAILURES_APART_BYTES).saturating_mul(FAILURES_APART_BYTES);
            *self.failed.lock() = Some(ByteRange::between(start, end));
        }
        Errno::from_i32(error.errno())
    }
}

thread_local! {
    /// A buffer for joining data in several parts, since fuser takes a reply in one piece only. It is reused, because fresh
    /// memory costs page faults at every reply. At most as long as the largest read, 1 MiB.
    static JOINED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Calls `use_bytes` with all of `data` in one piece; copies only data in several parts.
pub(super) fn in_one_piece<T>(data: &Data, use_bytes: impl FnOnce(&[u8]) -> T) -> T {
    if let [Part::Bytes(bytes)] = data.parts() {
        return use_bytes(bytes);
    }
    JOINED.with_borrow_mut(|joined| {
        joined.clear();
        for part in data.parts() {
            match part {
                Part::Bytes(bytes) => joined.extend_from_slice(bytes),
                Part::Zeros(len) => joined.resize(joined.len() + usize::try_from(*len).unwrap_or(usize::MAX), 0),
            }
        }
        use_bytes(joined)
    })
}
