//! Opens an image or a disk of this machine as a read-only device.
//!
//! A block device is read as it is. The format of a file is detected from its content first and its name second. A
//! format that is recognised and cannot be read is refused by name, never taken for a raw image. `raw:PATH` reads any
//! file as a raw image.
//!
//! An incomplete image has its coverage map beside it ([`coverage`]). A read of a range that the map calls unread or
//! unreadable fails; it does not return the zeros in the file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use cheetah_device::readonly::ReadOnly;
use cheetah_device::{ByteRange, Device as _, DynDevice};

use crate::aff4::Aff4;
use crate::compressed::Compressed;
use crate::coverage;
use crate::detect::{self, Compression, Format};
use crate::ewf::{Ewf, EwfFormat};
use crate::identity::{Identity, Kind};
use crate::qemu::{Qemu, Virtual};
use crate::raw::RawFile;
use crate::source::{OpenOptions, Source};
use crate::split::Split;
use crate::watch;
use crate::{side_file, spec};
use cheetah_error::{Error, Result};

/// Opens the source that the user calls `spec`: the path of an image or a disk, or `raw:` and the path of a file that
/// is to be read as a raw image.
///
/// # Errors
///
/// [`Error::Misuse`] for a path that is not a source, [`Error::Evidence`] for an image that is incomplete or damaged,
/// [`Error::Failed`] for everything else, such as a format that cannot be read.
pub async fn open(spec: &str, options: &OpenOptions) -> Result<Source> {
    let (file, how) = (spec.to_owned(), options.clone());
    let detected = cheetah_device::supervise::spawn_blocking(move || look(&file, &how))
        .await
        .map_err(|error| Error::failed(format!("opening {spec}: {error}")))??;
    match detected {
        Detected::Open(source) => Ok(*source),
        Detected::Virtual(path, format) => {
            let device = Qemu::open(&path, format, options).await?;
            let watched = Some("not watched: another program (qemu-nbd) reads its files".to_owned());
            let identity = Identity { watched, ..Identity::new(format.kind(), spec, device.geometry().size) };
            Ok(Source { device: Arc::new(ReadOnly::new(Arc::new(device))), identity, name: stem(&path) })
        }
    }
}

/// The kind of the file at a path.
enum Detected {
    Open(Box<Source>),
    /// An image that is read through a process.
    Virtual(PathBuf, Virtual),
}

fn look(spec: &str, options: &OpenOptions) -> Result<Detected> {
    let (path, is_raw) = spec::path_of(spec).unwrap_or_else(|| (spec.into(), false));
    let path = path.as_path();
    let file = RawFile::open(path)?;
    // A disk's content must not choose how the disk is read.
    if is_raw || file.is_block() {
        return Ok(Detected::Open(Box::new(raw(spec, path, file))));
    }
    let files = Some(format!("{} (of each of its files)", watch::TIMES));
    let open = |device: DynDevice, identity: Identity| {
        let identity = Identity { watched: files.clone(), ..identity };
        Ok(Detected::Open(Box::new(Source { device, identity, name: stem(path) })))
    };
    // These may be incomplete images of our own, or of ddrescue's.
    let mapped = |source: Source| {
        let source = if options.apply_map { coverage::applied(source, path)? } else { source };
        Ok(Detected::Open(Box::new(source)))
    };
    if let Some(unfinished) = side_file::unfinished(path) {
        return Err(Error::Evidence(format!("{unfinished} (its own bytes are read as raw:{spec})")));
    }
    let (format, start) = format(&file)?;
    match format {
        Format::Ewf => {
            let image = Ewf::open(path)?;
            let identity = Identity { watched: files.clone(), ..of_ewf(spec, &image) };
            mapped(Source { device: Arc::new(image), identity, name: stem(path) })
        }
        Format::Zip => {
            let image = Aff4::open(path)?;
            let identity = image.identity(spec);
            open(Arc::new(image), identity)
        }
        Format::Compressed(compression) => {
            let image = Compressed::open(path, compression, options.in_order)?;
            let identity = Identity { watched: files.clone(), ..of_compressed(spec, &image, compression) };
            mapped(Source { device: Arc::new(image), identity, name: stem_of_compressed(path) })
        }
        Format::Qcow2 => Ok(Detected::Virtual(path.into(), Virtual::Qcow2)),
        Format::Vmdk => Ok(Detected::Virtual(path.into(), Virtual::Vmdk)),
        Format::Vhd => Ok(Detected::Virtual(path.into(), Virtual::Vhd)),
        Format::Vhdx => Ok(Detected::Virtual(path.into(), Virtual::Vhdx)),
        Format::Unsupported(unsupported) => Err(Error::failed(format!(
            "{spec} is {}, which is not supported; {} (its own bytes are read as raw:{spec})",
            unsupported.what, unsupported.instead
        ))),
        Format::Unknown => {
            if let Some(refusal) = side_file::refusal(path, &start) {
                return Err(Error::misuse(format!("{refusal} (its own bytes are read as raw:{spec})")));
            }
            if let Some(claimed) = claimed_format(path) {
                return Err(Error::Evidence(format!(
                    "{spec} has the name of {claimed}, but not its signature: it is damaged, or in another format; to \
                     read its bytes as they are, give raw:{spec}"
                )));
            }
            if Split::is_part(path) {
                let image = Split::open(path)?;
                let identity = Identity::new(Kind::Split, spec, image.geometry().size);
                return open(Arc::new(image), identity);
            }
            mapped(raw(spec, path, file))
        }
    }
}

