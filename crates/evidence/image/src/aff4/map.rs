//! The map of an image: the stream that holds each range (AFF4 Standard v1.0, section 4).

use cheetah_device::ByteRange;

use super::facts::short;

/// The size of an entry: three u64 and a u32, little-endian.
pub const ENTRY_LEN: usize = 28;

/// The maximum number of entries: an image of 4 TiB with a new entry every 8 MiB. They take 56 MiB while they are parsed.
pub const ENTRIES_MAX: usize = 512 << 10;

/// The origin of a run of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// One repeated byte (`Zero`, `SymbolicStreamXX`).
    Fill(u8),
    /// Not acquired (`UnknownData`).
    Unknown,
    /// Unreadable when the image was made (`UnreadableData`).
    Unreadable,
    /// The stream with this index in the target index.
    Stream(usize),
}

impl Target {
    /// Returns the target of a symbolic stream's name.
    pub fn symbolic(name: &str) -> Option<Self> {
        match short(name) {
            "Zero" => Some(Self::Fill(0)),
            "UnknownData" => Some(Self::Unknown),
            "UnreadableData" => Some(Self::Unreadable),
            other => {
                let digits = other.strip_prefix("SymbolicStream").filter(|digits| is_hex_byte(digits))?;
                u8::from_str_radix(digits, 16).ok().map(Self::Fill)
            }
        }
    }

    /// Whether it has no bytes.
    pub const fn is_missing(self) -> bool {
        matches!(self, Self::Unknown | Self::Unreadable)
    }
}

/// A range of the image with one origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The range in the image.
    pub range: ByteRange,
    /// Its origin.
    pub target: Target,
    /// The offset in the stream; 0 for other targets.
    pub offset: u64,
}

impl Run {
    /// The part of the run that lies in `range`.
    fn cut(self, range: ByteRange) -> Option<Self> {
        let both = self.range.intersection(range)?;
        let further = if matches!(self.target, Target::Stream(_)) { both.offset - self.range.offset } else { 0 };
        Some(Self { range: both, offset: self.offset + further, ..self })
    }
}

/// The runs of an image: in order, without gaps, coalesced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Map {
    size: u64,
    runs: Vec<Run>,
}

/// Why the entries of a map are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadMap {
    /// The last entry is cut short.
    #[error("its map does not end with a whole entry")]
    CutShort,
    /// There are too many.
    #[error("its map has more than {ENTRIES_MAX} entries")]
    TooMany,
    /// Two entries overlap.
    #[error("its map has two entries for the bytes at {at}")]
    Overlap {
        /// Where the second begins.
        at: u64,
    },
    /// An entry is not about the image.
    #[error("its map has the range {range}, which is outside the image of {size} bytes")]
    Outside {
        /// The range of the entry.
        range: ByteRange,
        /// The size of the image.
        size: u64,
    },
    /// An entry names a stream that is not listed.
    #[error("its map refers to stream number {number}, which does not exist")]
    NoStream {
        /// The number.
        number: u32,
    },
    /// An entry takes bytes from beyond the greatest offset of a stream.
    #[error("its map takes {range} from beyond the end of a stream")]
    BeyondStream {
        /// The range of the entry.
        range: ByteRange,
    },
}

impl Map {
    /// All of one stream.
    pub fn straight(size: u64) -> Self {
        let run = Run { range: ByteRange::new(0, size), target: Target::Stream(0), offset: 0 };
        Self { size, runs: vec![run] }
    }

