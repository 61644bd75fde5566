//! Writing: sealing units and sending them, and making holes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use cheetah_device::{ByteRange, Data, Error, Result, Zeroing, buffers};
use futures::{StreamExt as _, TryStreamExt as _, stream};

use super::{Inner, Writer, position};
use crate::stamp::{COUNTER_MAX, Stamp};
use crate::units::TRAILER_BYTES;

/// A write is sent in pieces of at most this many bytes of content, so that the memory for it is bounded.
const PIECE_BYTES: u64 = 1 << 20;
/// Pieces of one write in flight.
const PIECES_MAX: usize = 4;

/// Writes `data` to `range`, which is as long.
pub(super) async fn write(inner: Arc<Inner>, range: ByteRange, data: Data, fua: bool) -> Result<()> {
    in_task(async move {
        inner.unstick().await?;
        let pieces = stream::iter(range.split_at_multiples(PIECE_BYTES));
        let write =
            |piece: ByteRange| inner.write_piece(piece, data.slice(piece.offset - range.offset, piece.len), fua);
        pieces.map(write).buffer_unordered(PIECES_MAX).try_collect::<()>().await?;
        // Without the stamps, what was written would not be verified after a crash.
        if fua { inner.save().await.map_err(|error| inner.record_failed(&error)) } else { Ok(()) }
    })
    .await
}

/// Makes `range` read as zeros. Units that lie in it become holes.
pub(super) async fn punch(inner: Arc<Inner>, range: ByteRange, how: Zeroing) -> Result<()> {
    let unit = inner.units.bytes();
    // The last unit may be filled up.
    let end = if range.end() == inner.units.size() { inner.units.count() * unit } else { range.end() / unit * unit };
    let (first, end) = (range.offset.div_ceil(unit), end / unit);
    if first >= end {
        return match range.is_empty() {
            true => Ok(()),
            false => write(inner, range, Data::zeros(range.len), how.fua).await,
        };
    }
    let whole = inner.units.content_range(first, end);
    for edge in [ByteRange::between(range.offset, whole.offset), ByteRange::between(whole.end(), range.end())] {
        if !edge.is_empty() {
            write(inner.clone(), edge, Data::zeros(edge.len), how.fua).await?;
        }
    }
    in_task(async move {
        inner.unstick().await?;
        let turn = inner.turns.take(first..end).await;
        {
            // From here on these units are zeros, whatever the device below says.
            let mut state = inner.state.write();
            state.set_written(first, &vec![Stamp::HOLE; position(end - first)]);
        }
        inner.changed();
        inner.below.zero(inner.units.sealed_range(first, end), Zeroing { fast_only: false, ..how }).await?;
        drop(turn);
        if how.fua { inner.save().await.map_err(|error| inner.record_failed(&error)) } else { Ok(()) }
    })
    .await
}

/// Runs `work` to its end even if the caller is gone.
async fn in_task(work: impl Future<Output = Result<()>> + Send + 'static) -> Result<()> {
    match tokio::spawn(work).await {
        Ok(result) => result,
        Err(_) => Err(Error::Invalid("a write to a sealed drive was cut short by the runtime's end".into())),
    }
}

impl Inner {
    /// Writes a piece in a turn for all units that it touches.
    async fn write_piece(&self, range: ByteRange, data: Data, fua: bool) -> Result<()> {
        let Some(writer) = &self.writer else { return Err(Error::ReadOnly) };
        let (first, end) = self.units.touched(range);
        let _turn = self.turns.take(first..end).await;
        let content = self.whole_units(range, data, first, end).await?;
        let (sealed, stamps) = self.seal(writer, first, &content)?;
        let torn = self.torn(first, end, &sealed);
        self.store_copies(&torn).await.map_err(|error| self.record_failed(&error))?;
        let sealed = Data::from(sealed);
        let written = self.below.write(self.units.sealed_range(first, end).offset, sealed, fua).await;
        {
            let mut state = self.state.write();
            match &written {
                Ok(()) => state.set_written(first, &stamps),
                // It may have taken effect.
                Err(_) => {
                    for (index, stamp) in (first..).zip(stamps) {
                        state.doubtful.entry(index).or_default().push(stamp);
                    }
                    state.copies.extend(torn);
                }
            }
        }
        self.changed();
        written
    }

    /// The units from `first` up to, not including, `end` that are written in two parts, to two members, and have content
    /// already: a crash between the parts would lose both versions.
    fn torn(&self, first: u64, end: u64, sealed: &Bytes) -> Vec<(u64, Bytes)> {
        let Some(boundary) = self.boundary else { return Vec::new() };
        let stride = self.units.stride();
        let stamps = self.stamps(first, end);
        let units = (first..end).zip(stamps).filter(|(index, stamp)| {
            let range = self.units.sealed_range(*index, index + 1);
            !stamp.is_hole() && range.offset / boundary != (range.end() - 1) / boundary
        });
        let part = |(index, _)| {
            let at = position((index - first) * stride);
            (index, sealed.slice(at..at + position(stride)))
        };
        units.map(part).collect()
    }

    /// Completes the data of a range to whole units, with what the units hold.
    async fn whole_units(&self, range: ByteRange, data: Data, first: u64, end: u64) -> Result<Data> {
        let whole = self.units.content_range(first, end);
        let mut content = Data::new();
        if range.offset > whole.offset {
            content.append(self.read_units(first, first + 1).await?.slice(0, range.offset - whole.offset));
        }
        content.append(data);
        let missing = whole.end() - range.end();
        if range.end() == self.units.size() {
            // The padding of the last unit.
            content.append(Data::zeros(missing));
        } else if missing > 0 {
            let last = self.read_units(end - 1, end).await?;
            content.append(last.slice(last.len() - missing, missing));
        }
        Ok(content)
    }

    /// Seals whole units, from `first`, with new stamps.
    fn seal(&self, writer: &Writer, first: u64, content: &Data) -> Result<(Bytes, Vec<Stamp>)> {
        let (unit, stride) = (position(self.units.bytes()), position(self.units.stride()));
        let count = content.len() / self.units.bytes();
        let last = writer.counter.fetch_add(count, Ordering::Relaxed);
        if last.saturating_add(count) > COUNTER_MAX {
            return Err(Error::NoSpace(
                "the epoch of this writer has no more stamps; close the drive and open it again".into(),
            ));
        }
        let mut sealed = buffers::empty(stride * position(count));
        let mut stamps = Vec::with_capacity(position(count));
        for n in 0..count {
            let start = sealed.len();
            content.slice(n * self.units.bytes(), self.units.bytes()).append_to(&mut sealed);
            sealed.extend_from_slice(&[0; TRAILER_BYTES as usize]);
            let (cipher, trailer) = sealed[start..].split_at_mut(unit);
            let stamp =
                Stamp::new(writer.epoch, last + 1 + n).ok_or(Error::Unsupported("a stamp beyond the format"))?;
            let done = writer.key.seal(first + n, stamp, cipher, trailer);
            done.map_err(|error| Error::Invalid(error.to_string().into()))?;
            stamps.push(stamp);
        }
        Ok((buffers::share(sealed), stamps))
    }
}
