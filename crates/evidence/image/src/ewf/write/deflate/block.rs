//! A block with dynamic Huffman codes (RFC 1951, section 3.2.7).

use super::bits::Bits;
use super::huffman::{Code, codes, lengths};
use super::tokens::{HALF, LENS, NONE, SYMBOLS, Token};

/// The symbol that ends a block, and that of the shortest match.
const END: usize = 256;
const MATCH: usize = 257;
/// The maximum length of a code.
const BITS_MAX: usize = 15;
/// The maximum length of a code length code.
const LENGTH_BITS_MAX: usize = 7;
/// The order of code length code lengths.
const ORDER: [usize; 19] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];

/// Writes `tokens` as one block, optionally the last of the stream; `None` if the output is too small.
pub fn write<'a>(tokens: &[Token], last: bool, mut bits: Bits<'a>) -> Option<Bits<'a>> {
    let (freqs, distance_freqs) = frequencies(tokens);
    let literal_lengths = lengths(&freqs, BITS_MAX);
    let distance_lengths = lengths(&distance_freqs, BITS_MAX);
    // The size is known before anything is written.
    let least: u64 = freqs.iter().zip(&literal_lengths).map(|(freq, bits)| u64::from(*freq) * u64::from(*bits)).sum();
    if least / 8 > bits.room() as u64 {
        return None;
    }
    bits.put(u64::from(last) | 2 << 1, 3);
    header(&literal_lengths, &distance_lengths, &mut bits)?;
    let literals = codes(&literal_lengths);
    let mut bits = body(tokens, &firsts(&literals), &seconds(&literals, &codes(&distance_lengths)), bits)?;
    bits.put(literals[END].bits.into(), literals[END].count);
    bits.flush()?;
    Some(bits)
}

/// Returns the frequencies of literals and lengths, the block's end included, and those of distances.
fn frequencies(tokens: &[Token]) -> ([u32; 286], [u32; NONE]) {
    let (mut firsts, mut seconds) = ([0; SYMBOLS], [0; SYMBOLS]);
    for token in tokens {
        firsts[token.first()] += 1;
        seconds[token.second()] += 1;
    }
    let (mut freqs, mut distances) = ([0; 286], [0; NONE]);
    for ((freq, first), second) in freqs.iter_mut().zip(&firsts[..HALF]).zip(&seconds[HALF..]) {
        *freq = first + second;
    }
    freqs[END] = 1;
    for (how, freq) in LENS[3..].iter().zip(&firsts[HALF..]) {
        freqs[MATCH + usize::from(how.code)] += freq;
    }
    distances.copy_from_slice(&seconds[..NONE]);
    (freqs, distances)
}

/// Writes all tokens, each without a branch. The writer is a local value here, so that it stays in registers.
#[inline(never)]
fn body<'a>(
    tokens: &[Token],
    firsts: &[u32; SYMBOLS],
    seconds: &[u32; SYMBOLS],
    mut bits: Bits<'a>,
) -> Option<Bits<'a>> {
    for token in tokens {
        let (first, second) = (firsts[token.first()], seconds[token.second()]);
        let second_bits = u64::from(second >> 10) | token.extra() << (second & 31);
        // At most 20 bits for a length and 28 for a distance.
        let (count, second_count) = (first & 31, second >> 5 & 31);
        bits.put(u64::from(first >> 5) | second_bits << count, count + second_count);
        bits.flush()?;
    }
    Some(bits)
}

/// What is written for each first symbol of a token, a length's extra bits included; its number of bits in the lowest
/// five bits.
fn firsts(literals: &[Code; 286]) -> [u32; SYMBOLS] {
    let mut firsts = [0; SYMBOLS];
    for (first, code) in firsts.iter_mut().zip(&literals[..HALF]) {
        *first = code.bits << 5 | code.count;
    }
    for ((len, first), how) in (3..).zip(&mut firsts[HALF..]).zip(&LENS[3..]) {
        let code = literals[MATCH + usize::from(how.code)];
        let bits = code.bits | (len - u32::from(how.base)) << code.count;
        *first = bits << 5 | (code.count + u32::from(how.extra));
    }
    firsts
}

/// The code of each second symbol of a token; in the lowest five bits its number of bits, in the next five the same
/// with the extra bits.
fn seconds(literals: &[Code; 286], distances: &[Code; NONE]) -> [u32; SYMBOLS] {
    let mut seconds = [0; SYMBOLS];
    for ((index, second), code) in (0u32..).zip(&mut seconds).zip(distances) {
        let extra = (index / 2).saturating_sub(1);
        *second = code.bits << 10 | (code.count + extra) << 5 | code.count;
    }
    for (second, code) in seconds[HALF..].iter_mut().zip(&literals[..HALF]) {
        *second = code.bits << 10 | code.count << 5 | code.count;
    }
    seconds
}

/// Writes the run-length coded lengths of all codes.
fn header(literals: &[u8; 286], distances: &[u8; 30], bits: &mut Bits<'_>) -> Option<()> {
    let used = |lengths: &[u8], least: usize| {
        lengths.iter().rposition(|bits| *bits > 0).map_or(least, |last| least.max(last + 1))
    };
    let (literals, distances) = (&literals[..used(literals, MATCH)], &distances[..used(distances, 1)]);
    let mut all = [0; 286 + 30];
    let all = &mut all[..literals.len() + distances.len()];
    let (first, second) = all.split_at_mut(literals.len());
    first.copy_from_slice(literals);
    second.copy_from_slice(distances);

    let mut runs = [Run::default(); 286 + 30];
    let mut count = 0;
    let mut freqs = [0; 19];
    let mut at = 0;
    while at < all.len() {
        let (run, covered) = Run::at(all, at);
        freqs[usize::from(run.symbol)] += 1;
        runs[count] = run;
        count += 1;
        at += covered;
    }
    let run_lengths = lengths(&freqs, LENGTH_BITS_MAX);
    let run_codes = codes(&run_lengths);
    let written = ORDER.iter().rposition(|symbol| run_lengths[*symbol] > 0).map_or(4, |last| 4.max(last + 1));
    bits.put((literals.len() - MATCH) as u64, 5);
    bits.put((distances.len() - 1) as u64, 5);
    bits.put((written - 4) as u64, 4);
    bits.flush()?;
    for symbol in &ORDER[..written] {
        bits.put(run_lengths[*symbol].into(), 3);
        bits.flush()?;
    }
    for run in &runs[..count] {
        let code = run_codes[usize::from(run.symbol)];
        bits.put(code.bits.into(), code.count);
        bits.put(run.extra.into(), run.extra_bits);
        bits.flush()?;
    }
    Some(())
}

/// A run of code lengths in the header.
#[derive(Clone, Copy, Default)]
struct Run {
    symbol: u8,
    extra: u8,
    extra_bits: u32,
}

impl Run {
    /// The run that starts at `at`, and the number of lengths it covers.
    fn at(all: &[u8], at: usize) -> (Self, usize) {
        let length = all[at];
        let same = all[at..].iter().take_while(|other| **other == length).count();
        let (symbol, least, most, extra_bits) = match (length, same) {
            (0, 11..) => (18, 11, 138, 7),
            (0, 3..) => (17, 3, 10, 3),
            (_, 3..) if at > 0 && all[at - 1] == length => (16, 3, 6, 2),
            _ => return (Self { symbol: length, ..Self::default() }, 1),
        };
        let covered = same.min(most);
        // At most 127.
        (Self { symbol, extra: (covered - least) as u8, extra_bits }, covered)
    }
}