    /// Parses the entries of a map of `size` bytes. Entries refer to `targets`; uncovered ranges come from `gap`.
    ///
    /// # Errors
    ///
    /// If an entry lies outside the image, overlaps another, or refers to a missing target.
    pub fn parse(entries: &[u8], size: u64, targets: &[Target], gap: Target) -> Result<Self, BadMap> {
        if !entries.len().is_multiple_of(ENTRY_LEN) {
            return Err(BadMap::CutShort);
        }
        if entries.len() / ENTRY_LEN > ENTRIES_MAX {
            return Err(BadMap::TooMany);
        }
        let entries = entries.chunks_exact(ENTRY_LEN).map(|entry| parse_entry(entry, size, targets));
        let mut entries =
            entries.filter(|run| !run.as_ref().is_ok_and(|run| run.range.is_empty())).collect::<Result<Vec<_>, _>>()?;
        entries.sort_unstable_by_key(|run| run.range.offset);
        let mut map = Self { size, runs: Vec::with_capacity(entries.len()) };
        let mut at = 0;
        for run in entries {
            if run.range.offset < at {
                return Err(BadMap::Overlap { at: run.range.offset });
            }
            map.push_gap(ByteRange::between(at, run.range.offset), gap);
            map.push(run);
            at = run.range.end();
        }
        map.push_gap(ByteRange::between(at, size), gap);
        Ok(map)
    }

    fn push_gap(&mut self, range: ByteRange, gap: Target) {
        // The gap's stream underlies the whole map, so offsets are equal.
        let offset = if matches!(gap, Target::Stream(_)) { range.offset } else { 0 };
        if !range.is_empty() {
            self.push(Run { range, target: gap, offset });
        }
    }

    fn push(&mut self, run: Run) {
        if let Some(last) = self.runs.last_mut().filter(|last| last.target == run.target) {
            let goes_on = last.offset.checked_add(last.range.len) == Some(run.offset);
            if goes_on || !matches!(run.target, Target::Stream(_)) {
                last.range.len += run.range.len;
                return;
            }
        }
        self.runs.push(run);
    }

    /// The size of the image, in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The runs of `range`, which must lie within the image.
    pub fn runs(&self, range: ByteRange) -> impl Iterator<Item = Run> {
        let first = self.runs.partition_point(|run| run.range.end() <= range.offset);
        self.runs[first..].iter().map_while(move |run| run.cut(range))
    }

    /// The highest offset that the map uses of each stream.
    pub fn reach(&self, streams: usize) -> Vec<u64> {
        let mut reach = vec![0; streams];
        for run in &self.runs {
            if let Target::Stream(stream) = run.target {
                let end = run.offset.saturating_add(run.range.len);
                reach[stream] = end.max(reach[stream]);
            }
        }
        reach
    }

    /// The ranges without bytes, in order.
    pub fn missing(&self) -> Vec<ByteRange> {
        let mut missing: Vec<ByteRange> = Vec::new();
        for run in self.runs.iter().filter(|run| run.target.is_missing()) {
            run.range.append_to(&mut missing);
        }
        missing
    }
}

fn is_hex_byte(digits: &str) -> bool {
    digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
}

