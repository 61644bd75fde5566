//! ext2, ext3 and ext4.
//!
//! The layout follows the kernel's `Documentation/filesystems/ext4`. The order of requests follows the reads of The
//! Sleuth Kit (4.11):
//!
//! 1. On opening, the superblock, which is in the start of the volume and already present. The journal is not read.
//! 2. The group descriptors, mostly present as well.
//! 3. For each name, its group's inode bitmap and its inode. The next step therefore requests all inode bitmaps, and
//!    the used part of all inode tables, at once. Descriptors with checksums record the size of that part; otherwise
//!    the bitmaps give it one step later.
//! 4. The blocks of each directory, preceded by its extent index blocks or indirect blocks, as soon as its inode is
//!    known, regardless of its place in the tree. The blocks of an `htree` are read in sequence like those of any
//!    directory. Targets of symbolic links in separate blocks without extents. Every read of the tool extends to 64
//!    KiB, so that window is fetched around each directory once all are known, in the order of a listing.
//! 5. For a recursive listing of the root, all unused inodes, among which the tool looks for deleted ones: the rest of
//!    every inode table, even if never used. It is only fetched, as are block bitmaps, which reading a file needs and
//!    listing does not, and the blocks of deleted directories.
//! 6. To locate files, their index blocks and indirect blocks, which a listing does not need.
//!
//! The dependent steps are the descriptors, the bitmaps in old file systems, the inode tables, and the directories; a
//! directory with index blocks adds one per level.

mod directory;
mod files;
mod group;
mod inode;
mod mapping;
mod superblock;

use cheetah_device::{ByteRange, coalesce};
use smallvec::SmallVec;

use self::directory::ENTRY_ALIGNMENT;
use self::files::{Content, Files, Name};
use self::group::Group;
use self::inode::{Form, Inode, Kind};
use self::mapping::{Mapped, Node, Run};
use self::superblock::Layout;
use crate::survey::directory_tree::DirectoryTree;
use crate::survey::pending_reads::{GAP_BYTES, PendingReads, part_of};
use crate::survey::{FileRuns, SurveyPlan, Surveyor};

/// The inode of the root directory.
const ROOT: u64 = 2;
/// The maximum number of map blocks read: 256 MiB with blocks of 4 KiB.
const FILE_NODES_MAX: usize = 1 << 16;
/// The maximum amount fetched of the part that a listing reads last; it is read in sequence, so read-ahead covers it.
const LATER_BYTES_MAX: u64 = 1 << 30;
/// The number of blocks read of a symbolic link.
const LINK_BLOCKS_MAX: usize = 12;

/// Returns a surveyor, if the volume starts like one of these file systems.
pub(crate) fn recognise(start: &[u8]) -> Option<Box<dyn Surveyor>> {
    let layout = Layout::parse(start)?;
    Some(Box::new(Ext::new(layout, start)))
}

/// The content of a requested range.
#[derive(Debug, Clone, Copy)]
enum ReadPurpose {
    /// Descriptors, starting with this group's.
    Descriptors { group: u32 },
    /// A group's inode bitmap, which determines the part of its inode table to read.
    Bitmap { group: u32, inode_table: u64 },
    /// Inodes, starting with this one.
    Inodes { inode: u32 },
    /// Blocks of a directory, starting at this offset of its content.
    Directory { inode: u32, at: u64 },
    /// A block of the map of a directory.
    DirectoryNode { inode: u32, node: Node },
    /// A block of the map of a file.
    FileNode { inode: u32, node: Node },
    /// Content that only tools use.
    Passed,
}

/// Surveys one file system.
struct Ext {
    layout: Layout,
    /// The part of the volume that is present from the start.
    start: Vec<u8>,
    asked: PendingReads<ReadPurpose>,
    files: Files,
    tree: DirectoryTree,
    /// Requests for descriptors, bitmaps, inodes and link targets.
    soon: Vec<ByteRange>,
    /// Requests for map blocks of files, at lower priority.
    nodes: Vec<(u32, u64, Node)>,
    /// Whether everything that a listing needs was requested.
    is_over: bool,
    /// Ranges that a listing reads last, or not at all.
    later: Vec<ByteRange>,
}

