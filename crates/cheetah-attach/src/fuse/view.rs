//! One file of a mount: a device, or a partition of it.

use std::cell::RefCell;

use cheetah_device::data::Part;
use cheetah_device::{ByteRange, Data, Device, DynDevice, Error, Zeroing};
use fuser::Errno;
use parking_lot::Mutex;

/// How much is asked about at a time when looking for data or holes.
const SEEK_BYTES: u64 = 1 << 30;
/// One line in the log for failures this near each other: a kernel that got no answer for 1 MiB asks again page
/// by page.
const FAILURES_APART_BYTES: u64 = 1 << 20;

/// A device shown as a file.
pub(super) struct View {
    /// The file's name.
    pub(super) name: String,
    /// Its content.
    pub(super) device: DynDevice,
    /// Bytes in it, which never changes.
    pub(super) size: u64,
    /// The last failure that was logged.
    failed: Mutex<Option<ByteRange>>,
}

/// What `lseek` is to look for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Seek {
    Data,
    Hole,
}

impl View {
    pub(super) fn new(name: String, device: DynDevice) -> Self {
        let size = device.geometry().size;
        Self { name, device, size, failed: Mutex::new(None) }
    }

    /// The part of a request that is within the file; empty beyond its end.
    pub(super) fn clip(&self, offset: u64, len: u64) -> ByteRange {
        ByteRange::new(offset, len).intersection(ByteRange::new(0, self.size)).unwrap_or(ByteRange::new(offset, 0))
    }

    /// Reads `range` and hands it to `sent` in one piece.
    pub(super) async fn read(&self, range: ByteRange) -> Result<Data, Errno> {
        let data = self.device.read(range).await.map_err(|error| self.failure("read", range, &error))?;
        if data.len() != range.len {
            // The kernel would take a short answer for the end of the file and fill up with zeros.
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

    /// The next byte from `offset` on that is data, or that is in a hole; the end of the file counts as a hole.
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

    /// Logs a failure, unless one beside it just was, and says what to tell the kernel.
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
    /// Where data in several parts is put together; fuser takes a reply in one piece only. Kept, because fresh
    /// memory would cost page faults at every reply. At most as long as the largest read, 1 MiB.
    static JOINED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Calls `use_bytes` with all of `data` in one piece; copies only what is in several.
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