fn parse_entry(entry: &[u8], size: u64, targets: &[Target]) -> Result<Run, BadMap> {
    // Never out of bounds: an entry has 28 bytes.
    let u64_at = |at: usize| entry[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let number = entry[24..].first_chunk().map_or(u32::MAX, |bytes| u32::from_le_bytes(*bytes));
    let (range, offset) = (ByteRange::new(u64_at(0), u64_at(8)), u64_at(16));
    if !range.fits(size) {
        return Err(BadMap::Outside { range, size });
    }
    let target = usize::try_from(number).ok().and_then(|number| targets.get(number));
    let target = *target.ok_or(BadMap::NoStream { number })?;
    match target {
        Target::Stream(_) if offset.checked_add(range.len).is_none() => Err(BadMap::BeyondStream { range }),
        Target::Stream(_) => Ok(Run { range, target, offset }),
        _ => Ok(Run { range, target, offset: 0 }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(at: u64, len: u64, offset: u64, target: u32) -> Vec<u8> {
        let mut entry = [at.to_le_bytes(), len.to_le_bytes(), offset.to_le_bytes()].concat();
        entry.extend(target.to_le_bytes());
        entry
    }

    const TARGETS: [Target; 3] = [Target::Stream(0), Target::Fill(0xff), Target::Unreadable];

    #[test]
    fn gaps_are_filled_and_adjacent_entries_merged() {
        let entries = [
            entry(30, 10, 20, 0),
            entry(10, 10, 0, 0),
            entry(20, 10, 10, 0),
            entry(60, 10, 60, 2),
            entry(70, 10, 70, 2),
        ];
        let map = Map::parse(&entries.concat(), 100, &TARGETS, Target::Fill(0)).unwrap();
        let stream = Run { range: ByteRange::new(10, 30), target: Target::Stream(0), offset: 0 };
        let found: Vec<_> = map.runs(ByteRange::new(0, 100)).collect();
        assert_eq!((found.len(), found[1]), (5, stream));
        assert_eq!(map.missing(), [ByteRange::new(60, 20)]);
        assert_eq!(map.reach(1), [30]);
        let cut: Vec<_> = map.runs(ByteRange::new(15, 3)).collect();
        assert_eq!(cut, [Run { range: ByteRange::new(15, 3), target: Target::Stream(0), offset: 5 }]);
    }

    #[test]
    fn invalid_entries_are_errors() {
        let outside = |offset, len| BadMap::Outside { range: ByteRange::new(offset, len), size: 100 };
        for (entries, why) in [
            (vec![entry(0, 10, 0, 0), entry(9, 10, 0, 0)], BadMap::Overlap { at: 9 }),
            (vec![entry(95, 6, 0, 0)], outside(95, 6)),
            (vec![entry(u64::MAX, 2, 0, 0)], outside(u64::MAX, 2)),
            (vec![entry(0, 1, 0, 3)], BadMap::NoStream { number: 3 }),
            (vec![entry(0, 2, u64::MAX, 0)], BadMap::BeyondStream { range: ByteRange::new(0, 2) }),
            (vec![vec![0; 27]], BadMap::CutShort),
        ] {
            assert_eq!(Map::parse(&entries.concat(), 100, &TARGETS, Target::Fill(0)), Err(why));
        }
    }

    #[test]
    fn symbolic_streams_are_recognised_by_name() {
        assert_eq!(Target::symbolic("http://aff4.org/Schema#Zero"), Some(Target::Fill(0)));
        assert_eq!(Target::symbolic("http://aff4.org/Schema#SymbolicStreamfF"), Some(Target::Fill(255)));
        for name in ["aff4://x", "http://aff4.org/Schema#SymbolicStreamF", "http://aff4.org/Schema#SymbolicStream+F"] {
            assert_eq!(Target::symbolic(name), None, "{name}");
        }
    }

    proptest! {
        #[test]
        fn every_byte_is_read_from_the_place_that_its_entry_names(lens in prop::collection::vec((0u64..9, 0u64..4, 0u32..3), 0..12), from in 0u64..90, len in 0u64..90) {
            let (mut entries, mut model) = (Vec::new(), Vec::new());
            for (gap, len, target) in lens {
                model.resize(model.len() + gap as usize, (Target::Unknown, 0));
                entries.push(entry(model.len() as u64, len, 1000 + model.len() as u64 * 3, target));
                let start = 1000 + model.len() as u64 * 3;
                model.extend((0..len).map(|at| (TARGETS[target as usize], start + at)));
            }
            entries.reverse();
            let map = Map::parse(&entries.concat(), model.len() as u64, &TARGETS, Target::Unknown).unwrap();
            let range = ByteRange::new(from, len).intersection(ByteRange::new(0, model.len() as u64)).unwrap_or_default();
            let mut at = range.offset;
            for run in map.runs(range) {
                prop_assert!(run.range.offset == at && !run.range.is_empty());
                for (further, byte) in (run.range.offset..run.range.end()).enumerate() {
                    let (target, offset) = model[byte as usize];
                    prop_assert_eq!(target, run.target);
                    prop_assert!(!matches!(target, Target::Stream(_)) || offset == run.offset + further as u64);
                }
                at = run.range.end();
            }
            prop_assert_eq!(at, range.end());
        }

        #[test]
        fn arbitrary_bytes_never_panic(entries in prop::collection::vec(any::<u8>(), 0..200), size: u64) {
            let _ = Map::parse(&entries, size, &TARGETS, Target::Fill(0));
        }
    }
}
