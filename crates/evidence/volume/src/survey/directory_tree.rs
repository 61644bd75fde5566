//! The tree of directories, and the order in which a listing visits them.

use std::collections::HashMap;

use cheetah_device::ByteRange;
use smallvec::SmallVec;

use super::{FileRuns, SurveyPlan};

/// The maximum number of names kept. Directories whose names are not kept come last.
const NAMES_MAX: usize = 2 << 20;

/// The extents of directories, and the names in them.
#[derive(Debug, Default)]
pub(crate) struct DirectoryTree {
    directories: HashMap<u64, Directory>,
    names: usize,
}

#[derive(Debug, Default)]
struct Directory {
    ranges: SmallVec<[ByteRange; 1]>,
    /// The positions of names, and the numbers of the files they refer to.
    names: Vec<(u32, u64)>,
}

impl DirectoryTree {
    /// Adds an extent of a directory, or of its block map.
    pub fn directory(&mut self, id: u64, range: ByteRange) {
        self.directories.entry(id).or_default().ranges.push(range);
    }

    /// Adds a name in a directory that may be that of another directory.
    pub fn name(&mut self, directory: u64, place: u32, id: u64) {
        if self.names < NAMES_MAX {
            self.names += 1;
            self.directories.entry(directory).or_default().names.push((place, id));
        }
    }

    /// Returns the extents of all directories, in the order of a recursive listing; those without a name come last.
    /// Adds the directories to the plan as files without extents, which conveys that order.
    pub fn in_order(mut self, root: u64, plan: &mut SurveyPlan) -> Vec<ByteRange> {
        let mut ranges = Vec::new();
        let mut ahead = vec![(root, 0, root)];
        while let Some((above, place, id)) = ahead.pop() {
            // Removed from the map, so that a directory that contains itself is listed once.
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
