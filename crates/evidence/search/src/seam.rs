//! Windows over a device that is read in parts: neighbours overlap, so that no match is cut, and each match begins in one
//! window's own range.
//!
//! Most of a part is a window of its own, which is not copied: matches that begin in the middle of it, so that all bytes that decide
//! about them belong to the part. A small window between two parts has the end of one and the beginning of the next. No byte is read twice.

use bytes::Bytes;
use cheetah_device::{ByteRange, Data};

/// The bytes around a window's own range that decide about its matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overlap {
    /// Bytes before it.
    pub before: usize,
    /// Bytes after it.
    pub after: usize,
}

impl Overlap {
    /// The bytes at each edge of a range that was searched without its neighbours: with them, the rest is searched. See
    /// [`Seams::resume`].
    pub const fn edge(self) -> usize {
        self.before + self.after
    }

    /// The part of a range whose matches are found without its neighbours; `None` if there is none.
    pub fn core(self, range: ByteRange) -> Option<ByteRange> {
        let from = range.offset.checked_add(self.before as u64)?;
        let to = range.end().checked_sub(self.after as u64)?;
        (range.len > self.edge() as u64).then(|| ByteRange::between(from, to))
    }
}

/// Consecutive bytes of the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// The offset of the first byte.
    pub offset: u64,
    /// The bytes.
    pub bytes: Bytes,
    /// Matches that begin here are this window's.
    pub own: ByteRange,
}

/// Makes windows of parts that are read in order.
pub struct Seams {
    overlap: Overlap,
    /// The last bytes that were read, which the next window begins with: those that decide about matches that begin behind `owned`.
    tail: Vec<u8>,
    /// The offset after them.
    end: u64,
    /// The end of the last window's own range.
    owned: u64,
}

impl Seams {
    /// Begins before the first part.
    pub const fn new(overlap: Overlap) -> Self {
        Self { overlap, tail: Vec::new(), end: 0, owned: 0 }
    }

    /// The overlap of its windows.
    pub const fn overlap(&self) -> Overlap {
        self.overlap
    }

    /// Takes the part that was read at `offset`, after those before. Returns the windows that are complete now: up to two, and one more
    /// if the part does not follow the last one at once.
    pub fn push(&mut self, offset: u64, data: Data) -> Vec<Window> {
        let mut windows = Vec::new();
        if offset != self.end {
            windows.extend(self.finish());
            (self.end, self.owned) = (offset, offset);
        }
        match data.len() > self.overlap.edge() as u64 {
            true => windows.extend(self.push_long(data.into_bytes())),
            false => windows.extend(self.push_short(&data)),
        }
        windows
    }

    /// Takes a part with matches that its own bytes decide.
    fn push_long(&mut self, part: Bytes) -> impl Iterator<Item = Window> + use<> {
        let (edge, begin) = (self.overlap.edge(), self.end);
        let mut seam = None;
        // At the beginning, and behind what cannot be read, nothing is before the part.
        if !self.tail.is_empty() {
            let head = part.get(..edge).unwrap_or_default();
            let bytes = [&self.tail[..], head].concat().into();
            let own = ByteRange::between(self.owned, begin + self.overlap.before as u64);
            seam = Some(Window { offset: begin - self.tail.len() as u64, bytes, own });
            self.owned = own.end();
        }
        self.end += part.len() as u64;
        let own = ByteRange::between(self.owned, self.end - self.overlap.after as u64);
        self.owned = own.end();
        self.tail = part.get(part.len() - edge..).unwrap_or_default().to_vec();
        let window = Window { offset: begin, bytes: part, own };
        seam.into_iter().chain([window])
    }

    /// Takes a part that may have none, with the bytes before it.
    fn push_short(&mut self, data: &Data) -> Option<Window> {
        let start = self.end - self.tail.len() as u64;
        let mut bytes = std::mem::take(&mut self.tail);
        data.runs().for_each(|run| bytes.extend_from_slice(run));
        self.end += data.len();
        let own = ByteRange::between(self.owned, self.end.saturating_sub(self.overlap.after as u64));
        if own.is_empty() {
            self.tail = bytes;
            return None;
        }
        self.owned = own.end();
        let kept = self.owned.saturating_sub(self.overlap.before as u64).max(start);
        // Not truncated: an index of the window.
        self.tail = bytes.get((kept - start) as usize..).unwrap_or_default().to_vec();
        Some(Window { offset: start, bytes: bytes.into(), own })
    }

    /// Goes on behind a range of which only the first [`edge`](Overlap::edge) were pushed, because its [`core`](Overlap::core) was
    /// searched elsewhere. It ends at `end`, with the bytes `tail`, which are an edge, too.
    pub fn resume(&mut self, end: u64, tail: &[u8]) {
        self.tail = tail.to_vec();
        self.end = end;
        self.owned = end.saturating_sub(self.overlap.after as u64);
    }

    /// Returns the window that ends with the last part, if it has matches of its own.
    pub fn finish(&mut self) -> Option<Window> {
        let bytes = std::mem::take(&mut self.tail);
        let own = ByteRange::between(self.owned, self.end);
        self.owned = self.end;
        (!own.is_empty()).then(|| Window { offset: self.end - bytes.len() as u64, bytes: bytes.into(), own })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn each_byte_is_in_one_own_range_with_its_neighbours(
            parts in prop::collection::vec((0u64..4, 1usize..70), 1..20),
            before in 0usize..20,
            after in 0usize..20,
        ) {
            let mut seams = Seams::new(Overlap { before, after });
            let (mut at, mut runs, mut windows) = (0u64, Vec::<ByteRange>::new(), Vec::new());
            for (gap, len) in parts {
                at += gap.saturating_sub(1);
                let bytes: Vec<u8> = (at..at + len as u64).map(|at| at as u8).collect();
                match runs.last_mut() {
                    Some(last) if last.end() == at => last.len += len as u64,
                    _ => runs.push(ByteRange::new(at, len as u64)),
                }
                windows.extend(seams.push(at, bytes.into()));
                at += len as u64;
            }
            windows.extend(seams.finish());
            prop_assert_eq!(cheetah_device::coalesce(windows.iter().map(|window| window.own).collect(), 0), runs.clone());
            prop_assert!(windows.windows(2).all(|pair| pair[0].own.end() <= pair[1].own.offset));
            for window in windows {
                let range = ByteRange::new(window.offset, window.bytes.len() as u64);
                prop_assert!(window.bytes.iter().zip(range.offset..).all(|(byte, at)| *byte == at as u8));
                let run = runs.iter().find(|run| run.contains(window.own)).unwrap();
                let wanted = ByteRange::between(
                    window.own.offset.saturating_sub(before as u64), window.own.end() + after as u64);
                prop_assert!(run.contains(range) && range.contains(wanted.intersection(*run).unwrap()));
            }
        }
    }
}
