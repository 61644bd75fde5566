//! The sink for an Expert Witness image; its segments are called `NAME.E01.partial` … until it is complete.

use std::path::PathBuf;
use std::sync::Arc;

use cheetah_error::next::Acquisition;
use cheetah_error::{Error, Result};
use cheetah_image::ewf::write::{Checkpoint, E01Options, E01Writer, Partial, discard_partial};
use futures::FutureExt as _;
use futures::future::BoxFuture;

use super::{Durable, Mark, Resumed, Setup, Sink, Whole, exists, gone, half_made};
use crate::order::Destination;
use crate::reader::Chunk;

struct E01 {
    destination: Destination,
    writer: E01Writer,
}

pub fn check(destination: &Destination, setup: &Setup) -> Result<()> {
    if !setup.force && destination.path.symlink_metadata().is_ok() {
        return Err(exists(destination));
    }
    let partial = destination.beside("partial");
    if !setup.restart && partial.symlink_metadata().is_ok() {
        return Err(half_made(destination, &partial));
    }
    options(setup).check()
}

fn options(setup: &Setup) -> E01Options {
    E01Options { force: setup.force, ..setup.e01.clone() }
}

pub fn create(destination: &Destination, setup: &Setup) -> Result<Box<dyn Sink>> {
    discard(destination)?;
    // Nothing is left of an image that cannot be begun: it was checked before that nothing was there.
    let created = E01Writer::create(&destination.path, setup.size, options(setup));
    let writer = created.inspect_err(|_| drop(discard(destination)))?;
    Ok(Box::new(E01 { destination: destination.clone(), writer }))
}

pub fn resume(destination: &Destination, setup: &Setup, at: u64, mark: &Mark) -> Result<Resumed> {
    let checkpoint: Checkpoint = serde_json::from_str(mark).map_err(|error| {
        Error::failed(format!("{destination}: the journal is damaged: {error}")).next(Acquisition::BeginAgain)
    })?;
    if checkpoint.offset != at {
        return Err(gone(destination, "the journal has another place for it than for the others"));
    }
    let held = Arc::new(Partial::open(&destination.path, &checkpoint)?);
    let (destination, size, options) = (destination.clone(), setup.size, options(setup));
    let go_on = move || -> Result<Box<dyn Sink>> {
        let writer = E01Writer::resume(&destination.path, size, options, &checkpoint)?;
        Ok(Box::new(E01 { destination, writer }))
    };
    Ok(Resumed::Files { held, go_on: Box::new(go_on) })
}

pub fn discard(destination: &Destination) -> Result<()> {
    discard_partial(&destination.path)
}

impl Sink for E01 {
    fn push<'a>(&'a mut self, chunk: &'a Chunk) -> BoxFuture<'a, Result<()>> {
        async move {
            for bad in &chunk.bad {
                self.writer.unreadable(bad.range());
            }
            self.writer.push(chunk.data.clone()).await
        }
        .boxed()
    }

    fn checkpoint(&mut self) -> BoxFuture<'_, Result<Durable>> {
        async move {
            let checkpoint = self.writer.checkpoint().await?;
            let mark = serde_json::to_string(&checkpoint)
                .map_err(|error| Error::failed(format!("{}: {error}", self.destination)))?;
            Ok(std::future::ready(Ok(mark)).boxed())
        }
        .boxed()
    }

    fn finish<'a>(self: Box<Self>, whole: &'a Whole) -> BoxFuture<'a, Result<Vec<PathBuf>>> {
        self.writer.finish(&whole.hashes).boxed()
    }
}
