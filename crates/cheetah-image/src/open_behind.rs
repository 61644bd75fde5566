//! Opens an image whose files are on another machine.

use std::path::Path;
use std::sync::Arc;

use cheetah_device::supervise::spawn_blocking;
use cheetah_device::{ByteRange, DynDevice};
use cheetah_error::{Error, Result};
use futures::future::{BoxFuture, try_join_all};

use crate::compressed::Compressed;
use crate::detect::{self, Format};
use crate::ewf::{Ewf, segment_name};
use crate::identity::{Identity, Kind};
use crate::open::{claimed_format, of_compressed, of_ewf, stem, stem_of_compressed};
use crate::source::{OpenOptions, Source};
use crate::split::{PartName, Split};

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
    match detect::detect(&start, &end, size) {
        Format::Unknown if is_named_like_a_part(path) => {
            let image = parts(device, location, path, folder).await?;
            let identity = Identity::new(Kind::Split, location, image.size());
            Ok(Source { device: Arc::new(image), identity, name: stem(path) })
        }
        Format::Unknown => match claimed_format(path) {
            Some(claimed) => refused(&format!("named like {claimed}")),
            None => Ok(Source { device, identity: Identity::new(Kind::Http, location, size), name: stem(path) }),
        },
        Format::Compressed(compression) => {
            let (file, in_order) = (location.to_owned(), options.in_order);
            let open = move || Compressed::behind(device, &file, compression, in_order);
            let image = spawn_blocking(open).await.map_err(|error| opening(location, &error))??;
            let identity = of_compressed(location, &image, compression);
            Ok(Source { device: Arc::new(image), identity, name: stem_of_compressed(path) })
        }
        Format::Ewf => {
            let mut segments = vec![(location.to_owned(), device)];
            let next = |count| segment_name(name, count + 1);
            let missing = find(&mut segments, folder, next).await?;
            let open = move || Ewf::behind(segments, missing);
            let image = spawn_blocking(open).await.map_err(|error| opening(location, &error))??;
            let identity = of_ewf(location, &image);
            Ok(Source { device: Arc::new(image), identity, name: stem(path) })
        }
        Format::Unsupported(unsupported) => refused(unsupported.what),
        Format::Zip => refused("an AFF4 image or a ZIP archive"),
        Format::Qcow2 | Format::Vmdk | Format::Vhd | Format::Vhdx => refused("a virtual disk"),
    }
}

fn opening(location: &str, error: &dyn std::fmt::Display) -> Error {
    Error::failed(format!("opening {location}: {error}"))
}

/// Opens a split image, whose first part is `device`.
async fn parts(device: DynDevice, location: &str, path: &Path, folder: Option<&dyn Folder>) -> Result<Split> {
    let (Some(first), Some(folder)) = (PartName::of(path).filter(PartName::is_first), folder) else {
        return Err(Error::misuse(format!(
            "{location} is named like a part of a split image; give the URI of its first part, without a query (a signed \
             URI names one file only)"
        )));
    };
    let named = |number| first.with_number(number)?.into_string().ok();
    // If a part 0 exists, part 1 is the second.
    if first.number() == 1
        && let Some(before) = named(0)
        && folder.open(&before).await?.is_some()
    {
        let before = folder.location(&before);
        return Err(Error::misuse(format!(
            "{location} is a later part of a split image; give its first part, {before}"
        )));
    }
    let mut files = vec![(location.to_owned(), device)];
    find(&mut files, Some(folder), |count| named(first.number() + count as u64)).await?;
    Split::behind(files)
}

/// Adds the files of a set that follow the first, up to the first that is not there, whose name it returns. `named` gives the
/// name of the file that follows so many.
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

/// Whether a file is named like a part of a split image. `disk.raw` could be one, too, and is not taken for one.
fn is_named_like_a_part(path: &Path) -> bool {
    let number = path.extension().is_some_and(|end| end.as_encoded_bytes().iter().all(u8::is_ascii_digit));
    number || PartName::of(path).is_some_and(|name| name.is_first())
}
