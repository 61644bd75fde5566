//! The sinks for images in an object store. An image is uploaded in parts, and appears under its name when it is complete.
//!
//! What is uploaded cannot be read before that, so nothing is made durable at a checkpoint: after an interruption, the sink is
//! given the content again from the start, and parts that the store has are not sent again ([`Upload`]).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cheetah_device::{ByteRange, DynDevice};
use cheetah_drive::copy::ChunkWriter;
use cheetah_error::next::Acquisition;
use cheetah_error::{Error, Result};
use cheetah_image::ewf::segment_name;
use cheetah_image::ewf::write::{E01Writer, SegmentFiles};
use cheetah_source::{ObjectTarget, Upload, UploadRecord};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::runtime::Handle;

use super::{Durable, Mark, Resumed, Setup, Sink, Whole, half_made};
use crate::order::{Destination, Form};
use crate::reader::Chunk;

/// More bytes than a segment can have, whose list of unreadable sectors comes on top of its maximum size.
const SEGMENT_BYTES_MAX: u64 = 64 << 30;

fn record_path(destination: &Destination) -> PathBuf {
    destination.beside("upload")
}

pub async fn check(destination: &Destination, uri: &str, setup: &Setup) -> Result<()> {
    let target = ObjectTarget::parse(uri, setup.session.timeout)?;
    if !setup.force && target.exists().await? {
        return Err(target.is_there());
    }
    let record = record_path(destination);
    if !setup.restart && UploadRecord::exists(&record)? {
        return Err(half_made(destination, &record));
    }
    match destination.form {
        Form::E01 => setup.e01.check(),
        Form::Raw | Form::Drive => Ok(()),
    }
}

pub async fn create(destination: &Destination, uri: &str, setup: &Setup) -> Result<Box<dyn Sink>> {
    discard(destination, uri, setup.session.timeout).await?;
    let opened = open(destination, uri, setup).await;
    if opened.is_err()
        && let Err(error) = discard(destination, uri, setup.session.timeout).await
    {
        tracing::warn!("{error}");
    }
    opened
}

pub async fn resume(destination: &Destination, uri: &str, setup: &Setup) -> Result<Resumed> {
    Ok(Resumed::Upload(open(destination, uri, setup).await?))
}

pub async fn discard(destination: &Destination, uri: &str, timeout: Duration) -> Result<()> {
    UploadRecord::discard(&record_path(destination), &ObjectTarget::parse(uri, timeout)?).await
}

async fn open(destination: &Destination, uri: &str, setup: &Setup) -> Result<Box<dyn Sink>> {
    let target = ObjectTarget::parse(uri, setup.session.timeout)?;
    let record = Arc::new(UploadRecord::open(&record_path(destination), &target)?);
    if destination.form == Form::Raw {
        let file = ObjectWriter::open(target, setup.size, setup.force, &record).await?;
        return Ok(Box::new(ObjectRaw { uri: uri.to_owned(), file, record }));
    }
    let current = ObjectWriter::open(target.clone(), SEGMENT_BYTES_MAX, setup.force, &record).await?;
    let (runtime, force, earlier) = (Handle::current(), setup.force, Vec::new());
    let segments = Segments { first: target, record: record.clone(), force, current, earlier, runtime };
    // The beginning of the first segment is written at once, on this thread.
    let (size, options) = (setup.size, setup.e01.clone());
    let create = move || E01Writer::create_in(Box::new(segments), size, &options);
    let created = tokio::task::spawn_blocking(create).await;
    let writer = created.map_err(|error| Error::failed(format!("{uri}: {error}")))??;
    Ok(Box::new(ObjectE01 { writer: Some(writer), record }))
}

/// An object that is being uploaded, written by several tasks.
struct ObjectWriter {
    upload: Arc<Upload>,
    writer: ChunkWriter,
    /// The end of what was written.
    len: u64,
}

impl ObjectWriter {
    async fn open(target: ObjectTarget, size_max: u64, force: bool, record: &Arc<UploadRecord>) -> Result<Self> {
        let name = target.shown();
        let upload = Arc::new(Upload::open(target, size_max, force, record.clone()).await?);
        let device: DynDevice = upload.clone();
        Ok(Self { upload, writer: ChunkWriter::new(device, name), len: 0 })
    }

    async fn write(&mut self, range: ByteRange, data: cheetah_device::Data) -> Result<()> {
        self.len = self.len.max(range.end());
        self.writer.write(range, data).await
    }

    /// Returns when the store has all of it.
    async fn store_rest(&mut self) -> Result<()> {
        self.writer.wait().await?;
        self.upload.store_rest(self.len).await
    }
}

