//! Copy-on-write: a device that can be written while the device below never is.
//!
//! Writes go to memory or to a file, and [`Spans`] records their ranges to the byte. So a write never has to read the
//! bytes around it, two writers never share a block, and an unreadable range of the base can still be written over. A
//! read looks up the source of each byte under a short lock, then fetches without the lock.
//!
//! Changes to a file are made one at a time, and a change that has begun is finished even if its future is dropped:
//! otherwise it could take effect after a later change to the same bytes, and undo it.

mod spans;

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use cheetah_kit::file::{FileExt as _, make_sparse};
use futures::future::try_join_all;
use parking_lot::Mutex;

use self::spans::{Content, Segment, Spans};
use crate::data::Part;
use crate::device::DynDevice;
use crate::{ByteRange, Data, Device, Error, Extent, Geometry, Io, Result, Size, Zeroing, try_io};

/// Data in memory is cut at multiples of this, so that overwriting a part of it frees that part.
const PIECE_BYTES: u64 = 4096;

/// A writable view of a device that is never written itself.
///
/// The changes live as long as the overlay; [`flush`](Device::flush) has nothing to do.
pub struct Overlay {
    base: DynDevice,
    spans: Arc<Mutex<Spans>>,
    store: Store,
}

/// The storage of changes.
enum Store {
    /// The spans themselves.
    Memory { limit_bytes: u64 },
    /// A sparse file, at the same offsets.
    File(Arc<ScratchFile>),
}

struct ScratchFile {
    file: File,
    path: PathBuf,
    /// Held by the change in progress.
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl Overlay {
    /// Keeps changes in memory, up to `limit_bytes` with their metadata; a write beyond that fails with
    /// [`Error::NoSpace`].
    pub fn in_memory(base: DynDevice, limit_bytes: u64) -> Self {
        Self { base, spans: Arc::default(), store: Store::Memory { limit_bytes } }
    }

    /// Keeps changes in a sparse file at `path`. The file must not exist yet, and is unlinked at once: it is useless
    /// without the overlay, and so its space is freed however the process ends.
    ///
    /// Operations must be awaited within a tokio runtime.
    pub fn in_file(base: DynDevice, path: &Path) -> Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path).map_err(|error| {
            Error::io(format!("creating the overlay file {} (it must not exist yet)", path.display()), &error)
        })?;
        // Without it, the file only takes more space.
        let _ = make_sparse(&file);
        std::fs::remove_file(path)
            .map_err(|error| Error::io(format!("unlinking the overlay file {}", path.display()), &error))?;
        let store = Store::File(Arc::new(ScratchFile { file, path: path.to_owned(), turn: Arc::default() }));
        Ok(Self { base, spans: Arc::default(), store })
    }

    /// Returns the number of bytes written or zeroed here.
    pub fn changed_bytes(&self) -> u64 {
        self.spans.lock().len_bytes()
    }

    /// Fetches the content of a segment.
    fn fetch(&self, segment: Segment) -> Io<'_, Data> {
        match (segment.content, &self.store) {
            (None, _) => self.base.read(segment.range),
            (Some(Content::Bytes(bytes)), _) => Io::ok(bytes.into()),
            (Some(Content::Stored), Store::File(file)) => file.read(segment.range),
            (Some(Content::Zero), _) => Io::ok(Data::zeros(segment.range.len)),
            (Some(Content::Stored), Store::Memory { .. }) => Io::fail(Error::Invalid("overlay without a file".into())),
        }
    }

    /// Stores `data` in memory if the limit allows it.
    fn keep(&self, offset: u64, data: &Data, limit_bytes: u64) -> Result<()> {
        let range = ByteRange::new(offset, data.len());
        // Copied before the lock is taken, in separate pieces, so that no large buffer is kept for a small part.
        let pieces: Vec<(ByteRange, Content)> = range
            .split_at_multiples(PIECE_BYTES)
            .map(|piece| (piece, piece_content(&data.slice(piece.offset - offset, piece.len))))
            .collect();
        let bytes = pieces.iter().map(|(_, content)| content.memory_bytes()).sum();
        let mut spans = self.spans.lock();
        check_room(&spans, range, bytes, pieces.len(), limit_bytes)?;
        for (piece, content) in pieces {
            spans.set(piece, content);
        }
        Ok(())
    }
}

fn piece_content(data: &Data) -> Content {
    if data.parts().iter().all(|part| matches!(part, Part::Zeros(_))) {
        return Content::Zero;
    }
    let mut copy = BytesMut::zeroed(usize::try_from(data.len()).unwrap_or(usize::MAX));
    data.copy_to(&mut copy);
    Content::Bytes(copy.freeze())
}

/// Fails unless `range` may be set to `bytes` bytes of content in `pieces` pieces.
fn check_room(spans: &Spans, range: ByteRange, bytes: u64, pieces: usize, limit_bytes: u64) -> Result<()> {
    if spans.memory_bytes_after(range, bytes, pieces) <= limit_bytes {
        return Ok(());
    }
    let limit = Size(limit_bytes);
    Err(Error::NoSpace(format!("the overlay may take {limit} of memory, and {range} would exceed it").into()))
}

