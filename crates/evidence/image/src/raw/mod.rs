//! A raw image, or a block device, as a read-only device.

use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use cheetah_device::{ByteRange, Data, Device, Error as DeviceError, Extent, Geometry, Io, buffers, try_io};
use cheetah_kit::errno::is_of_medium;
use cheetah_kit::file::{FileExt as _, Status, Time};
use parking_lot::Mutex;

use crate::disk::Disk;
use crate::os::{self, OpenDisk, PageCache, Watch, What};
use crate::regular;
use cheetah_error::{Error, Result};

mod direct;

use direct::Direct;

/// How often the kernel's reports of writes are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A raw image file or block device, opened read-only.
///
/// Reads fail if the file was modified since it was opened: a copy would mix two states. A read that touches a bad
/// sector fails as a whole with [`Unreadable`](DeviceError::Unreadable); good sectors can be read right up to a bad
/// one.
#[derive(Clone)]
pub struct RawFile {
    inner: Arc<Inner>,
    /// Whether the buffer of each read is its reader's alone.
    exclusive: bool,
}

struct Inner {
    file: File,
    page_cache: PageCache,
    name: Arc<str>,
    size: u64,
    /// Length and times when it was opened; `None` for a block device.
    stamp: Option<Stamp>,
    /// What the kernel reports; `None` for a block device.
    watch: Option<Watch>,
    /// When the kernel's reports were looked at last.
    looked: Mutex<Instant>,
    /// What is known of a block device.
    disk: Option<OpenDisk>,
    /// The block device opened past the page cache, once a read has failed.
    direct: OnceLock<Direct>,
}

/// Length, and the times of modification and of change. A program can set the former to any value, and not the latter.
pub(crate) type Stamp = (u64, Time, Time);

impl RawFile {
    /// Opens the image at `path`; refuses one that is missing, empty, unreadable or not a file or block device.
    pub fn open(path: &Path) -> Result<Self> {
        Self::with(path, regular::open_named)
    }

    /// Opens a file that belongs to the one that the user named: a regular file, not a link to one.
    pub(crate) fn open_beside(path: &Path) -> Result<Self> {
        Self::with(path, regular::open_beside)
    }

    fn with(path: &Path, open: fn(&Path) -> std::io::Result<File>) -> Result<Self> {
        let name: Arc<str> = path.display().to_string().into();
        let failed = |error: std::io::Error| match error.kind() {
            ErrorKind::InvalidInput => Error::misuse(format!("{name} is not an image: {error}")).because(error),
            ErrorKind::NotFound => {
                Error::failed(format!("{name}: there is no such image; check the path")).because(error)
            }
            ErrorKind::PermissionDenied => {
                Error::failed(format!("{name}: no permission to read it; a disk usually takes {}", os::READER_OF_DISKS))
            }
            _ => Error::io(format_args!("opening the image {name}"), &error),
        };
        let file = open(path).map_err(failed)?;
        let is_file = os::what_is(&file, path).map_err(failed)? == What::File;
        let (size, stamp, disk) = if is_file {
            let stamp = stamp(&file).map_err(failed)?;
            (stamp.0, Some(stamp), None)
        } else {
            let (disk, size) = OpenDisk::of(&file).map_err(failed)?;
            (size, None, Some(disk))
        };
        if size == 0 {
            return Err(Error::failed(format!("{name}: the image is empty; was it copied completely?")));
        }
        let page_cache = PageCache::of(&file);
        let watch = is_file.then(|| Watch::start(&file));
        let (direct, looked) = (OnceLock::new(), Mutex::new(Instant::now()));
        let inner = Arc::new(Inner { file, page_cache, name, size, stamp, watch, looked, disk, direct });
        Ok(Self { inner, exclusive: false })
    }

    /// The same, whose buffers are each its reader's alone if `exclusive`; otherwise they are reused.
    pub(crate) fn with_buffers(self, exclusive: bool) -> Self {
        Self { exclusive, ..self }
    }

