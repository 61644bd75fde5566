//! Opens an image or a disk as a read-only device.
//!
//! A block device is read as it is. The format of a file is detected from its content first and its name second. A
//! format that is recognised and cannot be read is refused by name, never taken for a raw image. `raw:PATH` reads any
//! file as a raw image.
//!
//! An incomplete image has its coverage map beside it ([`coverage`](crate::coverage)). A read of a range that the map calls unread
//! or unreadable fails; it does not return the zeros in the file.
//!
//! The files of an image are at a [`Place`]: in a folder of this machine ([`here`]), or behind a link ([`behind`]).

mod behind;
mod format;
mod here;
mod names;
mod place;

use std::path::PathBuf;
use std::sync::Arc;

use cheetah_device::readonly::ReadOnly;
use cheetah_device::supervise::spawn_blocking;
use cheetah_device::{Device as _, DynDevice};

use self::behind::Behind;
pub use self::behind::Folder;
use self::here::Here;
pub use self::names::claimed_format;
use self::names::{stem, stem_of_compressed};
use self::place::{Parts, Place};
use crate::aff4::Aff4;
use crate::compressed::Compressed;
use crate::detect::{Compression, Format};
use crate::ewf::{Ewf, EwfFormat};
use crate::identity::{Identity, Kind};
use crate::qemu::{Qemu, Virtual};
use crate::source::{OpenOptions, Source};
use cheetah_error::{Error, Result};

/// Opens the source that the user calls `spec`: the path of an image or a disk, or `raw:` and the path of a file that
/// is to be read as a raw image.
///
/// # Errors
///
/// `Kind::Misuse` for a path that is not a source, `Kind::Evidence` for an image that is incomplete or damaged,
/// `Kind::Failed` for everything else, such as a format that cannot be read.
pub async fn open(spec: &str, options: &OpenOptions) -> Result<Source> {
    let (named, how) = (spec.to_owned(), options.clone());
    let look = move || {
        let here = Here::open(&named, &how)?;
        if here.is_raw() {
            return Ok(Opened::Source(Box::new(here.raw())));
        }
        here.check_finished()?;
        image(&here, &how)
    };
    finish(spec, spawn_blocking(look).await, options).await
}

/// Opens the image in a file that is read through `device`, a file on another machine with the URI `location` and the
/// name `name`: a raw image, compressed or in parts, an E01 or an AFF4 image. The other files of a set are in `folder`;
/// without one, the file has to be the whole image. The identity is that of the content, except the server.
///
/// # Errors
///
/// `Kind::Failed` for a file in another format, which is named; otherwise as [`open`](fn@crate::open).
pub async fn open_behind(
    device: DynDevice,
    location: &str,
    name: &str,
    folder: Option<Arc<dyn Folder>>,
    options: &OpenOptions,
) -> Result<Source> {
    let (place, how) = (Behind::new(device, location, name, folder), options.clone());
    finish(location, spawn_blocking(move || image(&place, &how)).await, options).await
}

/// An image that was found.
enum Opened {
    Source(Box<Source>),
    /// One that is read through a process.
    Virtual(PathBuf, Virtual),
}

/// Returns the source, or starts the process through which it is read.
async fn finish<E: std::fmt::Display>(
    location: &str,
    opened: std::result::Result<Result<Opened>, E>,
    options: &OpenOptions,
) -> Result<Source> {
    match opened.map_err(|error| Error::failed(format!("opening {location}: {error}")))?? {
        Opened::Source(source) => Ok(*source),
        Opened::Virtual(path, format) => {
            let device = Qemu::open(&path, format, options).await?;
            let watched = Some(QEMU_WATCHED.to_owned());
            let identity = Identity { watched, ..Identity::new(format.kind(), location, device.geometry().size) };
            let (files, notes) = (device.files().to_vec(), device.notes().iter().map(ToString::to_string).collect());
            let device = Arc::new(ReadOnly::new(Arc::new(device)));
            Ok(Source { notes, ..Source::new(device, identity, stem(&path)).with_files(files) })
        }
    }
}

