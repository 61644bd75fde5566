//! The files of a set that is being written.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cheetah_device::os_error;
use cheetah_kit::file::{FileExt as _, NotItself, Status, if_there, open_itself, sync_folder, try_lock};
use cheetah_kit::rename_new;

use super::names::Names;
use super::walk;
use crate::ewf::v1::SIGNATURE;
use crate::own_file::FileId;
use crate::publish::{Unpublished, publish};
use crate::regular;
use cheetah_error::next::Acquisition;
use cheetah_error::{Error, Result, next};

/// The maximum number of finished segments that wait to be synced, which bounds open files.
const UNSYNCED_MAX: usize = 8;

/// The name of this program in the header of an image.
const SOFTWARE: &str = "Cheetah ";

/// More bytes than the sections at the beginning of a segment have.
const HEAD_BYTES_MAX: usize = 1 << 20;

/// Where the segments of a set are written. Each byte of a segment is written once; the descriptor of a section follows its
/// content.
pub trait SegmentFiles: Send {
    /// Writes to the current segment.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<()>;

    /// Starts the file of segment `number`.
    ///
    /// # Errors
    ///
    /// If it cannot be created.
    fn next(&mut self, number: u16) -> Result<()>;

    /// Returns when everything written is on stable storage.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    fn sync(&mut self) -> Result<()>;

    /// Gives the set's `segments` files their final names, the first one last, so a set that looks complete is complete.
    /// Returns the names, the first segment first.
    ///
    /// # Errors
    ///
    /// If a file of that name exists, or it cannot be written.
    fn finish(self: Box<Self>, segments: u16) -> Result<Vec<PathBuf>>;
}

/// The current segment, and earlier ones that are not yet on stable storage.
pub struct Files {
    names: Names,
    force: bool,
    current: Current,
    unsynced: Vec<Current>,
    /// The files of all segments so far, under any name; the first is segment 1.
    ids: Vec<FileId>,
    /// Segment 1, locked, so that no two writers work on one set.
    _lock: File,
    /// Whether a file was created since the folder was last synced.
    folder_changed: bool,
    /// Of the set.
    guid: [u8; 16],
}

struct Current {
    file: File,
    path: PathBuf,
}

impl Files {
    /// Creates the first segment's file. Fails if a set of that name exists, complete or partial.
    pub fn create(names: Names, segments_max: u16, guid: [u8; 16], force: bool) -> Result<Self> {
        if !force {
            refuse_existing(&names, segments_max)?;
        }
        let current = Current::create(names.partial(1)?, force)?;
        let lock = lock(&current)?;
        current.file.set_len(0).map_err(|error| current.failed("emptying", &error))?;
        let ids = vec![current.id()?];
        Ok(Self { names, force, current, unsynced: Vec::new(), ids, _lock: lock, folder_changed: true, guid })
    }

    /// Opens segment `number`, truncates it to `end` bytes, and removes the segments after it. Fails, and changes nothing, if
    /// one of them is not of this set.
    pub fn resume(names: Names, number: u16, end: u64, guid: [u8; 16], force: bool) -> Result<Self> {
        let first =
            Current::open(names.partial(1)?).or_else(|error| Current::open(names.whole(1)?).map_err(|_| error))?;
        if walk::guid(&first.file) != Some(guid) {
            let path = first.path.display();
            return Err(Error::evidence(format!("{path}: belongs to another image than the one to resume")));
        }
        let lock = lock(&first)?;
        for number in number.saturating_add(1).. {
            let Some(path) = names.partial(number).ok().filter(|path| exists(path)) else { break };
            check_own(&path, guid)?;
        }
        take_back(&names, guid)?;
        let current = Current::open(names.partial(number)?)?;
        let len = current.file.metadata().map_err(|error| current.failed("looking at", &error))?.len();
        if len < end {
            let path = current.path.display();
            return Err(Error::evidence(format!(
                "{path}: has {len} bytes, but {end} were on stable storage; it was truncated, so start again"
            )));
        }
        if number > 1 && walk::guid(&current.file) != Some(guid) {
            return Err(foreign(&current.path, "is of another image"));
        }
        current.file.set_len(end).map_err(|error| current.failed("cutting", &error))?;
        remove_from(number.saturating_add(1), |number| names.partial(number))?;
        let before = (1..number).map(|number| Current::open(names.partial(number)?)?.id());
        let ids = before.chain([current.id()]).collect::<Result<_>>()?;
        Ok(Self { names, force, current, unsynced: Vec::new(), ids, _lock: lock, folder_changed: true, guid })
    }

    fn sync_folder(&self) -> Result<()> {
        let folder = self.names.folder();
        sync_folder(folder).map_err(|error| Error::io(format_args!("flushing the folder {}", folder.display()), &error))
    }
}

