//! Patterns that are found by samples of the bytes: most bytes are never looked at, and nearly all samples only once.
//!
//! Each pattern has a window, which is a part of it. All windows have the same length: at most that of the shortest pattern. A window
//! consists of overlapping blocks of up to 5 bytes, one for each place in it where a block fits. Blocks are sampled at a stride that is
//! the number of these places. So wherever a window stands, exactly one of its blocks is sampled:
//!
//! ```text
//! bytes    the quick brown fox jumps
//! samples  the   ick   own   x j       blocks of 3 bytes at a stride of 6
//! window       quick br                8 bytes: its block `ick` is sampled, at the offset 2 of the window
//! ```
//!
//! A filter says for each sampled block, by its hash, whether a window may have it: nearly none does, and the next one is sampled.
//! Otherwise a table says at which offsets of a window it stands. The windows that would have it there are looked up by all of their
//! bytes, and the patterns with such a window are compared.
//!
//! Unlike an automaton, this has no state that each byte has to wait for, and its filter fits into a processor's cache also for ten
//! thousand patterns. It is slow where many patterns have the same window: [`Sampled::new`] leaves these out.

use std::ops::RangeInclusive;

use cheetah_error::Result;

use super::patterns::Patterns;
use crate::found::number;
use crate::memory::GROWING;

/// The greatest stride: a byte of the table has a bit for each offset of a window.
const STRIDE_MAX: usize = 8;
/// The number of bits of the filter, as a power of two: at least half of what the smallest cache of a processor has room for, and at
/// most what the second one has.
const FILTER_BITS: RangeInclusive<u32> = 17..=23;
/// Bits of the filter for each block, so that few other blocks meet one by their hash.
const BITS_OF_BLOCK: usize = 64;
/// The size of the table of blocks, as a power of two.
const TABLE_BITS: RangeInclusive<u32> = 14..=20;
/// Places in that table for each block.
const PLACES_OF_BLOCK: usize = 8;
/// The most bytes of a block: the hash of a block has bits that each bit of a longer one would not alter.
const BLOCK_BYTES_MAX: usize = 5;
/// The size of the table of windows, as a power of two.
const BUCKET_BITS: RangeInclusive<u32> = 4..=20;
/// The places in a pattern that are considered for its window: as many at its beginning as at its end.
const WINDOW_PLACES_MAX: usize = 64;
/// Samples that are looked up before any of them is decided about.
const TOGETHER: usize = 8;
/// The size of the tables that count windows, as a power of two.
const COUNT_BITS: RangeInclusive<u32> = 8..=22;
/// The golden ratio: products with it have well-mixed high bits (Knuth, section 6.4).
const GOLDEN_64: u64 = 0x9e37_79b9_7f4a_7c15;
/// The fraction of the square root of 2: another irrational number.
const SILVER_64: u64 = 0x6a09_e667_f3bc_c909;

/// How bytes are put together to what is looked up.
#[derive(Clone, Copy)]
struct Shape {
    block_bytes: usize,
    /// The distance of samples: the number of blocks in a window.
    stride: usize,
    /// The bytes of a block among eight bytes.
    block_mask: u64,
    /// What is set in each byte: if case is ignored, the bit in which the cases of an ASCII letter differ.
    fold: u64,
}

/// The window of a pattern.
#[derive(Clone, Copy)]
struct Window {
    key: u64,
    pattern: u32,
    /// The offset in the pattern.
    offset: u32,
}

/// Patterns, to be found by samples.
pub struct Sampled {
    shape: Shape,
    /// For each hash of a block, whether a window has such a block: a bit each.
    filter: Box<[u64]>,
    /// The bits of a hash that are used in `filter`.
    filter_mask: usize,
    /// For each hash of a block, the offsets of windows at which such a block stands, a bit each.
    offsets: Box<[u8]>,
    /// The bits of a hash that are used in `offsets`.
    offsets_mask: usize,
    /// The windows, ordered by the hashes of their keys.
    windows: Box<[Window]>,
    /// Where the windows of each hash begin; at the end, their number.
    buckets: Box<[u32]>,
    /// The bits of a hash of 64 that are not used in `buckets`.
    buckets_shift: u32,
}

