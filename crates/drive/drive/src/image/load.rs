//! Loading an image into a drive: one pass, hashed on the way.

use cheetah_device::{ByteRange, Coverage, Device as _, DynDevice, Zeroing};

use super::progress::{LoadProgress, Teller, Telling};
use crate::copy::{CopyProgress, DeviceCopy};
use crate::file::coverage;
use crate::file::digests::Digests;
use crate::file::{DriveFile, Image, ImageState};
use crate::fill::files;
use crate::open::Drive;
use crate::options::{OpenOptions, REPLACE_AFTER};
use crate::refused::Refused;
use crate::session::Session;
use cheetah_error::{Error, Result};
use cheetah_image::hash::{HashChoice, Hashes};

/// The rest of a drive, after its image, is zeroed in pieces of this many bytes.
const ZERO_BYTES: u64 = 1 << 30;

/// How to load an image.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    /// The image's source, as the user wrote it: for the record.
    pub source_name: String,
    /// The sector size of the image's source in bytes, if known.
    pub sector_size: Option<u32>,
    /// The hashes to compute of the whole.
    pub hashes: HashChoice,
    /// Take the write lease from its holder.
    pub force_lease: bool,
    /// What the drive is opened with.
    pub session: Session,
}

/// Copies `source` to the start of the drive, zeroes the rest of the drive, and records the image's digests in and
/// beside the drive file. Returns when every node has flushed. While it runs, and if it fails, the drive file says
/// `loading`, so that part of an image is never taken for the whole.
pub async fn load(
    file: &mut DriveFile,
    source: DynDevice,
    options: LoadOptions,
    mut progress: impl FnMut(CopyProgress) + Send,
) -> Result<Image> {
    let size = source.geometry().size;
    let mut digests = Digests::new(size)?;
    let loader = Loader::begin(file.clone(), size, &options).await?;
    let teller = loader.teller();
    let progress = |so_far: CopyProgress| {
        teller.done(so_far.done);
        progress(so_far);
    };
    let copy = DeviceCopy {
        from: source,
        from_name: options.source_name.as_str().into(),
        to: loader.device(),
        to_name: file.name.as_str().into(),
        size,
        hashes: options.hashes,
    };
    *file = match copy.run(Some(&mut digests), progress).await {
        Ok(hashes) => loader.finish(&digests, hashes, (None, 0), |_| Ok(())).await?,
        Err(error) => {
            file.image = Some(loader.image.clone());
            loader.close().await?;
            return Err(error);
        }
    };
    file.image.clone().ok_or_else(|| Error::failed("the image was loaded and not recorded; this is a bug"))
}

/// A load in progress. Until [`Loader::finish`], the drive file says `loading`.
pub struct Loader {
    file: DriveFile,
    drive: Drive,
    image: Image,
    telling: Telling,
}

impl Loader {
    /// Opens the drive for an image of `size` bytes, marks it as loading, and zeroes the drive after the image.
    pub async fn begin(mut file: DriveFile, size: u64, options: &LoadOptions) -> Result<Self> {
        if size > file.size {
            let (image, drive) = (options.source_name.clone(), file.name.clone());
            return Err(Refused::TooLarge { image, image_bytes: size, drive, drive_bytes: file.size }.into());
        }
        let drive = open(&file, options).await?;
        let image = Image {
            source: options.source_name.clone(),
            size,
            sector_size: options.sector_size.filter(|size| size.is_power_of_two() && (512..=65536).contains(size)),
            state: ImageState::Loading,
            digests: None,
            hashes: Hashes::default(),
            differ_bytes_max: 0,
        };
        file.image = Some(image.clone());
        forget_fill(&mut file)?;
        let telling = telling(&file, LoadProgress::begun(size), options);
        let mut loader = Self { file, drive, image, telling };
        match loader.prepare().await {
            Ok(()) => Ok(loader),
            Err(error) => {
                loader.close().await?;
                Err(error)
            }
        }
    }

