//! Where hits lie: the volumes of a source, the runs of the files in them, and their free clusters.
//!
//! A lister describes them to a [`PlacesBuilder`], volume by volume. It read hostile data, so runs may overlap, and may lie anywhere.
//! [`Places`] then says of each byte which files hold it ([`Places::at`]), and [`Places::joints_of`] which bytes of a file follow each other in
//! the file and not in the source, so that hits across them can be searched.
//!
//! Of several files that hold a byte, one is named: resident content before the table of records that it lies in, files before deleted
//! ones, content before slack, and all of them before files of other volumes, whose file system claims more than its own. A deleted file
//! whose clusters are in use again is not named, and still counted.

mod across;
mod build;
mod chain;
mod free;
mod tree;

use cheetah_device::ByteRange;

pub use self::across::{AcrossFound, AcrossHit, FileJoints};
pub use self::build::{LeftOut, NewFile, PlaceLimits, PlacesBuilder};

use self::free::FreeClusters;
use self::tree::Tree;

/// The most files that are looked at for one byte.
const HOLDERS_MAX: usize = 1000;

cheetah_kit::named! {
    /// What a byte belongs to.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum PlaceState {
        /// The content of a file.
        Allocated = "allocated",
        /// A cluster of a file behind its content, or the end of a volume behind its last cluster.
        Slack = "slack",
        /// A free cluster.
        Unallocated = "unallocated",
        /// What was the content of a file that is deleted.
        Deleted = "deleted",
        /// A structure of the file system: a folder, one of its own files, or a cluster in use that no file holds.
        Metadata = "metadata",
        /// No volume.
        Outside = "outside",
        /// A volume of which this is not known.
        Unknown = "unknown",
    }
}

/// The place of a byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place<'a> {
    /// The number of its volume.
    pub volume: Option<u32>,
    /// The path of the file that holds it.
    pub path: Option<&'a str>,
    /// What it belongs to.
    pub state: PlaceState,
    /// Its offset in that file; `None` without a file, and for content that is stored otherwise than it is read: compressed.
    pub file_offset: Option<u64>,
    /// The number of further files, and of further names of these, that hold it.
    pub others: u64,
}

/// A run of a file: bytes that follow each other in the file and in the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileRun {
    /// Its offset in the file.
    pub file_offset: u64,
    /// Where it lies in the source.
    pub range: ByteRange,
}

/// A file as it is kept.
#[derive(Debug, Clone)]
struct File {
    volume: u32,
    /// Where its path ends in [`Places::paths`]: it begins where that of the file before ends.
    path_end: usize,
    /// Where its runs end.
    runs_end: usize,
    /// The offset in it behind which its clusters hold no content of its own.
    valid_bytes: u64,
    /// Its further names.
    names: u32,
    is_deleted: bool,
    is_metadata: bool,
    is_resident: bool,
    is_mapped: bool,
}

/// A volume as it is kept.
#[derive(Debug, Clone)]
struct Volume {
    number: u32,
    range: ByteRange,
    free: FreeClusters,
    /// Whether all of its files are known.
    is_whole: bool,
}

/// The volumes, files and free clusters of a source.
#[derive(Debug)]
pub struct Places {
    /// In the order of their numbers.
    volumes: Vec<Volume>,
    files: Vec<File>,
    /// The paths of all files, one after the other.
    paths: String,
    /// The runs of all files, one file after the other.
    runs: Vec<FileRun>,
    tree: Tree,
    left_out: LeftOut,
}

/// How good a file is as the one to name, of those that hold a byte. The least is the best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Resident,
    Content,
    /// Resident content that is deleted or metadata, which lies in the table of records, too.
    InRecord,
    Metadata,
    Slack,
    Deleted,
}

/// A file that holds a byte, and its run that does. The least is the best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Holder {
    /// Whether the byte lies outside of its volume: a file system may claim more, such as the volume behind it.
    is_beyond: bool,
    rank: Rank,
    file: usize,
    run: usize,
}

impl Places {
    /// The number of files.
    pub const fn files(&self) -> usize {
        self.files.len()
    }

    /// What had no room.
    pub const fn left_out(&self) -> LeftOut {
        self.left_out
    }

    /// The number of runs of all files.
    pub const fn runs(&self) -> usize {
        self.runs.len()
    }