impl Device for Overlay {
    fn geometry(&self) -> Geometry {
        Geometry { writable: true, ..self.base.geometry() }
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        try_io!(self.check(range));
        let mut segments = self.spans.lock().segments(range);
        if segments.len() <= 1 {
            return segments.pop().map_or_else(|| Io::ok(Data::new()), |segment| self.fetch(segment));
        }
        Io::later(async move {
            let mut whole = Data::new();
            for data in try_join_all(segments.into_iter().map(|segment| self.fetch(segment))).await? {
                whole.append(data);
            }
            Ok(whole)
        })
    }

    fn write(&self, offset: u64, data: Data, _fua: bool) -> Io<'_, ()> {
        let range = ByteRange::new(offset, data.len());
        try_io!(self.check(range));
        match &self.store {
            Store::Memory { limit_bytes } => Io::done(self.keep(offset, &data, *limit_bytes)),
            Store::File(file) => file.write(offset, data, &self.spans),
        }
    }

    fn zero(&self, range: ByteRange, _how: Zeroing) -> Io<'_, ()> {
        try_io!(self.check(range));
        match &self.store {
            Store::Memory { limit_bytes } => {
                let mut spans = self.spans.lock();
                let room = check_room(&spans, range, 0, 1, *limit_bytes);
                Io::done(room.map(|()| spans.set(range, Content::Zero)))
            }
            Store::File(file) => Io::later(async move {
                let _turn = file.turn.lock().await;
                self.spans.lock().set(range, Content::Zero);
                Ok(())
            }),
        }
    }

    fn trim(&self, range: ByteRange) -> Io<'_, ()> {
        self.zero(range, Zeroing::default())
    }

    fn cache(&self, range: ByteRange) -> Io<'_, ()> {
        self.base.cache(range)
    }

    fn extents(&self, range: ByteRange) -> Io<'_, Vec<Extent>> {
        try_io!(self.check(range));
        let segments = self.spans.lock().segments(range);
        Io::later(async move {
            let mut extents = Vec::new();
            for segment in segments {
                match segment.content {
                    None => {
                        for extent in self.base.extents(segment.range).await? {
                            extent.push(&mut extents);
                        }
                    }
                    Some(Content::Zero) => Extent::hole(segment.range.len).push(&mut extents),
                    Some(_) => Extent::data(segment.range.len).push(&mut extents),
                }
            }
            Ok(extents)
        })
    }
}

impl ScratchFile {
    fn read(self: &Arc<Self>, range: ByteRange) -> Io<'_, Data> {
        let this = Arc::clone(self);
        Io::later(blocking(move || {
            let mut buffer = BytesMut::zeroed(usize::try_from(range.len).unwrap_or(usize::MAX));
            let result = this.file.read_exact_at(&mut buffer, range.offset);
            result.map(|()| Bytes::from(buffer).into()).map_err(|error| this.error("reading", range, &error))
        }))
    }

    /// Writes to the file, and then records the range in `spans`.
    fn write(self: &Arc<Self>, offset: u64, data: Data, spans: &Arc<Mutex<Spans>>) -> Io<'_, ()> {
        let (this, spans) = (Arc::clone(self), Arc::clone(spans));
        Io::later(async move {
            // Taken here, so that changes are made in the order in which they began, and released by the blocking work,
            // which goes on when this future is dropped.
            let turn = Arc::clone(&this.turn).lock_owned().await;
            blocking(move || {
                let _turn = turn;
                let range = ByteRange::new(offset, data.len());
                let result = this.file.write_all_at(&data.into_bytes(), offset);
                result.map_err(|error| this.error("writing", range, &error))?;
                // Only now: until the bytes are in the file, readers get the old content.
                spans.lock().set(range, Content::Stored);
                Ok(())
            })
            .await
        })
    }

    fn error(&self, doing: &str, range: ByteRange, error: &std::io::Error) -> Error {
        Error::io(format!("{doing} {range} of the overlay file {}", self.path.display()), error)
    }
}

/// Runs file I/O on a thread that may block.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(_) => Err(Error::Invalid("the overlay's file I/O was cut short by the runtime's end".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;

    #[test]
    fn a_dropped_write_is_finished_before_the_next_change_begins() {
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            let directory = tempfile::tempdir().unwrap();
            let base = Arc::new(Memory::new(vec![b'.'; 8]));
            let overlay = Overlay::in_file(base, &directory.path().join("changes")).unwrap();
            // Nothing is written to the file while its only thread is busy.
            let (let_go, held) = std::sync::mpsc::channel::<()>();
            let holding = tokio::task::spawn_blocking(move || held.recv());

            let mut abandoned = overlay.write(0, Data::from(Bytes::from_static(b"aaaaaa")), false);
            assert!(futures::poll!(&mut abandoned).is_pending());
            drop(abandoned);
            let mut zero = overlay.zero(ByteRange::new(1, 1), Zeroing::default());
            assert!(futures::poll!(&mut zero).is_pending());
            let mut later = overlay.write(2, Data::from(Bytes::from_static(b"bb")), false);
            assert!(futures::poll!(&mut later).is_pending());

            let_go.send(()).unwrap();
            holding.await.unwrap().unwrap();
            zero.await.unwrap();
            later.await.unwrap();
            let whole = overlay.read(ByteRange::new(0, 8)).await.unwrap().into_bytes();
            assert_eq!(&whole[..], b"a\0bbaa..");
        });
    }
}
