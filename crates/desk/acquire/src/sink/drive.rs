//! The sink for a drive, which is in the state `loading` until the image is complete.

use std::path::PathBuf;

use cheetah_device::{Device as _, DynDevice, Size};
use cheetah_drive::copy::ChunkWriter;
use cheetah_drive::load::{LoadOptions, Loader};
use cheetah_drive::{DriveFile, HashChoice, ImageState, Teller};
use cheetah_error::next::{Acquisition, Files};
use cheetah_error::{Error, Result};
use cheetah_image::BadRange;
use futures::FutureExt as _;
use futures::future::BoxFuture;

use super::{Durable, Mark, Resumed, Setup, Sink, Whole, gone};
use crate::order::Destination;
use crate::reader::Chunk;

struct Drive {
    path: PathBuf,
    loader: Loader,
    device: DynDevice,
    writer: ChunkWriter,
    teller: Teller,
    /// Bytes before this offset were taken.
    taken: u64,
    /// What of it could not be read.
    bad: Vec<BadRange>,
}

pub fn check(destination: &Destination, setup: &Setup) -> Result<()> {
    let file = DriveFile::load(&destination.path)?;
    if setup.size > file.size {
        return Err(Error::failed(format!(
            "the source has {}, {destination} only {}; enlarge the drive, or create one that is large enough",
            Size(setup.size),
            Size(file.size)
        )));
    }
    match &file.image {
        None => Ok(()),
        Some(image) if image.state == ImageState::Loading && (setup.restart || setup.force) => Ok(()),
        Some(image) if image.state == ImageState::Loading => {
            Err(Error::misuse(format!("{destination} holds part of an image, of {}", image.source))
                .next(Acquisition::RepeatBringingOrBeginAgain))
        }
        Some(_) if setup.force => Ok(()),
        Some(image) => {
            Err(Error::misuse(format!("{destination} holds an image already, of {}", image.source))
                .next(Files::Overwrite))
        }
    }
}

fn options(setup: &Setup) -> LoadOptions {
    LoadOptions {
        source_name: setup.source.clone(),
        sector_size: setup.sector_size,
        // Computed once for all sinks.
        hashes: HashChoice::NONE,
        force_lease: setup.force_lease,
        session: setup.session.clone(),
    }
}

pub async fn create(destination: &Destination, setup: &Setup) -> Result<Box<dyn Sink>> {
    let file = DriveFile::load(&destination.path)?;
    let loader = Loader::begin(file, setup.size, &options(setup)).await?;
    Ok(sink(destination, loader))
}

pub async fn resume(destination: &Destination, setup: &Setup, at: u64) -> Result<Resumed> {
    let file = DriveFile::load(&destination.path)?;
    let Some(loader) = Loader::resume(file, (setup.size, at), &options(setup)).await? else {
        return Err(gone(destination, "the drive does not hold part of this image"));
    };
    let held = loader.device();
    Ok(Resumed::Drive(held, sink(destination, loader)))
}

fn sink(destination: &Destination, loader: Loader) -> Box<dyn Sink> {
    let device = loader.device();
    let (writer, teller) = (ChunkWriter::new(device.clone(), destination.to_string()), loader.teller());
    Box::new(Drive { path: destination.path.clone(), loader, device, writer, teller, taken: 0, bad: Vec::new() })
}

impl Drive {
    fn tell(&mut self, chunk: &Chunk) {
        let end = chunk.range.end();
        // A chunk that was read back may be pushed once more.
        if end <= self.taken {
            return;
        }
        self.taken = end;
        self.teller.done(end);
        if !chunk.bad.is_empty() {
            chunk.bad.iter().cloned().for_each(|bad| bad.push(&mut self.bad));
            self.teller.unreadable(BadRange::missing_bytes(&self.bad).0, self.bad.len());
        }
    }
}

impl Sink for Drive {
    fn push<'a>(&'a mut self, chunk: &'a Chunk) -> BoxFuture<'a, Result<()>> {
        self.tell(chunk);
        self.writer.write(chunk.range, chunk.data.clone()).boxed()
    }

    fn checkpoint(&mut self) -> BoxFuture<'_, Result<Durable>> {
        async move {
            self.writer.wait().await?;
            let (device, name) = (self.device.clone(), self.path.display().to_string());
            let durable = async move {
                device.flush().await.map_err(Error::device(format!("flushing {name}")))?;
                Ok(Mark::new())
            };
            Ok(durable.boxed())
        }
        .boxed()
    }

    fn finish<'a>(self: Box<Self>, whole: &'a Whole) -> BoxFuture<'a, Result<Vec<PathBuf>>> {
        let Self { path, loader, device, writer, .. } = *self;
        // They would write under a lease that has been released.
        drop((device, writer));
        async move {
            let found = (Some(&whole.coverage), whole.differ_bytes_max);
            loader.finish(&whole.digests, whole.hashes.clone(), found, |_| Ok(())).await?;
            Ok(vec![path])
        }
        .boxed()
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        let Self { loader, device, writer, .. } = *self;
        drop((device, writer));
        loader.close().boxed()
    }
}