/// How a virtual disk is watched.
const QEMU_WATCHED: &str = "not watched while it was read, since another program (qemu-nbd) reads its files; the size and the times of \
                            each of its files were compared at the end of an acquisition, and the kernel was asked to report writes to them";

/// Opens the image at a place. Blocks.
fn image(place: &dyn Place, options: &OpenOptions) -> Result<Opened> {
    let (location, path) = (place.location(), place.path());
    let watched = |identity: Identity| Identity { watched: place.watched(), ..identity };
    let file = place.file();
    let (format, start) = format::format(&*file)?;
    let source = match format {
        Format::Ewf => {
            let (image, hashed) = place.ewf(options.in_order)?;
            let (identity, files) = (watched(of_ewf(location, &image)), image.files());
            place.mapped(Source { hashed, ..Source::new(Arc::new(image), identity, stem(path)).with_files(files) })?
        }
        Format::Zip => {
            let (file, hashed) = place.hashed_file(options.in_order);
            let image = Aff4::of(file)?;
            let identity = watched(image.identity(location));
            Source { hashed, ..Source::new(Arc::new(image), identity, stem(path)).with_files(place.only_file()) }
        }
        Format::Compressed(compression) => {
            let image = Compressed::open(file, compression, options.in_order)?;
            let identity = watched(of_compressed(location, &image, compression));
            let notes = image.note().map(ToString::to_string).into_iter().collect();
            let source = Source::new(Arc::new(image), identity, stem_of_compressed(path));
            place.mapped(Source { notes, ..source.with_files(place.only_file()) })?
        }
        Format::Unknown => raw(place, &start, watched)?,
        Format::Qcow2 => return Ok(Opened::Virtual(place.virtual_disk()?, Virtual::Qcow2)),
        Format::Vmdk => return Ok(Opened::Virtual(place.virtual_disk()?, Virtual::Vmdk)),
        Format::Vhd => return Ok(Opened::Virtual(place.virtual_disk()?, Virtual::Vhd)),
        Format::Vhdx => return Ok(Opened::Virtual(place.virtual_disk()?, Virtual::Vhdx)),
        Format::Unsupported(format) => return Err(place.unsupported(format)),
    };
    // The tables are read; from now on the content is.
    source.hashed.iter().for_each(|hashed| hashed.hold());
    Ok(Opened::Source(Box::new(source)))
}

/// Opens a raw image, which may be in parts. `start` has its first bytes.
fn raw(place: &dyn Place, start: &[u8], watched: impl Fn(Identity) -> Identity) -> Result<Source> {
    place.check_name(start)?;
    match place.parts()? {
        Parts::Several(image) => {
            let identity = watched(Identity::new(Kind::Split, place.location(), image.geometry().size));
            let files = image.files().to_vec();
            Ok(Source::new(Arc::new(image), identity, stem(place.path())).with_files(files))
        }
        Parts::Alone(note) => {
            place.mapped(Source { notes: note.iter().map(ToString::to_string).collect(), ..place.raw() })
        }
    }
}

fn of_ewf(spec: &str, image: &Ewf) -> Identity {
    let info = image.info();
    let kind = if info.format == EwfFormat::Ex01 { Kind::Ex01 } else { Kind::E01 };
    Identity {
        sector_size: Some(info.sector_size),
        model: info.model.clone(),
        serial: info.serial.clone(),
        hashes: info.hashes.clone(),
        unreadable: info.unreadable.clone(),
        case: info.case.clone(),
        ..Identity::new(kind, spec, info.size)
    }
    .cleaned()
}

fn of_compressed(spec: &str, image: &Compressed, compression: Compression) -> Identity {
    let kind = match compression {
        Compression::Gzip => Kind::Gzip,
        Compression::Bzip2 => Kind::Bzip2,
        Compression::Xz => Kind::Xz,
        Compression::Zstd => Kind::Zstd,
    };
    let compressed_sha256 = image.sha256().map(str::to_owned);
    Identity { compressed_sha256, ..Identity::new(kind, spec, image.geometry().size) }
}