    /// Whether it is a block device rather than a file.
    pub fn is_block(&self) -> bool {
        self.inner.stamp.is_none()
    }

    /// Returns the facts that the kernel reports, if it is a block device.
    pub fn disk(&self) -> Option<Disk> {
        self.inner.disk.as_ref().map(|disk| disk.look(&self.inner.file))
    }

    /// Says how it is watched for changes, and how not.
    pub fn watched(&self) -> String {
        match &self.inner.watch {
            Some(watch) => watch.describe(),
            None => {
                "not watched: other programs could write to the disk while it was read, unless it is write-protected"
                    .to_owned()
            }
        }
    }

    /// Returns a file's length and times when it was opened.
    pub(crate) fn stamp(&self) -> Option<Stamp> {
        self.inner.stamp
    }

    /// Returns its path, as given.
    pub(crate) fn path(&self) -> &str {
        &self.inner.name
    }

    /// Reads a range at once, blocking the thread. The range must be within the file, and fit in memory.
    pub(crate) fn read_now(&self, range: ByteRange) -> cheetah_device::Result<Data> {
        self.check(range)?;
        self.inner.read(range, self.exclusive)
    }

    /// Runs `work` on a thread that may block.
    fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> cheetah_device::Result<T> + Send + 'static,
    ) -> Io<'_, T> {
        let inner = self.inner.clone();
        Io::later(async move {
            let name = inner.name.clone();
            let joined = cheetah_device::supervise::spawn_blocking(move || work(&inner)).await;
            joined.unwrap_or_else(|error| Err(DeviceError::Invalid(format!("reading {name}: {error}").into())))
        })
    }
}

fn stamp(file: &File) -> std::io::Result<Stamp> {
    Status::of(file).map(|status| stamp_of(&status))
}

pub(crate) fn stamp_of(status: &Status) -> Stamp {
    (status.len, status.modified, status.changed)
}

impl Inner {
    fn read(&self, range: ByteRange, exclusive: bool) -> cheetah_device::Result<Data> {
        let is_hole = self.next_data(range) == range.end();
        let data = if is_hole { Data::zeros(range.len) } else { self.content(range, exclusive)? };
        self.unchanged(range).map(|()| data)
    }

    /// Reads a range without waiting for the disk; `None` if the kernel does not have all of it in memory.
    fn read_cached(&self, range: ByteRange) -> Option<cheetah_device::Result<Data>> {
        let bytes = self.page_cache.read(&self.file, range)?;
        Some(self.unchanged(range).map(|()| bytes.into()))
    }

    /// Fails if the file was modified since it was opened.
    fn unchanged(&self, range: ByteRange) -> cheetah_device::Result<()> {
        match self.stamp {
            Some(stamp_then) if stamp(&self.file).map_err(|error| self.failed(range, &error))? != stamp_then => {
                Err(self.changed())
            }
            _ if self.is_written() => Err(self.changed()),
            _ => Ok(()),
        }
    }

    /// Whether the kernel has reported a write. Asks it a few times a second only, since each read asks.
    fn is_written(&self) -> bool {
        let Some(watch) = &self.watch else { return false };
        let Some(mut looked) = self.looked.try_lock() else { return watch.was_written() };
        if looked.elapsed() < LOOK_EVERY {
            return watch.was_written();
        }
        *looked = Instant::now();
        watch.is_written()
    }

    fn content(&self, range: ByteRange, exclusive: bool) -> cheetah_device::Result<Data> {
        if self.disk.is_some() && os::WHOLE_SECTORS {
            return self.content_of_sectors(range);
        }
        let len = usize::try_from(range.len).map_err(|_| DeviceError::Invalid("a read larger than memory".into()))?;
        let mut bytes = buffers::of_len(len);
        match self.file.read_exact_at(&mut bytes, range.offset) {
            Ok(()) if exclusive => Ok(bytes.freeze().into()),
            Ok(()) => Ok(buffers::share(bytes).into()),
            Err(error) if self.stamp.is_none() && is_of_medium(&error) && direct::helps(range, self.size) => {
                tracing::debug!(device = %self.name, %range, %error, "reading again, past the page cache");
                self.content_of_sectors(range)
            }
            Err(error) => Err(self.failed(range, &error)),
        }
    }

