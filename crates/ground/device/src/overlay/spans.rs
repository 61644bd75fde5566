//! The changed ranges of an overlay, and their content.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::PIECE_BYTES;
use crate::ByteRange;

/// The memory a span takes besides its content: its entry in the map, and the allocation's overhead.
pub(super) const SPAN_BYTES: u64 = 128;

/// The content of a span.
#[derive(Clone, Debug)]
pub(super) enum Content {
    /// Zeros.
    Zero,
    /// These bytes, exactly as many as the span is long.
    Bytes(Bytes),
    /// Bytes stored in the file, at the same offset.
    Stored,
}

impl Content {
    pub(super) fn memory_bytes(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Zero | Self::Stored => 0,
        }
    }

    /// Returns `len` bytes from `from`. Bytes are copied, so that the others can be freed.
    fn part(&self, from: u64, len: u64) -> Self {
        match self {
            Self::Bytes(bytes) => Self::Bytes(Bytes::copy_from_slice(&bytes[indices(from, len)])),
            Self::Zero => Self::Zero,
            Self::Stored => Self::Stored,
        }
    }

    /// Joins this and the content after it, if one span may hold both.
    fn joined(&self, next: &Self, range: ByteRange) -> Option<Self> {
        match (self, next) {
            (Self::Zero, Self::Zero) => Some(Self::Zero),
            (Self::Stored, Self::Stored) => Some(Self::Stored),
            (Self::Bytes(first), Self::Bytes(second)) => {
                let one_piece = range.offset / PIECE_BYTES == (range.end() - 1) / PIECE_BYTES;
                one_piece.then(|| Self::Bytes([&first[..], second].concat().into()))
            }
            _ => None,
        }
    }
}

/// A range and its content; `None` if it is the base's.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) range: ByteRange,
    pub(super) content: Option<Content>,
}

/// Disjoint ranges, each with its content.
#[derive(Default, Debug)]
pub(super) struct Spans {
    /// Length and content by offset. Never empty, never overlapping.
    map: BTreeMap<u64, (u64, Content)>,
    /// The memory of all contents.
    content_bytes: u64,
}

impl Spans {
    /// Returns the length of all spans.
    pub(super) fn len_bytes(&self) -> u64 {
        self.map.values().map(|(len, _)| len).sum()
    }

    /// Returns the maximum memory in use after `range` has been set to `bytes` bytes of content in `pieces` pieces.
    pub(super) fn memory_bytes_after(&self, range: ByteRange, bytes: u64, pieces: usize) -> u64 {
        let (mut spans, mut content) = (self.map.len() as u64 + pieces as u64, self.content_bytes + bytes);
        for (start, len, old) in self.overlapping(range) {
            let span = ByteRange::new(start, len);
            let replaced = span.intersection(range).map_or(0, |both| both.len);
            if matches!(old, Content::Bytes(_)) {
                content -= replaced;
            }
            // The parts beyond either end of the range stay spans of their own.
            let kept = u64::from(span.offset < range.offset) + u64::from(range.end() < span.end());
            spans = spans + kept - 1;
        }
        content + spans * SPAN_BYTES
    }

    /// Sets the content of `range`.
    pub(super) fn set(&mut self, range: ByteRange, content: Content) {
        if range.is_empty() {
            return;
        }
        self.clear(range);
        let (mut range, mut content) = (range, content);
        // Neighbours of the same kind are merged, so that a disk zeroed in steps is one span in the end.
        if let Some((&start, (len, before))) = self.map.range(..range.offset).next_back()
            && start + *len == range.offset
            && let both = ByteRange::between(start, range.end())
            && let Some(joined) = before.joined(&content, both)
        {
            self.remove(start);
            (range, content) = (both, joined);
        }
        if let Some((len, after)) = self.map.get(&range.end())
            && let both = ByteRange::new(range.offset, range.len + len)
            && let Some(joined) = content.joined(after, both)
        {
            self.remove(range.end());
            (range, content) = (both, joined);
        }
        self.insert(range, content);
    }

    /// Returns the segments of `range`, in order and without gaps.
    pub(super) fn segments(&self, range: ByteRange) -> Vec<Segment> {
        let mut segments = Vec::new();
        let mut at = range.offset;
        for (start, len, content) in self.overlapping(range) {
            let Some(part) = ByteRange::new(start, len).intersection(range) else { continue };
            if at < part.offset {
                segments.push(Segment { range: ByteRange::between(at, part.offset), content: None });
            }
            let content = match content {
                // Shared, unlike in `part`: a reader drops it soon.
                Content::Bytes(bytes) => Content::Bytes(bytes.slice(indices(part.offset - start, part.len))),
                other => other.clone(),
            };
            segments.push(Segment { range: part, content: Some(content) });
            at = part.end();
        }
        if at < range.end() {
            segments.push(Segment { range: ByteRange::between(at, range.end()), content: None });
        }
        segments
    }

    /// Returns the spans that overlap `range`: offset, length, content.
    fn overlapping(&self, range: ByteRange) -> impl Iterator<Item = (u64, u64, &Content)> {
        let before = self.map.range(..range.offset).next_back();
        let reaching_in = before.filter(|(start, (len, _))| *start + len > range.offset && !range.is_empty());
        reaching_in
            .into_iter()
            .chain(self.map.range(range.offset..range.end()))
            .map(|(start, (len, content))| (*start, *len, content))
    }

    /// Removes `range` from the spans.
    fn clear(&mut self, range: ByteRange) {
        let hit: Vec<u64> = self.overlapping(range).map(|(start, ..)| start).collect();
        for start in hit {
            let Some((len, content)) = self.remove(start) else { continue };
            let end = start + len;
            if start < range.offset {
                let kept = range.offset - start;
                self.insert(ByteRange::new(start, kept), content.part(0, kept));
            }
            if range.end() < end {
                let kept = end - range.end();
                self.insert(ByteRange::new(range.end(), kept), content.part(len - kept, kept));
            }
        }
    }

    fn insert(&mut self, range: ByteRange, content: Content) {
        self.content_bytes += content.memory_bytes();
        self.map.insert(range.offset, (range.len, content));
    }

    fn remove(&mut self, start: u64) -> Option<(u64, Content)> {
        let (len, content) = self.map.remove(&start)?;
        self.content_bytes -= content.memory_bytes();
        Some((len, content))
    }
}

/// Converts positions within bytes in memory.
#[allow(clippy::cast_possible_truncation, reason = "they are less than a length, which is a usize")]
fn indices(from: u64, len: u64) -> std::ops::Range<usize> {
    from as usize..(from + len) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_of_the_same_kind_are_merged() {
        let mut spans = Spans::default();
        for offset in [0, 20, 10] {
            spans.set(ByteRange::new(offset, 10), Content::Zero);
        }
        assert_eq!(spans.map.len(), 1);
        assert_eq!(spans.len_bytes(), 30);
        assert_eq!(spans.segments(ByteRange::new(0, 40)).len(), 2);
    }

    #[test]
    fn memory_never_exceeds_the_prediction() {
        let mut spans = Spans::default();
        let bytes = |len| Content::Bytes(Bytes::from(vec![7; len]));
        for (offset, len) in [(0u64, 100usize), (200, 100), (50, 200), (60, 10), (0, 300)] {
            let range = ByteRange::new(offset, len as u64);
            let foreseen = spans.memory_bytes_after(range, len as u64, 1);
            spans.set(range, bytes(len));
            assert!(spans.content_bytes + spans.map.len() as u64 * SPAN_BYTES <= foreseen);
        }
        assert_eq!((spans.content_bytes, spans.map.len()), (300, 1));
    }
}
