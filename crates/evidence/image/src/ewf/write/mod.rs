//! Writes E01 images in one pass, on all cores; an interrupted image can be resumed.
//!
//! ```text
//! push ─▶ runs of chunks ─▶ compressing threads ─┐
//!            │ (pool, pack)                      ▼
//!            └──── in order ────────▶ writing thread (segment_writer) ─▶ which segment, which table (set) ─▶ files
//! ```
//!
//! Chunks are queued in runs of a MiB, so that waking threads costs little; the bounded queue bounds memory. The place
//! of a chunk depends only on the lengths of the chunks before it. A [`Checkpoint`] therefore holds little more than
//! the open table, and a resumed set is, byte for byte, the same as one that was not interrupted, if the same program
//! resumes it on such a processor: the libraries that compress differ by both.

use std::path::{Path, PathBuf};

use cheetah_device::{ByteRange, Data, coalesce};

use crate::hash::Hashes;
use cheetah_error::{Error, Result};

mod checkpoint;
mod files;
mod names;
mod options;
mod pack;
mod partial;
mod pool;
mod sections;
mod segment_writer;
mod set;
mod text;
mod walk;

pub use checkpoint::Checkpoint;
pub use files::SegmentFiles;
pub use options::{Compression, E01Options, Media};
pub use partial::Partial;

use checkpoint::Shape;
use files::Files;
use names::{Names, SEGMENTS_MAX};
use pool::Pool;
use segment_writer::{Command, SegmentWriter};
use set::Set;

/// The number of bytes compressed at a time, unless a chunk is larger.
const RUN_BYTES: u64 = 1 << 20;
/// The maximum number of bytes in flight between [`E01Writer::push`] and the disk.
const WAITING_BYTES_MAX: u64 = 48 << 20;

/// Writes one E01 set. Until [`finish`](Self::finish) renames them, its files are called `NAME.E01.partial`,
/// `NAME.E02.partial` …. Dropping it before that waits for the current write, and leaves the files for
/// [`resume`](Self::resume).
pub struct E01Writer {
    shape: Shape,
    writer: SegmentWriter,
    pool: Pool,
    /// Pushed bytes that do not make a run of chunks yet.
    pending: Data,
    /// The offset of the next push.
    offset: u64,
    unreadable: Vec<ByteRange>,
    /// The first unreadable range that does not fit in the image's list.
    unlistable: Option<ByteRange>,
}

impl E01Writer {
    /// Starts the set whose first segment will be called `path` (`NAME.E01`), for `size` bytes of evidence.
    ///
    /// Does not overwrite a set of that name, complete or partial, unless the options say `force`. A size that is not a
    /// whole number of sectors is written with smaller sectors, since the format counts in sectors.
    pub fn create(path: &Path, size: u64, options: E01Options) -> Result<Self> {
        let shape = Shape::new(size, &options)?;
        let names = Names::new(path)?;
        let files = Files::create(names, segments_max(size, &options)?, shape.guid, options.force)?;
        Self::create_with(shape, &options, Box::new(files))
    }

    /// Starts a set whose segments are written elsewhere. It cannot be [resumed](Self::resume).
    ///
    /// # Errors
    ///
    /// As [`Self::create`].
    pub fn create_in(files: Box<dyn SegmentFiles>, size: u64, options: &E01Options) -> Result<Self> {
        segments_max(size, options)?;
        Self::create_with(Shape::new(size, options)?, options, files)
    }

    fn create_with(shape: Shape, options: &E01Options, files: Box<dyn SegmentFiles>) -> Result<Self> {
        let volume = sections::volume(options, &shape)?;
        let head = sections::first_head(options, &volume)?;
        let set = Set::create(files, &shape, volume, &head)?;
        Self::start(set, shape, 0)
    }

    /// Resumes a set after `checkpoint`; anything written after it is discarded. Size and options must be those the set
    /// was created with; case data and times in the files stay as they are. A set whose [`finish`](Self::finish) was
    /// interrupted can be resumed, and so can a finished one.
    pub fn resume(path: &Path, size: u64, options: E01Options, checkpoint: &Checkpoint) -> Result<Self> {
        let Checkpoint { offset, shape, open, .. } = checkpoint;
        shape.check(size, &options)?;
        let at_a_chunk = offset.is_multiple_of(shape.chunk_bytes()) || *offset == size;
        if *offset > size || !at_a_chunk || open.section > open.end {
            return Err(Error::evidence(format!("an image of {size} bytes cannot be resumed at {offset}")));
        }
        let volume = sections::volume(&options, shape)?;
        let files = Files::resume(Names::new(path)?, open.segment, open.end, shape.guid, options.force)?;
        let set = Set::resume(Box::new(files), shape, volume, open.clone());
        let mut writer = Self::start(set, shape.clone(), *offset)?;
        checkpoint.unreadable.iter().for_each(|(offset, len)| writer.unreadable(ByteRange::new(*offset, *len)));
        writer.check_listable()?;
        Ok(writer)
    }

