//! FAT12, FAT16, FAT32 and exFAT.
//!
//! After Microsoft's *FAT32 File System Specification* (1.03) and *exFAT file system specification*. The order of
//! requests follows the reads of The Sleuth Kit (4.11):
//!
//! 1. On opening, the boot sector, which is already present; for exFAT also the start of the root directory, which
//!    locates the cluster bitmap. FSInfo and the upper-case table are not read.
//! 2. The first table, cluster by cluster and in the end all of it. The second table is only read as a file. exFAT uses
//!    the bitmap for allocation and the table for fragmented files only, so there only the needed parts are read.
//! 3. Directories; of deleted ones the first cluster. A directory is located by its parent, so the dependent steps are
//!    the table and the root, which are requested together, and then one per level of the tree. Every read of the tool
//!    extends to 64 KiB, so that window is fetched once all directories are known.
//! 4. For a recursive listing of the root, every unused cluster in sequence, which may hold entries of lost
//!    directories. That is most of an empty volume and sequential, so it is left to read-ahead.
//!
//! A deleted file is assumed to occupy the unused clusters from its first one on, as The Sleuth Kit does.

mod boot;
mod entry;
mod table;

use std::collections::{HashMap, HashSet};

use cheetah_device::ByteRange;
use smallvec::SmallVec;

use self::boot::{Geometry, Kind, Root};
use self::entry::{ENTRY_BYTES, ExFat, FatEntry};
use self::table::{Table, TableEntry};
use crate::survey::directory_tree::DirectoryTree;
use crate::survey::pending_reads::{PendingReads, part_of};
use crate::survey::{FileRuns, SurveyPlan, Surveyor};

/// The maximum size of a FAT directory: 65,536 entries.
const FAT_DIRECTORY_BYTES_MAX: u64 = 2 << 20;
/// The maximum size of an exFAT directory.
const EXFAT_DIRECTORY_BYTES_MAX: u64 = 256 << 20;
/// The maximum number of runs kept of a file.
const RUNS_MAX: usize = 1 << 16;
/// The maximum number of files that wait for the table.
const WAITING_MAX: usize = 1 << 20;
/// The maximum number of table lookups per cluster, each of which belongs to one file; more indicates damage.
const LOOKS_PER_CLUSTER: u64 = 4;
/// The identifier of the root, which has no entry; others are identified by the offset of theirs.
const ROOT: u64 = 0;

/// Returns a surveyor, if the volume starts like one of these file systems.
pub(crate) fn recognise(start: &[u8]) -> Option<Box<dyn Surveyor>> {
    Some(Box::new(Fat::new(Geometry::parse(start)?)))
}

/// The content of a requested range.
#[derive(Debug, Clone, Copy)]
enum ReadPurpose {
    Table,
    /// Part of a directory, starting at this offset of its content.
    Directory {
        id: u64,
        at: u64,
        is_deleted: bool,
    },
}

/// A chain of clusters being followed.
#[derive(Debug)]
struct Chain {
    id: u64,
    directory: u64,
    place: u32,
    found: FatEntry,
    step: Step,
    /// The number of clusters still missing.
    left: u32,
    /// Runs of clusters: first and count; for a directory, those not yet requested.
    runs: SmallVec<[(u32, u32); 1]>,
    /// The number of requested clusters of a directory.
    asked: u32,
}

/// The next step for a cluster of a chain.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// Add it to the chain.
    Take(u32),
    /// Added: find its successor.
    After(u32),
    /// Add it to a deleted file, unless reallocated.
    TakeIfFree(u32),
}

impl Chain {
    fn take(&mut self, cluster: u32) {
        self.left = self.left.saturating_sub(1);
        match self.runs.last_mut() {
            Some((first, count)) if first.checked_add(*count) == Some(cluster) => *count += 1,
            _ => self.runs.push((cluster, 1)),
        }
    }
}

/// Surveys one volume.
struct Fat {
    geometry: Geometry,
    table: Table,
    asked: PendingReads<ReadPurpose>,
    tree: DirectoryTree,
    /// The first clusters of known directories.
    directories: HashSet<u32>,
    /// Chains that wait for a part of the table.
    waiting: Vec<Chain>,
    /// Files whose two entries arrive separately, by directory and the second entry's position.
    parted: HashMap<(u64, u64), SplitEntry>,
    looks_left: u64,
    is_over: bool,
}

/// One of a file's two exFAT entries; the other arrives in another range.
#[derive(Debug, Clone, Copy)]
enum SplitEntry {
    File { id: u64, is_directory: bool, is_deleted: bool },
    Stream { cluster: u32, size: u64, is_contiguous: bool },
}

