//! Finds repeats: splits a window of evidence into literals and matches.

/// The number of bytes searched at a time, and written as one block.
pub const WINDOW: usize = 32 << 10;
/// Symbols that a token can name at each of its two places.
pub const SYMBOLS: usize = 512;
/// From here on, a token's first symbol is a length (less 3), and its second a literal.
pub const HALF: usize = 256;
/// A token's second symbol if it has none; those before are codes of distances.
pub const NONE: usize = 30;
/// Positions remembered: one for each value of a hash.
const HASH_BITS: u32 = 14;
/// The maximum length of a match, in bytes.
const MATCH_MAX: usize = 258;
/// Bytes at the end in which no match begins, so that the eight bytes at either position are within the window.
const TAIL: usize = 10;
/// The number of bytes that the longest load has.
const LOAD: usize = 16;
/// Bytes without a match after which not all positions are searched.
const PATIENCE: usize = 1024;

/// Two symbols and extra bits, in one word: two literals, one literal, or a match's length and distance.
#[derive(Clone, Copy)]
pub struct Token(u32);

impl Token {
    /// The low two bytes of `bytes`.
    #[inline(always)]
    fn pair(bytes: u32) -> Self {
        Self(bytes & 255 | (HALF as u32 | bytes >> 8 & 255) << 9)
    }

    /// The low byte of `bytes`.
    #[inline(always)]
    fn single(bytes: u32) -> Self {
        Self(bytes & 255 | (NONE as u32) << 9)
    }

    #[inline(always)]
    fn repeat(len: usize, distance: usize) -> Self {
        // Both are within a window.
        let index = distance as u32 - 1;
        let (code, extra) = distance_code(index);
        Self(HALF as u32 | (len - 3) as u32 | code << 9 | (index & ((1 << extra) - 1)) << 18)
    }

    /// A literal or a length.
    #[inline(always)]
    pub fn first(self) -> usize {
        self.0 as usize % SYMBOLS
    }

    /// A distance's code, a literal or [`NONE`].
    #[inline(always)]
    pub fn second(self) -> usize {
        (self.0 >> 9) as usize % SYMBOLS
    }

    /// The bits that follow the second symbol.
    #[inline(always)]
    pub fn extra(self) -> u64 {
        (self.0 >> 18).into()
    }
}

/// With room for the longest load at the last position.
type Window = [u8; WINDOW + LOAD];
/// The last position of each hash. Positions in a window fit in 16 bits.
type Seen = [u16; 1 << HASH_BITS];

/// Tokens in order; each stands for at least one byte.
struct List {
    tokens: Box<[Token; WINDOW]>,
    count: usize,
}

impl List {
    /// Appends `token` if `counts`; otherwise the next one overwrites it, which is cheaper than a mispredicted branch.
    #[inline(always)]
    fn put(&mut self, token: Token, counts: bool) {
        self.tokens[self.count % WINDOW] = token;
        self.count += usize::from(counts);
    }
}

/// One window, split into tokens.
pub struct Tokens {
    window: Box<Window>,
    seen: Box<Seen>,
    list: List,
}

impl Default for Tokens {
    fn default() -> Self {
        Self {
            window: Box::new([0; WINDOW + LOAD]),
            seen: Box::new([0; 1 << HASH_BITS]),
            list: List { tokens: Box::new([Token(0); WINDOW]), count: 0 },
        }
    }
}

impl Tokens {
    /// All tokens, in order.
    pub fn all(&self) -> &[Token] {
        &self.list.tokens[..self.list.count]
    }

    /// Splits `data`, which must be no longer than a window.
    pub fn find(&mut self, data: &[u8]) {
        self.window[..data.len()].copy_from_slice(data);
        self.seen.fill(0);
        self.list.count = 0;
        search(&self.window, data.len(), &mut self.seen, &mut self.list);
    }
}

