//! Atoms: literal bytes that are worth a search.

use std::collections::BTreeSet;

/// The least length of an atom, in bytes: shorter ones are found everywhere.
pub const ATOM_BYTES_MIN: usize = 4;
/// The greatest length of an atom, in bytes: longer ones are hardly rarer.
pub const ATOM_BYTES_MAX: usize = 32;
/// The least number of different bytes in an atom: padding has fewer.
const DIFFERENT_MIN: usize = 3;

/// Literal bytes. They neither begin nor end with a zero.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Atom {
    /// The bytes. If case is ignored, letters of ASCII are in lower case.
    pub bytes: Vec<u8>,
    /// Whether the case of the letters of ASCII is ignored.
    pub ignore_case: bool,
}

impl Atom {
    /// The best part of `literal`; `None` if none is worth a search.
    pub(crate) fn of(literal: &[u8], ignore_case: bool) -> Option<Self> {
        let bytes = if ignore_case { literal.to_ascii_lowercase() } else { literal.to_vec() };
        let mut best: Option<((usize, usize), &[u8])> = None;
        for window in windows(&bytes) {
            let worth = (window.iter().collect::<BTreeSet<_>>().len(), window.len());
            let is_worth_it = window.len() >= ATOM_BYTES_MIN && worth.0 >= DIFFERENT_MIN;
            if is_worth_it && best.is_none_or(|(most, _)| worth > most) {
                best = Some((worth, window));
            }
        }
        best.map(|(_, window)| Self { bytes: window.to_vec(), ignore_case })
    }
}

/// The longest parts that may be atoms, one from each place at which one may begin.
fn windows(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    (0..bytes.len()).filter(move |start| bytes.get(*start) != Some(&0)).filter_map(move |start| {
        let window = bytes.get(start..bytes.len().min(start + ATOM_BYTES_MAX))?;
        let end = window.iter().rposition(|byte| *byte != 0)?;
        window.get(..=end)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn atom(literal: &[u8], ignore_case: bool) -> Option<Vec<u8>> {
        Atom::of(literal, ignore_case).map(|atom| atom.bytes)
    }

    #[test]
    fn an_atom_neither_begins_nor_ends_with_a_zero() {
        assert_eq!(atom(b"\0\0abcd\0\0", false).as_deref(), Some(&b"abcd"[..]));
        assert_eq!(atom(b"a\0b\0c\0", false).as_deref(), Some(&b"a\0b\0c"[..]));
    }

    #[test]
    fn short_literals_and_padding_have_no_atom() {
        for literal in [&b""[..], b"abc", b"\0\0\0\0\0\0", b"\x90\x90\x90\x90\x90\x90", b"abababab", b"a\0b\0"] {
            assert_eq!(atom(literal, false), None, "{literal:?}");
        }
    }

    #[test]
    fn of_a_long_literal_the_first_part_with_the_most_different_bytes_is_taken() {
        let literal = [&[b' '; 100][..], b"abcdefghijklmnopqrstuvwxyz012345", &[b' '; 100]].concat();
        assert_eq!(atom(&literal, false).as_deref(), Some(&b" abcdefghijklmnopqrstuvwxyz01234"[..]));
    }

    #[test]
    fn letters_are_in_lower_case_if_case_is_ignored() {
        assert_eq!(atom(b"GeHeim", true).as_deref(), Some(&b"geheim"[..]));
        assert_eq!(atom(b"AaAaAa", true), None);
    }
}
