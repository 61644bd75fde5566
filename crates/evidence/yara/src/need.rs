//! What must occur: disjunctions of atoms, and how those of parts make that of a whole.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use crate::atom::{ATOM_BYTES_MIN, Atom};

/// The maximum number of atoms of one rule.
const RULE_ATOMS_MAX: usize = 4096;
/// Beyond this length in bytes, an atom is hardly rarer for being longer.
const RARE_BYTES: usize = 8;

/// Atoms of which at least one occurs. There are none where nothing can match.
pub type Atoms = BTreeSet<Atom>;
/// What occurs wherever something matches; `None` if that is nothing in particular.
pub type Need = Option<Atoms>;

/// What occurs where `literal` does.
pub fn literal(literal: &[u8], ignore_case: bool) -> Need {
    Atom::of(literal, ignore_case).map(|atom| Atoms::from([atom]))
}

/// What occurs where at least one of several matches.
pub fn either(needs: impl IntoIterator<Item = Need>) -> Need {
    let mut all = Atoms::new();
    for need in needs {
        all.extend(need?);
        if all.len() > RULE_ATOMS_MAX {
            return None;
        }
    }
    Some(all)
}

/// What occurs where all of several match: what the best of them needs.
pub fn all(needs: impl IntoIterator<Item = Need>) -> Need {
    needs.into_iter().flatten().max_by_key(worth)
}

/// What occurs where at least `count` of several match. If any `count - 1` of them are left out, one that matches is among the others:
/// the worst are left out.
pub fn at_least(count: usize, mut needs: Vec<Need>) -> Need {
    if count == 0 || count > needs.len() {
        return None;
    }
    needs.sort_by_key(|need| Reverse(need.as_ref().map(worth)));
    needs.truncate(needs.len() - count + 1);
    either(needs)
}

/// What is better to search for is greater: rare atoms, and few.
fn worth(atoms: &Atoms) -> (usize, Reverse<usize>) {
    let shortest = atoms.iter().map(|atom| atom.bytes.len()).min();
    (shortest.map_or(usize::MAX, |len| len.clamp(ATOM_BYTES_MIN, RARE_BYTES)), Reverse(atoms.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn need(text: &str) -> Need {
        literal(text.as_bytes(), false)
    }

    #[test]
    fn one_of_several_needs_them_all() {
        assert_eq!(either([need("first"), need("second")]).map(|atoms| atoms.len()), Some(2));
        assert_eq!(either([need("first"), None]), None);
    }

    #[test]
    fn all_of_several_need_the_rarest() {
        assert_eq!(all([need("word"), None, need("longer word")]), need("longer word"));
        assert_eq!(all([None, None]), None);
        assert_eq!(all([need("word"), Some(Atoms::new())]), Some(Atoms::new()), "nothing can match");
    }

    #[test]
    fn two_of_three_need_the_better_two() {
        let three = || vec![None, need("second word"), need("third word")];
        assert_eq!(at_least(2, three()), either([need("second word"), need("third word")]));
        assert_eq!(at_least(1, three()), None);
        assert_eq!(at_least(0, three()), None);
        assert_eq!(at_least(4, three()), None);
    }

    #[test]
    fn too_many_atoms_are_none() {
        let many = |count: usize| (0..count).map(|number| need(&format!("word {number}")));
        assert!(either(many(RULE_ATOMS_MAX)).is_some() && either(many(RULE_ATOMS_MAX + 1)).is_none());
    }
}
