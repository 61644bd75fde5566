//! The memory for results of jobs: lines that a node keeps until their clients have them.
//!
//! A job keeps few lines, but clients can have many jobs and take no results. So all jobs together keep no more than there is room for,
//! and wait meanwhile. Half of the room is left for jobs that keep no line yet: a few jobs whose results nobody takes do not stop those of
//! clients that take them. The first lines of many such jobs can fill that half, too, until these jobs are given up.

use std::sync::Arc;

use parking_lot::Mutex;

/// The place of a line among those that its job keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Its job keeps no other.
    First,
    /// Its job keeps others.
    Further,
    /// It is the last line of its job: a short one.
    Last,
}

/// The results that a node keeps, and what they may take.
pub(crate) struct OutputMemory {
    bytes_max: u64,
    kept_bytes: Mutex<u64>,
}

impl Default for OutputMemory {
    /// No limit beyond that of each job.
    fn default() -> Self {
        Self::new(u64::MAX)
    }
}

impl OutputMemory {
    /// At most as many bytes. A line that is longer is kept alone: otherwise its job would never end. The last lines of jobs, of which a
    /// node has few at once, are always kept.
    pub fn new(bytes_max: u64) -> Self {
        Self { bytes_max, kept_bytes: Mutex::default() }
    }

    /// Takes room for a line of as many bytes; `None` if there is none now.
    pub fn keep(self: &Arc<Self>, bytes: usize, place: Place) -> Option<KeptOutput> {
        let bytes = bytes as u64;
        let most_bytes = match place {
            Place::First => self.bytes_max,
            Place::Further => self.bytes_max / 2,
            Place::Last => u64::MAX,
        };
        let mut kept_bytes = self.kept_bytes.lock();
        let with_line = kept_bytes.saturating_add(bytes);
        if with_line > most_bytes && *kept_bytes > 0 {
            return None;
        }
        *kept_bytes = with_line;
        drop(kept_bytes);
        Some(KeptOutput { memory: Arc::clone(self), bytes })
    }

    /// The bytes that there is room for yet.
    pub fn left_bytes(&self) -> u64 {
        self.bytes_max.saturating_sub(self.kept_bytes())
    }

    /// The bytes that are kept.
    pub fn kept_bytes(&self) -> u64 {
        *self.kept_bytes.lock()
    }
}

/// Room for a line, until this is dropped.
pub(crate) struct KeptOutput {
    memory: Arc<OutputMemory>,
    bytes: u64,
}

impl Drop for KeptOutput {
    fn drop(&mut self) {
        let mut kept_bytes = self.memory.kept_bytes.lock();
        *kept_bytes = kept_bytes.saturating_sub(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_kept_within_the_room_of_which_half_is_for_jobs_without_any() {
        let memory = Arc::new(OutputMemory::new(100));
        let keep = |bytes, place| memory.keep(bytes, place);
        let further = keep(50, Place::Further);
        assert!(further.is_some() && keep(1, Place::Further).is_none());
        let first = keep(50, Place::First);
        assert!(first.is_some() && keep(1, Place::First).is_none());
        assert_eq!((memory.kept_bytes(), memory.left_bytes()), (100, 0));
        let last = keep(7, Place::Last);
        assert_eq!((last.is_some(), memory.kept_bytes(), memory.left_bytes()), (true, 107, 0));
        drop((further, first, last));
        assert_eq!((memory.kept_bytes(), memory.left_bytes()), (0, 100));
    }

    #[test]
    fn a_line_that_is_longer_than_the_room_is_kept_alone() {
        let memory = Arc::new(OutputMemory::new(100));
        let long = memory.keep(1000, Place::First);
        assert!(long.is_some() && memory.keep(1, Place::First).is_none());
        drop(long);
        assert!(memory.keep(1, Place::First).is_some());
    }
}
