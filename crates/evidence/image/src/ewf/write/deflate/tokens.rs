//! Finds repeats: splits a window of evidence into literals and matches.

/// The number of bytes searched at a time, and written as one block.
pub const WINDOW: usize = 32 << 10;
/// Positions remembered: one for each value of a hash.
const HASH_BITS: u32 = 14;
/// The number of bytes that are hashed, and the minimum length of a match.
const MATCH_MIN: usize = 4;
/// The maximum length of a match, in bytes.
const MATCH_MAX: usize = 258;
/// Bytes at the end in which no match begins, so that all loads stay within the window.
const TAIL: usize = 12;

/// Some literals and then a match.
#[derive(Clone, Copy)]
pub struct Sequence {
    /// Literals; they lie in the window.
    pub literals: u16,
    /// Bytes of the match; 0 in the last sequence, which has none.
    pub len: u16,
    /// The distance back to the match.
    pub distance: u16,
}

/// One window, split into sequences.
pub struct Tokens {
    /// The window, with room for an eight-byte load at the last position.
    window: Box<[u8; WINDOW + 8]>,
    /// The last position of each hash. Positions in a window fit in 16 bits.
    seen: Box<[u16; 1 << HASH_BITS]>,
    sequences: Vec<Sequence>,
    /// The frequency of each literal.
    pub literals: [u32; 256],
    /// The frequency of each length code.
    pub lens: [u32; 29],
    /// The frequency of each distance code.
    pub distances: [u32; 30],
}

impl Default for Tokens {
    fn default() -> Self {
        Self {
            window: Box::new([0; WINDOW + 8]),
            seen: Box::new([0; 1 << HASH_BITS]),
            sequences: Vec::with_capacity(WINDOW / MATCH_MIN + 1),
            literals: [0; 256],
            lens: [0; 29],
            distances: [0; 30],
        }
    }
}

impl Tokens {
    /// Returns the bytes from `at` on; only the first is certain to be part of the window.
    #[inline(always)]
    pub fn bytes<const N: usize>(&self, at: usize) -> [u8; N] {
        bytes(&self.window, at)
    }

    /// All sequences, in order.
    pub fn sequences(&self) -> &[Sequence] {
        &self.sequences
    }

    /// Splits `data`, which must be no longer than a window.
    pub fn find(&mut self, data: &[u8]) {
        let len = data.len();
        self.window[..len].copy_from_slice(data);
        self.seen.fill(0);
        self.sequences.clear();
        (self.literals, self.lens, self.distances) = ([0; 256], [0; 29], [0; 30]);
        let end = len.saturating_sub(TAIL);
        // Everything before `done` is in a sequence. A hash that was never seen has position 0, so the search starts at
        // 1.
        let (mut done, mut at) = (0, 1);
        while at < end {
            let here = load(&self.window, at);
            let before = usize::from(std::mem::replace(&mut self.seen[hash(here)], low(at)));
            let differs = here ^ load(&self.window, before);
            if differs as u32 != 0 {
                self.literals[here as usize & 255] += 1;
                at += 1;
                continue;
            }
            let mut found = self.extend(at, before, differs, (len - at).min(MATCH_MAX));
            // Bytes that were emitted as literals may be part of it.
            let (mut start, distance) = (at, at - before);
            while start > done && start > distance && found < MATCH_MAX && self.same(start - 1, start - 1 - distance) {
                start -= 1;
                found += 1;
                self.literals[usize::from(self.window[start & (WINDOW - 1)])] -= 1;
            }
            self.lens[usize::from(LENS[found].code)] += 1;
            self.distances[distance_code(distance).0 & 31] += 1;
            self.sequences.push(Sequence { literals: low(start - done), len: low(found), distance: low(distance) });
            done = start + found;
            self.remember(at + 1, done, end);
            at = done;
        }
        self.literals[usize::from(self.window[0])] += 1;
        self.window[at.min(len)..len].iter().for_each(|byte| self.literals[usize::from(*byte)] += 1);
        self.sequences.push(Sequence { literals: low(len - done), len: 0, distance: 0 });
    }

