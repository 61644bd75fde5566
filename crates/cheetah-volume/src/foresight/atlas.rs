//! Which file lies where, and which comes after which.

use std::collections::HashMap;

use cheetah_device::ByteRange;

use crate::survey::FileRuns;

/// Files and runs of them that are kept; what is beyond is not foreseen. With all of them, 200 MiB or so.
const FILES_MAX: usize = 1 << 21;
const RUNS_MAX: usize = 1 << 22;
/// Directories deeper than this are listed as if they lay in the root.
const DEPTH_MAX: usize = 1 << 10;

/// A file's index in the atlas; stays the same as the atlas grows.
pub(super) type FileIndex = u32;

/// The orders in which somebody may go through files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// As a recursive listing shows them.
    Listing,
    /// By the file system's numbers.
    Number,
    /// As they lie on the device.
    Place,
}

impl Order {
    pub(super) const COUNT: usize = 3;
    pub(super) const ALL: [Self; Self::COUNT] = [Self::Listing, Self::Number, Self::Place];
}

/// What surveys have found so far; an [`Atlas`] is made of it now and then.
#[derive(Default)]
pub(super) struct Finds {
    files: Vec<Found>,
    runs: Vec<ByteRange>,
}

/// A file or a directory of a volume.
#[derive(Debug, Clone, Copy)]
struct Found {
    volume: u32,
    id: u64,
    directory: u64,
    place: u32,
    run: u32,
    runs: u32,
}

impl Finds {
    /// Notes files of the volume of that number, which lies at `volume`.
    pub(super) fn note(&mut self, number: u32, volume: ByteRange, files: impl IntoIterator<Item = FileRuns>) {
        for file in files {
            if self.files.len() >= FILES_MAX || self.runs.len() + file.runs.len() > RUNS_MAX {
                return;
            }
            let placed = |run: &ByteRange| {
                let offset = run.offset.checked_add(volume.offset)?;
                ByteRange::new(offset, run.len).intersection(volume)
            };
            let run = self.runs.len();
            self.runs.extend(file.runs.iter().filter_map(placed));
            let FileRuns { id, directory, place, .. } = file;
            // Not truncated: see the limits.
            let (run, runs) = (run as u32, (self.runs.len() - run) as u32);
            self.files.push(Found { volume: number, id, directory, place, run, runs });
        }
    }

    /// Files noted.
    pub(super) fn count(&self) -> usize {
        self.files.len()
    }

    /// Everything found, in order.
    pub(super) fn atlas(&self) -> Atlas {
        let mut starts: Vec<_> = (0..)
            .zip(&self.files)
            .flat_map(|(index, file)| {
                self.runs_of(file).iter().zip(0..).map(move |(run, nth)| Start { offset: run.offset, file: index, nth })
            })
            .collect();
        starts.sort_unstable_by_key(|start| start.offset);
        let orders = Order::ALL.map(|order| Ranks::new(self.sorted(order), self.files.len()));
        let files = self.files.iter().map(|file| (file.run, file.runs)).collect();
        Atlas { files, runs: self.runs.clone(), starts, orders }
    }

    fn runs_of(&self, file: &Found) -> &[ByteRange] {
        self.runs.get(file.run as usize..(file.run + file.runs) as usize).unwrap_or_default()
    }

    fn sorted(&self, order: Order) -> Vec<FileIndex> {
        let mut all: Vec<_> = (0..).zip(&self.files).map(|(index, file)| (index, *file)).collect();
        match order {
            Order::Listing => return self.listed(),
            Order::Number => all.sort_by_key(|(_, file)| (file.volume, file.id)),
            Order::Place => {
                all.retain(|(_, file)| file.runs > 0);
                all.sort_by_key(|(_, file)| self.runs_of(file).first().map(|run| run.offset));
            }
        }
        all.into_iter().map(|(index, _)| index).collect()
    }

    /// Depth first, each directory's entries by their places. Directories that nothing leads to come in the order in
    /// which they were found.
    fn listed(&self) -> Vec<FileIndex> {
        let key = |file: &Found| (file.volume, file.directory, file.place);
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
        // Those that are in no other first; the others only if they are left over, as where the tree is a circle.
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

/// Where a run of a file starts.
#[derive(Debug, Clone, Copy)]
struct Start {
    offset: u64,
    file: FileIndex,
    nth: u32,
}

/// Files by offset and by order. Does not change.
#[derive(Default)]
pub(super) struct Atlas {
    /// For each its first run, and how many.
    files: Vec<(u32, u32)>,
    runs: Vec<ByteRange>,
    starts: Vec<Start>,
    orders: [Ranks; Order::COUNT],
}

/// One order of all files.
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

impl Atlas {
    /// The file that whoever reads `range` is reading: one that has a run starting on the range's first page, or else the
    /// one that its first byte is in. And where in the file that is. Files that only lie in the range's way are not read
    /// by anybody.
    pub(super) fn file_at(&self, range: ByteRange) -> Option<(FileIndex, u64)> {
        /// What kernels read at least, from multiples of it.
        const PAGE: u64 = 4096;
        let next = self.starts.partition_point(|start| start.offset < range.offset);
        let starting = self.starts.get(next).filter(|start| start.offset < range.end());
        if let Some(start) = starting.filter(|start| start.offset - range.offset < PAGE) {
            return Some((start.file, self.position(start, start.offset)));
        }
        let before = self.starts.get(next.checked_sub(1)?)?;
        let inside = self.run(before).is_some_and(|run| run.end() > range.offset);
        inside.then(|| (before.file, self.position(before, range.offset)))
    }

    fn run(&self, start: &Start) -> Option<ByteRange> {
        self.runs_of(start.file).get(start.nth as usize).copied()
    }

    /// Bytes of content before `offset`, which is in the run that starts there.
    fn position(&self, start: &Start, offset: u64) -> u64 {
        let runs = self.runs_of(start.file).iter().take(start.nth as usize);
        runs.fold(offset - start.offset, |sum, run| sum.saturating_add(run.len))
    }

    /// Where a file's content lies; nothing for one without any.
    pub(super) fn runs_of(&self, file: FileIndex) -> &[ByteRange] {
        let Some((run, runs)) = self.files.get(file as usize) else { return &[] };
        self.runs.get(*run as usize..(*run + *runs) as usize).unwrap_or_default()
    }

    /// A file's place in an order.
    pub(super) fn rank(&self, order: Order, file: FileIndex) -> Option<u32> {
        self.orders[order as usize].ranks.get(file as usize).copied().filter(|rank| *rank != u32::MAX)
    }

    /// The file at a place in an order.
    pub(super) fn at_rank(&self, order: Order, rank: u32) -> Option<FileIndex> {
        self.orders[order as usize].files.get(rank as usize).copied()
    }

    /// Files in it.
    pub(super) fn count(&self) -> usize {
        self.files.len()
    }
}
