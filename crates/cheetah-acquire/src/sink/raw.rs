//! The sink for a raw image: a sparse file, `NAME.partial` until it is complete.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cheetah_device::{Device as _, DynDevice};
use cheetah_drive::copy::ChunkWriter;
use cheetah_drive::sparse_file::SparseFile;
use cheetah_error::{Error, Result};
use cheetah_image::RawFile;
use cheetah_image::own_file::{FileId, not_following_links};
use cheetah_image::publish::publish;
use futures::FutureExt as _;
use futures::future::BoxFuture;

use super::{Durable, Mark, Resumed, Setup, Sink, Whole, exists, gone, half_made, lock_open};
use crate::acquire::Destination;
use crate::journal::sync_directory_of;
use crate::reader::Chunk;

struct Raw {
    destination: Destination,
    partial: PathBuf,
    file: DynDevice,
    writer: ChunkWriter,
    /// The identity of the file, independent of its name.
    id: FileId,
    force: bool,
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
    lock_open(&file, destination)?;
    file.set_len(setup.size).map_err(doing(&partial))?;
    sync_directory_of(&partial).map_err(doing(&partial))?;
    sink(destination, partial, file, setup)
}

pub fn resume(destination: &Destination, setup: &Setup, at: u64) -> Result<Resumed> {
    let partial = partial(destination);
    if !partial.exists() {
        // The image was renamed already, but the journal not yet removed.
        if !destination.path.exists() || at != setup.size {
            return Err(gone(destination, &format!("{} is not there", partial.display())));
        }
        std::fs::rename(&destination.path, &partial).map_err(doing(&partial))?;
    }
    let file = open_partial(&partial).map_err(doing(&partial))?;
    lock_open(&file, destination)?;
    let metadata = file.metadata().map_err(doing(&partial))?;
    if !metadata.is_file() {
        return Err(gone(destination, &format!("{} is not a regular file", partial.display())));
    }
    if metadata.len() < at {
        return Err(gone(destination, &format!("{} was cut off", partial.display())));
    }
    // Bytes behind the checkpoint are undefined, and zeros are not written: cut them off.
    file.set_len(at).and_then(|()| file.set_len(setup.size)).map_err(doing(&partial))?;
    let held = Arc::new(RawFile::open(&partial)?);
    Ok(Resumed { sink: sink(destination, partial, file, setup)?, held: Some(held) })
}

/// Opens a file for writing; refuses symbolic links.
fn open_partial(partial: &Path) -> std::io::Result<File> {
    not_following_links(OpenOptions::new().write(true)).open(partial)
}

pub fn discard(destination: &Destination) -> Result<()> {
    let partial = partial(destination);
    match std::fs::remove_file(&partial) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::io(format_args!("removing {}", partial.display()), &error))
        }
        _ => Ok(()),
    }
}

fn sink(destination: &Destination, partial: PathBuf, file: File, setup: &Setup) -> Result<Box<dyn Sink>> {
    let id = FileId::of(&file).map_err(doing(&partial))?;
    let name = partial.display().to_string();
    let file: DynDevice = Arc::new(SparseFile::new(file, name.as_str(), setup.size));
    let writer = ChunkWriter::new(file.clone(), name);
    Ok(Box::new(Raw { destination: destination.clone(), partial, file, writer, id, force: setup.force }))
}

impl Sink for Raw {
    fn push<'a>(&'a mut self, chunk: &'a Chunk) -> BoxFuture<'a, Result<()>> {
        self.writer.write(chunk.range, chunk.data.clone()).boxed()
    }

    fn checkpoint(&mut self) -> BoxFuture<'_, Result<Durable>> {
        async move {
            self.writer.wait().await?;
            let (file, name) = (self.file.clone(), self.partial.display().to_string());
            let durable = async move {
                file.flush().await.map_err(Error::device(format!("flushing {name}")))?;
                Ok(Mark::new())
            };
            Ok(durable.boxed())
        }
        .boxed()
    }

    fn finish<'a>(self: Box<Self>, _whole: &'a Whole) -> BoxFuture<'a, Result<Vec<PathBuf>>> {
        async move {
            let path = self.destination.path.clone();
            publish(&self.partial, &path, self.id, self.force)
                .map_err(|why| why.error(&self.partial, &path, || exists(&self.destination)))?;
            sync_directory_of(&path).map_err(doing(&path))?;
            Ok(vec![path])
        }
        .boxed()
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        async { Ok(()) }.boxed()
    }
}