    /// Returns the length of the match at `at`, whose first eight bytes compare as `differs`.
    #[inline(always)]
    fn extend(&self, at: usize, before: usize, mut differs: u64, len_max: usize) -> usize {
        let mut len = 0;
        while differs == 0 && len < len_max {
            len += 8;
            differs = load(&self.window, at + len) ^ load(&self.window, before + len);
        }
        // Loads beyond the window return arbitrary bytes, or its beginning; `len_max` excludes them.
        (len + differs.trailing_zeros() as usize / 8).min(len_max)
    }

    #[inline(always)]
    fn same(&self, a: usize, b: usize) -> bool {
        self.window[a & (WINDOW - 1)] == self.window[b & (WINDOW - 1)]
    }

    /// Remembers some of the positions a match covers: two where it begins, two where it ends.
    #[inline(always)]
    fn remember(&mut self, begin: usize, done: usize, end: usize) {
        if done < end {
            for at in [begin, done - 2] {
                let here = load(&self.window, at);
                self.seen[hash(here)] = low(at);
                self.seen[hash(here >> 8)] = low(at + 1);
            }
        }
    }
}

/// Wraps around at the window's end, so that the compiler can see that no load is outside.
#[inline(always)]
fn bytes<const N: usize>(window: &[u8; WINDOW + 8], at: usize) -> [u8; N] {
    let at = at & (WINDOW - 1);
    let mut bytes = [0; N];
    bytes.copy_from_slice(&window[at..at + N]);
    bytes
}

#[inline(always)]
fn load(window: &[u8; WINDOW + 8], at: usize) -> u64 {
    u64::from_le_bytes(bytes(window, at))
}

/// Of the first [`MATCH_MIN`] bytes (Fibonacci hashing).
#[inline(always)]
fn hash(here: u64) -> usize {
    ((here as u32).wrapping_mul(0x9e37_79b1) >> (32 - HASH_BITS)) as usize
}

/// A position or length within a window, which has at most 2^15 bytes.
#[inline(always)]
fn low(value: usize) -> u16 {
    value as u16
}

/// The encoding of a match's length.
#[derive(Clone, Copy)]
pub struct Len {
    /// Index of its code, from that of length 3.
    pub code: u8,
    /// The shortest length with this code.
    pub base: u16,
    /// Bits that follow the code, which count from the base.
    pub extra: u8,
}

/// For each length, from 3 to 258.
pub static LENS: [Len; MATCH_MAX + 1] = lens();

/// The table in RFC 1951, section 3.2.5: four codes for each number of extra bits, except that there are eight with
/// none, and that 258 has a code of its own.
const fn lens() -> [Len; MATCH_MAX + 1] {
    let mut lens = [Len { code: 0, base: 3, extra: 0 }; MATCH_MAX + 1];
    let (mut code, mut base) = (0, 3);
    while code < 28 {
        let extra = if code < 8 { 0 } else { code / 4 - 1 };
        let mut len = base;
        while len < base + (1 << extra) && len <= MATCH_MAX {
            // All below 259.
            lens[len] = Len { code, base: base as u16, extra };
            len += 1;
        }
        base += 1 << extra;
        code += 1;
    }
    lens[MATCH_MAX] = Len { code: 28, base: MATCH_MAX as u16, extra: 0 };
    lens
}

/// Returns the code of a distance, and the number of low bits of `distance - 1` that follow it (RFC 1951, section
/// 3.2.5).
#[inline(always)]
pub fn distance_code(distance: usize) -> (usize, u32) {
    let index = distance - 1;
    if index < 4 {
        return (index, 0);
    }
    let extra = index.ilog2() - 1;
    (2 * extra as usize + (index >> extra), extra)
}