impl Surveyor for Ext {
    fn name(&self) -> &'static str {
        self.layout.name
    }

    fn start(&mut self, plan: &mut SurveyPlan) {
        let start = std::mem::take(&mut self.start);
        let here = ByteRange::new(0, start.len() as u64);
        for (range, group) in self.layout.descriptors() {
            self.soon.push(range);
            if here.contains(range) {
                self.descriptors(group, part_of(&start, here, range));
                continue;
            }
            let descriptor_bytes = self.layout.descriptor_bytes;
            // Requests are split at block boundaries, so they hold whole descriptors.
            let group_at = |at| group.saturating_add(u32::try_from(at / descriptor_bytes).unwrap_or(u32::MAX));
            self.asked.request(range, |at| ReadPurpose::Descriptors { group: group_at(at) });
        }
        self.asked.submit(plan);
    }

    fn arrived(&mut self, range: ByteRange, bytes: &[u8], plan: &mut SurveyPlan) {
        for (part, note) in self.asked.take(range) {
            let bytes = part_of(bytes, range, part);
            match note {
                ReadPurpose::Descriptors { group } => self.descriptors(group, bytes),
                ReadPurpose::Bitmap { group, inode_table } => {
                    self.inode_table(group, inode_table, group::used_in(bytes, self.layout.group_inodes));
                }
                ReadPurpose::Inodes { inode } => self.inodes(inode, bytes, plan),
                ReadPurpose::Directory { inode, at } => self.directory(inode, at, bytes, plan),
                ReadPurpose::DirectoryNode { inode, node } => {
                    let mapped = Mapped::of_node(bytes, node, &self.layout);
                    self.directory_map(inode, &mapped);
                }
                ReadPurpose::FileNode { inode, node } => self.file_node(inode, node, bytes, plan),
                ReadPurpose::Passed => {}
            }
        }
        self.asked.submit(plan);
    }

    fn failed(&mut self, range: ByteRange, plan: &mut SurveyPlan) {
        for (_, note) in self.asked.take(range) {
            match note {
                // Without its bitmap, all of a group's inodes may be in use.
                ReadPurpose::Bitmap { group, inode_table } => {
                    self.inode_table(group, inode_table, self.layout.group_inodes)
                }
                ReadPurpose::FileNode { inode, .. } => self.files.mapped(inode, &[], 0, &self.layout, plan),
                _ => {}
            }
        }
        self.asked.submit(plan);
    }

    fn idle(&mut self, plan: &mut SurveyPlan) {
        if !self.is_over {
            self.is_over = true;
            self.fetch_windows(plan);
            self.ask_for_nodes(plan);
        } else {
            self.files.finish(&self.layout, plan);
        }
    }
}

impl Ext {
    fn new(layout: Layout, start: &[u8]) -> Self {
        let asked = PendingReads::new(layout.volume_bytes());
        Self {
            layout,
            start: start.to_vec(),
            asked,
            files: Files::default(),
            tree: DirectoryTree::default(),
            soon: Vec::new(),
            later: Vec::new(),
            nodes: Vec::new(),
            is_over: false,
        }
    }

    /// Once all directories are known: fetches the windows that tools read around them, then the ranges read last.
    fn fetch_windows(&mut self, plan: &mut SurveyPlan) {
        for range in std::mem::take(&mut self.soon) {
            self.asked.fetch_window(range, plan);
        }
        for range in std::mem::take(&mut self.tree).in_order(ROOT, plan) {
            self.asked.fetch_window(range, plan);
        }
        let mut left = LATER_BYTES_MAX;
        for range in coalesce(std::mem::take(&mut self.later), GAP_BYTES) {
            self.asked.fetch_window(ByteRange::new(range.offset, range.len.min(left)), plan);
            left = left.saturating_sub(range.len);
        }
    }

    /// Requests the map blocks of files.
    fn ask_for_nodes(&mut self, plan: &mut SurveyPlan) {
        for (inode, block, node) in std::mem::take(&mut self.nodes) {
            let range = self.layout.range(block, 1);
            if !range.is_some_and(|range| self.asked.request(range, |_| ReadPurpose::FileNode { inode, node })) {
                self.files.mapped(inode, &[], 0, &self.layout, plan);
            }
        }
        self.asked.submit(plan);
    }

    fn descriptors(&mut self, first: u32, bytes: &[u8]) {
        let descriptor_bytes = usize::try_from(self.layout.descriptor_bytes).unwrap_or(usize::MAX);
        for (number, descriptor) in (first..self.layout.groups).zip(bytes.chunks_exact(descriptor_bytes)) {
            let group = Group::parse(descriptor, &self.layout);
            self.later.extend(self.layout.range(group.block_bitmap, 1));
            let bitmap = self.layout.range(group.inode_bitmap, 1);
            self.soon.extend(bitmap);
            let note = match group.inodes_used {
                Some(_) => ReadPurpose::Passed,
                None => ReadPurpose::Bitmap { group: number, inode_table: group.inode_table },
            };
            let comes = bitmap.is_some_and(|bitmap| self.asked.request(bitmap, |_| note));
            match group.inodes_used {
                Some(used) => self.inode_table(number, group.inode_table, used),
                None if !comes => self.inode_table(number, group.inode_table, self.layout.group_inodes),
                None => {}
            }
        }
    }

