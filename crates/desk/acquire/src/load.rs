//! Loading an image into a drive: one pass, hashed on the way, around ranges that cannot be read.

use cheetah_custody::FileRead;
use cheetah_device::coverage::State;
use cheetah_device::{ByteRange, Coverage, DynDevice};
use cheetah_drive::copy::ChunkWriter;
use cheetah_drive::digests::Digests;
use cheetah_drive::load::{LoadOptions, Loader};
use cheetah_drive::{CopyProgress, DriveFile, Image, Teller};
use cheetah_error::{Error, Result};
use cheetah_image::hash::{Hashes, Hashing};
use cheetah_image::{BadRange, Kind, Source, Watching};

use crate::engine::{Damage, SourceFiles, too_many, unacquirable, watch};
use crate::order::{ErrorsMax, Opener};
use crate::reader::{DiskPlaces, Liveness, Reader, Salvage};

/// Bytes of the beginning of a disk that are read to find out whether it is still readable.
const BEGINNING_BYTES: u64 = 64 << 10;

/// How to load an image.
pub struct LoadRequest {
    /// The drive's part of it.
    pub drive: LoadOptions,
    /// The number of unreadable or corrupt ranges to accept.
    pub errors_max: ErrorsMax,
    /// The number of retries of an unreadable sector.
    pub retries: u32,
    /// Opens the source again, to tell a bad sector from a disk that is gone.
    pub reopen: Opener,
    /// The disks that the source lies on, if it is the content of a volume. They are watched for changes, as the source is, and of several
    /// each must stay readable.
    pub disks: Vec<Source>,
}

/// A loaded image.
pub struct Loaded {
    /// The image, as the drive file records it.
    pub image: Image,
    /// The ranges that the source did not yield, in order. The drive refuses to read them.
    pub bad: Vec<BadRange>,
    /// The files that the source was read from.
    pub files: Vec<FileRead>,
}

impl Loaded {
    /// The number of bytes that the source did not yield, and how many of them are corrupt in it.
    pub fn missing_bytes(&self) -> (u64, u64) {
        BadRange::missing_bytes(&self.bad)
    }
}

/// Copies `source` to the start of the drive, zeroes the rest of the drive, and records the image's digests in and beside the
/// drive file. Returns when every node has flushed. While it runs, and if it fails, the drive file says `loading`, so that
/// part of an image is never taken for the whole.
///
/// A range that is unreadable, or corrupt in an image with checksums of its own, is zeros on the drive and in the hashes, and
/// unreadable in the drive's map; the image is then incomplete.
///
/// `log` records the image before the drive file does ([`Loader::finish`]).
///
/// # Errors
///
/// `Kind::Evidence` if more ranges than `errors_max` are bad; any error of the source, the drive or the log.
pub async fn load(
    file: &mut DriveFile,
    source: &Source,
    request: LoadRequest,
    progress: impl FnMut(CopyProgress) + Send,
    log: impl FnOnce(&Loaded) -> Result<()>,
) -> Result<Loaded> {
    let size = source.identity.size;
    let loader = Loader::begin(file.clone(), size, &request.drive).await?;
    let mut watching = vec![watch(source).await];
    for disk in &request.disks {
        watching.push(watch(disk).await);
    }
    let files = SourceFiles::start(source, request.drive.hashes);
    let pass = Pass { source, request: &request, size, teller: loader.teller() };
    let copied = pass.run((loader.device(), &file.name), progress).await;
    // All of it was read: a change since the last read is found now, or never.
    let copied = match copied.and_then(|copied| watching.iter().try_for_each(Watching::check).map(|()| copied)) {
        Ok(copied) => copied,
        Err(error) => {
            file.image = Some(loader.image().clone());
            loader.close().await?;
            return Err(error);
        }
    };
    let Copied { digests, hashes, parts, bad } = copied;
    let files = files.finish(&hashes, parts, &bad).await;
    let mut coverage = Coverage::new(size);
    coverage.set(ByteRange::new(0, size), State::Read);
    bad.iter().for_each(|bad| coverage.set(bad.range(), State::Unreadable));
    let mut loaded = None;
    let log = |image: &Image| log(loaded.insert(Loaded { image: image.clone(), bad, files }));
    *file = loader.finish(&digests, hashes, (Some(&coverage), 0), log).await?;
    loaded.ok_or_else(|| Error::failed("the image was loaded and not recorded; this is a bug"))
}

struct Pass<'a> {
    source: &'a Source,
    request: &'a LoadRequest,
    size: u64,
    teller: Teller,
}

struct Copied {
    digests: Digests,
    hashes: Hashes,
    parts: Vec<String>,
    bad: Vec<BadRange>,
}

impl Pass<'_> {
    async fn run(
        &self,
        (to, name): (DynDevice, &str),
        mut progress: impl FnMut(CopyProgress) + Send,
    ) -> Result<Copied> {
        let LoadRequest { drive, errors_max, .. } = self.request;
        let (mut digests, hashing) = (
            Digests::new(self.size)?,
            Hashing::start_with_parts(drive.hashes, SourceFiles::parts(self.source, drive.hashes))?,
        );
        let (mut reader, mut writer) = (self.reader(), ChunkWriter::new(to.clone(), name));
        let (mut bad, mut damage) = (Vec::new(), Damage::default());
        while let Some(read) = reader.next().await {
            let chunk = read.map_err(|error| unacquirable(&drive.source_name, error))?;
            for found in chunk.bad {
                damage = damage.and(&found);
                if errors_max.exceeded_by(damage.errors) {
                    return Err(too_many(&drive.source_name, &found, *errors_max));
                }
                found.push(&mut bad);
                self.teller.unreadable(damage.bytes, bad.len());
            }
            digests.set(chunk.range.offset, chunk.digest);
            hashing.push(&chunk.data).await?;
            writer.write(chunk.range, chunk.data).await?;
            self.teller.done(writer.written());
            progress(CopyProgress { done: writer.written(), total: self.size });
        }
        writer.wait().await?;
        self.teller.done(writer.written());
        progress(CopyProgress { done: writer.written(), total: self.size });
        to.flush().await.map_err(Error::device(format!("flushing {name}")))?;
        let (hashes, parts) = hashing.finish_with_parts().await?;
        Ok(Copied { digests, hashes, parts, bad })
    }

    /// The disks, if they are several, each with its beginning, in which its volumes were looked for.
    fn places(&self) -> Vec<DiskPlaces> {
        let disks = if self.request.disks.len() > 1 { &self.request.disks[..] } else { &[] };
        let places = |disk: &Source| DiskPlaces {
            device: disk.device.clone(),
            good: ByteRange::new(0, disk.identity.size.min(BEGINNING_BYTES)).split_at_multiples(4096).collect(),
        };
        disks.iter().map(places).collect()
    }

    fn reader(&self) -> Reader {
        let identity = &self.source.identity;
        let salvage = Salvage::of(identity, self.request.retries);
        // Opening an image again costs much and proves little.
        let is_disk = matches!(identity.kind, Kind::Block | Kind::Raw);
        let liveness = Liveness::new(&identity.location, is_disk.then(|| self.request.reopen.clone()), []);
        Reader::new(self.source.device.clone(), 0, salvage, liveness.on(self.places()), None)
    }
}