fn nothing_durable() -> BoxFuture<'static, Result<Durable>> {
    std::future::ready(Ok(std::future::ready(Ok(Mark::new())).boxed())).boxed()
}

struct ObjectRaw {
    uri: String,
    file: ObjectWriter,
    record: Arc<UploadRecord>,
}

impl Sink for ObjectRaw {
    fn push<'a>(&'a mut self, chunk: &'a Chunk) -> BoxFuture<'a, Result<()>> {
        self.file.write(chunk.range, chunk.data.clone()).boxed()
    }

    fn checkpoint(&mut self) -> BoxFuture<'_, Result<Durable>> {
        nothing_durable()
    }

    fn finish<'a>(mut self: Box<Self>, _whole: &'a Whole) -> BoxFuture<'a, Result<Vec<PathBuf>>> {
        async move {
            self.file.store_rest().await?;
            self.file.upload.complete().await?;
            self.record.remove()?;
            Ok(vec![self.uri.into()])
        }
        .boxed()
    }
}

struct ObjectE01 {
    /// Taken when it ends.
    writer: Option<E01Writer>,
    record: Arc<UploadRecord>,
}

impl ObjectE01 {
    fn writer(&mut self) -> Result<&mut E01Writer> {
        self.writer.as_mut().ok_or_else(|| Error::failed("the image is complete already; this is a bug"))
    }
}

impl Drop for ObjectE01 {
    fn drop(&mut self) {
        // The end of the writer waits for its thread, which waits for tasks of the runtime that runs this.
        if let Some(writer) = self.writer.take() {
            std::thread::spawn(move || drop(writer));
        }
    }
}

impl Sink for ObjectE01 {
    fn push<'a>(&'a mut self, chunk: &'a Chunk) -> BoxFuture<'a, Result<()>> {
        async move {
            let writer = self.writer()?;
            chunk.bad.iter().for_each(|bad| writer.unreadable(bad.range()));
            writer.push(chunk.data.clone()).await
        }
        .boxed()
    }

    fn checkpoint(&mut self) -> BoxFuture<'_, Result<Durable>> {
        nothing_durable()
    }

    fn finish<'a>(mut self: Box<Self>, whole: &'a Whole) -> BoxFuture<'a, Result<Vec<PathBuf>>> {
        async move {
            self.writer()?;
            let Some(writer) = self.writer.take() else { return Ok(Vec::new()) };
            let files = writer.finish(&whole.hashes).await?;
            self.record.remove()?;
            Ok(files)
        }
        .boxed()
    }
}

/// The segments of an E01 image, each an object. Used on the thread of the E01 writer, which may wait.
struct Segments {
    first: ObjectTarget,
    record: Arc<UploadRecord>,
    force: bool,
    current: ObjectWriter,
    /// Segments that the store has, and whose objects are not made yet.
    earlier: Vec<Arc<Upload>>,
    runtime: Handle,
}

impl Segments {
    fn named(&self, number: u16) -> Result<ObjectTarget> {
        let name = segment_name(self.first.file_name(), number.into());
        let name = name.ok_or_else(|| Error::failed(format!("{}: too many segments", self.first.shown())))?;
        self.first.beside(&name)
    }

    /// Fails if the image that is replaced has more segments: readers would take them for segments of this one.
    async fn check_end(&self, segments: u16) -> Result<()> {
        let next = self.named(segments + 1)?;
        if self.force && next.exists().await? {
            return Err(Error::failed(format!("{} is a segment of the image that is to be replaced", next.shown()))
                .next(Acquisition::RemoveAndRunAgain));
        }
        Ok(())
    }
}

impl SegmentFiles for Segments {
    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        let range = ByteRange::new(at, bytes.len() as u64);
        if range.is_empty() {
            return Ok(());
        }
        self.runtime.block_on(self.current.write(range, Bytes::copy_from_slice(bytes).into()))
    }

    fn next(&mut self, number: u16) -> Result<()> {
        self.runtime.block_on(self.current.store_rest())?;
        let next = ObjectWriter::open(self.named(number)?, SEGMENT_BYTES_MAX, self.force, &self.record);
        let next = self.runtime.block_on(next)?;
        self.earlier.push(std::mem::replace(&mut self.current, next).upload);
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        Ok(())
    }

    fn finish(mut self: Box<Self>, segments: u16) -> Result<Vec<PathBuf>> {
        self.runtime.clone().block_on(async {
            self.current.store_rest().await?;
            self.check_end(segments).await?;
            self.earlier.push(self.current.upload.clone());
            for segment in self.earlier.iter().skip(1) {
                segment.complete().await?;
            }
            for first in self.earlier.iter().take(1) {
                first.complete().await?;
            }
            (1..=segments).map(|number| Ok(self.named(number)?.shown().into())).collect()
        })
    }
}
