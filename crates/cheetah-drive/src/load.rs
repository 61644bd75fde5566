//! Copying an image into a drive: one pass, hashed on the way.

use std::time::Duration;

use cheetah_device::{ByteRange, DynDevice, Size, Zeroing};

use crate::copy::{Copy, Progress};
use crate::digests::Digests;
use crate::file::{DriveFile, Image, ImageState};
use crate::open::{Drive, OpenOptions};
use cheetah_image::error::{Error, Result};
use cheetah_image::hash::{HashChoice, Hashes};

/// What is left of the drive behind an image is zeroed in pieces of this many bytes.
const ZERO_BYTES: u64 = 1 << 30;

/// How to load an image.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    /// Where the image comes from, as the user wrote it: for the record.
    pub source_name: String,
    /// Hashes of the whole to compute.
    pub hashes: HashChoice,
    /// Take the write lease from whoever holds it.
    pub force_lease: bool,
    /// How long a node may take to answer.
    pub timeout: Duration,
}

/// Copies `source` into the drive from its start, zeroes the rest of the drive, and records the image's digests in
/// and beside the drive file. Returns when every node has it. While it runs, and if it fails, the drive file says
/// `loading`, so that part of an image is never taken for the whole.
pub async fn load(
    file: &mut DriveFile,
    source: DynDevice,
    options: LoadOptions,
    progress: impl FnMut(Progress) + Send,
) -> Result<Image> {
    let size = source.geometry().size;
    if size > file.size {
        return Err(Error::failed(format!(
            "{} has {}, {} only {}; enlarge the drive or create one from the image",
            options.source_name,
            Size(size),
            file.name,
            Size(file.size)
        )));
    }
    let open = OpenOptions {
        writable: true,
        force_lease: options.force_lease,
        timeout: options.timeout,
        prefetch_budget: 0,
        ..OpenOptions::default()
    };
    let drive = Drive::open_unmarked(file, open).await?;
    let loaded = load_into(file, &drive, source, &options, progress).await;
    let closed = drive.close().await;
    let image = loaded?;
    closed?;
    // Last, when everything is where it belongs: from now on the image counts as loaded.
    file.image = Some(image.clone());
    file.save()?;
    Ok(image)
}

async fn load_into(
    file: &mut DriveFile,
    drive: &Drive,
    source: DynDevice,
    options: &LoadOptions,
    progress: impl FnMut(Progress) + Send,
) -> Result<Image> {
    let size = source.geometry().size;
    let mut image = Image {
        source: options.source_name.clone(),
        size,
        state: ImageState::Loading,
        digests: None,
        hashes: Hashes::default(),
    };
    file.image = Some(image.clone());
    file.save()?;
    let to = drive.device();
    for piece in ByteRange::between(size, file.size).split_at_multiples(ZERO_BYTES) {
        let zeroed = to.zero(piece, Zeroing::default()).await;
        zeroed.map_err(Error::device(format!("zeroing what {} has behind the image", file.name)))?;
    }
    let mut digests = Digests::new(size)?;
    let copy = Copy {
        from: source,
        from_name: options.source_name.as_str().into(),
        to,
        to_name: file.name.as_str().into(),
        size,
        hashes: options.hashes,
    };
    image.hashes = copy.run(Some(&mut digests), progress).await?;
    image.digests = Some(digests.save(&file.path)?);
    image.state = ImageState::Intact;
    Ok(image)
}