    fn content_of_sectors(&self, range: ByteRange) -> cheetah_device::Result<Data> {
        let read = self.direct().and_then(|direct| direct.read(range));
        read.map(Data::from).map_err(|error| self.failed(range, &error))
    }

    fn direct(&self) -> std::io::Result<&Direct> {
        match self.direct.get() {
            Some(direct) => Ok(direct),
            None => {
                let direct = Direct::open(&self.file)?;
                Ok(self.direct.get_or_init(|| direct))
            }
        }
    }

    /// Returns the offset of the range's first byte outside a hole; the range's end if there is none.
    fn next_data(&self, range: ByteRange) -> u64 {
        match os::next_data(&self.file, range.offset) {
            Ok(Some(at)) => at.clamp(range.offset, range.end()),
            // A hole up to the end of the file. Valid only while the file's length is unchanged.
            Ok(None) if self.stamp.is_some() => range.end(),
            // Block devices and some file systems do not support this query.
            _ => range.offset,
        }
    }

    fn extents(&self, range: ByteRange) -> Vec<Extent> {
        let mut extents = Vec::new();
        let mut rest = range;
        while !rest.is_empty() {
            let data = self.next_data(rest);
            Extent::hole(data - rest.offset).push(&mut extents);
            rest = ByteRange::between(data, range.end());
            if rest.is_empty() {
                break;
            }
            let hole = os::next_hole(&self.file, rest.offset).unwrap_or(range.end());
            // Advance by at least one byte, even if the file is being modified and the result is inconsistent.
            let hole = hole.clamp(rest.offset + 1, range.end());
            Extent::data(hole - rest.offset).push(&mut extents);
            rest = ByteRange::between(hole, range.end());
        }
        extents
    }

    fn failed(&self, range: ByteRange, error: &std::io::Error) -> DeviceError {
        if error.kind() == ErrorKind::UnexpectedEof {
            return self.changed();
        }
        let device = self.name.clone();
        match &self.disk {
            // A disk that was unplugged also fails with EIO, but has no bad sector.
            Some(disk) if disk.is_gone() => DeviceError::Lost { device, range, why: "the disk is gone".into() },
            _ if is_of_medium(error) => DeviceError::Unreadable { device, range, why: error.to_string().into() },
            _ => DeviceError::io(format!("{device}, range {range}"), error),
        }
    }

    fn changed(&self) -> DeviceError {
        let why = format!(
            "{} changed while it was read (its size, its times, or a report of the kernel say so); stop the program that \
                 writes to it, and start again",
            self.name
        );
        DeviceError::Invalid(why.into())
    }
}

impl Device for RawFile {
    fn geometry(&self) -> Geometry {
        Geometry { size: self.inner.size, writable: false, block_preferred: 4096 }
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        match self.check(range) {
            Err(error) => Io::fail(error),
            Ok(()) if range.is_empty() => Io::ok(Data::new()),
            Ok(()) => match self.inner.read_cached(range) {
                Some(read) => Io::Done(Some(read)),
                None => {
                    let exclusive = self.exclusive;
                    self.blocking(move |inner| inner.read(range, exclusive))
                }
            },
        }
    }