impl SegmentFiles for Files {
    fn next(&mut self, number: u16) -> Result<()> {
        if !self.force && exists(&self.names.whole(number)?) {
            return Err(refusal(&self.names.whole(number)?));
        }
        let path = self.names.partial(number)?;
        if exists(&path) {
            check_own(&path, self.guid)?;
            remove(&path)?;
        }
        let next = Current::create(path, false)?;
        self.ids.push(next.id()?);
        self.folder_changed = true;
        self.unsynced.push(std::mem::replace(&mut self.current, next));
        if self.unsynced.len() > UNSYNCED_MAX {
            self.sync()?;
        }
        Ok(())
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        self.current.file.write_all_at(bytes, at).map_err(|error| match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
                let path = self.current.path.display();
                Error::failed(format!("writing {path}: {}", os_error::describe(&error))).next(Acquisition::Resume)
            }
            _ => self.current.failed("writing", &error),
        })
    }

    fn sync(&mut self) -> Result<()> {
        for file in self.unsynced.iter().chain([&self.current]) {
            file.file.sync_data().map_err(|error| file.failed("flushing", &error))?;
        }
        self.unsynced.clear();
        if self.folder_changed {
            self.sync_folder()?;
            self.folder_changed = false;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>, segments: u16) -> Result<Vec<PathBuf>> {
        self.sync()?;
        let whole: Vec<_> = (1..=segments).map(|number| self.names.whole(number)).collect::<Result<_>>()?;
        for (number, id) in (1..=segments).zip(&self.ids) {
            let partial = self.names.partial(number)?;
            let found = FileId::at(&partial)
                .map_err(|error| Error::io(format_args!("looking at {}", partial.display()), &error))?;
            if found != Some(*id) {
                return Err(Unpublished::Exchanged.error(&partial, &whole[0], || refusal(&whole[0])));
            }
        }
        if self.force {
            // The set that is replaced must stop looking complete first.
            remove(&whole[0])?;
            remove_from(2, |number| self.names.whole(number))?;
            self.sync_folder()?;
        }
        let files: Vec<_> = (1..=segments).zip(whole.iter().zip(&self.ids)).collect();
        for (number, (to, id)) in files.iter().skip(1) {
            rename(&self.names.partial(*number)?, to, **id)?;
        }
        self.sync_folder()?;
        for (number, (to, id)) in files.iter().take(1) {
            rename(&self.names.partial(*number)?, to, **id)?;
        }
        self.sync_folder()?;
        Ok(whole)
    }
}

impl Current {
    fn create(path: PathBuf, even_if_there: bool) -> Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let options = if even_if_there { options.create(true) } else { options.create_new(true) };
        match open_itself(options, &path) {
            Ok(file) => Ok(Self { file, path }),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(refusal(&path)),
            Err(error) => Err(Error::io(format_args!("creating {}", path.display()), &error)),
        }
    }

    fn open(path: PathBuf) -> Result<Self> {
        match open_itself(OpenOptions::new().read(true).write(true), &path) {
            Ok(file) => check_only_name(&file, &path).map(|()| Self { file, path }),
            Err(error) => Err(Error::io(format_args!("resuming {}", path.display()), &error)),
        }
    }

    /// The identity of the file, independent of its name.
    fn id(&self) -> Result<FileId> {
        FileId::of(&self.file).map_err(|error| self.failed("looking at", &error))
    }

    fn failed(&self, doing: &str, error: &std::io::Error) -> Error {
        Error::io(format_args!("{doing} {}", self.path.display()), error)
    }
}

/// The number of attempts to lock a set, and the pause between them. A process that is being started shares this
/// process's locks until it executes its program, so a lock that was just released can seem to be held for a moment.
const LOCK_ATTEMPTS: u32 = 100;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// Fails if another acquisition is writing this set. The lock ends with the handle.
fn lock(first: &Current) -> Result<File> {
    let path = first.path.display();
    let file = first.file.try_clone().map_err(|error| first.failed("locking", &error))?;
    for attempt in 1.. {
        match try_lock(&file) {
            Ok(false) if attempt == LOCK_ATTEMPTS => {
                return Err(Error::failed(format!("{path}: another acquisition is writing it; wait or stop it")));
            }
            Ok(false) => std::thread::sleep(LOCK_PAUSE),
            // Some network file systems do not support locks; there the user must not start two acquisitions.
            _ => break,
        }
    }
    Ok(file)
}

/// Undoes the renaming of a set whose finishing was interrupted. Files of other sets are left alone.
fn take_back(names: &Names, guid: [u8; 16]) -> Result<()> {
    for number in 1.. {
        let (Ok(partial), Ok(whole)) = (names.partial(number), names.whole(number)) else { break };
        match (exists(&partial), exists(&whole)) {
            (true, _) => {}
            (false, true) if regular::open_beside(&whole).is_ok_and(|file| walk::guid(&file) == Some(guid)) => {
                take_back_one(&whole, &partial)?;
            }
            (false, _) => break,
        }
    }
    Ok(())
}