/// Splits the first `len` bytes of `window`. Two positions are searched at a time.
#[inline(never)]
fn search(window: &Window, len: usize, seen: &mut Seen, list: &mut List) {
    let end = len.saturating_sub(TAIL);
    list.put(Token::single(window[0].into()), len > 0);
    // A hash that was never seen has position 0, so the search starts at 1. Everything before `done` is in a match.
    let (mut at, mut done) = (1, 1);
    while at < end {
        let (here, next) = (load(window, at), load(window, at + 1));
        let before = replace(seen, here, at);
        let next_before = replace(seen, next, at + 1);
        let differs = here ^ load(window, before);
        let next_differs = next ^ load(window, next_before);
        if differs as u32 != 0 && next_differs as u32 != 0 {
            list.put(Token::pair(here as u32), true);
            at += 2;
            if at - done > PATIENCE {
                let skipped = ((at - done) / 128).min(end.saturating_sub(at));
                at = literals(window, at, at + skipped, list);
            }
            continue;
        }
        // The second match is better if it is longer by more than the literal before it.
        let second = differs as u32 != 0 || next_differs.trailing_zeros() >= differs.trailing_zeros() + 16;
        list.put(Token::single(here as u32), second);
        let start = at + usize::from(second);
        let (before, differs) = if second { (next_before, next_differs) } else { (before, differs) };
        let ahead = load(window, start);
        for skipped in 1..4 {
            replace(seen, ahead >> (8 * skipped), start + skipped);
        }
        let found = if differs == 0 {
            let found = extend(window, start, before, (len - start).min(MATCH_MAX));
            // A run goes on at a distance of 1, whose code is short.
            let end = start + found - 1;
            replace(seen, load(window, end), end);
            found
        } else {
            differs.trailing_zeros() as usize / 8
        };
        list.put(Token::repeat(found, start - before), true);
        done = start + found;
        at = done;
    }
    literals(window, at, len, list);
}

/// Appends the bytes from `at` to `end` as literals; returns where they end.
#[inline(always)]
fn literals(window: &Window, mut at: usize, end: usize, list: &mut List) -> usize {
    while at + 1 < end {
        list.put(Token::pair(load(window, at) as u32), true);
        at += 2;
    }
    list.put(Token::single(load(window, at) as u32), at < end);
    at.max(end)
}

/// Remembers `at` for the bytes `here`, and returns the position before it with the same hash.
#[inline(always)]
fn replace(seen: &mut Seen, here: u64, at: usize) -> usize {
    // A position has 15 bits.
    std::mem::replace(&mut seen[hash(here)], at as u16).into()
}

/// Returns the length of the match at `at`, at most `len_max`.
#[inline(always)]
fn extend(window: &Window, at: usize, before: usize, len_max: usize) -> usize {
    let mut len = 0;
    while len < len_max {
        let differs = load16(window, at + len) ^ load16(window, before + len);
        if differs != 0 {
            len += differs.trailing_zeros() as usize / 8;
            break;
        }
        len += LOAD;
    }
    // Loads beyond the window return arbitrary bytes, or its beginning; `len_max` excludes them.
    len.min(len_max)
}

/// Wraps around at the window's end, so that the compiler can see that no load is outside.
#[inline(always)]
fn bytes<const N: usize>(window: &Window, at: usize) -> [u8; N] {
    let at = at % WINDOW;
    let mut bytes = [0; N];
    bytes.copy_from_slice(&window[at..at + N]);
    bytes
}

#[inline(always)]
fn load(window: &Window, at: usize) -> u64 {
    u64::from_le_bytes(bytes(window, at))
}

#[inline(always)]
fn load16(window: &Window, at: usize) -> u128 {
    u128::from_le_bytes(bytes(window, at))
}

/// Of the first four bytes, the minimum length of a match (Fibonacci hashing).
#[inline(always)]
fn hash(here: u64) -> usize {
    ((here as u32).wrapping_mul(0x9e37_79b1) >> (32 - HASH_BITS)) as usize
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

/// Returns the code of the distance `index + 1`, and the number of low bits of `index` that follow it (RFC 1951,
/// section 3.2.5).
#[inline(always)]
fn distance_code(index: u32) -> (u32, u32) {
    let extra = (index | 2).ilog2() - 1;
    (2 * extra + (index >> extra), extra)
}
