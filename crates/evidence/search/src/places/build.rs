//! Takes what a lister says, within limits.

use cheetah_device::ByteRange;

use super::free::FreeClusters;
use super::tree::Tree;
use super::{File, FileRun, Places, Volume};

/// What is kept at most. A run takes 36 bytes, and a file 56 and its path.
#[derive(Debug, Clone, Copy)]
pub struct PlaceLimits {
    /// Volumes.
    pub volumes_max: usize,
    /// Files.
    pub files_max: usize,
    /// Runs of all files.
    pub runs_max: usize,
    /// Bytes of all paths.
    pub path_bytes_max: usize,
    /// Free ranges of all volumes.
    pub free_ranges_max: usize,
}

impl Default for PlaceLimits {
    fn default() -> Self {
        Self {
            volumes_max: 1000,
            files_max: 4_000_000,
            runs_max: 8_000_000,
            path_bytes_max: 512 << 20,
            free_ranges_max: 8_000_000,
        }
    }
}

/// What had no room.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Volumes.
    pub volumes: u64,
    /// Files.
    pub files: u64,
    /// Runs of files.
    pub runs: u64,
    /// Volumes whose free clusters are too many ranges.
    pub free: u64,
}

impl LeftOut {
    /// Whether there was room for everything.
    pub const fn is_nothing(self) -> bool {
        self.volumes == 0 && self.files == 0 && self.runs == 0 && self.free == 0
    }
}

/// A file, as a lister describes it.
#[derive(Debug, Clone, Copy)]
pub struct NewFile<'a> {
    /// Its path in its volume.
    pub path: &'a str,
    /// Whether it is deleted.
    pub is_deleted: bool,
    /// Whether it is a structure of the file system.
    pub is_metadata: bool,
    /// Whether its content lies in a record of the table of files.
    pub is_resident: bool,
    /// Whether its runs hold its content as it is read: neither compressed nor otherwise changed.
    pub is_mapped: bool,
    /// The number of its first bytes that are its own: its size, or less if it reads as zeros behind that.
    pub valid_bytes: u64,
}

/// Takes what a lister says.
#[derive(Debug)]
pub struct PlacesBuilder {
    limits: PlaceLimits,
    source: ByteRange,
    places: Places,
    free_ranges: usize,
    /// Whether runs that are added belong to the last file.
    is_last_kept: bool,
}

impl PlacesBuilder {
    /// Nothing is known yet of a source of `size` bytes.
    pub fn new(size: u64, limits: PlaceLimits) -> Self {
        let places = Places {
            volumes: Vec::new(),
            files: Vec::new(),
            paths: String::new(),
            runs: Vec::new(),
            tree: Tree::default(),
            left_out: LeftOut::default(),
        };
        Self { limits, source: ByteRange::new(0, size), places, free_ranges: 0, is_last_kept: false }
    }

    /// Adds a volume. Nothing is known of its files.
    pub fn volume(&mut self, number: u32, range: ByteRange) {
        match self.places.volumes.len() < self.limits.volumes_max {
            true => {
                let free = FreeClusters::default();
                self.places.volumes.push(Volume { number, range, free, is_whole: false });
            }
            false => self.places.left_out.volumes += 1,
        }
    }

    /// Adds a file of a volume, without its runs. Returns its number; `None` if there is no room.
    pub fn file(&mut self, volume: u32, file: &NewFile<'_>) -> Option<usize> {
        let Places { files, paths, left_out, runs, .. } = &mut self.places;
        let has_room = files.len() < self.limits.files_max
            && file.path.len() <= self.limits.path_bytes_max.saturating_sub(paths.len());
        self.is_last_kept = has_room;
        if !has_room {
            left_out.files += 1;
            return None;
        }
        paths.push_str(file.path);
        files.push(File {
            volume,
            path_end: paths.len(),
            runs_end: runs.len(),
            valid_bytes: file.valid_bytes,
            names: 0,
            is_deleted: file.is_deleted,
            is_metadata: file.is_metadata,
            is_resident: file.is_resident,
            is_mapped: file.is_mapped,
        });
        Some(files.len() - 1)
    }

    /// Adds a run to the file that was added last. What lies beyond the source is left out.
    pub fn run(&mut self, run: FileRun) {
        let Places { files, runs, left_out, .. } = &mut self.places;
        let (true, Some(file)) = (self.is_last_kept, files.last_mut()) else { return };
        let Some(range) = run.range.intersection(self.source) else { return };
        if range.offset != run.range.offset || run.file_offset.checked_add(range.len).is_none() {
            return;
        }
        if runs.len() >= self.limits.runs_max.min(u32::MAX as usize) {
            left_out.runs += 1;
            return;
        }
        runs.push(FileRun { range, ..run });
        file.runs_end = runs.len();
    }

    /// Counts a further name of a file.
    pub fn name(&mut self, file: usize) {
        let file = self.places.files.get_mut(file);
        file.into_iter().for_each(|file| file.names = file.names.saturating_add(1));
    }

    /// Says where the clusters of a volume lie, and that it is known which of them are free: those of [`Self::free`], and no others.
    pub fn clusters(&mut self, volume: u32, clusters: ByteRange) {
        if let Some(volume) = self.volume_mut(volume) {
            volume.free = FreeClusters::of(clusters);
        }
    }

    /// Adds a free range of a volume. If there is no room, it is not known which are free.
    pub fn free(&mut self, volume: u32, range: ByteRange) {
        let has_room = self.free_ranges < self.limits.free_ranges_max;
        let known = self.volume_mut(volume).filter(|volume| volume.free.is_known());
        let Some(volume) = known else { return };
        if !has_room {
            let ranges = volume.free.len();
            volume.free = FreeClusters::default();
            self.free_ranges = self.free_ranges.saturating_sub(ranges);
            self.places.left_out.free += 1;
            return;
        }
        let before = volume.free.len();
        volume.free.add(range);
        let added = volume.free.len() - before;
        self.free_ranges += added;
    }

    /// Forgets which clusters of a volume are free.
    pub fn forget_free(&mut self, volume: u32) {
        if let Some(volume) = self.volume_mut(volume) {
            volume.free = FreeClusters::default();
        }
    }

    /// Says that all files of a volume were described.
    pub fn whole(&mut self, volume: u32) {
        if let Some(volume) = self.volume_mut(volume) {
            volume.is_whole = true;
        }
    }

    /// Ends the description.
    pub fn finish(mut self) -> Places {
        let has_all = self.places.left_out.files == 0 && self.places.left_out.runs == 0;
        for volume in &mut self.places.volumes {
            volume.free.finish();
            volume.is_whole &= has_all;
        }
        self.places.volumes.sort_by_key(|volume| volume.number);
        self.places.tree = Tree::of(&self.places.runs);
        self.places
    }

    fn volume_mut(&mut self, number: u32) -> Option<&mut Volume> {
        self.places.volumes.iter_mut().find(|volume| volume.number == number)
    }
}
