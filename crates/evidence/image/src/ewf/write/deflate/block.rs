//! A block with dynamic Huffman codes (RFC 1951, section 3.2.7).

use super::bits::Bits;
use super::huffman::{Code, codes, lengths};
use super::tokens::{LENS, Tokens, distance_code};

/// The symbol that ends a block, and that of the shortest match.
const END: usize = 256;
const MATCH: usize = 257;
/// The maximum length of a literal or length code: four fit between two flushes.
const LITERAL_BITS_MAX: usize = 12;
/// The maximum length of a distance code.
const DISTANCE_BITS_MAX: usize = 15;
/// The maximum length of a code length code.
const LENGTH_BITS_MAX: usize = 7;
/// The order of code length code lengths.
const ORDER: [usize; 19] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];

/// Writes `tokens` as one block, optionally the last of the stream; `None` if the output is too small.
pub fn write(tokens: &Tokens, last: bool, bits: &mut Bits<'_>) -> Option<()> {
    let mut freqs = [0; 286];
    freqs[..END].copy_from_slice(&tokens.literals);
    freqs[END] = 1;
    freqs[MATCH..].copy_from_slice(&tokens.lens);
    let literal_lengths = lengths(&freqs, LITERAL_BITS_MAX);
    let distance_lengths = lengths(&tokens.distances, DISTANCE_BITS_MAX);
    // The size is known before anything is written.
    let least: u64 = freqs.iter().zip(&literal_lengths).map(|(freq, bits)| u64::from(*freq) * u64::from(*bits)).sum();
    if least / 8 > bits.room() as u64 {
        return None;
    }
    bits.put(u64::from(last) | 2 << 1, 3);
    header(&literal_lengths, &distance_lengths, bits)?;
    let literals = codes(&literal_lengths);
    body(tokens, &literals, &codes(&distance_lengths), bits)?;
    bits.put(literals[END].bits.into(), literals[END].count);
    bits.flush()
}

fn body(tokens: &Tokens, literals: &[Code; 286], distances: &[Code; 30], bits: &mut Bits<'_>) -> Option<()> {
    let lens = whole_lens(literals);
    let mut at = 0;
    for sequence in tokens.sequences() {
        let mut left = usize::from(sequence.literals);
        loop {
            // Always four: cheaper than a mispredicted branch on their number.
            for (index, byte) in tokens.bytes::<4>(at).into_iter().enumerate() {
                let code = literals[usize::from(byte)];
                let code = if index < left { code } else { Code::default() };
                bits.put(code.bits.into(), code.count);
            }
            bits.flush()?;
            at += left.min(4);
            if left <= 4 {
                break;
            }
            left -= 4;
        }
        let len = usize::from(sequence.len);
        let Some(whole) = lens.get(len).filter(|_| len > 0) else { break };
        bits.put(whole.bits.into(), whole.count);
        let distance = usize::from(sequence.distance);
        let (code, extra) = distance_code(distance);
        let code = distances[code];
        bits.put(code.bits.into(), code.count);
        bits.put((distance as u64 - 1) & ((1 << extra) - 1), extra);
        bits.flush()?;
        at += len;
    }
    Some(())
}

/// The code and extra bits of each match length.
fn whole_lens(literals: &[Code; 286]) -> [Code; 259] {
    let mut lens = [Code::default(); 259];
    for ((len, whole), how) in (0u32..).zip(&mut lens).zip(&LENS).skip(3) {
        let code = literals[MATCH + usize::from(how.code)];
        let extra = len - u32::from(how.base);
        *whole = Code { bits: code.bits | extra << code.count, count: code.count + u32::from(how.extra) };
    }
    lens
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