impl Shape {
    /// Returns the shape for patterns of at least this length, with blocks of up to `block_bytes`, at most [`BLOCK_BYTES_MAX`].
    fn new(pattern_bytes_min: usize, block_bytes: usize, ignore_case: bool) -> Self {
        let block_bytes = block_bytes.clamp(1, BLOCK_BYTES_MAX).min(pattern_bytes_min.max(1));
        let stride = (pattern_bytes_min.max(1) - block_bytes + 1).min(STRIDE_MAX);
        let block_mask = u64::MAX >> (64 - 8 * block_bytes);
        Self { block_bytes, stride, block_mask, fold: if ignore_case { 0x2020_2020_2020_2020 } else { 0 } }
    }

    const fn window_bytes(self) -> usize {
        self.stride + self.block_bytes - 1
    }

    /// The block at the beginning of these bytes.
    const fn block(self, bytes: [u8; 8]) -> u64 {
        (u64::from_le_bytes(bytes) | self.fold) & self.block_mask
    }

    /// What a window is looked up by: nearly always another for other bytes.
    fn key(self, window: &[u8]) -> u64 {
        let four = |from: usize| {
            let bytes: [u8; 4] = first(window.get(from..).unwrap_or_default());
            u64::from(u32::from_le_bytes(bytes)) | (self.fold & u64::from(u32::MAX))
        };
        // Windows have at most 12 bytes: three times four are all of them.
        let last = window.len().saturating_sub(4);
        (four(0) | (four(last) << 32)) ^ four(last / 2).wrapping_mul(GOLDEN_64)
    }
}

impl Sampled {
    /// What [`Sampled::new`] takes at most for this many patterns, in bytes.
    pub fn memory_bytes(patterns: usize) -> usize {
        let twice = patterns.saturating_mul(2);
        let filter = (1usize << bits(patterns.saturating_mul(STRIDE_MAX * BITS_OF_BLOCK), FILTER_BITS)) / 8;
        let blocks = 1usize << bits(patterns.saturating_mul(STRIDE_MAX * PLACES_OF_BLOCK), TABLE_BITS);
        let tables = filter + blocks + ((1usize << bits(twice, BUCKET_BITS)) + 1) * size_of::<u32>();
        let counts = (1usize << bits(twice, COUNT_BITS)) * 2 * size_of::<u32>();
        // The list of windows may be copied when it has its length.
        let windows = patterns.saturating_mul(2 * size_of::<Window>());
        let left_out = patterns.saturating_mul(GROWING * size_of::<u32>());
        windows.saturating_add(left_out).saturating_add(tables + counts)
    }

    /// Prepares to find the chosen patterns, with blocks of up to `block_bytes`; `None` if there are none. Returns those that are left
    /// out, because more than `alike_max` would have to share a window.
    pub fn new(patterns: &Patterns, chosen: &[u32], block_bytes: usize, alike_max: u32) -> (Option<Self>, Vec<u32>) {
        let pattern_bytes_min = chosen.iter().map(|pattern| patterns.bytes(*pattern).len()).min().unwrap_or_default();
        if pattern_bytes_min == 0 {
            return (None, chosen.to_vec());
        }
        let shape = Shape::new(pattern_bytes_min, block_bytes, patterns.ignores_case());
        let (windows, left_out) = windows(shape, patterns, chosen, alike_max);
        ((!windows.is_empty()).then(|| Self::of(shape, patterns, windows)), left_out)
    }

    /// The tables of these windows.
    fn of(shape: Shape, patterns: &Patterns, mut windows: Vec<Window>) -> Self {
        let blocks = windows.len() * shape.stride;
        let filter_bits = 1usize << bits(blocks * BITS_OF_BLOCK, FILTER_BITS);
        let (filter_mask, mut filter) = (filter_bits - 1, vec![0u64; filter_bits / 64].into_boxed_slice());
        let table_places = 1usize << bits(blocks * PLACES_OF_BLOCK, TABLE_BITS);
        let (offsets_mask, mut offsets) = (table_places - 1, vec![0u8; table_places].into_boxed_slice());
        for window in &windows {
            let from = window.offset as usize;
            let bytes = patterns.bytes(window.pattern).get(from..from + shape.window_bytes()).unwrap_or_default();
            for (offset, block) in bytes.windows(shape.block_bytes).enumerate() {
                let block = shape.block(first(block));
                let bit = filter_hash(block, filter_mask);
                filter.get_mut(bit / 64).into_iter().for_each(|bits| *bits |= 1 << (bit % 64));
                let offsets = offsets.get_mut(table_hash(block, offsets_mask));
                offsets.into_iter().for_each(|offsets| *offsets |= 1 << offset);
            }
        }
        let bucket_bits = bits(2 * windows.len(), BUCKET_BITS);
        let buckets_shift = 64 - bucket_bits;
        windows.sort_unstable_by_key(|window| key_hash(window.key, buckets_shift));
        let before = |bucket| windows.partition_point(|window| key_hash(window.key, buckets_shift) < bucket);
        let buckets = (0..=1 << bucket_bits).map(|bucket| number(before(bucket))).collect();
        Self { shape, filter, filter_mask, offsets, offsets_mask, windows: windows.into(), buckets, buckets_shift }
    }

