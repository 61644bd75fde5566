//! Writing E01 images, in one pass, on all cores, with interruptions.
//!
//! ```text
//! push ─▶ runs of chunks ─▶ compressing threads ─┐
//!            │ (pool, pack)                      ▼
//!            └──── in order ────────▶ writing thread (shell) ─▶ which segment, which table (set) ─▶ files
//! ```
//!
//! Chunks are handed over in runs of a MiB, so that waking threads costs next to nothing; how many may wait is bounded,
//! which bounds memory. Where a chunk goes depends on nothing but the lengths of those before it. A [`Checkpoint`]
//! therefore needs to remember little more than the open table, and a set that was interrupted becomes, byte for byte,
//! what it would have been.

use std::path::{Path, PathBuf};

use cheetah_device::{ByteRange, Data};

use crate::error::{Error, Result};
use crate::hash::Hashes;

mod checkpoint;
mod deflate;
mod files;
mod names;
mod options;
mod pack;
mod partial;
mod pool;
mod sections;
mod set;
mod shell;
mod text;
mod walk;

pub use checkpoint::Checkpoint;
pub use options::{Compression, E01Options, Media};
pub use partial::Partial;

use checkpoint::Shape;
use files::Files;
use names::{Names, SEGMENTS_MAX};
use pool::Pool;
use set::Set;
use shell::{Command, Shell};

/// Bytes of evidence compressed in one go, unless a chunk is larger.
const RUN_BYTES: u64 = 1 << 20;
/// Bytes that may wait, or be under way, between [`E01Writer::push`] and the disk.
const WAITING_BYTES_MAX: u64 = 48 << 20;

/// Writes one E01 set. While it is under way its files are called `NAME.E01.partial`, `NAME.E02.partial` …; only
/// [`finish`](Self::finish) gives them their names. Dropped before that, it leaves what is there for
/// [`resume`](Self::resume); dropping waits for the write under way, if any.
pub struct E01Writer {
    shape: Shape,
    shell: Shell,
    pool: Pool,
    /// What was pushed, but is not yet a run of chunks.
    pending: Data,
    /// Where the next push goes.
    offset: u64,
    unreadable: Vec<ByteRange>,
    /// The first of those that have no place in the image's list.
    unlistable: Option<ByteRange>,
}

impl E01Writer {
    /// Starts the set whose first segment is to be called `path` (`NAME.E01`), for `size` bytes of evidence.
    ///
    /// Refuses to overwrite a set of that name, whole or partial, unless the options say `force`. A size that is not a
    /// whole number of sectors is written with smaller sectors, as the format counts in nothing else.
    pub fn create(path: &Path, size: u64, options: E01Options) -> Result<Self> {
        let shape = Shape::new(size, &options)?;
        let names = Names::new(path)?;
        let segments_max = u16::try_from(options.segments_max(size)).ok();
        let segments_max = segments_max.filter(|max| u64::from(*max) <= SEGMENTS_MAX).ok_or_else(|| {
            Error::misuse(format!("{size} bytes may take more than {SEGMENTS_MAX} segments; choose larger segments"))
        })?;
        let volume = sections::volume(&options, &shape)?;
        let head = sections::first_head(&options, &volume)?;
        let files = Files::create(names, segments_max, options.force)?;
        let set = Set::create(files, &shape, volume, &head)?;
        Self::start(set, shape, 0)
    }

    /// Goes on behind `checkpoint` as if nothing had happened; whatever was written after it is discarded. Size and
    /// options must be those it was created with; what is already in the files (case data, times) stays as it is. It
    /// takes up a set whose [`finish`](Self::finish) was interrupted, too, and even one that was finished.
    pub fn resume(path: &Path, size: u64, options: E01Options, checkpoint: &Checkpoint) -> Result<Self> {
        let Checkpoint { offset, shape, open, .. } = checkpoint;
        shape.check(size, &options)?;
        let at_a_chunk = offset.is_multiple_of(shape.chunk_bytes()) || *offset == size;
        if *offset > size || !at_a_chunk || open.section > open.end {
            return Err(Error::Evidence(format!("{offset} is no place to go on with an image of {size} bytes")));
        }
        let volume = sections::volume(&options, shape)?;
        let files = Files::resume(Names::new(path)?, open.segment, open.end, shape.guid, options.force)?;
        let set = Set::resume(files, shape, volume, open.clone());
        let mut writer = Self::start(set, shape.clone(), *offset)?;
        checkpoint.unreadable.iter().for_each(|(offset, len)| writer.unreadable(ByteRange::new(*offset, *len)));
        writer.check_listable()?;
        Ok(writer)
    }