impl Surveyor for Fat {
    fn name(&self) -> &'static str {
        match self.geometry.kind {
            Kind::Fat12 => "FAT12",
            Kind::Fat16 => "FAT16",
            Kind::Fat32 => "FAT32",
            Kind::ExFat => "exFAT",
        }
    }

    fn start(&mut self, plan: &mut SurveyPlan) {
        if self.geometry.kind != Kind::ExFat {
            let table = self.table.kept();
            self.table.request(table);
            self.asked.request(table, |_| ReadPurpose::Table);
        }
        match self.geometry.root {
            Root::Fixed(range) => {
                self.asked.request(range, |at| ReadPurpose::Directory { id: ROOT, at, is_deleted: false });
                self.tree.directory(ROOT, range);
            }
            Root::Chain(cluster) => {
                let size = (self.geometry.kind == Kind::ExFat).then_some(EXFAT_DIRECTORY_BYTES_MAX);
                let found = FatEntry { is_directory: true, is_deleted: false, cluster, size, is_contiguous: false };
                self.found(ROOT, ROOT, 0, found, plan);
            }
        }
        self.asked.submit(plan);
    }

    fn arrived(&mut self, range: ByteRange, bytes: &[u8], plan: &mut SurveyPlan) {
        let parts = self.asked.take(range);
        for (part, note) in parts {
            let bytes = part_of(bytes, range, part);
            match note {
                ReadPurpose::Table => self.table_arrived(part, bytes, plan),
                ReadPurpose::Directory { id, at, is_deleted } => self.directory(id, at, is_deleted, part, bytes, plan),
            }
        }
        self.asked.submit(plan);
    }

    fn failed(&mut self, range: ByteRange, plan: &mut SurveyPlan) {
        for (part, note) in self.asked.take(range) {
            if let ReadPurpose::Table = note {
                self.table_arrived(part, &[], plan);
            }
        }
        self.asked.submit(plan);
    }

    fn idle(&mut self, plan: &mut SurveyPlan) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        for range in self.table.here() {
            self.asked.fetch_window(range, plan);
        }
        for range in std::mem::take(&mut self.tree).in_order(ROOT, plan) {
            self.asked.fetch_window(range, plan);
        }
        if self.geometry.kind != Kind::ExFat {
            self.asked.fetch(self.geometry.table, plan);
        }
    }
}

impl Fat {
    fn new(geometry: Geometry) -> Self {
        Self {
            table: Table::new(&geometry),
            asked: PendingReads::new(geometry.volume_bytes),
            looks_left: u64::from(geometry.clusters) * LOOKS_PER_CLUSTER + 1000,
            geometry,
            tree: DirectoryTree::default(),
            directories: HashSet::new(),
            waiting: Vec::new(),
            parted: HashMap::new(),
            is_over: false,
        }
    }

    fn table_arrived(&mut self, part: ByteRange, bytes: &[u8], plan: &mut SurveyPlan) {
        self.table.arrived(part, bytes);
        for chain in std::mem::take(&mut self.waiting) {
            self.follow(chain, plan);
        }
    }

    fn directory(&mut self, id: u64, at: u64, is_deleted: bool, range: ByteRange, bytes: &[u8], plan: &mut SurveyPlan) {
        for (index, bytes) in (0u64..).zip(bytes.chunks_exact(ENTRY_BYTES)) {
            let step = index * ENTRY_BYTES as u64;
            let (entry, at) = (range.offset + step, at + step);
            match self.geometry.kind {
                Kind::ExFat => self.ex_fat_entry(id, at, entry, bytes, plan),
                kind => {
                    if let Some(mut found) = entry::fat(bytes, kind == Kind::Fat32) {
                        found.is_deleted |= is_deleted;
                        self.found(entry, id, place(at), found, plan);
                    }
                }
            }
        }
    }

    /// Handles an exFAT entry at this offset of a directory and of the volume. A file's two relevant entries are
    /// adjacent, but may arrive in different ranges and in either order.
    fn ex_fat_entry(&mut self, directory: u64, at: u64, entry: u64, bytes: &[u8], plan: &mut SurveyPlan) {
        let (half, at) = match entry::ex_fat(bytes) {
            None => return,
            Some(ExFat::Bitmap { cluster, size }) => {
                let range = self.geometry.range(cluster, self.geometry.clusters_for(size));
                if directory == ROOT {
                    self.asked.fetch_window(ByteRange::new(range.offset, range.len.min(size)), plan);
                }
                return;
            }
            Some(ExFat::File { is_directory, is_deleted }) => {
                (SplitEntry::File { id: entry, is_directory, is_deleted }, at + ENTRY_BYTES as u64)
            }
            Some(ExFat::Stream { cluster, size, is_contiguous }) => {
                (SplitEntry::Stream { cluster, size, is_contiguous }, at)
            }
        };
        let (file, stream) = match (self.parted.remove(&(directory, at)), half) {
            (Some(file @ SplitEntry::File { .. }), stream @ SplitEntry::Stream { .. }) => (file, stream),
            (Some(stream @ SplitEntry::Stream { .. }), file @ SplitEntry::File { .. }) => (file, stream),
            _ => {
                // Usually removed with the next entry.
                if self.parted.len() < WAITING_MAX {
                    self.parted.insert((directory, at), half);
                }
                return;
            }
        };
        if let (
            SplitEntry::File { id, is_directory, is_deleted },
            SplitEntry::Stream { cluster, size, is_contiguous },
        ) = (file, stream)
        {
            let found = FatEntry { is_directory, is_deleted, cluster, size: Some(size), is_contiguous };
            self.found(id, directory, place(at), found, plan);
        }
    }

