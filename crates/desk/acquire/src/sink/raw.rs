//! The sink for a raw image: a sparse file, `NAME.partial` until it is complete.
//!
//! Behind the content, a partial image has a [`Seal`] by which it is recognised, also after it was moved to another disk.
//! Resuming cuts off what was written after the checkpoint, so a file without that seal is refused: another file may have got
//! the name.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cheetah_device::{Device as _, DynDevice};
use cheetah_drive::copy::ChunkWriter;
use cheetah_drive::sparse_file::SparseFile;
use cheetah_error::{Error, Result};
use cheetah_image::RawFile;
use cheetah_image::publish::{publish, sync_directory_of};
use cheetah_kit::file::{FileExt as _, FileId, NotItself, Status, if_there, make_sparse, open_itself};
use cheetah_kit::{random, rename_new};
use futures::FutureExt as _;
use futures::future::BoxFuture;

use super::{Durable, Mark, Resumed, Setup, Sink, Whole, exists, foreign, gone, half_made, lock_open};
use crate::order::Destination;
use crate::os::{self, NextData};
use crate::reader::Chunk;

/// The bytes before the id of a seal.
const SEAL_BEGINS: &str = "\nPart of an image that Cheetah is acquiring: ";
/// The digits of the id of a seal.
const SEAL_ID_DIGITS: usize = 32;
/// Bytes read at a time in search of content.
const LOOK_BYTES: usize = 1 << 20;

struct Raw {
    destination: Destination,
    partial: PathBuf,
    /// For what is not content.
    handle: File,
    file: DynDevice,
    writer: ChunkWriter,
    /// The identity of the file, independent of its name.
    id: FileId,
    seal: Seal,
    size: u64,
    force: bool,
}

/// What stands behind the content of a partial image. The journal records it at each checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seal(Mark);

impl Seal {
    fn new() -> Result<Self> {
        Ok(Self(random::id()?))
    }

    fn text(&self) -> String {
        format!("{SEAL_BEGINS}{}\n", self.0)
    }

    /// Writes it behind the content of `size` bytes.
    fn write(&self, file: &File, size: u64) -> std::io::Result<()> {
        file.write_all_at(self.text().as_bytes(), size)
    }

    /// Whether it is behind the content of `size` bytes.
    fn is_on(&self, file: &File, size: u64) -> std::io::Result<bool> {
        let mut found = vec![0; self.text().len()];
        match file.read_exact_at(&mut found, size) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
            read => read.map(|()| found == self.text().as_bytes()),
        }
    }
}

fn partial(destination: &Destination) -> PathBuf {
    destination.beside("partial")
}

fn doing(path: &Path) -> impl Fn(std::io::Error) -> Error {
    move |error| Error::io(format_args!("writing {}", path.display()), &error)
}

pub fn check(destination: &Destination, setup: &Setup) -> Result<()> {
    if !setup.force && destination.path.symlink_metadata().is_ok() {
        return Err(exists(destination));
    }
    let partial = partial(destination);
    if !setup.restart && partial.symlink_metadata().is_ok() {
        return Err(half_made(destination, &partial));
    }
    Ok(())
}

pub fn create(destination: &Destination, setup: &Setup) -> Result<Box<dyn Sink>> {
    let partial = partial(destination);
    discard(destination)?;
    let file = OpenOptions::new().write(true).create_new(true).open(&partial).map_err(doing(&partial))?;
    let seal = Seal::new()?;
    let begun = lock_open(&file, destination).and_then(|()| {
        // A file system without holes writes zeros, which takes time and space, and no more.
        let _ = make_sparse(&file);
        let sized = file.set_len(setup.size).and_then(|()| seal.write(&file, setup.size));
        sized.and_then(|()| sync_directory_of(&partial)).map_err(doing(&partial))
    });
    // Nothing is left of an image that cannot be begun.
    begun.inspect_err(|_| drop(remove(&partial)))?;
    sink(destination, partial, file, (seal, setup))
}

pub fn resume(destination: &Destination, setup: &Setup, at: u64, mark: &Mark) -> Result<Resumed> {
    let (partial, size) = (partial(destination), setup.size);
    let is_named = partial.symlink_metadata().is_err();
    // The image was renamed already, but the journal not yet removed.
    let found = if is_named && at == size { destination.path.clone() } else { partial.clone() };
    if found.symlink_metadata().is_err() {
        return Err(gone(destination, &format!("{} is not there", partial.display())));
    }
    let file = open_partial(&found)?;
    lock_open(&file, destination)?;
    let seal = Seal(mark.clone());
    check_own(destination, (&found, &file), (at, size), &seal)?;
    let held: DynDevice = Arc::new(RawFile::open(&found)?);
    let id = FileId::of(&file).map_err(doing(&found))?;
    if FileId::at(&found).map_err(doing(&found))? != Some(id) {
        return Err(foreign(&found, "was exchanged just now"));
    }
    let (destination, setup) = (destination.clone(), setup.clone());
    let go_on = move || -> Result<Box<dyn Sink>> {
        if is_named {
            rename_new(&found, &partial).map_err(doing(&partial))?;
        }
        // Bytes behind the checkpoint are undefined, and zeros are not written: cut them off.
        let cut = file.set_len(at).and_then(|()| file.set_len(size)).and_then(|()| seal.write(&file, size));
        cut.map_err(doing(&partial))?;
        sink(&destination, partial, file, (seal, &setup))
    };
    Ok(Resumed::Files { held, go_on: Box::new(go_on) })
}

