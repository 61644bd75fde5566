//! A sparse file as a write-only device.

use std::fs::File;
use std::io::ErrorKind;
use std::sync::Arc;

use cheetah_device::data::Part;
use cheetah_device::{ByteRange, Data, Device, Error as DeviceError, Geometry, Io, Zeroing, try_io};
use cheetah_kit::file::{FileExt as _, begin_storing};
use parking_lot::Mutex;

/// The kernel is asked to begin to store what was written after this many bytes. By itself it waits for a flush, or for many seconds;
/// then the disk is idle while data arrives, and the flush at the end stores what was written since the last one.
const STORE_BYTES: u64 = 8 << 20;

/// A write-only file that is a hole wherever it is going to be written: zeroed ranges stay holes. Each range is written
/// at most once.
pub struct SparseFile {
    file: Arc<File>,
    name: Arc<str>,
    size: u64,
    unstored: Arc<Mutex<Unstored>>,
}

/// What was written, and is not being stored yet.
#[derive(Debug, Default)]
struct Unstored {
    /// The range in which it lies.
    range: ByteRange,
    /// Bytes.
    bytes: u64,
}

impl Unstored {
    /// Adds a range that was written. Returns the range to store now, if there is enough in it.
    fn add(&mut self, written: ByteRange) -> Option<ByteRange> {
        self.range = match self.bytes {
            0 => written,
            _ => ByteRange::between(self.range.offset.min(written.offset), self.range.end().max(written.end())),
        };
        self.bytes += written.len;
        (self.bytes >= STORE_BYTES).then(|| std::mem::take(self).range)
    }
}

impl SparseFile {
    /// Makes a device of `file`, which is `size` bytes long; errors call it `name`.
    pub fn new(file: File, name: impl Into<Arc<str>>, size: u64) -> Self {
        Self { file: Arc::new(file), name: name.into(), size, unstored: Arc::default() }
    }

    fn blocking(&self, work: impl FnOnce(&File) -> std::io::Result<()> + Send + 'static) -> Io<'_, ()> {
        let (file, name) = (self.file.clone(), self.name.clone());
        Io::later(async move {
            let joined = cheetah_device::supervise::spawn_blocking(move || work(&file)).await;
            joined.unwrap_or_else(|error| Err(std::io::Error::other(error))).map_err(|error| failed(name, &error))
        })
    }
}

impl Device for SparseFile {
    fn geometry(&self) -> Geometry {
        Geometry { size: self.size, writable: true, block_preferred: 4096 }
    }

    fn read(&self, _range: ByteRange) -> Io<'_, Data> {
        Io::fail(DeviceError::Unsupported("reading a file that is being written"))
    }

    fn write(&self, offset: u64, data: Data, _fua: bool) -> Io<'_, ()> {
        try_io!(self.check(ByteRange::new(offset, data.len())));
        let unstored = Arc::clone(&self.unstored);
        self.blocking(move |file| {
            let mut at = offset;
            for part in data.parts() {
                if let Part::Bytes(bytes) = part {
                    file.write_all_at(bytes, at)?;
                }
                at += part.len();
            }
            let due = unstored.lock().add(ByteRange::between(offset, at));
            if let Some(range) = due {
                // What is not done here, the flush does.
                if let Err(error) = begin_storing(file, range.offset, range.len) {
                    tracing::debug!("what was written is stored by the flush only: {error}");
                }
            }
            Ok(())
        })
    }

    fn zero(&self, range: ByteRange, _how: Zeroing) -> Io<'_, ()> {
        Io::done(self.check(range))
    }

    fn flush(&self) -> Io<'_, ()> {
        self.blocking(File::sync_all)
    }
}

fn failed(name: Arc<str>, error: &std::io::Error) -> DeviceError {
    match error.kind() {
        ErrorKind::StorageFull => {
            DeviceError::NoSpace(format!("{name}: the disk is full; free some space, or choose another place").into())
        }
        ErrorKind::QuotaExceeded => DeviceError::NoSpace(
            format!("{name}: the quota is exceeded; free some space, or choose another place").into(),
        ),
        _ => DeviceError::io(name, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_stored_from_a_limit_on_in_whatever_order_it_came() {
        let mut unstored = Unstored::default();
        let piece = STORE_BYTES / 4;
        for at in [2, 0, 3] {
            assert_eq!(unstored.add(ByteRange::new(at * piece, piece)), None);
        }
        assert_eq!(unstored.add(ByteRange::new(piece, piece)), Some(ByteRange::new(0, STORE_BYTES)));
        // A late piece before what is being stored begins the next range.
        assert_eq!(unstored.add(ByteRange::new(9 * piece, piece)), None);
        let late = unstored.add(ByteRange::new(5 * piece, STORE_BYTES));
        assert_eq!(late, Some(ByteRange::between(5 * piece, 10 * piece)));
        assert_eq!(unstored.bytes, 0);
    }

    #[tokio::test]
    async fn a_file_that_is_stored_as_it_is_written_has_the_content_and_its_holes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        let (size, piece) = (3 * STORE_BYTES, 1 << 20);
        let file = File::create_new(&path).unwrap();
        file.set_len(size).unwrap();
        let device = SparseFile::new(file, "image", size);
        let hole = ByteRange::new(5 * piece, piece);
        device.zero(hole, Zeroing::default()).await.unwrap();
        for at in (0..size).step_by(piece as usize).filter(|at| *at != hole.offset) {
            device.write(at, vec![(at / piece) as u8 + 1; piece as usize].into(), false).await.unwrap();
        }
        device.flush().await.unwrap();
        let content = std::fs::read(&path).unwrap();
        for (at, bytes) in content.chunks(piece as usize).enumerate() {
            let expected = if at as u64 * piece == hole.offset { 0 } else { at as u8 + 1 };
            assert!(bytes.iter().all(|byte| *byte == expected), "MiB {at}");
        }
    }
}