fn raw(spec: &str, path: &Path, file: RawFile) -> Source {
    let size = file.geometry().size;
    let watched = Some(file.watched());
    let identity = match file.disk() {
        None => Identity::new(Kind::Raw, spec, size),
        Some(disk) => Identity {
            sector_size: disk.sector_size,
            physical_sector_size: disk.physical_sector_size,
            model: disk.model,
            serial: disk.serial,
            write_protected: disk.write_protected,
            aoe: disk.aoe,
            ..Identity::new(Kind::Block, spec, size)
        }
        .cleaned(),
    };
    let identity = Identity { watched, ..identity };
    Source { device: Arc::new(file), identity, name: stem(path) }
}

/// The format of a file, and its first bytes.
fn format(file: &RawFile) -> Result<(Format, Bytes)> {
    let size = file.geometry().size;
    let all = ByteRange::new(0, size);
    let read = |range: ByteRange| {
        let range = range.intersection(all).unwrap_or_default();
        file.read_now(range).map(cheetah_device::Data::into_bytes)
    };
    let ends = read(ByteRange::new(0, detect::START_LEN as u64))
        .and_then(|start| Ok((start, read(ByteRange::between(size.saturating_sub(detect::END_LEN as u64), size))?)));
    match ends {
        Ok((start, end)) => Ok((detect::detect(&start, &end, size), start)),
        Err(error) => Err(Error::device(format!("looking at {}", file.path()))(error)),
    }
}

/// Returns the format that a file's name claims, with its article, if that format has signatures by which [`open`] detects it.
pub fn claimed_format(path: &Path) -> Option<&'static str> {
    const NAMES: [(&str, &str); 12] = [
        ("e01", "an E01 image"),
        ("s01", "an S01 image"),
        ("ex01", "an Ex01 image"),
        ("l01", "an L01 image"),
        ("lx01", "an Lx01 image"),
        ("ad1", "an AD1 image"),
        ("aff4", "an AFF4 image"),
        ("af4", "an AFF4 image"),
        ("qcow2", "a QCOW2 image"),
        ("vmdk", "a VMDK image"),
        ("vhd", "a VHD image"),
        ("vhdx", "a VHDX image"),
    ];
    let extension = path.extension()?.to_str()?.to_ascii_lowercase();
    NAMES.into_iter().find(|(name, _)| *name == extension).map(|(_, what)| what)
}

pub(crate) fn of_ewf(spec: &str, image: &Ewf) -> Identity {
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

pub(crate) fn of_compressed(spec: &str, image: &Compressed, compression: Compression) -> Identity {
    let kind = match compression {
        Compression::Gzip => Kind::Gzip,
        Compression::Bzip2 => Kind::Bzip2,
        Compression::Xz => Kind::Xz,
        Compression::Zstd => Kind::Zstd,
    };
    let compressed_sha256 = image.sha256().map(str::to_owned);
    Identity { compressed_sha256, ..Identity::new(kind, spec, image.geometry().size) }
}

/// The name of `disk.raw.gz` is `disk`, as is that of `disk.raw`.
pub(crate) fn stem_of_compressed(path: &Path) -> String {
    let name = stem(path);
    let raw = [".raw", ".dd", ".img", ".bin", ".iso"].into_iter().find_map(|end| name.strip_suffix(end));
    raw.map_or_else(|| name.clone(), str::to_owned)
}

pub(crate) fn stem(path: &Path) -> String {
    path.file_stem().map_or_else(|| "image".to_owned(), |stem| stem.to_string_lossy().into_owned())
}
