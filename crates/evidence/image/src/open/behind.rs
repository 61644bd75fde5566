//! An image whose files are on another machine.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cheetah_device::{ByteRange, DynDevice};
use cheetah_error::{Error, Result};
use cheetah_volume::reach;
use futures::future::{BoxFuture, try_join_all};
use tokio::runtime::Handle;

use super::names::{claimed_format, stem};
use super::place::{Parts, Place};
use crate::behind::FileBehind;
use crate::detect::Unsupported;
use crate::ewf::{Ewf, segment_name};
use crate::file::SharedFile;
use crate::hashed::HashedFiles;
use crate::identity::{Identity, Kind};
use crate::source::{Source, SourceFile};
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
type Found = (String, DynDevice);

/// A file behind a link, and perhaps its folder.
pub(super) struct Behind {
    device: DynDevice,
    location: String,
    name: PathBuf,
    folder: Option<Arc<dyn Folder>>,
    runtime: Handle,
}

impl Behind {
    /// The file at `location`, called `name`. Must be called within a runtime.
    pub fn new(device: DynDevice, location: &str, name: &str, folder: Option<Arc<dyn Folder>>) -> Self {
        let (location, name, runtime) = (location.to_owned(), name.into(), Handle::current());
        Self { device, location, name, folder, runtime }
    }

    fn first(&self) -> Found {
        (self.location.clone(), self.device.clone())
    }

    fn refused(&self, what: &str) -> Error {
        let why = "only raw images, compressed or in parts, and E01 and AFF4 images are read from another machine";
        Error::failed(format!("{} is {what}, and {why}; copy it to this one first", self.location))
    }

    /// The files of an image of which little pieces are read, with the hashes that are made of them.
    fn image(files: Vec<Found>, in_order: bool) -> (Vec<FileBehind>, Option<Arc<HashedFiles>>) {
        let devices = || files.iter().map(|(_, device)| device.clone()).collect();
        let hashed = in_order.then(|| Arc::new(HashedFiles::new(devices())));
        (FileBehind::of_image(files, hashed.as_ref()), hashed)
    }
}

impl Place for Behind {
    fn location(&self) -> &str {
        &self.location
    }

    fn path(&self) -> &Path {
        &self.name
    }

    fn file(&self) -> SharedFile {
        Arc::new(FileBehind::new(self.location.clone(), self.device.clone()))
    }

    fn only_file(&self) -> Vec<SourceFile> {
        vec![part(self.first()).0]
    }

    fn hashed_file(&self, in_order: bool) -> (SharedFile, Option<Arc<HashedFiles>>) {
        let (mut files, hashed) = Self::image(vec![self.first()], in_order);
        (Arc::new(files.remove(0)), hashed)
    }

    fn ewf(&self, in_order: bool) -> Result<(Ewf, Option<Arc<HashedFiles>>)> {
        let name = self.name.to_string_lossy();
        let mut segments = vec![self.first()];
        let next = |count| segment_name(&name, count + 1);
        let missing = self.runtime.block_on(find(&mut segments, self.folder.as_deref(), next))?;
        let (segments, hashed) = Self::image(segments, in_order);
        Ok((Ewf::open_behind(segments, missing)?, hashed))
    }

    fn parts(&self) -> Result<Parts> {
        let looking = parts(&self.device, &self.location, &self.name, self.folder.as_deref());
        Ok(self.runtime.block_on(looking)?.map_or(Parts::Alone(None), Parts::Several))
    }

    fn raw(&self) -> Source {
        let size = self.device.geometry().size;
        let identity = Identity::new(Kind::Http, &self.location, size);
        Source::new(self.device.clone(), identity, stem(&self.name)).with_files(self.only_file())
    }

    /// The requests compare the version of each file.
    fn watched(&self) -> Option<String> {
        None
    }

    /// Only the caller knows whether the folder may hold one.
    fn mapped(&self, source: Source) -> Result<Source> {
        Ok(source)
    }

    fn virtual_disk(&self) -> Result<PathBuf> {
        Err(self.refused("a virtual disk"))
    }

    fn check_name(&self, _: &[u8]) -> Result<()> {
        claimed_format(&self.name).map_or(Ok(()), |claimed| Err(self.refused(&format!("named like {claimed}"))))
    }

    fn unsupported(&self, format: Unsupported) -> Error {
        self.refused(format.what)
    }
}

fn part((location, device): Found) -> (SourceFile, DynDevice) {
    (SourceFile { path: location.into(), size: device.geometry().size }, device)
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
async fn opened(folder: &dyn Folder, name: Option<PartName>) -> Result<Option<Found>> {
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
    Split::of(files.into_iter().map(part).collect())
}

/// Adds the files of a set that follow the first, up to the first that is not there, whose name it returns. `named` gives the
/// name of the file at a place in the order, counted from 0.
///
/// # Errors
///
/// If a file is missing, and one behind it is not.
async fn find(
    files: &mut Vec<Found>,
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
                    return Err(Error::evidence(format!(
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
