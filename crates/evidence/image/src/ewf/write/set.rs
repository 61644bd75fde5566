//! Assigns chunks to segments and tables. This depends on the chunks' lengths alone, so a resumed set becomes the same
//! as one that was not interrupted.

use std::path::PathBuf;

use super::checkpoint::{Open, Shape};
use super::files::SegmentFiles;
use super::pack::Packed;
use super::sections::{self, COMPRESSED, DESCRIPTOR_BYTES, ENTRIES_MAX, VOLUME_BYTES};
use crate::hash::Hashes;
use cheetah_error::{Error, Result};

/// The space reserved at the end of each segment for `data`, `digest`, `hash` and the final section. A list of
/// unreadable sectors is not included and makes the last segment longer.
const RESERVED: u64 =
    (DESCRIPTOR_BYTES + VOLUME_BYTES as u64) + (DESCRIPTOR_BYTES + 80) + (DESCRIPTOR_BYTES + 36) + DESCRIPTOR_BYTES;

/// A set that is being written.
pub struct Set {
    files: Box<dyn SegmentFiles>,
    segment_size: u64,
    volume: Vec<u8>,
    open: Open,
}

impl Set {
    /// Starts a set with the head of the first segment.
    pub fn create(mut files: Box<dyn SegmentFiles>, shape: &Shape, volume: Vec<u8>, head: &[u8]) -> Result<Self> {
        files.write(0, head)?;
        let open = Open { segment: 1, end: head.len() as u64, section: 0, entries: Vec::new() };
        Ok(Self { files, segment_size: shape.segment_size, volume, open })
    }

    /// Resumes a set at `open`.
    pub fn resume(files: Box<dyn SegmentFiles>, shape: &Shape, volume: Vec<u8>, open: Open) -> Self {
        Self { files, segment_size: shape.segment_size, volume, open }
    }

    /// Returns the length of the current segment so far.
    pub fn open(&self) -> &Open {
        &self.open
    }

    /// Appends chunks.
    pub fn append(&mut self, packed: &Packed) -> Result<()> {
        // Chunks that follow each other in the file are written in one go.
        let (mut from, mut to) = (0, 0);
        for &len in &packed.lens {
            let bytes = u64::from(len & !COMPRESSED);
            if !self.has_room(bytes) {
                self.files.write(self.open.end - (to - from) as u64, &packed.bytes[from..to])?;
                from = to;
                self.make_room(bytes)?;
            }
            if self.open.entries.is_empty() {
                // The run begins after the section's descriptor, which is written when its length is known.
                self.files.write(self.open.end - (to - from) as u64, &packed.bytes[from..to])?;
                from = to;
                self.open.section = self.open.end;
                self.open.end += DESCRIPTOR_BYTES;
            }
            let offset =
                u32::try_from(self.open.end - self.open.section).ok().filter(|offset| offset & COMPRESSED == 0);
            let offset = offset.ok_or_else(|| Error::failed("an E01 segment grew beyond 2 GiB; this is a bug"))?;
            self.open.entries.push(offset | len & COMPRESSED);
            self.open.end += bytes;
            // Not truncated: within `packed.bytes`.
            to += bytes as usize;
        }
        self.files.write(self.open.end - (to - from) as u64, &packed.bytes[from..to])
    }

    /// Whether a chunk of this length fits in the open table.
    fn has_room(&self, bytes: u64) -> bool {
        let entries = self.open.entries.len();
        let descriptor = if entries == 0 { DESCRIPTOR_BYTES } else { 0 };
        let tables = 2 * sections::table_bytes(entries + 1);
        entries < ENTRIES_MAX && self.open.end + descriptor + bytes + tables + RESERVED <= self.segment_size
    }

    /// Closes the table, and the segment if necessary, to make room for a chunk of this length.
    fn make_room(&mut self, bytes: u64) -> Result<()> {
        self.close_table()?;
        if self.has_room(bytes) {
            return Ok(());
        }
        self.files.write(self.open.end, &sections::ending("next", self.open.end))?;
        let number = self.open.segment.checked_add(1).ok_or_else(|| Error::failed("too many E01 segments"))?;
        self.files.next(number)?;
        let head = sections::later_head(number, &self.volume);
        self.files.write(0, &head)?;
        self.open = Open { segment: number, end: head.len() as u64, section: 0, entries: Vec::new() };
        Ok(())
    }

    /// Writes `table` and `table2`, and the descriptor of the section they index.
    fn close_table(&mut self) -> Result<()> {
        let Open { section, end, .. } = self.open;
        if self.open.entries.is_empty() {
            return Ok(());
        }
        self.files.write(section, &sections::descriptor("sectors", section, end - section))?;
        let content = sections::table(section, &self.open.entries);
        for kind in ["table", "table2"] {
            self.put(kind, &content)?;
        }
        self.open.entries.clear();
        Ok(())
    }

    fn put(&mut self, kind: &str, content: &[u8]) -> Result<()> {
        let bytes = sections::section(kind, self.open.end, content);
        self.files.write(self.open.end, &bytes)?;
        self.open.end += bytes.len() as u64;
        Ok(())
    }

    /// Returns when everything is on stable storage.
    pub fn sync(&mut self) -> Result<()> {
        self.files.sync()
    }

    /// Completes the set and renames the files to their final names.
    pub fn finish(mut self, hashes: &Hashes, unreadable: &[(u32, u32)]) -> Result<Vec<PathBuf>> {
        self.close_table()?;
        if self.open.segment == 1 {
            let volume = std::mem::take(&mut self.volume);
            self.put("data", &volume)?;
        }
        if !unreadable.is_empty() {
            self.put("error2", &sections::errors(unreadable)?)?;
        }
        let mut tail = sections::digests(hashes, self.open.end)?;
        tail.extend(sections::ending("done", self.open.end + tail.len() as u64));
        self.files.write(self.open.end, &tail)?;
        self.files.finish(self.open.segment)
    }
}