    fn start(set: Set, shape: Shape, offset: u64) -> Result<Self> {
        // A chunk has at most 16 MiB.
        let pool = Pool::start(shape.chunk_bytes() as usize, shape.compression)?;
        // A queued command holds a run, or its packed form; a run that is being packed holds both.
        let slots_max = (WAITING_BYTES_MAX / (2 * run_bytes(&shape))) as usize;
        let slots = (2 * pool.threads() + 2).min(slots_max).max(1);
        let writer = SegmentWriter::start(set, slots, pool.spare())?;
        let (pending, unreadable) = (Data::new(), Vec::new());
        Ok(Self { shape, writer, pool, pending, offset, unreadable, unlistable: None })
    }

    /// Returns the number of bytes pushed so far, those before the checkpoint included: the offset of the next push.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the number of bytes added to the files since this writer was started: fewer than were pushed, if they
    /// compress.
    pub fn written(&self) -> u64 {
        self.writer.written()
    }

    /// Appends the next bytes of the evidence; waits while compression or the disk is too far behind. An error is
    /// final, but the set can be resumed. An [`unreadable`](Self::unreadable) range that cannot be recorded is an error
    /// too: the image would present placeholders as evidence.
    pub async fn push(&mut self, data: Data) -> Result<()> {
        self.check_listable()?;
        if data.len() > self.shape.size - self.offset {
            let (size, end) = (self.shape.size, self.offset.saturating_add(data.len()));
            return Err(Error::misuse(format!("the evidence has {size} bytes, but {end} were pushed")));
        }
        self.offset += data.len();
        self.pending.append(data);
        self.hand_over(run_bytes(&self.shape)).await
    }

    /// Queues pending bytes, as far as they make whole multiples of `unit` or reach the end of the evidence.
    async fn hand_over(&mut self, unit: u64) -> Result<()> {
        let run_bytes = run_bytes(&self.shape);
        loop {
            let ready = match self.pending.len() {
                len if self.offset == self.shape.size => len.min(run_bytes),
                len => (len - len % unit).min(run_bytes),
            };
            if ready == 0 {
                return Ok(());
            }
            let room = self.writer.reserve().await?;
            let run = self.pending.slice(0, ready);
            self.pending = self.pending.slice(ready, u64::MAX);
            room.send(Command::Append(self.pool.pack(run)));
        }
    }

    /// Records that a range, rounded out to sectors, cannot be read; the bytes pushed for it are a placeholder. The
    /// format numbers unreadable sectors with 32 bits, which covers 2 TiB with sectors of 512 bytes, and 4 GiB of an
    /// odd size. Beyond that nothing can be recorded, and the next call fails.
    pub fn unreadable(&mut self, range: ByteRange) {
        let range = ByteRange::between(range.offset.min(self.shape.size), range.end().min(self.shape.size));
        if range.end() > self.shape.listable_bytes() {
            self.unlistable.get_or_insert(range);
        }
        if !range.is_empty() {
            range.append_to(&mut self.unreadable);
        }
    }

    /// Fails if an unreadable range cannot be recorded in the image.
    fn check_listable(&self) -> Result<()> {
        let Some(range) = self.unlistable else { return Ok(()) };
        let (sector_size, end) = (self.shape.sector_size, self.shape.listable_bytes());
        Err(Error::failed(format!(
            "range {range} is unreadable, but an E01 cannot record it: its list of unreadable sectors, here of \
             {sector_size} bytes, ends at byte {end}; acquire to raw or a drive"
        )))
    }

    /// Returns when all pushed data, except an incomplete chunk, is on stable storage.
    pub async fn checkpoint(&mut self) -> Result<Checkpoint> {
        self.check_listable()?;
        self.hand_over(self.shape.chunk_bytes()).await?;
        let offset = self.offset - self.pending.len();
        let open = self.writer.ask(Command::Sync).await?;
        let before = ByteRange::between(0, offset);
        let unreadable =
            coalesce(self.unreadable.clone(), 0).into_iter().filter_map(|range| range.intersection(before));
        let unreadable = unreadable.map(|range| (range.offset, range.len)).collect();
        Ok(Checkpoint { offset, unreadable, shape: self.shape.clone(), open })
    }

    /// Writes the rest, with MD5 and SHA-1 where known, makes it durable, and renames the files to their final names,
    /// the first segment last. Returns the paths, first segment first.
    pub async fn finish(self, hashes: &Hashes) -> Result<Vec<PathBuf>> {
        self.check_listable()?;
        let (size, offset) = (self.shape.size, self.offset);
        if offset != size {
            return Err(Error::failed(format!(
                "only {offset} of {size} bytes were pushed, so the image is incomplete"
            )));
        }
        let unreadable = sectors(&coalesce(self.unreadable.clone(), 0), u64::from(self.shape.sector_size))?;
        let hashes = Box::new(hashes.clone());
        self.writer.ask(|reply| Command::Finish(hashes, unreadable, reply)).await
    }
}

