//! The files of a device by offset, and in the orders in which tools read them.

use std::collections::HashMap;

use cheetah_device::ByteRange;

use super::pieces::Pieces;
use crate::survey::{FileRuns, WINDOW_BYTES};

/// The maximum numbers of files and runs kept; others are not predicted. All of them take about 200 MiB.
const FILES_MAX: usize = 1 << 21;
const RUNS_MAX: usize = 1 << 22;
/// Directories deeper than this are listed like those in the root.
const DEPTH_MAX: usize = 1 << 10;

/// The unit in which kernels read, in bytes.
const PAGE: u64 = 4096;

/// The index of a file; stays the same as the map grows.
pub(super) type FileIndex = u32;

/// An order in which a tool may read files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileOrder {
    /// The order of a recursive listing.
    Listing,
    /// By the file system's number.
    Number,
    /// By the offset of the content.
    Place,
}

impl FileOrder {
    pub(super) const COUNT: usize = 3;
    pub(super) const ALL: [Self; Self::COUNT] = [Self::Listing, Self::Number, Self::Place];
}

/// The files found by surveys so far; builds a [`FileMap`] from time to time.
#[derive(Default)]
pub(super) struct FileMapBuilder {
    files: Vec<LocatedFile>,
    runs: Vec<ByteRange>,
}

/// A file or directory of a volume.
#[derive(Debug, Clone, Copy)]
struct LocatedFile {
    volume: u32,
    id: u64,
    directory: u64,
    place: u32,
    run: u32,
    runs: u32,
}

impl FileMapBuilder {
    /// Adds files of the volume with that number, which lies in these pieces.
    pub(super) fn note(&mut self, number: u32, volume: &Pieces, files: impl IntoIterator<Item = FileRuns>) {
        for file in files {
            if self.files.len() >= FILES_MAX || self.runs.len() + file.runs.len() > RUNS_MAX {
                return;
            }
            let run = self.runs.len();
            let placed = file.runs.iter().flat_map(|run| volume.within(*run));
            self.runs.extend(placed.take(RUNS_MAX - run));
            let FileRuns { id, directory, place, .. } = file;
            // Not truncated: see the limits.
            let (run, runs) = (run as u32, (self.runs.len() - run) as u32);
            self.files.push(LocatedFile { volume: number, id, directory, place, run, runs });
        }
    }

    /// Returns the number of files.
    pub(super) fn count(&self) -> usize {
        self.files.len()
    }

    /// Builds the map of all files.
    pub(super) fn build(&self) -> FileMap {
        let mut starts: Vec<_> = (0..)
            .zip(&self.files)
            .flat_map(|(index, file)| {
                self.runs_of(file).iter().zip(0..).map(move |(run, nth)| RunStart {
                    offset: run.offset,
                    file: index,
                    nth,
                })
            })
            .collect();
        starts.sort_unstable_by_key(|start| start.offset);
        let orders = FileOrder::ALL.map(|order| Ranks::new(self.sorted(order), self.files.len()));
        let files = self.files.iter().map(|file| (file.run, file.runs)).collect();
        FileMap { files, runs: self.runs.clone(), starts, orders }
    }

    fn runs_of(&self, file: &LocatedFile) -> &[ByteRange] {
        self.runs.get(file.run as usize..(file.run + file.runs) as usize).unwrap_or_default()
    }

    fn sorted(&self, order: FileOrder) -> Vec<FileIndex> {
        let mut all: Vec<_> = (0..).zip(&self.files).map(|(index, file)| (index, *file)).collect();
        match order {
            FileOrder::Listing => return self.listed(),
            FileOrder::Number => all.sort_by_key(|(_, file)| (file.volume, file.id)),
            FileOrder::Place => {
                all.retain(|(_, file)| file.runs > 0);
                all.sort_by_key(|(_, file)| self.runs_of(file).first().map(|run| run.offset));
            }
        }
        all.into_iter().map(|(index, _)| index).collect()
    }