    /// Requests the inodes of a group: the used ones now, the rest later.
    fn inode_table(&mut self, group: u32, first_block: u64, used: u32) {
        let Layout { block_bytes, inode_bytes, group_inodes, .. } = self.layout;
        let blocks = (u64::from(group_inodes) * inode_bytes).div_ceil(block_bytes);
        let blocks_used = (u64::from(used) * inode_bytes).div_ceil(block_bytes);
        // Inodes are counted from 1, in 32 bits.
        let Ok(first) = u32::try_from(u64::from(group) * u64::from(group_inodes) + 1) else { return };
        if let Some(range) = self.layout.range(first_block, blocks_used) {
            let inode_at = |at| first.saturating_add(u32::try_from(at / inode_bytes).unwrap_or(u32::MAX));
            self.asked.request(range, |at| ReadPurpose::Inodes { inode: inode_at(at) });
            self.soon.push(range);
        }
        self.later.extend(self.layout.range(first_block.saturating_add(blocks_used), blocks - blocks_used));
    }

    fn inodes(&mut self, first: u32, bytes: &[u8], plan: &mut SurveyPlan) {
        let inode_bytes = usize::try_from(self.layout.inode_bytes).unwrap_or(usize::MAX);
        for (number, bytes) in (first..u32::MAX).zip(bytes.chunks_exact(inode_bytes)) {
            let Some(inode) = Inode::parse(bytes) else { continue };
            let mapped = Mapped::of_inode(&inode, &self.layout);
            match inode.kind {
                Kind::Directory if inode.links == 0 => self.later_runs(&mapped.runs),
                Kind::Directory if inode.form == Form::Inline => {
                    // The parent's inode number precedes the entries.
                    self.directory(number, 0, inode.map.get(4..).unwrap_or_default(), plan);
                }
                Kind::Directory => self.directory_map(number, &mapped),
                Kind::Regular if inode.links > 0 => self.file(number, inode.size, mapped, plan),
                Kind::Link if inode.is_long_link() => {
                    let runs = mapped.runs.iter().take(LINK_BLOCKS_MAX);
                    self.soon.extend(runs.filter_map(|run| self.layout.range(run.block, run.count.into())));
                }
                _ => {}
            }
        }
    }

    fn later_runs(&mut self, runs: &[Run]) {
        self.later.extend(runs.iter().filter_map(|run| self.layout.range(run.block, run.count.into())));
    }

    /// Requests the known blocks of a directory.
    fn directory_map(&mut self, inode: u32, mapped: &Mapped) {
        for run in &mapped.runs {
            let start = u64::from(run.at) * self.layout.block_bytes;
            if let Some(range) = self.layout.range(run.block, run.count.into()) {
                self.asked.request(range, |at| ReadPurpose::Directory { inode, at: start + at });
                self.tree.directory(inode.into(), range);
            }
        }
        for (block, node) in &mapped.nodes {
            if let Some(range) = self.layout.range(*block, 1) {
                self.asked.request(range, |_| ReadPurpose::DirectoryNode { inode, node: *node });
                self.tree.directory(inode.into(), range);
            }
        }
    }

    fn directory(&mut self, inode: u32, at: u64, bytes: &[u8], plan: &mut SurveyPlan) {
        let block_bytes = usize::try_from(self.layout.block_bytes).unwrap_or(usize::MAX);
        for (index, block) in (0u64..).zip(bytes.chunks(block_bytes)) {
            for entry in directory::entries(block) {
                let place = (at + index * self.layout.block_bytes + entry.at) / ENTRY_ALIGNMENT;
                let place = u32::try_from(place).unwrap_or(u32::MAX);
                if entry.may_be_directory {
                    self.tree.name(inode.into(), place, entry.inode.into());
                    let (id, directory) = (entry.inode.into(), inode.into());
                    plan.file(FileRuns { id, directory, place, runs: SmallVec::new() });
                }
                if entry.may_be_regular {
                    self.files.name(entry.inode, Name { directory: inode, place }, &self.layout, plan);
                }
            }
        }
    }

    fn file(&mut self, inode: u32, size: u64, mapped: Mapped, plan: &mut SurveyPlan) {
        let room = FILE_NODES_MAX.saturating_sub(self.nodes.len());
        let nodes = mapped.nodes.iter().take(room);
        self.nodes.extend(nodes.map(|(block, node)| (inode, *block, *node)));
        let nodes_left = u32::try_from(mapped.nodes.len().min(room)).unwrap_or(u32::MAX);
        if nodes_left > 0 || !mapped.runs.is_empty() {
            let runs = mapped.runs.into_iter().collect();
            self.files.content(inode, Content { size, runs, nodes_left }, &self.layout, plan);
        }
    }

    fn file_node(&mut self, inode: u32, node: Node, bytes: &[u8], plan: &mut SurveyPlan) {
        let mapped = Mapped::of_node(bytes, node, &self.layout);
        let mut more = 0;
        for (block, node) in &mapped.nodes {
            let range = self.layout.range(*block, 1);
            let comes =
                range.is_some_and(|range| self.asked.request(range, |_| ReadPurpose::FileNode { inode, node: *node }));
            more += u32::from(comes);
        }
        self.files.mapped(inode, &mapped.runs, more, &self.layout, plan);
    }
}
