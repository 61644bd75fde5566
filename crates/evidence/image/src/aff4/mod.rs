//! Advanced Forensic Format 4: disk images of the AFF4 Standard v1.0 in one ZIP container.
//!
//! A container is an archive ([`volume`]) whose `information.turtle` ([`facts`]) names an image ([`image`]). The
//! image's [`map`] takes each run of bytes from a stream of chunks ([`stream`], [`chunk`]), or marks it as one repeated
//! byte, as not acquired, or as unreadable. A read of the last two fails: the pattern with which the standard fills
//! them for hashing was never on the disk.
//!
//! Where the image has hashes, the map is checked when the image is opened, and each chunk when it is read. Only the
//! most recently read chunks are cached, and nothing is prefetched.

mod cache;
pub mod chunk;
mod directory;
pub mod facts;
mod image;
pub mod map;
mod stream;
mod volume;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use cheetah_device::error::Withheld;
use cheetah_device::{ByteRange, Data, Device, Error as DeviceError, Extent, Geometry, Io, try_io};
use futures::{StreamExt as _, TryStreamExt as _};

use self::cache::Cache;
use self::image::Image;
use self::map::{Map, Run, Target};
use self::stream::ImageStream;
use self::volume::Volume;
use crate::file::SharedFile;
use crate::identity::Identity;
use crate::raw::RawFile;
use cheetah_error::{Error, Result};

/// Bytes one thread reads and unpacks at a time: large enough to make the hand-over cheap.
const JOB_LEN: u64 = 512 << 10;

/// The maximum number of bevies in all streams: 64 TiB in bevies of 64 MiB.
const BEVIES_MAX: u64 = 1 << 20;

/// The maximum number of threads that unpack for one request.
const JOBS_MAX: usize = 8;

/// The maximum length of a read that is answered at once if its chunks are cached.
const AT_HAND_LEN_MAX: u64 = 128 << 10;

/// A disk image in an AFF4 container, as a read-only device.
pub struct Aff4 {
    inner: Arc<Inner>,
    image: Image,
}

struct Inner {
    volume: Volume,
    map: Map,
    /// Indexed by the map's target numbers; `None` for unused streams.
    streams: Vec<Option<Arc<ImageStream>>>,
    cache: Cache,
}

impl Aff4 {
    /// Opens the container at `path`. Blocks.
    ///
    /// # Errors
    ///
    /// `Kind::Evidence` if the file is damaged or truncated; `Kind::Failed` if it is not an AFF4 image, is
    /// encrypted, or spans several files.
    pub fn open(path: &Path) -> Result<Self> {
        Self::of(Arc::new(RawFile::open(path)?))
    }

    /// Opens the container in a file. Blocks: reads its directory, metadata and map.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub(crate) fn of(file: SharedFile) -> Result<Self> {
        let mut volume = Volume::open(file)?;
        let image = Image::find(&volume)?;
        let (map, names) = image.map(&volume)?;
        let mut streams = Vec::with_capacity(names.len());
        // A map may name a stream several times.
        let mut opened: HashMap<&str, Arc<ImageStream>> = HashMap::new();
        let mut bevies_left = BEVIES_MAX;
        for (number, (name, reach)) in names.iter().zip(map.reach(names.len())).enumerate() {
            if reach == 0 {
                streams.push(None);
                continue;
            }
            let stream = match opened.get(name.as_str()) {
                Some(stream) => stream.clone(),
                None => {
                    image.check_stream(&volume, name)?;
                    let stream = ImageStream::open(number, name, &image, &volume, &mut bevies_left)?;
                    opened.entry(name).or_insert(Arc::new(stream)).clone()
                }
            };
            if reach > stream.size() {
                return Err(Error::evidence(format!(
                    "{}: its map takes {reach} bytes from the image stream {name}, which has {}",
                    volume.path(),
                    stream.size()
                )));
            }
            streams.push(Some(stream));
        }
        volume.forget_names();
        Ok(Self { inner: Arc::new(Inner { volume, map, streams, cache: Cache::default() }), image })
    }

    /// The image's identity. Ranges without bytes, unacquired or unreadable, count as unreadable.
    pub fn identity(&self, location: &str) -> Identity {
        self.image.identity(location, self.inner.map.size(), self.inner.map.missing())
    }
}

