//! Opens an image whose files are on another machine.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use cheetah_device::supervise::spawn_blocking;
use cheetah_device::{ByteRange, DynDevice};
use cheetah_error::{Error, Result};
use cheetah_volume::reach;
use futures::future::{BoxFuture, try_join_all};

use crate::compressed::{Compressed, zstd};
use crate::detect::{self, Compression, Format};
use crate::ewf::{Ewf, segment_name};
use crate::hashed::HashedFiles;
use crate::identity::{Identity, Kind};
use crate::open::{FRAME_LOOKS_MAX, claimed_format, of_compressed, of_ewf, stem, stem_of_compressed};
use crate::source::{OpenOptions, Source, SourceFile};
use crate::split::{Notation, PartName, Split};

/// How many files of a set are looked for at the same time.
const LOOKED_FOR: usize = 16;
/// The maximum number of files of a set. An E01 image has at most 14,971.
const FILES_MAX: usize = 20_000;

/// The folder of a file on another machine.
pub trait Folder: Send + Sync {
    /// Opens the file with this name; `None` if there is none.
    fn open<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<DynDevice>>>;

    /// Where the file with this name is, for messages.
    fn location(&self, name: &str) -> String;
}

/// A file of a set: its location, and its bytes.
pub(crate) type FileBehind = (String, DynDevice);

/// Opens the image in a file that is read through `device`, a file on another machine with the URI `location` and the
/// name `name`: a raw image, compressed or in parts, or an E01 image. The other files of a set are in `folder`; without one,
/// the file has to be the whole image. The identity is that of the content, except the server.
///
/// # Errors
///
/// [`Error::Failed`] for a file in another format, which is named; otherwise as [`open`](fn@crate::open).
pub async fn open_behind(
    device: DynDevice,
    location: &str,
    name: &str,
    folder: Option<&dyn Folder>,
    options: &OpenOptions,
) -> Result<Source> {
    let size = device.geometry().size;
    let start = ByteRange::new(0, size.min(detect::START_LEN as u64));
    let end = ByteRange::between(size.saturating_sub(detect::END_LEN as u64), size);
    let looking = || Error::device(format!("looking at {location}"));
    let start = device.read(start).await.map_err(looking())?.into_bytes();
    let end = device.read(end).await.map_err(looking())?.into_bytes();
    let path = Path::new(name);
    let refused = |what: &str| {
        let why = "only raw images, compressed or in parts, and E01 images are read from a web server";
        Err(Error::failed(format!("{location} is {what}, and {why}; download it first")))
    };
    let only = || vec![SourceFile { path: location.into(), size }];
    let format = match detect::detect(&start, &end, size) {
        Format::Unknown if begins_with_zstd(&device, start).await.map_err(looking())? => {
            Format::Compressed(Compression::Zstd)
        }
        format => format,
    };
    match format {
        Format::Unknown => {
            if let Some(claimed) = claimed_format(path) {
                return refused(&format!("named like {claimed}"));
            }
            match parts(&device, location, path, folder).await? {
                Some(image) => {
                    let identity = Identity::new(Kind::Split, location, image.size());
                    let files = image.files().to_vec();
                    Ok(Source::new(Arc::new(image), identity, stem(path)).with_files(files))
                }
                None => {
                    let identity = Identity::new(Kind::Http, location, size);
                    Ok(Source::new(device, identity, stem(path)).with_files(only()))
                }
            }
        }
        Format::Compressed(compression) => {
            let (file, in_order) = (location.to_owned(), options.in_order);
            let open = move || Compressed::behind(device, &file, compression, in_order);
            let image = spawn_blocking(open).await.map_err(|error| opening(location, &error))??;
            let identity = of_compressed(location, &image, compression);
            let notes = image.note().map(str::to_owned).into_iter().collect();
            let source = Source::new(Arc::new(image), identity, stem_of_compressed(path));
            Ok(Source { notes, ..source.with_files(only()) })
        }
        Format::Ewf => {
            let mut segments = vec![(location.to_owned(), device)];
            let next = |count| segment_name(name, count + 1);
            let missing = find(&mut segments, folder, next).await?;
            let hashed = options.in_order.then(|| Arc::new(HashedFiles::new(&segments)));
            let noted = hashed.clone();
            let open = move || Ewf::behind(segments, missing, noted);
            let image = spawn_blocking(open).await.map_err(|error| opening(location, &error))??;
            hashed.iter().for_each(|hashed| hashed.hold());
            let (identity, files) = (of_ewf(location, &image), image.files());
            Ok(Source { hashed, ..Source::new(Arc::new(image), identity, stem(path)).with_files(files) })
        }
        Format::Unsupported(unsupported) => refused(unsupported.what),
        Format::Zip => refused("an AFF4 image or a ZIP archive"),
        Format::Qcow2 | Format::Vmdk | Format::Vhd | Format::Vhdx => refused("a virtual disk"),
    }
}

/// Whether the first frame of a zstd file lies behind skippable ones that reach beyond the file's first bytes.
async fn begins_with_zstd(device: &DynDevice, mut bytes: Bytes) -> cheetah_device::Result<bool> {
    let (size, mut at) = (device.geometry().size, 0);
    for _ in 0..FRAME_LOOKS_MAX {
        match zstd::first_frame(&bytes, at) {
            zstd::Begins::WithFrame => return Ok(true),
            zstd::Begins::Skipping(next) if next < size => at = next,
            _ => break,
        }
        let next = ByteRange::between(at, size.min(at.saturating_add(detect::START_LEN as u64)));
        bytes = device.read(next).await?.into_bytes();
    }
    Ok(false)
}

