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
use cheetah_device::{ByteRange, Device as _};

use crate::aff4::Aff4;
use crate::compressed::{Compressed, zstd};
use crate::coverage;
use crate::detect::{self, Compression, Format};
use crate::ewf::{Ewf, EwfFormat};
use crate::identity::{Identity, Kind};
use crate::qemu::{Qemu, Virtual};
use crate::raw::RawFile;
use crate::source::{OpenOptions, Source, SourceFile};
use crate::split::{self, Found, Split};
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
            let watched = Some(QEMU_WATCHED.to_owned());
            let identity = Identity { watched, ..Identity::new(format.kind(), spec, device.geometry().size) };
            let (files, notes) = (device.files().to_vec(), device.notes().to_vec());
            let device = Arc::new(ReadOnly::new(Arc::new(device)));
            Ok(Source { notes, ..Source::new(device, identity, stem(&path)).with_files(files) })
        }
    }
}

/// How a virtual disk is watched.
const QEMU_WATCHED: &str = "not watched while it was read, since another program (qemu-nbd) reads its files; the size and the times of \
                            each of its files were compared at the end of an acquisition, and the kernel was asked to report writes to them";

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
    let size = file.geometry().size;
    let only = || vec![SourceFile { path: path.to_owned(), size }];
    let watched = Some(format!("{} (of each of its files)", watch::TIMES));
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
            let image = if options.in_order { Ewf::open(path) } else { Ewf::open_at_random(path) }?;
            let identity = Identity { watched, ..of_ewf(spec, &image) };
            let files = image.files();
            mapped(Source::new(Arc::new(image), identity, stem(path)).with_files(files))
        }
        Format::Zip => {
            let image = Aff4::open(path)?;
            let identity = Identity { watched, ..image.identity(spec) };
            Ok(Detected::Open(Box::new(Source::new(Arc::new(image), identity, stem(path)).with_files(only()))))
        }
        Format::Compressed(compression) => {
            let image = Compressed::open(path, compression, options.in_order)?;
            let identity = Identity { watched, ..of_compressed(spec, &image, compression) };
            let notes = image.note().map(str::to_owned).into_iter().collect();
            let source = Source::new(Arc::new(image), identity, stem_of_compressed(path));
            mapped(Source { notes, ..source.with_files(only()) })
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
            match split::look(path)? {
                Found::Parts(paths) => {
                    let image = Split::open(paths)?;
                    let identity = Identity { watched, ..Identity::new(Kind::Split, spec, image.geometry().size) };
                    let files = image.files().to_vec();
                    let source = Source::new(Arc::new(image), identity, stem(path)).with_files(files);
                    Ok(Detected::Open(Box::new(source)))
                }
                Found::Alone(note) => mapped(Source { notes: note.into_iter().collect(), ..raw(spec, path, file) }),
            }
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
    let files = if file.is_block() { Vec::new() } else { vec![SourceFile { path: path.to_owned(), size }] };
    let identity = Identity { watched, ..identity };
    Source::new(Arc::new(file), identity, stem(path)).with_files(files)
}

/// The maximum number of reads that look for the first frame of a zstd file.
pub(crate) const FRAME_LOOKS_MAX: usize = 1000;

/// The format of a file, and its first bytes.
fn format(file: &RawFile) -> Result<(Format, Bytes)> {
    let size = file.geometry().size;
    let all = ByteRange::new(0, size);
    let read = |range: ByteRange| {
        let range = range.intersection(all).unwrap_or_default();
        let read = file.read_now(range).map(cheetah_device::Data::into_bytes);
        read.map_err(Error::device(format!("looking at {}", file.path())))
    };
    let start = read(ByteRange::new(0, detect::START_LEN as u64))?;
    let end = read(ByteRange::between(size.saturating_sub(detect::END_LEN as u64), size))?;
    let format = detect::detect(&start, &end, size);
    let (mut at, mut bytes) = (0, start.clone());
    for _ in 0..FRAME_LOOKS_MAX {
        match zstd::first_frame(&bytes, at) {
            zstd::Begins::WithFrame if format == Format::Unknown => {
                return Ok((Format::Compressed(Compression::Zstd), start));
            }
            zstd::Begins::Skipping(next) if format == Format::Unknown && next < size => at = next,
            _ => break,
        }
        bytes = read(ByteRange::new(at, detect::START_LEN as u64))?;
    }
    Ok((format, start))
}

/// Returns the format that a file's name claims, with its article, if that is a container or a compression. A file of that
/// name in no known format is damaged, or something else: it is never read as a raw image without being asked for.
pub fn claimed_format(path: &Path) -> Option<&'static str> {
    const NAMES: [(&[&str], &str); 33] = [
        (&["e01"], "an E01 image"),
        (&["s01"], "an S01 image"),
        (&["ex01"], "an Ex01 image"),
        (&["l01"], "an L01 image"),
        (&["lx01"], "an Lx01 image"),
        (&["ad1"], "an AD1 image"),
        (&["aff4", "af4"], "an AFF4 image"),
        (&["aff", "afd", "afm"], "an AFF image"),
        (&["qcow2", "qcow"], "a QCOW image"),
        (&["qed"], "a QED image"),
        (&["vmdk"], "a VMDK image"),
        (&["vhd", "avhd"], "a VHD image"),
        (&["vhdx", "avhdx"], "a VHDX image"),
        (&["vdi"], "a VDI image"),
        (&["dmg", "sparseimage"], "an Apple disk image"),
        (&["gz", "tgz", "gzip", "bgz"], "a gzip file"),
        (&["bz2", "tbz", "tbz2", "bzip2"], "a bzip2 file"),
        (&["xz", "txz"], "an xz file"),
        (&["lzma", "tlz"], "an lzma file"),
        (&["lz"], "an lzip file"),
        (&["zst", "zstd", "tzst"], "a zstd file"),
        (&["lz4"], "an lz4 file"),
        (&["lzo"], "an lzop file"),
        (&["sz", "snappy"], "a snappy file"),
        (&["br"], "a brotli file"),
        (&["z"], "a file of compress"),
        (&["zip", "zipx"], "a ZIP archive"),
        (&["7z"], "a 7z archive"),
        (&["rar"], "a RAR archive"),
        (&["tar", "ova"], "a tar archive"),
        (&["cab"], "a cabinet archive"),
        (&["cpio"], "a cpio archive"),
        (&["wim", "swm", "esd"], "a WIM archive"),
    ];
    let extension = path.extension()?.to_str()?.to_ascii_lowercase();
    let known = NAMES.into_iter().find(|(names, _)| names.contains(&extension.as_str())).map(|(_, what)| what);
    known.or_else(|| is_later_segment(&extension).then_some("a later segment of an E01 image"))
}

/// Whether a file ending is that of a segment of an E01, S01, L01 or Ex01 image: `e02`, `ex02`.
fn is_later_segment(extension: &str) -> bool {
    let number = extension.strip_prefix(['e', 's', 'l']).map(|rest| rest.strip_prefix('x').unwrap_or(rest));
    number.is_some_and(|number| number.len() == 2 && number.bytes().all(|byte| byte.is_ascii_digit()))
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