    /// Resumes an interrupted load, of which the drive has the bytes up to `at`; `None` if the drive was not loading an image of this
    /// size from this source.
    pub async fn resume(mut file: DriveFile, (size, at): (u64, u64), options: &LoadOptions) -> Result<Option<Self>> {
        let Some(mut image) = file.image.clone() else { return Ok(None) };
        if (image.size, image.source.as_str()) != (size, options.source_name.as_str())
            || matches!(image.state, ImageState::Modified | ImageState::Filling)
        {
            return Ok(None);
        }
        let drive = open(&file, options).await?;
        // The image may even be complete: the previous load may have stopped just before it removed its journal.
        image = Image {
            state: ImageState::Loading,
            digests: None,
            hashes: Hashes::default(),
            differ_bytes_max: 0,
            ..image
        };
        file.image = Some(image.clone());
        forget_fill(&mut file)?;
        let loading = image.clone();
        file.update(|file| (file.image, file.fill, file.map) = (Some(loading), None, None))?;
        let telling = telling(&file, LoadProgress::resumed(size, at), options);
        Ok(Some(Self { file, drive, image, telling }))
    }

    async fn prepare(&mut self) -> Result<()> {
        let loading = self.image.clone();
        self.file.update(|file| (file.image, file.fill, file.map) = (Some(loading), None, None))?;
        let to = self.device();
        // The drive may have been enlarged since it was opened: what was added is zero.
        for piece in ByteRange::between(self.image.size, to.geometry().size).split_at_multiples(ZERO_BYTES) {
            let zeroed = to.zero(piece, Zeroing::default()).await;
            zeroed.map_err(Error::device(format!("zeroing what {} has behind the image", self.file.name)))?;
        }
        Ok(())
    }

    /// The image, in the state `loading`.
    pub const fn image(&self) -> &Image {
        &self.image
    }

    /// The drive, for writing.
    pub fn device(&self) -> DynDevice {
        self.drive.device()
    }

    /// What the load tells its progress to, so that other machines see it.
    pub fn teller(&self) -> Teller {
        self.telling.teller()
    }

    /// Flushes, and records the image as loaded; as incomplete, with a map of the missing ranges, if `coverage` is not
    /// whole; and the most bytes that may differ from the source ([`Image::differ_bytes_max`]). Returns the drive file
    /// as it was written.
    ///
    /// `log` records the image elsewhere before the drive file does: a log that is behind the drive file would show an
    /// image of which nothing is signed.
    pub async fn finish(
        self,
        digests: &Digests,
        hashes: Hashes,
        (coverage, differ_bytes_max): (Option<&Coverage>, u64),
        log: impl FnOnce(&Image) -> Result<()>,
    ) -> Result<DriveFile> {
        let Self { mut file, drive, image, .. } = self;
        let gaps = coverage.filter(|coverage| !coverage.is_whole());
        if let Some(gaps) = gaps {
            file.map = Some(coverage::save(&coverage::path(&file), &file.id, gaps)?);
        }
        let saved = match drive.device().flush().await {
            Ok(()) => digests.save(&file.path),
            Err(error) => Err(Error::device(format!("flushing {}", file.name))(error)),
        };
        let closed = drive.close().await;
        let digests = saved?;
        closed?;
        // Last: from now on the image counts as loaded.
        let state = if gaps.is_some() { ImageState::Incomplete } else { ImageState::Intact };
        let loaded = Image { digests: Some(digests), hashes, state, differ_bytes_max, ..image };
        log(&loaded)?;
        let map = file.map.clone();
        file.update(|file| (file.image, file.map) = (Some(loaded), map))?;
        Ok(file)
    }

    /// Closes the drive, which stays `loading`.
    pub async fn close(self) -> Result<()> {
        self.telling.end().await;
        self.drive.close().await
    }
}

/// Begins to tell the drive's nodes of the load, from here on.
fn telling(file: &DriveFile, from: LoadProgress, options: &LoadOptions) -> Telling {
    Telling::start(file.nodes().cloned().collect(), from, options.session.clone())
}

/// Removes the record of an earlier fill.
fn forget_fill(file: &mut DriveFile) -> Result<()> {
    (file.fill, file.map) = (None, None);
    files::remove_files(file)
}

async fn open(file: &DriveFile, options: &LoadOptions) -> Result<Drive> {
    let open = OpenOptions {
        writable: true,
        force_lease: options.force_lease,
        replace_after: Some(REPLACE_AFTER),
        prefetch_budget: 0,
        ..OpenOptions::new(options.session.clone())
    };
    Drive::open_unmarked(file, open).await
}