    /// The place of the byte at an offset in the source.
    pub fn at(&self, offset: u64) -> Place<'_> {
        let mut holders = Vec::new();
        self.tree.each_at(&self.runs, offset, HOLDERS_MAX, |run| holders.extend(self.holder(run, offset)));
        holders.sort_unstable();
        // A hostile file may hold a byte twice.
        let mut files: Vec<_> = holders.iter().map(|holder| holder.file).collect();
        files.sort_unstable();
        files.dedup();
        let files = files.iter().filter_map(|file| self.files.get(*file));
        let names: u64 = files.map(|file| 1 + u64::from(file.names)).sum();
        let best = holders.iter().find(|holder| self.is_named(holder, offset));
        match best.and_then(|holder| self.held(holder, offset)) {
            Some(place) => Place { others: names.saturating_sub(1), ..place },
            None => Place { others: names, ..self.unheld(offset) },
        }
    }

    /// The place of a file that holds the byte at an offset, which is the first one of a hit across its fragments.
    pub fn of_file(&self, file: usize, file_offset: u64, offset: u64) -> Place<'_> {
        let named = self.at(offset);
        // Itself is one of them.
        let others = named.others.saturating_sub(u64::from(named.path.is_none()));
        let Some(found) = self.files.get(file) else { return Place { others, ..self.unheld(offset) } };
        let state = match found {
            File { is_deleted: true, .. } => PlaceState::Deleted,
            File { is_metadata: true, .. } => PlaceState::Metadata,
            _ => PlaceState::Allocated,
        };
        let file_offset = Some(file_offset);
        Place { volume: Some(found.volume), path: Some(self.path(file)), state, file_offset, others }
    }

    /// The runs of a file, in its order.
    fn runs_of(&self, file: usize) -> &[FileRun] {
        let begin = file.checked_sub(1).and_then(|before| self.files.get(before)).map_or(0, |before| before.runs_end);
        let end = self.files.get(file).map_or(begin, |file| file.runs_end);
        self.runs.get(begin..end).unwrap_or_default()
    }

    /// The path of a file.
    fn path(&self, file: usize) -> &str {
        let begin = file.checked_sub(1).and_then(|before| self.files.get(before)).map_or(0, |before| before.path_end);
        let end = self.files.get(file).map_or(begin, |file| file.path_end);
        self.paths.get(begin..end).unwrap_or_default()
    }

    /// The file of a run that holds a byte; `None` for the slack of a deleted file, which is nobody's.
    fn holder(&self, run: usize, offset: u64) -> Option<Holder> {
        let number = self.files.partition_point(|file| file.runs_end <= run);
        let (file, found) = (self.files.get(number)?, self.runs.get(run)?);
        let volume = self.volume(file.volume);
        let is_beyond = volume.is_some_and(|volume| !volume.range.contains(ByteRange::new(offset, 1)));
        let at = found.file_offset.saturating_add(offset.saturating_sub(found.range.offset));
        let is_content = !file.is_mapped || at < file.valid_bytes;
        let rank = match file {
            File { is_resident: true, is_deleted: false, is_metadata: false, .. } => Rank::Resident,
            File { is_resident: true, .. } => Rank::InRecord,
            File { is_deleted: true, .. } if is_content => Rank::Deleted,
            File { is_deleted: true, .. } => return None,
            File { is_metadata: true, .. } => Rank::Metadata,
            _ if is_content => Rank::Content,
            _ => Rank::Slack,
        };
        Some(Holder { is_beyond, rank, file: number, run })
    }

    /// Whether a file is named: not a deleted one whose cluster is in use again.
    fn is_named(&self, holder: &Holder, offset: u64) -> bool {
        let volume = || self.files.get(holder.file).and_then(|file| self.volume(file.volume));
        holder.rank != Rank::Deleted || volume().and_then(|volume| volume.free.is_free(offset)) != Some(false)
    }

    /// The place of a byte that a file holds.
    fn held(&self, holder: &Holder, offset: u64) -> Option<Place<'_>> {
        let (found, held) = (self.files.get(holder.file)?, self.runs.get(holder.run)?);
        let state = match holder.rank {
            _ if found.is_deleted => PlaceState::Deleted,
            _ if found.is_metadata => PlaceState::Metadata,
            Rank::Slack => PlaceState::Slack,
            _ => PlaceState::Allocated,
        };
        let at = held.file_offset.saturating_add(offset.saturating_sub(held.range.offset));
        let file_offset = found.is_mapped.then_some(at);
        Some(Place { volume: Some(found.volume), path: Some(self.path(holder.file)), state, file_offset, others: 0 })
    }

    /// The place of a byte that no file holds.
    fn unheld(&self, offset: u64) -> Place<'_> {
        let byte = ByteRange::new(offset, 1);
        let around = self.volumes.iter().filter(|volume| volume.range.contains(byte));
        let Some(volume) = around.min_by_key(|volume| volume.range.len) else {
            return Place { volume: None, path: None, state: PlaceState::Outside, file_offset: None, others: 0 };
        };
        let state = match volume.free.is_free(offset) {
            Some(true) => PlaceState::Unallocated,
            Some(false) if volume.is_whole => PlaceState::Metadata,
            Some(false) => PlaceState::Unknown,
            None if volume.free.is_behind(offset) => PlaceState::Slack,
            None if volume.free.is_before(offset) => PlaceState::Metadata,
            None => PlaceState::Unknown,
        };
        Place { volume: Some(volume.number), path: None, state, file_offset: None, others: 0 }
    }

    fn volume(&self, number: u32) -> Option<&Volume> {
        let at = self.volumes.partition_point(|volume| volume.number < number);
        self.volumes.get(at).filter(|volume| volume.number == number)
    }
}

#[cfg(test)]
mod tests;