fn opening(location: &str, error: &dyn std::fmt::Display) -> Error {
    Error::failed(format!("opening {location}: {error}"))
}

/// Opens the split image whose first part is `device`; `None` if no file beside it is named like another part.
///
/// A folder behind a link cannot be listed: the names that could come before and after are tried.
async fn parts(device: &DynDevice, location: &str, path: &Path, folder: Option<&dyn Folder>) -> Result<Option<Split>> {
    let names = PartName::all_of(path);
    let Some(folder) = folder else {
        return match names.first().is_some_and(|name| name.follows_dot() && name.is_padded()) {
            true => Err(Error::misuse(format!(
                "{location} is named like a part of a split image, whose other parts cannot be looked for (a signed URI, \
                 or one with a query, names one file only); download all parts first"
            ))),
            false => Ok(None),
        };
    };
    // Many servers answer any name, so usual endings are not taken for counters here.
    for name in names.iter().filter(|name| !name.is_usual_ending()) {
        // If a part 0 exists, part 1 is the second.
        let before = name.number().checked_sub(1).and_then(|number| name.with_number(number));
        let is_certain = name.is_at_end() && (name.follows_dot() || name.is_padded());
        let (before, next) = (opened(folder, before), opened(folder, name.with_number(name.number() + 1)));
        let (before, next) = futures::try_join!(before, next)?;
        let before = match before {
            Some((_, other)) if !is_certain && !may_follow(&other, device).await => None,
            before => before,
        };
        let next = match next {
            Some((_, other)) if !is_certain && !may_follow(device, &other).await => None,
            next => next,
        };
        if let Some((before, _)) = before {
            return Err(Error::misuse(format!(
                "{location} is a later part of a split image, or may be; the one before it is {before}: give the first part"
            )));
        }
        match next {
            None => {}
            Some(_) if is_certain && name.is_first() => return set(device, location, name, folder).await.map(Some),
            Some((next, _)) => {
                return Err(Error::misuse(format!(
                    "{location} may be a part of an image, because {next} is beside it; download them, and join them if \
                     they are parts"
                )));
            }
        }
    }
    Ok(None)
}

/// Whether one file may be a part of an image that another part precedes: it is not larger, and does not begin like a disk or a
/// volume.
async fn may_follow(before: &DynDevice, later: &DynDevice) -> bool {
    let size = later.geometry().size;
    let begins = async {
        let start = later.read(ByteRange::new(0, size.min(reach::BEGINS_BYTES))).await.ok()?;
        Some(reach::begins(&start.into_bytes()))
    };
    size <= before.geometry().size && !begins.await.unwrap_or(false)
}

/// Opens the file with a name, if it is there, and returns its location with it.
async fn opened(folder: &dyn Folder, name: Option<PartName>) -> Result<Option<FileBehind>> {
    let Some(name) = name.and_then(|name| name.file_name().into_string().ok()) else { return Ok(None) };
    Ok(folder.open(&name).await?.map(|device| (folder.location(&name), device)))
}

/// Opens the parts from `first` on, up to the first that is not there.
async fn set(device: &DynDevice, location: &str, first: &PartName, folder: &dyn Folder) -> Result<Split> {
    let at = |count: usize| first.with_number(first.number() + count as u64);
    let mut files = vec![(location.to_owned(), device.clone())];
    find(&mut files, Some(folder), |count| at(count)?.file_name().into_string().ok()).await?;
    // The names by which split goes on after 09 in hexadecimal, and after 89.
    let hexadecimal = at(9 - first.number().min(9) as usize).filter(|nine| nine.number() == 9);
    let hexadecimal = hexadecimal.and_then(|nine| nine.read_as(Notation::Hexadecimal)?.with_number(10));
    let longer = at(files.len() - 1).and_then(|last| last.longer());
    for other in [hexadecimal.filter(|_| files.len() >= 9), longer] {
        if let Some((other, _)) = opened(folder, other).await? {
            return Err(Error::failed(format!(
                "{location}: {other} is a part of it, too, and sets with such names are not read from a server; download \
                 it first"
            )));
        }
    }
    Split::behind(files)
}

/// Adds the files of a set that follow the first, up to the first that is not there, whose name it returns. `named` gives the
/// name of the file at a place in the order, counted from 0.
///
/// # Errors
///
/// If a file is missing, and one behind it is not.
async fn find(
    files: &mut Vec<FileBehind>,
    folder: Option<&dyn Folder>,
    named: impl Fn(usize) -> Option<String>,
) -> Result<String> {
    let first = files.first().map_or_else(String::new, |(location, _)| location.clone());
    let unnamed = || format!("the file that follows {first}");
    let Some(folder) = folder else { return Ok(named(files.len()).unwrap_or_else(unnamed)) };
    loop {
        let names: Vec<String> = (files.len()..files.len() + LOOKED_FOR).map_while(&named).collect();
        let mut missing = (names.len() < LOOKED_FOR).then(unnamed);
        let found = try_join_all(names.iter().map(|name| folder.open(name))).await?;
        let mut gap = None;
        for (name, device) in names.iter().zip(found) {
            match (device, &gap) {
                (Some(device), None) => files.push((folder.location(name), device)),
                (Some(_), Some(gap)) => {
                    let there = folder.location(name);
                    return Err(Error::Evidence(format!(
                        "{gap} is missing, and {there} is there; upload all of the image"
                    )));
                }
                (None, None) => gap = Some(folder.location(name)),
                (None, Some(_)) => {}
            }
        }
        if let Some(missing) = gap.or_else(|| missing.take()) {
            return Ok(missing);
        }
        if files.len() > FILES_MAX {
            return Err(Error::failed(format!("{first}: more than {FILES_MAX} files belong to it")));
        }
    }
}
