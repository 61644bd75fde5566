//! Files, assembled from a name in a directory and the content of an inode.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;

use cheetah_device::ByteRange;
use smallvec::SmallVec;

use super::mapping::Run;
use super::superblock::Layout;
use crate::survey::{FileRuns, SurveyPlan};

/// The maximum number of incomplete files. A million take about 100 MiB until the survey ends.
const FILES_MAX: usize = 2 << 20;
/// The maximum number of runs kept of a file.
const RUNS_MAX: usize = 1 << 16;

/// The position of a name.
#[derive(Debug, Clone, Copy)]
pub(super) struct Name {
    pub directory: u32,
    pub place: u32,
}

/// The known runs of a file's content.
#[derive(Debug)]
pub(super) struct Content {
    /// In bytes.
    pub size: u64,
    pub runs: SmallVec<[Run; 1]>,
    /// The number of outstanding map blocks.
    pub nodes_left: u32,
}

/// An incomplete file.
#[derive(Debug)]
enum File {
    Name(Name),
    Content(Content, Option<Name>),
}

/// All incomplete files.
#[derive(Debug, Default)]
pub(super) struct Files {
    by_inode: HashMap<u32, File>,
}

impl Files {
    /// Records a name of an inode; of several, the first counts.
    pub fn name(&mut self, inode: u32, name: Name, layout: &Layout, plan: &mut SurveyPlan) {
        let is_full = self.by_inode.len() >= FILES_MAX;
        match self.by_inode.entry(inode) {
            Slot::Occupied(mut slot) => {
                if let File::Content(_, known @ None) = slot.get_mut() {
                    *known = Some(name);
                    tell_if_whole(slot, layout, plan);
                }
            }
            Slot::Vacant(slot) if !is_full => drop(slot.insert(File::Name(name))),
            Slot::Vacant(_) => {}
        }
    }

    /// Records the inode itself.
    pub fn content(&mut self, inode: u32, content: Content, layout: &Layout, plan: &mut SurveyPlan) {
        let is_full = self.by_inode.len() >= FILES_MAX;
        match self.by_inode.entry(inode) {
            Slot::Occupied(mut slot) => {
                if let File::Name(name) = slot.get() {
                    let name = *name;
                    slot.insert(File::Content(content, Some(name)));
                    tell_if_whole(slot, layout, plan);
                }
            }
            Slot::Vacant(slot) if !is_full => drop(slot.insert(File::Content(content, None))),
            Slot::Vacant(_) => {}
        }
    }

    /// Records the arrival or failure of a map block, its runs, and the number of further blocks it refers to.
    pub fn mapped(&mut self, inode: u32, runs: &[Run], nodes_more: u32, layout: &Layout, plan: &mut SurveyPlan) {
        let Slot::Occupied(mut slot) = self.by_inode.entry(inode) else { return };
        if let File::Content(content, _) = slot.get_mut() {
            let room = RUNS_MAX.saturating_sub(content.runs.len());
            content.runs.extend(runs.iter().take(room).copied());
            content.nodes_left = content.nodes_left.saturating_add(nodes_more).saturating_sub(1);
            tell_if_whole(slot, layout, plan);
        }
    }

    /// Reports the files whose map is incomplete, at the end of the survey.
    pub fn finish(&mut self, layout: &Layout, plan: &mut SurveyPlan) {
        for (inode, file) in self.by_inode.drain() {
            tell(inode, file, layout, plan);
        }
    }
}

fn tell_if_whole(
    slot: std::collections::hash_map::OccupiedEntry<'_, u32, File>,
    layout: &Layout,
    plan: &mut SurveyPlan,
) {
    if matches!(slot.get(), File::Content(Content { nodes_left: 0, .. }, Some(_))) {
        let (inode, file) = slot.remove_entry();
        tell(inode, file, layout, plan);
    }
}

fn tell(inode: u32, file: File, layout: &Layout, plan: &mut SurveyPlan) {
    let File::Content(mut content, Some(name)) = file else { return };
    content.runs.sort_unstable_by_key(|run| run.at);
    let mut runs: SmallVec<[ByteRange; 2]> = SmallVec::new();
    for run in &content.runs {
        let left = content.size.saturating_sub(u64::from(run.at).saturating_mul(layout.block_bytes));
        let Some(mut range) = layout.range(run.block, run.count.into()) else { continue };
        range.len = range.len.min(left);
        match runs.last_mut() {
            Some(last) if last.end() == range.offset => last.len += range.len,
            _ if !range.is_empty() => runs.push(range),
            _ => {}
        }
    }
    if !runs.is_empty() {
        plan.file(FileRuns { id: inode.into(), directory: name.directory.into(), place: name.place, runs });
    }
}