    fn extents(&self, range: ByteRange) -> Io<'_, Vec<Extent>> {
        try_io!(self.check(range));
        self.blocking(move |inner| Ok(inner.extents(range)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;
    use std::io::{Seek as _, Write as _};

    #[tokio::test]
    async fn holes_read_as_zeros_and_are_known_as_holes() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(8 << 20).unwrap();
        file.seek(std::io::SeekFrom::Start(4 << 20)).unwrap();
        file.write_all(&[7; 4096]).unwrap();
        let image = RawFile::open(file.path()).unwrap();
        let extents = image.extents(ByteRange::new(0, 8 << 20)).await.unwrap();
        assert_eq!(extents.iter().map(|extent| extent.len).sum::<u64>(), 8 << 20);
        let data = image.read(ByteRange::new((4 << 20) - 1, 3)).await.unwrap();
        assert!(data == [0, 7, 7][..]);
        assert!(image.read(ByteRange::new(0, 1 << 20)).await.unwrap().is_zero());
        assert!(image.read(ByteRange::new(8 << 20, 1)).await.is_err());
    }

    #[tokio::test]
    async fn an_image_that_changes_is_refused() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&[1; 10_000]).unwrap();
        let image = RawFile::open(file.path()).unwrap();
        file.as_file().set_len(5_000).unwrap();
        let error = image.read(ByteRange::new(0, 10_000)).await.unwrap_err();
        assert!(matches!(error, DeviceError::Invalid(_)), "{error}");
    }

    #[test]
    fn a_reused_buffer_shows_the_bytes_of_its_own_read_alone() {
        const LEN: u64 = 1 << 20;
        let file_of = |byte: u8| {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(&vec![byte; LEN as usize]).unwrap();
            file
        };
        let (first, second) = (file_of(1), file_of(2));
        let whole = ByteRange::new(0, LEN);
        let is_all = |data: Data, byte: u8| data.runs().flatten().all(|one| *one == byte);
        for exclusive in [false, true] {
            let open = |file: &tempfile::NamedTempFile| RawFile::open(file.path()).unwrap().with_buffers(exclusive);
            let (first, second) = (open(&first), open(&second));
            assert!(is_all(first.read_now(whole).unwrap(), 1), "exclusive: {exclusive}");
            // Of the same length, and of one for which the same buffer serves.
            for range in [whole, ByteRange::new(4096, 900_000)] {
                let data = second.read_now(range).unwrap();
                assert!(data.len() == range.len && is_all(data, 2), "exclusive: {exclusive}, {range}");
            }
            let alone = first.read_now(whole).unwrap().into_bytes().try_into_mut();
            assert_eq!(alone.is_ok(), exclusive, "who else has the bytes");
        }
        let image = RawFile::open(second.path()).unwrap();
        drop(RawFile::open(first.path()).unwrap().read_now(whole).unwrap());
        second.as_file().set_len(LEN / 2).unwrap();
        assert!(matches!(image.read_now(whole), Err(DeviceError::Invalid(_))), "a read that ends early has no bytes");
    }

    #[test]
    fn an_error_of_the_medium_is_unreadable_for_the_requested_range() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&[1; 10_000]).unwrap();
        let image = RawFile::open(file.path()).unwrap();
        let asked = ByteRange::new(512, 4096);
        for errno in [Errno::IO, Errno::NODATA] {
            let error = image.inner.failed(asked, &errno.into());
            assert!(matches!(&error, DeviceError::Unreadable { range, .. } if *range == asked), "{error}");
        }
        let error = image.inner.failed(asked, &Errno::NODEV.into());
        assert!(matches!(error, DeviceError::Io { .. }), "{error}");
    }

    #[test]
    fn a_file_that_is_not_an_image_is_refused_in_one_sentence() {
        let dir = tempfile::tempdir().unwrap();
        let refusal = |path: &Path| RawFile::open(path).err().unwrap();
        let why = |path: &Path| refusal(path).cause::<std::io::Error>().map(std::io::Error::kind);
        assert_eq!(why(&dir.path().join("absent.raw")), Some(ErrorKind::NotFound));
        assert_eq!(why(dir.path()), Some(ErrorKind::InvalidInput));
        let empty = dir.path().join("empty.raw");
        File::create(&empty).unwrap();
        assert!(why(&empty).is_none() && !refusal(&empty).is_misuse(), "{}", refusal(&empty));
    }
}