fn refuse_existing(names: &Names, segments_max: u16) -> Result<()> {
    for number in 1..=segments_max {
        for path in [names.whole(number)?, names.partial(number)?] {
            if exists(&path) {
                return Err(refusal(&path));
            }
        }
    }
    Ok(())
}

/// Fails if the file has another name, too: what is cut off here would be missing there.
pub(super) fn check_only_name(file: &File, path: &Path) -> Result<()> {
    let looking = |error| Error::io(format_args!("looking at {}", path.display()), &error);
    if !file.metadata().map_err(looking)?.is_file() {
        return Err(foreign(path, "is not a regular file"));
    }
    if Status::of(file).map_err(looking)?.names > 1 {
        return Err(foreign(path, "has another name, too: it is a hard link"));
    }
    Ok(())
}

/// Fails unless the file at `path` is a segment of the set, or has no content, as a crash may leave it.
fn check_own(path: &Path, guid: [u8; 16]) -> Result<()> {
    let file = open_itself(OpenOptions::new().read(true), path)
        .map_err(|error| Error::io(format_args!("looking at {}", path.display()), &error))?;
    check_only_name(&file, path)?;
    if has_no_content(&file) || walk::guid(&file) == Some(guid) {
        Ok(())
    } else {
        Err(foreign(path, "is not a segment of this image"))
    }
}

/// Whether a file is empty, or short and all zeros: its length was stored before its content.
fn has_no_content(file: &File) -> bool {
    let mut bytes = vec![0; HEAD_BYTES_MAX];
    match file.read_at(&mut bytes, 0) {
        Ok(len) => len < HEAD_BYTES_MAX && bytes[..len].iter().all(|byte| *byte == 0),
        Err(_) => false,
    }
}

fn foreign(path: &Path, is: &str) -> Error {
    Error::misuse(format!("{} {is}, and is left alone", path.display())).next(next::Files::MoveAway)
}

fn refusal(path: &Path) -> Error {
    let path = path.display();
    Error::misuse(format!("{path} already exists")).next(next::Files::MoveAwayOrReplace)
}

/// Whether any file has this name.
fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// Removes the partial files of a set that is not finished. If one of them is something else, nothing is removed.
pub fn discard(names: &Names) -> Result<()> {
    let mut guid = None;
    for number in 1.. {
        let Some(path) = names.partial(number).ok().filter(|path| exists(path)) else { break };
        let opened = open_itself(OpenOptions::new().read(true), &path);
        let file = opened.map_err(|error| match NotItself::of(&error) {
            Some(NotItself::Link) => foreign(&path, "is a symbolic link"),
            _ => Error::io(format_args!("looking at {}", path.display()), &error),
        })?;
        check_only_name(&file, &path)?;
        if walk::is_done(&file) {
            return Err(foreign(&path, "is the end of a finished image"));
        }
        let is_own = has_beginning_only(&file)
            || match number {
                1 => walk::software(&file).is_some_and(|software| software.starts_with(SOFTWARE)),
                _ => guid.is_some() && walk::guid(&file) == guid,
            };
        if !is_own {
            return Err(foreign(&path, "is not part of an image that an acquisition of Cheetah's began"));
        }
        guid = guid.or_else(|| walk::guid(&file));
    }
    remove_from(1, |number| names.partial(number))
}

/// Whether a file without sections is a segment that a crash left: it has no content, or little after its signature.
fn has_beginning_only(file: &File) -> bool {
    let mut signature = [0; 8];
    let is_signed = file.read_exact_at(&mut signature, 0).is_ok() && signature == SIGNATURE;
    let is_short = file.metadata().is_ok_and(|found| found.len() < HEAD_BYTES_MAX as u64);
    walk::walk(file).next().is_none() && (has_no_content(file) || is_signed && is_short)
}

/// Removes the files of segment `number` and those that follow without a gap; the last one first, so that none is
/// missed after an interruption.
fn remove_from(number: u16, name: impl Fn(u16) -> Result<PathBuf>) -> Result<()> {
    let paths = (number..).map_while(|number| name(number).ok()).take_while(|path| exists(path)).collect::<Vec<_>>();
    paths.iter().rev().try_for_each(|path| remove(path))
}

fn remove(path: &Path) -> Result<()> {
    let removed = if_there(std::fs::remove_file(path)).map(drop);
    removed.map_err(|error| Error::io(format_args!("removing {}", path.display()), &error))
}

/// Renames the file `id` without replacing anything.
fn rename(from: &Path, to: &Path, id: FileId) -> Result<()> {
    publish(from, to, id, false).map_err(|why| why.error(from, to, || refusal(to)))
}

/// Names a file partial again.
fn take_back_one(whole: &Path, partial: &Path) -> Result<()> {
    rename_new(whole, partial).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => refusal(partial),
        _ => Unpublished::Io(error).error(whole, partial, || refusal(partial)),
    })
}
