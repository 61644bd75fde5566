//! The end of a fill: reads the drive back, compares it with the source's digests, hashes it, and records the image as
//! a load does, first in the log, then in the drive file.

use cheetah_device::coverage::State;
use cheetah_device::{ByteRange, Coverage, DynDevice, Size};
use cheetah_error::{Error, Result, next};
use cheetah_image::hash::Hashing;
use cheetah_image::{HashChoice, Hashes};
use futures::StreamExt as _;

use super::event::{FillEvent, Reporter};
use super::files::remove_files;
use super::record::FillRecord;
use crate::copy::{CopyProgress, ReadChunk, chunks};
use crate::file::digests::{CHUNK_BYTES, Digests};
use crate::file::{Image, ImageState, MapRef};

/// An image that was filled and read back.
pub(super) struct FinishedImage {
    image: Image,
    /// What is not readable of it, if anything.
    map: Option<MapRef>,
    unreadable: Vec<ByteRange>,
}

impl FinishedImage {
    /// Records the image: first in the log, since a log that is behind the drive file would show an image of which nothing is
    /// signed.
    pub(super) async fn record(self, record: &FillRecord, reporter: &Reporter) -> Result<Image> {
        let Self { image, map, unreadable } = self;
        reporter.report(FillEvent::Complete { image: image.clone(), unreadable }).await?;
        // From now on the image counts as loaded.
        record.change(|file| (file.map, file.fill, file.image) = (map, None, Some(image.clone())))?;
        let file = record.file();
        if let Err(error) = remove_files(&file) {
            tracing::warn!("{}: a file of its fill stays, which is complete: {error}", file.name);
        }
        Ok(image)
    }
}

/// Finishes a fill.
pub(super) struct Finish<'a> {
    /// The drive, to be read.
    pub drive: DynDevice,
    /// The drive file, whose image is being filled, and the digests of the data that the source sent.
    pub record: &'a FillRecord,
    /// The coverage of the drive; no range is unread.
    pub coverage: Coverage,
    /// Called at once with each range that differs from the data that the source sent, so that it is no longer served.
    pub forget: &'a (dyn Fn(ByteRange) + Sync),
}

impl Finish<'_> {
    /// Reads everything back; returns the image, which is not recorded yet.
    ///
    /// Ranges that differ from the data that the source sent are an error. They are unread again, so that the next fill
    /// fetches them.
    pub(super) async fn run(self, progress: impl FnMut(CopyProgress) + Send) -> Result<FinishedImage> {
        let file = self.record.file();
        let Some(mut image) = file.image else {
            return Err(Error::failed(format!("{} has no image to finish", file.name)));
        };
        let whole = self.coverage.is_whole();
        let hashes = match &file.fill {
            Some(fill) if whole => fill.hashes.parse()?,
            // Without some ranges, a hash of the whole means nothing.
            _ => HashChoice::NONE,
        };
        let (digests, hashes) = self.compare(&file.name, image.size, hashes, progress).await?;
        let Self { record, coverage, .. } = self;
        let digests = digests.save(&file.path)?;
        let state = if whole { ImageState::Intact } else { ImageState::Incomplete };
        let map = if whole { None } else { Some(record.save(&coverage)?) };
        (image.state, image.digests, image.hashes) = (state, Some(digests), hashes);
        Ok(FinishedImage { image, map, unreadable: coverage.in_state(State::Unreadable).collect() })
    }

    async fn compare(
        &self,
        name: &str,
        size: u64,
        hashes: HashChoice,
        mut progress: impl FnMut(CopyProgress) + Send,
    ) -> Result<(Digests, Hashes)> {
        let hashing = Hashing::start(hashes)?;
        let mut digests = Digests::new(size)?;
        let (mut differing, mut unproven) = (Vec::new(), 0);
        let mut reads = std::pin::pin!(chunks(self.drive.clone(), size, size));
        while let Some(ReadChunk { range, read }) = reads.next().await {
            let (data, digest) = read.map_err(Error::device(format!("reading {name} back")))?;
            hashing.push(&data).await?;
            // Reads some hundred bytes, most likely from the page cache.
            let known = self.record.grains().digest(range.offset)?;
            match (known, digest) {
                _ if !self.is_read(range) => {}
                (Some(known), Some(digest)) if known != digest => {
                    (self.forget)(range);
                    differing.push(range);
                }
                (known, Some(digest)) => {
                    unproven += if known.is_none() { range.len } else { 0 };
                    digests.set(range.offset, digest);
                }
                (_, None) => return Err(Error::failed("a chunk was read without its digest; this is a bug")),
            }
            progress(CopyProgress { done: range.end(), total: size });
        }
        if unproven > 0 {
            let unproven = Size(unproven);
            tracing::warn!("{name}: {unproven} came in pieces, and could not be compared with what the source sent");
        }
        self.refuse(name, &differing)?;
        Ok((digests, hashing.finish().await?))
    }

    /// Whether a chunk was read from the source in full.
    fn is_read(&self, range: ByteRange) -> bool {
        self.coverage.runs(range).all(|(_, state)| state == State::Read)
    }

    fn refuse(&self, name: &str, differing: &[ByteRange]) -> Result<()> {
        let Some(first) = differing.first() else { return Ok(()) };
        let mut coverage = self.coverage.clone();
        differing.iter().for_each(|range| coverage.set(*range, State::Unread));
        // A concurrent fetch may have recorded some of these as read; fetching them once more does no harm.
        self.record.save(&coverage)?;
        Err(Error::evidence(format!(
            "{name}: {} chunks of {} are not what the source sent, the first at {first}; they are unread again, and no \
             longer served",
            differing.len(),
            Size(CHUNK_BYTES)
        ))
        .next(next::Drive::FillAgain))
    }
}