    /// Calls `found` with the number of each pattern in `bytes`, and where it begins. The patterns are those that it was made of.
    pub fn scan(
        &self,
        patterns: &Patterns,
        bytes: &[u8],
        mut found: impl FnMut(u32, usize) -> Result<()>,
    ) -> Result<()> {
        // A constant lets the compiler compute where the samples are.
        match self.shape.stride {
            1 => self.scan_at::<1>(patterns, bytes, &mut found),
            2 => self.scan_at::<2>(patterns, bytes, &mut found),
            3 => self.scan_at::<3>(patterns, bytes, &mut found),
            4 => self.scan_at::<4>(patterns, bytes, &mut found),
            5 => self.scan_at::<5>(patterns, bytes, &mut found),
            6 => self.scan_at::<6>(patterns, bytes, &mut found),
            7 => self.scan_at::<7>(patterns, bytes, &mut found),
            _ => self.scan_at::<STRIDE_MAX>(patterns, bytes, &mut found),
        }
    }

    fn scan_at<const STRIDE: usize>(
        &self,
        patterns: &Patterns,
        bytes: &[u8],
        found: &mut impl FnMut(u32, usize) -> Result<()>,
    ) -> Result<()> {
        debug_assert_eq!(self.shape.stride, STRIDE);
        let mut at = 0;
        // Samples do not depend on each other, so that the processor works at several of them at once.
        while let Some(part) = bytes.get(at..).and_then(|rest| rest.get(..(TOGETHER - 1) * STRIDE + 8)) {
            let passed = |nth: usize| self.passes(part[nth * STRIDE..].first_chunk().copied().unwrap_or_default());
            // Nearly always none.
            let mut all = (0..TOGETHER).fold(0u64, |all, nth| all | (passed(nth) << nth));
            while all != 0 {
                let nth = all.trailing_zeros() as usize;
                all &= all - 1;
                self.look_up(patterns, bytes, at + nth * STRIDE, found)?;
            }
            at += TOGETHER * STRIDE;
        }
        for at in (at..bytes.len()).step_by(STRIDE) {
            self.look_up(patterns, bytes, at, found)?;
        }
        Ok(())
    }

    /// 1 if a window may have the block at the beginning of these bytes, else 0.
    #[inline(always)]
    fn passes(&self, bytes: [u8; 8]) -> u64 {
        let bit = filter_hash(self.shape.block(bytes), self.filter_mask);
        (self.filter.get(bit / 64).copied().unwrap_or_default() >> (bit % 64)) & 1
    }

    /// Looks up the windows that have the block at `at`.
    // It is called for few samples, and the loop over them is faster without it.
    #[inline(never)]
    fn look_up(
        &self,
        patterns: &Patterns,
        bytes: &[u8],
        at: usize,
        found: &mut impl FnMut(u32, usize) -> Result<()>,
    ) -> Result<()> {
        let block = self.shape.block(first(bytes.get(at..).unwrap_or_default()));
        let mut offsets = self.offsets.get(table_hash(block, self.offsets_mask)).copied().unwrap_or_default();
        while offsets != 0 {
            let offset = offsets.trailing_zeros() as usize;
            offsets &= offsets - 1;
            let Some(from) = at.checked_sub(offset) else { break };
            let Some(window) = bytes.get(from..from + self.shape.window_bytes()) else { continue };
            let key = self.shape.key(window);
            for window in self.bucket(key).iter().filter(|window| window.key == key) {
                let Some(begin) = from.checked_sub(window.offset as usize) else { continue };
                if patterns.begins(window.pattern, bytes.get(begin..).unwrap_or_default()) {
                    found(window.pattern, begin)?;
                }
            }
        }
        Ok(())
    }