    /// Lists depth first, each directory's entries by their positions. Unreachable directories come last, in the order
    /// in which they were found.
    fn listed(&self) -> Vec<FileIndex> {
        let key = |file: &LocatedFile| (file.volume, file.directory, file.place);
        let mut entries: Vec<FileIndex> = (0..self.files.len() as u32).collect();
        let file = |index: &FileIndex| self.files.get(*index as usize);
        entries.sort_by_key(|index| file(index).map(key));
        let mut directories = HashMap::new();
        let mut at = 0;
        for chunk in entries
            .chunk_by(|a, b| file(a).map(|f| (f.volume, f.directory)) == file(b).map(|f| (f.volume, f.directory)))
        {
            if let Some(found) = chunk.first().and_then(file) {
                directories.insert((found.volume, found.directory), (at, at + chunk.len()));
            }
            at += chunk.len();
        }
        let mut listed = Vec::with_capacity(entries.len());
        let inner: std::collections::HashSet<_> =
            self.files.iter().filter(|file| file.id != file.directory).map(|file| (file.volume, file.id)).collect();
        let mut roots: Vec<_> = directories.iter().map(|(name, (at, _))| (inner.contains(name), *at, *name)).collect();
        // Directories without a parent first; the others only if they are unreachable, as in a cycle.
        roots.sort_unstable();
        for (_, _, root) in roots {
            let mut path: Vec<(usize, usize)> = directories.remove(&root).into_iter().collect();
            while let Some((at, end)) = path.last_mut() {
                if at == end {
                    path.pop();
                    continue;
                }
                let index = entries.get(*at).copied();
                *at += 1;
                let Some((index, file)) = index.and_then(|index| Some((index, file(&index)?))) else { continue };
                listed.push(index);
                if path.len() < DEPTH_MAX {
                    path.extend(directories.remove(&(file.volume, file.id)));
                }
            }
        }
        listed
    }
}

/// The start of a run of a file.
#[derive(Debug, Clone, Copy)]
struct RunStart {
    offset: u64,
    file: FileIndex,
    nth: u32,
}

/// Files by offset and by order. Immutable.
#[derive(Default)]
pub(super) struct FileMap {
    /// The first run of each file, and the number of its runs.
    files: Vec<(u32, u32)>,
    runs: Vec<ByteRange>,
    starts: Vec<RunStart>,
    orders: [Ranks; FileOrder::COUNT],
}

/// All files in one order.
#[derive(Default)]
struct Ranks {
    files: Vec<FileIndex>,
    ranks: Vec<u32>,
}

impl Ranks {
    fn new(files: Vec<FileIndex>, count: usize) -> Self {
        let mut ranks = vec![u32::MAX; count];
        for (index, rank) in files.iter().zip(0..) {
            if let Some(slot) = ranks.get_mut(*index as usize) {
                *slot = rank;
            }
        }
        Self { files, ranks }
    }
}

impl FileMap {
    /// Returns the file that a read of `range` belongs to, and the position in it: the file with a run that starts on
    /// the range's first page, or else the one that contains its first byte. The reader is assumed not to want other
    /// files in the range.
    pub(super) fn file_at(&self, range: ByteRange) -> Option<(FileIndex, u64)> {
        let next = self.starts.partition_point(|start| start.offset < range.offset);
        let starting = self.starts.get(next).filter(|start| start.offset < range.end());
        if let Some(start) = starting.filter(|start| start.offset - range.offset < PAGE) {
            return Some((start.file, self.position(start, start.offset)));
        }
        let before = self.starts.get(next.checked_sub(1)?)?;
        let inside = self.run(before).is_some_and(|run| run.end() > range.offset);
        inside.then(|| (before.file, self.position(before, range.offset)))
    }

    /// Returns the file whose first window ends where `range` does, and the position in it. Tools read whole windows from the
    /// starts of files, and the kernel requests only the end of a window if it has cached the rest with other files.
    pub(super) fn file_of_window_end(&self, range: ByteRange) -> Option<(FileIndex, u64)> {
        let window = range.end().checked_sub(WINDOW_BYTES).filter(|window| *window < range.offset)?;
        // The window may start within a page; requests are whole pages.
        let first = self.starts.partition_point(|start| start.offset.saturating_add(PAGE) <= window);
        let start = self.starts.get(first).filter(|start| start.offset <= window && start.nth == 0)?;
        Some((start.file, range.offset - start.offset))
    }

    fn run(&self, start: &RunStart) -> Option<ByteRange> {
        self.runs_of(start.file).get(start.nth as usize).copied()
    }

    /// Returns the bytes of content before `offset`, which is in the run that starts there.
    fn position(&self, start: &RunStart, offset: u64) -> u64 {
        let runs = self.runs_of(start.file).iter().take(start.nth as usize);
        runs.fold(offset - start.offset, |sum, run| sum.saturating_add(run.len))
    }

    /// Returns the extents of a file's content.
    pub(super) fn runs_of(&self, file: FileIndex) -> &[ByteRange] {
        let Some((run, runs)) = self.files.get(file as usize) else { return &[] };
        self.runs.get(*run as usize..(*run + *runs) as usize).unwrap_or_default()
    }

    /// Returns the rank of a file in an order.
    pub(super) fn rank(&self, order: FileOrder, file: FileIndex) -> Option<u32> {
        self.orders[order as usize].ranks.get(file as usize).copied().filter(|rank| *rank != u32::MAX)
    }

    /// Returns the file at a rank in an order.
    pub(super) fn at_rank(&self, order: FileOrder, rank: u32) -> Option<FileIndex> {
        self.orders[order as usize].files.get(rank as usize).copied()
    }

    /// Returns the number of files.
    pub(super) fn count(&self) -> usize {
        self.files.len()
    }
}
