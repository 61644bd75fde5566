//! The tree of directories: in which order a listing comes to them.

use std::collections::HashMap;

use cheetah_device::ByteRange;
use smallvec::SmallVec;

use super::{FileRuns, Plan};

/// More names of directories are not kept; what they stand for comes behind the others.
const NAMES_MAX: usize = 2 << 20;

/// Directories: where each one is, and which it holds.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    directories: HashMap<u64, Directory>,
    names: usize,
}

#[derive(Debug, Default)]
struct Directory {
    ranges: SmallVec<[ByteRange; 1]>,
    /// Places of names, and the numbers of what they stand for.
    names: Vec<(u32, u64)>,
}

impl Tree {
    /// Part of a directory, or of the map of one, is there.
    pub fn directory(&mut self, id: u64, range: ByteRange) {
        self.directories.entry(id).or_default().ranges.push(range);
    }

    /// A name that may be a directory's is in one.
    pub fn name(&mut self, directory: u64, place: u32, id: u64) {
        if self.names < NAMES_MAX {
            self.names += 1;
            self.directories.entry(directory).or_default().names.push((place, id));
        }
    }

    /// Where the directories are, in the order of a recursive listing; and puts them on the plan as files without
    /// content of their own, so that others know the order too. Those without a name come last.
    pub fn in_order(mut self, root: u64, plan: &mut Plan) -> Vec<ByteRange> {
        let mut ranges = Vec::new();
        let mut ahead = vec![(root, 0, root)];
        while let Some((above, place, id)) = ahead.pop() {
            // Out of the map: a directory that is in itself is listed once.
            let Some(mut directory) = self.directories.remove(&id) else { continue };
            ranges.extend(directory.ranges);
            directory.names.sort_unstable_by(|one, other| other.cmp(one));
            ahead.extend(directory.names.iter().map(|(place, below)| (id, *place, *below)));
            if id != root {
                plan.file(FileRuns { id, directory: above, place, runs: SmallVec::new() });
            }
        }
        let mut lost: Vec<_> = self.directories.into_iter().collect();
        lost.sort_unstable_by_key(|(id, _)| *id);
        ranges.extend(lost.into_iter().flat_map(|(_, directory)| directory.ranges));
        ranges
    }
}