/// Opens a file for reading and writing; refuses symbolic links, and files with other names.
fn open_partial(path: &Path) -> Result<File> {
    let file = match open_itself(OpenOptions::new().read(true).write(true), path) {
        Err(error) if NotItself::of(&error) == Some(NotItself::Link) => {
            return Err(foreign(path, "is a symbolic link"));
        }
        opened => opened.map_err(doing(path))?,
    };
    let metadata = file.metadata().map_err(doing(path))?;
    if !metadata.is_file() {
        return Err(foreign(path, "is not a regular file"));
    }
    if Status::of(&file).map_err(doing(path))?.names > 1 {
        return Err(foreign(path, "has another name, too: it is a hard link"));
    }
    Ok(file)
}

/// Fails unless the file is this partial image, or cutting it at `at` loses nothing.
fn check_own(
    destination: &Destination,
    (path, file): (&Path, &File),
    (at, size): (u64, u64),
    seal: &Seal,
) -> Result<()> {
    let len = file.metadata().map_err(doing(path))?.len();
    if len < at {
        return Err(gone(destination, &format!("{} was cut off", path.display())));
    }
    // Between cutting and sealing, and after the seal was removed at the end, there is none.
    let is_own = seal.is_on(file, size).map_err(doing(path))?
        || len <= size && has_only_zeros(file, at, len).map_err(doing(path))?;
    if is_own { Ok(()) } else { Err(foreign(path, "is not the file that this acquisition wrote")) }
}

/// Whether there is nothing but zeros from `at` to `end`.
fn has_only_zeros(file: &File, mut at: u64, end: u64) -> std::io::Result<bool> {
    let mut bytes = vec![0; LOOK_BYTES];
    while at < end {
        // Skips holes, where the file system knows them.
        match os::next_data(file, at) {
            NextData::At(data) => at = at.max(data),
            NextData::None => return Ok(true),
            NextData::Unknown => {}
        }
        let read = file.read_at(&mut bytes, at)?;
        if bytes[..read].iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        if read == 0 {
            break;
        }
        at += read as u64;
    }
    Ok(true)
}

/// Removes the partial image. A file of that name that is not one is left alone.
pub fn discard(destination: &Destination) -> Result<()> {
    let partial = partial(destination);
    if partial.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
        return Ok(());
    }
    let file = open_partial(&partial)?;
    if !is_begun(&file).map_err(doing(&partial))? {
        return Err(foreign(&partial, "is not part of an image that an acquisition began"));
    }
    remove(&partial)
}

/// Whether a file is a partial image: it ends with a seal, whichever, or has no content, as a crash may leave it.
fn is_begun(file: &File) -> std::io::Result<bool> {
    let len = file.metadata()?.len();
    let mut end = vec![0; Seal(Mark::default()).text().len() + SEAL_ID_DIGITS];
    let has_seal = match len.checked_sub(end.len() as u64) {
        Some(at) => {
            file.read_exact_at(&mut end, at)?;
            end.starts_with(SEAL_BEGINS.as_bytes())
        }
        None => false,
    };
    Ok(has_seal || has_only_zeros(file, 0, len)?)
}

fn remove(partial: &Path) -> Result<()> {
    let removed = if_there(std::fs::remove_file(partial)).map(drop);
    removed.map_err(|error| Error::io(format_args!("removing {}", partial.display()), &error))
}

fn sink(
    destination: &Destination,
    partial: PathBuf,
    file: File,
    (seal, setup): (Seal, &Setup),
) -> Result<Box<dyn Sink>> {
    let id = FileId::of(&file).map_err(doing(&partial))?;
    let handle = file.try_clone().map_err(doing(&partial))?;
    let (name, size, force) = (partial.display().to_string(), setup.size, setup.force);
    let file: DynDevice = Arc::new(SparseFile::new(file, name.as_str(), size));
    let writer = ChunkWriter::new(file.clone(), name);
    Ok(Box::new(Raw { destination: destination.clone(), partial, handle, file, writer, id, seal, size, force }))
}

impl Sink for Raw {
    fn push<'a>(&'a mut self, chunk: &'a Chunk) -> BoxFuture<'a, Result<()>> {
        self.writer.write(chunk.range, chunk.data.clone()).boxed()
    }

    fn checkpoint(&mut self) -> BoxFuture<'_, Result<Durable>> {
        async move {
            self.writer.wait().await?;
            let (file, name, mark) = (self.file.clone(), self.partial.display().to_string(), self.seal.0.clone());
            let durable = async move {
                file.flush().await.map_err(Error::device(format!("flushing {name}")))?;
                Ok(mark)
            };
            Ok(durable.boxed())
        }
        .boxed()
    }

    fn finish<'a>(self: Box<Self>, _whole: &'a Whole) -> BoxFuture<'a, Result<Vec<PathBuf>>> {
        async move {
            let path = self.destination.path.clone();
            let unsealed = self.handle.set_len(self.size).and_then(|()| self.handle.sync_all());
            unsealed.map_err(doing(&self.partial))?;
            publish(&self.partial, &path, self.id, self.force)
                .map_err(|why| why.error(&self.partial, &path, || exists(&self.destination)))?;
            sync_directory_of(&path).map_err(doing(&path))?;
            Ok(vec![path])
        }
        .boxed()
    }
}