    fn start(set: Set, shape: Shape, offset: u64) -> Result<Self> {
        // A chunk has at most 16 MiB.
        let pool = Pool::start(shape.chunk_bytes() as usize, shape.compression)?;
        // What waits holds a run, or what became of it; what is under way both.
        let slots_max = (WAITING_BYTES_MAX / (2 * run_bytes(&shape))) as usize;
        let slots = (2 * pool.threads() + 2).min(slots_max).max(1);
        let shell = Shell::start(set, slots, pool.spare())?;
        let (pending, unreadable) = (Data::new(), Vec::new());
        Ok(Self { shape, shell, pool, pending, offset, unreadable, unlistable: None })
    }

    /// Bytes of evidence pushed so far, those before the checkpoint included: where the next push goes.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes that were added to the files since this writer was started: less than were pushed, if they compress.
    pub fn written(&self) -> u64 {
        self.shell.written()
    }

    /// Appends the next bytes of the evidence; waits while compression or the disk is too far behind. An error is
    /// final: what was durable can be resumed. It is an error, too, that an [`unreadable`](Self::unreadable) range
    /// cannot be recorded: the image would pass stand-ins off as evidence.
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

    /// Hands over what is pending, as far as it makes whole multiples of `unit` or reaches the end of the evidence.
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
            let room = self.shell.reserve().await?;
            let run = self.pending.slice(0, ready);
            self.pending = self.pending.slice(ready, u64::MAX);
            room.send(Command::Append(self.pool.pack(run)));
        }
    }

    /// Says that the evidence cannot be read there; what is pushed for it is but a stand-in. Rounded out to sectors.
    /// The format numbers unreadable sectors with 32 bits, which with 512 bytes a sector covers 2 TiB, and 4 GiB of a
    /// size that is odd. Beyond that nothing can be recorded, and whatever is called next fails.
    pub fn unreadable(&mut self, range: ByteRange) {
        let range = ByteRange::between(range.offset.min(self.shape.size), range.end().min(self.shape.size));
        if range.end() > self.shape.listable_bytes() {
            self.unlistable.get_or_insert(range);
        }
        match self.unreadable.last_mut() {
            _ if range.is_empty() => {}
            Some(last) if last.end() == range.offset => last.len += range.len,
            _ => self.unreadable.push(range),
        }
    }

    /// Fails if there is anything unreadable that the image cannot say is so.
    fn check_listable(&self) -> Result<()> {
        let Some(range) = self.unlistable else { return Ok(()) };
        let (sector_size, end) = (self.shape.sector_size, self.shape.listable_bytes());
        Err(Error::failed(format!(
            "range {range} is unreadable, but an E01 cannot record it: its list of unreadable sectors, here of \
             {sector_size} bytes, ends at byte {end}; acquire to raw or a drive"
        )))
    }

    /// Finishes when what was pushed before, but for a begun chunk, is on stable storage.
    pub async fn checkpoint(&mut self) -> Result<Checkpoint> {
        self.check_listable()?;
        self.hand_over(self.shape.chunk_bytes()).await?;
        let offset = self.offset - self.pending.len();
        let open = self.shell.ask(Command::Sync).await?;
        let before = ByteRange::between(0, offset);
        let unreadable = merged(&self.unreadable).into_iter().filter_map(|range| range.intersection(before));
        let unreadable = unreadable.map(|range| (range.offset, range.len)).collect();
        Ok(Checkpoint { offset, unreadable, shape: self.shape.clone(), open })
    }

    /// Writes the rest, with MD5 and SHA-1 where known, makes it durable, and gives the files their names, the first
    /// segment last. Returns the paths, first segment first.
    pub async fn finish(self, hashes: &Hashes) -> Result<Vec<PathBuf>> {
        self.check_listable()?;
        let (size, offset) = (self.shape.size, self.offset);
        if offset != size {
            return Err(Error::failed(format!("only {offset} of {size} bytes were pushed, so the image is not whole")));
        }
        let unreadable = sectors(&merged(&self.unreadable), u64::from(self.shape.sector_size))?;
        let hashes = Box::new(hashes.clone());
        self.shell.ask(|reply| Command::Finish(hashes, unreadable, reply)).await
    }
}