    /// Handles a file or a directory.
    fn found(&mut self, id: u64, directory: u64, place: u32, found: FatEntry, plan: &mut SurveyPlan) {
        let FatEntry { cluster, size, is_directory, is_deleted, is_contiguous } = found;
        if !self.geometry.has(cluster) || size == Some(0) || (is_directory && !self.directories.insert(cluster)) {
            return;
        }
        let is_ex_fat = self.geometry.kind == Kind::ExFat;
        let bytes = match (is_directory, is_ex_fat) {
            // Only the first cluster of a deleted directory is read.
            (true, _) if is_deleted && !is_contiguous => self.geometry.cluster_bytes,
            (true, true) => size.unwrap_or(0).min(EXFAT_DIRECTORY_BYTES_MAX),
            (true, false) => FAT_DIRECTORY_BYTES_MAX,
            (false, _) => size.unwrap_or(0),
        };
        let left = self.geometry.clusters_for(bytes).min(self.geometry.clusters);
        if is_directory && id != ROOT {
            self.tree.name(directory, place, id);
        }
        let step = if is_deleted && !is_directory { Step::TakeIfFree(cluster) } else { Step::Take(cluster) };
        let mut chain = Chain { id, directory, place, found, step, left, runs: SmallVec::new(), asked: 0 };
        if is_contiguous {
            chain.runs.push((cluster, left));
            self.ended(chain, plan);
        } else if !(is_ex_fat && is_deleted && !is_directory) {
            // The exFAT bitmap, which records free clusters, is not read.
            self.follow(chain, plan);
        }
    }

    /// Follows a chain as far as the table is present.
    fn follow(&mut self, mut chain: Chain, plan: &mut SurveyPlan) {
        while chain.left > 0 && self.looks_left > 0 && chain.runs.len() < RUNS_MAX {
            self.looks_left -= 1;
            chain.step = match chain.step {
                Step::Take(cluster) | Step::TakeIfFree(cluster) if !self.geometry.has(cluster) => break,
                Step::Take(cluster) => {
                    chain.take(cluster);
                    Step::After(cluster)
                }
                Step::After(cluster) => match self.table.next(cluster) {
                    TableEntry::Cluster(next) => Step::Take(next),
                    TableEntry::Free | TableEntry::End => break,
                    TableEntry::Unknown(part) => return self.wait(chain, part, plan),
                },
                Step::TakeIfFree(cluster) => {
                    match self.table.next(cluster) {
                        TableEntry::Free => chain.take(cluster),
                        TableEntry::Unknown(part) => return self.wait(chain, part, plan),
                        // Its first cluster was reallocated, so nothing is left of it.
                        _ if chain.runs.is_empty() => return,
                        _ => {}
                    }
                    Step::TakeIfFree(cluster + 1)
                }
            };
        }
        self.ended(chain, plan);
    }

    /// Suspends a chain until a part of the table arrives. The known part of a directory is requested at once.
    fn wait(&mut self, mut chain: Chain, part: ByteRange, plan: &mut SurveyPlan) {
        if self.table.is_away(part) {
            self.table.request(part);
            if !self.asked.request(part, |_| ReadPurpose::Table) {
                self.table.arrived(part, &[]);
            }
        }
        if self.table.is_asked(part) && self.waiting.len() < WAITING_MAX {
            self.ask_for_directory(&mut chain);
            self.waiting.push(chain);
        } else {
            self.ended(chain, plan);
        }
    }

    /// Finishes a chain.
    fn ended(&mut self, mut chain: Chain, plan: &mut SurveyPlan) {
        self.ask_for_directory(&mut chain);
        let mut left = chain.found.size.unwrap_or(0);
        let mut runs: SmallVec<[ByteRange; 2]> = SmallVec::new();
        for (first, count) in &chain.runs {
            let mut range = self.geometry.range(*first, *count);
            range.len = range.len.min(left);
            left -= range.len;
            if !range.is_empty() {
                runs.push(range);
            }
        }
        if !chain.found.is_directory && !runs.is_empty() {
            plan.file(FileRuns { id: chain.id, directory: chain.directory, place: chain.place, runs });
        }
    }

    /// Requests the known, unrequested runs of a directory.
    fn ask_for_directory(&mut self, chain: &mut Chain) {
        if !chain.found.is_directory {
            return;
        }
        for (first, count) in std::mem::take(&mut chain.runs) {
            let start = u64::from(chain.asked) * self.geometry.cluster_bytes;
            let range = self.geometry.range(first, count);
            let (id, is_deleted) = (chain.id, chain.found.is_deleted);
            self.asked.request(range, |at| ReadPurpose::Directory { id, at: start + at, is_deleted });
            self.tree.directory(id, range);
            chain.asked = chain.asked.saturating_add(count);
        }
    }
}

/// The index of an entry.
fn place(at: u64) -> u32 {
    u32::try_from(at / ENTRY_BYTES as u64).unwrap_or(u32::MAX)
}
