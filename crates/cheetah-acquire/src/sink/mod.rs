//! Where acquired bytes go: one sink a destination, fed with the chunks of the source in order.
//!
//! A sink makes no decisions. It takes what it is given, says when that is on stable storage ([`Sink::checkpoint`]),
//! goes on behind such a place after an interruption ([`resume`]), and completes its image when everything is there
//! ([`Sink::finish`]). Whatever of it is left unfinished is called `NAME.partial`, or a drive that is `loading`.

mod drive;
mod e01;
mod raw;

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cheetah_device::{Coverage, DynDevice};
use cheetah_drive::digests::Digests;
use cheetah_image::ewf::write::E01Options;
use cheetah_image::{Error, Hashes, Result};
use futures::future::BoxFuture;
use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;

use crate::acquire::{Destination, Form};
use crate::reader::Chunk;

/// What a sink needs to go on from a checkpoint: its own business, kept in the journal. Empty for most.
pub type Mark = String;

/// Finishes when everything before the checkpoint is on stable storage. Needs nothing of the sink, which may take more
/// meanwhile.
pub type Durable = BoxFuture<'static, Result<Mark>>;

/// One destination being filled.
pub trait Sink: Send {
    /// Takes the next chunk; waits while too much is under way. An error may be that of an earlier chunk.
    fn push<'a>(&'a mut self, chunk: &'a Chunk) -> BoxFuture<'a, Result<()>>;

    /// Finishes when what was pushed before has left the sink's own queues; what it returns then finishes when it is
    /// on stable storage.
    fn checkpoint(&mut self) -> BoxFuture<'_, Result<Durable>>;

    /// Completes the image and gives it its name. Called when everything is on stable storage already. Returns the
    /// files it consists of, the one named by the user first.
    fn finish<'a>(self: Box<Self>, whole: &'a Whole) -> BoxFuture<'a, Result<Vec<PathBuf>>>;

    /// Lets go of it as it is, to be resumed.
    fn close(self: Box<Self>) -> BoxFuture<'static, Result<()>>;
}

/// What is known of an image that is whole.
#[derive(Debug, Clone)]
pub struct Whole {
    /// Hashes of it.
    pub hashes: Hashes,
    /// Digests of its chunks.
    pub digests: Digests,
    /// What of it was read.
    pub coverage: Coverage,
}

/// What all sinks of one acquisition are told.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Bytes to come.
    pub size: u64,
    /// The source, as the user wrote it.
    pub source: String,
    /// What an E01 is to be like.
    pub e01: E01Options,
    /// Replace images that exist, and what a drive holds.
    pub force: bool,
    /// What is half-made is our own, or nobody's: it may be thrown away.
    pub restart: bool,
    /// Take the write lease of a drive from whoever holds it.
    pub force_lease: bool,
    /// How long a node of a drive may be silent.
    pub timeout: Duration,
}

/// A sink that goes on, and what it holds already.
pub struct Resumed {
    /// The sink, expecting the chunk behind its checkpoint.
    pub sink: Box<dyn Sink>,
    /// What it holds before the checkpoint. Reads of unreadable ranges may fail.
    pub held: DynDevice,
}

/// Fails if `destination` cannot be begun: it exists, or is too small. Changes nothing.
pub async fn check(destination: &Destination, setup: &Setup) -> Result<()> {
    match destination.form {
        Form::Raw => raw::check(destination, setup),
        Form::E01 => e01::check(destination, setup),
        Form::Drive => drive::check(destination, setup),
    }
}

/// Begins `destination`.
pub async fn create(destination: &Destination, setup: &Setup) -> Result<Box<dyn Sink>> {
    check(destination, setup).await?;
    match destination.form {
        Form::Raw => raw::create(destination, setup),
        Form::E01 => e01::create(destination, setup),
        Form::Drive => drive::create(destination, setup).await,
    }
}

/// Goes on with `destination` behind the checkpoint at `at`, which is not 0, whose mark was `mark`.
pub async fn resume(destination: &Destination, setup: &Setup, at: u64, mark: &Mark) -> Result<Resumed> {
    match destination.form {
        Form::Raw => raw::resume(destination, setup, at),
        Form::E01 => e01::resume(destination, setup, at, mark),
        Form::Drive => drive::resume(destination, setup).await,
    }
}

/// Locks the file at `path`, which belongs to `destination`, until what is returned is dropped; `None` if there is no
/// such file. Whoever writes an image holds the lock of its first partial file: of an E01, the writer does.
pub fn lock(destination: &Destination, path: &Path) -> Result<Option<File>> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut options = OpenOptions::new();
    let file = match options.read(true).write(true).custom_flags(flags.bits().cast_signed()).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        // A symbolic link is nobody's image under way; only its name will be removed.
        Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => return Ok(None),
        Err(error) => return Err(Error::io(format_args!("locking {}", path.display()), &error)),
    };
    lock_open(&file, destination).map(|()| Some(file))
}

fn lock_open(file: &File, destination: &Destination) -> Result<()> {
    rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive).map_err(|errno| match errno {
        Errno::WOULDBLOCK => Error::failed(format!(
            "{destination} is being acquired by another command; wait for that, or stop it first"
        )),
        errno => Error::io(format_args!("locking what there is of {destination}"), &errno.into()),
    })
}

/// Throws away what there is of `destination` that is not whole.
pub fn discard(destination: &Destination) -> Result<()> {
    match destination.form {
        Form::Raw => raw::discard(destination),
        Form::E01 => e01::discard(destination),
        // It is overwritten when it is begun again.
        Form::Drive => Ok(()),
    }
}

fn exists(destination: &Destination) -> Error {
    Error::misuse(format!("{destination} exists already; choose another name, or --force to replace it"))
}

/// What is half-made there belongs to an acquisition whose journal is not where it would be.
fn half_made(destination: &Destination, partial: &Path) -> Error {
    Error::misuse(format!(
        "{} is part of an image that was being acquired by another command; repeat that one, or throw it away and \
         acquire {destination} anew with --restart",
        partial.display()
    ))
}

fn gone(destination: &Destination, what: &str) -> Error {
    Error::Evidence(format!(
        "{destination}: {what}, although the journal says that it was begun; put it back, or begin again with --restart"
    ))
}