/// Removes what there is of a set that was never finished, whose first segment was to be called `path`.
pub fn discard_partial(path: &Path) -> Result<()> {
    files::discard(&Names::new(path)?)
}

/// Bytes of evidence that are handed over at once: a whole number of chunks.
fn run_bytes(shape: &Shape) -> u64 {
    let chunk_bytes = shape.chunk_bytes();
    (RUN_BYTES / chunk_bytes).max(1) * chunk_bytes
}

/// In order, without overlaps, and with none that touch.
fn merged(ranges: &[ByteRange]) -> Vec<ByteRange> {
    let mut ranges = ranges.to_vec();
    ranges.sort_unstable();
    let mut merged: Vec<ByteRange> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.offset <= last.end() => {
                *last = ByteRange::between(last.offset, last.end().max(range.end()))
            }
            _ => merged.push(range),
        }
    }
    merged
}

/// As first sector and number of sectors. The format has 32 bits for each; an error if that is not enough.
fn sectors(ranges: &[ByteRange], sector_size: u64) -> Result<Vec<(u32, u32)>> {
    let ranges: Vec<_> = ranges.iter().map(|range| range.aligned_to(sector_size)).collect();
    let ranges = merged(&ranges);
    // So that the number of sectors fits even where they are all unreadable.
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
    async fn what_cannot_be_recorded_as_unreadable_ends_it_at_once() {
        // 32 bits count sectors of 512 bytes; and single bytes, where the size is odd.
        for (size, listable) in [(3072 * GIB, 2048 * GIB), (5 * GIB + 1, 4 * GIB)] {
            let folder = tempfile::tempdir().unwrap();
            let mut writer = create(&folder, size);
            writer.unreadable(ByteRange::new(listable - 512, 512));
            writer.push(Data::zeros(512)).await.unwrap();
            let good = writer.checkpoint().await.unwrap();
            // It touches the one before, and still is what is complained of.
            let bad = ByteRange::new(listable, 512);
            writer.unreadable(bad);
            writer.unreadable(ByteRange::new(0, 512));
            let errors = [
                writer.push(Data::zeros(512)).await.unwrap_err(),
                writer.checkpoint().await.unwrap_err(),
                writer.finish(&Hashes::default()).await.unwrap_err(),
            ];
            for error in errors.map(|error| error.to_string()) {
                let words = [&format!("range {bad} "), "an E01 cannot record it", "acquire to raw or a drive"];
                assert!(words.iter().all(|word| error.contains(*word)), "{error}");
            }
            // As one that only warned may have left it.
            let old = Checkpoint { unreadable: vec![(bad.offset, bad.len)], ..good };
            let resumed = E01Writer::resume(&folder.path().join("x.E01"), size, E01Options::default(), &old);
            assert!(resumed.err().unwrap().to_string().contains("an E01 cannot record it"));
        }
    }

    #[tokio::test]
    async fn odd_sizes_lose_nothing_of_what_is_unreadable() {
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
    fn ranges_are_listed_as_sectors_or_not_at_all() {
        let list = |ranges: &[(u64, u64)], sector_size| {
            let ranges: Vec<_> = ranges.iter().map(|(offset, len)| ByteRange::new(*offset, *len)).collect();
            sectors(&ranges, sector_size).ok()
        };
        assert_eq!(list(&[(5000, 1), (512, 512), (1024, 3)], 512), Some(vec![(1, 2), (9, 1)]));
        assert_eq!(list(&[(5001, 2)], 1), Some(vec![(5001, 2)]));
        // All of what can be listed: one more than 32 bits can say.
        let half = 1 << 31;
        assert_eq!(list(&[(0, 2048 * GIB)], 512), Some(vec![(0, half), (half, half)]));
        assert_eq!(list(&[(4 * GIB - 1, 1)], 1), Some(vec![(u32::MAX, 1)]));
        assert_eq!(list(&[(512, 512), (2048 * GIB, 1)], 512), None);
        assert_eq!(list(&[(4 * GIB - 1, 2)], 1), None);
    }
}