impl Inner {
    /// Reads a range. Blocks.
    fn read(&self, range: ByteRange) -> cheetah_device::Result<Data> {
        let mut data = Data::new();
        for run in self.map.runs(range) {
            data.append(self.run(run)?);
        }
        Ok(data)
    }

    fn run(&self, run: Run) -> cheetah_device::Result<Data> {
        match run.target {
            Target::Fill(byte) => fill(byte, run.range.len),
            Target::Unknown | Target::Unreadable => Err(self.missing(run)),
            Target::Stream(number) => {
                let stream = self.streams.get(number).and_then(Option::as_ref);
                let stream = stream.ok_or_else(|| DeviceError::Invalid("a stream that was never opened".into()))?;
                let read = stream.read(&self.volume, &self.cache, ByteRange::new(run.offset, run.range.len));
                read.map_err(|error| match error {
                    // Users know offsets in the image, not in the stream or the file.
                    DeviceError::Corrupt { device, .. } => DeviceError::Corrupt { device, range: run.range },
                    DeviceError::Unreadable { device, why, .. } => {
                        DeviceError::Unreadable { device, range: run.range, why }
                    }
                    other => other,
                })
            }
        }
    }

    /// Reads a short range without blocking: repeated bytes, and cached chunks.
    fn at_hand(&self, range: ByteRange) -> Option<Data> {
        let mut data = Data::new();
        for run in self.map.runs(range).filter(|_| range.len <= AT_HAND_LEN_MAX) {
            data.append(match run.target {
                Target::Fill(byte) => fill(byte, run.range.len).ok()?,
                Target::Unknown | Target::Unreadable => return None,
                Target::Stream(number) => {
                    let stream = self.streams.get(number)?.as_ref()?;
                    stream.at_hand(&self.cache, ByteRange::new(run.offset, run.range.len))?
                }
            });
        }
        (data.len() == range.len).then_some(data)
    }

    fn missing(&self, run: Run) -> DeviceError {
        const WHEN: &str = "when the image was made";
        let reason = match run.target {
            Target::Unknown => Withheld::NotRead(WHEN),
            _ => Withheld::WasUnreadable(WHEN),
        };
        DeviceError::Withheld { device: self.volume.path().into(), range: run.range, reason }
    }
}

fn fill(byte: u8, len: u64) -> cheetah_device::Result<Data> {
    if byte == 0 {
        return Ok(Data::zeros(len));
    }
    let len = usize::try_from(len).map_err(|_| DeviceError::Invalid("a read larger than memory".into()))?;
    Ok(Bytes::from(vec![byte; len]).into())
}

impl Device for Aff4 {
    fn geometry(&self) -> Geometry {
        let chunks = self.inner.streams.iter().flatten().map(|stream| stream.chunk_len());
        // At most 8 MiB, so it fits.
        let block_preferred = chunks.max().unwrap_or(4096).next_power_of_two() as u32;
        Geometry { size: self.inner.map.size(), writable: false, block_preferred }
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        try_io!(self.check(range));
        if let Some(run) = self.inner.map.runs(range).find(|run| run.target.is_missing()) {
            return Io::fail(self.inner.missing(run));
        }
        if let Some(data) = self.inner.at_hand(range) {
            return Io::ok(data);
        }
        Io::later(async move {
            let jobs = futures::stream::iter(range.split_at_multiples(JOB_LEN)).map(|piece| {
                let inner = self.inner.clone();
                async move {
                    let joined = cheetah_device::supervise::spawn_blocking(move || inner.read(piece)).await;
                    joined.unwrap_or_else(|error| Err(DeviceError::Invalid(format!("unpacking: {error}").into())))
                }
            });
            let threads = std::thread::available_parallelism().map_or(1, usize::from).min(JOBS_MAX);
            let join = |mut whole: Data, piece| async move {
                whole.append(piece);
                Ok(whole)
            };
            jobs.buffered(threads).try_fold(Data::new(), join).await
        })
    }

    fn extents(&self, range: ByteRange) -> Io<'_, Vec<Extent>> {
        try_io!(self.check(range));
        let mut extents = Vec::new();
        for run in self.inner.map.runs(range) {
            let zero = run.target == Target::Fill(0);
            Extent { len: run.range.len, hole: zero, zero }.push(&mut extents);
        }
        Io::ok(extents)
    }
}

#[cfg(test)]
mod tests;
