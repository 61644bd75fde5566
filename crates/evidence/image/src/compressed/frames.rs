//! Where the frames of a compressed image lie. No I/O.
//!
//! A hostile file has millions of frames of one byte each. So frames that can be decompressed one behind the other are
//! recorded together, up to 64 KiB of content, and more where a file has too many: the memory is limited for any file.

use std::ops::Range;

use cheetah_device::ByteRange;

/// The maximum number of frames that are recorded: they take 32 MiB.
const RECORDED_MAX: usize = 1 << 20;

/// The content up to which frames are recorded together, at first and at most, in bytes.
const TOGETHER_BYTES: u64 = 64 << 10;
const TOGETHER_BYTES_MAX: u64 = super::FRAME_MAX;

/// A frame, or several that follow each other: a part of the file that can be decompressed by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Frame {
    /// Its number, from 0.
    pub number: usize,
    /// Its place in the file.
    pub packed: ByteRange,
    /// Its place in the content.
    pub content: ByteRange,
    /// What of it is sound.
    pub state: FrameState,
}

/// What of a frame is sound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FrameState {
    /// All of it, as far as is known.
    Whole,
    /// The beginning of a stream whose other content is damaged: the stream goes on behind it.
    Cut,
    /// Nothing.
    Damaged,
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
    /// The numbers of the damaged frames, in order.
    damaged: Vec<usize>,
    /// The number of the frame that is cut.
    cut: Option<usize>,
    /// The content up to which frames are recorded together, in bytes; 0 if none are.
    together: u64,
}

impl Frames {
    /// Records frames that follow each other together, with up to `bytes_max` of content where their own is smaller.
    pub fn together(bytes_max: u64) -> Self {
        Self { together: TOGETHER_BYTES.min(bytes_max), ..Self::default() }
    }

    /// Appends a frame. `None` if the limits are exceeded, or the frame does not lie after the others.
    pub fn push(&mut self, packed: ByteRange, content_len: u64) -> Option<()> {
        if packed.offset < self.packed_end || packed.offset.checked_add(packed.len).is_none() {
            return None;
        }
        if content_len == 0 {
            return Some(());
        }
        let size = self.size.checked_add(content_len).filter(|size| i64::try_from(*size).is_ok())?;
        if let Some((_, start)) = self.starts.last()
            && size - start <= self.together
            && self.state(self.starts.len() - 1) == FrameState::Whole
        {
            self.largest = self.largest.max(size - start);
            (self.packed_end, self.size) = (packed.end(), size);
            return Some(());
        }
        self.add(packed, size)?;
        self.largest = self.largest.max(content_len);
        Some(())
    }

    /// Appends the beginning of a stream that is damaged behind it, as [`Self::push`] appends a frame.
    pub fn push_cut(&mut self, packed: ByteRange, content_len: u64) -> Option<()> {
        let size = self.size.checked_add(content_len).filter(|size| i64::try_from(*size).is_ok())?;
        if content_len > 0 {
            self.add(packed, size)?;
            self.cut = Some(self.len() - 1);
            self.largest = self.largest.max(content_len);
        }
        Some(())
    }

    /// Appends a damaged frame, whose content is nowhere, as [`Self::push`] appends a frame.
    pub fn push_damaged(&mut self, packed: ByteRange, content_len: u64) -> Option<()> {
        let size = self.size.checked_add(content_len).filter(|size| i64::try_from(*size).is_ok())?;
        match content_len {
            0 => {}
            _ if !self.is_empty() && self.state(self.len() - 1) == FrameState::Damaged => {
                (self.packed_end, self.size) = (self.packed_end.max(packed.end()), size);
            }
            _ => {
                self.add(packed, size)?;
                self.damaged.push(self.len() - 1);
            }
        }
        Some(())
    }

