//! The tree of directories: in which order a listing comes to them.

use std::collections::HashMap;

use cheetah_device::ByteRange;
use smallvec::SmallVec;

use crate::survey::{FileRuns, Plan};

/// More names of directories are not kept; what they stand for comes behind the others.
const NAMES_MAX: usize = 2 << 20;
const ROOT: u32 = 2;

/// Directories: where each one is, and which it holds.
#[derive(Debug, Default)]
pub(super) struct Tree {
    directories: HashMap<u32, Directory>,
    names: usize,
}

#[derive(Debug, Default)]
struct Directory {
    ranges: SmallVec<[ByteRange; 1]>,
    /// Places of names, and inodes they stand for.
    names: Vec<(u32, u32)>,
}

impl Tree {
    /// Part of a directory, or of the map of one, is there.
    pub fn directory(&mut self, inode: u32, range: ByteRange) {
        self.directories.entry(inode).or_default().ranges.push(range);
    }

    /// A name that may be a directory's is in one.
    pub fn name(&mut self, directory: u32, place: u32, inode: u32) {
        if self.names < NAMES_MAX {
            self.names += 1;
            self.directories.entry(directory).or_default().names.push((place, inode));
        }
    }

    /// Where the directories are, in the order of a recursive listing; and puts them on the plan as files without
    /// content of their own, so that others know the order too. Those without a name come last.
    pub fn in_order(mut self, plan: &mut Plan) -> Vec<ByteRange> {
        let mut ranges = Vec::new();
        let mut ahead = vec![(0, 0, ROOT)];
        while let Some((above, place, inode)) = ahead.pop() {
            // Out of the map: a directory that is in itself is listed once.
            let Some(mut directory) = self.directories.remove(&inode) else { continue };
            ranges.extend(directory.ranges);
            directory.names.sort_unstable_by(|one, other| other.cmp(one));
            ahead.extend(directory.names.iter().map(|(place, below)| (inode, *place, *below)));
            if inode != ROOT {
                let (id, directory) = (inode.into(), above.into());
                plan.file(FileRuns { id, directory, place, runs: SmallVec::new() });
            }
        }
        let mut lost: Vec<_> = self.directories.into_iter().collect();
        lost.sort_unstable_by_key(|(inode, _)| *inode);
        ranges.extend(lost.into_iter().flat_map(|(_, directory)| directory.ranges));
        ranges
    }
}
