//! A sparse file as a write-only device.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use cheetah_device::data::Part;
use cheetah_device::{ByteRange, Data, Device, Error as DeviceError, Geometry, Io, Zeroing};

/// A write-only file that is a hole wherever it is going to be written: zeroed ranges stay holes. Each range is written
/// at most once.
pub struct SparseFile {
    file: Arc<File>,
    name: Arc<str>,
    size: u64,
}

impl SparseFile {
    /// Makes a device of `file`, which is `size` bytes long; errors call it `name`.
    pub fn new(file: File, name: impl Into<Arc<str>>, size: u64) -> Self {
        Self { file: Arc::new(file), name: name.into(), size }
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
        if let Err(error) = self.check(ByteRange::new(offset, data.len())) {
            return Io::fail(error);
        }
        self.blocking(move |file| {
            let mut at = offset;
            for part in data.parts() {
                if let Part::Bytes(bytes) = part {
                    file.write_all_at(bytes, at)?;
                }
                at += part.len();
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