/// Returns the number of segments that an image of `size` bytes may take.
fn segments_max(size: u64, options: &E01Options) -> Result<u16> {
    let segments_max = u16::try_from(options.segments_max(size)).ok();
    segments_max.filter(|max| u64::from(*max) <= SEGMENTS_MAX).ok_or_else(|| {
        Error::misuse(format!("{size} bytes may take more than {SEGMENTS_MAX} segments; choose larger segments"))
    })
}

/// Removes the files of an unfinished set whose first segment would have been called `path`.
pub fn discard_partial(path: &Path) -> Result<()> {
    files::discard(&Names::new(path)?)
}

/// Returns the number of bytes that are queued at once: a whole number of chunks.
fn run_bytes(shape: &Shape) -> u64 {
    let chunk_bytes = shape.chunk_bytes();
    (RUN_BYTES / chunk_bytes).max(1) * chunk_bytes
}

/// Converts a range to first sector and number of sectors. The format has 32 bits for each; fails if that is not
/// enough.
fn sectors(ranges: &[ByteRange], sector_size: u64) -> Result<Vec<(u32, u32)>> {
    let ranges = coalesce(ranges.iter().map(|range| range.aligned_to(sector_size)).collect(), 0);
    // Split, so that the number of sectors fits even if all of them are unreadable.
    let ranges = ranges.iter().flat_map(|range| range.split_at_multiples(sector_size << 31));
    let number = |bytes: u64| u32::try_from(bytes / sector_size);
    let listed = ranges.map(|range| match (number(range.offset), number(range.len)) {
        (Ok(first), Ok(count)) => Ok((first, count)),
        _ => Err(Error::failed(format!("range {range} is unreadable, but an E01 cannot record it"))),
    });
    listed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ewf::Ewf;

    const GIB: u64 = 1 << 30;

    fn create(folder: &tempfile::TempDir, size: u64) -> E01Writer {
        E01Writer::create(&folder.path().join("x.E01"), size, E01Options::default()).unwrap()
    }

    #[tokio::test]
    async fn an_unreadable_range_that_cannot_be_recorded_fails_at_once() {
        // 32 bits count sectors of 512 bytes; and single bytes, where the size is odd.
        for (size, listable) in [(3072 * GIB, 2048 * GIB), (5 * GIB + 1, 4 * GIB)] {
            let folder = tempfile::tempdir().unwrap();
            let mut writer = create(&folder, size);
            writer.unreadable(ByteRange::new(listable - 512, 512));
            writer.push(Data::zeros(512)).await.unwrap();
            let good = writer.checkpoint().await.unwrap();
            // It is adjacent to the previous one, but the error names it.
            let bad = ByteRange::new(listable, 512);
            writer.unreadable(bad);
            writer.unreadable(ByteRange::new(0, 512));
            let errors = [
                writer.push(Data::zeros(512)).await.unwrap_err(),
                writer.checkpoint().await.unwrap_err(),
                writer.finish(&Hashes::default()).await.unwrap_err(),
            ];
            for error in errors.map(|error| error.to_string()) {
                assert!(error.contains(&format!("{bad}")), "{error}");
            }
            // Such a checkpoint may come from an earlier version, which only warned.
            let old = Checkpoint { unreadable: vec![(bad.offset, bad.len)], ..good };
            let resumed = E01Writer::resume(&folder.path().join("x.E01"), size, E01Options::default(), &old);
            assert!(resumed.is_err());
        }
    }

    #[tokio::test]
    async fn unreadable_ranges_are_recorded_in_full_for_odd_sizes() {
        // Odd, even, and a whole number of sectors.
        for size in [300_001, 300_004, 300_032] {
            let folder = tempfile::tempdir().unwrap();
            let mut writer = create(&folder, size);
            let bad = [ByteRange::new(512, 512), ByteRange::between(size - size % 512 - 512, size)];
            bad.iter().for_each(|range| writer.unreadable(*range));
            writer.push(Data::zeros(size)).await.unwrap();
            let paths = writer.finish(&Hashes::default()).await.unwrap();
            let info = Ewf::open(&paths[0]).unwrap().info().clone();
            assert_eq!((info.size, &info.unreadable[..]), (size, &bad[..]));
        }
    }

    #[test]
    fn ranges_are_recorded_in_whole_sectors_or_refused() {
        let list = |ranges: &[(u64, u64)], sector_size| {
            let ranges: Vec<_> = ranges.iter().map(|(offset, len)| ByteRange::new(*offset, *len)).collect();
            sectors(&ranges, sector_size).ok()
        };
        assert_eq!(list(&[(5000, 1), (512, 512), (1024, 3)], 512), Some(vec![(1, 2), (9, 1)]));
        assert_eq!(list(&[(5001, 2)], 1), Some(vec![(5001, 2)]));
        // More than the format can list: one sector beyond 32 bits.
        let half = 1 << 31;
        assert_eq!(list(&[(0, 2048 * GIB)], 512), Some(vec![(0, half), (half, half)]));
        assert_eq!(list(&[(4 * GIB - 1, 1)], 1), Some(vec![(u32::MAX, 1)]));
        assert_eq!(list(&[(512, 512), (2048 * GIB, 1)], 512), None);
        assert_eq!(list(&[(4 * GIB - 1, 2)], 1), None);
    }
}