    /// The windows whose keys have the hash of this one.
    fn bucket(&self, key: u64) -> &[Window] {
        let bucket = key_hash(key, self.buckets_shift);
        let Some([from, to]) = self.buckets.get(bucket..bucket + 2) else { return &[] };
        self.windows.get(*from as usize..*to as usize).unwrap_or_default()
    }
}

/// Counts of windows by the hashes of their keys. Windows with the same hash are counted together, so that a count is never too small.
struct Counts {
    counts: Box<[u32]>,
    shift: u32,
}

impl Counts {
    /// None, for windows of this many patterns.
    fn new(patterns: usize) -> Self {
        let bits = bits(patterns.saturating_mul(2), COUNT_BITS);
        Self { counts: vec![0; 1 << bits].into_boxed_slice(), shift: 64 - bits }
    }

    fn of(&self, window: &Window) -> u32 {
        self.counts.get(key_hash(window.key, self.shift)).copied().unwrap_or_default()
    }

    fn add(&mut self, window: &Window) {
        let count = self.counts.get_mut(key_hash(window.key, self.shift));
        count.into_iter().for_each(|count| *count = count.saturating_add(1));
    }
}

/// The window of each pattern: of those that it has, the one that the fewest patterns before it were given; then the one
/// that the fewest have. Returns the patterns that have none, too: more than `alike_max` would be given theirs.
fn windows(shape: Shape, patterns: &Patterns, chosen: &[u32], alike_max: u32) -> (Vec<Window>, Vec<u32>) {
    let places = |pattern: u32| {
        let bytes = patterns.bytes(pattern);
        let count = (bytes.len() + 1).saturating_sub(shape.window_bytes());
        let (first, last) = (WINDOW_PLACES_MAX / 2, count.saturating_sub(WINDOW_PLACES_MAX / 2));
        (0..count.min(first)).chain(first.max(last)..count).map(move |offset| {
            let window = bytes.get(offset..offset + shape.window_bytes()).unwrap_or_default();
            Window { key: shape.key(window), pattern, offset: number(offset) }
        })
    };
    let mut had = Counts::new(chosen.len());
    chosen.iter().flat_map(|pattern| places(*pattern)).for_each(|window| had.add(&window));
    let mut given = Counts::new(chosen.len());
    let (mut windows, mut left_out) = (Vec::with_capacity(chosen.len()), Vec::new());
    for pattern in chosen {
        let best = places(*pattern).min_by_key(|window| (given.of(window), had.of(window)));
        match best.filter(|window| given.of(window) < alike_max) {
            Some(window) => {
                given.add(&window);
                windows.push(window);
            }
            None => left_out.push(*pattern),
        }
    }
    (windows, left_out)
}

/// The first bytes, followed by zeros if there are fewer.
fn first<const COUNT: usize>(bytes: &[u8]) -> [u8; COUNT] {
    bytes.first_chunk().copied().unwrap_or_else(|| {
        let mut some = [0; COUNT];
        some.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        some
    })
}

/// The power of two of a table with room for this many.
fn bits(places: usize, within: RangeInclusive<u32>) -> u32 {
    places.next_power_of_two().trailing_zeros().clamp(*within.start(), *within.end())
}

/// Of the product, bits that every bit of the block alters, at a constant place: a shift by a variable takes longer.
const fn filter_hash(block: u64, mask: usize) -> usize {
    (block.wrapping_mul(GOLDEN_64) >> (8 * BLOCK_BYTES_MAX)) as usize & mask
}

/// As in the filter, with another factor: blocks that meet one in the filter hardly meet it here, too.
const fn table_hash(block: u64, mask: usize) -> usize {
    (block.wrapping_mul(SILVER_64) >> (8 * BLOCK_BYTES_MAX)) as usize & mask
}

/// Not truncated: the shift leaves the bits of a small table.
const fn key_hash(key: u64, shift: u32) -> usize {
    (key.wrapping_mul(GOLDEN_64) >> shift) as usize
}
