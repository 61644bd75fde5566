//! Sinks: one for each destination, fed with the chunks of the source in order.
//!
//! A sink writes chunks, reports when they are durable ([`Sink::checkpoint`]), continues behind a checkpoint after an
//! interruption ([`resume`]), and completes its image at the end ([`Sink::finish`]). Until then the image is called
//! `NAME.partial`, is a drive in the state `loading`, or is an unfinished upload.

mod drive;
mod e01;
mod object;
mod raw;

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::Duration;

use cheetah_device::{Coverage, DynDevice};
use cheetah_drive::Session;
use cheetah_drive::digests::Digests;
use cheetah_error::next::{Acquisition, Files};
use cheetah_error::{Error, Result};
use cheetah_image::Hashes;
use cheetah_image::ewf::write::E01Options;
use cheetah_kit::file::{NotItself, open_itself, try_lock};
use futures::future::BoxFuture;

use crate::order::{Destination, Form};
use crate::reader::Chunk;

/// The state with which a sink resumes from a checkpoint; opaque to the journal. Empty for most.
pub type Mark = String;

/// Resolves when everything before the checkpoint is durable. Does not borrow the sink, which may take more meanwhile.
pub type Durable = BoxFuture<'static, Result<Mark>>;

/// One destination being filled.
pub trait Sink: Send {
    /// Takes the next chunk; waits while too much is in flight. An error may be that of an earlier chunk.
    fn push<'a>(&'a mut self, chunk: &'a Chunk) -> BoxFuture<'a, Result<()>>;

    /// When all pushed chunks have left the sink's own queues, resolves to a second future, which resolves when the
    /// chunks are durable.
    fn checkpoint(&mut self) -> BoxFuture<'_, Result<Durable>>;

    /// Completes the image and names it. Everything is durable when this is called. Returns the files of the image, the
    /// one named by the user first.
    fn finish<'a>(self: Box<Self>, whole: &'a Whole) -> BoxFuture<'a, Result<Vec<PathBuf>>>;

    /// Closes the sink so that it can be resumed. Most have nothing to do.
    fn close(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// A complete image.
#[derive(Debug, Clone)]
pub struct Whole {
    /// Its hashes.
    pub hashes: Hashes,
    /// The digests of its chunks.
    pub digests: Digests,
    /// The content.
    pub coverage: Coverage,
    /// The most bytes that may differ from the source, because it was opened again.
    pub differ_bytes_max: u64,
}

/// The parameters of all sinks of an acquisition.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Bytes to come.
    pub size: u64,
    /// The source, as the user wrote it.
    pub source: String,
    /// The sector size of the source in bytes, if known.
    pub sector_size: Option<u32>,
    /// The options of an E01.
    pub e01: E01Options,
    /// Whether to replace existing images, and the content of a drive.
    pub force: bool,
    /// Whether partial images may be discarded.
    pub restart: bool,
    /// Whether to take the write lease of a drive from another holder.
    pub force_lease: bool,
    /// What drives are opened with. Any peer may be silent as long as a node.
    pub session: Session,
}

/// A destination that was found again.
pub enum Resumed {
    /// Files, which nothing has changed yet.
    Files {
        /// Their content before the checkpoint. Reads of unreadable ranges may fail.
        held: DynDevice,
        /// Makes the sink, which expects the chunk behind its checkpoint. It cuts off what was written after the checkpoint,
        /// so the content before that must have been compared.
        go_on: Box<dyn FnOnce() -> Result<Box<dyn Sink>> + Send>,
    },
    /// A drive: its content before the checkpoint, and the sink.
    Drive(DynDevice, Box<dyn Sink>),
    /// An upload, which cannot be read. The sink expects the content from the start.
    Upload(Box<dyn Sink>),
}

/// Fails if `destination` exists or is too small. Changes nothing.
pub async fn check(destination: &Destination, setup: &Setup) -> Result<()> {
    if let Some(uri) = &destination.object {
        return object::check(destination, uri, setup).await;
    }
    match destination.form {
        Form::Raw => raw::check(destination, setup),
        Form::E01 => e01::check(destination, setup),
        Form::Drive => drive::check(destination, setup),
    }
}

/// Creates a sink for `destination`.
pub async fn create(destination: &Destination, setup: &Setup) -> Result<Box<dyn Sink>> {
    check(destination, setup).await?;
    if let Some(uri) = &destination.object {
        return object::create(destination, uri, setup).await;
    }
    match destination.form {
        Form::Raw => raw::create(destination, setup),
        Form::E01 => e01::create(destination, setup),
        Form::Drive => drive::create(destination, setup).await,
    }
}

/// Finds `destination` again, to be resumed behind the checkpoint at `at`, which is not 0 and has the mark `mark`. Fails if a
/// file is there under the name of a partial image that is not part of it.
pub async fn resume(destination: &Destination, setup: &Setup, at: u64, mark: &Mark) -> Result<Resumed> {
    if let Some(uri) = &destination.object {
        return object::resume(destination, uri, setup).await;
    }
    match destination.form {
        Form::Raw => raw::resume(destination, setup, at, mark),
        Form::E01 => e01::resume(destination, setup, at, mark),
        Form::Drive => drive::resume(destination, setup, at).await,
    }
}

/// Locks the file at `path`, which belongs to `destination`, until the returned file is dropped; `None` if there is
/// none. A process that writes an image holds the lock of its first partial file.
pub fn lock(destination: &Destination, path: &Path) -> Result<Option<File>> {
    let file = match open_itself(OpenOptions::new().read(true).write(true), path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        // No acquisition writes through a symbolic link; only the link itself may be removed.
        Err(error) if NotItself::of(&error) == Some(NotItself::Link) => return Ok(None),
        Err(error) => return Err(Error::io(format_args!("locking {}", path.display()), &error)),
    };
    lock_open(&file, destination).map(|()| Some(file))
}

fn lock_open(file: &File, destination: &Destination) -> Result<()> {
    match try_lock(file) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Error::failed(format!(
            "{destination} is being acquired by another command; wait for that, or stop it first"
        ))),
        Err(error) => Err(Error::io(format_args!("locking what there is of {destination}"), &error)),
    }
}

/// Removes the partial image of `destination`.
pub async fn discard(destination: &Destination, timeout: Duration) -> Result<()> {
    if let Some(uri) = &destination.object {
        return object::discard(destination, uri, timeout).await;
    }
    match destination.form {
        Form::Raw => raw::discard(destination),
        Form::E01 => e01::discard(destination),
        // Its content is overwritten by the next acquisition.
        Form::Drive => Ok(()),
    }
}

fn exists(destination: &Destination) -> Error {
    Error::misuse(format!("{destination} exists already")).next(Files::Replace)
}

/// The error for a partial image without a journal.
fn half_made(destination: &Destination, partial: &Path) -> Error {
    Error::misuse(format!("{} is part of an image that was being acquired by another command", partial.display()))
        .next(Acquisition::RepeatOrAcquireAnew { destination: destination.to_string() })
}

/// The error for a file that has the name of a partial image and is not it.
fn foreign(path: &Path, is: &str) -> Error {
    Error::misuse(format!("{} {is}, and is left alone", path.display())).next(Acquisition::MoveAwayOrBeginAgain)
}

fn gone(destination: &Destination, what: &str) -> Error {
    Error::evidence(format!("{destination}: {what}, although the journal says that it was begun"))
        .next(Acquisition::PutBackOrBeginAgain)
}