    /// Marks a frame as damaged. Frames are marked in order.
    pub fn mark_damaged(&mut self, number: usize) {
        if self.damaged.last().is_none_or(|last| *last < number) {
            self.damaged.push(number);
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// Whether all of them are damaged.
    pub fn is_lost(&self) -> bool {
        !self.is_empty() && self.damaged.len() == self.len()
    }

    /// The offset in the content of the last frame, if that is damaged; the end otherwise.
    pub fn damaged_from(&self) -> u64 {
        match self.damaged.last() {
            Some(last) if last + 1 == self.len() => self.at(*last).content.offset,
            _ => self.size,
        }
    }

    /// Appends a frame of its own, which ends the content at `size`.
    fn add(&mut self, packed: ByteRange, size: u64) -> Option<()> {
        while self.starts.len() >= RECORDED_MAX {
            *self = self.coarser()?;
        }
        if !self.starts.is_empty() && packed.offset != self.packed_end {
            self.ends.push((self.starts.len() - 1, self.packed_end));
        }
        self.starts.push((packed.offset, self.size));
        self.packed_end = packed.end();
        self.size = size;
        Some(())
    }

    fn state(&self, number: usize) -> FrameState {
        match () {
            () if self.damaged.binary_search(&number).is_ok() => FrameState::Damaged,
            () if self.cut == Some(number) => FrameState::Cut,
            () => FrameState::Whole,
        }
    }

    /// The same frames, with twice the content recorded together; `None` at the limit.
    fn coarser(&self) -> Option<Self> {
        let together = self.together.checked_mul(2).filter(|bytes| (1..=TOGETHER_BYTES_MAX).contains(bytes))?;
        let mut coarser = Self { together, ..Self::default() };
        for number in 0..self.len() {
            let frame = self.at(number);
            // As many as before fit.
            match frame.state {
                FrameState::Whole => coarser.push(frame.packed, frame.content.len)?,
                FrameState::Cut => coarser.push_cut(frame.packed, frame.content.len)?,
                FrameState::Damaged => coarser.push_damaged(frame.packed, frame.content.len)?,
            }
        }
        Some(coarser)
    }

    /// The number of frames recorded.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// The size of the content, in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The size of the content of the largest frame recorded, in bytes.
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
            state: self.state(number),
        }
    }

    /// The first damaged frame of a non-empty range of the content.
    pub fn damaged_in(&self, range: ByteRange) -> Option<Frame> {
        let numbers = self.holding(range);
        let first = self.damaged.partition_point(|number| *number < numbers.start);
        self.damaged.get(first).filter(|number| numbers.contains(number)).map(|number| self.at(*number))
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
            state: FrameState::Whole,
        };
        let all: Vec<_> = (0..3).map(|number| frames.at(number)).collect();
        assert_eq!(all, [frame(0, 0, 10, 0, 100), frame(1, 15, 5, 100, 1), frame(2, 30, 7, 101, 50)]);
        assert_eq!(frames.holding(ByteRange::new(0, 100)), 0..1);
        assert_eq!(frames.holding(ByteRange::new(99, 2)), 0..2);
        assert_eq!(frames.holding(ByteRange::new(100, 51)), 1..3);
        assert!(frames.push(ByteRange::new(36, 7), 1).is_none(), "overlaps the last one");
        assert!(frames.push(ByteRange::new(40, 1), u64::MAX - 100).is_none(), "too large");
    }
    #[test]
    fn tiny_frames_are_recorded_together_and_take_limited_memory() {
        let mut frames = Frames::together(u64::MAX);
        for number in 0..200_000 {
            frames.push(ByteRange::new(number * 21, 21), 1).unwrap();
        }
        assert_eq!((frames.len(), frames.size(), frames.largest()), (4, 200_000, 64 << 10));
        assert_eq!(frames.at(0).packed, ByteRange::new(0, 21 << 16));
        assert_eq!(frames.holding(ByteRange::new(65_535, 2)), 0..2);
        let mut frames = Frames::together(u64::MAX);
        for number in 0..3 * RECORDED_MAX as u64 {
            frames.push(ByteRange::new(number * 100, 100), 40 << 10).unwrap();
        }
        assert!(frames.len() <= RECORDED_MAX && frames.largest() <= 256 << 10, "{}", frames.len());
        assert_eq!(frames.size(), 3 * RECORDED_MAX as u64 * (40 << 10));
        // What is damaged stays apart.
        let mut frames = Frames::together(u64::MAX);
        for number in 0..9 {
            let packed = ByteRange::new(number * 10, 10);
            if (3..6).contains(&number) { frames.push_damaged(packed, 5) } else { frames.push(packed, 5) }.unwrap();
        }
        let all: Vec<_> = (0..frames.len()).map(|number| frames.at(number)).collect();
        let (whole, damaged) = (FrameState::Whole, FrameState::Damaged);
        assert!(all.iter().map(|frame| (frame.content.len, frame.state)).eq([(15, whole), (15, damaged), (15, whole)]));
        assert_eq!((frames.largest(), frames.is_lost()), (15, false));
        // Blocks of xz need their own ends.
        let mut frames = Frames::default();
        frames.push(ByteRange::new(0, 9), 1).unwrap();
        frames.push(ByteRange::new(9, 9), 1).unwrap();
        assert_eq!(frames.len(), 2);
    }
}
