//! Where the frames of a compressed image lie. No I/O.

use std::ops::Range;

use cheetah_device::ByteRange;

/// The maximum number of frames, 16 bytes of memory each: 2 TiB of content in frames of 64 KiB.
const FRAMES_MAX: usize = 1 << 25;

/// A frame: a part of the file that can be decompressed by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Frame {
    /// Its number, from 0.
    pub number: usize,
    /// Its place in the file.
    pub packed: ByteRange,
    /// Its place in the content.
    pub content: ByteRange,
}

/// The frames that have content, in order. Their contents are adjacent; in the file, other data may lie between them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Frames {
    /// The start in the file and in the content of each frame.
    starts: Vec<(u64, u64)>,
    /// For each frame that the next one does not follow immediately: its number, and its end in the file.
    ends: Vec<(usize, u64)>,
    packed_end: u64,
    size: u64,
    largest: u64,
}

impl Frames {
    /// Appends a frame. `None` if the limits are exceeded, or the frame does not lie after the others.
    pub fn push(&mut self, packed: ByteRange, content_len: u64) -> Option<()> {
        if packed.offset < self.packed_end || packed.offset.checked_add(packed.len).is_none() {
            return None;
        }
        if content_len == 0 {
            return Some(());
        }
        let size = self.size.checked_add(content_len).filter(|size| i64::try_from(*size).is_ok())?;
        if self.starts.len() >= FRAMES_MAX {
            return None;
        }
        if !self.starts.is_empty() && packed.offset != self.packed_end {
            self.ends.push((self.starts.len() - 1, self.packed_end));
        }
        self.starts.push((packed.offset, self.size));
        self.packed_end = packed.end();
        self.size = size;
        self.largest = self.largest.max(content_len);
        Some(())
    }

    /// The number of frames.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// The size of the content, in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The size of the content of the largest frame, in bytes.
    pub fn largest(&self) -> u64 {
        self.largest
    }

    /// The frame of a number below [`Self::len`].
    pub fn at(&self, number: usize) -> Frame {
        let (packed, content) = self.starts[number];
        let (packed_next, content_next) = self.starts.get(number + 1).copied().unwrap_or((self.packed_end, self.size));
        let end = self.ends.binary_search_by_key(&number, |(number, _)| *number);
        let packed_end = end.map_or(packed_next, |index| self.ends[index].1);
        Frame {
            number,
            packed: ByteRange::between(packed, packed_end),
            content: ByteRange::between(content, content_next),
        }
    }

    /// The numbers of the frames of a non-empty range of the content.
    pub fn holding(&self, range: ByteRange) -> Range<usize> {
        let first = self.starts.partition_point(|(_, content)| *content <= range.offset).saturating_sub(1);
        first..self.starts.partition_point(|(_, content)| *content < range.end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_found_by_the_content_they_hold() {
        let mut frames = Frames::default();
        for (offset, len, content) in [(0, 10, 100), (10, 5, 0), (15, 5, 1), (30, 7, 50)] {
            frames.push(ByteRange::new(offset, len), content).unwrap();
        }
        assert_eq!((frames.len(), frames.size(), frames.largest()), (3, 151, 100));
        let frame = |number, offset, len, content, content_len| Frame {
            number,
            packed: ByteRange::new(offset, len),
            content: ByteRange::new(content, content_len),
        };
        let all: Vec<_> = (0..3).map(|number| frames.at(number)).collect();
        assert_eq!(all, [frame(0, 0, 10, 0, 100), frame(1, 15, 5, 100, 1), frame(2, 30, 7, 101, 50)]);
        assert_eq!(frames.holding(ByteRange::new(0, 100)), 0..1);
        assert_eq!(frames.holding(ByteRange::new(99, 2)), 0..2);
        assert_eq!(frames.holding(ByteRange::new(100, 51)), 1..3);
        assert!(frames.push(ByteRange::new(36, 7), 1).is_none(), "overlaps the last one");
        assert!(frames.push(ByteRange::new(40, 1), u64::MAX - 100).is_none(), "too large");
    }
}
